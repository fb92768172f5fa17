//! The outline of an event stream: the steps that clients depend on, without ids, times and texts.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Groups events by session, in the order in which the sessions appear. Events without a session have an empty name.
pub fn by_session(events: &[Value]) -> Vec<(String, Vec<Value>)> {
    let mut sessions: Vec<(String, Vec<Value>)> = Vec::new();
    for event in events {
        let id = text(&event["properties"]["sessionID"]);
        match sessions.iter_mut().find(|(known, _)| *known == id) {
            Some((_, list)) => list.push(event.clone()),
            None => sessions.push((id, vec![event.clone()])),
        }
    }
    sessions
}

/// The outline of a session's events. It omits what depends on timing: how many deltas a text is split into, how often
/// a running call reports progress, how often a status is repeated, and the order in which calls of one step proceed.
pub fn outline(events: &[Value]) -> Vec<String> {
    let mut outliner = Outliner::default();
    events.iter().for_each(|event| outliner.take(event));
    outliner.lines()
}

/// A step, and its tool part.
struct Line {
    text: String,
    part: Option<String>,
}

#[derive(Default)]
struct Outliner {
    lines: Vec<Line>,
    users: HashSet<String>,
    running: HashSet<String>,
    /// The part of each call.
    calls: HashMap<String, String>,
    /// The part of each question.
    asks: HashMap<String, String>,
    status: String,
}

impl Outliner {
    fn take(&mut self, event: &Value) {
        let properties = &event["properties"];
        let kind = event["type"].as_str().unwrap_or_default();
        match kind {
            "message.updated" if properties["info"]["role"] == "user" => {
                self.users.insert(text(&properties["info"]["id"]));
            }
            "message.part.updated" => self.part(&properties["part"]),
            // Texts and reasoning are split arbitrarily.
            "message.part.delta" if self.lines.last().is_some_and(|line| line.text == "delta") => {}
            "message.part.delta" => self.push("delta", None),
            "session.status" => {
                let status = &properties["status"];
                let attempt = status["attempt"].as_u64().map_or_else(String::new, |attempt| format!(" {attempt}"));
                let status = format!("status {}{attempt}", text(&status["type"]));
                if status != self.status {
                    self.push(&status, None);
                    self.status = status;
                }
            }
            "session.error" => self.push(&format!("error {}", text(&properties["error"]["name"])), None),
            "permission.asked" | "question.asked" => {
                let part = self.calls.get(&text(&properties["tool"]["callID"])).cloned();
                if let Some(part) = &part {
                    self.asks.insert(text(&properties["id"]), part.clone());
                }
                self.push(kind, part);
            }
            "permission.replied" | "question.replied" | "question.rejected" => {
                let part = self.asks.get(&text(&properties["requestID"])).cloned();
                self.push(format!("{kind} {}", text(&properties["reply"])).trim_end(), part);
            }
            "session.idle"
            | "session.deleted"
            | "session.compacted"
            | "message.removed"
            | "message.part.removed"
            | "command.executed"
            | "file.edited"
            | "pty.created"
            | "pty.updated"
            | "pty.exited"
            | "pty.deleted"
            | "server.connected"
            | "server.instance.disposed" => {
                self.push(kind, None);
            }
            _ => {}
        }
    }

    fn part(&mut self, part: &Value) {
        let kind = text(&part["type"]);
        if self.users.contains(&text(&part["messageID"])) {
            return self.push(&format!("user {kind}"), None);
        }
        match kind.as_str() {
            "tool" => {
                let (id, status) = (text(&part["id"]), text(&part["state"]["status"]));
                self.calls.insert(text(&part["callID"]), id.clone());
                if status != "running" || self.running.insert(id.clone()) {
                    self.push(&format!("tool {} {status}", text(&part["tool"])), Some(id));
                }
            }
            "text" | "reasoning" => {
                let end = if part["time"]["end"].is_null() { "start" } else { "end" };
                self.push(&format!("{kind} {end}"), None);
            }
            "step-finish" => self.push(&format!("step-finish {}", text(&part["reason"])), None),
            "patch" => {}
            _ => self.push(&kind, None),
        }
    }

    fn push(&mut self, text: &str, part: Option<String>) {
        self.lines.push(Line { text: text.to_owned(), part });
    }

    /// Groups consecutive steps of calls by call.
    fn lines(self) -> Vec<String> {
        let mut out = Vec::new();
        for run in self.lines.chunk_by(|one, next| one.part.is_some() && next.part.is_some()) {
            let mut parts: Vec<&Option<String>> = Vec::new();
            for line in run {
                if !parts.contains(&&line.part) {
                    parts.push(&line.part);
                }
            }
            for part in parts {
                out.extend(run.iter().filter(|line| line.part == *part).map(|line| line.text.clone()));
            }
        }
        out
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(id: &str, status: &str) -> Value {
        json!({"type": "message.part.updated", "properties": {"sessionID": "s", "part":
            {"id": id, "callID": id, "type": "tool", "tool": "bash", "state": {"status": status}}}})
    }

    #[test]
    fn calls_of_one_step_may_interleave() {
        let one = [tool("a", "pending"), tool("b", "pending"), tool("b", "running"), tool("a", "completed")];
        let other = [tool("a", "pending"), tool("a", "completed"), tool("b", "pending"), tool("b", "running")];
        assert_eq!(outline(&one), outline(&other));
        assert_ne!(outline(&one), outline(&other[..3]));
        assert_eq!(by_session(&one).len(), 1);
    }

    #[test]
    fn repetitions_count_once() {
        let status = json!({"type": "session.status", "properties": {"status": {"type": "busy"}}});
        let delta = json!({"type": "message.part.delta", "properties": {}});
        let events = [status.clone(), status, tool("a", "running"), tool("a", "running"), delta.clone(), delta];
        assert_eq!(outline(&events), ["status busy", "tool bash running", "delta"]);
    }
}
