//! `--format json`: one event per line, in OpenCode's shapes.

use std::collections::HashSet;

use api::{EventBody, Json, MessageError, MessageId, Part, PartId, SessionId, ToolState};
use serde_json::json;

/// The events of one session as lines. Feeding it the same thing twice gives it once.
pub struct Lines {
    session: SessionId,
    users: HashSet<MessageId>,
    done: HashSet<PartId>,
}

impl Lines {
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

    /// The line of a part that is complete.
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
        escape(&line.to_string())
    }
}

/// JSON leaves some characters bare that a terminal obeys (C1 controls, bidirectional overrides). They can only stand
/// inside strings, so escaping them changes no value.
pub fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out += &format!("\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines() -> (Lines, SessionId) {
        let session = SessionId::new();
        (Lines::new(session.clone()), session)
    }

    fn part(session: &SessionId, message: &MessageId, value: Json) -> EventBody {
        let mut value = value;
        value["id"] = json!(PartId::new());
        value["sessionID"] = json!(session);
        value["messageID"] = json!(message);
        EventBody::part(serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn complete_parts_become_lines_once() {
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
    fn other_sessions_and_users_are_left_out() {
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

    proptest! {
        #[test]
        fn escaping_keeps_the_value_and_moves_no_terminal(text in any::<String>()) {
            let line = escape(&json!(text).to_string());
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
            prop_assert_eq!(api::strip_control(&line), line.as_str());
        }
    }
}
