//! `--format json`: one event per line, in OpenCode's shapes.

use std::collections::HashSet;

use api::{EventBody, Json, MessageError, MessageId, Part, PartId, SessionId, ToolState};
use serde_json::json;

use crate::terminal::escape_json;

/// The events of one session as lines. An event that comes twice gives one line.
pub struct EventLines {
    session: SessionId,
    users: HashSet<MessageId>,
    done: HashSet<PartId>,
}

impl EventLines {
    /// The lines of that session.
    pub fn new(session: SessionId) -> Self {
        Self { session, users: HashSet::new(), done: HashSet::new() }
    }

    /// The line of an event, if it has one.
    pub fn event(&mut self, event: &EventBody) -> Option<String> {
        if event.session_id() != Some(&self.session) {
            return None;
        }
        match event {
            EventBody::MessageUpdated { info, .. } => {
                if info.as_user().is_some() {
                    self.users.insert(info.id().clone());
                }
                None
            }
            EventBody::PartUpdated { part, .. } => self.part(part),
            EventBody::SessionError { error: Some(error), .. } => Some(self.error(error)),
            _ => None,
        }
    }

    /// The line of a completed part.
    pub fn part(&mut self, part: &Part) -> Option<String> {
        let kind = match part {
            Part::StepStart(_) => "step_start",
            Part::StepFinish(_) => "step_finish",
            Part::Text(text) if text.time.as_ref().is_some_and(|time| time.end.is_some()) => "text",
            Part::Tool(tool) if matches!(tool.state, ToolState::Completed(_) | ToolState::Error(_)) => "tool_use",
            _ => return None,
        };
        let head = part.head()?;
        if self.users.contains(&head.message_id) || !self.done.insert(head.id.clone()) {
            return None;
        }
        let part = serde_json::to_value(part).ok()?;
        Some(self.line(kind, "part", part))
    }

    /// The line of an error.
    pub fn error(&self, error: &MessageError) -> String {
        self.line("error", "error", json!(error))
    }

    fn line(&self, kind: &str, key: &str, value: Json) -> String {
        let mut line = json!({ "type": kind, "timestamp": api::now(), "sessionID": self.session });
        line[key] = value;
        escape_json(&line.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> (EventLines, SessionId) {
        let session = SessionId::new();
        (EventLines::new(session.clone()), session)
    }

    fn part(session: &SessionId, message: &MessageId, value: Json) -> EventBody {
        let mut value = value;
        value["id"] = json!(PartId::new());
        value["sessionID"] = json!(session);
        value["messageID"] = json!(message);
        EventBody::part(serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn completed_parts_become_lines_once() {
        let (mut lines, session) = lines();
        let message = MessageId::new();
        let open = part(&session, &message, json!({"type": "text", "text": "", "time": {"start": 1}}));
        assert_eq!(lines.event(&open), None);
        let text = part(&session, &message, json!({"type": "text", "text": "hi", "time": {"start": 1, "end": 2}}));
        let line: Json = serde_json::from_str(&lines.event(&text).unwrap()).unwrap();
        assert_eq!(line["type"], "text");
        assert_eq!(line["sessionID"], json!(session));
        assert_eq!(line["part"]["text"], "hi");
        assert!(line["timestamp"].is_i64());
        assert_eq!(lines.event(&text), None);
        let running = json!({"type": "tool", "tool": "bash", "callID": "c", "state": {"status": "running", "input": {}, "time": {"start": 1}}});
        assert_eq!(lines.event(&part(&session, &message, running)), None);
    }

    #[test]
    fn other_sessions_and_prompts_are_left_out() {
        let (mut lines, session) = lines();
        let text = json!({"type": "text", "text": "hi", "time": {"start": 1, "end": 2}});
        assert_eq!(lines.event(&part(&SessionId::new(), &MessageId::new(), text.clone())), None);
        let user = MessageId::new();
        let info = json!({"id": user, "sessionID": session, "role": "user", "time": {"created": 1}, "agent": "build",
            "model": {"providerID": "p", "modelID": "m"}});
        assert_eq!(lines.event(&EventBody::message(serde_json::from_value(info).unwrap())), None);
        assert_eq!(lines.event(&part(&session, &user, text)), None);
    }

    #[test]
    fn errors_have_their_shape() {
        let (mut lines, session) = lines();
        let event = EventBody::SessionError { session_id: Some(session), error: Some(MessageError::unknown("broken")) };
        let line: Json = serde_json::from_str(&lines.event(&event).unwrap()).unwrap();
        assert_eq!(line["error"], json!({"name": "UnknownError", "data": {"message": "broken"}}));
    }
}
