//! Permissions and questions on a terminal: what is shown, and what the typed lines mean. No terminal in here.

use std::collections::VecDeque;

use api::{Json, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionId};
pub use client::Ask;

use super::diff;
use crate::term::{Style, one_line};

/// How many patterns of a request are shown.
const MAX_PATTERNS: usize = 12;
/// The longest text of what an answer `always` would allow, and where.
const MAX_ALWAYS: usize = 400;
/// Where a request says which subagent it is of.
const SUBAGENT: &str = "subagent";

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
    queue: VecDeque<Ask>,
    answers: Vec<Vec<String>>,
}

impl Asks {
    /// None yet.
    pub fn new(style: Style) -> Self {
        Self { style, queue: VecDeque::new(), answers: Vec::new() }
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
            self.answers.clear();
        }
        first
    }

    /// None is wanted any more.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.answers.clear();
    }

    /// What to show for the first.
    pub fn prompt(&self) -> Option<String> {
        Some(match self.queue.front()? {
            Ask::Permission(request) => permission(request, self.style),
            Ask::Question(request) => match request.questions.get(self.answers.len()) {
                Some(question) => question_text(question, &asker(request.extra.get(SUBAGENT)), self.style),
                None => "  press Enter > ".to_string(),
            },
        })
    }

    /// What a typed line means for the first; `None` is the end of input.
    pub fn take(&mut self, line: Option<&str>) -> Option<Outcome> {
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
        self.answers.clear();
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

fn permission(request: &PermissionRequest, style: Style) -> String {
    let asker = asker(request.metadata.get(SUBAGENT));
    let what = format!("{asker}allow {}?", one_line(&request.permission, 60));
    let mut text = format!("{} {}\n", style.cyan("?"), style.bold(&what));
    for pattern in request.patterns.iter().take(MAX_PATTERNS) {
        text += &format!("    {}\n", one_line(pattern, style.width.saturating_sub(4)));
    }
    if request.patterns.len() > MAX_PATTERNS {
        text += &format!("    … {} more\n", request.patterns.len() - MAX_PATTERNS);
    }
    // The command as a whole says more than its parts, where it has several.
    if let Some(command) = request.metadata.get("command").and_then(Json::as_str)
        && request.patterns.first().is_none_or(|first| first != command)
    {
        for line in api::strip_control(command).lines().take(MAX_PATTERNS) {
            text += &format!("  {} {}\n", style.dim("$"), one_line(line, style.width.saturating_sub(4)));
        }
    }
    if let Some(patch) = diff::of(&request.metadata) {
        text += &diff::compact(patch, style);
    }
    let always = request.always_text().map(|what| format!("  [a] always ({})", one_line(&what, MAX_ALWAYS)));
    let always = always.unwrap_or_default();
    text + &format!(
        "  {} ",
        style.cyan(&format!("[y] once{always}  [n] no  [n TEXT] no, and say what to do instead >"))
    )
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

fn question_text(question: &Question, asker: &str, style: Style) -> String {
    let width = style.width.saturating_sub(8);
    let header = format!("{asker}{}", one_line(&question.header, 40));
    let mut text = format!("{} {}\n", style.cyan("?"), style.bold(&header));
    for line in api::strip_control(&question.question).lines() {
        text += &format!("  {line}\n");
    }
    for (number, option) in question.options.iter().enumerate() {
        text += &format!("    {}  {}\n", number + 1, one_line(&option.label, width));
        if !option.description.is_empty() {
            text += &format!("       {}\n", style.dim(&one_line(&option.description, width)));
        }
    }
    let several = if question.multiple == Some(true) { "numbers with commas" } else { "a number" };
    let free = if question.custom == Some(false) { "" } else { ", or your own words" };
    text + &format!("  {} ", style.cyan(&format!("{several}{free} (- to dismiss) >")))
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
