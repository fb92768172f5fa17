//! Applies one batch inside a transaction, under a savepoint if the transaction has several batches.

use std::sync::Arc;

use api::{
    Approval, ApprovalId, Cursor, Event, EventBody, Frame, IdStamp, MessageId, PartId, Session, SessionId, Timestamp,
    TurnId, TurnState,
};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use crate::batch::{Batch, Location, Op, SessionRow};
use crate::budget::BudgetExceeded;
use crate::error::StoreError;
use crate::lease::AcquireOutcome;
use crate::session_change::SessionChange;
use crate::sqlite::row::{self, int, uint};
use crate::sqlite::turn::EndOutcome;
use crate::sqlite::upkeep::sweep;
use crate::sqlite::{hold, lease, ledger, log, task, turn, worktree};

/// Answers an ask that is still open.
const ANSWER: &str = "UPDATE ask SET reply = ?2 WHERE id = ?1 AND reply IS NULL";

/// How many expired records go with each write of one that expires, so that they cannot pile up between two sweeps.
const EXPIRED_PER_WRITE: usize = 2;

/// What a batch wrote.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The frames for watchers, in order: its events and the text deltas between them, without progress rows.
    pub frames: Vec<Frame>,
    /// The greatest sequence number it used, including progress rows.
    pub last: u64,
    /// The versions of the records it wrote.
    pub versions: Vec<u64>,
    /// The number of rows it added to the log.
    pub logged: u64,
    /// The total bytes of the log including these rows, and how many bytes they added. `None` if it added no rows.
    pub total: Option<u64>,
    pub logged_bytes: u64,
    /// The exceeded budget, and how many changes came before the reservation; only those were applied.
    pub budget_exceeded: Option<(usize, Box<BudgetExceeded>)>,
    /// The lease acquired together with the batch.
    pub claimed: Option<AcquireOutcome>,
    /// The turn that the batch added a prompt to, or began, and its session.
    pub turn: Option<(SessionId, u64)>,
    /// The owners of the sessions that it deleted, if they have one.
    pub deleted_owners: Vec<(SessionId, String)>,
    /// How many changes came before the end of a turn that continues; only those were applied.
    pub turn_continues: Option<usize>,
    /// Whether other turns wait after the one that the batch ended.
    pub more_turns: bool,
}

impl Applied {
    /// How many changes of the batch were applied.
    pub(crate) fn count(&self, batch: &Batch) -> usize {
        let exceeded = self.budget_exceeded.as_ref().map(|(count, _)| *count);
        exceeded.or(self.turn_continues).unwrap_or(batch.ops.len())
    }
}

pub(crate) fn batch(conn: &Connection, batch: &Batch) -> Result<Applied, StoreError> {
    if let Some(why) = &batch.invalid {
        return Err(StoreError::Invalid(why.clone()));
    }
    if let Some(lease) = &batch.fence {
        let held = lease::row(conn, &lease.session)?;
        if held.is_none_or(|(owner, epoch)| owner != lease.owner || epoch != lease.epoch) {
            return Err(StoreError::Stale { session: lease.session.clone() });
        }
    }
    let mut applied = Applied::default();
    for (before, op) in batch.ops.iter().enumerate() {
        if let Op::Reserve(call) = op
            && let Some(exceeded) = ledger::reserve(conn, call)?
        {
            applied.budget_exceeded = Some((before, Box::new(exceeded)));
            break;
        }
        if let Op::EndTurn(end) = op {
            match turn::end(conn, end)? {
                EndOutcome::Ended { more_turns } => applied.more_turns = more_turns,
                EndOutcome::Continues => {
                    applied.turn_continues = Some(before);
                    break;
                }
            }
        }
        apply(conn, batch, op, &mut applied)?;
    }
    Ok(applied)
}

fn run(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
    Ok(conn.prepare_cached(sql)?.execute(params)?)
}

/// Applies one change: an arm for each kind.
fn apply(conn: &Connection, batch: &Batch, op: &Op, applied: &mut Applied) -> Result<(), StoreError> {
    let location = &batch.location;
    match op {
        Op::Event { event, json, part } => {
            let (id, length) = part.as_ref().map_or((None, None), |(id, length)| (Some(id.as_str()), *length));
            log_event(conn, batch, event, json, (id, length), applied)?;
        }
        Op::Delta(event) => {
            let (directory, project) = (location.directory.clone(), location.project.clone());
            applied.frames.push(Frame::live(directory, project, event.clone()).of_turn(location.turn));
        }
        Op::Progress { id, session, length } => {
            let (session, part, length) = (Some(session.as_str()), Some(id.as_str()), Some(*length));
            let row = LogRow { session, turn: location.turn, part, length, ..LogRow::default() };
            log(conn, location, &row, applied)?;
        }
        Op::Status { session, status } => put_status(conn, session, status.as_deref())?,
        Op::Session(row) => put_session(conn, row)?,
        Op::ChangeSession { id, change } => change_session(conn, batch, id, change, applied)?,
        Op::DeleteSession(id) => {
            let owner = turn::session_owner(conn, id)?;
            applied.deleted_owners.extend(owner.map(|owner| (id.clone(), owner)));
            delete_session(conn, id)?;
        }
        Op::MarkOrphaned(id) => mark_orphaned(conn, id)?,
        Op::RequireSession(id) => require_session(conn, id)?,
        Op::Message { id, session, json, open, insert } => {
            let turn = turn_of(batch, applied, session);
            message(conn, (id, session), turn, (json, *open), *insert)?;
        }
        Op::AnswerEnded { session, error } => {
            let sql = "UPDATE turn SET error = ?3 WHERE session = ?1 AND number = ?2 AND error IS NOT ?3";
            run(conn, sql, params![session.as_str(), turn_of(batch, applied, session).map(int), error])?;
        }
        Op::DeleteMessage(id) => delete_message(conn, id)?,
        Op::Part { id, session, message, open, running, json } => {
            put_part(conn, (id, session, message), (*open, *running), json)?;
        }
        Op::DeletePart(id) => {
            run(conn, "DELETE FROM part WHERE id = ?1", [id.as_str()])?;
        }
        Op::Share(text) => {
            let sql = "INSERT INTO shared (hash, text) SELECT ?1, ?2
                       WHERE NOT EXISTS (SELECT 1 FROM shared WHERE hash = ?1)";
            run(conn, sql, [text.hash(), text.text()])?;
        }
        Op::Enqueue(prompt) => {
            applied.turn = turn::enqueue(conn, prompt)?.map(|number| (prompt.session.clone(), number));
        }
        Op::Promote { queued, message } => applied.turn = turn::promote(conn, queued, message)?,
        Op::BeginTurn { session, number, is_joinable } => {
            applied.turn = Some((session.clone(), turn::begin(conn, session, *number, *is_joinable)?));
        }
        Op::SuspendTurn { session, number } => turn::suspend(conn, session, *number)?,
        Op::CancelQueued(turn) => {
            turn::cancel_queued(conn, turn)?;
            applied.turn = Some((turn.session.clone(), turn.number));
        }
        Op::TurnEvent(session, state) => turn_event(conn, batch, session, *state, applied)?,
        Op::SessionData { session, data } => {
            run(conn, "UPDATE session SET data = ?2 WHERE id = ?1", params![session.as_str(), data])?;
        }
        Op::SessionOwner { session, owner } => {
            run(conn, "UPDATE session SET owner = ?2 WHERE id = ?1", params![session.as_str(), owner])?;
        }
        Op::Dequeue(message) => {
            run(conn, "DELETE FROM inbox WHERE message = ?1", [message.as_str()])?;
        }
        Op::CountAttempt(message) => {
            run(conn, "UPDATE inbox SET attempts = attempts + 1 WHERE message = ?1", [message.as_str()])?;
        }
        Op::Ask { id, session, kind, call, json } => {
            run(
                conn,
                "INSERT INTO ask (id, session, project, directory, kind, call, json) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO NOTHING",
                params![id, session.as_str(), &*location.project, &*location.directory, kind.name(), call, json],
            )?;
        }
        Op::Answer { id, reply } => answer(conn, id, reply)?,
        Op::AnswerIfOpen { id, reply, event, json } => {
            if run(conn, ANSWER, params![id, reply])? > 0 {
                log_event(conn, batch, event, json, (None, None), applied)?;
            }
        }
        Op::Approve(approval) => approve(conn, approval)?,
        Op::Revoke(approval) => {
            run(conn, "DELETE FROM approval WHERE ?1 IS NULL OR id = ?1", [approval.as_ref().map(ApprovalId::as_str)])?;
        }
        Op::Todos { session, json } => {
            run(conn, "INSERT OR REPLACE INTO todo (session, json) VALUES (?1, ?2)", params![session.as_str(), json])?;
        }
        Op::Project { id, json } => {
            let sql = "INSERT INTO project (id, json) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET json = ?2";
            run(conn, sql, params![id, json])?;
        }
        Op::Record { namespace, key, value, expect, expires } => {
            let value = value.as_deref().map(|json| (json, *expires));
            record(conn, (namespace, key), value, *expect, applied)?;
        }
        Op::RecordIfChanged { namespace, key, value } => record_if_changed(conn, (namespace, key), value, applied)?,
        Op::Release(lease) => {
            let sql = "DELETE FROM lease WHERE session = ?1 AND owner = ?2 AND epoch = ?3";
            run(conn, sql, params![lease.session.as_str(), lease.owner, int(lease.epoch)])?;
        }
        Op::Usage { session, used } => ledger::add(conn, session.as_str(), used)?,
        Op::ChangedFile { session, file } => ledger::count_changed_file(conn, session.as_str(), file)?,
        Op::FileVersion { session, path, version } => {
            let sql = "INSERT OR REPLACE INTO file_version (session, path, hash, content) VALUES (?1, ?2, ?3, ?4)";
            run(conn, sql, params![session.as_str(), path, version.hash, version.content])?;
        }
        Op::CopyFileVersions { from, to } => {
            let sql = "INSERT OR REPLACE INTO file_version (session, path, hash)
                       SELECT ?2, path, hash FROM file_version WHERE session = ?1";
            run(conn, sql, params![from.as_str(), to.as_str()])?;
        }
        // Handled by the caller, because they decide whether the rest is applied.
        Op::Reserve(_) | Op::EndTurn(_) => {}
        Op::Spend { id, used } => ledger::spend(conn, id, used)?,
        Op::Budget { session, budget, is_additional } => {
            ledger::set_budget(conn, session, budget.as_ref(), *is_additional)?
        }
        Op::Hold(op) => hold::apply(conn, op)?,
        Op::Task(op) => task::apply(conn, op)?,
        Op::Worktree { session, row } => worktree::put(conn, session, row.as_deref())?,
    }
    Ok(())
}

fn put_status(conn: &Connection, session: &SessionId, json: Option<&str>) -> Result<(), StoreError> {
    let sql = "INSERT INTO status (session, json) VALUES (?1, ?2) ON CONFLICT (session) DO UPDATE SET json = ?2";
    match json {
        Some(json) => run(conn, sql, params![session.as_str(), json])?,
        None => run(conn, "DELETE FROM status WHERE session = ?1", [session.as_str()])?,
    };
    Ok(())
}

/// Lists a session that is only partly there among the deleted ones, so that the rest is swept.
fn mark_orphaned(conn: &Connection, id: &SessionId) -> Result<(), StoreError> {
    let sql = "INSERT OR IGNORE INTO removed (session, seq) SELECT ?1, (SELECT coalesce(max(seq), 0) FROM event)
               WHERE NOT EXISTS (SELECT 1 FROM session WHERE id = ?1)";
    run(conn, sql, [id.as_str()]).map(drop)
}

fn require_session(conn: &Connection, id: &SessionId) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM session WHERE id = ?1)")?;
    if statement.query_row([id.as_str()], |row| row.get(0))? {
        Ok(())
    } else {
        Err(StoreError::NoSession { id: id.clone() })
    }
}

fn delete_message(conn: &Connection, id: &MessageId) -> Result<(), StoreError> {
    for sql in [
        "DELETE FROM part WHERE message = ?1",
        "DELETE FROM inbox WHERE message = ?1",
        "DELETE FROM message WHERE id = ?1",
    ] {
        run(conn, sql, [id.as_str()])?;
    }
    Ok(())
}

/// Writes a part's row. Most parts are written several times; only a new one needs a position.
fn put_part(
    conn: &Connection,
    (id, session, message): (&PartId, &SessionId, &MessageId),
    (open, running): (bool, bool),
    json: &str,
) -> Result<(), StoreError> {
    let sql = "UPDATE part SET open = ?2, running = ?3, json = ?4 WHERE id = ?1";
    if run(conn, sql, params![id.as_str(), open, running, json])? == 0 {
        run(
            conn,
            "INSERT INTO part (id, session, message, open, running, json, position)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT coalesce(max(position), 0) + 1 FROM part WHERE message = ?3))",
            params![id.as_str(), session.as_str(), message.as_str(), open, running, json],
        )?;
    }
    Ok(())
}

/// Logs a `session.turn` about the turn that the batch queued or cancelled.
fn turn_event(
    conn: &Connection,
    batch: &Batch,
    session: &SessionId,
    state: TurnState,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let Some(number) = turn_of(batch, applied, session) else { return Ok(()) };
    let (session_id, turn_id) = (session.clone(), TurnId::new(session, number));
    log_new_event(conn, batch, EventBody::SessionTurn { session_id, turn_id, state }, applied)
}

fn approve(conn: &Connection, approval: &Approval) -> Result<(), StoreError> {
    let Approval { id, project_id, directory, permission, pattern, created } = approval;
    let sql = "INSERT INTO approval (id, project, directory, permission, pattern, created)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    run(conn, sql, params![id.as_str(), project_id, directory, permission, pattern, created]).map(drop)
}

fn record_if_changed(
    conn: &Connection,
    (namespace, key): (&str, &str),
    value: &str,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT json FROM record WHERE namespace = ?1 AND key = ?2 AND expires IS NULL")?;
    let known: Option<String> = statement.query_row([namespace, key], |row| row.get(0)).optional()?;
    if known.as_deref() == Some(value) {
        return Ok(());
    }
    record(conn, (namespace, key), Some((value, None)), None, applied)
}

fn put_session(conn: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let SessionRow { id, project, directory, parent, updated, archived, path, workspace, title, json } = row;
    run(
        conn,
        "INSERT INTO session (id, project, directory, parent, updated, title, json, archived, path, workspace, owner)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, (SELECT owner FROM session WHERE id = ?4))
         ON CONFLICT (id) DO UPDATE SET project = ?2, directory = ?3, parent = ?4, updated = ?5, title = ?6, json = ?7,
             archived = ?8, path = ?9, workspace = ?10",
        params![
            id.as_str(),
            project,
            directory,
            parent.as_ref().map(SessionId::as_str),
            updated,
            title,
            json,
            archived,
            path,
            workspace
        ],
    )?;
    Ok(())
}

fn change_session(
    conn: &Connection,
    batch: &Batch,
    id: &SessionId,
    change: &SessionChange,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached("SELECT json FROM session WHERE id = ?1")?;
    let found: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
    let found = found.ok_or_else(|| StoreError::NoSession { id: id.clone() })?;
    let mut session: Session = row::json("session", id.as_str(), &found)?;
    change.apply(&mut session, api::now());
    let invalid = |error: serde_json::Error| StoreError::Invalid(error.to_string());
    put_session(conn, &SessionRow::new(&session, serde_json::to_string(&session).map_err(invalid)?))?;
    log_new_event(conn, batch, EventBody::session(session), applied)
}

fn log_new_event(conn: &Connection, batch: &Batch, body: EventBody, applied: &mut Applied) -> Result<(), StoreError> {
    let event = Arc::new(Event::new(body));
    let json = serde_json::to_string(&event).map_err(|error| StoreError::Invalid(error.to_string()))?;
    log_event(conn, batch, &event, &Bytes::from(json), (None, None), applied)
}

fn log_event(
    conn: &Connection,
    batch: &Batch,
    event: &Arc<Event>,
    json: &Bytes,
    (part, length): (Option<&str>, Option<usize>),
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let turn = turn_of_event(conn, batch, event, applied)?;
    let session = event.body.session_id().map(SessionId::as_str);
    // JSON is always UTF-8; stored as text, any SQLite tool can read it.
    let text = std::str::from_utf8(json).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let owner = owner_of_deleted(conn, event, applied)?;
    let row = LogRow { id: event.id.as_str(), session, turn, part, length, json: Some(text), owner: owner.as_deref() };
    log(conn, &batch.location, &row, applied)?;
    let cursor = Cursor { seq: applied.last, id: event.id.clone() };
    let (directory, project) = (batch.location.directory.clone(), batch.location.project.clone());
    let frame = Frame::new(Some(cursor), directory, project, event.clone(), json.clone());
    applied.frames.push(frame.of_turn(turn).of_owner(owner));
    Ok(())
}

/// The owner of the session whose deletion an event reports.
fn owner_of_deleted(conn: &Connection, event: &Event, applied: &Applied) -> Result<Option<String>, StoreError> {
    let EventBody::SessionDeleted { session_id, .. } = &event.body else { return Ok(None) };
    match applied.deleted_owners.iter().find(|(id, _)| id == session_id) {
        Some((_, owner)) => Ok(Some(owner.clone())),
        None => turn::session_owner(conn, session_id),
    }
}

/// The turn that an event is part of: the batch's own, or for the answer to an ask the one that asked.
fn turn_of_event(
    conn: &Connection,
    batch: &Batch,
    event: &Event,
    applied: &Applied,
) -> Result<Option<u64>, StoreError> {
    let Some(session) = event.body.session_id() else { return Ok(None) };
    match (turn_of(batch, applied, session), &event.body) {
        (
            None,
            EventBody::PermissionReplied { .. }
            | EventBody::QuestionReplied { .. }
            | EventBody::QuestionRejected { .. },
        ) => turn::running(conn, session),
        (turn, _) => Ok(turn),
    }
}

/// The turn of a session that the batch is part of, or that it has begun or added to.
fn turn_of(batch: &Batch, applied: &Applied, session: &SessionId) -> Option<u64> {
    let own = batch.location.turn.filter(|_| batch.fence.as_ref().is_some_and(|lease| lease.session == *session));
    own.or_else(|| applied.turn.as_ref().filter(|(of, _)| of == session).map(|(_, number)| *number))
}

/// A row of the log.
#[derive(Default)]
struct LogRow<'a> {
    id: &'a str,
    session: Option<&'a str>,
    turn: Option<u64>,
    part: Option<&'a str>,
    length: Option<usize>,
    json: Option<&'a str>,
    owner: Option<&'a str>,
}

fn log(conn: &Connection, location: &Location, row: &LogRow<'_>, applied: &mut Applied) -> Result<(), StoreError> {
    let LogRow { id, session, turn, part, length, json, owner } = row;
    let length = length.map(|length| i64::try_from(length).unwrap_or(i64::MAX));
    let before = applied.total.map_or_else(|| log::total_bytes(conn), Ok)?;
    let bytes = json.map_or(0, str::len) as u64 + log::ROW_OVERHEAD_BYTES;
    let (directory, project, total) = (&*location.directory, &*location.project, int(before + bytes));
    run(
        conn,
        "INSERT INTO event (id, session, directory, project, part, length, total, json, turn, owner)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![id, session, directory, project, part, length, total, json, turn.map(int), owner],
    )?;
    applied.last = uint(conn.last_insert_rowid());
    applied.logged += 1;
    applied.total = Some(before + bytes);
    applied.logged_bytes += bytes;
    Ok(())
}

/// Writes a message's row. A new message goes to the end of its session and stores the greatest id stamp up to there.
fn message(
    conn: &Connection,
    (id, session): (&MessageId, &SessionId),
    turn: Option<u64>,
    (json, open): (&str, bool),
    insert: bool,
) -> Result<(), StoreError> {
    let sql = "UPDATE message SET json = ?2, open = ?3 WHERE id = ?1";
    if !insert && run(conn, sql, params![id.as_str(), json, open])? > 0 {
        return Ok(());
    }
    let stamp = IdStamp::of(id.as_str()).map(|stamp| stamp.to_string()).unwrap_or_default();
    let new = run(
        conn,
        "INSERT INTO message (id, session, position, stamp, turn, json, open)
         SELECT ?1, ?2, coalesce(last.position, 0) + 1, max(coalesce(last.stamp, ''), ?3),
                ?5, ?4, ?6
         FROM (SELECT 1) LEFT JOIN
              (SELECT position, stamp FROM message WHERE session = ?2 ORDER BY position DESC LIMIT 1) AS last
         WHERE true ON CONFLICT DO NOTHING",
        params![id.as_str(), session.as_str(), stamp, json, turn.map_or(0, int), open],
    )?;
    if new == 0 {
        return Err(StoreError::Exists { id: id.clone() });
    }
    Ok(())
}

/// Deletes a session and the few rows that make it look alive. The rest follows in steps
/// ([`sweep`](crate::sqlite::upkeep::sweep)), so that nobody waits long for the lock; until then the session is listed
/// in `removed`.
fn delete_session(conn: &Connection, id: &SessionId) -> Result<(), StoreError> {
    ledger::delete_session(conn, id)?;
    for sql in [
        "DELETE FROM inbox WHERE session = ?1",
        "DELETE FROM todo WHERE session = ?1",
        "DELETE FROM status WHERE session = ?1",
        "DELETE FROM signal WHERE session = ?1",
        "DELETE FROM paused WHERE session = ?1",
        "DELETE FROM blocked WHERE session = ?1",
        "DELETE FROM task_link WHERE parent = ?1",
        "DELETE FROM lease WHERE session = ?1",
        "DELETE FROM ask WHERE session = ?1 AND reply IS NULL",
        "DELETE FROM session WHERE id = ?1",
        "INSERT OR REPLACE INTO removed (session, seq) VALUES (?1, (SELECT coalesce(max(seq), 0) FROM event))",
    ] {
        run(conn, sql, [id.as_str()])?;
    }
    Ok(())
}

fn answer(conn: &Connection, id: &str, reply: &str) -> Result<(), StoreError> {
    if run(conn, ANSWER, params![id, reply])? == 0 {
        let mut statement = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM ask WHERE id = ?1)")?;
        let answered = statement.query_row([id], |row| row.get(0))?;
        return Err(StoreError::NotOpen { id: id.to_owned(), answered });
    }
    Ok(())
}

/// Writes or deletes a record; `value` is its JSON and when it expires.
fn record(
    conn: &Connection,
    (namespace, key): (&str, &str),
    value: Option<(&str, Option<Timestamp>)>,
    expect: Option<u64>,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    if let Some(expected) = expect {
        let mut statement = conn.prepare_cached(
            "SELECT version FROM record WHERE namespace = ?1 AND key = ?2 AND (expires IS NULL OR expires > ?3)",
        )?;
        let found = statement.query_row(params![namespace, key, api::now()], |row| row.get(0)).optional()?;
        let found = found.map_or(0, uint);
        if found != expected {
            let (namespace, key) = (namespace.to_owned(), key.to_owned());
            return Err(StoreError::Conflict { namespace, key, found, expected });
        }
    }
    let Some((json, expires)) = value else {
        run(conn, "DELETE FROM record WHERE namespace = ?1 AND key = ?2", [namespace, key])?;
        return Ok(());
    };
    if expires.is_some() {
        sweep::delete_expired(conn, api::now(), EXPIRED_PER_WRITE)?;
    }
    let version = lease::next_counter(conn, "record")?;
    run(
        conn,
        "INSERT OR REPLACE INTO record (namespace, key, version, json, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![namespace, key, int(version), json, expires],
    )?;
    applied.versions.push(version);
    Ok(())
}
