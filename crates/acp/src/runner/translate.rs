//! Translates an agent's updates into reports for the runner context. Pure.

use std::collections::HashMap;
use std::path::PathBuf;

use api::{JsonMap, RunnerCall, RunnerCallState, RunnerChange, RunnerUpdate, Todo, Tokens, TokensCache, Usage, Usd};
use indexmap::IndexMap;
use serde_json::{Value, json};

use crate::client::Subagent;
use crate::size;

/// Calls that are tracked; further ones are ignored.
const MAX_CALLS: usize = 4_000;
/// The longest output of a call, as JSON.
const MAX_OUTPUT: usize = 50 << 10;
/// The longest arguments of a call, as JSON.
const MAX_INPUT: usize = 64 << 10;
/// The longest id of a call, a terminal or a session, in bytes; longer ones are ignored.
const MAX_ID: usize = 1 << 10;
/// The longest status or priority of a plan entry.
const MAX_WORD: usize = 100;
/// The longest title.
const MAX_TITLE: usize = 1_000;
/// The largest text of a change, old or new, in bytes.
const MAX_CHANGE: usize = 512 << 10;
/// The most changes of one call.
const MAX_CHANGES: usize = 50;
/// The most entries of a plan.
const MAX_TODOS: usize = 200;
/// The most calls of a subagent in its summary: the newest.
const MAX_SUMMARY: usize = 50;
/// The most subagents shown in calls.
const MAX_CHILDREN: usize = 100;
/// How much of a subagent's text is shown: the end, in bytes.
const MAX_TAIL: usize = 1_000;

/// The state of one agent session.
#[derive(Default)]
pub(super) struct UpdateTranslator {
    /// The session.
    session: String,
    /// Its cost before this job.
    cost_before: f64,
    /// Its calls, in order.
    calls: IndexMap<String, RunnerCall>,
    /// The terminal that each call shows.
    terminals: HashMap<String, String>,
    /// Subagents of the agent, by session.
    children: HashMap<String, ChildSummary>,
    /// The last reported cost of each session.
    costs: HashMap<String, f64>,
    /// Tokens in the session's context: an estimate of the job's tokens while it runs.
    context_tokens: u64,
}

/// A subagent as its call shows it.
#[derive(Default)]
struct ChildSummary {
    /// The call that shows it.
    call: String,
    summary: IndexMap<String, Value>,
    text: String,
}

impl UpdateTranslator {
    /// Starts a job in a session that has cost this much so far.
    pub fn begin(&mut self, session: &str, cost: f64) {
        session.clone_into(&mut self.session);
        self.cost_before = cost;
    }

    /// Translates an update. `terminal` returns the output of a terminal.
    pub fn update(
        &mut self,
        session: &str,
        update: &Value,
        terminal: &dyn Fn(&str) -> Option<String>,
    ) -> Option<RunnerUpdate> {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        if kind == "usage_update" {
            return Some(self.usage(session, update));
        }
        if session != self.session {
            return self.child_update(session, kind, update);
        }
        match kind {
            "agent_message_chunk" => text(&update["content"]).map(RunnerUpdate::Text),
            "agent_thought_chunk" => text(&update["content"]).map(RunnerUpdate::Reasoning),
            "plan" => Some(RunnerUpdate::Todos(todos(&update["entries"]))),
            "tool_call" | "tool_call_update" => {
                let call = self.call(update)?;
                let done = matches!(call.state, RunnerCallState::Completed | RunnerCallState::Failed);
                let id = call.id.clone();
                if let Some(shown) = call.output.is_empty().then(|| self.terminals.get(&id)).flatten().filter(|_| done)
                    && let Some(output) = terminal(shown)
                    && let Some(call) = self.calls.get_mut(&id)
                {
                    call.output = size::truncate(&output, MAX_OUTPUT);
                }
                self.calls.get(&id).cloned().map(RunnerUpdate::Call)
            }
            _ => None,
        }
    }

    /// Applies an update to a call of the session.
    fn call(&mut self, update: &Value) -> Option<&RunnerCall> {
        let id = id(&update["toolCallId"])?;
        if !self.calls.contains_key(id) {
            if self.calls.len() >= MAX_CALLS {
                return None;
            }
            self.calls.insert(id.to_owned(), RunnerCall { id: id.to_owned(), ..RunnerCall::default() });
        }
        let shown = update["content"].as_array().into_iter().flatten().find(|block| block["type"] == "terminal");
        if let Some(terminal) = shown.and_then(|block| self::id(&block["terminalId"])) {
            self.terminals.insert(id.to_owned(), terminal.to_owned());
        }
        let call = self.calls.get_mut(id)?;
        merge(call, update);
        Some(call)
    }

    /// The call of a permission request, and whether it is a subagent's: those are not reported otherwise.
    pub fn permission_call(&mut self, session: &str, call: &Value) -> (RunnerCall, bool) {
        if session == self.session
            && let Some(known) = self.call(call)
        {
            return (RunnerCall { state: RunnerCallState::Running, ..known.clone() }, false);
        }
        let id = format!("{session}:{}", id(&call["toolCallId"]).unwrap_or_default());
        let mut wanted = RunnerCall { id, state: RunnerCallState::Running, ..RunnerCall::default() };
        merge(&mut wanted, call);
        wanted.state = RunnerCallState::Running;
        (wanted, true)
    }

    /// Shows a subagent in the call that waits for it, or in a call of its own.
    pub fn subagent(&mut self, subagent: &Subagent) -> Option<RunnerUpdate> {
        let known = |call: &String| subagent.parent == self.session && self.calls.contains_key(call);
        let named = subagent.call.clone().filter(known);
        let Some(session) = &subagent.session else { return None };
        if self.children.len() >= MAX_CHILDREN && !self.children.contains_key(session) {
            return None;
        }
        if subagent.parent != self.session {
            // A nested subagent is shown in the same call.
            if let Some(call) = self.children.get(&subagent.parent).map(|child| child.call.clone()) {
                self.children
                    .entry(session.clone())
                    .or_insert_with(|| ChildSummary { call, ..ChildSummary::default() });
            }
            return None;
        }
        let before = self.children.get(session).map(|child| child.call.clone());
        let call = named.or_else(|| before.clone()).or_else(|| self.waiting_call(&subagent.title));
        let own = format!("subagent:{session}");
        let call = call.unwrap_or_else(|| own.clone());
        self.children.entry(session.clone()).or_default().call.clone_from(&call);
        if before.as_ref() == Some(&own) && call != own {
            // The call that waits for it became known: end the substitute.
            let shown = self.calls.get_mut(&own)?;
            shown.state = RunnerCallState::Completed;
            return Some(RunnerUpdate::Call(shown.clone()));
        }
        if call != own {
            return self.progress(session);
        }
        let entry = self.calls.entry(own.clone()).or_insert_with(|| RunnerCall {
            id: own,
            tool: "task".to_owned(),
            title: size::truncate(&subagent.title, MAX_TITLE),
            input: JsonMap::from_iter([("description".to_owned(), json!(subagent.title))]),
            ..RunnerCall::default()
        });
        entry.state = match subagent.state.as_str() {
            "idle" => RunnerCallState::Completed,
            "failed" => RunnerCallState::Failed,
            _ => RunnerCallState::Running,
        };
        self.progress(session)
    }

    /// The call that shows a subagent.
    pub fn call_of(&self, session: &str) -> Option<&RunnerCall> {
        self.calls.get(&self.children.get(session)?.call)
    }

    /// The unassigned call that waits for a subagent with this title.
    fn waiting_call(&self, title: &str) -> Option<String> {
        let taken = |id: &String| self.children.values().any(|child| child.call == *id);
        let done = |call: &RunnerCall| matches!(call.state, RunnerCallState::Completed | RunnerCallState::Failed);
        let waits = |call: &RunnerCall| call.tool == "task" && !done(call);
        let mut free = self.calls.values().filter(|call| waits(call) && !taken(&call.id));
        let described = |call: &&RunnerCall| {
            let text = call.input.get("description").and_then(Value::as_str).unwrap_or_default();
            !text.is_empty() && title.contains(text)
        };
        let best = free.clone().find(described).or_else(|| free.next());
        best.map(|call| call.id.clone())
    }

    /// Applies an update of a subagent.
    fn child_update(&mut self, session: &str, kind: &str, update: &Value) -> Option<RunnerUpdate> {
        let child = self.children.get_mut(session)?;
        match kind {
            "agent_message_chunk" => {
                child.text.push_str(&text(&update["content"])?);
                let start = child.text.ceil_char_boundary(child.text.len().saturating_sub(MAX_TAIL));
                child.text.drain(..start);
            }
            "tool_call" | "tool_call_update" => {
                let id = id(&update["toolCallId"])?;
                let entry = child.summary.entry(id.to_owned()).or_insert_with(|| json!({"id": id, "state": {}}));
                let mut call =
                    RunnerCall { tool: entry["tool"].as_str().unwrap_or_default().to_owned(), ..RunnerCall::default() };
                merge(&mut call, update);
                entry["tool"] = json!(call.tool);
                if update["status"].is_string() || entry["state"]["status"].is_null() {
                    entry["state"]["status"] = json!(state_name(call.state));
                }
                if !call.title.is_empty() {
                    entry["state"]["title"] = json!(call.title);
                }
                while child.summary.len() > MAX_SUMMARY {
                    child.summary.shift_remove_index(0);
                }
            }
            _ => return None,
        }
        self.progress(session)
    }

    /// The call that shows a subagent, with its progress.
    fn progress(&mut self, session: &str) -> Option<RunnerUpdate> {
        let child = self.children.get(session)?;
        let call = self.calls.get_mut(&child.call)?;
        call.metadata.insert("summary".to_owned(), child.summary.values().cloned().collect());
        let own = call.id.starts_with("subagent:");
        if own || call.state == RunnerCallState::Running {
            call.output.clone_from(&child.text);
        }
        Some(RunnerUpdate::Call(call.clone()))
    }

    /// The usage so far; the saved value is the cost of the whole session.
    fn usage(&mut self, session: &str, update: &Value) -> RunnerUpdate {
        let cost = &update["cost"];
        let is_usd = cost["currency"].as_str().is_none_or(|currency| currency.eq_ignore_ascii_case("usd"));
        let amount = cost["amount"].as_f64().filter(|amount| is_usd && amount.is_finite() && *amount >= 0.0);
        let has_room = self.costs.len() <= MAX_CHILDREN && session.len() <= MAX_ID || self.costs.contains_key(session);
        if let Some(amount) = amount.filter(|_| has_room) {
            self.costs.insert(session.to_owned(), amount);
        }
        if session == self.session {
            self.context_tokens = update["used"].as_u64().unwrap_or(self.context_tokens);
        }
        self.usage_report(Tokens { input: self.context_tokens, ..Tokens::default() }, self.context_tokens)
    }

    fn usage_report(&self, tokens: Tokens, estimated_tokens: u64) -> RunnerUpdate {
        let own = self.costs.get(&self.session).copied().unwrap_or(self.cost_before);
        let others: f64 = self.costs.iter().filter(|(id, _)| **id != self.session).map(|(_, cost)| cost).sum();
        let cost = Usd((own - self.cost_before).max(0.0) + others);
        let used = Usage { cost, tokens, estimated_tokens, ..Usage::default() };
        RunnerUpdate::Usage { used, kept: json!(own) }
    }

    /// The usage at the end of the turn: the tokens of the response, if the agent counts them.
    pub fn finish(&mut self, answer: &Value) -> Option<RunnerUpdate> {
        let usage = &answer["usage"];
        let number = |key: &str| usage[key].as_u64().unwrap_or(0);
        let tokens = Tokens {
            total: None,
            input: number("inputTokens"),
            output: number("outputTokens"),
            reasoning: number("thoughtTokens"),
            cache: TokensCache { read: number("cachedReadTokens"), write: number("cachedWriteTokens") },
        };
        let counted = Usage { tokens: tokens.clone(), ..Usage::default() }.all_tokens() > 0;
        if counted {
            return Some(self.usage_report(tokens, 0));
        }
        // The context size is not a sum of what was used; the engine counts the text instead.
        (!self.costs.is_empty()).then(|| self.usage_report(Tokens::default(), 0))
    }
}

fn id(value: &Value) -> Option<&str> {
    value.as_str().filter(|id| id.len() <= MAX_ID)
}

fn text(content: &Value) -> Option<String> {
    let text = match content["type"].as_str()? {
        "text" => content["text"].as_str()?.to_owned(),
        "resource_link" => content["uri"].as_str()?.to_owned(),
        "resource" => content["resource"]["text"].as_str()?.to_owned(),
        other => format!("[{other}]"),
    };
    Some(text).filter(|text| !text.is_empty())
}

fn todos(entries: &Value) -> Vec<Todo> {
    let word = |value: &Value, default: &str| size::truncate(value.as_str().unwrap_or(default), MAX_WORD);
    let todo = |entry: &Value| Todo {
        content: size::truncate(entry["content"].as_str().unwrap_or_default(), MAX_TITLE),
        status: word(&entry["status"], "pending"),
        priority: word(&entry["priority"], "medium"),
    };
    entries.as_array().into_iter().flatten().take(MAX_TODOS).map(todo).collect()
}

/// Merges an update into a call.
fn merge(call: &mut RunnerCall, update: &Value) {
    if let Some(title) = update["title"].as_str() {
        call.title = size::truncate(title, MAX_TITLE);
    }
    if let Some(state) = update["status"].as_str() {
        call.state = match state {
            "in_progress" => RunnerCallState::Running,
            "completed" => RunnerCallState::Completed,
            "failed" => RunnerCallState::Failed,
            _ => RunnerCallState::Pending,
        };
    }
    let raw = &update["rawInput"];
    if let Value::Object(input) = size::fit(raw.clone(), MAX_INPUT) {
        call.input.extend(input);
    }
    if let Some(tool) = tool_name(update, call) {
        call.tool = tool;
    }
    fill_arguments(call, update);
    if let Some(content) = update["content"].as_array() {
        let texts =
            content.iter().filter(|block| block["type"] == "content").filter_map(|block| text(&block["content"]));
        let output = texts.collect::<Vec<_>>().join("\n");
        if !output.is_empty() {
            call.output = size::truncate(&output, MAX_OUTPUT);
        }
        let changes: Vec<_> = content.iter().filter_map(parse_change).take(MAX_CHANGES).collect();
        if !changes.is_empty() {
            call.changes = changes;
        }
    }
    let output = &update["rawOutput"];
    let output = [output, &output["output"], &output["error"]].into_iter().find_map(Value::as_str);
    if let Some(output) = output.filter(|output| call.output.is_empty() && !output.is_empty()) {
        call.output = size::truncate(output, MAX_OUTPUT);
    }
}

/// Our tool that does the same, else the agent's name for it; `None` if the update does not say.
fn tool_name(update: &Value, known: &RunnerCall) -> Option<String> {
    let is_name = |name: &&str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
    };
    if known.input.get("subagent_type").is_some_and(Value::is_string) {
        return Some("task".to_owned());
    }
    let name = update["name"].as_str().filter(is_name);
    let by_kind = match update["kind"].as_str() {
        Some("execute") => Some("bash"),
        Some("edit" | "delete" | "move") => Some("edit"),
        Some("read") => Some("read"),
        Some("search") => Some("grep"),
        Some("fetch") => Some("webfetch"),
        _ => None,
    };
    // Some agents use the tool's name as the first title.
    let first_title = || update["title"].as_str().filter(is_name).filter(|_| known.tool.is_empty());
    let first = || known.tool.is_empty().then_some("other");
    let chosen =
        name.or_else(first_title).or_else(|| by_kind.filter(|_| known.tool.is_empty() || known.tool == "other"));
    chosen.or_else(first).map(str::to_owned)
}

/// Fills in the arguments that our tool of the same kind takes, from wherever the agent puts them.
fn fill_arguments(call: &mut RunnerCall, update: &Value) {
    let find = |keys: &[&str], input: &JsonMap| {
        keys.iter().find_map(|key| input.get(*key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned))
    };
    match call.tool.as_str() {
        "bash" => {
            let line = find(&["command", "cmd"], &call.input).or_else(|| {
                let words = call.input.get("command")?.as_array()?;
                Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
            });
            let quoted = || call.title.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
            if let Some(line) = line.or_else(quoted) {
                call.input.insert("command".to_owned(), line.into());
            }
            if let Some(directory) = find(&["workdir", "cwd"], &call.input) {
                call.input.insert("workdir".to_owned(), directory.into());
            }
        }
        "read" | "edit" | "write" => {
            let content = update["content"].as_array().into_iter().flatten();
            let diff = || content.clone().find_map(|block| block["path"].as_str()).map(str::to_owned);
            let place = || update["locations"][0]["path"].as_str().map(str::to_owned);
            let path = find(&["filePath", "file_path", "path", "abs_path", "filepath"], &call.input);
            if let Some(path) = path.or_else(diff).or_else(place) {
                call.input.insert("filePath".to_owned(), path.into());
            }
        }
        _ => {}
    }
}

fn parse_change(block: &Value) -> Option<RunnerChange> {
    if block["type"] != "diff" {
        return None;
    }
    let old = block["oldText"].as_str().map(str::to_owned);
    let new = block["newText"].as_str()?.to_owned();
    let fits = new.len() <= MAX_CHANGE && old.as_ref().is_none_or(|old| old.len() <= MAX_CHANGE);
    fits.then_some(RunnerChange { path: PathBuf::from(block["path"].as_str()?), old, new })
}

/// The name of a state in our summaries.
fn state_name(state: RunnerCallState) -> &'static str {
    match state {
        RunnerCallState::Pending => "pending",
        RunnerCallState::Running => "running",
        RunnerCallState::Completed => "completed",
        RunnerCallState::Failed => "error",
    }
}
