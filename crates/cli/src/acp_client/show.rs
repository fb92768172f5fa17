//! What the human, or the program behind a pipe, sees of an agent.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use ::acp::client::{Choice, Event, Events, Field, FieldKind, Form, Permission, PermissionChoice, Session, Subagent};
use serde_json::{Map, Value, json};

use crate::reveal::{Pages, indented, wrap};
use crate::run::diff;
use crate::term::{Look, Screen, Style, height, one_line, table};

/// Calls whose title is remembered until they end.
const MAX_CALLS: usize = 1000;
/// How many choices of one kind are listed.
const MAX_LISTED: usize = 200;
/// How much of a title is shown once it was decided.
const MAX_TITLE: usize = 200;
/// How long the shortest way from one text to another is looked for.
const DIFF_TIME: Duration = Duration::from_millis(200);
/// How many lines of a failed call are shown.
const MAX_WHY: usize = 300;

/// Where it is shown, and how.
pub struct Show {
    json: bool,
    style: Style,
    screen: Screen,
    /// Calls that run, by session and id, with their titles.
    calls: HashMap<(String, String), String>,
    /// Whether the last piece of text left its line open.
    open: bool,
    /// The message that the last piece of text belongs to, as far as the agent says.
    message: Option<String>,
    /// Whether something else came since.
    interrupted: bool,
}

impl Show {
    /// For a human, or one JSON object per line.
    pub fn new(json: bool, look: Look) -> Self {
        let style = Style::stderr(look.no_color);
        Self {
            json,
            style,
            screen: Screen::new(look.dumb),
            calls: HashMap::new(),
            open: false,
            message: None,
            interrupted: false,
        }
    }

    /// Whether programs read it.
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

    /// Ends a line of the answer. If nobody reads that any more, the next piece of text says so.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = self.screen.text("\n");
        }
    }

    /// A piece of an answer. Each message begins a line: agents end theirs as they like.
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
        self.open = !text.ends_with('\n');
        self.screen.text(text)
    }

    /// Who the agent is.
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

    /// The session; everything that can be chosen in it if nothing is asked.
    pub fn session(&mut self, session: &Session, whole: bool) -> io::Result<()> {
        if self.json {
            let mut value = json!({ "sessionId": session.id });
            if let (Some(value), Some(raw)) = (value.as_object_mut(), session.choices.raw().as_object_mut()) {
                value.append(raw);
            }
            return self.line("session", value);
        }
        let id = one_line(&session.id, 200);
        if !whole {
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

    /// Something that the agent told.
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
            // What a subagent says is for the agent above it.
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
        self.note(&format!("{indent}{} {title} {}", self.style.red("✗"), self.style.dim(&one_line(why, MAX_WHY))));
    }

    /// What the human is asked: all that the agent tells of the call.
    pub fn question(&self, permission: &Permission) -> Pages {
        let (style, width) = (self.style, self.style.width);
        let call = &permission.call;
        let text = title(permission);
        let mut lines: Vec<String> = wrap(&text, width.saturating_sub(3)).iter().map(|row| style.bold(row)).collect();
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
        Pages { lines, keys: "a number, y or n >".to_owned(), height: height(), page: 0 }
    }

    /// Asks the human.
    pub fn ask(&mut self, question: &Pages) {
        self.screen.answered();
        self.end_line();
        self.screen.ask(&question.text(self.style));
    }

    /// How a permission was answered.
    pub fn decision(&mut self, permission: &Permission, answer: Option<&PermissionChoice>) -> io::Result<()> {
        self.screen.answered();
        if self.json {
            let outcome = answer.map_or("cancelled", |answer| answer.id.as_str());
            let told = json!({"sessionId": permission.session, "toolCall": permission.call, "outcome": outcome});
            return self.line("permission", told);
        }
        let outcome = answer.map_or("nobody decided".to_owned(), |answer| one_line(&answer.name, 80));
        let title = one_line(&title(permission), MAX_TITLE);
        self.note(&self.style.yellow(&format!("permission for {title}: {outcome}")));
        Ok(())
    }

    /// What a form is about.
    pub fn form(&mut self, form: &Form) {
        let text = format!("{} {}", self.style.cyan("?"), self.style.bold(&one_line(&form.message, 500)));
        self.note(&text);
    }

    /// Asks the human for a field.
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

    /// How a form was answered.
    pub fn filled(&mut self, form: &Form, action: &str, content: Option<&Map<String, Value>>) -> io::Result<()> {
        self.screen.answered();
        if self.json {
            let told =
                json!({"sessionId": form.session, "message": form.message, "action": action, "content": content});
            return self.line("form", told);
        }
        let text = format!("form {}: {action}", one_line(&form.message, 200));
        self.note(&self.style.yellow(&text));
        Ok(())
    }

    /// The end of the turn.
    pub fn result(&mut self, answer: &Value) -> io::Result<()> {
        if self.json {
            return self.line("result", json!({ "answer": answer }));
        }
        if std::mem::take(&mut self.open) { self.screen.text("\n") } else { Ok(()) }
    }
}

/// What a call is called, whole.
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

/// The answer that a typed line means: its number, or yes or no by kind, the mildest first.
pub fn choose<'a>(answers: &'a [PermissionChoice], line: &str) -> Option<&'a PermissionChoice> {
    let of = |kinds: [&str; 2]| kinds.into_iter().find_map(|kind| answers.iter().find(|answer| answer.kind == kind));
    let line = line.trim().to_lowercase();
    match line.as_str() {
        "y" | "yes" => of(["allow_once", "allow_always"]),
        "a" | "always" => of(["allow_always", "allow_always"]),
        "n" | "no" => of(["reject_once", "reject_always"]),
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
