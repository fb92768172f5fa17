//! The builder of one transaction: rows and events that are written together or not at all.

use std::sync::Arc;

use api::{
    Approval, ApprovalId, Budget, Cursor, Event, EventBody, FileVersion, Json, Message, MessageId, Part, PartId,
    PermissionRequest, Project, QuestionRequest, Session, SessionId, SessionStatus, Todo, ToolState, Usage,
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::feed::text;
use crate::sqlite::lease::{AcquireOutcome, Lease};
use crate::sqlite::ledger::{BudgetExceeded, Reservation};

/// The most changes of a batch that its caller writes itself.
const INLINE_OPS: usize = 32;
/// The most bytes of their rows and events.
const INLINE_BYTES: usize = 64 << 10;

/// Where events happen. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The directory, absolute; empty for what is everywhere.
    pub directory: Arc<str>,
    /// The project.
    pub project: Arc<str>,
}

impl Location {
    /// A location.
    pub fn new(directory: impl Into<Arc<str>>, project: impl Into<Arc<str>>) -> Self {
        Self { directory: directory.into(), project: project.into() }
    }
}

/// What a commit tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommitOutcome {
    /// The batch's last event in the log.
    pub last: Option<Cursor>,
    /// The new version of each record that was written (not of those removed), in order.
    pub versions: Vec<u64>,
    /// Why nothing was written of what follows [`Batch::reserve`].
    pub budget_exceeded: Option<Box<BudgetExceeded>>,
    /// The lease that [`Batch::claim`] took, if it was free.
    pub claimed: Option<AcquireOutcome>,
}

/// Which kind of ask a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// A permission request.
    Permission,
    /// A question of the agent.
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

/// A session's row: its JSON, and the columns that are searched.
#[derive(Debug)]
pub(crate) struct SessionRow {
    pub id: SessionId,
    pub project: String,
    pub directory: String,
    pub parent: Option<SessionId>,
    pub updated: i64,
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
            title: session.title.to_lowercase(),
            json,
        }
    }
}

/// A change of a session's row, applied inside the transaction.
pub(crate) struct Change(pub Box<dyn Fn(&mut Session) + Send + Sync>);

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Change")
    }
}

/// One change of a batch. JSON is made by the caller's thread, so that the writer only writes.
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
        change: Change,
    },
    DeleteSession(SessionId),
    MarkOrphaned(SessionId),
    RequireSession(SessionId),
    Message {
        id: MessageId,
        session: SessionId,
        json: String,
        insert: bool,
    },
    /// An answer of a turn ended: the JSON of its error, if it has one.
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
    Enqueue {
        session: SessionId,
        message: MessageId,
        data: Option<String>,
    },
    Dequeue(MessageId),
    CountAttempt(MessageId),
    Ask {
        id: String,
        session: SessionId,
        kind: AskKind,
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
    Touched {
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
        additional: bool,
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
    /// The first thing that could not be stored; it fails the whole batch.
    pub(crate) invalid: Option<String>,
}

impl Batch {
    /// An empty batch whose events happen at `location`.
    pub fn new(location: &Location) -> Self {
        Self { location: location.clone(), fence: None, durable: false, claim: None, ops: Vec::new(), invalid: None }
    }

    /// Refuses the whole batch with [`StoreError::Stale`](crate::StoreError::Stale) unless the lease is still held.
    #[must_use]
    pub fn fence(mut self, lease: &Lease) -> Self {
        self.fence = Some(lease.clone());
        self
    }

    /// The commit returns only after the disk has it.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Takes the lease of a session along with it, if that is free: one commit less for a turn that begins at once.
    pub fn claim(&mut self, session: &SessionId) {
        self.claim = Some(session.clone());
    }

    /// Takes in what another batch of the same location and lease writes, after its own.
    pub fn append(&mut self, other: Batch) {
        self.durable |= other.durable;
        self.claim = self.claim.take().or(other.claim);
        other.ops.into_iter().for_each(|op| self.push(op));
        if let Some(why) = other.invalid {
            self.fail(why);
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.invalid.is_none()
    }

    /// Appends to the log, in order. A `session.status` also sets what [`Store::statuses`](crate::Store::statuses)
    /// tells. Text deltas do not belong here, but to [`Store::send_delta`](crate::Store::send_delta) or [`Batch::delta`].
    pub fn event(&mut self, body: EventBody) {
        self.event_with_json(body, None);
    }

    /// The same, with the JSON of the part or message that it is about, if that is there.
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
            Some(inner) => self.check(event.json_around(inner)),
            None => self.json(&event),
        };
        if let Some(json) = json {
            self.ops.push(Op::Event { event, json: Bytes::from(json), part });
        }
    }

    /// Text that grew after what this batch tells so far, and before what follows: watchers of this process get it in that
    /// order, and nothing is stored. For text whose part begins in this very batch; what is committed already grows with
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

    /// Changes a session's row as it is at that moment, and appends `session.updated`. Title, cost and a client's rename
    /// come from different tasks and processes: whoever writes whole rows would undo the others. It may run twice, when a
    /// transaction of several batches is lost and each is tried alone. The whole batch fails
    /// with [`StoreError::NoSession`](crate::StoreError::NoSession) if the session is gone.
    pub fn change_session(&mut self, id: &SessionId, change: impl Fn(&mut Session) + Send + Sync + 'static) {
        self.ops.push(Op::ChangeSession { id: id.clone(), change: Change(Box::new(change)) });
    }

    /// Removes a session with all that it has: from now on nobody finds it. What takes long is left for
    /// [`Store::sweep`](crate::Store::sweep). Its children stay.
    pub fn delete_session(&mut self, id: &SessionId) {
        self.ops.push(Op::DeleteSession(id.clone()));
    }

    /// Notes a session that is not there, but of which something is: [`Store::sweep`](crate::Store::sweep) removes that.
    /// Does nothing if it is there.
    pub fn mark_orphaned(&mut self, id: &SessionId) {
        self.ops.push(Op::MarkOrphaned(id.clone()));
    }

    /// Fails the whole batch with [`StoreError::NoSession`](crate::StoreError::NoSession) if the session is gone: nothing
    /// must be written for it any more.
    pub fn require_session(&mut self, id: &SessionId) {
        self.ops.push(Op::RequireSession(id.clone()));
    }

    /// Writes a message's row. A new one comes after all that its session has.
    pub fn message(&mut self, message: &Message) {
        self.put_message(message, false);
    }

    /// Writes a new message's row; the whole batch fails with [`StoreError::Exists`](crate::StoreError::Exists) if it
    /// is there.
    pub fn insert_message(&mut self, message: &Message) {
        self.put_message(message, true);
    }

    /// Writes a message's row and tells of it.
    pub fn publish_message(&mut self, message: Message) {
        self.put_and_publish(message, false);
    }

    /// Writes a new message's row, as [`insert_message`](Self::insert_message) does, and tells of it.
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
        let op = Op::Message { id, session: session.clone(), json, insert };
        // A new one is the first of its id in the batch.
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

    /// Removes a message with its parts.
    pub fn delete_message(&mut self, id: &MessageId) {
        self.ops.push(Op::DeleteMessage(id.clone()));
    }

    /// Writes a part's row. A new one comes after all that its message has.
    pub fn part(&mut self, part: &Part) {
        if let Some(op) = self.part_row(part) {
            self.push(op);
        }
    }

    /// Writes the row of a part that this batch has not written before. It is not looked for, so that many take no longer
    /// than each of them.
    pub fn insert_part(&mut self, part: &Part) {
        if let Some(op) = self.part_row(part) {
            self.ops.push(op);
        }
    }

    /// Writes a part's row and tells of it. Returns the size of the row.
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

    /// Removes a part.
    pub fn delete_part(&mut self, id: &PartId) {
        self.ops.push(Op::DeletePart(id.clone()));
    }

    /// Writes the row of a part whose text is still growing. The log gets its id and length only: watchers in this
    /// process had the text by [`Store::send_delta`](crate::Store::send_delta), those in others read the row.
    pub fn progress(&mut self, part: &Part) {
        self.part(part);
        if let (Some((id, session, _)), Some(text)) = (text::ids(part), text::text(part)) {
            self.ops.push(Op::Progress { id, session, length: text.len() });
        }
    }

    /// Puts a message into its session's inbox; again does nothing.
    pub fn enqueue(&mut self, session: &SessionId, message: &MessageId) {
        self.ops.push(Op::Enqueue { session: session.clone(), message: message.clone(), data: None });
    }

    /// The same, with data that its row keeps ([`InboxEntry::data`](crate::InboxEntry::data)).
    pub fn enqueue_with(&mut self, session: &SessionId, message: &MessageId, data: String) {
        self.ops.push(Op::Enqueue { session: session.clone(), message: message.clone(), data: Some(data) });
    }

    /// Takes a message out of the inbox.
    pub fn dequeue(&mut self, message: &MessageId) {
        self.ops.push(Op::Dequeue(message.clone()));
    }

    /// Counts one more try at a message of the inbox.
    pub fn count_attempt(&mut self, message: &MessageId) {
        self.ops.push(Op::CountAttempt(message.clone()));
    }

    /// Writes a permission request that waits for its answer.
    pub fn permission(&mut self, ask: &PermissionRequest) {
        if let Some(json) = self.json(ask) {
            let (id, session) = (ask.id.to_string(), ask.session_id.clone());
            self.ops.push(Op::Ask { id, session, kind: AskKind::Permission, json });
        }
    }

    /// Writes a question that waits for its answer.
    pub fn question(&mut self, ask: &QuestionRequest) {
        if let Some(json) = self.json(ask) {
            let (id, session) = (ask.id.to_string(), ask.session_id.clone());
            self.ops.push(Op::Ask { id, session, kind: AskKind::Question, json });
        }
    }

    /// Answers an ask; the whole batch fails with [`StoreError::NotOpen`](crate::StoreError::NotOpen) if none waits.
    pub fn answer(&mut self, id: &str, reply: &Json) {
        self.ops.push(Op::Answer { id: id.to_owned(), reply: reply.to_string() });
    }

    /// Answers an ask if it still waits, and only then appends the event: for asks that are settled along with something
    /// else, where somebody may have been faster.
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

    /// Ends an approval, or all of them. One that is not there is none the less gone.
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

    /// Writes or removes a record. With `expect`, the whole batch fails with
    /// [`StoreError::Conflict`](crate::StoreError::Conflict) if its version is another; 0 means that there is none.
    pub fn record(&mut self, namespace: &str, key: &str, value: Option<&Json>, expect: Option<u64>) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::Record { namespace, key, value: value.map(Json::to_string), expect });
    }

    /// Writes a record whose JSON is there already.
    pub fn record_json(&mut self, namespace: &str, key: &str, json: &RawValue) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::Record { namespace, key, value: Some(json.get().to_owned()), expect: None });
    }

    /// Writes a record unless it says just that already.
    pub fn record_if_changed(&mut self, namespace: &str, key: &str, value: &Json) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::RecordIfChanged { namespace, key, value: value.to_string() });
    }

    /// Gives a lease back. Does nothing if it was lost.
    pub fn release(&mut self, lease: &Lease) {
        self.ops.push(Op::Release(lease.clone()));
    }

    /// Adds what a session used: to its own sum, and to its total and those of all sessions above it.
    pub fn usage(&mut self, session: &SessionId, used: &Usage) {
        self.ops.push(Op::Usage { session: session.clone(), used: Box::new(used.clone()) });
    }

    /// Counts a file that a session changed; the same one twice counts once, in the session and in every tree it is in.
    pub fn count_changed_file(&mut self, session: &SessionId, file: &str) {
        self.ops.push(Op::ChangedFile { session: session.clone(), file: file.to_owned() });
    }

    /// Remembers the content of a file that a session read or wrote; the newest one counts.
    pub fn file_version(&mut self, session: &SessionId, path: &str, version: FileVersion) {
        self.ops.push(Op::FileVersion { session: session.clone(), path: path.to_owned(), version });
    }

    /// Gives a copy of a session the hashes of all files that the session knows. Contents are not copied: they can be large.
    pub fn copy_file_versions(&mut self, from: &SessionId, to: &SessionId) {
        self.ops.push(Op::CopyFileVersions { from: from.clone(), to: to.clone() });
    }

    /// A call of a model is about to begin. If a budget of its session or one above has no room for the most that the call
    /// may use, nothing of what follows in this batch is written, and [`CommitOutcome::budget_exceeded`] says why.
    pub fn reserve(&mut self, call: &Reservation) {
        self.ops.push(Op::Reserve(Box::new(call.clone())));
    }

    /// A call of a model has ended: what it used takes the location of what was reserved. Does nothing if that happened
    /// before, so that whoever comes first counts.
    pub fn spend(&mut self, reservation: &str, used: &Usage) {
        self.ops.push(Op::Spend { id: reservation.to_owned(), used: Box::new(used.clone()) });
    }

    /// Sets what a session and all below it may use, of all that they ever used; `None` lifts it. Its seconds count from
    /// when a bound of seconds was first set.
    pub fn budget(&mut self, session: &SessionId, budget: Option<&Budget>) {
        self.ops.push(Op::Budget { session: session.clone(), budget: budget.copied(), additional: false });
    }

    /// Sets what a session and all below it may use from now on, beyond what they have used.
    pub fn grant(&mut self, session: &SessionId, budget: &Budget) {
        self.ops.push(Op::Budget { session: session.clone(), budget: Some(*budget), additional: true });
    }

    /// Whether it takes so little time that its caller may write it itself.
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

    /// Whether it changes a conversation, other than its own turn does that and other than by a prompt that goes into the
    /// inbox. What a turn knows of its conversation stays true but for such batches.
    pub(crate) fn invalidates_cache(&self) -> bool {
        let own = |session: &SessionId| self.fence.as_ref().is_some_and(|lease| lease.session == *session);
        let enqueued =
            |id: &MessageId| self.ops.iter().any(|op| matches!(op, Op::Enqueue { message, .. } if message == id));
        let inserted = |id: &MessageId| {
            self.ops.iter().any(|op| matches!(op, Op::Message { id: new, insert: true, .. } if new == id))
        };
        self.ops.iter().any(|op| match op {
            Op::Message { id: message, session, .. } | Op::Part { message, session, .. } => {
                !(own(session) || enqueued(message) && inserted(message))
            }
            // They do not tell the session; a turn removes nothing of another one's.
            Op::DeleteMessage(_) | Op::DeletePart(_) | Op::Dequeue(_) => self.fence.is_none(),
            Op::DeleteSession(_) => true,
            _ => false,
        })
    }

    /// Adds a change. A row that is written twice gets its last state only, where it was written first: new rows are
    /// ordered as they come. What is told of it stays as it is.
    fn push(&mut self, mut op: Op) {
        // What stands before a reservation is written even if there is no room for what follows, and nothing is written
        // before a row goes that has the same id.
        let is_barrier =
            |op: &Op| matches!(op, Op::Reserve(_) | Op::DeletePart(_) | Op::DeleteMessage(_) | Op::DeleteSession(_));
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

    fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Option<String> {
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
