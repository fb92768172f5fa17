//! The description of one transaction: rows and events that are written together or not at all.

use std::sync::Arc;

use api::{
    Approval, ApprovalId, Budget, Cursor, Event, EventBody, FileVersion, Json, Message, MessageError, MessageId, Part,
    PartId, PermissionRequest, Project, QuestionRequest, Session, SessionId, SessionStatus, Timestamp, Todo, ToolState,
    TurnId, TurnState, Usage,
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::budget::{BudgetExceeded, Reservation};
use crate::feed::text;
use crate::hold::HoldOp;
use crate::lease::{AcquireOutcome, Lease};
use crate::session_change::SessionChange;
use crate::shared::SharedText;
use crate::task::TaskOp;
use crate::worktree::WorktreeRow;

/// The most changes in a batch that its caller may commit inline.
const INLINE_OPS: usize = 32;
/// The most bytes of rows and events in such a batch.
const INLINE_BYTES: usize = 64 << 10;

/// Where events happen: their directory and project, and the turn that they are part of. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The absolute directory; empty for events that belong to none.
    pub directory: Arc<str>,
    /// The project.
    pub project: Arc<str>,
    /// The number of the turn, for events of the session whose lease fences the batch.
    pub turn: Option<u64>,
}

impl Location {
    /// Creates a location.
    pub fn new(directory: impl Into<Arc<str>>, project: impl Into<Arc<str>>) -> Self {
        Self { directory: directory.into(), project: project.into(), turn: None }
    }

    /// The same place, in a turn.
    #[must_use]
    pub fn in_turn(&self, number: Option<u64>) -> Self {
        Self { turn: number, ..self.clone() }
    }
}

/// The outcome of a commit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommitOutcome {
    /// The batch's last event in the log.
    pub last: Option<Cursor>,
    /// The new version of each record that was written (not of those removed), in order.
    pub versions: Vec<u64>,
    /// The budget that was exceeded, so that nothing after [`Batch::reserve`] was written.
    pub budget_exceeded: Option<Box<BudgetExceeded>>,
    /// The lease acquired by [`Batch::claim`], if it was free.
    pub claimed: Option<AcquireOutcome>,
    /// The turn that [`Batch::enqueue`], [`Batch::queue`] or [`Batch::begin_turn`] added to or began.
    pub turn: Option<u64>,
    /// A prompt had joined the turn, so that nothing from [`Batch::end_turn`] on was written.
    pub turn_continues: bool,
    /// Whether other turns of the session wait after [`Batch::end_turn`].
    pub more_turns: bool,
}

/// The kind of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// A permission request.
    Permission,
    /// A question from the agent.
    Question,
}

impl AskKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Permission, Self::Question].into_iter().find(|kind| kind.name() == name)
    }
}

/// A session's row: its JSON and the columns used in queries.
#[derive(Debug)]
pub(crate) struct SessionRow {
    pub id: SessionId,
    pub project: String,
    pub directory: String,
    pub parent: Option<SessionId>,
    pub updated: i64,
    pub archived: Option<Timestamp>,
    pub path: Option<String>,
    pub workspace: Option<String>,
    pub title: String,
    pub json: String,
}

impl SessionRow {
    pub(crate) fn new(session: &Session, json: String) -> Self {
        Self {
            id: session.id.clone(),
            project: session.project_id.clone(),
            directory: session.directory.clone(),
            parent: session.parent_id.clone(),
            updated: session.time.updated,
            archived: session.time.archived,
            path: session.path.clone(),
            workspace: session.workspace_id.clone(),
            title: session.title.to_lowercase(),
            json,
        }
    }
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

/// One change of a batch. The caller's thread serializes the JSON, so that the writer only writes.
#[derive(Debug)]
pub(crate) enum Op {
    Event {
        event: Arc<Event>,
        json: Bytes,
        part: Option<(PartId, Option<usize>)>,
    },
    Delta(Arc<Event>),
    Status {
        session: SessionId,
        status: Option<String>,
    },
    Session(SessionRow),
    ChangeSession {
        id: SessionId,
        change: Box<SessionChange>,
    },
    DeleteSession(SessionId),
    MarkOrphaned(SessionId),
    RequireSession(SessionId),
    Message {
        id: MessageId,
        session: SessionId,
        json: String,
        /// An answer that is not complete.
        open: bool,
        insert: bool,
    },
    /// An answer of a turn ended. Holds the JSON of its error, if any.
    AnswerEnded {
        session: SessionId,
        error: Option<String>,
    },
    DeleteMessage(MessageId),
    Part {
        id: PartId,
        session: SessionId,
        message: MessageId,
        open: bool,
        running: bool,
        json: String,
    },
    DeletePart(PartId),
    Progress {
        id: PartId,
        session: SessionId,
        length: usize,
    },
    Share(SharedText),
    Enqueue(Box<EnqueuedPrompt>),
    BeginTurn {
        session: SessionId,
        number: Option<u64>,
        is_joinable: bool,
    },
    SuspendTurn {
        session: SessionId,
        number: u64,
    },
    EndTurn(Box<TurnEnd>),
    CancelQueued(TurnId),
    TurnEvent(SessionId, TurnState),
    SessionData {
        session: SessionId,
        data: String,
    },
    SessionOwner {
        session: SessionId,
        owner: String,
    },
    Promote {
        queued: MessageId,
        message: MessageId,
    },
    Dequeue(MessageId),
    CountAttempt(MessageId),
    Ask {
        id: String,
        session: SessionId,
        kind: AskKind,
        /// The tool call that asks.
        call: Option<String>,
        json: String,
    },
    Answer {
        id: String,
        reply: String,
    },
    AnswerIfOpen {
        id: String,
        reply: String,
        event: Arc<Event>,
        json: Bytes,
    },
    Approve(Approval),
    Revoke(Option<ApprovalId>),
    Todos {
        session: SessionId,
        json: String,
    },
    Project {
        id: String,
        json: String,
    },
    Record {
        namespace: String,
        key: String,
        value: Option<String>,
        expect: Option<u64>,
        expires: Option<Timestamp>,
    },
    RecordIfChanged {
        namespace: String,
        key: String,
        value: String,
    },
    Release(Lease),
    Usage {
        session: SessionId,
        used: Box<Usage>,
    },
    ChangedFile {
        session: SessionId,
        file: String,
    },
    FileVersion {
        session: SessionId,
        path: String,
        version: FileVersion,
    },
    CopyFileVersions {
        from: SessionId,
        to: SessionId,
    },
    Reserve(Box<Reservation>),
    Spend {
        id: String,
        used: Box<Usage>,
    },
    Budget {
        session: SessionId,
        budget: Option<Budget>,
        is_additional: bool,
    },
    Hold(Box<HoldOp>),
    Task(Box<TaskOp>),
    Worktree {
        session: SessionId,
        row: Option<Box<WorktreeRow>>,
    },
}

/// Rows and events of one transaction.
#[derive(Debug)]
pub struct Batch {
    pub(crate) location: Location,
    pub(crate) fence: Option<Lease>,
    pub(crate) durable: bool,
    pub(crate) claim: Option<SessionId>,
    pub(crate) ops: Vec<Op>,
    /// The first value that could not be serialized; it fails the whole batch.
    pub(crate) invalid: Option<String>,
}

impl Batch {
    /// Creates an empty batch whose events happen at `location`.
    pub fn new(location: &Location) -> Self {
        Self { location: location.clone(), fence: None, durable: false, claim: None, ops: Vec::new(), invalid: None }
    }

    /// Fails the whole batch with [`StoreError::Stale`](crate::StoreError::Stale) unless the lease is still held.
    #[must_use]
    pub fn fence(mut self, lease: &Lease) -> Self {
        self.fence = Some(lease.clone());
        self
    }

    /// Makes the commit return only once the data is on disk.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Also acquires the session's lease if it is free, which saves a turn that starts right away one commit.
    pub fn claim(&mut self, session: &SessionId) {
        self.claim = Some(session.clone());
    }

    /// Appends the changes of another batch with the same location and lease.
    pub fn append(&mut self, other: Batch) {
        self.durable |= other.durable;
        self.claim = self.claim.take().or(other.claim);
        other.ops.into_iter().for_each(|op| self.push(op));
        if let Some(why) = other.invalid {
            self.fail(why);
        }
    }

    /// Whether the batch writes nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.invalid.is_none()
    }

    /// Appends an event to the log. A `session.status` also sets what [`Store::statuses`](crate::Store::statuses)
    /// returns. Text deltas go to [`Store::send_delta`](crate::Store::send_delta) or [`Batch::delta`] instead.
    pub fn event(&mut self, body: EventBody) {
        self.event_with_json(body, None);
    }

    /// Like [`event`](Self::event), with the JSON of the part or message it carries, if already serialized.
    fn event_with_json(&mut self, body: EventBody, inner: Option<&RawValue>) {
        if let EventBody::SessionStatus { session_id, status } = &body {
            let status = match status {
                SessionStatus::Idle => None,
                other => self.json(other),
            };
            self.push(Op::Status { session: session_id.clone(), status });
        }
        let part = match &body {
            EventBody::PartUpdated { part, .. } => part
                .head()
                .zip(text::text(part))
                .map(|(head, text)| (head.id.clone(), text::is_open(part).then_some(text.len()))),
            _ => None,
        };
        let event = Arc::new(Event::new(body));
        let json = match inner {
            Some(inner) => self.check(event.json_with_payload(inner)),
            None => self.json(&event),
        };
        if let Some(json) = json {
            self.ops.push(Op::Event { event, json: Bytes::from(json), part });
        }
    }

    /// Sends new text to the watchers of this process, after the events added so far and before later ones; nothing is
    /// stored. For text whose part begins in this batch. Parts already committed grow with
    /// [`Store::send_delta`](crate::Store::send_delta).
    pub fn delta(&mut self, part: &Part, delta: &str) {
        if let Some(body) = text::delta(part, delta) {
            self.ops.push(Op::Delta(Arc::new(Event::new(body))));
        }
    }

    /// Writes a session's row.
    pub fn session(&mut self, session: &Session) {
        if let Some(json) = self.json(session) {
            self.ops.push(Op::Session(SessionRow::new(session, json)));
        }
    }

    /// Changes the session's row as it is inside the transaction, and appends `session.updated`, also if nothing
    /// changed. Title, cost and renames come from different tasks and processes, so writing whole rows would undo each
    /// other's changes. The whole batch fails with [`StoreError::NoSession`](crate::StoreError::NoSession) if the
    /// session is gone.
    pub fn change_session(&mut self, id: &SessionId, change: SessionChange) {
        self.ops.push(Op::ChangeSession { id: id.clone(), change: Box::new(change) });
    }

    /// Deletes a session; from now on no query finds it. [`Store::sweep`](crate::Store::sweep) does the slow part
    /// later. Its children stay.
    pub fn delete_session(&mut self, id: &SessionId) {
        self.ops.push(Op::DeleteSession(id.clone()));
    }

    /// Marks a session that has no row but left other rows behind, so that [`Store::sweep`](crate::Store::sweep)
    /// removes them. Does nothing if the session exists.
    pub fn mark_orphaned(&mut self, id: &SessionId) {
        self.ops.push(Op::MarkOrphaned(id.clone()));
    }

    /// Fails the whole batch with [`StoreError::NoSession`](crate::StoreError::NoSession) if the session is gone, so
    /// that nothing more is written for it.
    pub fn require_session(&mut self, id: &SessionId) {
        self.ops.push(Op::RequireSession(id.clone()));
    }

    /// Writes a message's row. A new message goes to the end of its session.
    pub fn message(&mut self, message: &Message) {
        self.put_message(message, false);
    }

    /// Inserts a message's row. The whole batch fails with [`StoreError::Exists`](crate::StoreError::Exists) if it
    /// exists.
    pub fn insert_message(&mut self, message: &Message) {
        self.put_message(message, true);
    }

    /// Writes a message's row and appends its event.
    pub fn publish_message(&mut self, message: Message) {
        self.put_and_publish(message, false);
    }

    /// Inserts a message's row as [`insert_message`](Self::insert_message) does, and appends its event.
    pub fn publish_new_message(&mut self, message: Message) {
        self.put_and_publish(message, true);
    }

    fn put_and_publish(&mut self, message: Message, insert: bool) {
        let Some(json) = self.raw(&message) else { return };
        self.put_message_row(&message, json.get().to_owned(), insert);
        self.event_with_json(EventBody::message(message), Some(&json));
    }

    fn put_message(&mut self, message: &Message, insert: bool) {
        if let Some(json) = self.json(message) {
            self.put_message_row(message, json, insert);
        }
    }

    fn put_message_row(&mut self, message: &Message, json: String, insert: bool) {
        let (id, session) = (message.id().clone(), message.session_id().clone());
        let open = message.as_assistant().is_some_and(|answer| answer.time.completed.is_none());
        let op = Op::Message { id, session: session.clone(), json, open, insert };
        // An inserted message cannot have an earlier row in the batch, so `push` need not look for one.
        if insert {
            self.ops.push(op)
        } else {
            self.push(op)
        }
        if let Some(answer) = message.as_assistant().filter(|answer| answer.time.completed.is_some()) {
            let error = answer.error.as_ref().and_then(|error| self.json(error));
            self.ops.push(Op::AnswerEnded { session, error });
        }
    }

    /// Deletes a message and its parts.
    pub fn delete_message(&mut self, id: &MessageId) {
        self.ops.push(Op::DeleteMessage(id.clone()));
    }

    /// Writes a part's row. A new part goes to the end of its message.
    pub fn part(&mut self, part: &Part) {
        if let Some(op) = self.part_row(part) {
            self.push(op);
        }
    }

    /// Writes the row of a part that this batch has not written before. Skips the search for an earlier row, which
    /// would make adding many parts quadratic.
    pub fn insert_part(&mut self, part: &Part) {
        if let Some(op) = self.part_row(part) {
            self.ops.push(op);
        }
    }

    /// Writes a part's row and appends its event. Returns the size of the row.
    pub fn publish_part(&mut self, part: &Part) -> usize {
        let Some(json) = self.raw(part) else { return 0 };
        if let Some(op) = self.part_op(part, json.get().to_owned()) {
            self.push(op);
        }
        if let Some(event) = EventBody::part(part.clone()) {
            self.event_with_json(event, Some(&json));
        }
        json.get().len()
    }

    fn part_row(&mut self, part: &Part) -> Option<Op> {
        let json = self.json(part)?;
        self.part_op(part, json)
    }

    fn part_op(&mut self, part: &Part, json: String) -> Option<Op> {
        let Some((id, session, message)) = text::ids(part) else {
            self.fail("a part without id, sessionID and messageID".to_owned());
            return None;
        };
        let running = part.as_tool().is_some_and(|tool| matches!(tool.state, ToolState::Running(_)));
        Some(Op::Part { id, session, message, open: text::is_open(part), running, json })
    }

    /// Deletes a part.
    pub fn delete_part(&mut self, id: &PartId) {
        self.ops.push(Op::DeletePart(id.clone()));
    }

    /// Writes the row of a part whose text is still growing. The log gets only its id and length: watchers in this
    /// process already have the text from [`Store::send_delta`](crate::Store::send_delta), those in other processes
    /// read the row.
    pub fn progress(&mut self, part: &Part) {
        self.part(part);
        if let (Some((id, session, _)), Some(text)) = (text::ids(part), text::text(part)) {
            self.ops.push(Op::Progress { id, session, length: text.len() });
        }
    }

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
        self.ops.push(Op::Enqueue(Box::new(EnqueuedPrompt { session, message, data, caller, input })));
    }

    /// Replaces a queued prompt in the inbox by the message that it becomes. Call this before the message is written.
    pub fn promote(&mut self, queued: &MessageId, message: &MessageId) {
        self.ops.push(Op::Promote { queued: queued.clone(), message: message.clone() });
    }

    /// Marks a turn as running. Without a number a new one begins, which no prompt asked for.
    pub fn begin_turn(&mut self, session: &SessionId, number: Option<u64>) {
        self.ops.push(Op::BeginTurn { session: session.clone(), number, is_joinable: true });
    }

    /// Begins a new turn that takes in no prompts: those that come meanwhile wait for the next one.
    pub fn begin_closed_turn(&mut self, session: &SessionId) {
        self.ops.push(Op::BeginTurn { session: session.clone(), number: None, is_joinable: false });
    }

    /// Marks a turn that stops before its end, to be resumed later.
    pub fn suspend_turn(&mut self, session: &SessionId, number: u64) {
        self.ops.push(Op::SuspendTurn { session: session.clone(), number });
    }

    /// Ends a turn. If one of its prompts is still in the inbox, nothing from here on is written, and
    /// [`CommitOutcome::turn_continues`] is set.
    pub fn end_turn(&mut self, end: TurnEnd) {
        self.ops.push(Op::EndTurn(Box::new(end)));
    }

    /// Appends a `session.turn` about the turn that an earlier change of the batch queued or cancelled.
    pub fn turn_event(&mut self, session: &SessionId, state: TurnState) {
        self.ops.push(Op::TurnEvent(session.clone(), state));
    }

    /// Cancels a queued turn. The whole batch fails with [`StoreError::NotQueued`](crate::StoreError::NotQueued) if it
    /// has begun.
    pub fn cancel_queued(&mut self, turn: &TurnId) {
        self.ops.push(Op::CancelQueued(turn.clone()));
    }

    /// Removes a message from the inbox.
    pub fn dequeue(&mut self, message: &MessageId) {
        self.ops.push(Op::Dequeue(message.clone()));
    }

    /// Counts another attempt to run an inbox message.
    pub fn count_attempt(&mut self, message: &MessageId) {
        self.ops.push(Op::CountAttempt(message.clone()));
    }

    /// Writes a permission request that is waiting for a reply.
    pub fn permission(&mut self, ask: &PermissionRequest) {
        if let Some(json) = self.json(ask) {
            let (id, session) = (ask.id.to_string(), ask.session_id.clone());
            let call = ask.tool.as_ref().map(|tool| tool.call_id.clone());
            self.ops.push(Op::Ask { id, session, kind: AskKind::Permission, call, json });
        }
    }

    /// Writes a question that is waiting for a reply.
    pub fn question(&mut self, ask: &QuestionRequest) {
        if let Some(json) = self.json(ask) {
            let (id, session) = (ask.id.to_string(), ask.session_id.clone());
            let call = ask.tool.as_ref().map(|tool| tool.call_id.clone());
            self.ops.push(Op::Ask { id, session, kind: AskKind::Question, call, json });
        }
    }

    /// Answers an ask. The whole batch fails with [`StoreError::NotOpen`](crate::StoreError::NotOpen) if it is not
    /// open.
    pub fn answer(&mut self, id: &str, reply: &Json) {
        self.ops.push(Op::Answer { id: id.to_owned(), reply: reply.to_string() });
    }

    /// Answers an ask if it is still open, and only then appends the event. For asks resolved as a side effect, where
    /// another reply may have come first.
    pub fn answer_if_open(&mut self, id: &str, reply: &Json, event: EventBody) {
        let event = Arc::new(Event::new(event));
        if let Some(json) = self.json(&event) {
            let (id, reply) = (id.to_owned(), reply.to_string());
            self.ops.push(Op::AnswerIfOpen { id, reply, event, json: Bytes::from(json) });
        }
    }

    /// Allows a permission for a pattern in a directory from now on.
    pub fn approve(&mut self, directory: &str, permission: &str, pattern: &str) {
        self.ops.push(Op::Approve(Approval {
            id: ApprovalId::new(),
            project_id: self.location.project.as_ref().to_owned(),
            directory: directory.to_owned(),
            permission: permission.to_owned(),
            pattern: pattern.to_owned(),
            created: api::now(),
        }));
    }

    /// Revokes an approval, or all of them. Succeeds even if it does not exist.
    pub fn revoke(&mut self, approval: Option<&ApprovalId>) {
        self.ops.push(Op::Revoke(approval.cloned()));
    }

    /// Replaces a session's todo list.
    pub fn todos(&mut self, session: &SessionId, todos: &[Todo]) {
        if let Some(json) = self.json(todos) {
            self.ops.push(Op::Todos { session: session.clone(), json });
        }
    }

    /// Writes a project's row.
    pub fn project(&mut self, project: &Project) {
        if let Some(json) = self.json(project) {
            self.ops.push(Op::Project { id: project.id.clone(), json });
        }
    }

    /// Writes or deletes a [record](crate::Record). With `expect`, the whole batch fails with
    /// [`StoreError::Conflict`](crate::StoreError::Conflict) if the record has another version; 0 means that it must
    /// not exist.
    pub fn record(&mut self, namespace: &str, key: &str, value: Option<&Json>, expect: Option<u64>) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::Record { namespace, key, value: value.map(Json::to_string), expect, expires: None });
    }

    /// Like [`record`](Self::record), for a record that counts as missing from `expires` on.
    pub fn record_until(&mut self, namespace: &str, key: &str, value: &Json, expect: Option<u64>, expires: Timestamp) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::Record { namespace, key, value: Some(value.to_string()), expect, expires: Some(expires) });
    }

    /// Stores data with a session that exists or is written earlier in the batch
    /// ([`Store::session_data`](crate::Store::session_data) is its hash).
    pub fn session_data(&mut self, session: &SessionId, data: &SharedText) {
        self.ops.push(Op::Share(data.clone()));
        self.ops.push(Op::SessionData { session: session.clone(), data: data.hash().to_owned() });
    }

    /// Sets who owns a session that exists or is written earlier in the batch. A new session has the owner of its parent.
    pub fn session_owner(&mut self, session: &SessionId, owner: &str) {
        self.ops.push(Op::SessionOwner { session: session.clone(), owner: owner.to_owned() });
    }

    /// Writes a record unless it already has this value.
    pub fn record_if_changed(&mut self, namespace: &str, key: &str, value: &Json) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::RecordIfChanged { namespace, key, value: value.to_string() });
    }

    /// Releases a lease. Does nothing if it was lost.
    pub fn release(&mut self, lease: &Lease) {
        self.ops.push(Op::Release(lease.clone()));
    }

    /// Adds usage to a session's own sum, and to its total and those of all its ancestors.
    pub fn usage(&mut self, session: &SessionId, used: &Usage) {
        self.ops.push(Op::Usage { session: session.clone(), used: Box::new(used.clone()) });
    }

    /// Counts a file that a session changed. Each file counts once per session and once per tree.
    pub fn count_changed_file(&mut self, session: &SessionId, file: &str) {
        self.ops.push(Op::ChangedFile { session: session.clone(), file: file.to_owned() });
    }

    /// Stores the content of a file as a session last read or wrote it.
    pub fn file_version(&mut self, session: &SessionId, path: &str, version: FileVersion) {
        self.ops.push(Op::FileVersion { session: session.clone(), path: path.to_owned(), version });
    }

    /// Copies the hashes of all files that a session knows to its copy. Contents are not copied: they can be large.
    pub fn copy_file_versions(&mut self, from: &SessionId, to: &SessionId) {
        self.ops.push(Op::CopyFileVersions { from: from.clone(), to: to.clone() });
    }

    /// Reserves budget for a model call that is about to begin. If a budget of the session or an ancestor cannot cover
    /// the most the call may use, nothing after this in the batch is written, and [`CommitOutcome::budget_exceeded`]
    /// says why.
    pub fn reserve(&mut self, call: &Reservation) {
        self.ops.push(Op::Reserve(Box::new(call.clone())));
    }

    /// Replaces a reservation by what the ended model call used. Does nothing if it was already replaced, so the first
    /// report counts.
    pub fn spend(&mut self, reservation: &str, used: &Usage) {
        self.ops.push(Op::Spend { id: reservation.to_owned(), used: Box::new(used.clone()) });
    }

    /// Sets the budget of a session and its descendants, including what they have already used; `None` removes it.
    /// Seconds count from when a time limit was first set.
    pub fn budget(&mut self, session: &SessionId, budget: Option<&Budget>) {
        self.ops.push(Op::Budget { session: session.clone(), budget: budget.copied(), is_additional: false });
    }

    /// Sets a budget for a session and its descendants on top of what they have already used.
    pub fn grant(&mut self, session: &SessionId, budget: &Budget) {
        self.ops.push(Op::Budget { session: session.clone(), budget: Some(*budget), is_additional: true });
    }

    /// Whether the batch is quick enough for its caller to commit it inline.
    pub(crate) fn can_commit_inline(&self) -> bool {
        let bytes = |op: &Op| match op {
            Op::Event { json, .. } => json.len(),
            Op::Message { json, .. } | Op::Part { json, .. } => json.len(),
            Op::FileVersion { version, .. } => version.content.as_ref().map_or(0, String::len),
            _ => 0,
        };
        let small = || self.ops.len() <= INLINE_OPS && self.ops.iter().map(bytes).sum::<usize>() <= INLINE_BYTES;
        !self.durable && self.claim.is_none() && small()
    }

    /// Whether the batch changes a conversation in a way that neither its own turn nor a prompt for the inbox does.
    /// Only such batches make a turn's cached conversation stale.
    pub(crate) fn invalidates_cache(&self) -> bool {
        let own = |session: &SessionId| self.fence.as_ref().is_some_and(|lease| lease.session == *session);
        let enqueued = |id: &MessageId| {
            self.ops
                .iter()
                .any(|op| matches!(op, Op::Enqueue(prompt) if prompt.message == *id && prompt.input.is_none()))
        };
        let inserted = |id: &MessageId| {
            self.ops.iter().any(|op| matches!(op, Op::Message { id: new, insert: true, .. } if new == id))
        };
        self.ops.iter().any(|op| match op {
            Op::Message { id: message, session, .. } | Op::Part { message, session, .. } => {
                !(own(session) || enqueued(message) && inserted(message))
            }
            // These do not name the session, but a turn deletes nothing of other sessions.
            Op::DeleteMessage(_) | Op::DeletePart(_) | Op::Dequeue(_) => self.fence.is_none(),
            Op::DeleteSession(_) => true,
            _ => false,
        })
    }

    /// Adds a change. If a row is written twice, its last state takes the first one's position, because new rows are
    /// ordered by their position in the batch. Events are not merged.
    fn push(&mut self, mut op: Op) {
        // Changes before a reservation, or before the end of a turn, are written even if the rest is not, and a row must not move before the
        // deletion of a row with the same id.
        let is_barrier = |op: &Op| {
            matches!(
                op,
                Op::Reserve(_) | Op::EndTurn(_) | Op::DeletePart(_) | Op::DeleteMessage(_) | Op::DeleteSession(_)
            )
        };
        let barrier = self.ops.iter().rposition(is_barrier).map_or(0, |index| index + 1);
        let earlier = self.ops[barrier..].iter().position(|earlier| match (earlier, &op) {
            (Op::Part { id, .. }, Op::Part { id: new, .. }) => id == new,
            (Op::Message { id, .. }, Op::Message { id: new, .. }) => id == new,
            _ => false,
        });
        if let Op::Status { session, status } = &op {
            let before = self.ops[barrier..].iter().rev().find_map(|op| match op {
                Op::Status { session: of, status } if of == session => Some(status),
                _ => None,
            });
            if before == Some(status) {
                return;
            }
        }
        let Some(earlier) = earlier.map(|index| &mut self.ops[barrier + index]) else {
            self.ops.push(op);
            return;
        };
        if let (Op::Message { insert: inserted, .. }, Op::Message { insert, .. }) = (&*earlier, &mut op) {
            *insert |= inserted;
        }
        *earlier = op;
    }

    pub(crate) fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Option<String> {
        self.check(serde_json::to_string(value))
    }

    fn raw(&mut self, value: &impl Serialize) -> Option<Box<RawValue>> {
        self.check(serde_json::value::to_raw_value(value))
    }

    fn check<T>(&mut self, result: serde_json::Result<T>) -> Option<T> {
        result.map_err(|error| self.fail(error.to_string())).ok()
    }

    fn fail(&mut self, why: String) {
        self.invalid.get_or_insert(why);
    }
}
