//! Turns events into what a person reads: a pure state machine that touches no terminal.

use std::collections::{HashMap, HashSet};

use api::{
    EventBody, Json, Message, MessageId, Part, PartId, SessionId, SessionStatus, StepFinishPart, Timestamp, Todo,
    ToolPart, ToolState, TreeNode, task_session,
};

use super::call::{INVALID, RunningCall, detail, exit_code, is_known, label, split_note};
use super::markdown::Markdown;
use super::waits::AnswerWaits;
use crate::terminal::amounts::{self, thousands};
use crate::terminal::{Style, diff, one_line, plural, wrap_lines};

/// The lines of output that are shown: the last of a command's, the first of another tool's.
const OUTPUT_LINES: usize = 6;
/// The first lines of a tool's error that are shown.
const ERROR_LINES: usize = 4;
/// The first entries of a todo list that are shown.
const TODO_LINES: usize = 20;

/// Something to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The answer: standard output.
    Text(String),
    /// Something about the answer: standard error.
    Note(String),
}

/// What the turn has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Input tokens that were cached.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Money.
    pub cost: f64,
    /// The part of `cost` for the title of the session.
    pub title_cost: f64,
    /// The tokens for the title.
    pub title_tokens: u64,
    /// Whether some of it is estimated.
    pub estimated: bool,
}

impl Totals {
    /// The difference between two states of the ledger; without the first, the whole of the second.
    pub fn between(before: Option<&TreeNode>, after: &TreeNode) -> Self {
        let since = |of: fn(&TreeNode) -> u64| of(after).saturating_sub(before.map_or(0, of));
        let money = |of: fn(&TreeNode) -> f64| of(after) - before.map_or(0.0, of);
        Self {
            input: since(|node| node.total.tokens.input),
            cached: since(|node| node.total.tokens.cache.read + node.total.tokens.cache.write),
            output: since(|node| node.total.tokens.output + node.total.tokens.reasoning),
            cost: money(|node| node.total.cost.0),
            title_cost: money(|node| node.titling.as_ref().map_or(0.0, |titling| titling.used.cost.0)),
            title_tokens: since(|node| node.titling.as_ref().map_or(0, |titling| titling.used.all_tokens())),
            estimated: since(|node| node.total.estimated_tokens) > 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastPiece {
    Nothing,
    Text,
    Note,
}

/// Renders one session. What comes twice is shown once, so that a reader that lost events can feed the stored state again.
pub struct Renderer {
    session: SessionId,
    style: Style,
    /// Whether both streams go to a terminal: then there are blank lines between text and tools, and totals at the end.
    on_terminal: bool,
    prompts: HashSet<MessageId>,
    /// How many bytes of each text part are shown.
    shown: HashMap<PartId, usize>,
    done: HashSet<PartId>,
    running: Vec<RunningCall>,
    /// What the spinner says while no call runs.
    waiting: String,
    line_open: bool,
    /// The message of the last text.
    text_message: Option<MessageId>,
    last: LastPiece,
    header_shown: bool,
    totals: Totals,
    /// Whether a tracker reports subagents, so that their calls are left out.
    subagents_tracked: bool,
    /// Renders the answer if it goes to a terminal.
    markdown: Option<Markdown>,
    waits: AnswerWaits,
}

impl Renderer {
    /// A renderer of that session.
    pub fn new(session: SessionId, style: Style, on_terminal: bool) -> Self {
        Self {
            session,
            style,
            on_terminal,
            prompts: HashSet::new(),
            shown: HashMap::new(),
            done: HashSet::new(),
            running: Vec::new(),
            waiting: "waiting for the model".into(),
            line_open: false,
            text_message: None,
            last: LastPiece::Nothing,
            header_shown: false,
            totals: Totals::default(),
            subagents_tracked: false,
            markdown: None,
            waits: AnswerWaits::default(),
        }
    }

    /// Renders markdown and wraps words, for an answer that goes to a terminal.
    pub fn with_markdown(mut self) -> Self {
        self.markdown = Some(Markdown::new(self.style));
        self
    }

    /// Takes the new width of the terminal.
    pub fn resize(&mut self, width: usize) {
        self.style.width = width;
        if let Some(markdown) = &mut self.markdown {
            markdown.resize(width);
        }
    }

    /// Leaves out the calls of subagents, which a tracker reports.
    pub fn with_tracked_subagents(mut self) -> Self {
        self.subagents_tracked = true;
        self
    }

    /// Renders an event that arrives now.
    pub fn event(&mut self, event: &EventBody, now: Timestamp) -> Vec<Piece> {
        let mut out = Vec::new();
        if event.session_id() != Some(&self.session) {
            return out;
        }
        self.waits.event(event, now);
        match event {
            EventBody::MessageUpdated { info, .. } => self.message(info, &mut out),
            EventBody::PartUpdated { part, .. } => self.part(part, &mut out),
            // Reasoning grows in the same way. Only parts that are known to be text are shown.
            EventBody::PartDelta { part_id, field, delta, .. }
                if field == "text" && self.shown.contains_key(part_id) =>
            {
                self.delta(part_id, delta, &mut out);
            }
            EventBody::TodoUpdated { todos, .. } => self.todos(todos, &mut out),
            // Attempts count from 1. Attempt 0 is a wait for a budget, which has its own event.
            EventBody::SessionStatus {
                status: SessionStatus::Retry { attempt: attempt @ 1.., message, next, .. },
                ..
            } => {
                let seconds = (next - now).max(0) as f64 / 1000.0;
                let text = format!("↻ attempt {attempt} failed, next in {seconds:.0} s: {}", one_line(message, 300));
                self.note(&format!("{}\n", self.style.yellow(&text)), &mut out);
                self.waiting = "waiting before the next attempt".into();
            }
            EventBody::SessionStatus { status: SessionStatus::Busy, .. } => {
                self.waiting = "waiting for the model".into();
            }
            _ => {}
        }
        out
    }

    /// Renders the state of a message. The first prompt shows the agent and the model.
    pub fn message(&mut self, info: &Message, out: &mut Vec<Piece>) {
        let Message::User(user) = info else { return };
        self.prompts.insert(user.id.clone());
        if std::mem::replace(&mut self.header_shown, true) {
            return;
        }
        let line = one_line(&format!("{} · {}", user.agent, user.model), 200);
        self.note(&format!("{}\n", self.style.dim(&line)), out);
        if user.model.provider_id == "script" && user.model.model_id == "demo" {
            let text = "This is the offline demo, not a language model: it follows a fixed script, with real tools.\n\
                        To use a model, set OPENAI_API_KEY or run `trefoil auth login`; `trefoil doctor` says what is missing.\n";
            let text = if self.on_terminal { wrap_lines(text, self.style.width) } else { text.to_owned() };
            self.note(&self.style.yellow(&text), out);
        }
    }

    /// Renders the state of a part.
    pub fn part(&mut self, part: &Part, out: &mut Vec<Piece>) {
        let Some(head) = part.head() else { return };
        if self.prompts.contains(&head.message_id) || self.done.contains(&head.id) {
            return;
        }
        match part {
            Part::Text(text) if text.synthetic != Some(true) && text.ignored != Some(true) => {
                // A long text continues in another part of its message, in the middle of a line.
                if self.text_message.as_ref() != Some(&head.message_id) {
                    self.close_line(out);
                    self.text_message = Some(head.message_id.clone());
                }
                let shown = *self.shown.entry(head.id.clone()).or_default();
                // The final text may be trimmed and so shorter than the stream; then there is nothing to add.
                if let Some(rest) = text.text.get(shown..).map(str::to_string) {
                    self.delta(&head.id, &rest, out);
                }
                if text.time.as_ref().is_some_and(|time| time.end.is_some()) {
                    self.done.insert(head.id.clone());
                }
            }
            Part::Tool(tool) => self.tool(tool, out),
            Part::StepFinish(step) => {
                self.done.insert(head.id.clone());
                self.close_line(out);
                self.count(step);
            }
            Part::Reasoning(_) => {
                self.close_line(out);
                self.waiting = "thinking".into();
            }
            _ => {}
        }
    }

    fn delta(&mut self, part: &PartId, delta: &str, out: &mut Vec<Piece>) {
        if delta.is_empty() || self.done.contains(part) {
            return;
        }
        *self.shown.entry(part.clone()).or_default() += delta.len();
        let clean = api::strip_control(delta);
        if clean.is_empty() {
            return;
        }
        self.gap(LastPiece::Text, out);
        let Some(markdown) = &mut self.markdown else {
            self.line_open = !clean.ends_with('\n');
            out.push(Piece::Text(clean.into_owned()));
            return;
        };
        let shown = markdown.push(&clean);
        self.line_open = markdown.is_open();
        if !shown.is_empty() {
            out.push(Piece::Text(shown));
        }
    }

    fn tool(&mut self, tool: &ToolPart, out: &mut Vec<Piece>) {
        let label = label(tool);
        let is_tracked = self.subagents_tracked && task_session(tool).is_some();
        self.running.retain(|call| call.part != tool.head.id);
        match &tool.state {
            ToolState::Pending(_) | ToolState::Running(_) => {
                self.running.push(RunningCall::new(tool));
                // Live output is drawn below the text, which has ended.
                if self.markdown.is_some() {
                    self.close_line(out);
                }
            }
            ToolState::Completed(_) if tool.tool == INVALID => {
                self.done.insert(tool.head.id.clone());
                let text = self.invalid(tool);
                self.note(&text, out);
            }
            ToolState::Completed(done) => {
                self.done.insert(tool.head.id.clone());
                // The list has its own event.
                if tool.tool != "todowrite" && !is_tracked {
                    let failed = tool.tool == "bash" && exit_code(&done.metadata) != Some(0);
                    let mark = if failed { self.style.red("✗") } else { self.style.green("●") };
                    let text = self.tool_text(tool, &mark, &label, &detail(tool, self.waits.of(tool)));
                    self.note(&text, out);
                }
            }
            ToolState::Error(error) => {
                self.done.insert(tool.head.id.clone());
                let mut text = self.tool_text(tool, &self.style.red("✗"), &label, "");
                text += &self.error_lines(&error.error);
                self.note(&text, out);
            }
        }
        if tool.state.is_done() {
            self.waits.forget(tool);
        }
    }

    fn error_lines(&self, error: &str) -> String {
        let clean = api::strip_control(error);
        let lines = clean.lines().filter(|line| !line.trim().is_empty()).take(ERROR_LINES);
        let line = |line| format!("  {}\n", self.style.red(&one_line(line, self.style.width.saturating_sub(2))));
        lines.map(line).collect()
    }

    /// A call that no tool accepts: the tool that it names, and why.
    fn invalid(&self, tool: &ToolPart) -> String {
        let text = |key: &str| tool.state.input().get(key).and_then(Json::as_str).unwrap_or_default();
        let (name, error) = (one_line(text("tool"), 80), text("error"));
        format!("{} {}\n{}", self.style.red("✗"), self.style.red(&name), self.error_lines(error))
    }

    /// The line of a call, then its diff or a part of its output.
    fn tool_text(&self, tool: &ToolPart, mark: &str, label: &str, detail: &str) -> String {
        let room = self.style.width.saturating_sub(tool.tool.chars().count() + detail.chars().count() + 8).max(20);
        let mut text = format!("{mark} {}  {}", self.style.bold(&one_line(&tool.tool, 40)), one_line(label, room));
        if !detail.is_empty() {
            text += &format!("  {}", self.style.dim(detail));
        }
        text.push('\n');
        let ToolState::Completed(done) = &tool.state else { return text };
        if let Some(patch) = diff::of(&done.metadata) {
            text += &diff::compact(patch, self.style);
        } else if tool.tool == "bash" {
            let (output, note) = split_note(&done.output);
            text += &self.output_tail(output);
            if let Some(note) = note {
                text += &format!("  {}\n", self.style.yellow(&one_line(note, self.style.width.saturating_sub(2))));
            }
        } else if !is_known(&tool.tool) {
            text += &self.output_head(&done.output);
        }
        text
    }

    fn output_tail(&self, output: &str) -> String {
        let clean = api::strip_control(output);
        let lines: Vec<&str> = clean.lines().filter(|line| !line.trim().is_empty()).collect();
        let hidden = lines.len().saturating_sub(OUTPUT_LINES);
        let before = (hidden > 0).then(|| self.output_line(&format!("… {hidden} lines before")));
        before.into_iter().chain(lines[hidden..].iter().map(|line| self.output_line(line))).collect()
    }

    fn output_head(&self, output: &str) -> String {
        let clean = api::strip_control(output);
        let lines: Vec<&str> = clean.lines().filter(|line| !line.trim().is_empty()).collect();
        let hidden = lines.len().saturating_sub(OUTPUT_LINES);
        let more = (hidden > 0).then(|| self.output_line(&format!("… {hidden} more lines")));
        lines.iter().take(OUTPUT_LINES).map(|line| self.output_line(line)).chain(more).collect()
    }

    fn output_line(&self, line: &str) -> String {
        let line = format!("│ {}", one_line(line, self.style.width.saturating_sub(4)));
        format!("  {}\n", self.style.dim(&line))
    }

    fn todos(&mut self, todos: &[Todo], out: &mut Vec<Piece>) {
        let done = todos.iter().filter(|todo| todo.status == "completed").count();
        let mut text =
            format!("{} {}  {done} of {} done\n", self.style.green("●"), self.style.bold("todo"), todos.len());
        for todo in todos.iter().take(TODO_LINES) {
            let mark = match todo.status.as_str() {
                "completed" => "[x]",
                "in_progress" => "[~]",
                "cancelled" => "[-]",
                _ => "[ ]",
            };
            let line = format!("  {mark} {}", one_line(&todo.content, self.style.width.saturating_sub(6)));
            let line = if todo.status == "in_progress" { self.style.bold(&line) } else { self.style.dim(&line) };
            text += &format!("{line}\n");
        }
        if todos.len() > TODO_LINES {
            text += &format!("  … {} more\n", todos.len() - TODO_LINES);
        }
        self.note(&text, out);
    }

    fn count(&mut self, step: &StepFinishPart) {
        self.totals.input += step.tokens.input;
        self.totals.cached += step.tokens.cache.read + step.tokens.cache.write;
        self.totals.output += step.tokens.output + step.tokens.reasoning;
        self.totals.cost += step.cost.0;
    }

    /// Adds a line about the answer.
    pub fn note(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.close_line(out);
        self.gap(LastPiece::Note, out);
        out.push(Piece::Note(text.to_string()));
    }

    /// Ends the line of a text.
    pub fn close_line(&mut self, out: &mut Vec<Piece>) {
        if let Some(markdown) = &mut self.markdown {
            let rest = markdown.finish();
            self.line_open = markdown.is_open();
            markdown.line_closed();
            if !rest.is_empty() {
                out.push(Piece::Text(rest));
            }
        }
        if std::mem::take(&mut self.line_open) {
            out.push(Piece::Text("\n".into()));
        }
    }

    fn gap(&mut self, next: LastPiece, out: &mut Vec<Piece>) {
        if self.on_terminal && self.last != LastPiece::Nothing && self.last != next {
            out.push(Piece::Note("\n".into()));
        }
        self.last = next;
    }

    /// The text of the spinner: what runs, and for how long.
    pub fn status(&self, now: Timestamp) -> String {
        match self.running.as_slice() {
            [] => self.waiting.clone(),
            // The spinner comes first.
            [call] => self.headline(call, now),
            calls => plural(calls.len(), "call"),
        }
    }

    fn headline(&self, call: &RunningCall, now: Timestamp) -> String {
        call.headline(now - self.waits.until(&call.key, now), self.style.width.saturating_sub(3))
    }

    /// The lines above the spinner: the last output of each running call, with headlines if there are several.
    pub fn live(&self, now: Timestamp, max: usize) -> Vec<String> {
        let several = self.running.len() > 1;
        let width = self.style.width;
        let mut lines = Vec::new();
        for call in &self.running {
            if several {
                lines.push(format!("  {}", self.headline(call, now)));
            }
            let tail = call.tail.iter().map(|line| format!("  │ {}", one_line(line, width.saturating_sub(5))));
            lines.extend(tail.map(|line| self.style.dim(&line)));
        }
        lines.truncate(max);
        lines
    }

    /// Replaces the totals by those of the ledger, which also has subagents, titles and calls that were cut off.
    pub fn set_totals(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// Ends the line that is being written.
    pub fn end_line(&mut self) -> Vec<Piece> {
        let mut out = Vec::new();
        self.close_line(&mut out);
        out
    }

    /// Ends the turn: closes the line, and on a terminal adds the totals.
    pub fn finish(&mut self, elapsed: Option<std::time::Duration>) -> Vec<Piece> {
        let mut out = self.end_line();
        if !self.on_terminal {
            return out;
        }
        let Totals { input, cached, output, cost, title_cost, title_tokens, estimated } = self.totals;
        let about = if estimated { "~" } else { "" };
        let mut line = format!("{about}{} tokens in", thousands(input + cached));
        if cached > 0 {
            line += &format!(" ({} cached)", thousands(cached));
        }
        line += &format!(" · {} out", thousands(output));
        if cost > 0.0 {
            line += &format!(" · {about}{}", amounts::dollars(cost));
        }
        let title = amounts::amount(title_cost, title_tokens);
        if !title.is_empty() {
            line += &format!(" ({title} for the title)");
        }
        if let Some(elapsed) = elapsed {
            line += &format!(" · {:.1} s", elapsed.as_secs_f64());
        }
        self.note(&format!("{}\n", self.style.dim(&line)), &mut out);
        out
    }
}

#[cfg(test)]
mod tests;
