//! Requests that wait for the user: what is shown, and what typed lines mean. It touches no terminal.

use std::collections::VecDeque;

use api::{Json, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionId};
pub use client::Ask;

use crate::terminal::pages::{PagedQuestion, hard_wrap, indented};
use crate::terminal::{Style, diff, one_line};

/// The field of a request that names the subagent.
const SUBAGENT: &str = "subagent";
/// Metadata that the question shows elsewhere, or that is of no use to a person.
const NOT_LISTED: [&str; 7] = [SUBAGENT, "command", "diff", "files", "format", "opaque", "subagent_type"];

/// An answer for the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To a permission.
    Permission(PermissionId, PermissionReply),
    /// To a question; `None` dismisses it.
    Question(QuestionId, Option<Vec<Vec<String>>>),
}

/// The effect of a typed line.
#[derive(Debug, Clone, PartialEq)]
pub enum LineEffect {
    /// The request is answered.
    Reply(Reply),
    /// More input is needed: why, or empty for the next question or page.
    More(String),
}

/// The requests that wait, in order; the first one is shown.
pub struct AskQueue {
    style: Style,
    /// The height of the terminal, in lines.
    height: usize,
    queue: VecDeque<Ask>,
    /// The answers to the first questions of a request.
    answers: Vec<Vec<String>>,
    /// The current page of the question.
    page: usize,
}

impl AskQueue {
    /// An empty queue; `height` is how many lines of a question fit the terminal.
    pub fn new(style: Style, height: usize) -> Self {
        Self { style, height, queue: VecDeque::new(), answers: Vec::new(), page: 0 }
    }

    /// Takes the new size of the terminal, for the next question.
    pub fn resize(&mut self, style: Style, height: usize) {
        (self.style, self.height) = (style, height);
    }

    /// Adds a request, unless it is already there.
    pub fn add(&mut self, ask: Ask) {
        if !self.queue.iter().any(|known| known.id() == ask.id()) {
            self.queue.push_back(ask);
        }
    }

    /// Whether a request waits.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Removes a request that was answered or withdrawn. Returns whether it was the first.
    pub fn remove(&mut self, id: &str) -> bool {
        let first = self.queue.front().is_some_and(|ask| ask.id() == id);
        self.queue.retain(|ask| ask.id() != id);
        if first {
            self.restart();
        }
        first
    }

    /// Starts the next request from its beginning.
    fn restart(&mut self) {
        self.answers.clear();
        self.page = 0;
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.restart();
    }

    /// The first request as a question.
    fn question(&self) -> Option<PagedQuestion> {
        let (lines, keys) = match self.queue.front()? {
            Ask::Permission(request) => permission_text(request, self.style),
            Ask::Question(request) => match request.questions.get(self.answers.len()) {
                Some(question) => question_text(question, &asker(request.extra.get(SUBAGENT)), self.style),
                None => (Vec::new(), "press Enter >".to_owned()),
            },
        };
        Some(PagedQuestion { lines, keys, height: self.height, page: self.page })
    }

    /// The text of the first request: the whole question, or a page of one that is too long for the terminal.
    pub fn prompt(&self) -> Option<String> {
        Some(self.question()?.text(self.style))
    }

    /// Turns the page if there are more. Before the last page, only a no counts as an answer.
    fn turn_page(&mut self, line: &str) -> Option<LineEffect> {
        let mut question = self.question()?;
        if question.turn_page(line) {
            self.page = question.page;
            return Some(LineEffect::More(String::new()));
        }
        let no = line.trim().to_lowercase();
        let can_answer = question.is_last() || no.starts_with('n') || no == "-";
        (!can_answer).then(|| LineEffect::More("there is more to read: press Enter, or type e for the end".into()))
    }

    /// Applies a typed line to the first request; `None` is the end of input.
    pub fn apply(&mut self, line: Option<&str>) -> Option<LineEffect> {
        if let Some(more) = line.and_then(|line| self.turn_page(line)) {
            return Some(more);
        }
        let effect = match self.queue.front()? {
            Ask::Permission(request) => match line.map_or(Some(reject(None)), parse_permission) {
                Some(reply) => LineEffect::Reply(Reply::Permission(request.id.clone(), reply)),
                None => return Some(LineEffect::More("please answer y, a or n".into())),
            },
            Ask::Question(request) => {
                let done = |answers| LineEffect::Reply(Reply::Question(request.id.clone(), answers));
                match (line, request.questions.get(self.answers.len())) {
                    (None, _) => done(None),
                    (Some(line), _) if line.trim() == "-" => done(None),
                    (Some(_), None) => done(Some(self.answers.clone())),
                    (Some(line), Some(question)) => match choose(question, line) {
                        Ok(labels) => {
                            self.answers.push(labels);
                            self.page = 0;
                            if self.answers.len() < request.questions.len() {
                                return Some(LineEffect::More(String::new()));
                            }
                            done(Some(self.answers.clone()))
                        }
                        Err(why) => return Some(LineEffect::More(why)),
                    },
                }
            }
        };
        self.queue.pop_front();
        self.restart();
        Some(effect)
    }
}

/// A permission request in one line, for notes about requests that the user does not see.
pub fn summary(request: &PermissionRequest) -> String {
    let patterns = if request.patterns.is_empty() { "*".to_string() } else { request.patterns.join(", ") };
    format!("{} {}", one_line(&request.permission, 60), one_line(&patterns, 200))
}

/// A rejection.
pub fn reject(message: Option<String>) -> PermissionReply {
    PermissionReply { reply: PermissionReplyKind::Reject, message }
}

/// The agents from the session that is shown down to the one that asks: `explore › general: `. Empty for its own requests.
fn asker(subagent: Option<&Json>) -> String {
    let path = subagent.and_then(|subagent| subagent.get("path")).and_then(Json::as_array);
    let agents: Vec<String> = path
        .into_iter()
        .flat_map(|path| path.iter().skip(1))
        .filter_map(|step| Some(one_line(step.get("agent")?.as_str()?, 30)))
        .collect();
    if agents.is_empty() { String::new() } else { format!("{}: ", agents.join(" › ")) }
}

/// The lines of a question, and what can be typed.
type QuestionText = (Vec<String>, String);

fn permission_text(request: &PermissionRequest, style: Style) -> QuestionText {
    let asker = asker(request.metadata.get(SUBAGENT));
    let what = format!("{asker}allow {}?", one_line(&request.permission, 60));
    let mut lines = vec![format!("{} {}", style.cyan("?"), style.bold(&what))];
    for pattern in &request.patterns {
        lines.extend(indented("    ", pattern, style.width));
    }
    // The whole command says more than its parts.
    if let Some(command) = request.metadata.get("command").and_then(Json::as_str)
        && request.patterns != [command]
    {
        let rows = hard_wrap(command, style.width.saturating_sub(5));
        let mark = |row: usize| if row == 0 { style.dim("$") } else { " ".to_owned() };
        lines.extend(rows.iter().enumerate().map(|(row, text)| format!("  {} {text}", mark(row))));
    }
    if request.metadata.contains_key("opaque") {
        lines.push(format!("  {}", style.yellow("its text does not show what it does; read all of it")));
    }
    for (name, value) in &request.metadata {
        let text =
            value.as_str().map_or_else(|| serde_json::to_string_pretty(value).unwrap_or_default(), str::to_owned);
        if !NOT_LISTED.contains(&name.as_str()) && !request.patterns.contains(&text) {
            lines.extend(indented("  ", &format!("{name}: {text}"), style.width));
        }
    }
    if let Some(patch) = diff::of(&request.metadata) {
        lines.extend(diff::whole(patch, style));
    }
    let mut always = String::new();
    if let Some(what) = request.always_text() {
        lines.extend(indented("  ", &format!("always would allow: {what}"), style.width));
        always = "  [a] always".to_owned();
    }
    (lines, format!("[y] once{always}  [n] no  [n TEXT] no, and say what to do instead >"))
}

fn parse_permission(line: &str) -> Option<PermissionReply> {
    let line = line.trim();
    let (word, rest) = line.split_once([' ', ':', ',']).map_or((line, ""), |(word, rest)| (word, rest.trim()));
    let reply = |reply| Some(PermissionReply { reply, message: None });
    match (word.to_lowercase().as_str(), rest) {
        ("y" | "yes" | "o" | "once", "") => reply(PermissionReplyKind::Once),
        ("a" | "always", "") => reply(PermissionReplyKind::Always),
        ("n" | "no" | "r" | "reject", "") => Some(reject(None)),
        ("n" | "no" | "r" | "reject", message) => Some(reject(Some(message.to_string()))),
        _ => None,
    }
}

fn question_text(question: &Question, asker: &str, style: Style) -> QuestionText {
    let header = format!("{asker}{}", one_line(&question.header, 40));
    let mut lines = vec![format!("{} {}", style.cyan("?"), style.bold(&header))];
    lines.extend(indented("  ", &question.question, style.width));
    for (number, option) in question.options.iter().enumerate() {
        let label = indented("       ", &option.label, style.width).join("\n");
        lines.extend(format!("    {}  {}", number + 1, label.trim_start()).split('\n').map(str::to_owned));
        if !option.description.is_empty() {
            let description = indented("       ", &option.description, style.width);
            lines.extend(description.iter().map(|row| style.dim(row)));
        }
    }
    let several = if question.multiple == Some(true) { "numbers with commas" } else { "a number" };
    let free = if question.custom == Some(false) { "" } else { ", or your own words" };
    (lines, format!("{several}{free} (- to dismiss) >"))
}

/// The labels of the options that a line chooses.
fn choose(question: &Question, line: &str) -> Result<Vec<String>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Err("please answer, or type - to dismiss the question".into());
    }
    let option = |word: &str| {
        let word = word.trim();
        let by_number = word.parse::<usize>().ok().and_then(|n| question.options.get(n.checked_sub(1)?));
        by_number.or_else(|| question.options.iter().find(|option| option.label.eq_ignore_ascii_case(word)))
    };
    if let Some(found) = option(line) {
        return Ok(vec![found.label.clone()]);
    }
    if question.multiple == Some(true) {
        let found: Option<Vec<_>> = line.split(',').map(option).collect();
        if let Some(found) = found {
            return Ok(found.into_iter().map(|option| option.label.clone()).collect());
        }
    }
    let number = line.split(',').all(|word| word.trim().parse::<usize>().is_ok());
    if question.custom == Some(false) || (number && !question.options.is_empty()) {
        return Err(format!("please choose from 1 to {}", question.options.len()));
    }
    Ok(vec![line.to_string()])
}

#[cfg(test)]
mod tests;
