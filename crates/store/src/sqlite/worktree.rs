//! Worktrees: the statements that change their rows, and their queries.

use api::SessionId;
use rusqlite::{Connection, Row, params};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::row::{self, int, uint};
use crate::worktree::WorktreeRow;

const COLUMNS: &str = "session, parent, origin, target, main, directory, branch, base, missing, filled";

pub(crate) fn put(conn: &Connection, session: &SessionId, row: Option<&WorktreeRow>) -> Result<(), StoreError> {
    let Some(WorktreeRow { parent, origin, target, main, directory, branch, base, missing, filled }) = row else {
        conn.prepare_cached("DELETE FROM worktree WHERE session = ?1")?.execute([session.as_str()])?;
        return Ok(());
    };
    conn.prepare_cached(
        "INSERT INTO worktree (session, parent, origin, target, main, directory, branch, base, missing, filled)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (session) DO UPDATE SET parent = ?2, origin = ?3, target = ?4, main = ?5, directory = ?6,
             branch = ?7, base = ?8, missing = ?9, filled = ?10",
    )?
    .execute(params![
        session.as_str(),
        parent.as_str(),
        origin,
        target,
        main,
        directory,
        branch,
        base,
        int(*missing),
        filled
    ])?;
    Ok(())
}

fn worktree_row(row: &Row<'_>) -> Result<(SessionId, WorktreeRow), StoreError> {
    let id = |column| -> Result<SessionId, StoreError> { row::id("worktree", &row.get::<_, String>(column)?) };
    let worktree = WorktreeRow {
        parent: id(1)?,
        origin: row.get(2)?,
        target: row.get(3)?,
        main: row.get(4)?,
        directory: row.get(5)?,
        branch: row.get(6)?,
        base: row.get(7)?,
        missing: uint(row.get(8)?),
        filled: row.get(9)?,
    };
    Ok((id(0)?, worktree))
}

impl Store {
    /// The worktree of a session, if it has one. One row by key.
    pub fn worktree(&self, session: &SessionId) -> Result<Option<WorktreeRow>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM worktree WHERE session = ?1"))?;
            let mut rows = statement.query([session.as_str()])?;
            rows.next()?.map(|row| Ok(worktree_row(row)?.1)).transpose()
        })
    }

    /// All worktrees with their sessions, which may not exist (any more). The engine bounds their number.
    pub fn worktrees(&self) -> Result<Vec<(SessionId, WorktreeRow)>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM worktree ORDER BY session"))?;
            let mut rows = statement.query([])?;
            let mut worktrees = Vec::new();
            while let Some(row) = rows.next()? {
                worktrees.push(worktree_row(row)?);
            }
            Ok(worktrees)
        })
    }
}
