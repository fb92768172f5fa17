//! Turns the events of a session into ACP updates: a pure state machine, without a connection.
//!
//! A [`View`] covers one session that the client has opened, and the subagents below it. Feeding it the same thing
//! twice shows it once, so the stored state can be fed again whenever events may be missing.

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
    SessionStatus, StepFinishPart, Todo, Tokens, ToolRef, TreeTracker,
};

use crate::capabilities::Capabilities;
use crate::editor::PendingChanges;
use subagent::SubagentView;
use transcript::Transcript;

/// The kind of a text chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// From the user.
    User,
    /// The agent's answer.
    Agent,
    /// The agent's reasoning.
    Thought,
}

/// The tool call that a question is about, as the client knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct AskTarget {
    /// The session on which the client sees the call.
    pub session: SessionId,
    /// The id of the call there.
    pub call: String,
    /// The name of the asking subagent, if the client does not see its session.
    pub asking_agent: Option<String>,
}

/// What to do after an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// More text: the session, its kind, the message id, the text.
    Text(SessionId, ChunkKind, String, String),
    /// Send an update.
    Update(SessionId, Box<SessionUpdate>),
    /// Send the progress of a tool call: session, call id, update. It replaces an older one that was not sent yet.
    Progress(SessionId, String, Box<SessionUpdate>),
    /// Ask the user for a permission.
    Permission(Box<PermissionRequest>, AskTarget),
    /// Ask the user a question.
    Question(Box<QuestionRequest>, AskTarget),
    /// The ask with this id was answered, here or elsewhere.
    AskResolved(String),
    /// The session's agent, model or title changed.
    SessionChanged(Box<Session>),
    /// The models, modes or commands may have changed.
    Refresh,
    /// The session was deleted.
    SessionDeleted,
}

/// The tokens used since the last prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TurnUsage {
    /// All tokens of all steps.
    pub total: u64,
    /// Uncached input.
    pub input: u64,
    /// Visible output.
    pub output: u64,
    /// Reasoning.
    pub thought: u64,
    /// Input read from the provider's cache.
    pub cached_read: u64,
    /// Input written to the cache.
    pub cached_write: u64,
}

impl TurnUsage {
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

/// The part of a conversation that will not change any more.
pub struct SettledHistory {
    /// The newest complete messages.
    messages: Vec<MessageId>,
    /// Whether they include the newest message of the session.
    includes_newest: bool,
    /// Whether the session has no older messages than those that were read.
    whole: bool,
}

impl SettledHistory {
    /// `messages` are the newest of a session; with `whole`, all of them.
    pub fn of(messages: &[MessageWithParts], whole: bool) -> Self {
        let count = messages.iter().take_while(|message| transcript::is_complete(message)).count();
        let newest = messages[..count].iter().skip(count.saturating_sub(transcript::MAX_MESSAGES));
        let newest = newest.map(|message| message.info.id().clone()).collect();
        Self { messages: newest, includes_newest: count == messages.len(), whole }
    }
}

/// What the client sees of one session and its subagents.
pub struct View {
    capabilities: Capabilities,
    directory: PathBuf,
    changes: PendingChanges,
    root: Transcript,
    /// Who belongs to whom, works for which call, and asks.
    tree: TreeTracker,
    subagents: HashMap<SessionId, SubagentView>,
    title: String,
    /// The size of the model's context in tokens; 0 if unknown.
    context_size: u64,
    /// Tokens in the context after the last step.
    context_tokens: u64,
    cost: f64,
    turn_usage: TurnUsage,
    /// The usage that was sent last: tokens, context size, cost.
    last_usage: Option<(u64, u64, f64)>,
}

impl View {
    /// A view of a session of which nothing was shown yet.
    pub fn new(session: &Session, capabilities: Capabilities, changes: PendingChanges) -> Self {
        Self {
            capabilities,
            directory: PathBuf::from(&session.directory),
            changes,
            root: Transcript::new(session.id.clone(), PathBuf::from(&session.directory), true),
            tree: TreeTracker::new(session.id.clone()),
            subagents: HashMap::new(),
            title: session.title.clone(),
            context_size: 0,
            context_tokens: 0,
            cost: session.cost.unwrap_or_default().0,
            turn_usage: TurnUsage::default(),
            last_usage: None,
        }
    }

    /// Starts a turn with a prompt of the client, which is not echoed to it. Usage is counted from here.
    pub fn begin_turn(&mut self, message: &MessageId, context: u64) {
        self.root.add_own_message(message);
        self.context_size = context;
        self.turn_usage = TurnUsage::default();
        self.last_usage = None;
    }

    /// Registers a message that the client sends into a running turn, so that it is not echoed.
    pub fn add_own_message(&mut self, message: &MessageId) {
        self.root.add_own_message(message);
    }

    /// The usage of the turn so far.
    pub fn turn_usage(&self) -> TurnUsage {
        self.turn_usage
    }

    /// Marks a settled history as shown.
    pub fn mark_shown(&mut self, settled: SettledHistory) {
        if let Some(last) = settled.messages.last() {
            self.root.set_order(settled.messages.iter(), settled.whole);
            self.root.settle(last);
        }
        if settled.includes_newest {
            self.root.on_idle();
        }
    }

    /// Sets the order of the newest messages, oldest first; `whole` if there are no older ones.
    pub fn set_order<'a>(&mut self, messages: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        self.root.set_order(messages, whole);
    }

    /// Shows a stored message. Text that is still streaming is left to the events: they begin with all of it, and the
    /// stored text may lag behind.
    pub fn show_stored(&mut self, message: MessageWithParts, replay: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        let session = message.info.session_id().clone();
        self.message(&session, &message.info);
        for part in message.parts.iter().filter(|part| !transcript::is_streaming(part)) {
            self.part(&session, part, replay, &mut effects);
        }
        effects
    }

    /// Processes an event.
    pub fn show_event(&mut self, event: &EventBody) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.track(event);
        match event {
            EventBody::MessageUpdated { session_id, info } => self.message(session_id, info),
            EventBody::PartUpdated { session_id, part, .. } => self.part(session_id, part, false, &mut effects),
            EventBody::PartDelta { session_id, part_id, field, delta, .. } if field == "text" => {
                self.delta(session_id, part_id, delta, &mut effects);
            }
            EventBody::TodoUpdated { session_id, todos } => {
                let shown = self.visible_session(session_id);
                effects
                    .extend(shown.map(|session| Effect::Update(session, Box::new(SessionUpdate::Plan(plan(todos))))));
            }
            EventBody::SessionCreated { info, .. } => self.subagent_created(info, &mut effects),
            EventBody::SessionUpdated { session_id, info } => self.session_updated(session_id, info, &mut effects),
            EventBody::SessionStatus { session_id, status } => self.status(session_id, status, &mut effects),
            EventBody::SessionError { session_id: Some(session_id), error: Some(error) }
                if !matches!(error, api::MessageError::MessageAbortedError(_)) =>
            {
                self.notice(session_id, NoticeSeverity::Error, error.message(), &mut effects);
            }
            EventBody::SessionNotice { session_id, message } => {
                self.notice(session_id, NoticeSeverity::Error, message, &mut effects);
            }
            // Not about a session: a configuration edit that was rejected.
            EventBody::SessionError { session_id: None, error: Some(error) } => {
                self.notice(&self.root.session, NoticeSeverity::Error, error.message(), &mut effects);
            }
            EventBody::SessionCompacted { session_id } => {
                if let Some(session) = self.visible_session(session_id).filter(|_| self.capabilities.compaction) {
                    let update = CompactionUpdate::new(api::EventId::new().to_string(), CompactionStatus::Completed);
                    effects.push(Effect::Update(session, Box::new(SessionUpdate::CompactionUpdate(update))));
                }
            }
            EventBody::PermissionAsked(request) => {
                if let Some(target) = self.ask_target(&request.session_id, request.tool.as_ref(), &mut effects) {
                    effects.push(Effect::Permission(request.clone(), target));
                }
            }
            EventBody::QuestionAsked(request) => {
                if let Some(target) = self.ask_target(&request.session_id, request.tool.as_ref(), &mut effects) {
                    effects.push(Effect::Question(request.clone(), target));
                }
            }
            EventBody::PermissionReplied { session_id, request_id, .. } => {
                self.ask_resolved(session_id, request_id.as_str(), &mut effects);
            }
            EventBody::QuestionReplied { session_id, request_id, .. }
            | EventBody::QuestionRejected { session_id, request_id } => {
                self.ask_resolved(session_id, request_id.as_str(), &mut effects);
            }
            EventBody::SessionDeleted { session_id, .. } if *session_id == self.root.session => {
                effects.push(Effect::SessionDeleted);
            }
            EventBody::InstanceDisposed { .. }
            | EventBody::McpToolsChanged { .. }
            | EventBody::CatalogUpdated {}
            | EventBody::ServerConnected {} => effects.push(Effect::Refresh),
            _ => {}
        }
        effects
    }

    /// Feeds the tracker, except with what the transcripts follow. A new subagent is added with its view; a deleted one
    /// stays, because the client may still have to learn that its asks are resolved.
    fn track(&mut self, event: &EventBody) {
        match event {
            EventBody::SessionUpdated { .. }
            | EventBody::SessionStatus { .. }
            | EventBody::SessionIdle { .. }
            | EventBody::SessionError { .. }
            | EventBody::SessionTree { .. }
            | EventBody::PermissionAsked(_)
            | EventBody::PermissionReplied { .. }
            | EventBody::QuestionAsked(_)
            | EventBody::QuestionReplied { .. }
            | EventBody::QuestionRejected { .. } => drop(self.tree.apply(event, api::now())),
            _ => {}
        }
    }

    /// The session on which the client sees this session's updates: itself, or none.
    fn visible_session(&self, session: &SessionId) -> Option<SessionId> {
        let is_visible =
            *session == self.root.session || (self.capabilities.subagents && self.subagents.contains_key(session));
        is_visible.then(|| session.clone())
    }

    fn message(&mut self, session: &SessionId, info: &Message) {
        if *session != self.root.session {
            return self.subagent_message(session, info);
        }
        self.root.message(info);
    }

    fn part(&mut self, session: &SessionId, part: &Part, replay: bool, effects: &mut Vec<Effect>) {
        if *session != self.root.session {
            return self.subagent_part(session, part, replay, effects);
        }
        if let Part::StepFinish(step) = part
            && self.root.is_new_step(step)
        {
            self.count_step(step, replay, effects);
        }
        if let Part::Tool(tool) = part {
            self.tree.link_task_call(session, tool);
        }
        let progress = part.as_tool().and_then(|tool| self.task_progress(tool));
        self.root.part(part, replay, &self.changes, progress, effects);
    }

    fn delta(&mut self, session: &SessionId, part: &api::PartId, delta: &str, effects: &mut Vec<Effect>) {
        if *session == self.root.session {
            return self.root.delta(part, delta, effects);
        }
        self.subagent_delta(session, part, delta, effects);
    }

    fn count_step(&mut self, step: &StepFinishPart, replay: bool, effects: &mut Vec<Effect>) {
        self.context_tokens = step.tokens.input + step.tokens.cache.read + step.tokens.cache.write;
        if replay {
            return;
        }
        self.turn_usage.add(&step.tokens);
        self.cost += step.cost.0;
        effects.extend(self.usage_update());
    }

    /// The context and cost of the session, unless they were sent already.
    pub fn usage_update(&mut self) -> Option<Effect> {
        let usage = (self.context_tokens, self.context_size, (self.cost * 1e9).round() / 1e9);
        if self.last_usage.replace(usage) == Some(usage) {
            return None;
        }
        let (used, context, cost) = usage;
        let update = UsageUpdate::new(used, context).cost(Cost::new(cost, "USD"));
        Some(Effect::Update(self.root.session.clone(), Box::new(SessionUpdate::UsageUpdate(update))))
    }

    fn session_updated(&mut self, session: &SessionId, info: &Session, effects: &mut Vec<Effect>) {
        if *session != self.root.session {
            return self.subagent_updated(session, info, effects);
        }
        if info.title != self.title {
            self.title.clone_from(&info.title);
            let update = SessionInfoUpdate::new().title(info.title.clone()).updated_at(time::iso(info.time.updated));
            effects.push(Effect::Update(session.clone(), Box::new(SessionUpdate::SessionInfoUpdate(update))));
        }
        effects.push(Effect::SessionChanged(Box::new(info.clone())));
    }

    fn status(&mut self, session: &SessionId, status: &SessionStatus, effects: &mut Vec<Effect>) {
        match status {
            SessionStatus::Retry { attempt, message, next, .. } => {
                let seconds = (next - api::now()).max(0) / 1000;
                let text = format!("Attempt {attempt} failed; the next one is in {seconds} s: {message}");
                self.notice(session, NoticeSeverity::Warning, &text, effects);
            }
            SessionStatus::Idle if *session == self.root.session => {
                self.root.on_idle();
            }
            SessionStatus::Idle | SessionStatus::Busy => self.subagent_status(session, status, effects),
        }
    }

    /// A notice for the user, if the client shows notices.
    fn notice(&self, session: &SessionId, severity: NoticeSeverity, text: &str, effects: &mut Vec<Effect>) {
        if let Some(session) = self.visible_session(session).filter(|_| self.capabilities.notices) {
            let title = crate::size::truncate(if text.is_empty() { "Something went wrong" } else { text }, 4 << 10);
            let update = SessionUpdate::Notice(Notice::new(severity, title));
            effects.push(Effect::Update(session, Box::new(update)));
        }
    }

    /// Where the client sees the call that asks. A call of an invisible subagent is shown on the root session.
    fn ask_target(
        &mut self,
        session: &SessionId,
        tool: Option<&ToolRef>,
        effects: &mut Vec<Effect>,
    ) -> Option<AskTarget> {
        if *session == self.root.session {
            let call = self.root.client_call_id(tool, effects);
            return Some(AskTarget { session: session.clone(), call, asking_agent: None });
        }
        self.subagent_ask_target(session, tool, effects)
    }

    fn ask_resolved(&mut self, session: &SessionId, ask: &str, effects: &mut Vec<Effect>) {
        if *session == self.root.session || self.subagents.contains_key(session) {
            effects.push(Effect::AskResolved(ask.to_owned()));
            self.subagent_ask_resolved(session, effects);
        }
    }
}

/// A todo list as an ACP plan.
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
            // ACP has no such state, and the entry is not open any more.
            "cancelled" => (PlanEntryStatus::Completed, format!("{} (cancelled)", todo.content)),
            _ => (PlanEntryStatus::Pending, todo.content.clone()),
        };
        PlanEntry::new(content, priority, status)
    };
    Plan::new(todos.iter().map(entry).collect())
}

/// An update of a tool call.
fn call_update(
    call: impl Into<String>,
    fields: agent_client_protocol_schema::v1::ToolCallUpdateFields,
) -> Box<SessionUpdate> {
    Box::new(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call.into(), fields)))
}
