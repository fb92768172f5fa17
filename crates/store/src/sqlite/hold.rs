//! Paused sessions, and those that wait for a budget: the statements that change them, and their queries.

use api::{Blocked, Bound, SessionId};
use rusqlite::{Connection, params};

use crate::Store;
use crate::error::StoreError;
use crate::hold::HoldOp;
use crate::sqlite::row;

/// The bounds of a budget by their names in a row.
const BOUNDS: [(Bound, &str); 4] =
    [(Bound::Cost, "cost"), (Bound::Tokens, "tokens"), (Bound::Steps, "steps"), (Bound::Seconds, "seconds")];

/// A session and its ancestors.
const ABOVE: &str = "WITH RECURSIVE above (id, depth) AS (
     VALUES (?1, 0)
     UNION ALL
     SELECT session.parent, above.depth + 1 FROM above JOIN session ON session.id = above.id
     WHERE session.parent IS NOT NULL AND above.depth < 100
 )";

pub(crate) fn apply(conn: &Connection, op: &HoldOp) -> Result<(), StoreError> {
    let changed = |session: &SessionId| StoreError::Changed { table: "paused", id: session.to_string() };
    match op {
        HoldOp::Pause { session, since } => {
            let mut statement = conn.prepare_cached(
                "INSERT INTO paused (session, since) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM session WHERE id = ?1)
                 ON CONFLICT (session) DO NOTHING",
            )?;
            if statement.execute(params![session.as_str(), since])? == 0 {
                return Err(changed(session));
            }
        }
        HoldOp::Resume(session) => {
            let mut statement = conn.prepare_cached("DELETE FROM paused WHERE session = ?1")?;
            if statement.execute([session.as_str()])? == 0 {
                return Err(changed(session));
            }
        }
        HoldOp::Block { session, by } => {
            let Blocked { bound, session_id, message } = by;
            conn.prepare_cached(
                "INSERT INTO blocked (session, bound, budget, message)
                 SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM session WHERE id = ?1)
                 ON CONFLICT (session) DO UPDATE SET bound = ?2, budget = ?3, message = ?4",
            )?
            .execute(params![session.as_str(), bound_name(*bound), session_id.as_str(), message])?;
        }
        HoldOp::Unblock(session) => {
            conn.prepare_cached("DELETE FROM blocked WHERE session = ?1")?.execute([session.as_str()])?;
        }
    }
    Ok(())
}

fn bound_name(bound: Bound) -> &'static str {
    BOUNDS.iter().find(|(known, _)| *known == bound).map_or("", |(_, name)| name)
}

/// What a session waits for, from the columns session, bound, budget and message.
pub(crate) fn blocked(row: &rusqlite::Row<'_>) -> Result<Blocked, StoreError> {
    let name: String = row.get(1)?;
    let Some((bound, _)) = BOUNDS.into_iter().find(|(_, known)| *known == name) else {
        return Err(StoreError::Row { table: "blocked", id: row.get(0)?, detail: format!("unknown bound {name:?}") });
    };
    Ok(Blocked { bound, session_id: row::id("blocked", &row.get::<_, String>(2)?)?, message: row.get(3)? })
}

/// The sessions of a table that are `top` or below it. The table has few rows, but a tree may have many sessions, so
/// each row looks for `top` above it.
fn within(conn: &Connection, table: &str, top: &SessionId) -> Result<Vec<SessionId>, StoreError> {
    let mut statement = conn.prepare_cached(&format!(
        "WITH RECURSIVE above (start, id, depth) AS (
             SELECT session, session, 0 FROM {table}
             UNION ALL
             SELECT above.start, session.parent, above.depth + 1 FROM above JOIN session ON session.id = above.id
             WHERE session.parent IS NOT NULL AND above.depth < 100
         )
         SELECT start FROM above WHERE id = ?1 ORDER BY start"
    ))?;
    let ids = statement.query_map([top.as_str()], |row| row.get::<_, String>(0))?;
    ids.map(|id| row::id("session", &id?)).collect()
}

impl Store {
    /// Whether a session is paused itself. One row by key.
    pub fn is_paused(&self, session: &SessionId) -> Result<bool, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM paused WHERE session = ?1)")?;
            Ok(statement.query_row([session.as_str()], |row| row.get(0))?)
        })
    }

    /// Whether a session or one above it is paused. One statement, which looks at one page while nothing is paused and
    /// otherwise reads the rows of the ancestors.
    pub fn is_lineage_paused(&self, session: &SessionId) -> Result<bool, StoreError> {
        self.read(|conn| {
            // Each branch of `CASE` runs only when it is needed.
            let mut statement = conn.prepare_cached(&format!(
                "SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM paused) THEN 0 ELSE EXISTS (
                     {ABOVE} SELECT 1 FROM above JOIN paused ON paused.session = above.id) END"
            ))?;
            Ok(statement.query_row([session.as_str()], |row| row.get(0))?)
        })
    }

    /// The paused sessions among a session and everything below it.
    pub fn paused_within(&self, top: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        self.read(|conn| within(conn, "paused", top))
    }

    /// Which budget a session's turn waits for. A process may die before it removes the row, so it counts only together
    /// with the session's status. One row by key.
    pub fn blocked(&self, session: &SessionId) -> Result<Option<Blocked>, StoreError> {
        self.read(|conn| {
            let mut statement =
                conn.prepare_cached("SELECT session, bound, budget, message FROM blocked WHERE session = ?1")?;
            let mut rows = statement.query([session.as_str()])?;
            rows.next()?.map(blocked).transpose()
        })
    }

    /// The sessions that wait for a budget, among a session and everything below it.
    pub fn blocked_within(&self, top: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        self.read(|conn| within(conn, "blocked", top))
    }
}
