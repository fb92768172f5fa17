//! Applies one batch inside a transaction, under a savepoint if the transaction has several batches.

mod event;
mod owners;

use std::ops::ControlFlow;
use std::sync::Arc;

use api::{EventBody, FileVersion, Frame, IdStamp, MessageId, PartId, Session, SessionId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::batch::{Batch, Op, SessionRow};
use crate::budget::{BudgetExceeded, LedgerOp};
use crate::error::StoreError;
use crate::lease::AcquireOutcome;
use crate::session_change::SessionChange;
use crate::sqlite::row::{self, int};
use crate::sqlite::{ask, hold, lease, ledger, record, task, turn, worktree};
use crate::turn::TurnOp;
use event::LogRow;
pub(crate) use owners::SessionOwners;

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
    pub deleted_owners: Vec<(SessionId, Arc<str>)>,
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

/// Applies a batch.
pub(crate) fn batch(conn: &Connection, owners: &mut SessionOwners, batch: &Batch) -> Result<Applied, StoreError> {
    if let Some(why) = &batch.invalid {
        return Err(StoreError::Invalid(why.clone()));
    }
    if let Some(lease) = &batch.fence {
        let held = lease::row(conn, &lease.session)?;
        if held.is_none_or(|(owner, epoch)| owner != lease.owner || epoch != lease.epoch) {
            return Err(StoreError::Stale { session: lease.session.clone() });
        }
    }
    let mut writer = BatchWriter { conn, batch, owners, applied: Applied::default() };
    for (before, op) in batch.ops.iter().enumerate() {
        if writer.apply(before, op)?.is_break() {
            break;
        }
    }
    Ok(writer.applied)
}

pub(crate) fn run(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
    Ok(conn.prepare_cached(sql)?.execute(params)?)
}

/// A batch on its way into the database.
pub(crate) struct BatchWriter<'a> {
    pub conn: &'a Connection,
    pub batch: &'a Batch,
    pub owners: &'a mut SessionOwners,
    pub applied: Applied,
}

impl BatchWriter<'_> {
    /// Applies one change, which comes after `before` others. Breaks if it decides that neither it nor the rest is
    /// applied.
    fn apply(&mut self, before: usize, op: &Op) -> Result<ControlFlow<()>, StoreError> {
        let (conn, location) = (self.conn, &self.batch.location);
        match op {
            Op::Event { event, json, part } => {
                let (id, length) = part.as_ref().map_or((None, None), |(id, length)| (Some(id.as_str()), *length));
                self.log_event(event, json, (id, length))?;
            }
            Op::Delta(event) => self.send_live(event)?,
            Op::Progress { id, session, length } => {
                let (session, part, length) = (Some(session.as_str()), Some(id.as_str()), Some(*length));
                self.log(&LogRow { session, turn: location.turn, part, length, ..LogRow::default() })?;
            }
            Op::Status { session, status } => put_status(conn, session, status.as_deref())?,
            Op::Session(row) => put_session(conn, row)?,
            Op::ChangeSession { id, change } => self.change_session(id, change)?,
            Op::DeleteSession(id) => self.delete_session(id)?,
            Op::MarkOrphaned(id) => mark_orphaned(conn, id)?,
            Op::RequireSession(id) => require_session(conn, id)?,
            Op::Message { id, session, json, open, insert } => {
                message(conn, (id, session), self.turn_of(session), (json, *open), *insert)?;
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
            Op::SessionData { session, data } => {
                run(conn, "UPDATE session SET data = ?2 WHERE id = ?1", params![session.as_str(), data])?;
            }
            Op::SessionOwner { session, owner } => {
                self.owners.forget(session);
                run(conn, "UPDATE session SET owner = ?2 WHERE id = ?1", params![session.as_str(), owner])?;
            }
            Op::Todos { session, json } => {
                let sql = "INSERT OR REPLACE INTO todo (session, json) VALUES (?1, ?2)";
                run(conn, sql, params![session.as_str(), json])?;
            }
            Op::Project { id, json } => {
                let sql = "INSERT INTO project (id, json) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET json = ?2";
                run(conn, sql, params![id, json])?;
            }
            Op::Release(lease) => lease::release(conn, lease)?,
            Op::FileVersion { session, path, version } => put_file_version(conn, session, path, version)?,
            Op::CopyFileVersions { from, to } => {
                let sql = "INSERT OR REPLACE INTO file_version (session, path, hash)
                           SELECT ?2, path, hash FROM file_version WHERE session = ?1";
                run(conn, sql, params![from.as_str(), to.as_str()])?;
            }
            Op::Turn(TurnOp::End(end)) => {
                if turn::end(self, end)?.is_break() {
                    self.applied.turn_continues = Some(before);
                    return Ok(ControlFlow::Break(()));
                }
            }
            Op::Turn(op) => turn::apply(self, op)?,
            Op::Ask(op) => ask::apply(self, op)?,
            Op::Record(op) => self.applied.versions.extend(record::apply(conn, op)?),
            Op::Ledger(LedgerOp::Reserve(call)) => {
                if let Some(exceeded) = ledger::reserve(conn, call)? {
                    self.applied.budget_exceeded = Some((before, Box::new(exceeded)));
                    return Ok(ControlFlow::Break(()));
                }
            }
            Op::Ledger(op) => ledger::apply(conn, op)?,
            Op::Hold(op) => hold::apply(conn, op)?,
            Op::Task(op) => task::apply(conn, op)?,
            Op::Worktree { session, row } => worktree::put(conn, session, row.as_deref())?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn change_session(&mut self, id: &SessionId, change: &SessionChange) -> Result<(), StoreError> {
        let mut statement = self.conn.prepare_cached("SELECT json FROM session WHERE id = ?1")?;
        let found: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
        let found = found.ok_or_else(|| StoreError::NoSession { id: id.clone() })?;
        let mut session: Session = row::json("session", id.as_str(), &found)?;
        change.apply(&mut session, api::now());
        let invalid = |error: serde_json::Error| StoreError::Invalid(error.to_string());
        put_session(self.conn, &SessionRow::new(&session, serde_json::to_string(&session).map_err(invalid)?))?;
        self.log_new_event(EventBody::session(session))
    }

    /// Deletes a session, and remembers its owner for the event that reports it.
    fn delete_session(&mut self, id: &SessionId) -> Result<(), StoreError> {
        let owner = self.owners.of(self.conn, id)?;
        self.applied.deleted_owners.extend(owner.map(|owner| (id.clone(), owner)));
        self.owners.forget(id);
        delete_session(self.conn, id)
    }
}

fn put_file_version(
    conn: &Connection,
    session: &SessionId,
    path: &str,
    version: &FileVersion,
) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO file_version (session, path, hash, content) VALUES (?1, ?2, ?3, ?4)";
    run(conn, sql, params![session.as_str(), path, version.hash, version.content]).map(drop)
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
