//! From events to what a human reads: a pure state machine without a terminal in it.

use std::collections::{HashMap, HashSet};

use api::{
    EventBody, Json, Message, MessageId, Part, PartId, SessionId, SessionStatus, StepFinishPart, Timestamp, Todo,
    ToolPart, ToolState, TreeNode,
};

use super::call::{INVALID, Running, detail, exit_code, is_known, label, without_note};
use super::diff;
use super::family::child;
use super::markdown::Markdown;
use crate::picture;
use crate::term::{Style, one_line, plural};

/// How many lines of a command's output are shown, counted from its end, and of another tool's from its beginning.
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
pub struct Totals {
    /// Tokens of input that were not cached.
    pub input: u64,
    /// Tokens of input that were.
    pub cached: u64,
    /// Tokens of answers.
    pub output: u64,
    /// Money.
    pub cost: f64,
    /// The part of it that went into the title of the session.
    pub title: f64,
    /// Whether some of it is estimated.
    pub estimated: bool,
}

impl Totals {
    /// What was used between two looks at the ledger; without the first, what was used at all.
    pub fn between(before: Option<&TreeNode>, after: &TreeNode) -> Self {
        let since = |of: fn(&TreeNode) -> u64| of(after).saturating_sub(before.map_or(0, of));
        let money = |of: fn(&TreeNode) -> f64| of(after) - before.map_or(0.0, of);
        Self {
            input: since(|node| node.total.tokens.input),
            cached: since(|node| node.total.tokens.cache.read + node.total.tokens.cache.write),
            output: since(|node| node.total.tokens.output + node.total.tokens.reasoning),
            cost: money(|node| node.total.cost.0),
            title: money(|node| node.titling.as_ref().map_or(0.0, |titling| titling.used.cost.0)),
            estimated: since(|node| node.total.estimated_tokens) > 0,
        }
    }
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
    running: Vec<Running>,
    waiting: String,
    line_open: bool,
    /// The message of the last text.
    speaking: Option<MessageId>,
    last: Last,
    header: bool,
    totals: Totals,
    /// Whether somebody else tells of subagents, so that calls that made one are left out.
    family: bool,
    /// Where the answer goes to a terminal.
    markdown: Option<Markdown>,
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
            markdown: None,
        }
    }

    /// The answer goes to a terminal, so that its markdown is rendered and its words are wrapped.
    pub fn with_markdown(mut self) -> Self {
        self.markdown = Some(Markdown::new(self.style));
        self
    }

    /// The terminal has another width now.
    pub fn resize(&mut self, width: usize) {
        self.style.width = width;
        if let Some(markdown) = &mut self.markdown {
            markdown.resize(width);
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
                        To use a model, set OPENAI_API_KEY or run `trefoil auth login`; `trefoil doctor` says what is missing.\n";
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
        let elsewhere = self.family && child(tool).is_some();
        self.running.retain(|call| call.part != tool.head.id);
        match &tool.state {
            ToolState::Pending(_) | ToolState::Running(_) => {
                self.running.push(Running::new(tool));
                // What runs is drawn below the text, which has come to its end.
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
                text += &self.error_lines(&error.error);
                self.note(&text, out);
            }
        }
    }

    fn error_lines(&self, error: &str) -> String {
        let clean = api::strip_control(error);
        let lines = clean.lines().filter(|line| !line.trim().is_empty()).take(ERROR_LINES);
        let line = |line| format!("  {}\n", self.style.red(&one_line(line, self.style.width.saturating_sub(2))));
        lines.map(line).collect()
    }

    /// A call that no tool could take: which tool it was meant for, and why.
    fn invalid(&self, tool: &ToolPart) -> String {
        let text = |key: &str| tool.state.input().get(key).and_then(Json::as_str).unwrap_or_default();
        let (name, error) = (one_line(text("tool"), 80), text("error"));
        format!("{} {}\n{}", self.style.red("✗"), self.style.red(&name), self.error_lines(error))
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
            let (output, note) = without_note(&done.output);
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

    /// A line about the answer.
    pub fn note(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.close_line(out);
        self.gap(Last::Note, out);
        out.push(Piece::Note(text.to_string()));
    }

    /// Ends the line of a text that may have gone on.
    pub fn close_line(&mut self, out: &mut Vec<Piece>) {
        if let Some(markdown) = &mut self.markdown {
            let rest = markdown.finish();
            self.line_open = markdown.is_open();
            markdown.closed();
            if !rest.is_empty() {
                out.push(Piece::Text(rest));
            }
        }
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

    /// What the spinner says: what runs, and for how long.
    pub fn status(&self, now: Timestamp) -> String {
        match self.running.as_slice() {
            [] => self.waiting.clone(),
            // The spinner stands before it.
            [call] => call.headline(now, self.style.width.saturating_sub(3)),
            calls => plural(calls.len(), "call"),
        }
    }

    /// The lines above the spinner: the last output of what runs, each under its own headline if several do.
    pub fn live(&self, now: Timestamp, room: usize) -> Vec<String> {
        let several = self.running.len() > 1;
        let width = self.style.width;
        let mut lines = Vec::new();
        for call in &self.running {
            if several {
                lines.push(format!("  {}", call.headline(now, width.saturating_sub(3))));
            }
            let tail = call.tail.iter().map(|line| format!("  │ {}", one_line(line, width.saturating_sub(5))));
            lines.extend(tail.map(|line| self.style.dim(&line)));
        }
        lines.truncate(room);
        lines
    }

    /// The ledger knows better what the turn used than its events tell: of subagents, titles and calls that were cut off.
    pub fn count_as(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// The end of the turn: closes the line, and on a terminal says what it took.
    pub fn finish(&mut self, elapsed: Option<std::time::Duration>) -> Vec<Piece> {
        let mut out = Vec::new();
        self.close_line(&mut out);
        if !self.roomy {
            return out;
        }
        let Totals { input, cached, output, cost, title, estimated } = self.totals;
        let about = if estimated { "~" } else { "" };
        let mut line = format!("{about}{} tokens in", thousands(input + cached));
        if cached > 0 {
            line += &format!(" ({} cached)", thousands(cached));
        }
        line += &format!(" · {} out", thousands(output));
        if cost > 0.0 {
            line += &format!(" · {about}{}", picture::dollars(cost));
        }
        if title > 0.0 {
            line += &format!(" ({} for the title)", picture::dollars(title));
        }
        if let Some(elapsed) = elapsed {
            line += &format!(" · {:.1} s", elapsed.as_secs_f64());
        }
        self.note(&format!("{}\n", self.style.dim(&line)), &mut out);
        out
    }
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
