//! A session and its descendants, with their status and usage, in a handful of queries however many there are.

use std::collections::{HashMap, HashSet};

use api::{
    Blocked, Budget, BudgetState, Cursor, MessageError, PermissionRequest, QuestionRequest, Session, SessionId,
    SessionModel, SessionStatus, Timestamp, ToolPart, Usage,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;

use crate::budget::Reservation;
use crate::error::StoreError;
use crate::sqlite::hold;
use crate::sqlite::ledger::{self, SUMS, SUMS_LEN};
use crate::sqlite::read::read_transaction;
use crate::sqlite::row::{self, int, uint};
use crate::{AskFilter, Store};

/// One session of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeSession {
    /// The session.
    pub id: SessionId,
    /// Its parent.
    pub parent: Option<SessionId>,
    /// Its depth below the root of the tree.
    pub depth: u32,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<SessionModel>,
    /// When it was created.
    pub created: Timestamp,
    /// What it used itself.
    pub own: Usage,
    /// What it and all its descendants used, including deleted ones.
    pub total: Usage,
    /// Its budget, and when its seconds started to count.
    pub budget: Option<(Budget, Timestamp)>,
    /// When its last turn began.
    pub started: Option<Timestamp>,
    /// When its last turn ended.
    pub ended: Option<Timestamp>,
    /// The error of its last answer.
    pub error: Option<MessageError>,
    /// Its status, if a live process runs it.
    pub status: Option<SessionStatus>,
    /// Whether it is paused itself.
    pub paused: bool,
    /// The budget that its turn waits for, if its status says so.
    pub blocked: Option<Blocked>,
    /// Whether it works in the background for its caller.
    pub background: bool,
    /// The directory of its worktree.
    pub worktree: Option<String>,
}

/// A tree with the live state of its sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRows {
    /// The sessions: each parent before its children, each followed by its whole subtree.
    pub sessions: Vec<TreeSession>,
    /// Running model calls, of all trees.
    pub reservations: Vec<Reservation>,
    /// Running tool calls of these sessions, in the order in which the sessions and their parts were created.
    pub tools: Vec<ToolPart>,
    /// Open permission requests, of all trees.
    pub permissions: Vec<PermissionRequest>,
    /// Open questions, of all trees.
    pub questions: Vec<QuestionRequest>,
    /// The last event before any of this was read.
    pub cursor: Option<Cursor>,
}

impl TreeRows {
    /// A session's budget and how much of it is used.
    pub fn budget_of(&self, session: &TreeSession, reserved: Budget) -> Option<BudgetState> {
        session.budget.map(|(limit, began)| ledger::budget_state(limit, began, &session.total, reserved))
    }
}

/// The part of a session's JSON that a tree shows. Parsing all of it would dominate the time.
#[derive(Deserialize)]
struct SessionSummary {
    title: String,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    model: Option<SessionModel>,
    time: CreatedTime,
}

#[derive(Deserialize)]
struct CreatedTime {
    created: Timestamp,
}

/// A session and its descendants, parents before children. Siblings are in the order of their creation.
const SUBTREE: &str = "WITH RECURSIVE below (number, id, depth) AS (
     SELECT number, id, 0 FROM session WHERE id = ?1
     UNION ALL
     SELECT session.number, session.id, below.depth + 1 FROM below JOIN session ON session.parent = below.id
     WHERE below.depth < 100 ORDER BY 3, 1";

/// Rows that few sessions have. All of them are read, because that costs less than four searches for each session.
struct RareRows {
    paused: HashSet<String>,
    blocked: HashMap<String, Blocked>,
    /// The directories of worktrees.
    worktrees: HashMap<String, String>,
    /// The sessions that work in the background.
    background: HashSet<String>,
}

impl RareRows {
    fn read(conn: &Connection) -> Result<Self, StoreError> {
        fn all<T, C: FromIterator<T>>(
            conn: &Connection,
            sql: &str,
            read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
        ) -> Result<C, StoreError> {
            conn.prepare_cached(sql)?.query_and_then([], read)?.collect()
        }
        let id = |row: &Row<'_>| Ok::<String, StoreError>(row.get(0)?);
        let blocked = |row: &Row<'_>| Ok((id(row)?, hold::blocked(row)?));
        Ok(Self {
            paused: all(conn, "SELECT session FROM paused", id)?,
            blocked: all(conn, "SELECT session, bound, budget, message FROM blocked", blocked)?,
            worktrees: all(conn, "SELECT session, directory FROM worktree", |row| Ok((id(row)?, row.get(1)?)))?,
            background: all(conn, "SELECT child FROM task_link WHERE awaited IS NOT NULL", id)?,
        })
    }
}

/// The sessions of a tree in order, without their status.
fn tree_sessions(conn: &Connection, root: &SessionId) -> Result<Vec<TreeSession>, StoreError> {
    // Deepest first, so that each subtree is contiguous. Rows are found by number, which is one search instead of two. The
    // last turn is the first in descending order; `max(number)` would cost an aggregate for each session.
    let mut statement = conn.prepare_cached(&format!(
        "WITH RECURSIVE below (number, id, depth) AS (
             SELECT number, id, 0 FROM session WHERE id = ?1
             UNION ALL
             SELECT session.number, session.id, below.depth + 1 FROM below JOIN session ON session.parent = below.id
             WHERE below.depth < 100 ORDER BY 3 DESC, 1
         )
         SELECT below.id, below.depth, session.parent, session.json, turn.started, turn.ended, turn.error,
                budget.cost, budget.tokens, budget.steps, budget.seconds, budget.began, {}
         FROM below CROSS JOIN session ON session.number = below.number
         LEFT JOIN ledger ON ledger.session = below.id
         LEFT JOIN turn ON turn.session = below.id AND turn.number =
              (SELECT number FROM turn AS last WHERE last.session = below.id AND last.started IS NOT NULL
               ORDER BY last.number DESC LIMIT 1)
         LEFT JOIN budget ON budget.session = below.id",
        *SUMS
    ))?;
    const SUMS_START: usize = 12;
    let mut rare = RareRows::read(conn)?;
    let mut rows = statement.query([root.as_str()])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        let optional = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
        let id = text(0)?;
        let summary: SessionSummary = row::json("session", id, text(3)?)?;
        let parent = optional(2)?.map(|parent| row::id("session", parent)).transpose()?;
        let error = optional(6)?.map(|json| row::json("turn", id, json)).transpose()?;
        sessions.push(TreeSession {
            parent,
            depth: u32::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            title: summary.title,
            agent: summary.agent,
            model: summary.model,
            created: summary.time.created,
            own: ledger::usage_columns(row, SUMS_START)?,
            total: ledger::usage_columns(row, SUMS_START + SUMS_LEN / 2)?,
            budget: ledger::budget_columns(row, 7)?,
            started: row.get(4)?,
            ended: row.get(5)?,
            error,
            status: None,
            paused: rare.paused.contains(id),
            blocked: rare.blocked.remove(id),
            worktree: rare.worktrees.remove(id),
            background: rare.background.contains(id),
            id: row::id("session", id)?,
        });
    }
    Ok(sessions)
}

fn running_tools(conn: &Connection, sessions: &[TreeSession]) -> Result<Vec<ToolPart>, StoreError> {
    let running: HashSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let mut statement = conn.prepare_cached(
        "SELECT part.id, part.session, part.json FROM part LEFT JOIN message ON message.id = part.message
         LEFT JOIN session ON session.id = part.session
         WHERE part.running = 1 ORDER BY session.number, message.position, part.position, part.id",
    )?;
    let mut rows = statement.query([])?;
    let mut tools = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        if running.contains(text(1)?) {
            tools.push(row::json("part", text(0)?, text(2)?)?);
        }
    }
    Ok(tools)
}

/// The last event of the log.
fn last_cursor(conn: &Connection) -> Result<Option<Cursor>, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT seq, id FROM event WHERE json IS NOT NULL ORDER BY seq DESC LIMIT 1")?;
    let last: Option<(i64, String)> = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    last.map(|(seq, id)| Ok(Cursor { seq: uint(seq), id: row::id("event", &id)? })).transpose()
}

impl Store {
    /// A session and its descendants with their state; `None` if it does not exist. Has no bound: a
    /// [long read](Self::long_read).
    pub fn tree(&self, root: &SessionId) -> Result<Option<TreeRows>, StoreError> {
        let dead = self.dead_owners()?;
        let read = self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let cursor = last_cursor(conn)?;
            let (sessions, rows) = (tree_sessions(conn, root)?, super::session::status_rows(conn, None)?);
            Ok((sessions, rows, ledger::reservations(conn, None)?, cursor))
        });
        let (mut sessions, rows, reservations, cursor) = read?;
        if sessions.is_empty() {
            return Ok(None);
        }
        let mut statuses = super::session::live_statuses(rows, &dead)?;
        self.inner.feed.overlay_statuses(&mut statuses);
        let mut statuses: HashMap<SessionId, SessionStatus> = statuses.into_iter().collect();
        for session in &mut sessions {
            session.status = statuses.remove(&session.id);
        }
        let all = AskFilter::default();
        let (permissions, questions) = (self.permissions(&all)?, self.questions(&all)?);
        let tools = self.read(|conn| running_tools(conn, &sessions))?;
        Ok(Some(TreeRows { sessions, reservations, tools, permissions, questions, cursor }))
    }

    /// A session and its descendants, parents before children. Empty if it does not exist. About 10 µs for each, for
    /// callers that then do more with each of them.
    pub fn subtree(&self, root: &SessionId) -> Result<Vec<Session>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(&format!(
                "{SUBTREE}) SELECT session.json, below.id FROM below CROSS JOIN session ON session.number = below.number"
            ))?;
            let mut rows = statement.query([root.as_str()])?;
            let mut family = Vec::new();
            while let Some(row) = rows.next()? {
                let (json, id): (String, String) = (row.get(0)?, row.get(1)?);
                family.push(row::json("session", &id, &json)?);
            }
            Ok(family)
        })
    }

    /// The number of a session's descendants, counting no further than `limit`.
    pub fn count_descendants(&self, root: &SessionId, limit: usize) -> Result<usize, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "WITH RECURSIVE below (id, depth) AS (
                     VALUES (?1, 0)
                     UNION ALL
                     SELECT session.id, below.depth + 1 FROM below JOIN session ON session.parent = below.id
                     WHERE below.depth < 100 LIMIT ?2
                 )
                 SELECT count(*) FROM below",
            )?;
            let limit = int((limit as u64).saturating_add(1));
            let family: i64 = statement.query_row(params![root.as_str(), limit], |row| row.get(0))?;
            Ok(usize::try_from(family).unwrap_or(0).saturating_sub(1))
        })
    }

    /// What a session used itself, and including all its descendants, deleted ones too.
    pub fn usage(&self, session: &SessionId) -> Result<(Usage, Usage), StoreError> {
        self.read(|conn| ledger::sums(conn, session.as_str()))
    }

    /// The running or interrupted model calls of a session.
    pub fn reservations(&self, session: &SessionId) -> Result<Vec<Reservation>, StoreError> {
        self.read(|conn| ledger::reservations(conn, Some(session)))
    }

    /// A session's budget and how much of it is used, if it has one.
    pub fn budget(&self, session: &SessionId) -> Result<Option<BudgetState>, StoreError> {
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let Some((limit, began)) = ledger::budget_row(conn, session.as_str())? else { return Ok(None) };
            let total = ledger::sums(conn, session.as_str())?.1;
            let reserved = ledger::reserved(conn, session.as_str(), "")?;
            Ok(Some(ledger::budget_state(limit, began, &total, reserved)))
        })
    }
}
