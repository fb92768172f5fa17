//! Reports what uses the space of the file, and releases it.
//!
//! A file created by this version releases free pages in small steps, which the writer does when it is idle. An older
//! file can only be rewritten as a whole ([`Store::compact`](crate::Store::compact)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use api::SessionId;
use rusqlite::Connection;

use crate::error::{DatabaseErrorKind, StoreError};
use crate::sqlite::file::identity::sibling;
use crate::sqlite::row::{self, int, uint};
use crate::sqlite::schema;

/// Free pages that are kept for the next writes.
pub(crate) const KEPT_FREE_PAGES: u64 = 1024;

/// The most pages released in one step, which holds the lock for a few milliseconds.
const MAX_RELEASED_PAGES: u64 = 256;

/// The value of `PRAGMA auto_vacuum` for a file that can release pages.
const AUTO_VACUUM_INCREMENTAL: i64 = 2;

/// What uses the space of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes of the file.
    pub database: u64,
    /// Bytes of the write-ahead log next to it.
    pub wal: u64,
    /// Unused bytes of the file.
    pub free: u64,
    /// Whether the file releases them by itself. An older version's file must be rewritten first.
    pub can_shrink: bool,
    /// Events in the log.
    pub events: u64,
    /// Bytes of their content.
    pub event_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of their messages and parts.
    pub session_bytes: u64,
    /// Deleted sessions that still have messages or events.
    pub orphans: u64,
    /// Bytes of their messages, parts and events.
    pub orphan_bytes: u64,
}

/// The outcome of compacting the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactOutcome {
    /// The file was rewritten.
    Rewritten,
    /// Free pages were released, but the file was not rewritten, for this reason.
    PagesFreed(String),
    /// The file is unchanged, for this reason.
    Unchanged(String),
}

fn number(conn: &Connection, sql: &str) -> Result<u64, StoreError> {
    Ok(uint(conn.query_row(sql, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0)))
}

/// Sessions without a row that still have messages, or events with content: not completely swept yet, or deleted by an
/// older version, which left their events.
const ORPHANED: &str = "SELECT DISTINCT session FROM message WHERE session NOT IN (SELECT id FROM session)
     UNION SELECT DISTINCT session FROM event WHERE session NOT IN (SELECT id FROM session) AND json IS NOT NULL
         AND (json ->> '$.type' <> 'session.deleted' OR json ->> '$.properties.info.title' <> '')";

/// Reports what uses the space. Only reads, and also understands older schemas.
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

/// Sessions without a row that still have messages or events.
pub(crate) fn orphaned_sessions(conn: &Connection) -> Result<Vec<SessionId>, StoreError> {
    let mut statement = conn.prepare(ORPHANED)?;
    let ids = statement.query_map([], |row| row.get::<_, String>(0))?;
    ids.map(|id| row::id("removed", &id?)).collect()
}

/// Whether the file can release pages.
pub(crate) fn can_shrink(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached("PRAGMA auto_vacuum")?.query_row([], |row| row.get::<_, i64>(0))? == AUTO_VACUUM_INCREMENTAL)
}

/// Releases some free pages, except `keep` of them. Returns false if there were none.
pub(crate) fn release_free_pages(conn: &Connection, keep: u64) -> Result<bool, StoreError> {
    let free = number(conn, "PRAGMA freelist_count")?;
    if free <= keep || !can_shrink(conn)? {
        return Ok(false);
    }
    conn.pragma(None, "incremental_vacuum", int((free - keep).min(MAX_RELEASED_PAGES)), |_| Ok(()))?;
    Ok(number(conn, "PRAGMA freelist_count")? < free)
}

/// Moves the WAL into the file and truncates it, as far as no reader needs it.
pub(crate) fn truncate_wal(conn: &Connection) -> Result<(), StoreError> {
    Ok(conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

/// Rewrites the whole file. Needs as much space again, here and in the folder of temporary files. Afterwards the file
/// releases free pages by itself.
pub(crate) fn rewrite(conn: &Connection) -> Result<(), StoreError> {
    conn.pragma_update(None, "auto_vacuum", "incremental")?;
    // Temporary tables are otherwise in memory, but this one is as large as the database.
    conn.pragma_update(None, "temp_store", "file")?;
    let done = conn.execute_batch("VACUUM");
    conn.pragma_update(None, "temp_store", "memory")?;
    Ok(done?)
}

/// Why there is not enough space for a second copy of the file, if so.
pub(crate) fn missing_space(path: &Path, needed: u64) -> Option<String> {
    let folder = path.parent()?;
    let free = rustix::fs::statvfs(folder).ok()?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    (free < needed).then(|| {
        let mb = |bytes: u64| bytes.div_ceil(1_000_000);
        format!("rewriting it needs {} MB of space, and {} has {} MB left", mb(needed), folder.display(), mb(free))
    })
}

/// The reason to report for a rewrite that failed transiently.
pub(crate) fn transient_reason(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Database { kind: DatabaseErrorKind::Full, .. } => {
            Some("there is not enough space to rewrite it, here or where temporary files are".to_owned())
        }
        StoreError::Database { kind: DatabaseErrorKind::Busy, .. } => Some("another process uses it".to_owned()),
        _ => None,
    }
}
