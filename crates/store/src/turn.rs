//! Turns: which prompts they take in, how they begin and how they end, as changes of a batch; and their rows.

use api::{Json, MessageError, MessageId, SessionId, Timestamp, TurnId, TurnState};

use crate::batch::{Batch, Op};
use crate::shared::SharedText;

/// How many prompts of a session may wait.
pub const MAX_QUEUED_TURNS: u64 = 1000;

/// A turn's row.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRow {
    /// Its id.
    pub id: TurnId,
    /// Its stored state: never [`TurnState::Waiting`], which follows from asks and budgets.
    pub state: TurnState,
    /// The prompts that it took in.
    pub prompts: Vec<MessageId>,
    /// Who sent the first one.
    pub caller: Option<String>,
    /// Its last answer, once it has ended.
    pub answer: Option<MessageId>,
    /// The error of its last answer.
    pub error: Option<MessageError>,
    /// What its session and all descendants have used since it began.
    pub cost: api::Usd,
    /// When its first prompt was accepted.
    pub created: Timestamp,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// The turn of a session that runs, or that runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTurn {
    /// Its number.
    pub number: u64,
    /// Whether its prompt is still queued, and no message yet.
    pub is_queued: bool,
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub struct TurnEnd {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub number: u64,
    /// Whether it was cancelled. Otherwise it failed if its last answer did.
    pub is_cancelled: bool,
    /// Its last answer.
    pub answer: Option<MessageId>,
    /// Why it failed, if it has no answer that says so.
    pub error: Option<MessageError>,
}

/// A prompt for the inbox.
#[derive(Debug)]
pub(crate) struct EnqueuedPrompt {
    pub session: SessionId,
    pub message: MessageId,
    pub data: Option<String>,
    pub caller: Option<String>,
    /// Set if the prompt is a turn of its own and becomes a message only when that begins.
    pub input: Option<String>,
}

/// A change of a turn, or of the prompts that wait for one.
#[derive(Debug)]
pub(crate) enum TurnOp {
    Enqueue(Box<EnqueuedPrompt>),
    Promote {
        queued: MessageId,
        message: MessageId,
    },
    Dequeue(MessageId),
    CountAttempt(MessageId),
    Begin {
        session: SessionId,
        number: Option<u64>,
        is_joinable: bool,
    },
    Suspend {
        session: SessionId,
        number: u64,
    },
    /// An answer of the turn ended. Holds the JSON of its error, if any.
    AnswerEnded {
        session: SessionId,
        error: Option<String>,
    },
    End(Box<TurnEnd>),
    CancelQueued(TurnId),
    /// A `session.turn` about the turn that an earlier change queued or cancelled.
    Event(SessionId, TurnState),
}

impl Batch {
    /// Adds a message to its session's inbox: it joins the turn that runs or is about to, or begins the next one. Does
    /// nothing if it is already there. Call this before the message itself is written, which then belongs to that turn.
    pub fn enqueue(&mut self, session: &SessionId, message: &MessageId) {
        self.enqueue_prompt(session, message, None, None, None);
    }

    /// Like [`enqueue`](Self::enqueue), with data for the inbox row
    /// ([`InboxEntry::data`](crate::InboxEntry::data) is its hash) and the caller that sent the prompt.
    pub fn enqueue_with(&mut self, session: &SessionId, message: &MessageId, data: &SharedText, caller: Option<&str>) {
        self.ops.push(Op::Share(data.clone()));
        self.enqueue_prompt(session, message, Some(data.hash().to_owned()), caller, None);
    }

    /// Like [`enqueue`](Self::enqueue), with the data of another inbox row, which still exists.
    pub fn enqueue_like(&mut self, session: &SessionId, message: &MessageId, data: String) {
        self.enqueue_prompt(session, message, Some(data), None, None);
    }

    /// Adds a prompt to its session's inbox as a turn of its own, after all others. It is not a message yet: when its
    /// turn begins, [`promote`](Self::promote) replaces it by one.
    pub fn queue(
        &mut self,
        session: &SessionId,
        message: &MessageId,
        input: &Json,
        data: &SharedText,
        caller: Option<&str>,
    ) {
        self.ops.push(Op::Share(data.clone()));
        self.enqueue_prompt(session, message, Some(data.hash().to_owned()), caller, Some(input.to_string()));
    }

    fn enqueue_prompt(
        &mut self,
        session: &SessionId,
        message: &MessageId,
        data: Option<String>,
        caller: Option<&str>,
        input: Option<String>,
    ) {
        let (session, message, caller) = (session.clone(), message.clone(), caller.map(str::to_owned));
        self.turn_op(TurnOp::Enqueue(Box::new(EnqueuedPrompt { session, message, data, caller, input })));
    }

    /// Replaces a queued prompt in the inbox by the message that it becomes. Call this before the message is written.
    pub fn promote(&mut self, queued: &MessageId, message: &MessageId) {
        self.turn_op(TurnOp::Promote { queued: queued.clone(), message: message.clone() });
    }

    /// Marks a turn as running. Without a number a new one begins, which no prompt asked for.
    pub fn begin_turn(&mut self, session: &SessionId, number: Option<u64>) {
        self.turn_op(TurnOp::Begin { session: session.clone(), number, is_joinable: true });
    }

    /// Begins a new turn that takes in no prompts: those that come meanwhile wait for the next one.
    pub fn begin_closed_turn(&mut self, session: &SessionId) {
        self.turn_op(TurnOp::Begin { session: session.clone(), number: None, is_joinable: false });
    }

    /// Marks a turn that stops before its end, to be resumed later.
    pub fn suspend_turn(&mut self, session: &SessionId, number: u64) {
        self.turn_op(TurnOp::Suspend { session: session.clone(), number });
    }

    /// Ends a turn. If one of its prompts is still in the inbox, nothing from here on is written, and
    /// [`CommitOutcome::turn_continues`] is set.
    pub fn end_turn(&mut self, end: TurnEnd) {
        self.turn_op(TurnOp::End(Box::new(end)));
    }

    /// Appends a `session.turn` about the turn that an earlier change of the batch queued or cancelled.
    pub fn turn_event(&mut self, session: &SessionId, state: TurnState) {
        self.turn_op(TurnOp::Event(session.clone(), state));
    }

    /// Cancels a queued turn. The whole batch fails with [`StoreError::NotQueued`](crate::StoreError::NotQueued) if it
    /// has begun.
    pub fn cancel_queued(&mut self, turn: &TurnId) {
        self.turn_op(TurnOp::CancelQueued(turn.clone()));
    }

    /// Removes a message from the inbox.
    pub fn dequeue(&mut self, message: &MessageId) {
        self.turn_op(TurnOp::Dequeue(message.clone()));
    }

    /// Counts another attempt to run an inbox message.
    pub fn count_attempt(&mut self, message: &MessageId) {
        self.turn_op(TurnOp::CountAttempt(message.clone()));
    }

    fn turn_op(&mut self, op: TurnOp) {
        self.ops.push(Op::Turn(op));
    }
}
