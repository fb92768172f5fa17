//! From events to what a human reads: a pure state machine without a terminal in it.

use std::collections::{HashMap, HashSet};

use api::{
    EventBody, Json, Message, MessageId, Part, PartId, SessionId, SessionStatus, StepFinishPart, Todo, ToolPart,
    ToolState,
};

use super::diff;
use super::family::child;
use crate::term::{Style, one_line, plural};

/// How many lines of a command's output are shown, counted from its end.
const OUTPUT_LINES: usize = 6;
/// How many lines of a tool's error are shown.
const ERROR_LINES: usize = 4;
/// How many entries of a todo list are shown.
const TODO_LINES: usize = 20;

/// Something to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The answer: standard output.
    Text(String),
    /// About the answer: standard error.
    Note(String),
}

/// What the turn used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Totals {
    input: u64,
    cached: u64,
    output: u64,
    cost: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Text,
    Note,
}

/// What was shown so far of one session. Feeding it the same thing twice shows it once, so that a reader that lost its
/// place may feed the stored state again.
pub struct Renderer {
    session: SessionId,
    style: Style,
    /// Blank lines between text and tools, and the totals at the end: only where a human reads both streams at once.
    roomy: bool,
    users: HashSet<MessageId>,
    shown: HashMap<PartId, usize>,
    done: HashSet<PartId>,
    running: Vec<(PartId, String)>,
    waiting: String,
    line_open: bool,
    /// The message of the last text.
    speaking: Option<MessageId>,
    last: Last,
    header: bool,
    totals: Totals,
    /// Whether somebody else tells of subagents, so that calls that made one are left out.
    family: bool,
}

impl Renderer {
    /// A reader of that session.
    pub fn new(session: SessionId, style: Style, roomy: bool) -> Self {
        Self {
            session,
            style,
            roomy,
            users: HashSet::new(),
            shown: HashMap::new(),
            done: HashSet::new(),
            running: Vec::new(),
            waiting: "waiting for the model".into(),
            line_open: false,
            speaking: None,
            last: Last::Nothing,
            header: false,
            totals: Totals::default(),
            family: false,
        }
    }

    /// Somebody else tells of subagents.
    pub fn beside_family(mut self) -> Self {
        self.family = true;
        self
    }

    /// What an event adds.
    pub fn event(&mut self, event: &EventBody) -> Vec<Piece> {
        let mut out = Vec::new();
        if event.session_id() != Some(&self.session) {
            return out;
        }
        match event {
            EventBody::MessageUpdated { info, .. } => self.message(info, &mut out),
            EventBody::PartUpdated { part, .. } => self.part(part, &mut out),
            // What the model thinks grows in the same way; only parts that are known to be text are shown.
            EventBody::PartDelta { part_id, field, delta, .. }
                if field == "text" && self.shown.contains_key(part_id) =>
            {
                self.delta(part_id, delta, &mut out);
            }
            EventBody::TodoUpdated { todos, .. } => self.todos(todos, &mut out),
            // Attempts are counted from 1; what waits for a budget says so itself.
            EventBody::SessionStatus {
                status: SessionStatus::Retry { attempt: attempt @ 1.., message, next, .. },
                ..
            } => {
                let seconds = (next - api::now()).max(0) as f64 / 1000.0;
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

    /// What a message's state adds: the first one of the human names who answers.
    pub fn message(&mut self, info: &Message, out: &mut Vec<Piece>) {
        let Message::User(user) = info else { return };
        self.users.insert(user.id.clone());
        if std::mem::replace(&mut self.header, true) {
            return;
        }
        let line = one_line(&format!("{} · {}", user.agent, user.model), 200);
        self.note(&format!("{}\n", self.style.dim(&line)), out);
        if user.model.provider_id == "script" && user.model.model_id == "demo" {
            let text = "This is the offline demo, not a language model: it follows a fixed script, with real tools.\n\
                        To connect a model, set OPENAI_API_KEY or add a provider to trefoil.json; `trefoil doctor` shows what was found.\n";
            self.note(&self.style.yellow(text), out);
        }
    }

    /// What a part's state adds.
    pub fn part(&mut self, part: &Part, out: &mut Vec<Piece>) {
        let Some(head) = part.head() else { return };
        if self.users.contains(&head.message_id) || self.done.contains(&head.id) {
            return;
        }
        match part {
            Part::Text(text) if text.synthetic != Some(true) && text.ignored != Some(true) => {
                // A long text goes on in another part of its message, in the middle of a line.
                if self.speaking.as_ref() != Some(&head.message_id) {
                    self.close_line(out);
                    self.speaking = Some(head.message_id.clone());
                }
                let shown = *self.shown.entry(head.id.clone()).or_default();
                // A final text may be shorter than what was streamed (trimmed); then there is nothing to add.
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
        self.gap(Last::Text, out);
        self.line_open = !clean.ends_with('\n');
        out.push(Piece::Text(clean.into_owned()));
    }

    fn tool(&mut self, tool: &ToolPart, out: &mut Vec<Piece>) {
        let label = label(tool);
        let elsewhere = self.family && child(tool).is_some();
        self.running.retain(|(id, _)| *id != tool.head.id);
        match &tool.state {
            ToolState::Pending(_) | ToolState::Running(_) => {
                let text = format!("{}  {label}", tool.tool).trim_end().to_string();
                self.running.push((tool.head.id.clone(), text));
            }
            ToolState::Completed(done) => {
                self.done.insert(tool.head.id.clone());
                // The list itself follows from its own event.
                if tool.tool != "todowrite" && !elsewhere {
                    let failed = tool.tool == "bash" && exit_code(&done.metadata) != Some(0);
                    let mark = if failed { self.style.red("✗") } else { self.style.green("●") };
                    let text = self.tool_text(tool, &mark, &label, &detail(tool));
                    self.note(&text, out);
                }
            }
            ToolState::Error(error) => {
                self.done.insert(tool.head.id.clone());
                let mut text = self.tool_text(tool, &self.style.red("✗"), &label, "");
                let clean = api::strip_control(&error.error).into_owned();
                for line in clean.lines().filter(|line| !line.trim().is_empty()).take(ERROR_LINES) {
                    text += &format!("  {}\n", self.style.red(&one_line(line, self.style.width.saturating_sub(2))));
                }
                self.note(&text, out);
            }
        }
    }

    /// The tool's line, then its diff or the end of its output.
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
            text += &self.output_tail(&done.output);
        }
        text
    }

    fn output_tail(&self, output: &str) -> String {
        let clean = api::strip_control(output);
        let lines: Vec<&str> = clean.lines().filter(|line| !line.trim().is_empty()).collect();
        let hidden = lines.len().saturating_sub(OUTPUT_LINES);
        let mut text = String::new();
        if hidden > 0 {
            text += &format!("  {}\n", self.style.dim(&format!("│ … {hidden} lines before")));
        }
        for line in &lines[hidden..] {
            let line = format!("│ {}", one_line(line, self.style.width.saturating_sub(4)));
            text += &format!("  {}\n", self.style.dim(&line));
        }
        text
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

    /// A line about the answer.
    pub fn note(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.close_line(out);
        self.gap(Last::Note, out);
        out.push(Piece::Note(text.to_string()));
    }

    /// Ends the line of a text that may have gone on.
    pub fn close_line(&mut self, out: &mut Vec<Piece>) {
        if std::mem::take(&mut self.line_open) {
            out.push(Piece::Text("\n".into()));
        }
    }

    fn gap(&mut self, next: Last, out: &mut Vec<Piece>) {
        if self.roomy && self.last != Last::Nothing && self.last != next {
            out.push(Piece::Note("\n".into()));
        }
        self.last = next;
    }

    /// What the spinner says.
    pub fn status(&self) -> String {
        match self.running.as_slice() {
            [] => self.waiting.clone(),
            tools => tools.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" · "),
        }
    }

    /// The end of the turn: closes the line, and on a terminal says what it took.
    pub fn finish(&mut self, elapsed: Option<std::time::Duration>) -> Vec<Piece> {
        let mut out = Vec::new();
        self.close_line(&mut out);
        if !self.roomy {
            return out;
        }
        let Totals { input, cached, output, cost } = self.totals;
        let mut line = format!("{} tokens in", thousands(input + cached));
        if cached > 0 {
            line += &format!(" ({} cached)", thousands(cached));
        }
        line += &format!(" · {} out", thousands(output));
        if cost > 0.0 {
            line += &format!(" · ${cost:.4}");
        }
        if let Some(elapsed) = elapsed {
            line += &format!(" · {:.1} s", elapsed.as_secs_f64());
        }
        self.note(&format!("{}\n", self.style.dim(&line)), &mut out);
        out
    }
}

/// What a call is about, in a few words.
pub fn label(tool: &ToolPart) -> String {
    let text = |key: &str| tool.state.input().get(key).and_then(Json::as_str);
    if tool.tool == "task"
        && let (Some(agent), Some(description)) = (text("subagent_type"), text("description"))
    {
        return format!("{agent}: {description}");
    }
    tool.subject().to_string()
}

/// How a call ended, in a word or two.
fn detail(tool: &ToolPart) -> String {
    let ToolState::Completed(done) = &tool.state else { return String::new() };
    let number = |key: &str| done.metadata.get(key).and_then(Json::as_u64);
    let mut words = Vec::new();
    match tool.tool.as_str() {
        "bash" => match exit_code(&done.metadata) {
            Some(0) => {}
            Some(code) => words.push(format!("exit {code}")),
            None => words.push("no exit code".into()),
        },
        "grep" => {
            words.extend(number("matches").map(|n| if n == 1 { "1 match".into() } else { format!("{n} matches") }))
        }
        "glob" => words.extend(number("count").map(|n| plural(n as usize, "file"))),
        "write" if done.metadata.get("exists").and_then(Json::as_bool) == Some(false) => words.push("new file".into()),
        _ => {}
    }
    if let Some(patch) = diff::of(&done.metadata) {
        let (added, removed) = diff::count(patch);
        words.push(format!("+{added} -{removed}"));
    }
    let seconds = done.time.end.map_or(0.0, |end| (end - done.time.start) as f64 / 1000.0);
    if seconds >= 1.0 {
        words.push(format!("{seconds:.1} s"));
    }
    words.join(" · ")
}

fn exit_code(metadata: &api::JsonMap) -> Option<i64> {
    metadata.get("exit").and_then(Json::as_i64)
}

/// 1234567 as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
#[path = "render/tests.rs"]
mod tests;
