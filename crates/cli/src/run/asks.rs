//! Permissions and questions on a terminal: what is shown, and what the typed lines mean. No terminal in here.

use std::collections::VecDeque;

use api::{Json, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionId};
pub use client::Ask;

use super::diff;
use crate::reveal::{Pages, indented, wrap};
use crate::term::{Style, one_line};

/// Where a request says which subagent it is of.
const SUBAGENT: &str = "subagent";
/// What a request tells besides, and has a place of its own in the question or is of no use to a human.
const TOLD: [&str; 7] = [SUBAGENT, "command", "diff", "files", "format", "opaque", "subagent_type"];

/// An answer for the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To a permission.
    Permission(PermissionId, PermissionReply),
    /// To a question; nothing means that the human does not want to answer.
    Question(QuestionId, Option<Vec<Vec<String>>>),
}

/// What a typed line led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The ask is answered.
    Reply(Reply),
    /// More is needed: why, or nothing for the next question.
    More(String),
}

/// The asks that wait, in their order; the first is the one that is asked.
pub struct Asks {
    style: Style,
    /// How many lines the terminal has.
    height: usize,
    queue: VecDeque<Ask>,
    answers: Vec<Vec<String>>,
    /// The page of the question that is shown.
    page: usize,
}

impl Asks {
    /// None yet; `height` is how many lines of a question can be seen at once.
    pub fn new(style: Style, height: usize) -> Self {
        Self { style, height, queue: VecDeque::new(), answers: Vec::new(), page: 0 }
    }

    /// The terminal has another size now; the next question is made for it.
    pub fn resize(&mut self, style: Style, height: usize) {
        (self.style, self.height) = (style, height);
    }

    /// Another one; one that is known already is not added again.
    pub fn add(&mut self, ask: Ask) {
        if !self.queue.iter().any(|known| known.id() == ask.id()) {
            self.queue.push_back(ask);
        }
    }

    /// Whether there is one.
    pub fn waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// It was answered, or is no longer wanted; true if it was the first.
    pub fn settle(&mut self, id: &str) -> bool {
        let first = self.queue.front().is_some_and(|ask| ask.id() == id);
        self.queue.retain(|ask| ask.id() != id);
        if first {
            self.begin();
        }
        first
    }

    /// The next one is asked from its beginning.
    fn begin(&mut self) {
        self.answers.clear();
        self.page = 0;
    }

    /// None is wanted any more.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.begin();
    }

    /// The first one, whole.
    fn pages(&self) -> Option<Pages> {
        let (lines, keys) = match self.queue.front()? {
            Ask::Permission(request) => permission(request, self.style),
            Ask::Question(request) => match request.questions.get(self.answers.len()) {
                Some(question) => question_text(question, &asker(request.extra.get(SUBAGENT)), self.style),
                None => (Vec::new(), "press Enter >".to_owned()),
            },
        };
        Some(Pages { lines, keys, height: self.height, page: self.page })
    }

    /// What to show for the first: the whole question, or a page of one that is too long for the terminal.
    pub fn prompt(&self) -> Option<String> {
        Some(self.pages()?.text(self.style))
    }

    /// Turns pages as long as there are more: only a no is taken before the end was seen.
    fn turn_page(&mut self, line: &str) -> Option<Outcome> {
        let mut pages = self.pages()?;
        if pages.turn(line) {
            self.page = pages.page;
            return Some(Outcome::More(String::new()));
        }
        let no = line.trim().to_lowercase();
        let seen = pages.is_last() || no.starts_with('n') || no == "-";
        (!seen).then(|| Outcome::More("there is more to read: press Enter, or type e for the end".into()))
    }

    /// What a typed line means for the first; `None` is the end of input.
    pub fn take(&mut self, line: Option<&str>) -> Option<Outcome> {
        if let Some(more) = line.and_then(|line| self.turn_page(line)) {
            return Some(more);
        }
        let outcome = match self.queue.front()? {
            Ask::Permission(request) => match line.map_or(Some(reject(None)), parse_permission) {
                Some(reply) => Outcome::Reply(Reply::Permission(request.id.clone(), reply)),
                None => return Some(Outcome::More("please answer y, a or n".into())),
            },
            Ask::Question(request) => {
                let done = |answers| Outcome::Reply(Reply::Question(request.id.clone(), answers));
                match (line, request.questions.get(self.answers.len())) {
                    (None, _) => done(None),
                    (Some(line), _) if line.trim() == "-" => done(None),
                    (Some(_), None) => done(Some(self.answers.clone())),
                    (Some(line), Some(question)) => match choose(question, line) {
                        Ok(labels) => {
                            self.answers.push(labels);
                            self.page = 0;
                            if self.answers.len() < request.questions.len() {
                                return Some(Outcome::More(String::new()));
                            }
                            done(Some(self.answers.clone()))
                        }
                        Err(why) => return Some(Outcome::More(why)),
                    },
                }
            }
        };
        self.queue.pop_front();
        self.begin();
        Some(outcome)
    }
}

/// What is wanted, on one line: for notes about asks that nobody is asked.
pub fn summary(request: &PermissionRequest) -> String {
    let patterns = if request.patterns.is_empty() { "*".to_string() } else { request.patterns.join(", ") };
    format!("{} {}", one_line(&request.permission, 60), one_line(&patterns, 200))
}

/// A refusal.
pub fn reject(message: Option<String>) -> PermissionReply {
    PermissionReply { reply: PermissionReplyKind::Reject, message }
}

/// The agents from the session that is shown down to the one that asks: `explore › general: `; nothing for its own asks.
fn asker(subagent: Option<&Json>) -> String {
    let path = subagent.and_then(|subagent| subagent.get("path")).and_then(Json::as_array);
    let agents: Vec<String> = path
        .into_iter()
        .flat_map(|path| path.iter().skip(1))
        .filter_map(|step| Some(one_line(step.get("agent")?.as_str()?, 30)))
        .collect();
    if agents.is_empty() { String::new() } else { format!("{}: ", agents.join(" › ")) }
}

/// Lines and what can be typed.
type Shown = (Vec<String>, String);

fn permission(request: &PermissionRequest, style: Style) -> Shown {
    let asker = asker(request.metadata.get(SUBAGENT));
    let what = format!("{asker}allow {}?", one_line(&request.permission, 60));
    let mut lines = vec![format!("{} {}", style.cyan("?"), style.bold(&what))];
    for pattern in &request.patterns {
        lines.extend(indented("    ", pattern, style.width));
    }
    // The command as a whole says more than its parts.
    if let Some(command) = request.metadata.get("command").and_then(Json::as_str)
        && request.patterns != [command]
    {
        let rows = wrap(command, style.width.saturating_sub(5));
        let mark = |row: usize| if row == 0 { style.dim("$") } else { " ".to_owned() };
        lines.extend(rows.iter().enumerate().map(|(row, text)| format!("  {} {text}", mark(row))));
    }
    if request.metadata.contains_key("opaque") {
        lines.push(format!("  {}", style.yellow("what it does cannot be told from its text; read all of it")));
    }
    for (name, value) in &request.metadata {
        let text =
            value.as_str().map_or_else(|| serde_json::to_string_pretty(value).unwrap_or_default(), str::to_owned);
        if !TOLD.contains(&name.as_str()) && !request.patterns.contains(&text) {
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

fn question_text(question: &Question, asker: &str, style: Style) -> Shown {
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

/// The labels that a line chooses.
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
#[path = "asks/tests.rs"]
mod tests;
