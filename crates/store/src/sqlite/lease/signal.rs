//! Signals to the process that runs a session, stored as rows that its writer thread picks up.

use api::SessionId;
use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::lease::Signal;
use crate::sqlite::row;

/// The most signals queued in a process for its engine.
pub(crate) const QUEUE: usize = 256;

/// The most signals stored in the database for one process.
const MAX_STORED: i64 = 1024;

/// Stores a signal for another process. A duplicate is not stored, because a stopped process that reads nothing would
/// run out of room for other signals. Must run in a transaction.
pub(crate) fn send(conn: &Connection, owner: &str, session: &SessionId, signal: &Signal) -> Result<(), StoreError> {
    let json = serde_json::to_string(signal).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let mut statement =
        conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM signal WHERE owner = ?1 AND session = ?2 AND json = ?3)")?;
    if statement.query_row(params![owner, session.as_str(), json], |row| row.get(0))? {
        return Ok(());
    }
    let mut statement = conn.prepare_cached("SELECT count(*) FROM signal WHERE owner = ?1")?;
    if statement.query_row([owner], |row| row.get::<_, i64>(0))? >= MAX_STORED {
        return Err(StoreError::Overloaded("signals"));
    }
    conn.prepare_cached("INSERT INTO signal (owner, session, json) VALUES (?1, ?2, ?3)")?.execute(params![
        owner,
        session.as_str(),
        json
    ])?;
    Ok(())
}

/// Whether signals are waiting for a process.
pub(crate) fn has_waiting(conn: &Connection, owner: &str) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM signal WHERE owner = ?1)")?;
    Ok(statement.query_row([owner], |row| row.get(0))?)
}

/// Removes the oldest signals of a process from the database and returns them, so that none is delivered twice.
pub(crate) fn take(conn: &Connection, owner: &str, limit: usize) -> Result<Vec<(SessionId, Signal)>, StoreError> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM signal WHERE id IN (SELECT id FROM signal WHERE owner = ?1 ORDER BY id LIMIT ?2)
         RETURNING id, session, json",
    )?;
    let rows = statement.query_map(params![owner, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    rows.sort_by_key(|(id, ..)| *id);
    let mut signals = Vec::with_capacity(rows.len());
    for (id, session, json) in rows {
        // Skips signals from a newer version, which this one could not handle.
        match row::json("signal", &id.to_string(), &json) {
            Ok(signal) => signals.push((row::id("signal", &session)?, signal)),
            Err(error) => tracing::warn!(%error, "a signal could not be parsed"),
        }
    }
    Ok(signals)
}
