//! Deletes the rows of deleted sessions, and expired records, in steps. Each step is its own transaction, so that
//! nobody waits long for the lock. If a crash interrupts it, the session stays in `removed` for the next sweep.

use std::collections::HashMap;

use api::{Event, EventBody, SessionId, Timestamp};
use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::sqlite::log;
use crate::sqlite::row::{self, int, uint};

/// The most rows deleted in one step.
const MAX_ROWS: usize = 500;

/// The most file versions of a session deleted in one step; each may have 64 KB.
const MAX_FILES: usize = 64;

/// The bytes of rows and events after which a step ends.
const MAX_BYTES: u64 = 4 << 20;

/// The most log rows examined in one step.
const MAX_EVENTS: u64 = 4096;

/// The type of the event that reports a deletion.
const SESSION_DELETED: &str = "session.deleted";

/// The events from `?1` to before `?2` that still have content of a deleted session.
const OF_DELETED: &str = "seq >= ?1 AND seq < ?2 AND json IS NOT NULL
     AND EXISTS (SELECT 1 FROM removed WHERE removed.session = event.session AND event.seq <= removed.seq)";

/// Deleted sessions that may still have rows, events or files.
pub(crate) fn unswept(conn: &Connection) -> Result<Vec<SessionId>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT session FROM removed ORDER BY session")?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    ids.map(|id| row::id("removed", &id?)).collect()
}

/// The progress of a sweep.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sweep {
    /// Records that expire up to this time are to be deleted.
    expired: Option<Timestamp>,
    /// The deleted sessions to sweep.
    pub sessions: Vec<String>,
    /// How many of them have no rows left.
    swept: usize,
    /// Events up to this sequence number have no content any more.
    scrubbed: u64,
}

impl Sweep {
    pub(crate) fn new(sessions: Vec<String>) -> Self {
        Self { sessions, ..Self::default() }
    }

    /// Deletes the records that have expired by `now`, and nothing else.
    pub(crate) fn of_records(now: Timestamp) -> Self {
        Self { expired: Some(now), ..Self::default() }
    }

    /// Does one step inside a transaction. Returns the new progress, or `None` when everything is done.
    pub(crate) fn step(&self, conn: &Connection) -> Result<Option<Self>, StoreError> {
        if let Some(now) = self.expired {
            return Ok((delete_expired(conn, now, MAX_ROWS)? == MAX_ROWS).then(|| self.clone()));
        }
        let mut next = self.clone();
        if let Some(session) = self.sessions.get(self.swept) {
            next.swept += usize::from(delete_rows(conn, session)?);
            return Ok(Some(next));
        }
        match scrub_events(conn, self.scrubbed)? {
            Some(scrubbed) => {
                next.scrubbed = scrubbed;
                Ok(Some(next))
            }
            None => {
                let mut statement = conn.prepare_cached("DELETE FROM removed WHERE session = ?1")?;
                for session in &self.sessions {
                    statement.execute([session])?;
                }
                delete_unreferenced_texts(conn)?;
                Ok(None)
            }
        }
    }
}

/// Deletes records that have expired, at most `limit`. Returns how many.
pub(crate) fn delete_expired(conn: &Connection, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM record WHERE (namespace, key) IN (SELECT namespace, key FROM record WHERE expires <= ?1 LIMIT ?2)",
    )?;
    Ok(statement.execute(params![now, int(limit as u64)])?)
}

/// Deletes the shared texts that no row refers to.
fn delete_unreferenced_texts(conn: &Connection) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM shared WHERE hash NOT IN (
             SELECT data FROM inbox WHERE data IS NOT NULL
             UNION SELECT data FROM session WHERE data IS NOT NULL)",
    )?;
    statement.execute([])?;
    Ok(())
}

/// Deletes rows of a session. Returns true once none are left. A session that exists again under its old id keeps its
/// rows.
fn delete_rows(conn: &Connection, session: &str) -> Result<bool, StoreError> {
    let existing = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM session WHERE id = ?1)")?;
    if exists(existing, session)? {
        return Ok(true);
    }
    let mut limit = StepLimit { rows: MAX_ROWS, bytes: MAX_BYTES };
    let mut first = conn.prepare_cached("SELECT id FROM message WHERE session = ?1 ORDER BY position LIMIT 1")?;
    let mut parts = conn.prepare_cached("SELECT id, octet_length(json) FROM part WHERE message = ?1 LIMIT ?2")?;
    let mut drop_part = conn.prepare_cached("DELETE FROM part WHERE id = ?1")?;
    let mut drop_message = conn.prepare_cached("DELETE FROM message WHERE id = ?1")?;
    let mut records = RecordIndex::default();
    while let Some(message) = first.query_map([session], |row| row.get::<_, String>(0))?.next().transpose()? {
        let found = parts.query_map(params![message, int(MAX_ROWS as u64)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (part, bytes) in found.collect::<Result<Vec<(String, i64)>, _>>()? {
            if !limit.take(uint(bytes)) {
                return Ok(false);
            }
            records.delete_for_part(conn, &part)?;
            drop_part.execute([&part])?;
        }
        if !limit.take(0) {
            return Ok(false);
        }
        // The message may have more parts than one query returns.
        if parts.query(params![message, 1])?.next()?.is_none() {
            drop_message.execute([&message])?;
        }
    }
    for (sql, limit) in [
        ("DELETE FROM ask WHERE id IN (SELECT id FROM ask WHERE session = ?1 LIMIT ?2)", MAX_ROWS),
        (
            "DELETE FROM turn WHERE session = ?1 AND number IN (SELECT number FROM turn WHERE session = ?1 LIMIT ?2)",
            MAX_ROWS,
        ),
        (
            "DELETE FROM touched WHERE session = ?1 AND path IN (SELECT path FROM touched WHERE session = ?1 LIMIT ?2)",
            MAX_ROWS,
        ),
        (
            "DELETE FROM file_version WHERE session = ?1
             AND path IN (SELECT path FROM file_version WHERE session = ?1 LIMIT ?2)",
            MAX_FILES,
        ),
    ] {
        if conn.prepare_cached(sql)?.execute(params![session, int(limit as u64)])? == limit {
            return Ok(false);
        }
    }
    Ok(true)
}

fn exists(mut statement: rusqlite::CachedStatement<'_>, key: &str) -> Result<bool, StoreError> {
    Ok(statement.query_row([key], |row| row.get(0))?)
}

/// What a step may still delete.
struct StepLimit {
    rows: usize,
    bytes: u64,
}

impl StepLimit {
    /// Takes a row from the limit, or returns false to leave it for the next step. The first row is always taken.
    fn take(&mut self, bytes: u64) -> bool {
        if self.rows == 0 || self.bytes == 0 {
            return false;
        }
        self.rows -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

/// Records by key. There are few of them, but no index on the key alone.
#[derive(Default)]
struct RecordIndex(Option<HashMap<String, Vec<String>>>);

impl RecordIndex {
    /// Deletes the records of a part.
    fn delete_for_part(&mut self, conn: &Connection, part: &str) -> Result<(), StoreError> {
        if self.0.is_none() {
            let mut all: HashMap<String, Vec<String>> = HashMap::new();
            let mut statement = conn.prepare_cached("SELECT key, namespace FROM record")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                all.entry(row.get(0)?).or_default().push(row.get(1)?);
            }
            self.0 = Some(all);
        }
        for namespace in self.0.iter_mut().filter_map(|all| all.remove(part)).flatten() {
            conn.prepare_cached("DELETE FROM record WHERE namespace = ?1 AND key = ?2")?.execute([&namespace, part])?;
        }
        Ok(())
    }
}

/// Removes the content of the next events of deleted sessions. The rows stay, so that cursors stay valid and sequence
/// numbers have no gaps; the deletion event stays, without the session's content. Returns the sequence number reached.
fn scrub_events(conn: &Connection, after: u64) -> Result<Option<u64>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT coalesce(max(seq), 0) FROM removed")?;
    let end = uint(statement.query_row([], |row| row.get(0))?).min(log::tip(conn)?);
    let from = log::first(conn)?.max(after + 1);
    if from > end {
        return Ok(None);
    }
    let to = log::chunk_end(conn, from, end + 1, MAX_EVENTS, MAX_BYTES)?;
    let range = params![int(from), int(to)];
    let mut deletions = Vec::new();
    let mut statement = conn.prepare_cached(&format!("SELECT seq, json FROM event WHERE {OF_DELETED}"))?;
    let mut rows = statement.query(range)?;
    while let Some(row) = rows.next()? {
        let json = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        if let Some(deletion) = deletion_without_content(json) {
            deletions.push((row.get::<_, i64>(0)?, deletion));
        }
    }
    drop(rows);
    conn.prepare_cached(&format!("UPDATE event SET part = NULL, length = NULL, json = NULL WHERE {OF_DELETED}"))?
        .execute(range)?;
    let mut keep = conn.prepare_cached("UPDATE event SET json = ?2 WHERE seq = ?1")?;
    for (seq, json) in deletions {
        keep.execute(params![seq, json])?;
    }
    Ok(Some(to - 1))
}

/// The deletion of a session without anything of its content; `None` for any other event.
fn deletion_without_content(json: &str) -> Option<String> {
    if Event::type_of(json.as_bytes())? != SESSION_DELETED {
        return None;
    }
    let mut event: Event = serde_json::from_str(json).ok()?;
    let EventBody::SessionDeleted { info, .. } = &mut event.body else { return None };
    **info = info.tombstone();
    serde_json::to_string(&event).ok()
}
