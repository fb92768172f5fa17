//! Queries for one session or a page of them, and for who runs them.

use std::collections::HashSet;

use api::{Session, SessionId, SessionStatus, Timestamp};
use rusqlite::types::{ToSql, ToSqlOutput, Value};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use crate::Store;
use crate::error::StoreError;
use crate::lease::LeaseHolder;
use crate::sqlite::lease;
use crate::sqlite::row::{self, int};

/// Sessions per page, unless the query sets a limit.
const DEFAULT_LIMIT: usize = 100;

/// Lists sessions in the order of their creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreationOrder {
    /// Oldest first.
    pub ascending: bool,
    /// Only sessions after this one in that order. None, if that session is gone.
    pub after: Option<SessionId>,
}

/// Which sessions to list, most recently changed first unless `creation_order` is set.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionQuery {
    /// Only those that belong to this caller. The rows of others are not looked at.
    pub owner: Option<String>,
    /// Only those of this project.
    pub project: Option<String>,
    /// Only those of exactly this directory.
    pub directory: Option<String>,
    /// Only those without a parent.
    pub roots: bool,
    /// Only those whose title contains this text, ignoring case.
    pub search: Option<String>,
    /// Only those changed at or after this time.
    pub start: Option<Timestamp>,
    /// Only those changed before this time: a page's cursor.
    pub before: Option<Timestamp>,
    /// Only those at or below this path in their project.
    pub path: Option<String>,
    /// Only those of this workspace.
    pub workspace: Option<String>,
    /// Only those that are not archived.
    pub unarchived: bool,
    /// Lists them in the order of their creation instead.
    pub creation_order: Option<CreationOrder>,
    /// The most sessions to list; 100 by default.
    pub limit: usize,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            owner: None,
            project: None,
            directory: None,
            roots: false,
            search: None,
            start: None,
            before: None,
            path: None,
            workspace: None,
            unarchived: false,
            creation_order: None,
            limit: DEFAULT_LIMIT,
        }
    }
}

impl SessionQuery {
    /// Whether it reads few rows: a short page that comes straight from an index. Any other query may go through all
    /// sessions, and is a [long read](Store::long_read).
    pub fn is_short(&self) -> bool {
        let is_filtered = self.roots
            || self.owner.is_some()
            || self.unarchived
            || self.search.is_some()
            || self.path.is_some()
            || self.workspace.is_some()
            || self.creation_order.is_some();
        self.limit <= DEFAULT_LIMIT && !is_filtered
    }

    /// The statement and its bound values. It has few shapes, so that each is prepared only once.
    fn sql(&self) -> (String, Vec<Value>) {
        let mut sql = String::from("SELECT json, id FROM session WHERE 1");
        let mut values = Vec::new();
        let mut and = |condition: &str, value: &[Value]| {
            sql.push_str(" AND ");
            sql.push_str(condition);
            values.extend_from_slice(value);
        };
        // Only the first of these chooses the index; the `+` makes the others plain filters.
        let mut has_index = false;
        for (column, value) in [("owner", &self.owner), ("directory", &self.directory), ("project", &self.project)] {
            let Some(value) = value else { continue };
            let sign = if std::mem::replace(&mut has_index, true) { "+" } else { "" };
            and(&format!("{sign}{column} = ?"), &[value.clone().into()]);
        }
        if self.roots {
            and("parent IS NULL", &[]);
        }
        if let Some(start) = self.start {
            and("updated >= ?", &[start.into()]);
        }
        if let Some(before) = self.before {
            and("updated < ?", &[before.into()]);
        }
        if let Some(search) = self.search.as_ref().filter(|search| !search.is_empty()) {
            and("instr(title, ?) > 0", &[search.to_lowercase().into()]);
        }
        if let Some(path) = self.path.as_ref().filter(|path| !path.is_empty()) {
            let path = path.trim_matches('/');
            // `0` follows `/`.
            let (below, end) = (format!("{path}/"), format!("{path}0"));
            and("(path = ? OR path >= ? AND path < ?)", &[path.to_owned().into(), below.into(), end.into()]);
        }
        if let Some(workspace) = &self.workspace {
            and("workspace = ?", &[workspace.clone().into()]);
        }
        if self.unarchived {
            and("archived IS NULL", &[]);
        }
        if let Some(CreationOrder { ascending, after: Some(after) }) = &self.creation_order {
            let sign = if *ascending { '>' } else { '<' };
            let condition = format!("number {sign} (SELECT number FROM session WHERE id = ?)");
            and(&condition, &[after.to_string().into()]);
        }
        sql.push_str(match &self.creation_order {
            None => " ORDER BY updated DESC, id LIMIT ?",
            Some(CreationOrder { ascending: true, .. }) => " ORDER BY number LIMIT ?",
            Some(CreationOrder { ascending: false, .. }) => " ORDER BY number DESC LIMIT ?",
        });
        values.push(int(self.limit as u64).into());
        (sql, values)
    }
}

/// The JSON and id of each session on a page.
fn query_page(conn: &Connection, query: &SessionQuery) -> Result<Vec<(String, String)>, StoreError> {
    let (sql, values) = query.sql();
    let mut statement = conn.prepare_cached(&sql)?;
    let rows =
        statement.query_map(params_from_iter(values.iter().map(BoundValue)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The owner of a session; `None` if the session does not exist.
pub(crate) fn session_owner(conn: &Connection, session: &SessionId) -> Result<Option<Option<String>>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT owner FROM session WHERE id = ?1")?;
    Ok(statement.query_row([session.as_str()], |row| row.get(0)).optional()?)
}

/// The stored status of a session, and the process that runs it, which may be dead.
pub(super) struct StatusRow {
    session: String,
    json: String,
    owner: String,
}

/// The statuses of all sessions, or of those of one owner.
pub(super) fn status_rows(conn: &Connection, owner: Option<&str>) -> Result<Vec<StatusRow>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT status.session, status.json, lease.owner FROM status JOIN lease ON lease.session = status.session
         WHERE ?1 IS NULL OR ?1 = (SELECT owner FROM session WHERE id = status.session) ORDER BY status.session",
    )?;
    let row = |row: &Row<'_>| Ok(StatusRow { session: row.get(0)?, json: row.get(1)?, owner: row.get(2)? });
    Ok(statement.query_map([owner], row)?.collect::<Result<_, _>>()?)
}

/// The statuses whose owners are alive.
pub(super) fn live_statuses(
    rows: Vec<StatusRow>,
    dead: &HashSet<String>,
) -> Result<Vec<(SessionId, SessionStatus)>, StoreError> {
    let living = rows.into_iter().filter(|row| !dead.contains(&row.owner));
    living
        .map(|StatusRow { session, json, .. }| {
            Ok((row::id("status", &session)?, row::json("status", &session, &json)?))
        })
        .collect()
}

/// A bound value by reference.
struct BoundValue<'a>(&'a Value);

impl ToSql for BoundValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl Store {
    /// A session. One row by key.
    pub fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT json FROM session WHERE id = ?1")?;
            let json: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
            json.map(|json| row::json("session", id.as_str(), &json)).transpose()
        })
    }

    /// Data that was stored with a session. One row by key.
    pub fn session_data(&self, session: &SessionId) -> Result<Option<String>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT data FROM session WHERE id = ?1")?;
            Ok(statement.query_row([session.as_str()], |row| row.get(0)).optional()?.flatten())
        })
    }

    /// Who owns a session; `None` for the owner of the machine, and if it does not exist. One row by key.
    pub fn session_owner(&self, session: &SessionId) -> Result<Option<String>, StoreError> {
        Ok(self.read(|conn| session_owner(conn, session))?.flatten())
    }

    /// Sessions, most recently changed first unless the query says otherwise. The query tells whether this is
    /// [short](SessionQuery::is_short).
    pub fn sessions(&self, query: &SessionQuery) -> Result<Vec<Session>, StoreError> {
        let rows = self.read(|conn| query_page(conn, query))?;
        rows.iter().map(|(json, id)| row::json("session", id, json)).collect()
    }

    /// Like [`sessions`](Self::sessions), as JSON exactly as stored.
    pub fn sessions_json(&self, query: &SessionQuery) -> Result<Vec<String>, StoreError> {
        Ok(self.read(|conn| query_page(conn, query))?.into_iter().map(|(json, _)| json).collect())
    }

    /// The sessions that a session spawned, oldest first. Has no bound: a [long read](Self::long_read).
    pub fn children(&self, id: &SessionId) -> Result<Vec<Session>, StoreError> {
        self.read(|conn| {
            let mut statement =
                conn.prepare_cached("SELECT json, id FROM session WHERE parent = ?1 ORDER BY number")?;
            let mut rows = statement.query([id.as_str()])?;
            let mut children = Vec::new();
            while let Some(row) = rows.next()? {
                let (json, id): (String, String) = (row.get(0)?, row.get(1)?);
                children.push(row::json("session", &id, &json)?);
            }
            Ok(children)
        })
    }

    /// The status of every session that is not idle. A session is busy only if the owner of its lease is alive. A few
    /// rows for each turn that is running.
    pub fn statuses(&self) -> Result<Vec<(SessionId, SessionStatus)>, StoreError> {
        let dead = self.dead_owners()?;
        let mut statuses = live_statuses(self.read(|conn| status_rows(conn, None))?, &dead)?;
        self.inner.feed.overlay_statuses(&mut statuses);
        Ok(statuses)
    }

    /// Like [`statuses`](Self::statuses), of the sessions of one owner.
    pub fn statuses_of(&self, owner: &str) -> Result<Vec<(SessionId, SessionStatus)>, StoreError> {
        let dead = self.dead_owners()?;
        let mut statuses = live_statuses(self.read(|conn| status_rows(conn, Some(owner)))?, &dead)?;
        let own: HashSet<SessionId> = statuses.iter().map(|(session, _)| session.clone()).collect();
        self.inner.feed.overlay_statuses(&mut statuses);
        // What was added is of sessions that cannot be written at the moment, so there are few.
        let mut kept = Vec::new();
        for (session, status) in statuses {
            if own.contains(&session) || self.session_owner(&session)?.as_deref() == Some(owner) {
                kept.push((session, status));
            }
        }
        Ok(kept)
    }

    /// The status in a session's row.
    pub(crate) fn stored_status(&self, id: &SessionId) -> Result<SessionStatus, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT json FROM status WHERE session = ?1")?;
            let json: Option<String> = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
            json.map_or(Ok(SessionStatus::Idle), |json| row::json("status", id.as_str(), &json))
        })
    }

    /// The dead owners of leases. Call it before reading the rows it is used for: then the rows include everything that
    /// a dead process wrote, and a process that ended normally in between does not look interrupted.
    pub(crate) fn dead_owners(&self) -> Result<HashSet<String>, StoreError> {
        Ok(self.owners()?.into_iter().filter(|owner| !self.is_alive(owner)).collect())
    }

    fn owners(&self) -> Result<HashSet<String>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT DISTINCT owner FROM lease")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The holder of a session's lease.
    pub fn lease_holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, StoreError> {
        let found = self.read(|conn| lease::row(conn, session))?;
        Ok(found.map(|(owner, epoch)| LeaseHolder {
            alive: self.is_alive(&owner),
            own: owner == self.owner(),
            owner,
            epoch,
        }))
    }

    /// Whether a process that has ended still holds a lease because a child of it is running: the lease of this
    /// session, or any.
    pub fn has_lingering_owner(&self, session: Option<&SessionId>) -> Result<bool, StoreError> {
        let owners = match session {
            Some(session) => self.read(|conn| lease::row(conn, session))?.map(|(owner, _)| owner).into_iter().collect(),
            None => self.owners()?,
        };
        Ok(owners.iter().any(|owner| self.inner.owners.is_lingering(owner)))
    }

    /// Sessions with work that possibly nobody does: those with prompts in the inbox, and those whose lease has a dead
    /// owner.
    pub fn unfinished_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        let rows = self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT DISTINCT session, NULL FROM inbox UNION
                 SELECT session, owner FROM lease WHERE session NOT IN (SELECT session FROM inbox) ORDER BY 1",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<Vec<(String, Option<String>)>, _>>()?)
        })?;
        let open = rows.into_iter().filter(|(_, owner)| owner.as_ref().is_none_or(|owner| !self.is_alive(owner)));
        open.map(|(id, _)| row::id("lease", &id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page must come out of an index already ordered, or every page would sort 100,000 sessions.
    #[test]
    fn every_page_is_read_from_an_index() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&crate::sqlite::schema::MIGRATIONS.concat()).unwrap();
        for bits in 0..1 << 9 {
            let bit = |n: u16| bits & (1_u16 << n) != 0;
            let query = SessionQuery {
                owner: bit(8).then(|| "o".to_owned()),
                creation_order: None,
                workspace: None,
                project: bit(0).then(|| "p".to_owned()),
                directory: bit(1).then(|| "d".to_owned()),
                roots: bit(2),
                search: bit(3).then(|| "s".to_owned()),
                start: bit(4).then_some(1),
                before: bit(5).then_some(2),
                path: bit(6).then(|| "p".to_owned()),
                unarchived: bit(7),
                limit: 1,
            };
            let (sql, values) = query.sql();
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan =
                statement.query_map(params_from_iter(values.iter().map(BoundValue)), |row| row.get::<_, String>(3));
            let plan: Vec<String> = plan.unwrap().map(Result::unwrap).collect();
            let wanted = match (&query.owner, &query.directory, &query.project) {
                (Some(_), _, _) => "session_owner",
                (None, Some(_), _) => "session_directory",
                (None, None, Some(_)) => "session_project",
                (None, None, None) => "session_updated",
            };
            assert_eq!(plan.len(), 1, "{sql}: {plan:?}");
            assert!(plan[0].contains(wanted), "{sql}: {plan:?}");
        }
    }
}
