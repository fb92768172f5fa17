//! From events to what the client is told: a state machine without a connection in it.
//!
//! A view shows one session that the client has opened, and the subagents below it. Feeding it the same thing twice shows
//! it once, so that the stored state may be fed again whenever events may be missing.

mod subagent;
pub mod time;
pub mod tool_call;
mod transcript;
pub mod unified_diff;

use std::collections::HashMap;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    CompactionStatus, CompactionUpdate, Cost, Notice, NoticeSeverity, Plan, PlanEntry, PlanEntryPriority,
    PlanEntryStatus, SessionInfoUpdate, SessionUpdate, ToolCallUpdate, UsageUpdate,
};
use api::{
    EventBody, Message, MessageId, MessageWithParts, Part, PermissionRequest, QuestionRequest, Session, SessionId,
    SessionStatus, StepFinishPart, Todo, Tokens, ToolRef,
};
use indexmap::IndexSet;

use crate::capabilities::Abilities;
use crate::editor::Changes;
use subagent::Child;
use transcript::Stream;

/// So many answers are known to have been shown to their end: more than are read again after a gap.
const ENDED: usize = 256;

/// Whose words a chunk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// The human's.
    User,
    /// The agent's.
    Agent,
    /// What it thinks.
    Thought,
}

/// A call that something is asked about, as the client knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The session on which the client knows the call.
    pub session: SessionId,
    /// The call there.
    pub call: String,
    /// The subagent that asks, if the client does not see its session.
    pub by: Option<String>,
}

/// What an event leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// More text of a message.
    Text(SessionId, Voice, String, String),
    /// An update.
    Update(SessionId, Box<SessionUpdate>),
    /// How far a call is: an older state that was not sent yet need not be sent.
    Progress(SessionId, String, Box<SessionUpdate>),
    /// The human is asked for a permission.
    Permission(Box<PermissionRequest>, Asked),
    /// The human is asked a question.
    Question(Box<QuestionRequest>, Asked),
    /// Something was answered, here or elsewhere.
    Settled(String),
    /// The session has another agent, model or title now.
    Changed(Box<Session>),
    /// What can be chosen or run may be different now.
    Refresh,
    /// The session is gone.
    Deleted,
}

/// What was used since the last prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    /// Tokens of all steps.
    pub total: u64,
    /// Fresh input.
    pub input: u64,
    /// Visible output.
    pub output: u64,
    /// Thoughts.
    pub thought: u64,
    /// Input from the provider's cache.
    pub cached_read: u64,
    /// Input that went into the cache.
    pub cached_write: u64,
}

impl Used {
    fn add(&mut self, tokens: &Tokens) {
        let parts = [tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write];
        self.total += tokens.total.unwrap_or_else(|| parts.iter().sum());
        self.input += tokens.input;
        self.output += tokens.output;
        self.thought += tokens.reasoning;
        self.cached_read += tokens.cache.read;
        self.cached_write += tokens.cache.write;
    }
}

/// How much of a conversation will not change any more.
pub struct Settled {
    /// The newest messages of which nothing will.
    messages: Vec<MessageId>,
    /// Those are the newest of all.
    all: bool,
    /// There are none before the first that was looked at.
    whole: bool,
}

impl Settled {
    /// Of the newest messages of a session, or of all: the `whole`.
    pub fn of(messages: &[MessageWithParts], whole: bool) -> Self {
        let count = messages.iter().take_while(|message| transcript::is_settled(message)).count();
        let newest = messages[..count].iter().skip(count.saturating_sub(transcript::MESSAGES));
        let newest = newest.map(|message| message.info.id().clone()).collect();
        Self { messages: newest, all: count == messages.len(), whole }
    }
}

/// What the client sees of one session and its subagents.
pub struct View {
    abilities: Abilities,
    directory: PathBuf,
    changes: Changes,
    root: Stream,
    children: HashMap<SessionId, Child>,
    title: String,
    /// How many tokens the model takes; 0 is unknown.
    context: u64,
    /// Tokens in the context after the last step.
    used: u64,
    cost: f64,
    turn: Used,
    /// The usage that was told last: tokens, the size of the context, and the cost.
    told: Option<(u64, u64, f64)>,
    /// The newest answers that were shown to their end.
    ended: IndexSet<MessageId>,
}

impl View {
    /// A view of that session; nothing of it was shown yet.
    pub fn new(session: &Session, abilities: Abilities, changes: Changes) -> Self {
        Self {
            abilities,
            directory: PathBuf::from(&session.directory),
            changes,
            root: Stream::new(session.id.clone(), PathBuf::from(&session.directory), true),
            children: HashMap::new(),
            title: session.title.clone(),
            context: 0,
            used: 0,
            cost: session.cost.unwrap_or_default().0,
            turn: Used::default(),
            told: None,
            ended: IndexSet::new(),
        }
    }

    /// The client writes this prompt itself, so it is not shown to it. A new turn is counted from here.
    pub fn prompted(&mut self, message: &MessageId, context: u64) {
        self.root.own(message);
        self.context = context;
        self.turn = Used::default();
        self.told = None;
    }

    /// The client writes this message into a turn that runs.
    pub fn steered(&mut self, message: &MessageId) {
        self.root.own(message);
    }

    /// What the turn used so far.
    pub fn turn(&self) -> Used {
        self.turn
    }

    /// The newest answers that were shown to their end, in the order of their ends.
    pub fn ended(&self) -> &IndexSet<MessageId> {
        &self.ended
    }

    /// What is settled of a conversation counts as shown.
    pub fn skip(&mut self, settled: Settled) {
        if let Some(last) = settled.messages.last() {
            self.root.list(settled.messages.iter(), settled.whole);
            self.root.settle(last);
        }
        if settled.all {
            self.root.rest();
        }
    }

    /// These are the newest messages of the session, oldest first; `whole` if there are no others.
    pub fn list<'a>(&mut self, messages: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        self.root.list(messages, whole);
    }

    /// Shows what is stored: the whole conversation, or what may be missing of it. Text that is still being written is left to
    /// the events: they begin with all of it, and what is stored may lag behind.
    pub fn stored(&mut self, message: MessageWithParts, replay: bool) -> Vec<Act> {
        let mut acts = Vec::new();
        let session = message.info.session_id().clone();
        self.message(&session, &message.info);
        for part in message.parts.iter().filter(|part| !transcript::is_growing(part)) {
            self.part(&session, part, replay, &mut acts);
        }
        acts
    }

    /// What an event leads to.
    pub fn event(&mut self, event: &EventBody) -> Vec<Act> {
        let mut acts = Vec::new();
        match event {
            EventBody::MessageUpdated { session_id, info } => self.message(session_id, info),
            EventBody::PartUpdated { session_id, part, .. } => self.part(session_id, part, false, &mut acts),
            EventBody::PartDelta { session_id, part_id, field, delta, .. } if field == "text" => {
                self.delta(session_id, part_id, delta, &mut acts);
            }
            EventBody::TodoUpdated { session_id, todos } => {
                let shown = self.shows(session_id);
                acts.extend(shown.map(|session| Act::Update(session, Box::new(SessionUpdate::Plan(plan(todos))))));
            }
            EventBody::SessionCreated { info, .. } => self.born(info, &mut acts),
            EventBody::SessionUpdated { session_id, info } => self.session(session_id, info, &mut acts),
            EventBody::SessionStatus { session_id, status } => self.status(session_id, status, &mut acts),
            EventBody::SessionError { session_id: Some(session_id), error: Some(error) }
                if !matches!(error, api::MessageError::MessageAbortedError(_)) =>
            {
                self.notice(session_id, NoticeSeverity::Error, error.message(), &mut acts);
            }
            EventBody::SessionNotice { session_id, message } => {
                self.notice(session_id, NoticeSeverity::Error, message, &mut acts);
            }
            // About no session: an edit of the configuration that does not count.
            EventBody::SessionError { session_id: None, error: Some(error) } => {
                self.notice(&self.root.session, NoticeSeverity::Error, error.message(), &mut acts);
            }
            EventBody::SessionCompacted { session_id } => {
                if let Some(session) = self.shows(session_id).filter(|_| self.abilities.compaction) {
                    let update = CompactionUpdate::new(api::EventId::new().to_string(), CompactionStatus::Completed);
                    acts.push(Act::Update(session, Box::new(SessionUpdate::CompactionUpdate(update))));
                }
            }
            EventBody::PermissionAsked(request) => {
                if let Some(asked) = self.asked(&request.session_id, request.tool.as_ref(), &mut acts) {
                    acts.push(Act::Permission(request.clone(), asked));
                }
            }
            EventBody::QuestionAsked(request) => {
                if let Some(asked) = self.asked(&request.session_id, request.tool.as_ref(), &mut acts) {
                    acts.push(Act::Question(request.clone(), asked));
                }
            }
            EventBody::PermissionReplied { session_id, request_id, .. } => {
                self.answered(session_id, request_id.as_str(), &mut acts);
            }
            EventBody::QuestionReplied { session_id, request_id, .. }
            | EventBody::QuestionRejected { session_id, request_id } => {
                self.answered(session_id, request_id.as_str(), &mut acts);
            }
            EventBody::SessionDeleted { session_id, .. } if *session_id == self.root.session => {
                acts.push(Act::Deleted);
            }
            EventBody::InstanceDisposed { .. }
            | EventBody::McpToolsChanged { .. }
            | EventBody::CatalogUpdated {}
            | EventBody::ServerConnected {} => acts.push(Act::Refresh),
            _ => {}
        }
        acts
    }

    /// The session on which the client sees what happens in that one: itself, or none.
    fn shows(&self, session: &SessionId) -> Option<SessionId> {
        let seen = *session == self.root.session || (self.abilities.subagents && self.children.contains_key(session));
        seen.then(|| session.clone())
    }

    fn message(&mut self, session: &SessionId, info: &Message) {
        if *session != self.root.session {
            return self.child_message(session, info);
        }
        self.root.message(info);
        if let Message::Assistant(answer) = info
            && answer.time.completed.is_some()
            && self.ended.insert(answer.id.clone())
            && self.ended.len() > 2 * ENDED
        {
            self.ended.drain(..ENDED);
        }
    }

    fn part(&mut self, session: &SessionId, part: &Part, replay: bool, acts: &mut Vec<Act>) {
        if *session != self.root.session {
            return self.child_part(session, part, replay, acts);
        }
        if let Part::StepFinish(step) = part
            && self.root.first(step)
        {
            self.count(step, replay, acts);
        }
        if let Part::Tool(tool) = part {
            self.bind(session, tool);
        }
        let progress = part.as_tool().and_then(|tool| self.task_progress(tool));
        self.root.part(part, replay, &self.changes, progress, acts);
    }

    fn delta(&mut self, session: &SessionId, part: &api::PartId, delta: &str, acts: &mut Vec<Act>) {
        if *session == self.root.session {
            return self.root.delta(part, delta, acts);
        }
        self.child_delta(session, part, delta, acts);
    }

    fn count(&mut self, step: &StepFinishPart, replay: bool, acts: &mut Vec<Act>) {
        self.used = step.tokens.input + step.tokens.cache.read + step.tokens.cache.write;
        if replay {
            return;
        }
        self.turn.add(&step.tokens);
        self.cost += step.cost.0;
        acts.extend(self.usage());
    }

    /// How full the context is, and what the session cost, unless that was told already.
    pub fn usage(&mut self) -> Option<Act> {
        let usage = (self.used, self.context, (self.cost * 1e9).round() / 1e9);
        if self.told.replace(usage) == Some(usage) {
            return None;
        }
        let (used, context, cost) = usage;
        let update = UsageUpdate::new(used, context).cost(Cost::new(cost, "USD"));
        Some(Act::Update(self.root.session.clone(), Box::new(SessionUpdate::UsageUpdate(update))))
    }

    fn session(&mut self, session: &SessionId, info: &Session, acts: &mut Vec<Act>) {
        if *session != self.root.session {
            return self.renamed(session, info, acts);
        }
        if info.title != self.title {
            self.title.clone_from(&info.title);
            let update = SessionInfoUpdate::new().title(info.title.clone()).updated_at(time::iso(info.time.updated));
            acts.push(Act::Update(session.clone(), Box::new(SessionUpdate::SessionInfoUpdate(update))));
        }
        acts.push(Act::Changed(Box::new(info.clone())));
    }

    fn status(&mut self, session: &SessionId, status: &SessionStatus, acts: &mut Vec<Act>) {
        match status {
            SessionStatus::Retry { attempt, message, next, .. } => {
                let seconds = (next - api::now()).max(0) / 1000;
                let text = format!("Attempt {attempt} failed; the next one is in {seconds} s: {message}");
                self.notice(session, NoticeSeverity::Warning, &text, acts);
            }
            SessionStatus::Idle if *session == self.root.session => {
                self.root.rest();
            }
            SessionStatus::Idle | SessionStatus::Busy => self.child_status(session, status, acts),
        }
    }

    /// Something that the human should know; told to clients that can show it.
    fn notice(&self, session: &SessionId, severity: NoticeSeverity, text: &str, acts: &mut Vec<Act>) {
        if let Some(session) = self.shows(session).filter(|_| self.abilities.notices) {
            let title = crate::size::cut(if text.is_empty() { "Something went wrong" } else { text }, 4 << 10);
            let update = SessionUpdate::Notice(Notice::new(severity, title));
            acts.push(Act::Update(session, Box::new(update)));
        }
    }

    /// Where the client sees the call that asks. A call of a subagent that it does not see is shown on the session itself.
    fn asked(&mut self, session: &SessionId, tool: Option<&ToolRef>, acts: &mut Vec<Act>) -> Option<Asked> {
        if *session == self.root.session {
            let call = self.root.call_of(tool, acts);
            return Some(Asked { session: session.clone(), call, by: None });
        }
        self.child_asked(session, tool, acts)
    }

    fn answered(&mut self, session: &SessionId, ask: &str, acts: &mut Vec<Act>) {
        if *session == self.root.session || self.children.contains_key(session) {
            acts.push(Act::Settled(ask.to_owned()));
            self.child_answered(session, acts);
        }
    }
}

/// The plan that a todo list is.
pub fn plan(todos: &[Todo]) -> Plan {
    let entry = |todo: &Todo| {
        let priority = match todo.priority.as_str() {
            "high" => PlanEntryPriority::High,
            "low" => PlanEntryPriority::Low,
            _ => PlanEntryPriority::Medium,
        };
        let (status, content) = match todo.status.as_str() {
            "completed" => (PlanEntryStatus::Completed, todo.content.clone()),
            "in_progress" => (PlanEntryStatus::InProgress, todo.content.clone()),
            // There is no such state, and it is not open any more.
            "cancelled" => (PlanEntryStatus::Completed, format!("{} (cancelled)", todo.content)),
            _ => (PlanEntryStatus::Pending, todo.content.clone()),
        };
        PlanEntry::new(content, priority, status)
    };
    Plan::new(todos.iter().map(entry).collect())
}

/// An update of a call.
fn call_update(
    call: impl Into<String>,
    fields: agent_client_protocol_schema::v1::ToolCallUpdateFields,
) -> Box<SessionUpdate> {
    Box::new(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call.into(), fields)))
}
