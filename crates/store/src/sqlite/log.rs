//! Reads the log, for replay and to follow what other processes committed.

use std::sync::Arc;

use api::{Cursor, EventId, Frame, Part, PartId};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::batch::Location;
use crate::error::StoreError;
use crate::feed::stored::{GrowingPartRow, LogEnd, LogEntry, LogPage, StoredLog};
use crate::feed::text;
use crate::sqlite::read::Readers;
use crate::sqlite::row::{self, int, uint};

impl StoredLog for Readers {
    fn check_cursor(&self, cursor: &Cursor) -> Result<Option<String>, StoreError> {
        self.read(|conn| check_cursor(conn, cursor))
    }

    fn page(&self, after: u64, end: u64, bytes: usize) -> Result<LogPage, StoreError> {
        self.read(|conn| {
            let snapshot = conn.unchecked_transaction()?;
            let is_pruned = first(&snapshot)? > after + 1;
            let (frames, end) = replay(&snapshot, after, end.min(after + CHUNK), bytes)?;
            Ok(LogPage { frames, end, is_pruned })
        })
    }

    fn end(&self, parts: &[PartId], limit: usize) -> Result<LogEnd, StoreError> {
        self.read(|conn| {
            let snapshot = conn.unchecked_transaction()?;
            let mut ended = Vec::new();
            for id in parts {
                if !is_growing(&snapshot, id)? {
                    ended.push(id.clone());
                }
            }
            Ok(LogEnd { tip: tip(&snapshot)?, ended, growing: growing(&snapshot, limit)? })
        })
    }
}

/// The most log rows read at once.
pub(crate) const CHUNK: u64 = 256;

/// The approximate size of a row without its JSON.
pub(crate) const ROW_OVERHEAD_BYTES: u64 = 200;

/// The running total of bytes at the end of the log. Only differences between totals are meaningful.
pub(crate) fn total_bytes(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT total FROM event ORDER BY seq DESC LIMIT 1")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.map_or(0, uint))
}

/// The running total of bytes before an existing row.
fn bytes_before(conn: &Connection, seq: u64) -> Result<u64, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT total - coalesce(octet_length(json), 0) - ?2 FROM event WHERE seq = ?1")?;
    Ok(statement.query_row(params![int(seq), int(ROW_OVERHEAD_BYTES)], |row| row.get(0)).optional()?.map_or(0, uint))
}

/// The first row of the log, and the first row to keep so that no more than `rows` and `bytes` remain. The newest row
/// always stays, however large, because its number must not be reused.
pub(crate) fn retention_bounds(conn: &Connection, rows: u64, bytes: u64) -> Result<(u64, u64), StoreError> {
    let (first, last, end) = (first(conn)?, tip(conn)?, total_bytes(conn)?);
    let fits = |from: u64| Ok::<_, StoreError>(end.saturating_sub(bytes_before(conn, from)?) <= bytes);
    let mut low = (last + 1).saturating_sub(rows).clamp(first, last);
    if fits(low)? {
        return Ok((first, low));
    }
    // Sequence numbers have no gaps, so a binary search finds the row.
    let mut high = last;
    while high > low + 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { high = middle } else { low = middle }
    }
    Ok((first, high))
}

/// The end (exclusive) of a chunk that begins at `from` and ends at `to` at the latest, with at most `rows` rows and
/// `bytes` bytes. A single row may exceed `bytes`.
pub(crate) fn chunk_end(conn: &Connection, from: u64, to: u64, rows: u64, bytes: u64) -> Result<u64, StoreError> {
    let mut to = to.min(from.saturating_add(rows));
    let begin = bytes_before(conn, from)?;
    while to > from + 1 && bytes_before(conn, to)?.saturating_sub(begin) > bytes {
        to = from + (to - from) / 2;
    }
    Ok(to)
}

/// The greatest sequence number.
pub(crate) fn tip(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT max(seq) FROM event")?;
    Ok(uint(statement.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0)))
}

/// The smallest sequence number that was not pruned.
pub(crate) fn first(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT min(seq) FROM event")?;
    Ok(uint(statement.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0)))
}

/// Returns why a cursor does not point to an event of this log, or `None` if it does.
fn check_cursor(conn: &Connection, cursor: &Cursor) -> Result<Option<String>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT id FROM event WHERE seq = ?1")?;
    let found: Option<String> = statement.query_row([int(cursor.seq)], |row| row.get(0)).optional()?;
    Ok(match found {
        Some(id) if id == cursor.id.as_str() => None,
        Some(_) => Some(format!("the cursor {cursor} is of another log")),
        None if cursor.seq < first(conn)? => Some(format!("the log no longer reaches back to the cursor {cursor}")),
        None => Some(format!("the cursor {cursor} is unknown here")),
    })
}

/// The start of every `SELECT` of log rows.
const SELECT_EVENT: &str = "SELECT seq, id, session, directory, project, json, part, length, turn, owner FROM event";

/// Reuses the location of the previous row, because consecutive rows mostly share it.
#[derive(Default)]
struct LocationCache(Option<Location>);

impl LocationCache {
    fn of(&mut self, row: &Row<'_>) -> Result<Location, StoreError> {
        let directory = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
        let project = row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?;
        match &self.0 {
            Some(location) if *location.directory == *directory && *location.project == *project => {
                Ok(location.clone())
            }
            _ => Ok(self.0.insert(Location::new(directory, project)).clone()),
        }
    }
}

fn row_to_frame(row: &Row<'_>, seq: u64, json: String, locations: &mut LocationCache) -> Result<Frame, StoreError> {
    let id: EventId = row::id("event", row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?;
    let session: Option<String> = row.get(2)?;
    let session = session.map(|session| row::id("event", &session)).transpose()?;
    let location = locations.of(row)?;
    let frame = Frame::stored(Cursor { seq, id }, location.directory, location.project, session, Bytes::from(json));
    Ok(frame.of_turn(turn(row)?).of_owner(row.get::<_, Option<Arc<str>>>(9)?))
}

/// The turn that a row is part of.
fn turn(row: &Row<'_>) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(8)?.map(uint))
}

/// Reads the frames after `after` up to `to`, at most [`CHUNK`] apart, and returns them with the number they reach. The
/// last frame is the one that reaches `bytes` in total.
pub(crate) fn replay(conn: &Connection, after: u64, to: u64, bytes: usize) -> Result<(Vec<Frame>, u64), StoreError> {
    let mut statement =
        conn.prepare_cached(&format!("{SELECT_EVENT} WHERE seq > ?1 AND seq <= ?2 AND json IS NOT NULL"))?;
    let mut rows = statement.query(params![int(after), int(to)])?;
    let mut locations = LocationCache::default();
    let (mut frames, mut left) = (Vec::new(), bytes);
    while let Some(row) = rows.next()? {
        let (seq, json): (u64, String) = (uint(row.get(0)?), row.get(5)?);
        left = left.saturating_sub(json.len());
        frames.push(row_to_frame(row, seq, json, &mut locations)?);
        if left == 0 {
            return Ok((frames, seq));
        }
    }
    Ok((frames, to))
}

/// Reads the rows after `after` up to `to`, at most [`CHUNK`]. `sent` returns how much of a part was already sent.
pub(crate) fn read_entries(
    conn: &Connection,
    after: u64,
    to: u64,
    sent: impl Fn(&PartId) -> usize,
) -> Result<Vec<LogEntry>, StoreError> {
    let mut statement =
        conn.prepare_cached(&format!("{SELECT_EVENT} WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3"))?;
    let mut rows = statement.query(params![int(after), int(to), int(CHUNK)])?;
    let mut locations = LocationCache::default();
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let seq = uint(row.get(0)?);
        let part: Option<String> = row.get(6)?;
        let part: Option<PartId> = part.map(|part| row::id("event", &part)).transpose()?;
        let length: Option<i64> = row.get(7)?;
        entries.push(match (row.get::<_, Option<String>>(5)?, part) {
            (Some(json), part) => LogEntry::Frame {
                seq,
                frame: row_to_frame(row, seq, json, &mut locations)?,
                part,
                open: length.is_some(),
            },
            (None, Some(id)) if uint(length.unwrap_or(0)) > sent(&id) as u64 => match self::part(conn, &id)? {
                Some(part) if text::is_open(&part) => {
                    let location = locations.of(row)?.in_turn(turn(row)?);
                    LogEntry::PartGrew { seq, location, part: Box::new(part) }
                }
                _ => LogEntry::NothingNew { seq },
            },
            (None, _) => LogEntry::NothingNew { seq },
        });
    }
    Ok(entries)
}

/// Reads a part's row.
pub(crate) fn part(conn: &Connection, id: &PartId) -> Result<Option<Part>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT json FROM part WHERE id = ?1")?;
    let json: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
    json.map(|json| row::json("part", id.as_str(), &json)).transpose()
}

/// Whether a part exists and has not ended.
fn is_growing(conn: &Connection, id: &PartId) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached("SELECT open FROM part WHERE id = ?1")?;
    Ok(statement.query_row([id.as_str()], |row| row.get(0)).optional()?.unwrap_or(false))
}

/// The growing parts of all running sessions.
fn growing(conn: &Connection, limit: usize) -> Result<Vec<GrowingPartRow>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT part.id, part.json, session.directory, session.project, lease.owner, status.turn
         FROM lease JOIN part ON part.session = lease.session AND part.open = 1
         JOIN session ON session.id = lease.session LEFT JOIN status ON status.session = lease.session LIMIT ?1",
    )?;
    let mut rows = statement.query([int(limit as u64)])?;
    let mut parts = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, json): (String, String) = (row.get(0)?, row.get(1)?);
        let location = Location::new(row.get::<_, String>(2)?, row.get::<_, String>(3)?);
        let location = location.in_turn(row.get::<_, Option<i64>>(5)?.map(uint));
        parts.push(GrowingPartRow { owner: row.get(4)?, location, part: row::json("part", &id, &json)? });
    }
    Ok(parts)
}
