//! Reads the log: for replay, and to follow what other processes committed.

use std::sync::Arc;

use api::{Cursor, EventId, Frame, Part, PartId};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::batch::Location;
use crate::error::StoreError;
use crate::feed::text;
use crate::sqlite::row::{self, int, uint};

/// The most rows of the log that are read at once.
pub(crate) const CHUNK: u64 = 256;

/// One row of the log, as another process wrote it.
#[derive(Debug)]
pub(crate) enum LogEntry {
    /// An event; perhaps one that says how a growing part is.
    Frame { seq: u64, frame: Frame, part: Option<PartId>, open: bool },
    /// A part's text grew; here it is as its row has it now.
    PartGrew { seq: u64, location: Location, part: Box<Part> },
    /// A part's text grew, but there is nothing new to tell.
    NothingNew { seq: u64 },
}

impl LogEntry {
    pub(crate) fn seq(&self) -> u64 {
        match self {
            Self::Frame { seq, .. } | Self::PartGrew { seq, .. } | Self::NothingNew { seq } => *seq,
        }
    }
}

/// What a row takes besides its JSON, about.
pub(crate) const ROW_OVERHEAD_BYTES: u64 = 200;

/// The bytes of the log up to its end. Only differences of such numbers mean something.
pub(crate) fn total_bytes(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT total FROM event ORDER BY seq DESC LIMIT 1")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.map_or(0, uint))
}

/// The bytes of the log before a row that is there.
fn bytes_before(conn: &Connection, seq: u64) -> Result<u64, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT total - coalesce(octet_length(json), 0) - ?2 FROM event WHERE seq = ?1")?;
    Ok(statement.query_row(params![int(seq), int(ROW_OVERHEAD_BYTES)], |row| row.get(0)).optional()?.map_or(0, uint))
}

/// The first row of the log, and the first that is to stay if it shall not have more rows or bytes than that. The newest
/// always stays, however large it is: its number must not be used again.
pub(crate) fn retention_bounds(conn: &Connection, rows: u64, bytes: u64) -> Result<(u64, u64), StoreError> {
    let (first, last, end) = (first(conn)?, tip(conn)?, total_bytes(conn)?);
    let fits = |from: u64| Ok::<_, StoreError>(end.saturating_sub(bytes_before(conn, from)?) <= bytes);
    let mut low = (last + 1).saturating_sub(rows).clamp(first, last);
    if fits(low)? {
        return Ok((first, low));
    }
    // Numbers have no holes, so that the row is found by halving.
    let mut high = last;
    while high > low + 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { high = middle } else { low = middle }
    }
    Ok((first, high))
}

/// The end of a range of the log that begins at one row and ends before another, at most that one: not more rows and, unless
/// one row alone has them, not more bytes than that.
pub(crate) fn chunk_end(conn: &Connection, from: u64, to: u64, rows: u64, bytes: u64) -> Result<u64, StoreError> {
    let mut to = to.min(from.saturating_add(rows));
    let begin = bytes_before(conn, from)?;
    while to > from + 1 && bytes_before(conn, to)?.saturating_sub(begin) > bytes {
        to = from + (to - from) / 2;
    }
    Ok(to)
}

/// The greatest sequence number so far.
pub(crate) fn tip(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT max(seq) FROM event")?;
    Ok(uint(statement.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0)))
}

/// The smallest sequence number that is still there.
pub(crate) fn first(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT min(seq) FROM event")?;
    Ok(uint(statement.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0)))
}

/// Why a cursor does not point to an event of this log, if it does not.
pub(crate) fn check_cursor(conn: &Connection, cursor: &Cursor) -> Result<Option<String>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT id FROM event WHERE seq = ?1")?;
    let found: Option<String> = statement.query_row([int(cursor.seq)], |row| row.get(0)).optional()?;
    Ok(match found {
        Some(id) if id == cursor.id.as_str() => None,
        Some(_) => Some(format!("the cursor {cursor} is of another log")),
        None if cursor.seq < first(conn)? => Some(format!("the log no longer reaches back to the cursor {cursor}")),
        None => Some(format!("the cursor {cursor} is unknown here")),
    })
}

/// What `SELECT`s of frames begin with.
const SELECT_EVENT: &str = "SELECT seq, id, session, directory, project, json, part, length FROM event";

/// Consecutive rows mostly share their place; it is allocated once for them.
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
            _ => Ok(self.0.insert(Location { directory: Arc::from(directory), project: Arc::from(project) }).clone()),
        }
    }
}

fn row_to_frame(row: &Row<'_>, seq: u64, json: String, locations: &mut LocationCache) -> Result<Frame, StoreError> {
    let id: EventId = row::id("event", row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?;
    let session: Option<String> = row.get(2)?;
    let session = session.map(|session| row::id("event", &session)).transpose()?;
    let location = locations.of(row)?;
    Ok(Frame::stored(Cursor { seq, id }, location.directory, location.project, session, Bytes::from(json)))
}

/// The frames after one sequence number up to another, both at most [`CHUNK`] apart, and up to which they are. They end with
/// the one that brings them to so many bytes.
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

/// The next rows after one sequence number, up to another, at most [`CHUNK`]. `sent` tells how much of a part is known.
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
                    LogEntry::PartGrew { seq, location: locations.of(row)?, part: Box::new(part) }
                }
                _ => LogEntry::NothingNew { seq },
            },
            (None, _) => LogEntry::NothingNew { seq },
        });
    }
    Ok(entries)
}

/// A part's row.
pub(crate) fn part(conn: &Connection, id: &PartId) -> Result<Option<Part>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT json FROM part WHERE id = ?1")?;
    let json: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
    json.map(|json| row::json("part", id.as_str(), &json)).transpose()
}

/// Whether a part is there and did not end.
pub(crate) fn is_growing(conn: &Connection, id: &PartId) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached("SELECT open FROM part WHERE id = ?1")?;
    Ok(statement.query_row([id.as_str()], |row| row.get(0)).optional()?.unwrap_or(false))
}

/// A part that is growing in a session that somebody runs.
#[derive(Debug)]
pub(crate) struct GrowingPartRow {
    pub owner: String,
    pub location: Location,
    pub part: Part,
}

/// The growing parts of all sessions that somebody runs.
pub(crate) fn growing(conn: &Connection, limit: usize) -> Result<Vec<GrowingPartRow>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT part.id, part.json, session.directory, session.project, lease.owner
         FROM lease JOIN part ON part.session = lease.session AND part.open = 1
         JOIN session ON session.id = lease.session LIMIT ?1",
    )?;
    let mut rows = statement.query([int(limit as u64)])?;
    let mut parts = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, json): (String, String) = (row.get(0)?, row.get(1)?);
        let location = Location::new(row.get::<_, String>(2)?, row.get::<_, String>(3)?);
        parts.push(GrowingPartRow { owner: row.get(4)?, location, part: row::json("part", &id, &json)? });
    }
    Ok(parts)
}
