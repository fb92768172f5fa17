//! What the row and the messages of one session say: its progress, and how its turns ended.
//!
//! After a gap the same facts arrive twice: first in the rows that are read, then in the older events that led to them.
//! So nothing here counts events. Messages and calls are merged by id and never go backwards, and the end of a turn is
//! reported once for its last message.

use indexmap::IndexMap;

use super::report::{Ask, FileChanges, Progress, SessionUsage, SubagentState, ToolUse, TreeChange, TurnOutcome};
use super::{SessionSnapshot, TreeTracker};
use crate::{
    EventBody, Message, MessageError, MessageId, MessageOrder, ModelRef, Part, PartHead, PartId, Session, SessionId,
    SessionStatus, SessionTokens, Timestamp, ToolState, Usd,
};

/// The number of steps whose calls and costs are kept individually; older ones are summed up.
const MAX_STEPS: usize = 16;
/// The most calls of one step that are tracked.
const MAX_CALLS: usize = 256;
/// The most open asks of one session.
const MAX_ASKS: usize = 64;
/// The most bytes kept of the end of a session's text.
const MAX_TEXT: usize = 2 << 10;
/// The most bytes of a title.
const MAX_TITLE: usize = 256;

/// Why a session is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadReason {
    /// It was unknown before.
    New,
    /// Events may have been missed.
    Resync,
    /// A while ago it was uncertain whether its turn had ended.
    Recheck,
}

/// The row and the newest messages of a session.
pub(super) struct Transcript {
    pub id: SessionId,
    pub parent: Option<SessionId>,
    pub title: String,
    pub agent: Option<String>,
    pub model: Option<ModelRef>,
    pub directory: String,
    pub created: Timestamp,
    pub asks: Vec<Ask>,
    updated: Timestamp,
    status: SessionStatus,
    /// The order of its messages.
    order: MessageOrder,
    /// The newest message when the end of a turn was last reported, and how the turn ended.
    last_end: Option<(MessageId, TurnOutcome)>,
    /// The newest message when the session was idle without any sign that its turn had ended.
    uncertain_since: Option<MessageId>,
    /// The error that was reported in this turn.
    error: Option<MessageError>,
    /// Oldest first.
    steps: IndexMap<MessageId, Step>,
    /// The newest step that is included in the sums, with all before it.
    summed: Option<MessageId>,
    summed_usage: SessionUsage,
    summed_calls: u64,
    summed_steps: u64,
    /// The usage in the session's row. It lags behind the messages, but includes those that were never seen.
    row_usage: SessionUsage,
    last_text: Option<LastText>,
    changes: FileChanges,
    reported_progress: Option<Progress>,
}

/// A model step.
#[derive(Default)]
struct Step {
    usage: SessionUsage,
    completed: bool,
    /// Whether the turn continues after it.
    continues: bool,
    error: Option<MessageError>,
    calls: IndexMap<PartId, TrackedCall>,
}

struct TrackedCall {
    rank: u8,
    tool_use: ToolUse,
}

/// The latest text.
struct LastText {
    message: MessageId,
    part: PartId,
    end: String,
    /// Whether the text is complete.
    done: bool,
    /// Whether deltas are appended. A text that was read may already include them.
    grows: bool,
}

impl Transcript {
    /// Of a session of which only the id is known.
    pub fn unknown(id: SessionId) -> Self {
        let mut transcript = Self {
            id,
            parent: None,
            title: String::new(),
            agent: None,
            model: None,
            directory: String::new(),
            created: 0,
            asks: Vec::new(),
            updated: Timestamp::MIN,
            status: SessionStatus::Idle,
            order: MessageOrder::new(2 * TreeTracker::MAX_MESSAGES),
            last_end: None,
            uncertain_since: None,
            error: None,
            steps: IndexMap::new(),
            summed: None,
            summed_usage: SessionUsage::default(),
            summed_calls: 0,
            summed_steps: 0,
            row_usage: SessionUsage::default(),
            last_text: None,
            changes: FileChanges::default(),
            reported_progress: None,
        };
        transcript.reported_progress = Some(transcript.progress());
        transcript
    }

    /// Of a new session.
    pub fn new(session: &Session) -> Self {
        let mut transcript = Self::unknown(session.id.clone());
        transcript.update_row(session);
        transcript.reported_progress = Some(transcript.progress());
        transcript
    }

    /// Applies an event and appends the resulting changes to `out`, in order.
    pub fn apply(&mut self, body: &EventBody, out: &mut Vec<TreeChange>) {
        match body {
            EventBody::SessionUpdated { info, .. } => self.update_row(info),
            EventBody::SessionStatus { status, .. } => self.set_status(status, out),
            EventBody::SessionIdle { .. } => self.set_status(&SessionStatus::Idle, out),
            EventBody::SessionError { error: Some(error), .. } => self.report_error(error, out),
            EventBody::MessageUpdated { info, .. } => self.update_message(info),
            EventBody::PartUpdated { part, .. } => self.update_part(part, true),
            EventBody::PartDelta { part_id, field, delta, .. } if field == "text" => self.append_text(part_id, delta),
            EventBody::PermissionAsked(ask) => self.add_ask(Ask::Permission(ask.clone()), out),
            EventBody::QuestionAsked(ask) => self.add_ask(Ask::Question(ask.clone()), out),
            EventBody::PermissionReplied { request_id, .. } => self.remove_ask(request_id.as_str(), out),
            EventBody::QuestionReplied { request_id, .. } | EventBody::QuestionRejected { request_id, .. } => {
                self.remove_ask(request_id.as_str(), out);
            }
            _ => {}
        }
        self.report_progress(out);
    }

    /// Applies a snapshot of the session.
    pub fn apply_snapshot(&mut self, snapshot: &SessionSnapshot, reason: ReadReason, out: &mut Vec<TreeChange>) {
        self.update_row(&snapshot.session);
        let ids = snapshot.messages.iter().map(|message| message.info.id());
        self.list_messages(ids, snapshot.messages.len() < TreeTracker::MAX_MESSAGES);
        for message in &snapshot.messages {
            self.update_message(&message.info);
            for part in &message.parts {
                self.update_part(part, false);
            }
        }
        if reason == ReadReason::New {
            self.summed_usage = self.row_usage.minus(&self.steps_usage());
        }
        let uncertain = self.uncertain_since.clone();
        self.set_status(&snapshot.status, out);
        if reason == ReadReason::Recheck
            && let Some(last) = self.uncertain_since.clone().filter(|last| uncertain.as_ref() == Some(last))
        {
            self.end_turn(last, TurnOutcome::Interrupted, out);
        }
        self.report_progress(out);
    }

    /// Applies the list of open asks.
    pub fn apply_asks(&mut self, waiting: Vec<Ask>, out: &mut Vec<TreeChange>) {
        let gone = self.asks.iter().map(|ask| ask.id().to_owned());
        let gone: Vec<String> = gone.filter(|id| waiting.iter().all(|ask| ask.id() != id)).collect();
        for id in gone {
            self.remove_ask(&id, out);
        }
        // An ask outside a turn is about to be removed.
        if self.status != SessionStatus::Idle {
            for ask in waiting {
                self.add_ask(ask, out);
            }
        }
    }

    /// Whether only another read can show that its turn has ended.
    pub fn is_uncertain(&self) -> bool {
        self.uncertain_since.is_some()
    }

    pub fn progress(&self) -> Progress {
        let state = self.state();
        let is_working = matches!(state, SubagentState::Running | SubagentState::Retrying { .. });
        let calls = self.steps.values().flat_map(|step| step.calls.values());
        let open = calls.filter(|call| is_working && call.rank < DONE).map(|call| call.tool_use.clone());
        Progress {
            tools: open.collect(),
            state,
            tool_calls: self.tool_calls(),
            text: self.last_text.as_ref().map(|text| text.end.clone()).unwrap_or_default(),
            usage: self.usage(),
            changes: self.changes,
        }
    }

    /// How its last turn ended; `None` while one is open.
    pub fn outcome_of_last_turn(&self) -> Option<&TurnOutcome> {
        self.last_end.as_ref().filter(|_| !self.is_open()).map(|(_, outcome)| outcome)
    }

    /// The number of its model calls.
    pub fn steps(&self) -> u64 {
        self.steps.len() as u64 + self.summed_steps
    }

    pub fn changes(&self) -> FileChanges {
        self.changes
    }

    pub fn usage(&self) -> SessionUsage {
        self.steps_usage().plus(&self.summed_usage).max(&self.row_usage)
    }

    pub fn tool_calls(&self) -> u64 {
        self.steps.values().map(|step| step.calls.len() as u64).sum::<u64>() + self.summed_calls
    }

    fn steps_usage(&self) -> SessionUsage {
        self.steps.values().fold(SessionUsage::default(), |sum, step| sum.plus(&step.usage))
    }

    fn state(&self) -> SubagentState {
        match (&self.last_end, &self.status) {
            (Some((_, outcome)), _) if !self.is_open() => SubagentState::Ended { outcome: outcome.clone() },
            (_, SessionStatus::Idle) => SubagentState::Pending,
            (_, SessionStatus::Busy) => SubagentState::Running,
            (_, SessionStatus::Retry { attempt, message, next, .. }) => {
                SubagentState::Retrying { attempt: *attempt, message: truncate_title(message), next: *next }
            }
        }
    }

    /// Whether a message came after the last end of a turn.
    fn is_open(&self) -> bool {
        self.last_end.as_ref().is_none_or(|(last, _)| self.order.last() != Some(last))
    }

    /// Applies the list of messages, oldest first.
    fn list_messages<'a>(&mut self, ids: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        let (last, open) = (self.order.last().cloned(), self.is_open());
        self.order.merge_list(ids, whole);
        if last.as_ref() != self.order.last() {
            self.message_arrived(open);
        }
    }

    /// Handles a new message. `open` tells whether an earlier one came since the last end of a turn.
    fn message_arrived(&mut self, open: bool) {
        if !open {
            self.error = None;
        }
        self.uncertain_since = None;
    }

    fn report_progress(&mut self, out: &mut Vec<TreeChange>) {
        let progress = self.progress();
        if self.reported_progress.as_ref() != Some(&progress) {
            self.reported_progress = Some(progress.clone());
            out.push(TreeChange::Progress(self.id.clone(), Box::new(progress)));
        }
    }

    fn update_row(&mut self, session: &Session) {
        if self.parent.is_none() {
            self.parent.clone_from(&session.parent_id);
        }
        self.directory.clone_from(&session.directory);
        self.created = session.time.created;
        let usage =
            SessionUsage { cost: session.cost.unwrap_or_default(), tokens: session.tokens.clone().unwrap_or_default() };
        // Usage only grows. The clock may have been set back, so it decides only if the usage is the same.
        let grown = self.row_usage.max(&usage);
        let (less, same) = (grown != usage, self.row_usage == usage);
        self.row_usage = grown;
        if less || same && session.time.updated < self.updated {
            return;
        }
        self.updated = session.time.updated;
        self.title = truncate_title(&session.title);
        self.agent.clone_from(&session.agent);
        self.model = session.model.as_ref().map(|model| ModelRef {
            provider_id: model.provider_id.clone(),
            model_id: model.id.clone(),
            variant: model.variant.clone(),
        });
        if let Some(summary) = &session.summary {
            self.changes =
                FileChanges { files: summary.files, additions: summary.additions, deletions: summary.deletions };
        }
    }

    fn update_message(&mut self, message: &Message) {
        let open = self.is_open();
        if self.order.record(message.id()) {
            self.message_arrived(open);
        }
        // A message too old to be known is included in the sums.
        let Some(place) = self.order.place(message.id()) else { return };
        let Message::Assistant(message) = message else { return };
        if self.summed.as_ref().and_then(|summed| self.order.place(summed)) >= Some(place) {
            return;
        }
        if !self.steps.contains_key(&message.id) {
            let before = |id: &&MessageId| self.order.place(id) < Some(place);
            let at = self.steps.keys().take_while(before).count();
            self.steps.shift_insert(at, message.id.clone(), Step::default());
        }
        let step = self.steps.entry(message.id.clone()).or_default();
        let tokens = SessionTokens {
            input: message.tokens.input,
            output: message.tokens.output,
            reasoning: message.tokens.reasoning,
            cache: message.tokens.cache.clone(),
        };
        step.usage = step.usage.max(&SessionUsage { cost: Usd(message.cost.0), tokens });
        step.completed |= message.time.completed.is_some();
        step.continues = message.finish.as_deref() == Some("tool-calls");
        if message.error.is_some() {
            step.error.clone_from(&message.error);
        }
        while self.steps.len() > MAX_STEPS
            && let Some((message, step)) = self.steps.shift_remove_index(0)
        {
            self.summed = Some(message);
            self.summed_usage = self.summed_usage.plus(&step.usage);
            self.summed_calls += step.calls.len() as u64;
            self.summed_steps += 1;
        }
    }

    /// Prompts have parts too, but only those of steps count.
    fn step(&mut self, head: &PartHead) -> Option<&mut Step> {
        self.steps.get_mut(&head.message_id)
    }

    fn update_part(&mut self, part: &Part, live: bool) {
        match part {
            Part::Tool(part) => {
                let Some(step) = self.step(&part.head) else { return };
                let full = step.calls.len() >= MAX_CALLS;
                let (rank, title, time) = match &part.state {
                    ToolState::Pending(_) => (0, None, None),
                    ToolState::Running(state) => (1, state.title.as_deref(), Some(&state.time)),
                    ToolState::Completed(state) => (DONE, Some(state.title.as_str()), Some(&state.time)),
                    ToolState::Error(state) => (DONE, None, Some(&state.time)),
                };
                let tool_use = ToolUse {
                    tool: part.tool.clone(),
                    title: title.map(truncate_title).filter(|title| !title.is_empty()),
                    start: time.map(|time| time.start),
                };
                match step.calls.get_mut(&part.head.id) {
                    Some(call) if call.rank > rank => {}
                    Some(call) => *call = TrackedCall { rank, tool_use },
                    None if full => {}
                    None => drop(step.calls.insert(part.head.id.clone(), TrackedCall { rank, tool_use })),
                }
            }
            Part::Text(part) => {
                if self.step(&part.head).is_none() {
                    return;
                }
                let PartHead { id, message_id, .. } = &part.head;
                let done = part.time.as_ref().is_some_and(|time| time.end.is_some());
                let newer = match &self.last_text {
                    Some(text) if text.message != *message_id => {
                        self.order.place(&text.message) < self.order.place(message_id)
                    }
                    // Within a message, ids grow.
                    Some(text) => text.part < *id || (text.part == *id && (done || !text.done)),
                    None => true,
                };
                if newer {
                    let grows = !done && (live || part.text.is_empty());
                    let (message, part_id) = (message_id.clone(), id.clone());
                    self.last_text =
                        Some(LastText { message, part: part_id, end: tail(&part.text).to_owned(), done, grows });
                }
            }
            _ => {}
        }
    }

    fn append_text(&mut self, part: &PartId, delta: &str) {
        if let Some(text) = self.last_text.as_mut().filter(|text| text.grows && text.part == *part) {
            text.end.push_str(delta);
            let cut = text.end.len() - tail(&text.end).len();
            text.end.drain(..cut);
        }
    }

    fn report_error(&mut self, error: &MessageError, out: &mut Vec<TreeChange>) {
        let same = |known: &MessageError| known.name() == error.name() && known.message() == error.message();
        if !self.error.as_ref().is_some_and(same) {
            self.error = Some(error.clone());
            out.push(TreeChange::Error(self.id.clone(), error.clone()));
        }
    }

    fn set_status(&mut self, status: &SessionStatus, out: &mut Vec<TreeChange>) {
        self.status = status.clone();
        if *status != SessionStatus::Idle {
            self.uncertain_since = None;
            return;
        }
        for ask in std::mem::take(&mut self.asks) {
            out.push(TreeChange::Answered(self.id.clone(), ask.id().to_owned()));
        }
        let Some(last) = self.order.last().cloned().filter(|_| self.is_open()) else { return };
        match self.outcome(&last) {
            Some(outcome) => self.end_turn(last, outcome, out),
            None => self.uncertain_since = Some(last),
        }
    }

    /// How the turn ended, if its last message shows that it did. An idle session need not show it: the status may
    /// belong to the turn before, the next turn may be about to begin, or nobody was left to record the end.
    fn outcome(&self, last: &MessageId) -> Option<TurnOutcome> {
        let step = self.steps.get(last);
        let whole = step.filter(|step| step.completed && !step.continues && step.error.is_none());
        if whole.is_some() {
            return Some(TurnOutcome::Succeeded);
        }
        let error = step.and_then(|step| step.error.as_ref()).or(self.error.as_ref())?;
        Some(match error {
            MessageError::MessageAbortedError(_) => TurnOutcome::Aborted,
            error => TurnOutcome::Failed { error: error.clone() },
        })
    }

    fn end_turn(&mut self, last: MessageId, outcome: TurnOutcome, out: &mut Vec<TreeChange>) {
        let error = self.steps.get(&last).and_then(|step| step.error.clone());
        if let Some(error) = error {
            self.report_error(&error, out);
        }
        self.uncertain_since = None;
        self.last_end = Some((last, outcome.clone()));
        let progress = self.progress();
        self.reported_progress = Some(progress.clone());
        out.push(TreeChange::Completed(self.id.clone(), outcome, Box::new(progress)));
    }

    fn add_ask(&mut self, ask: Ask, out: &mut Vec<TreeChange>) {
        if self.asks.len() < MAX_ASKS && self.asks.iter().all(|known| known.id() != ask.id()) {
            self.asks.push(ask.clone());
            out.push(TreeChange::Asked(self.id.clone(), ask));
        }
    }

    fn remove_ask(&mut self, id: &str, out: &mut Vec<TreeChange>) {
        if let Some(index) = self.asks.iter().position(|ask| ask.id() == id) {
            self.asks.remove(index);
            out.push(TreeChange::Answered(self.id.clone(), id.to_owned()));
        }
    }
}

/// The rank of a finished call.
const DONE: u8 = 2;

/// The end of a text, at most [`MAX_TEXT`] bytes.
fn tail(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(MAX_TEXT))..]
}

fn truncate_title(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TITLE)].to_owned()
}
