//! One session, out of whatever is heard of it.
//!
//! After a gap the same facts come twice: first as rows that are read, then as older events that lead to them. So nothing
//! here counts events. Messages and calls are joined by id and never go back, and a turn is told as ended once for its last
//! message.

use api::{
    EventBody, Message, MessageError, MessageId, MessageOrder, Part, PartHead, PartId, Session, SessionId,
    SessionStatus, SessionTokens, Timestamp, ToolState, Usd,
};
use indexmap::IndexMap;

use super::event::{Ask, Changes, MonitorEvent, Outcome, Progress, State, ToolUse, Usage};
use super::read::MESSAGES;
use super::tree::ReadSession;

/// The steps of which calls and costs are known one by one; of older ones the sums are kept.
const STEPS: usize = 16;
/// The calls of one step that are told apart.
const CALLS: usize = 256;
/// The asks of one session that wait.
const ASKS: usize = 64;
/// Bytes of the end of a session's text.
const TEXT: usize = 2 << 10;
/// Bytes of a title.
const TITLE: usize = 256;

/// Why a session is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing was heard of it before.
    First,
    /// Something may have been missed.
    Again,
    /// It was doubtful a while ago whether its turn is over.
    Second,
}

/// A session of the tree.
pub(super) struct Node {
    pub id: SessionId,
    pub parent: Option<SessionId>,
    pub title: String,
    pub agent: Option<String>,
    pub directory: String,
    pub created: Timestamp,
    pub asks: Vec<Ask>,
    updated: Timestamp,
    status: SessionStatus,
    /// The messages in their order.
    order: MessageOrder,
    /// The newest message when the last end of a turn was told, and how that ended.
    ended: Option<(MessageId, Outcome)>,
    /// The newest message when the session was idle, but did not look as if its turn were over.
    doubt: Option<MessageId>,
    /// What was told to have gone wrong in this turn.
    error: Option<MessageError>,
    /// Oldest first.
    steps: IndexMap<MessageId, Step>,
    /// The newest step that is in the sums, with all before it.
    summed: Option<MessageId>,
    summed_usage: Usage,
    summed_calls: u64,
    /// What the session's row counts; it lags behind the messages, but knows those that were never seen.
    row_usage: Usage,
    said: Option<Said>,
    changes: Changes,
    told: Option<Progress>,
}

/// A model step.
#[derive(Default)]
struct Step {
    usage: Usage,
    completed: bool,
    /// Whether the turn goes on after it.
    goes_on: bool,
    error: Option<MessageError>,
    calls: IndexMap<PartId, Call>,
}

struct Call {
    rank: u8,
    shown: ToolUse,
}

/// The last text.
struct Said {
    message: MessageId,
    part: PartId,
    end: String,
    /// Whether it is whole.
    done: bool,
    /// Whether pieces that come now belong behind it. A text that was read may have them already.
    grows: bool,
}

impl Node {
    pub fn new(session: &Session) -> Self {
        let mut node = Self {
            id: session.id.clone(),
            parent: session.parent_id.clone(),
            title: String::new(),
            agent: None,
            directory: session.directory.clone(),
            created: session.time.created,
            asks: Vec::new(),
            updated: Timestamp::MIN,
            status: SessionStatus::Idle,
            order: MessageOrder::new(2 * MESSAGES),
            ended: None,
            doubt: None,
            error: None,
            steps: IndexMap::new(),
            summed: None,
            summed_usage: Usage::default(),
            summed_calls: 0,
            row_usage: Usage::default(),
            said: None,
            changes: Changes::default(),
            told: None,
        };
        node.row(session);
        node.told = Some(node.progress());
        node
    }

    /// Takes an event in; what there is to tell goes to `out`, in order.
    pub fn apply(&mut self, body: &EventBody, out: &mut Vec<MonitorEvent>) {
        match body {
            EventBody::SessionUpdated { info, .. } => self.row(info),
            EventBody::SessionStatus { status, .. } => self.status(status, out),
            EventBody::SessionIdle { .. } => self.status(&SessionStatus::Idle, out),
            EventBody::SessionError { error: Some(error), .. } => self.fail(error, out),
            EventBody::MessageUpdated { info, .. } => self.message(info),
            EventBody::PartUpdated { part, .. } => self.part(part, true),
            EventBody::PartDelta { part_id, field, delta, .. } if field == "text" => self.grow(part_id, delta),
            EventBody::PermissionAsked(ask) => self.ask(Ask::Permission(ask.clone()), out),
            EventBody::QuestionAsked(ask) => self.ask(Ask::Question(ask.clone()), out),
            EventBody::PermissionReplied { request_id, .. } => self.answered(request_id.as_str(), out),
            EventBody::QuestionReplied { request_id, .. } | EventBody::QuestionRejected { request_id, .. } => {
                self.answered(request_id.as_str(), out);
            }
            _ => {}
        }
        self.tell(out);
    }

    /// Takes in what was read of it.
    pub fn read(&mut self, read: &ReadSession, sight: Sight, out: &mut Vec<MonitorEvent>) {
        self.row(&read.session);
        let ids = read.messages.iter().map(|message| message.info.id());
        self.list(ids, read.messages.len() < MESSAGES);
        for message in &read.messages {
            self.message(&message.info);
            for part in &message.parts {
                self.part(part, false);
            }
        }
        if sight == Sight::First {
            self.summed_usage = self.row_usage.minus(&self.counted());
        }
        let doubt = self.doubt.clone();
        self.status(&read.status, out);
        if sight == Sight::Second
            && let Some(last) = self.doubt.clone().filter(|last| doubt.as_ref() == Some(last))
        {
            self.end(last, Outcome::Interrupted, out);
        }
        self.tell(out);
    }

    /// Takes in which asks wait for an answer.
    pub fn read_asks(&mut self, waiting: Vec<Ask>, out: &mut Vec<MonitorEvent>) {
        let gone = self.asks.iter().map(|ask| ask.id().to_owned());
        let gone: Vec<String> = gone.filter(|id| waiting.iter().all(|ask| ask.id() != id)).collect();
        for id in gone {
            self.answered(&id, out);
        }
        // An ask outside of a turn is about to go.
        if self.status != SessionStatus::Idle {
            for ask in waiting {
                self.ask(ask, out);
            }
        }
    }

    /// Whether only another look can say that its turn is over.
    pub fn is_doubtful(&self) -> bool {
        self.doubt.is_some()
    }

    pub fn progress(&self) -> Progress {
        let state = self.state();
        let works = matches!(state, State::Running | State::Retrying { .. });
        let calls = self.steps.values().flat_map(|step| step.calls.values());
        let open = calls.filter(|call| works && call.rank < DONE).map(|call| call.shown.clone());
        let tool_calls = self.steps.values().map(|step| step.calls.len() as u64).sum::<u64>() + self.summed_calls;
        Progress {
            tools: open.collect(),
            state,
            tool_calls,
            text: self.said.as_ref().map(|said| said.end.clone()).unwrap_or_default(),
            usage: self.usage(),
            changes: self.changes,
        }
    }

    pub fn usage(&self) -> Usage {
        self.counted().plus(&self.summed_usage).max(&self.row_usage)
    }

    fn counted(&self) -> Usage {
        self.steps.values().fold(Usage::default(), |sum, step| sum.plus(&step.usage))
    }

    fn state(&self) -> State {
        match (&self.ended, &self.status) {
            (Some((_, outcome)), _) if !self.is_open() => State::Ended { outcome: outcome.clone() },
            (_, SessionStatus::Idle) => State::Pending,
            (_, SessionStatus::Busy) => State::Running,
            (_, SessionStatus::Retry { attempt, message, next, .. }) => {
                State::Retrying { attempt: *attempt, message: clip(message), next: *next }
            }
        }
    }

    /// Whether something came after the last end of a turn.
    fn is_open(&self) -> bool {
        self.ended.as_ref().is_none_or(|(last, _)| self.order.last() != Some(last))
    }

    /// Takes in which messages there are, oldest first.
    fn list<'a>(&mut self, ids: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        let (last, open) = (self.order.last().cloned(), self.is_open());
        self.order.list(ids, whole);
        if last.as_ref() != self.order.last() {
            self.goes_on(open);
        }
    }

    /// A message came; `open`: so did another since the last end of a turn.
    fn goes_on(&mut self, open: bool) {
        if !open {
            self.error = None;
        }
        self.doubt = None;
    }

    fn tell(&mut self, out: &mut Vec<MonitorEvent>) {
        let progress = self.progress();
        if self.told.as_ref() != Some(&progress) {
            self.told = Some(progress.clone());
            out.push(MonitorEvent::ChildProgress { session_id: self.id.clone(), progress: Box::new(progress) });
        }
    }

    fn row(&mut self, session: &Session) {
        let usage =
            Usage { cost: session.cost.unwrap_or_default(), tokens: session.tokens.clone().unwrap_or_default() };
        // What was used only grows. The clock may have gone back meanwhile, so it decides only what that leaves open.
        let grown = self.row_usage.max(&usage);
        let (less, same) = (grown != usage, self.row_usage == usage);
        self.row_usage = grown;
        if less || same && session.time.updated < self.updated {
            return;
        }
        self.updated = session.time.updated;
        self.title = clip(&session.title);
        self.agent.clone_from(&session.agent);
        if let Some(summary) = &session.summary {
            self.changes = Changes { files: summary.files, additions: summary.additions, deletions: summary.deletions };
        }
    }

    fn message(&mut self, message: &Message) {
        let open = self.is_open();
        if self.order.hear(message.id()) {
            self.goes_on(open);
        }
        // One that is too old to be known is in the sums.
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
        step.usage = step.usage.max(&Usage { cost: Usd(message.cost.0), tokens });
        step.completed |= message.time.completed.is_some();
        step.goes_on = message.finish.as_deref() == Some("tool-calls");
        if message.error.is_some() {
            step.error.clone_from(&message.error);
        }
        while self.steps.len() > STEPS
            && let Some((message, step)) = self.steps.shift_remove_index(0)
        {
            self.summed = Some(message);
            self.summed_usage = self.summed_usage.plus(&step.usage);
            self.summed_calls += step.calls.len() as u64;
        }
    }

    /// Prompts have parts as well; only those of steps count.
    fn step(&mut self, head: &PartHead) -> Option<&mut Step> {
        self.steps.get_mut(&head.message_id)
    }

    fn part(&mut self, part: &Part, live: bool) {
        match part {
            Part::Tool(part) => {
                let Some(step) = self.step(&part.head) else { return };
                let full = step.calls.len() >= CALLS;
                let (rank, title, time) = match &part.state {
                    ToolState::Pending(_) => (0, None, None),
                    ToolState::Running(state) => (1, state.title.as_deref(), Some(&state.time)),
                    ToolState::Completed(state) => (DONE, Some(state.title.as_str()), Some(&state.time)),
                    ToolState::Error(state) => (DONE, None, Some(&state.time)),
                };
                let shown = ToolUse {
                    tool: part.tool.clone(),
                    title: title.map(clip).filter(|title| !title.is_empty()),
                    start: time.map(|time| time.start),
                };
                match step.calls.get_mut(&part.head.id) {
                    Some(call) if call.rank > rank => {}
                    Some(call) => *call = Call { rank, shown },
                    None if full => {}
                    None => drop(step.calls.insert(part.head.id.clone(), Call { rank, shown })),
                }
            }
            Part::Text(part) => {
                if self.step(&part.head).is_none() {
                    return;
                }
                let PartHead { id, message_id, .. } = &part.head;
                let done = part.time.as_ref().is_some_and(|time| time.end.is_some());
                let newer = match &self.said {
                    Some(said) if said.message != *message_id => {
                        self.order.place(&said.message) < self.order.place(message_id)
                    }
                    // Within a message ids grow.
                    Some(said) => said.part < *id || (said.part == *id && (done || !said.done)),
                    None => true,
                };
                if newer {
                    let grows = !done && (live || part.text.is_empty());
                    let (message, part_id) = (message_id.clone(), id.clone());
                    self.said = Some(Said { message, part: part_id, end: tail(&part.text).to_owned(), done, grows });
                }
            }
            _ => {}
        }
    }

    fn grow(&mut self, part: &PartId, delta: &str) {
        if let Some(said) = self.said.as_mut().filter(|said| said.grows && said.part == *part) {
            said.end.push_str(delta);
            let cut = said.end.len() - tail(&said.end).len();
            said.end.drain(..cut);
        }
    }

    fn fail(&mut self, error: &MessageError, out: &mut Vec<MonitorEvent>) {
        let same = |told: &MessageError| told.name() == error.name() && told.message() == error.message();
        if !self.error.as_ref().is_some_and(same) {
            self.error = Some(error.clone());
            out.push(MonitorEvent::ChildError { session_id: self.id.clone(), error: error.clone() });
        }
    }

    fn status(&mut self, status: &SessionStatus, out: &mut Vec<MonitorEvent>) {
        self.status = status.clone();
        if *status != SessionStatus::Idle {
            self.doubt = None;
            return;
        }
        for ask in std::mem::take(&mut self.asks) {
            out.push(MonitorEvent::ChildAnswered { session_id: self.id.clone(), ask_id: ask.id().to_owned() });
        }
        let Some(last) = self.order.last().cloned().filter(|_| self.is_open()) else { return };
        match self.outcome(&last) {
            Some(outcome) => self.end(last, outcome, out),
            None => self.doubt = Some(last),
        }
    }

    /// How the turn ended, if its last message looks as if it had. An idle session may not: the word is about the turn
    /// before, the next one is about to begin, or nobody was left to write down the end.
    fn outcome(&self, last: &MessageId) -> Option<Outcome> {
        let step = self.steps.get(last);
        let whole = step.filter(|step| step.completed && !step.goes_on && step.error.is_none());
        if whole.is_some() {
            return Some(Outcome::Succeeded);
        }
        let error = step.and_then(|step| step.error.as_ref()).or(self.error.as_ref())?;
        Some(match error {
            MessageError::MessageAbortedError(_) => Outcome::Aborted,
            error => Outcome::Failed { error: error.clone() },
        })
    }

    fn end(&mut self, last: MessageId, outcome: Outcome, out: &mut Vec<MonitorEvent>) {
        let error = self.steps.get(&last).and_then(|step| step.error.clone());
        if let Some(error) = error {
            self.fail(&error, out);
        }
        self.doubt = None;
        self.ended = Some((last, outcome.clone()));
        let progress = self.progress();
        self.told = Some(progress.clone());
        let (session_id, progress) = (self.id.clone(), Box::new(progress));
        out.push(MonitorEvent::ChildCompleted { session_id, outcome, progress });
    }

    fn ask(&mut self, ask: Ask, out: &mut Vec<MonitorEvent>) {
        if self.asks.len() < ASKS && self.asks.iter().all(|known| known.id() != ask.id()) {
            self.asks.push(ask.clone());
            out.push(MonitorEvent::ChildAsked { session_id: self.id.clone(), ask });
        }
    }

    fn answered(&mut self, id: &str, out: &mut Vec<MonitorEvent>) {
        if let Some(index) = self.asks.iter().position(|ask| ask.id() == id) {
            self.asks.remove(index);
            out.push(MonitorEvent::ChildAnswered { session_id: self.id.clone(), ask_id: id.to_owned() });
        }
    }
}

/// The rank of a call that has its outcome.
const DONE: u8 = 2;

/// The end of a text, at most [`TEXT`] bytes.
fn tail(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(TEXT))..]
}

fn clip(text: &str) -> String {
    text[..text.floor_char_boundary(TITLE)].to_owned()
}
