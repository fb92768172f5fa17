//! Task links: the statements that change them, and their queries. The table has a row for each task that runs.

use api::{PartId, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::row::{self, int, uint};
use crate::task::{Background, LinkedTask, TaskLink, TaskOp, TaskRow};

const COLUMNS: &str = "part, version, parent, child, prompt, title, input, cancelled, careful, awaited, follower";

pub(crate) fn apply(conn: &Connection, op: &TaskOp) -> Result<(), StoreError> {
    match op {
        TaskOp::Put { part, row } => put(conn, part, row),
        TaskOp::Replace { part, version, row } => replace(conn, part, *version, row),
        TaskOp::Remove { part, version: None } => {
            conn.prepare_cached("DELETE FROM task_link WHERE part = ?1")?.execute([part.as_str()])?;
            Ok(())
        }
        TaskOp::Remove { part, version: Some(version) } => {
            let mut statement = conn.prepare_cached("DELETE FROM task_link WHERE part = ?1 AND version = ?2")?;
            require(statement.execute(params![part.as_str(), int(*version)])?, part)
        }
    }
}

fn put(conn: &Connection, part: &PartId, row: &TaskRow) -> Result<(), StoreError> {
    let sql = "INSERT INTO task_link
             (part, version, parent, child, prompt, title, input, cancelled, careful, awaited, follower)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 WHERE EXISTS (SELECT 1 FROM session WHERE id = ?3)
         ON CONFLICT (part) DO UPDATE SET version = version + 1, parent = ?3, child = ?4, prompt = ?5, title = ?6,
             input = ?7, cancelled = ?8, careful = ?9, awaited = ?10, follower = ?11";
    write(conn, sql, part, 1, row).map(drop)
}

/// Parent and child of a call never change, so no page of their indexes is written.
fn replace(conn: &Connection, part: &PartId, version: u64, row: &TaskRow) -> Result<(), StoreError> {
    let sql = "UPDATE task_link SET version = version + 1, prompt = ?5, title = ?6, input = ?7, cancelled = ?8,
             careful = ?9, awaited = ?10, follower = ?11
         WHERE part = ?1 AND version = ?2";
    require(write(conn, sql, part, version, row)?, part)
}

/// Runs a statement whose parameters are the [`COLUMNS`] of a link, in order. Returns how many rows it changed.
fn write(conn: &Connection, sql: &str, part: &PartId, version: u64, row: &TaskRow) -> Result<usize, StoreError> {
    let TaskRow { task, input } = row;
    let background = task.background.as_ref();
    Ok(conn.prepare_cached(sql)?.execute(params![
        part.as_str(),
        int(version),
        task.parent.as_str(),
        task.child.as_str(),
        task.prompt.as_str(),
        task.title,
        input,
        task.cancelled,
        task.careful,
        background.map(|background| background.awaited),
        background.and_then(|background| background.follower.as_ref())
    ])?)
}

fn require(changed: usize, part: &PartId) -> Result<(), StoreError> {
    if changed == 0 { Err(StoreError::Changed { table: "task_link", id: part.to_string() }) } else { Ok(()) }
}

fn link(row: &Row<'_>) -> Result<TaskLink, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let part = text(0)?;
    let input: Option<String> = row.get(6)?;
    let follower = row.get(10)?;
    let awaited: Option<bool> = row.get(9)?;
    Ok(TaskLink {
        part: row::id("task_link", part)?,
        version: uint(row.get(1)?),
        task: LinkedTask {
            parent: row::id("task_link", text(2)?)?,
            child: row::id("task_link", text(3)?)?,
            prompt: row::id("task_link", text(4)?)?,
            title: row.get(5)?,
            input: input.map(|json| row::json("task_link", part, &json)).transpose()?,
            cancelled: row.get(7)?,
            careful: row.get(8)?,
            background: awaited.map(|awaited| Background { awaited, follower }),
        },
    })
}

impl Store {
    /// The link of a call. One row by key.
    pub fn task_link(&self, part: &PartId) -> Result<Option<TaskLink>, StoreError> {
        Ok(self.task_links("part = ?1", &[part.as_str()])?.pop())
    }

    /// The links of a session's calls, ordered by part.
    pub fn tasks_of(&self, parent: &SessionId) -> Result<Vec<TaskLink>, StoreError> {
        self.task_links("parent = ?1", &[parent.as_str()])
    }

    /// The links of the calls that a session works for, ordered by part.
    pub fn tasks_for(&self, child: &SessionId) -> Result<Vec<TaskLink>, StoreError> {
        self.task_links("child = ?1", &[child.as_str()])
    }

    /// The links of a session's background tasks, ordered by part.
    pub fn background_tasks_of(&self, parent: &SessionId) -> Result<Vec<TaskLink>, StoreError> {
        self.task_links("parent = ?1 AND awaited IS NOT NULL", &[parent.as_str()])
    }

    /// The links of all background tasks, ordered by part.
    pub fn background_tasks(&self) -> Result<Vec<TaskLink>, StoreError> {
        self.task_links("awaited IS NOT NULL", &[])
    }

    /// All links, ordered by part.
    pub fn all_tasks(&self) -> Result<Vec<TaskLink>, StoreError> {
        self.task_links("true", &[])
    }

    /// Whether a session has tasks in the background. One search of an index.
    pub fn has_background_tasks(&self, parent: &SessionId) -> Result<bool, StoreError> {
        self.read(|conn| {
            let sql = "SELECT 1 FROM task_link WHERE parent = ?1 AND awaited IS NOT NULL";
            let mut statement = conn.prepare_cached(sql)?;
            Ok(statement.query_row([parent.as_str()], |_| Ok(())).optional()?.is_some())
        })
    }

    fn task_links(&self, condition: &str, values: &[&str]) -> Result<Vec<TaskLink>, StoreError> {
        self.read(|conn| {
            let sql = format!("SELECT {COLUMNS} FROM task_link WHERE {condition} ORDER BY part");
            let mut statement = conn.prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(values))?;
            let mut links = Vec::new();
            while let Some(row) = rows.next()? {
                // A link that this version cannot read must not keep others from being found.
                match link(row) {
                    Ok(link) => links.push(link),
                    Err(error) => tracing::warn!(%error, "a task link is skipped"),
                }
            }
            Ok(links)
        })
    }
}
