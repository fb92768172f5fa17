//! The description of one transaction: rows and events that are written together or not at all.

use std::sync::Arc;

use api::{
    Cursor, Event, EventBody, FileVersion, Message, MessageId, Part, PartId, Project, Session, SessionId,
    SessionStatus, Timestamp, Todo, ToolState,
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ask::AskOp;
use crate::budget::{BudgetExceeded, LedgerOp};
use crate::feed::text;
use crate::hold::HoldOp;
use crate::lease::{AcquireOutcome, Lease};
use crate::record::RecordOp;
use crate::session_change::SessionChange;
use crate::shared::SharedText;
use crate::task::TaskOp;
use crate::turn::TurnOp;
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
    SessionData {
        session: SessionId,
        data: String,
    },
    SessionOwner {
        session: SessionId,
        owner: String,
    },
    Todos {
        session: SessionId,
        json: String,
    },
    Project {
        id: String,
        json: String,
    },
    Release(Lease),
    FileVersion {
        session: SessionId,
        path: String,
        version: FileVersion,
    },
    CopyFileVersions {
        from: SessionId,
        to: SessionId,
    },
    Turn(TurnOp),
    Ask(Box<AskOp>),
    Record(Box<RecordOp>),
    Ledger(LedgerOp),
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
            self.ops.push(Op::Turn(TurnOp::AnswerEnded { session, error }));
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

    /// Releases a lease. Does nothing if it was lost.
    pub fn release(&mut self, lease: &Lease) {
        self.ops.push(Op::Release(lease.clone()));
    }

    /// Stores the content of a file as a session last read or wrote it.
    pub fn file_version(&mut self, session: &SessionId, path: &str, version: FileVersion) {
        self.ops.push(Op::FileVersion { session: session.clone(), path: path.to_owned(), version });
    }

    /// Copies the hashes of all files that a session knows to its copy. Contents are not copied: they can be large.
    pub fn copy_file_versions(&mut self, from: &SessionId, to: &SessionId) {
        self.ops.push(Op::CopyFileVersions { from: from.clone(), to: to.clone() });
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
            self.ops.iter().any(
                |op| matches!(op, Op::Turn(TurnOp::Enqueue(prompt)) if prompt.message == *id && prompt.input.is_none()),
            )
        };
        let inserted = |id: &MessageId| {
            self.ops.iter().any(|op| matches!(op, Op::Message { id: new, insert: true, .. } if new == id))
        };
        self.ops.iter().any(|op| match op {
            Op::Message { id: message, session, .. } | Op::Part { message, session, .. } => {
                !(own(session) || enqueued(message) && inserted(message))
            }
            // These do not name the session, but a turn deletes nothing of other sessions.
            Op::DeleteMessage(_) | Op::DeletePart(_) | Op::Turn(TurnOp::Dequeue(_)) => self.fence.is_none(),
            Op::DeleteSession(_) => true,
            _ => false,
        })
    }

    /// Adds a change. If a row is written twice, its last state takes the first one's position, because new rows are
    /// ordered by their position in the batch. Events are not merged.
    fn push(&mut self, mut op: Op) {
        // Changes before a reservation, or before the end of a turn, are written even if the rest is not, and a row must
        // not move before the deletion of a row with the same id.
        let is_barrier = |op: &Op| {
            matches!(
                op,
                Op::Ledger(LedgerOp::Reserve(_))
                    | Op::Turn(TurnOp::End(_))
                    | Op::DeletePart(_)
                    | Op::DeleteMessage(_)
                    | Op::DeleteSession(_)
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
