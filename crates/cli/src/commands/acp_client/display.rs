//! What the user, or the program that reads the output, sees of an agent.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use ::acp::client::{Choice, Event, Events, Field, FieldKind, Form, Permission, PermissionChoice, Session, Subagent};
use serde_json::{Map, Value, json};

use crate::terminal::pages::{PagedQuestion, hard_wrap, indented};
use crate::terminal::{Capabilities, Screen, Style, diff, height, one_line, table};

/// The most running calls whose titles are remembered.
const MAX_CALLS: usize = 1000;
/// The most choices of one kind that are listed.
const MAX_LISTED: usize = 200;
/// The longest title of a request that was decided.
const MAX_TITLE: usize = 200;
/// The time limit for computing a diff.
const DIFF_TIME: Duration = Duration::from_millis(200);
/// The longest error of a failed call.
const MAX_ERROR: usize = 300;

/// Prints a conversation: for a person, or as JSON.
pub struct Display {
    json: bool,
    style: Style,
    screen: Screen,
    /// The titles of running calls, by session and id.
    calls: HashMap<(String, String), String>,
    /// Whether the last piece of text left its line open.
    line_open: bool,
    /// The message of the last piece of text, if the agent names one.
    message: Option<String>,
    /// Whether something else was printed since.
    interrupted: bool,
}

impl Display {
    /// For a person, or one JSON object per line.
    pub fn new(json: bool, capabilities: Capabilities) -> Self {
        let style = Style::stderr(capabilities.no_color);
        Self {
            json,
            style,
            screen: Screen::new(capabilities.dumb),
            calls: HashMap::new(),
            line_open: false,
            message: None,
            interrupted: false,
        }
    }

    /// Whether it prints JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    fn line(&mut self, kind: &str, mut value: Value) -> io::Result<()> {
        let mut line = json!({ "type": kind });
        if let (Some(line), Some(value)) = (line.as_object_mut(), value.as_object_mut()) {
            line.append(value);
        }
        self.screen.text(&format!("{line}\n"))
    }

    fn note(&mut self, text: &str) {
        self.end_line();
        self.screen.note(&format!("{text}\n"));
    }

    /// Ends a line of the answer. A closed pipe shows with the next piece of text.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.line_open) {
            let _ = self.screen.text("\n");
        }
    }

    /// Prints a piece of an answer. Each message starts a new line, because agents end theirs in different ways.
    fn text(&mut self, text: &str, message: Option<&str>) -> io::Result<()> {
        let another = match (self.message.as_deref(), message) {
            (Some(before), Some(now)) => before != now,
            _ => self.interrupted,
        };
        if another {
            self.end_line();
        }
        self.message = message.map(str::to_owned);
        self.interrupted = false;
        self.line_open = !text.ends_with('\n');
        self.screen.text(text)
    }

    /// Prints who the agent is.
    pub fn handshake(&mut self, agent: &Value) -> io::Result<()> {
        if self.json {
            return self.line("initialize", json!({ "answer": agent }));
        }
        let info = &agent["agentInfo"];
        let name = info["title"].as_str().or_else(|| info["name"].as_str()).unwrap_or("an agent without a name");
        let version = info["version"].as_str().unwrap_or_default();
        let text = format!("{name} {version}, protocol {}", agent["protocolVersion"]);
        self.note(&self.style.dim(&one_line(&text, self.style.width)));
        Ok(())
    }

    /// Prints the session; with `choices`, also everything that can be chosen in it.
    pub fn session(&mut self, session: &Session, choices: bool) -> io::Result<()> {
        if self.json {
            let mut value = json!({ "sessionId": session.id });
            if let (Some(value), Some(raw)) = (value.as_object_mut(), session.choices.raw().as_object_mut()) {
                value.append(raw);
            }
            return self.line("session", value);
        }
        let id = one_line(&session.id, 200);
        if !choices {
            self.note(&self.style.dim(&format!("session {id}")));
            return Ok(());
        }
        let mut text = format!("session  {id}\n");
        let kinds = [("models".to_owned(), session.choices.models()), ("modes".to_owned(), session.choices.modes())];
        for (title, choices) in kinds.into_iter().chain(session.choices.options()) {
            if !choices.is_empty() {
                text += &format!("\n{}\n{}", one_line(&title, 80), listed(&choices));
            }
        }
        self.screen.text(&text)
    }

    /// Prints an event of the agent.
    pub fn event(&mut self, event: Event, events: &Events) -> io::Result<()> {
        match event {
            Event::Update { session, update } if self.json => {
                self.line("update", json!({"sessionId": session, "update": update}))
            }
            Event::Update { session, update } => self.update(&session, &update, events.depth(&session)),
            Event::Subagent(subagent) if self.json => self.line("subagent", json!(subagent)),
            Event::Subagent(subagent) => {
                self.subagent(&subagent, events.depth(&subagent.parent));
                Ok(())
            }
            Event::Permission(permission) => {
                permission.cancel();
                Ok(())
            }
            Event::Form(form) => {
                form.cancel();
                Ok(())
            }
        }
    }

    fn subagent(&mut self, subagent: &Subagent, depth: usize) {
        let title = one_line(&subagent.title, self.style.width.saturating_sub(30));
        let text = format!("{}⤷ subagent {title}: {}", "  ".repeat(depth), one_line(&subagent.state, 30));
        self.note(&self.style.cyan(&text));
    }

    fn update(&mut self, session: &str, update: &Value, depth: usize) -> io::Result<()> {
        let indent = "  ".repeat(depth);
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            // A subagent talks to the agent above it.
            "agent_message_chunk" if depth == 0 => {
                let text = api::strip_control(update["content"]["text"].as_str().unwrap_or_default());
                if !text.is_empty() {
                    self.text(&text, update["messageId"].as_str())?;
                }
            }
            "tool_call" | "tool_call_update" => {
                self.interrupted |= depth == 0;
                self.call(session, update, &indent);
            }
            "plan" => {
                for entry in update["entries"].as_array().into_iter().flatten() {
                    let mark = match entry["status"].as_str() {
                        Some("completed") => "x",
                        Some("in_progress") => ">",
                        _ => " ",
                    };
                    let content = one_line(entry["content"].as_str().unwrap_or_default(), self.style.width);
                    self.note(&format!("{indent}[{mark}] {content}"));
                }
            }
            "notice" => {
                let title = one_line(update["title"].as_str().unwrap_or_default(), self.style.width);
                self.note(&self.style.yellow(&title));
            }
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, session: &str, update: &Value, indent: &str) {
        let Some(id) = update["toolCallId"].as_str() else { return };
        let key = (session.to_owned(), id.to_owned());
        if let Some(title) = update["title"].as_str() {
            if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&key) {
                return;
            }
            self.calls.insert(key.clone(), one_line(title, self.style.width.saturating_sub(10)));
        }
        let done = match update["status"].as_str() {
            Some("completed") => true,
            Some("failed") => false,
            _ => return,
        };
        let title = self.calls.remove(&key).unwrap_or_else(|| one_line(id, 40));
        if done {
            self.note(&format!("{indent}{} {title}", self.style.green("●")));
            return;
        }
        let why = update["content"].as_array().into_iter().flatten();
        let why = why.filter_map(|part| part["content"]["text"].as_str()).next().unwrap_or_default();
        self.note(&format!("{indent}{} {title} {}", self.style.red("✗"), self.style.dim(&one_line(why, MAX_ERROR))));
    }

    /// The question about a permission: everything that the agent tells about the call.
    pub fn question(&self, permission: &Permission) -> PagedQuestion {
        let (style, width) = (self.style, self.style.width);
        let call = &permission.call;
        let text = title(permission);
        let mut lines: Vec<String> =
            hard_wrap(&text, width.saturating_sub(3)).iter().map(|row| style.bold(row)).collect();
        if let Some(first) = lines.first_mut() {
            *first = format!("{} {first}", style.cyan("?"));
        }
        for (name, value) in call["rawInput"].as_object().into_iter().flatten() {
            let value = match value {
                Value::Null => continue,
                Value::String(value) if *value == text => continue,
                Value::String(value) => value.clone(),
                value => serde_json::to_string_pretty(value).unwrap_or_default(),
            };
            lines.extend(indented("    ", &format!("{name}: {value}"), width));
        }
        for part in call["content"].as_array().into_iter().flatten() {
            if let (Some(path), Some(new)) = (part["path"].as_str(), part["newText"].as_str()) {
                let old = part["oldText"].as_str().unwrap_or_default();
                let patch = similar::TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
                lines.extend(diff::whole(&patch.unified_diff().header(path, path).to_string(), style));
            } else if let Some(text) = part["content"]["text"].as_str() {
                lines.extend(indented("    ", text, width));
            }
        }
        for (number, answer) in permission.choices.iter().enumerate() {
            lines.extend(indented("    ", &format!("{}  {}", number + 1, answer.name), width));
        }
        PagedQuestion { lines, keys: "a number, y or n >".to_owned(), height: height(), page: 0 }
    }

    /// Asks the user.
    pub fn ask(&mut self, question: &PagedQuestion) {
        self.screen.close_question();
        self.end_line();
        self.screen.ask(&question.text(self.style));
    }

    /// Prints how a permission was answered.
    pub fn decision(&mut self, permission: &Permission, answer: Option<&PermissionChoice>) -> io::Result<()> {
        self.screen.close_question();
        if self.json {
            let outcome = answer.map_or("cancelled", |answer| answer.id.as_str());
            let line = json!({"sessionId": permission.session, "toolCall": permission.call, "outcome": outcome});
            return self.line("permission", line);
        }
        let outcome = answer.map_or("not decided".to_owned(), |answer| one_line(&answer.name, 80));
        let title = one_line(&title(permission), MAX_TITLE);
        self.note(&self.style.yellow(&format!("permission for {title}: {outcome}")));
        Ok(())
    }

    /// Prints what a form is about.
    pub fn form(&mut self, form: &Form) {
        let text = format!("{} {}", self.style.cyan("?"), self.style.bold(&one_line(&form.message, 500)));
        self.note(&text);
    }

    /// Asks the user for a field.
    pub fn field(&mut self, field: &Field) {
        let mut text = format!("  {}", self.style.bold(&one_line(&field.title, 200)));
        if !field.description.is_empty() {
            text += &format!("  {}", self.style.dim(&one_line(&field.description, 500)));
        }
        text.push('\n');
        let (choices, mut hint) = match &field.kind {
            FieldKind::Text => (&[][..], "a text".to_owned()),
            FieldKind::Number => (&[][..], "a number".to_owned()),
            FieldKind::Integer => (&[][..], "a whole number".to_owned()),
            FieldKind::Boolean => (&[][..], "y or n".to_owned()),
            FieldKind::OneOf(choices) => (&choices[..], "a number".to_owned()),
            FieldKind::AnyOf(choices) => (&choices[..], "numbers, with commas".to_owned()),
        };
        for (number, (_, name)) in choices.iter().take(MAX_LISTED).enumerate() {
            text += &format!("    {}  {}\n", number + 1, one_line(name, 80));
        }
        match &field.default {
            Some(value) => hint += &format!(", or nothing for {}", one_line(&value.to_string(), 80)),
            None if !field.required => hint += ", or nothing",
            None => {}
        }
        self.screen.ask(&format!("{text}  {} ", self.style.cyan(&format!("{hint} >"))));
    }

    /// Prints how a form was answered.
    pub fn form_answer(&mut self, form: &Form, action: &str, content: Option<&Map<String, Value>>) -> io::Result<()> {
        self.screen.close_question();
        if self.json {
            let line =
                json!({"sessionId": form.session, "message": form.message, "action": action, "content": content});
            return self.line("form", line);
        }
        let text = format!("form {}: {action}", one_line(&form.message, 200));
        self.note(&self.style.yellow(&text));
        Ok(())
    }

    /// Prints the end of the turn.
    pub fn result(&mut self, answer: &Value) -> io::Result<()> {
        if self.json {
            return self.line("result", json!({ "answer": answer }));
        }
        if std::mem::take(&mut self.line_open) { self.screen.text("\n") } else { Ok(()) }
    }
}

/// The full title of a call.
fn title(permission: &Permission) -> String {
    let call = &permission.call;
    call["title"].as_str().or_else(|| call["toolCallId"].as_str()).unwrap_or("something").to_owned()
}

fn listed(choices: &[Choice]) -> String {
    let rows = choices.iter().take(MAX_LISTED).map(|choice| {
        let mark = if choice.current { "*" } else { " " };
        vec![format!("  {mark}"), one_line(&choice.id, 100), one_line(&choice.name, 100)]
    });
    let more = choices.len().saturating_sub(MAX_LISTED);
    let tail = if more > 0 { format!("     … {more} more\n") } else { String::new() };
    table(&rows.collect::<Vec<_>>()) + &tail
}

/// The answer that a typed line chooses: by its number, or by yes, always or no.
pub fn choose<'a>(answers: &'a [PermissionChoice], line: &str) -> Option<&'a PermissionChoice> {
    let of_kind =
        |kinds: [&str; 2]| kinds.into_iter().find_map(|kind| answers.iter().find(|answer| answer.kind == kind));
    let line = line.trim().to_lowercase();
    match line.as_str() {
        "y" | "yes" => of_kind(["allow_once", "allow_always"]),
        "a" | "always" => of_kind(["allow_always", "allow_always"]),
        "n" | "no" => of_kind(["reject_once", "reject_always"]),
        number => answers.get(number.parse::<usize>().ok()?.checked_sub(1)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_answers() {
        let answer = |id: &str, kind: &str| PermissionChoice { id: id.into(), name: id.into(), kind: kind.into() };
        let answers = [answer("no", "reject_once"), answer("once", "allow_once"), answer("ever", "allow_always")];
        for (line, want) in [("1", "no"), (" 3\n", "ever"), ("y", "once"), ("Always", "ever"), ("n", "no")] {
            assert_eq!(choose(&answers, line).map(|answer| answer.id.as_str()), Some(want), "{line}");
        }
        for line in ["", "0", "4", "-1", "perhaps"] {
            assert_eq!(choose(&answers, line), None, "{line}");
        }
        assert_eq!(choose(&answers[1..], "n"), None);
    }
}
