//! How a process learns that another one has committed: it asks SQLite for a number.

use rusqlite::Connection;

use crate::error::StoreError;

/// A number that changes whenever another process commits, and stays the same for commits of this connection. Costs a
/// look at shared memory.
pub(crate) fn foreign_commits(conn: &Connection) -> Result<i64, StoreError> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}
