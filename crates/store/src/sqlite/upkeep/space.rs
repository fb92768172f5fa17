//! What takes how much space, and how it is given back.
//!
//! A file that this version has made gives free pages back in small steps: the writer does that when nobody wants anything
//! from it. An older file can only be rewritten as a whole ([`Store::compact`](crate::Store::compact)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use api::SessionId;
use rusqlite::Connection;

use crate::error::{DatabaseErrorKind, StoreError};
use crate::sqlite::file::identity::sibling;
use crate::sqlite::row::{self, int, uint};
use crate::sqlite::schema;

/// So many free pages are kept for what is written next.
pub(crate) const KEPT_FREE_PAGES: u64 = 1024;

/// The most pages that one step gives back: it holds the lock for some milliseconds.
const MAX_RELEASED_PAGES: u64 = 256;

/// What `PRAGMA auto_vacuum` says of a file that can give pages back.
const AUTO_VACUUM_INCREMENTAL: i64 = 2;

/// What takes how much of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes of the file.
    pub database: u64,
    /// Bytes of the write-ahead log sibling it.
    pub wal: u64,
    /// Bytes of the file that nothing uses.
    pub free: u64,
    /// Whether those are given back by themselves. A file of an older version must be rewritten for that.
    pub can_shrink: bool,
    /// Events in the log.
    pub events: u64,
    /// Bytes of their content.
    pub event_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of their messages and parts.
    pub session_bytes: u64,
    /// Deleted sessions of which something is left, and the bytes of that.
    pub orphans: u64,
    /// Bytes of their messages, parts and events.
    pub orphan_bytes: u64,
}

/// What became of the wish to make the file as small as it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactOutcome {
    /// It was rewritten.
    Rewritten,
    /// Its free pages were given back; it was not rewritten, and this is why.
    PagesFreed(String),
    /// It is as it was, and this is why.
    Unchanged(String),
}

fn number(conn: &Connection, sql: &str) -> Result<u64, StoreError> {
    Ok(uint(conn.query_row(sql, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0)))
}

/// Sessions that are gone but have messages, or events with content: deleted by this version and not swept to the end, or
/// by an older one, which left its events.
const ORPHANED: &str = "SELECT DISTINCT session FROM message WHERE session NOT IN (SELECT id FROM session)
     UNION SELECT DISTINCT session FROM event WHERE session NOT IN (SELECT id FROM session) AND json IS NOT NULL
         AND (json ->> '$.type' <> 'session.deleted' OR json ->> '$.properties.info.title' <> '')";

/// What takes how much, by reading alone. The schema may be an older one.
pub(crate) fn disk_usage(path: &Path, busy: Duration) -> Result<DiskUsage, StoreError> {
    let read = |conn: &Connection| -> Result<DiskUsage, StoreError> {
        let snapshot = conn.unchecked_transaction()?;
        let page = number(&snapshot, "PRAGMA page_size")?;
        let bytes = |table: &str, of: &str| {
            number(&snapshot, &format!("SELECT sum(octet_length(json)) FROM {table} WHERE {of}"))
        };
        let orphaned = format!("session IN ({ORPHANED})");
        let existing = "session IN (SELECT id FROM session)";
        Ok(DiskUsage {
            database: number(&snapshot, "PRAGMA page_count")?.saturating_mul(page),
            wal: fs::metadata(sibling(path, "-wal")).map_or(0, |file| file.len()),
            free: number(&snapshot, "PRAGMA freelist_count")?.saturating_mul(page),
            can_shrink: can_shrink(&snapshot)?,
            events: number(&snapshot, "SELECT count(*) FROM event")?,
            event_bytes: bytes("event", "1")?,
            sessions: number(&snapshot, "SELECT count(*) FROM session")?,
            session_bytes: bytes("message", existing)? + bytes("part", existing)?,
            orphans: number(&snapshot, &format!("SELECT count(*) FROM ({ORPHANED})"))?,
            orphan_bytes: bytes("message", &orphaned)? + bytes("part", &orphaned)? + bytes("event", &orphaned)?,
        })
    };
    schema::inspect(path, busy, read).map_err(|error| error.at(path))
}

/// Sessions that are gone, but of which something is left.
pub(crate) fn orphaned_sessions(conn: &Connection) -> Result<Vec<SessionId>, StoreError> {
    let mut statement = conn.prepare(ORPHANED)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    ids.map(|id| row::id("removed", &id?)).collect()
}

/// Whether a file can give pages back.
pub(crate) fn can_shrink(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached("PRAGMA auto_vacuum")?.query_row([], |row| row.get::<_, i64>(0))? == AUTO_VACUUM_INCREMENTAL)
}

/// Gives some free pages back, but for those to be kept; false if there were none.
pub(crate) fn release_free_pages(conn: &Connection, keep: u64) -> Result<bool, StoreError> {
    let free = number(conn, "PRAGMA freelist_count")?;
    if free <= keep || !can_shrink(conn)? {
        return Ok(false);
    }
    conn.pragma(None, "incremental_vacuum", int((free - keep).min(MAX_RELEASED_PAGES)), |_| Ok(()))?;
    Ok(number(conn, "PRAGMA freelist_count")? < free)
}

/// Moves everything that was written into the file itself and empties the write-ahead log, as far as nobody reads it.
pub(crate) fn truncate_wal(conn: &Connection) -> Result<(), StoreError> {
    Ok(conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

/// Writes the whole file anew: needs as much space again, here and where temporary files are. Afterwards it can give pages
/// back by itself.
pub(crate) fn rewrite(conn: &Connection) -> Result<(), StoreError> {
    conn.pragma_update(None, "auto_vacuum", "incremental")?;
    // Not in memory, where we have temporary tables otherwise: this one is as large as the database.
    conn.pragma_update(None, "temp_store", "file")?;
    let done = conn.execute_batch("VACUUM");
    conn.pragma_update(None, "temp_store", "memory")?;
    Ok(done?)
}

/// Why there is no room for the whole file a second time, if there is none.
pub(crate) fn missing_space(path: &Path, needed: u64) -> Option<String> {
    let folder = path.parent()?;
    let free = rustix::fs::statvfs(folder).ok()?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    (free < needed).then(|| {
        let mb = |bytes: u64| bytes.div_ceil(1_000_000);
        format!("rewriting it needs {} MB of space, and {} has {} MB left", mb(needed), folder.display(), mb(free))
    })
}

/// What to say of a rewrite that failed for a reason that may pass.
pub(crate) fn transient_reason(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Database { kind: DatabaseErrorKind::Full, .. } => {
            Some("there is not enough space to rewrite it, here or where temporary files are".to_owned())
        }
        StoreError::Database { kind: DatabaseErrorKind::Busy, .. } => Some("another process uses it".to_owned()),
        _ => None,
    }
}
