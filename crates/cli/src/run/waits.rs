//! How long calls have waited for a person's answer. A call counts as running from before it asks, so that its times alone would
//! show the wait as work.

use std::collections::HashMap;

use api::{EventBody, MessageId, Timestamp, ToolPart, ToolRef};

/// A call of a session. Model servers give the same id to calls of different messages, so the message counts too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKey {
    message: MessageId,
    call: String,
}

impl CallKey {
    /// The key of a call.
    pub fn of(tool: &ToolPart) -> Self {
        Self { message: tool.head.message_id.clone(), call: tool.call_id.clone() }
    }

    fn of_ref(tool: &ToolRef) -> Self {
        Self { message: tool.message_id.clone(), call: tool.call_id.clone() }
    }
}

/// The waits of a session's calls, from events.
#[derive(Debug, Default)]
pub struct AnswerWaits {
    /// Open requests by their id: the call, and since when it waits.
    open: HashMap<String, (CallKey, Timestamp)>,
    /// Milliseconds that calls waited for requests that are answered.
    answered: HashMap<CallKey, Timestamp>,
}

impl AnswerWaits {
    /// Takes an event in.
    pub fn event(&mut self, event: &EventBody, now: Timestamp) {
        match event {
            EventBody::PermissionAsked(request) => self.ask(request.id.as_str(), request.tool.as_ref(), now),
            EventBody::QuestionAsked(request) => self.ask(request.id.as_str(), request.tool.as_ref(), now),
            EventBody::PermissionReplied { request_id, .. } => self.answer(request_id.as_str(), now),
            EventBody::QuestionReplied { request_id, .. } | EventBody::QuestionRejected { request_id, .. } => {
                self.answer(request_id.as_str(), now);
            }
            _ => {}
        }
    }

    /// An open request is reported again after lost events; it waits since the first time.
    fn ask(&mut self, request: &str, tool: Option<&ToolRef>, now: Timestamp) {
        if let Some(tool) = tool {
            self.open.entry(request.to_owned()).or_insert_with(|| (CallKey::of_ref(tool), now));
        }
    }

    fn answer(&mut self, request: &str, now: Timestamp) {
        if let Some((call, since)) = self.open.remove(request) {
            *self.answered.entry(call).or_default() += (now - since).max(0);
        }
    }

    /// How long a call has waited for answers that it got.
    pub fn of(&self, tool: &ToolPart) -> Timestamp {
        self.answered.get(&CallKey::of(tool)).copied().unwrap_or_default()
    }

    /// How long a call has waited until now, the request that is still open included.
    pub fn until(&self, call: &CallKey, now: Timestamp) -> Timestamp {
        let open = self.open.values().filter(|(waiting, _)| waiting == call).map(|(_, since)| (now - since).max(0));
        self.answered.get(call).copied().unwrap_or_default() + open.sum::<Timestamp>()
    }

    /// Forgets a call that has ended.
    pub fn forget(&mut self, tool: &ToolPart) {
        let key = CallKey::of(tool);
        self.answered.remove(&key);
        self.open.retain(|_, (waiting, _)| *waiting != key);
    }
}
