//! What the client was shown of one session's messages.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    Annotations, ContentBlock, ContentChunk, Role, SessionUpdate, TextContent, ToolCall, ToolCallUpdateFields,
};
use api::{
    Message, MessageId, MessageOrder, MessageWithParts, Part, PartId, SessionId, StepFinishPart, TextPart, ToolPart,
    ToolRef,
};

use super::tool_call::{self, ToolCallView};
use super::{ChunkKind, Effect, call_update};
use crate::editor::PendingChanges;

/// The newest messages whose order is known: more than are read again after a gap.
pub const MAX_MESSAGES: usize = 512;

/// What was shown of a session.
pub struct Transcript {
    pub session: SessionId,
    directory: PathBuf,
    /// Whether the client sees the session under its own id. If not, it sees only the calls that were asked about, on
    /// `shown_on`.
    visible: bool,
    /// The session on which calls are shown.
    pub shown_on: SessionId,
    /// The known messages, in order.
    order: MessageOrder,
    /// All messages up to this one were shown completely.
    settled_up_to: Option<MessageId>,
    /// User messages, and whether this client wrote them.
    user_messages: HashMap<MessageId, bool>,
    /// The streaming text parts: kind, message id, and the bytes shown.
    texts: HashMap<PartId, (ChunkKind, String, usize)>,
    finished_parts: HashSet<PartId>,
    calls: HashMap<PartId, ShownCall>,
}

/// What was shown of a tool call.
struct ShownCall {
    message: MessageId,
    call_id: String,
    shown: bool,
    sent: Option<ToolCallUpdateFields>,
    /// Its latest state, in case it must be shown later.
    part: Box<ToolPart>,
}

/// Whether a message will not change any more.
pub fn is_complete(message: &MessageWithParts) -> bool {
    message.info.as_assistant().is_none_or(|answer| answer.time.completed.is_some())
}

/// Whether a part's text is still streaming. User text has no time at all.
pub fn is_streaming(part: &Part) -> bool {
    let time = match part {
        Part::Text(text) => text.time.as_ref(),
        Part::Reasoning(thought) => Some(&thought.time),
        _ => None,
    };
    time.is_some_and(|time| time.end.is_none())
}

impl Transcript {
    pub fn new(session: SessionId, directory: PathBuf, visible: bool) -> Self {
        Self {
            shown_on: session.clone(),
            session,
            directory,
            visible,
            order: MessageOrder::new(MAX_MESSAGES),
            settled_up_to: None,
            user_messages: HashMap::new(),
            texts: HashMap::new(),
            finished_parts: HashSet::new(),
            calls: HashMap::new(),
        }
    }

    /// Registers a message that the client wrote, which is not echoed.
    pub fn add_own_message(&mut self, message: &MessageId) {
        self.user_messages.insert(message.clone(), true);
    }

    /// Sets the order of the messages, oldest first; `whole` if there are no older ones.
    pub fn set_order<'a>(&mut self, messages: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        self.order.merge_list(messages, whole);
    }

    /// Marks all messages up to this one as shown.
    pub fn settle(&mut self, message: &MessageId) {
        if !self.is_settled(message) {
            self.settled_up_to = Some(message.clone());
        }
    }

    /// The session is idle: what was shown will not change, so its state can be dropped.
    pub fn on_idle(&mut self) {
        if let Some(newest) = self.order.last().cloned() {
            self.settle(&newest);
        }
        // A prompt that the client is about to send is not in the order yet.
        let order = &self.order;
        self.user_messages.retain(|message, _| order.place(message).is_none() && !order.is_forgotten(message));
        self.texts.clear();
        self.finished_parts.clear();
        self.calls.clear();
    }

    pub fn message(&mut self, info: &Message) {
        self.order.record(info.id());
        if let Message::User(user) = info {
            self.user_messages.entry(user.id.clone()).or_insert(false);
        }
    }

    /// Whether a message is a prompt: of the user, or of the parent of a subagent.
    pub fn is_prompt(&self, message: &MessageId) -> bool {
        self.user_messages.contains_key(message) || self.is_settled(message)
    }

    /// Whether this step was not counted before.
    pub fn is_new_step(&mut self, step: &StepFinishPart) -> bool {
        !self.is_settled(&step.head.message_id) && self.finished_parts.insert(step.head.id.clone())
    }

    fn is_settled(&self, message: &MessageId) -> bool {
        match self.order.place(message) {
            Some(place) => self.settled_up_to.as_ref().is_some_and(|last| Some(place) <= self.order.place(last)),
            None => self.order.is_forgotten(message),
        }
    }

    pub fn part(
        &mut self,
        part: &Part,
        replay: bool,
        changes: &PendingChanges,
        progress: Option<ToolCallUpdateFields>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(head) = part.head() else { return };
        self.order.record(&head.message_id);
        if self.is_settled(&head.message_id) || self.finished_parts.contains(&head.id) {
            return;
        }
        let (id, message) = (head.id.clone(), head.message_id.clone());
        if let Some(own) = self.user_messages.get(&message) {
            if !own && self.visible {
                self.show_user_part(part, replay, effects);
            }
            self.finished_parts.insert(id);
            return;
        }
        match part {
            Part::Text(text) if text.synthetic != Some(true) && text.ignored != Some(true) => {
                let end = text.time.as_ref().is_some_and(|time| time.end.is_some());
                self.show_text(id, ChunkKind::Agent, message.to_string(), &text.text, end, effects);
            }
            Part::Reasoning(thought) => {
                let end = thought.time.end.is_some();
                self.show_text(id.clone(), ChunkKind::Thought, id.to_string(), &thought.text, end, effects);
            }
            Part::Tool(tool) => self.show_tool(tool, replay, changes, progress, effects),
            Part::File(_) if self.visible => {
                if let Some(block) = tool_call::attachment(part) {
                    let chunk = ContentChunk::new(block).message_id(message_id(&message));
                    effects
                        .push(Effect::Update(self.session.clone(), Box::new(SessionUpdate::AgentMessageChunk(chunk))));
                }
                self.finished_parts.insert(id);
            }
            _ => {}
        }
    }

    /// Shows a part of a user message that someone else wrote, or that is replayed.
    fn show_user_part(&self, part: &Part, replay: bool, effects: &mut Vec<Effect>) {
        let Some(head) = part.head() else { return };
        let block = match part {
            Part::Text(TextPart { text, synthetic: Some(true), .. }) if replay => {
                let audience = Annotations::new().audience(vec![Role::Assistant]);
                let text = crate::size::truncate(text, crate::size::MAX_TEXT);
                ContentBlock::Text(TextContent::new(text).annotations(audience))
            }
            Part::Text(TextPart { text, synthetic, .. }) if *synthetic != Some(true) => {
                let message = head.message_id.to_string();
                return effects.push(Effect::Text(self.session.clone(), ChunkKind::User, message, text.clone()));
            }
            Part::Subtask(task) => {
                ContentBlock::Text(TextContent::new(crate::size::truncate(&task.prompt, crate::size::MAX_TEXT)))
            }
            Part::File(_) => match tool_call::embedded_resource(part).or_else(|| tool_call::attachment(part)) {
                Some(block) => block,
                None => return,
            },
            _ => return,
        };
        let chunk = ContentChunk::new(block).message_id(message_id(&head.message_id));
        effects.push(Effect::Update(self.session.clone(), Box::new(SessionUpdate::UserMessageChunk(chunk))));
    }

    fn show_text(
        &mut self,
        id: PartId,
        kind: ChunkKind,
        message: String,
        text: &str,
        end: bool,
        effects: &mut Vec<Effect>,
    ) {
        let (_, _, shown) = self.texts.entry(id.clone()).or_insert((kind, message, 0));
        // The final text may be shorter than what was streamed (trimmed); then there is nothing to add.
        if let Some(rest) = text.get(*shown..).map(str::to_owned) {
            self.delta(&id, &rest, effects);
        }
        if end {
            self.texts.remove(&id);
            self.finished_parts.insert(id);
        }
    }

    /// Adds text to a known text part.
    pub fn delta(&mut self, part: &PartId, delta: &str, effects: &mut Vec<Effect>) {
        let Some((kind, message, shown)) = self.texts.get_mut(part) else { return };
        *shown += delta.len();
        if self.visible && !delta.is_empty() {
            effects.push(Effect::Text(self.session.clone(), *kind, message.clone(), delta.to_owned()));
        }
    }

    fn show_tool(
        &mut self,
        part: &ToolPart,
        replay: bool,
        changes: &PendingChanges,
        progress: Option<ToolCallUpdateFields>,
        effects: &mut Vec<Effect>,
    ) {
        let id = part.head.id.clone();
        let before = self.calls.remove(&id);
        let was_shown = before.as_ref().is_some_and(|call| call.shown);
        let view = ToolCallView { part, directory: &self.directory, live: !replay };
        if self.visible && !was_shown {
            effects.push(announce_call(&self.shown_on, view.announcement()));
        }
        let is_shown = self.visible || was_shown;
        if part.state.is_done() {
            if is_shown {
                effects.push(Effect::Update(
                    self.shown_on.clone(),
                    call_update(id.to_string(), view.update_fields(changes)),
                ));
            }
            self.finished_parts.insert(id);
            return;
        }
        let mut sent = before.and_then(|call| call.sent);
        if is_shown && !matches!(part.state, api::ToolState::Pending(_)) {
            let fields = progress.unwrap_or_else(|| view.update_fields(changes));
            if sent.as_ref() != Some(&fields) {
                sent = Some(fields.clone());
                let update = call_update(id.to_string(), fields);
                effects.push(Effect::Progress(self.shown_on.clone(), id.to_string(), update));
            }
        }
        let (message, call_id) = (part.head.message_id.clone(), part.call_id.clone());
        self.calls.insert(id, ShownCall { message, call_id, shown: is_shown, sent, part: Box::new(part.clone()) });
    }

    /// Sends the progress of a call that was already shown.
    pub fn progress(&mut self, id: &PartId, fields: ToolCallUpdateFields, effects: &mut Vec<Effect>) {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.shown && call.sent.as_ref() != Some(&fields)) else {
            return;
        };
        call.sent = Some(fields.clone());
        effects.push(Effect::Progress(self.shown_on.clone(), id.to_string(), call_update(id.to_string(), fields)));
    }

    /// The latest state of a call.
    pub fn call(&self, id: &PartId) -> Option<&ToolPart> {
        self.calls.get(id).map(|call| &*call.part)
    }

    /// The id under which the client knows a call; shows the call if necessary.
    pub fn client_call_id(&mut self, wanted: Option<&ToolRef>, effects: &mut Vec<Effect>) -> String {
        let Some(wanted) = wanted else { return api::tool_call_id() };
        let known =
            self.calls.iter_mut().find(|(_, call)| call.message == wanted.message_id && call.call_id == wanted.call_id);
        let Some((id, call)) = known else {
            let call = ToolCall::new(wanted.call_id.clone(), "Unknown tool call");
            effects.push(announce_call(&self.shown_on, call));
            return wanted.call_id.clone();
        };
        if !std::mem::replace(&mut call.shown, true) {
            let view = ToolCallView { part: &call.part, directory: &self.directory, live: true };
            effects.push(announce_call(&self.shown_on, view.announcement()));
        }
        id.to_string()
    }
}

fn announce_call(session: &SessionId, call: ToolCall) -> Effect {
    Effect::Update(session.clone(), Box::new(SessionUpdate::ToolCall(call)))
}

fn message_id(message: &MessageId) -> agent_client_protocol_schema::v1::MessageId {
    agent_client_protocol_schema::v1::MessageId::new(message.to_string())
}
