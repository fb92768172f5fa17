//! What one session is doing now: whether it works, with which tool, and what it waits for.

use indexmap::{IndexMap, IndexSet};

use super::report::{Ask, TurnOutcome};
use crate::{
    Blocked, CurrentTool, EventBody, MessageError, MessageWithParts, Part, PartId, SessionStatus, Timestamp, ToolPart,
    ToolState, TreeNode, TreeState, Usage,
};

/// The most open calls that are kept.
const MAX_CALLS: usize = 256;
/// The most open asks that are kept.
const MAX_ASKS: usize = 64;
/// The most finished calls and steps that are remembered, so that none is counted twice.
const MAX_COUNTED: usize = 4_096;
/// The longest title of a call, in characters.
const MAX_TITLE: usize = 200;

/// The current activity of a session.
pub(super) struct Activity {
    /// Without regard to a pause.
    pub state: TreeState,
    /// Whether it was paused itself. Everything below it is held too.
    pub paused: bool,
    /// Why it waits for its budget, retries, or failed.
    pub reason: String,
    pub error: Option<MessageError>,
    pub blocked: Option<Blocked>,
    /// Whether its caller continues without waiting for it.
    pub background: bool,
    /// The task that its last call named.
    pub task: Option<String>,
    /// The unfinished call of the `task` tool that started it.
    pub task_call: Option<PartId>,
    /// The open asks: their ids and one-line descriptions.
    pub asks: IndexMap<String, String>,
    /// The open calls, oldest first.
    pub calls: IndexMap<PartId, CurrentTool>,
    /// The open call according to the tree that was read, which names no part.
    listed_tool: Option<CurrentTool>,
    /// What was used by the calls and steps that ended while it was tracked.
    pub used: Usage,
    counted: IndexSet<PartId>,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

/// What [`TreeChange::Changed`](super::TreeChange::Changed) reports.
#[derive(PartialEq)]
pub(super) struct Summary {
    pub state: TreeState,
    paused: bool,
    background: bool,
    task: Option<String>,
    tool: Option<CurrentTool>,
    blocked: Option<Blocked>,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            state: TreeState::Idle,
            paused: false,
            reason: String::new(),
            error: None,
            blocked: None,
            background: false,
            task: None,
            task_call: None,
            asks: IndexMap::new(),
            calls: IndexMap::new(),
            listed_tool: None,
            used: Usage::default(),
            counted: IndexSet::new(),
            started: None,
            ended: None,
        }
    }
}

impl Activity {
    pub fn summary(&self) -> Summary {
        Summary {
            state: self.state,
            paused: self.paused,
            background: self.background,
            task: self.task.clone(),
            tool: self.tool().cloned(),
            blocked: self.blocked.clone(),
        }
    }

    /// The tool that it uses; the newest call if there are several.
    pub fn tool(&self) -> Option<&CurrentTool> {
        self.calls.values().next_back().or(self.listed_tool.as_ref())
    }

    /// Its state if it, or a session above it, is paused. A running step ends first.
    pub fn state_if_held(&self) -> TreeState {
        let held = matches!(self.state, TreeState::Running | TreeState::Blocked) && self.tool().is_none();
        if held { TreeState::Paused } else { self.state }
    }

    /// Applies an event of the session.
    pub fn apply(&mut self, event: &EventBody, now: Timestamp) {
        match event {
            EventBody::SessionStatus { status, .. } => self.apply_status(status, now),
            EventBody::SessionTree { state, blocked, .. } => {
                self.paused = *state == TreeState::Paused;
                if matches!(state, TreeState::Blocked | TreeState::Running)
                    && matches!(self.state, TreeState::Blocked | TreeState::Running)
                {
                    self.state = *state;
                    self.reason = blocked.as_ref().map(|blocked| blocked.message.clone()).unwrap_or_default();
                    self.blocked.clone_from(blocked);
                }
            }
            EventBody::SessionError { error: Some(error), .. } => self.end_with_error(error, now),
            EventBody::SessionIdle { .. } if self.state.is_live() => self.end(TreeState::Idle, Some(now)),
            EventBody::PermissionAsked(request) => self.add_ask(&Ask::Permission(request.clone())),
            EventBody::QuestionAsked(request) => self.add_ask(&Ask::Question(request.clone())),
            EventBody::PermissionReplied { request_id, .. } => self.remove_ask(request_id.as_str()),
            EventBody::QuestionReplied { request_id, .. } | EventBody::QuestionRejected { request_id, .. } => {
                self.remove_ask(request_id.as_str());
            }
            EventBody::PartUpdated { part, .. } => self.apply_part(part, now),
            _ => {}
        }
    }

    /// Ends the turn as its last message says, unless it has ended already.
    pub fn finish(&mut self, outcome: &TurnOutcome, now: Timestamp) {
        if self.state.is_live() {
            self.end_with(outcome, Some(now));
        }
    }

    /// Lets a session that was read as paused continue: it, or a session above it, was resumed.
    pub fn resume(&mut self) {
        if self.state == TreeState::Paused {
            self.state = TreeState::Running;
        }
    }

    /// A call of the `task` tool names the current task, and tells whether its caller waits.
    pub fn apply_task_call(&mut self, tool: &ToolPart, by_parent: bool) {
        if let Some(description) = tool.state.input().get("description").and_then(crate::Json::as_str) {
            self.task = Some(description.to_owned());
        }
        let background = metadata(tool).and_then(|data| data.get("background"));
        self.background = background == Some(&crate::Json::Bool(true));
        if by_parent {
            self.task_call = (!tool.state.is_done()).then(|| tool.head.id.clone());
        }
    }

    /// Applies what was read: the status, the newest messages, and how the last turn ended.
    pub fn apply_read(
        &mut self,
        status: &SessionStatus,
        messages: &[MessageWithParts],
        outcome: Option<&TurnOutcome>,
        now: Timestamp,
    ) {
        let prompted = messages.iter().rev().find_map(|message| message.info.as_user()).map(|user| user.time.created);
        if *status == SessionStatus::Idle {
            let completed = messages.iter().rev().find_map(|message| message.info.as_assistant()?.time.completed);
            match outcome {
                Some(outcome) => {
                    self.started = prompted.or(self.started);
                    self.end_with(outcome, completed.or(self.ended).or(Some(now)));
                }
                None if self.state.is_live() => self.end(TreeState::Idle, Some(now)),
                None => {}
            }
            return;
        }
        if !self.state.is_live() {
            self.start(prompted.unwrap_or(now));
        }
        self.apply_status(status, now);
        self.calls.clear();
        for part in messages.last().into_iter().flat_map(|message| &message.parts) {
            if let Part::Tool(tool) = part {
                self.note_call(tool, now);
            }
        }
    }

    /// Applies the list of open asks.
    pub fn apply_asks<'a>(&mut self, asks: impl Iterator<Item = &'a Ask>) {
        self.asks.clear();
        if self.state == TreeState::Asking {
            self.state = TreeState::Running;
        }
        // An ask outside a turn is about to be removed.
        if self.state.is_live() {
            asks.for_each(|ask| self.add_ask(ask));
        }
    }

    /// Applies a node of a tree that was read.
    pub fn apply_node(&mut self, node: &TreeNode) {
        self.state = node.state;
        self.background = node.background;
        self.blocked.clone_from(&node.blocked);
        self.error.clone_from(&node.error);
        let reason = node.blocked.as_ref().map(|blocked| blocked.message.as_str());
        let reason = reason.or_else(|| node.error.as_ref().map(MessageError::message));
        self.reason = reason.unwrap_or_default().to_owned();
        (self.started, self.ended) = (node.started, node.ended);
        let own = node.asks.iter().filter(|ask| ask.session_id == node.session_id).take(MAX_ASKS);
        self.asks = own.map(|ask| (ask.id.clone(), ask.text.clone())).collect();
        if node.tool.is_none() {
            self.calls.clear();
        }
        self.listed_tool.clone_from(&node.tool);
    }

    fn apply_status(&mut self, status: &SessionStatus, now: Timestamp) {
        match status {
            SessionStatus::Busy => {
                if !self.state.is_live() {
                    self.start(now);
                } else if self.state == TreeState::Retrying {
                    self.state = TreeState::Running;
                }
            }
            // Attempts count from 1. Attempt 0 is a wait for a budget, which has its own event.
            SessionStatus::Retry { attempt: 1.., message, .. } => {
                (self.state, self.reason) = (TreeState::Retrying, message.clone());
            }
            // The end of the turn follows.
            SessionStatus::Retry { .. } | SessionStatus::Idle => {}
        }
    }

    fn start(&mut self, at: Timestamp) {
        (self.started, self.ended) = (Some(at), None);
        (self.state, self.reason) = (TreeState::Running, String::new());
        (self.error, self.blocked) = (None, None);
    }

    fn end(&mut self, state: TreeState, at: Option<Timestamp>) {
        self.state = state;
        self.ended = at;
        self.blocked = None;
        self.listed_tool = None;
        self.calls.clear();
        self.asks.clear();
    }

    fn end_with_error(&mut self, error: &MessageError, now: Timestamp) {
        self.reason = error.message().to_owned();
        self.error = Some(error.clone());
        let stopped = matches!(error, MessageError::MessageAbortedError(_));
        self.end(if stopped { TreeState::Cancelled } else { TreeState::Failed }, Some(now));
    }

    fn end_with(&mut self, outcome: &TurnOutcome, at: Option<Timestamp>) {
        match outcome {
            TurnOutcome::Succeeded => self.end(TreeState::Idle, at),
            TurnOutcome::Aborted => self.end(TreeState::Cancelled, at),
            // Nobody knows when.
            TurnOutcome::Interrupted => self.end(TreeState::Interrupted, None),
            TurnOutcome::Failed { error } => {
                self.end(TreeState::Failed, at);
                self.reason = error.message().to_owned();
                self.error = Some(error.clone());
            }
        }
    }

    fn add_ask(&mut self, ask: &Ask) {
        if self.asks.len() < MAX_ASKS {
            self.asks.insert(ask.id().to_owned(), ask.text());
        }
        if self.state.is_live() {
            self.state = TreeState::Asking;
        }
    }

    fn remove_ask(&mut self, id: &str) {
        self.asks.shift_remove(id);
        if self.state == TreeState::Asking && self.asks.is_empty() {
            self.state = TreeState::Running;
        }
    }

    fn apply_part(&mut self, part: &Part, now: Timestamp) {
        match part {
            Part::Tool(tool) => {
                self.listed_tool = None;
                self.resume();
                self.note_call(tool, now);
                if tool.state.is_done() {
                    self.used.tool_calls += u64::from(self.count(&tool.head.id));
                }
            }
            Part::StepFinish(step) if self.count(&step.head.id) => {
                let usage = Usage { cost: step.cost, tokens: step.tokens.clone(), steps: 1, ..Usage::default() };
                self.used += &usage;
            }
            _ => {}
        }
    }

    fn note_call(&mut self, tool: &ToolPart, now: Timestamp) {
        let since = match &tool.state {
            ToolState::Pending(_) => now,
            ToolState::Running(running) => running.time.start,
            ToolState::Completed(_) | ToolState::Error(_) => {
                self.calls.shift_remove(&tool.head.id);
                return;
            }
        };
        let subject: String = tool.subject().lines().next().unwrap_or_default().chars().take(MAX_TITLE).collect();
        let title = Some(subject).filter(|subject| !subject.is_empty());
        if self.calls.len() < MAX_CALLS || self.calls.contains_key(&tool.head.id) {
            self.calls.insert(tool.head.id.clone(), CurrentTool { tool: tool.tool.clone(), title, since });
        }
    }

    /// Whether a call or step is new.
    fn count(&mut self, part: &PartId) -> bool {
        if self.counted.len() >= MAX_COUNTED {
            self.counted.drain(..MAX_COUNTED / 2);
        }
        self.counted.insert(part.clone())
    }
}

/// What a call reported.
pub(super) fn metadata(tool: &ToolPart) -> Option<&crate::JsonMap> {
    match &tool.state {
        ToolState::Running(running) => running.metadata.as_ref(),
        ToolState::Completed(done) => Some(&done.metadata),
        ToolState::Error(error) => error.metadata.as_ref(),
        ToolState::Pending(_) => None,
    }
}
