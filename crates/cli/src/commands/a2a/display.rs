//! What the user, or the program that reads the output, sees of an agent at work.

use std::io::{self, IsTerminal as _};

use ::a2a::client::{Change, TaskView};
use serde_json::{Value, json};

use crate::terminal::{self, Style, one_line};

/// The longest line about a tool call or a status.
const MAX_LINE: usize = 200;

/// Prints what an agent says: text to standard output, all else to standard error; or everything as JSON.
pub struct Display {
    json: bool,
    style: Style,
    /// Whether both outputs are the same terminal, so that lines must not be mixed. Elsewhere the text stays as it is.
    on_terminal: bool,
    /// Whether the text left its line open.
    line_open: bool,
}

impl Display {
    /// For a person, or one JSON object per line.
    pub fn new(json: bool, style: Style) -> Self {
        let on_terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { json, style, on_terminal, line_open: false }
    }

    /// Prints what is new.
    pub fn show(&mut self, change: &Change) -> io::Result<()> {
        if self.json {
            return print_json(&describe(change));
        }
        match change {
            Change::Text(text) => {
                self.line_open = !text.ends_with('\n');
                terminal::print(&api::strip_control(text))
            }
            Change::ToolCall(call) => {
                let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
                if matches!(text("status"), "completed" | "error") {
                    self.note(&format!("{} {}", text("tool"), text("title")))?;
                }
                Ok(())
            }
            Change::Part(part) => {
                let name = part.filename.as_deref().unwrap_or("data");
                let kind = part.media_type.as_deref().unwrap_or_default();
                self.note(&format!("[{name} {kind}] --json shows it"))
            }
            Change::Status(status) if !status.state.is_terminal() && !status.state.is_interrupted() => {
                let words = status.message.iter().flat_map(|message| &message.parts);
                let words = words.filter_map(|part| match &part.content {
                    ::a2a::Content::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                let words: Vec<&str> = words.collect();
                if words.is_empty() { Ok(()) } else { self.note(&words.join(" ")) }
            }
            Change::Status(_)
            | Change::Reasoning(_)
            | Change::Usage(_)
            | Change::Interrupt(_)
            | Change::Resolved(_) => Ok(()),
        }
    }

    /// Ends the output.
    pub fn finish(&mut self, view: &TaskView) -> io::Result<()> {
        if self.json {
            return print_json(&json!({
                "type": "result", "state": view.state(), "task": view.task_id(), "context": view.context_id(),
                "text": view.text(), "message": view.status_text(), "usage": view.usage(),
                "interrupt": view.interrupt(),
            }));
        }
        self.end_line()
    }

    /// Prints a line about what the agent does.
    fn note(&mut self, text: &str) -> io::Result<()> {
        if self.on_terminal {
            self.end_line()?;
        }
        terminal::eprint(&format!("{}\n", self.style.dim(&one_line(text.trim(), MAX_LINE))));
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.line_open) { terminal::print("\n") } else { Ok(()) }
    }
}

fn print_json(value: &Value) -> io::Result<()> {
    terminal::print(&format!("{value}\n"))
}

fn describe(change: &Change) -> Value {
    match change {
        Change::Text(text) => json!({"type": "text", "text": text}),
        Change::Reasoning(text) => json!({"type": "reasoning", "text": text}),
        Change::ToolCall(call) => json!({"type": "tool_call", "call": call}),
        Change::Part(part) => json!({"type": "part", "part": part}),
        Change::Status(status) => json!({"type": "status", "state": status.state, "message": status.message}),
        Change::Usage(usage) => json!({"type": "usage", "usage": usage}),
        Change::Interrupt(interrupt) => json!({"type": "interrupt", "interrupt": interrupt}),
        Change::Resolved(id) => json!({"type": "resolved", "request_id": id}),
    }
}
