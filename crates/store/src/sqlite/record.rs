//! Records: the statements that change them. One that expects a version is a single conditional statement, so that it
//! would also hold if several writers were at work.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::record::{RecordChange, RecordOp};
use crate::sqlite::lease;
use crate::sqlite::row::{int, uint};
use crate::sqlite::upkeep::sweep;
use crate::sqlite::write::apply::run;

/// How many expired records go with each write of one that expires, so that they cannot pile up between two sweeps.
const EXPIRED_PER_WRITE: usize = 2;

/// Changes a record. Returns its new version, if it was written.
pub(crate) fn apply(conn: &Connection, op: &RecordOp) -> Result<Option<u64>, StoreError> {
    match &op.change {
        RecordChange::Put { value, expires } => put(conn, op, value, *expires).map(Some),
        RecordChange::PutIfChanged { value } => {
            let mut statement =
                conn.prepare_cached("SELECT json FROM record WHERE namespace = ?1 AND key = ?2 AND expires IS NULL")?;
            let known: Option<String> = statement.query_row([&op.namespace, &op.key], |row| row.get(0)).optional()?;
            if known.as_ref() == Some(value) { Ok(None) } else { put(conn, op, value, None).map(Some) }
        }
        RecordChange::Delete => delete(conn, op).map(|()| None),
    }
}

fn put(conn: &Connection, op: &RecordOp, json: &str, expires: Option<i64>) -> Result<u64, StoreError> {
    let RecordOp { namespace, key, expect, .. } = op;
    let now = api::now();
    if expires.is_some() {
        sweep::delete_expired(conn, now, EXPIRED_PER_WRITE)?;
    }
    let version = lease::next_counter(conn, "record")?;
    let new = int(version);
    let written = match *expect {
        None => run(
            conn,
            "INSERT OR REPLACE INTO record (namespace, key, version, json, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![namespace, key, new, json, expires],
        )?,
        Some(0) => run(
            conn,
            "INSERT INTO record (namespace, key, version, json, expires) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (namespace, key) DO UPDATE SET version = ?3, json = ?4, expires = ?5
             WHERE record.expires <= ?6",
            params![namespace, key, new, json, expires, now],
        )?,
        Some(expected) => run(
            conn,
            "UPDATE record SET version = ?3, json = ?4, expires = ?5
             WHERE namespace = ?1 AND key = ?2 AND version = ?7 AND (expires IS NULL OR expires > ?6)",
            params![namespace, key, new, json, expires, now, int(expected)],
        )?,
    };
    if written == 0 { Err(conflict(conn, op, now)?) } else { Ok(version) }
}

fn delete(conn: &Connection, op: &RecordOp) -> Result<(), StoreError> {
    let RecordOp { namespace, key, expect, .. } = op;
    let now = api::now();
    let is_as_expected = match *expect {
        None => run(conn, "DELETE FROM record WHERE namespace = ?1 AND key = ?2", [namespace, key]).map(|_| true)?,
        Some(0) => {
            let sql = "DELETE FROM record WHERE namespace = ?1 AND key = ?2 AND expires <= ?3";
            run(conn, sql, params![namespace, key, now])?;
            version_now(conn, op, now)? == 0
        }
        Some(expected) => {
            let sql = "DELETE FROM record
                       WHERE namespace = ?1 AND key = ?2 AND version = ?3 AND (expires IS NULL OR expires > ?4)";
            run(conn, sql, params![namespace, key, int(expected), now])? > 0
        }
    };
    if is_as_expected { Ok(()) } else { Err(conflict(conn, op, now)?) }
}

/// The version of a record; 0 if it does not exist or has expired.
fn version_now(conn: &Connection, op: &RecordOp, now: i64) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT version FROM record WHERE namespace = ?1 AND key = ?2 AND (expires IS NULL OR expires > ?3)",
    )?;
    let found = statement.query_row(params![op.namespace, op.key, now], |row| row.get(0)).optional()?;
    Ok(found.map_or(0, uint))
}

/// The error for a record that has not the expected version.
fn conflict(conn: &Connection, op: &RecordOp, now: i64) -> Result<StoreError, StoreError> {
    let (found, expected) = (version_now(conn, op, now)?, op.expect.unwrap_or(0));
    Ok(StoreError::Conflict { namespace: op.namespace.clone(), key: op.key.clone(), found, expected })
}
