//! Queries for all other rows: inbox, asks, approvals, todo lists, projects.

use api::{
    Action, Approval, FileVersion, Json, MessageId, PermissionRequest, Project, QuestionRequest, Rule, Ruleset,
    SessionId, Timestamp, Todo,
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::DeserializeOwned;

use crate::Store;
use crate::ask::AskKind;
use crate::error::StoreError;
use crate::sqlite::log;
use crate::sqlite::read::read_transaction;
use crate::sqlite::row::{self, uint};

/// An accepted prompt that has not been completed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    /// The prompt.
    pub message_id: MessageId,
    /// Its session.
    pub session_id: SessionId,
    /// How often a process started to run it.
    pub attempts: u32,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// Data that the engine stored with it: the hash of a [shared text](crate::SharedText).
    pub data: Option<String>,
    /// The number of its turn.
    pub turn: u64,
}

/// Which asks to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskFilter {
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those of this project.
    pub project: Option<String>,
    /// Only those of this directory.
    pub directory: Option<String>,
    /// Only those of sessions that belong to this caller.
    pub owner: Option<String>,
}

/// An ask, answered or not.
#[derive(Debug, Clone, PartialEq)]
pub struct AskRow {
    /// The id of the ask.
    pub id: String,
    /// The session that asks.
    pub session_id: SessionId,
    /// Whether it is a permission request or a question.
    pub kind: AskKind,
    /// The request as JSON.
    pub data: String,
    /// The answer.
    pub reply: Option<Json>,
}

/// Sizes of the log and the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Rows of the log.
    pub events: u64,
    /// Sessions.
    pub sessions: u64,
    /// The log's oldest sequence number.
    pub first_seq: u64,
    /// The log's newest sequence number.
    pub last_seq: u64,
    /// Bytes of the database file.
    pub bytes: u64,
}

impl Store {
    /// A session's accepted prompts, in the order they were accepted, without those that are queued for a turn of their
    /// own and no messages yet.
    pub fn inbox(&self, session: &SessionId) -> Result<Vec<InboxEntry>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT message, attempts, accepted, data, turn FROM inbox WHERE session = ?1 AND input IS NULL
                 ORDER BY position",
            )?;
            let mut rows = statement.query([session.as_str()])?;
            let mut inbox = Vec::new();
            while let Some(row) = rows.next()? {
                inbox.push(InboxEntry {
                    message_id: row::id("inbox", &row.get::<_, String>(0)?)?,
                    session_id: session.clone(),
                    attempts: row.get(1)?,
                    accepted: row.get(2)?,
                    data: row.get(3)?,
                    turn: uint(row.get(4)?),
                });
            }
            Ok(inbox)
        })
    }

    /// Open permission requests, oldest first. A row for each call that waits for an answer.
    pub fn permissions(&self, filter: &AskFilter) -> Result<Vec<PermissionRequest>, StoreError> {
        self.asks(AskKind::Permission, filter)
    }

    /// Open questions, oldest first. A row for each call that waits for an answer.
    pub fn questions(&self, filter: &AskFilter) -> Result<Vec<QuestionRequest>, StoreError> {
        self.asks(AskKind::Question, filter)
    }

    /// The asks of a tool call, answered or not, oldest first.
    pub fn asks_of_call(&self, session: &SessionId, call: &str) -> Result<Vec<AskRow>, StoreError> {
        self.read(|conn| {
            let mut statement =
                conn.prepare_cached("SELECT id FROM ask WHERE session = ?1 AND call = ?2 ORDER BY number")?;
            let ids: Vec<String> =
                statement.query_map([session.as_str(), call], |row| row.get(0))?.collect::<Result<_, _>>()?;
            ids.iter().filter_map(|id| ask_row(conn, id).transpose()).collect()
        })
    }

    fn asks<T: DeserializeOwned>(&self, kind: AskKind, filter: &AskFilter) -> Result<Vec<T>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT id, json FROM ask WHERE kind = ?1 AND reply IS NULL AND (?2 IS NULL OR session = ?2)
                 AND (?3 IS NULL OR project = ?3) AND (?4 IS NULL OR directory = ?4)
                 AND (?5 IS NULL OR ?5 = (SELECT owner FROM session WHERE id = ask.session)) ORDER BY number",
            )?;
            let session = filter.session.as_ref().map(SessionId::as_str);
            let AskFilter { project, directory, owner, .. } = filter;
            let mut rows = statement.query(params![kind.name(), session, project, directory, owner])?;
            let mut asks = Vec::new();
            while let Some(row) = rows.next()? {
                let (id, json): (String, String) = (row.get(0)?, row.get(1)?);
                asks.push(row::json("ask", &id, &json)?);
            }
            Ok(asks)
        })
    }

    /// An ask, answered or not.
    pub fn ask(&self, id: &str) -> Result<Option<AskRow>, StoreError> {
        self.read(|conn| ask_row(conn, id))
    }

    /// The approvals of one project or of all, oldest first.
    pub fn approvals(&self, project: Option<&str>) -> Result<Vec<Approval>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT id, project, directory, permission, pattern, created FROM approval
                 WHERE ?1 IS NULL OR project = ?1 ORDER BY number",
            )?;
            let mut rows = statement.query([project])?;
            let mut approvals = Vec::new();
            while let Some(row) = rows.next()? {
                approvals.push(Approval {
                    id: row::id("approval", &row.get::<_, String>(0)?)?,
                    project_id: row.get(1)?,
                    directory: row.get(2)?,
                    permission: row.get(3)?,
                    pattern: row.get(4)?,
                    created: row.get(5)?,
                });
            }
            Ok(approvals)
        })
    }

    /// The approvals of a directory as rules, oldest first.
    pub fn approved_rules(&self, directory: &str) -> Result<Ruleset, StoreError> {
        self.read(|conn| {
            let mut statement =
                conn.prepare_cached("SELECT permission, pattern FROM approval WHERE directory = ?1 ORDER BY number")?;
            let rules = statement.query_map([directory], |row| {
                Ok(Rule::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?, Action::Allow))
            })?;
            Ok(rules.collect::<Result<_, _>>()?)
        })
    }

    /// A session's todo list.
    pub fn todos(&self, session: &SessionId) -> Result<Vec<Todo>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT json FROM todo WHERE session = ?1")?;
            let json: Option<String> = statement.query_row([session.as_str()], |row| row.get(0)).optional()?;
            json.map_or(Ok(Vec::new()), |json| row::json("todo", session.as_str(), &json))
        })
    }

    /// The content of a file as a session last read or wrote it.
    pub fn file_version(&self, session: &SessionId, path: &str) -> Result<Option<FileVersion>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT hash, content FROM file_version WHERE session = ?1 AND path = ?2";
            let mut statement = conn.prepare_cached(sql)?;
            let version = |row: &rusqlite::Row<'_>| Ok(FileVersion { hash: row.get(0)?, content: row.get(1)? });
            Ok(statement.query_row([session.as_str(), path], version).optional()?)
        })
    }

    /// All known projects, in the order of their first use. A row for each repository that was ever opened.
    pub fn projects(&self) -> Result<Vec<Project>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT id, json FROM project ORDER BY number")?;
            let mut rows = statement.query([])?;
            let mut projects = Vec::new();
            while let Some(row) = rows.next()? {
                let (id, json): (String, String) = (row.get(0)?, row.get(1)?);
                projects.push(row::json("project", &id, &json)?);
            }
            Ok(projects)
        })
    }

    /// A project.
    pub fn project(&self, id: &str) -> Result<Option<Project>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT json FROM project WHERE id = ?1")?;
            let json: Option<String> = statement.query_row([id], |row| row.get(0)).optional()?;
            json.map(|json| row::json("project", id, &json)).transpose()
        })
    }

    /// A shared text, by its hash.
    pub fn shared(&self, hash: &str) -> Result<Option<String>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT text FROM shared WHERE hash = ?1")?;
            Ok(statement.query_row([hash], |row| row.get(0)).optional()?)
        })
    }

    /// Sizes of the log and the database. Counts all events, which takes milliseconds.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let number = |sql: &str| -> Result<u64, StoreError> {
                Ok(uint(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?))
            };
            let (first_seq, last_seq) = (log::first(conn)?, log::tip(conn)?);
            Ok(Stats {
                events: number("SELECT count(*) FROM event")?,
                sessions: number("SELECT count(*) FROM session")?,
                first_seq,
                last_seq,
                bytes: number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?),
            })
        })
    }
}

fn ask_row(conn: &Connection, id: &str) -> Result<Option<AskRow>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT session, kind, json, reply FROM ask WHERE id = ?1")?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (session, kind): (String, String) = (row.get(0)?, row.get(1)?);
    let reply: Option<String> = row.get(3)?;
    let kind = AskKind::parse(&kind).ok_or_else(|| StoreError::Row {
        table: "ask",
        id: id.to_owned(),
        detail: format!("unknown kind {kind:?}"),
    })?;
    Ok(Some(AskRow {
        id: id.to_owned(),
        session_id: row::id("ask", &session)?,
        kind,
        data: row.get(2)?,
        reply: reply.map(|reply| row::json("ask", id, &reply)).transpose()?,
    }))
}
