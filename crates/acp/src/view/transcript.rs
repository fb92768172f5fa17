//! One session's messages: what was shown of each.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    Annotations, ContentBlock, ContentChunk, Role, SessionUpdate, TextContent, ToolCall, ToolCallUpdateFields,
};
use api::{
    Message, MessageId, MessageOrder, MessageWithParts, Part, PartId, SessionId, StepFinishPart, TextPart, ToolPart,
    ToolRef,
};

use super::tool_call::{self, Shown};
use super::{Act, Voice, call_update};
use crate::editor::Changes;

/// The newest messages that are told apart from others: more than are read again after a gap.
pub const MESSAGES: usize = 512;

/// What was shown of a session.
pub struct Stream {
    pub session: SessionId,
    directory: PathBuf,
    /// Whether the client sees it under its own id. Else only calls that were asked about are seen, elsewhere.
    visible: bool,
    /// Where calls that were asked about are seen.
    pub seen_on: SessionId,
    /// The messages that were heard of, in their order.
    order: MessageOrder,
    /// Everything up to here was shown to its end.
    floor: Option<MessageId>,
    /// The human's messages, and whether the client wrote them itself.
    users: HashMap<MessageId, bool>,
    /// How much of each text was shown.
    texts: HashMap<PartId, (Voice, String, usize)>,
    done: HashSet<PartId>,
    calls: HashMap<PartId, Call>,
}

/// What was shown of a call.
struct Call {
    message: MessageId,
    call_id: String,
    shown: bool,
    sent: Option<ToolCallUpdateFields>,
    /// The call as it is now, for the case that it must be shown after all.
    part: Box<ToolPart>,
}

/// Whether nothing of a message will change any more.
pub fn is_settled(message: &MessageWithParts) -> bool {
    message.info.as_assistant().is_none_or(|answer| answer.time.completed.is_some())
}

/// Whether a part's text is still being written. What the human wrote has no time at all.
pub fn is_growing(part: &Part) -> bool {
    let time = match part {
        Part::Text(text) => text.time.as_ref(),
        Part::Reasoning(thought) => Some(&thought.time),
        _ => None,
    };
    time.is_some_and(|time| time.end.is_none())
}

impl Stream {
    pub fn new(session: SessionId, directory: PathBuf, visible: bool) -> Self {
        Self {
            seen_on: session.clone(),
            session,
            directory,
            visible,
            order: MessageOrder::new(MESSAGES),
            floor: None,
            users: HashMap::new(),
            texts: HashMap::new(),
            done: HashSet::new(),
            calls: HashMap::new(),
        }
    }

    /// A message that the client writes itself.
    pub fn own(&mut self, message: &MessageId) {
        self.users.insert(message.clone(), true);
    }

    /// The session has these messages, oldest first; `whole` if there are none before them.
    pub fn list<'a>(&mut self, messages: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        self.order.list(messages, whole);
    }

    /// Everything up to this message was shown to its end.
    pub fn settle(&mut self, message: &MessageId) {
        if !self.is_old(message) {
            self.floor = Some(message.clone());
        }
    }

    /// The session rests: nothing of what was shown changes any more, so it need not be remembered.
    pub fn rest(&mut self) {
        if let Some(newest) = self.order.last().cloned() {
            self.settle(&newest);
        }
        // A prompt that the client is about to write was not heard of yet.
        let order = &self.order;
        self.users.retain(|message, _| order.place(message).is_none() && !order.is_forgotten(message));
        self.texts.clear();
        self.done.clear();
        self.calls.clear();
    }

    pub fn message(&mut self, info: &Message) {
        self.order.hear(info.id());
        if let Message::User(user) = info {
            self.users.entry(user.id.clone()).or_insert(false);
        }
    }

    /// Whether a message is one of the human's, or of whoever calls a subagent.
    pub fn is_prompt(&self, message: &MessageId) -> bool {
        self.users.contains_key(message) || self.is_old(message)
    }

    /// Whether a step is counted for the first time.
    pub fn first(&mut self, step: &StepFinishPart) -> bool {
        !self.is_old(&step.head.message_id) && self.done.insert(step.head.id.clone())
    }

    fn is_old(&self, message: &MessageId) -> bool {
        match self.order.place(message) {
            Some(place) => self.floor.as_ref().is_some_and(|floor| Some(place) <= self.order.place(floor)),
            None => self.order.is_forgotten(message),
        }
    }

    pub fn part(
        &mut self,
        part: &Part,
        replay: bool,
        changes: &Changes,
        progress: Option<ToolCallUpdateFields>,
        acts: &mut Vec<Act>,
    ) {
        let Some(head) = part.head() else { return };
        self.order.hear(&head.message_id);
        if self.is_old(&head.message_id) || self.done.contains(&head.id) {
            return;
        }
        let (id, message) = (head.id.clone(), head.message_id.clone());
        if let Some(own) = self.users.get(&message) {
            if !own && self.visible {
                self.user(part, replay, acts);
            }
            self.done.insert(id);
            return;
        }
        match part {
            Part::Text(text) if text.synthetic != Some(true) && text.ignored != Some(true) => {
                let end = text.time.as_ref().is_some_and(|time| time.end.is_some());
                self.text(id, Voice::Agent, message.to_string(), &text.text, end, acts);
            }
            Part::Reasoning(thought) => {
                let end = thought.time.end.is_some();
                self.text(id.clone(), Voice::Thought, id.to_string(), &thought.text, end, acts);
            }
            Part::Tool(tool) => self.tool(tool, replay, changes, progress, acts),
            Part::File(_) if self.visible => {
                if let Some(block) = tool_call::attachment(part) {
                    let chunk = ContentChunk::new(block).message_id(message_id(&message));
                    acts.push(Act::Update(self.session.clone(), Box::new(SessionUpdate::AgentMessageChunk(chunk))));
                }
                self.done.insert(id);
            }
            _ => {}
        }
    }

    /// A part of a message that somebody else wrote, or that is shown again.
    fn user(&self, part: &Part, replay: bool, acts: &mut Vec<Act>) {
        let Some(head) = part.head() else { return };
        let block = match part {
            Part::Text(TextPart { text, synthetic: Some(true), .. }) if replay => {
                let audience = Annotations::new().audience(vec![Role::Assistant]);
                let text = crate::size::cut(text, crate::size::TEXT);
                ContentBlock::Text(TextContent::new(text).annotations(audience))
            }
            Part::Text(TextPart { text, synthetic, .. }) if *synthetic != Some(true) => {
                let message = head.message_id.to_string();
                return acts.push(Act::Text(self.session.clone(), Voice::User, message, text.clone()));
            }
            Part::Subtask(task) => {
                ContentBlock::Text(TextContent::new(crate::size::cut(&task.prompt, crate::size::TEXT)))
            }
            Part::File(_) => match tool_call::resource(part).or_else(|| tool_call::attachment(part)) {
                Some(block) => block,
                None => return,
            },
            _ => return,
        };
        let chunk = ContentChunk::new(block).message_id(message_id(&head.message_id));
        acts.push(Act::Update(self.session.clone(), Box::new(SessionUpdate::UserMessageChunk(chunk))));
    }

    fn text(&mut self, id: PartId, voice: Voice, message: String, text: &str, end: bool, acts: &mut Vec<Act>) {
        let (_, _, shown) = self.texts.entry(id.clone()).or_insert((voice, message, 0));
        // A final text may be shorter than what was streamed (trimmed); then there is nothing to add.
        if let Some(rest) = text.get(*shown..).map(str::to_owned) {
            self.delta(&id, &rest, acts);
        }
        if end {
            self.texts.remove(&id);
            self.done.insert(id);
        }
    }

    /// More text of a part that is known to be one.
    pub fn delta(&mut self, part: &PartId, delta: &str, acts: &mut Vec<Act>) {
        let Some((voice, message, shown)) = self.texts.get_mut(part) else { return };
        *shown += delta.len();
        if self.visible && !delta.is_empty() {
            acts.push(Act::Text(self.session.clone(), *voice, message.clone(), delta.to_owned()));
        }
    }

    fn tool(
        &mut self,
        part: &ToolPart,
        replay: bool,
        changes: &Changes,
        progress: Option<ToolCallUpdateFields>,
        acts: &mut Vec<Act>,
    ) {
        let id = part.head.id.clone();
        let before = self.calls.remove(&id);
        let was_shown = before.as_ref().is_some_and(|call| call.shown);
        let shown = Shown { part, directory: &self.directory, live: !replay };
        if self.visible && !was_shown {
            acts.push(first(&self.seen_on, shown.call()));
        }
        let is_shown = self.visible || was_shown;
        if part.state.is_done() {
            if is_shown {
                acts.push(Act::Update(self.seen_on.clone(), call_update(id.to_string(), shown.fields(changes))));
            }
            self.done.insert(id);
            return;
        }
        let mut sent = before.and_then(|call| call.sent);
        if is_shown && !matches!(part.state, api::ToolState::Pending(_)) {
            let fields = progress.unwrap_or_else(|| shown.fields(changes));
            if sent.as_ref() != Some(&fields) {
                sent = Some(fields.clone());
                let update = call_update(id.to_string(), fields);
                acts.push(Act::Progress(self.seen_on.clone(), id.to_string(), update));
            }
        }
        let (message, call_id) = (part.head.message_id.clone(), part.call_id.clone());
        self.calls.insert(id, Call { message, call_id, shown: is_shown, sent, part: Box::new(part.clone()) });
    }

    /// Another word about how far a call is that was shown before.
    pub fn progress(&mut self, id: &PartId, fields: ToolCallUpdateFields, acts: &mut Vec<Act>) {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.shown && call.sent.as_ref() != Some(&fields)) else {
            return;
        };
        call.sent = Some(fields.clone());
        acts.push(Act::Progress(self.seen_on.clone(), id.to_string(), call_update(id.to_string(), fields)));
    }

    /// The call as it is now.
    pub fn call(&self, id: &PartId) -> Option<&ToolPart> {
        self.calls.get(id).map(|call| &*call.part)
    }

    /// The id under which the client knows a call, shown now at the latest.
    pub fn call_of(&mut self, wanted: Option<&ToolRef>, acts: &mut Vec<Act>) -> String {
        let Some(wanted) = wanted else { return api::tool_call_id() };
        let known =
            self.calls.iter_mut().find(|(_, call)| call.message == wanted.message_id && call.call_id == wanted.call_id);
        let Some((id, call)) = known else {
            let call = ToolCall::new(wanted.call_id.clone(), "A call that was not seen");
            acts.push(first(&self.seen_on, call));
            return wanted.call_id.clone();
        };
        if !std::mem::replace(&mut call.shown, true) {
            let shown = Shown { part: &call.part, directory: &self.directory, live: true };
            acts.push(first(&self.seen_on, shown.call()));
        }
        id.to_string()
    }
}

fn first(session: &SessionId, call: ToolCall) -> Act {
    Act::Update(session.clone(), Box::new(SessionUpdate::ToolCall(call)))
}

fn message_id(message: &MessageId) -> agent_client_protocol_schema::v1::MessageId {
    agent_client_protocol_schema::v1::MessageId::new(message.to_string())
}
