//! The reading side: a few connections that see the last commit, and the queries over them.

mod history;
mod message;
mod pages;
mod session;
mod state;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction};

use crate::error::StoreError;
use crate::sqlite::file::identity::FileIdentity;
use crate::sqlite::file::read_only::Access;

pub(crate) use message::newest_stamp;
pub use pages::MessagePages;
pub use session::{CreationOrder, SessionQuery};
pub use state::{AskFilter, AskRow, InboxEntry, Record, Stats};
pub use tree::{TreeRows, TreeSession};

/// The most idle reader connections that are kept.
const MAX_IDLE: usize = 4;

/// A pool of connections that only read. As many exist as threads read at the same moment; few are kept.
#[derive(Debug)]
pub(crate) struct Readers {
    pub path: PathBuf,
    busy: Duration,
    identity: Option<Arc<FileIdentity>>,
    access: Access,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(path: &Path, busy: Duration, identity: Option<Arc<FileIdentity>>, access: Access) -> Self {
        Self { path: path.to_owned(), busy, identity, access, idle: Mutex::default() }
    }

    /// Runs a query. A read takes some 20 µs, so it happens on the caller's thread.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let run = || {
            let conn = self.take()?;
            let result = query(&conn)?;
            self.put_back(conn);
            Ok(result)
        };
        run().map_err(|error: StoreError| error.at(&self.path))
    }

    /// A pool of one connection that sees the last commit as of now, whatever is committed meanwhile.
    pub(crate) fn begin_snapshot(&self) -> Result<Self, StoreError> {
        let run = || {
            let conn = self.take()?;
            conn.prepare_cached("BEGIN")?.execute([])?;
            Ok(conn)
        };
        let conn = run().map_err(|error: StoreError| error.at(&self.path))?;
        let (path, identity) = (self.path.clone(), self.identity.clone());
        Ok(Self { path, busy: self.busy, identity, access: self.access, idle: Mutex::new(vec![conn]) })
    }

    /// Takes its connection back.
    pub(crate) fn end_snapshot(&self, snapshot: &Self) {
        // A connection that cannot end what it began is closed.
        let end = |conn: &Connection| conn.prepare_cached("COMMIT")?.execute([]);
        if let Some(conn) = snapshot.idle().pop().filter(|conn| end(conn).is_ok()) {
            self.put_back(conn);
        }
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.idle().pop();
        idle.map_or_else(|| self.open(), Ok)
    }

    /// Opens a connection, unless the path leads to another database by now.
    fn open(&self) -> Result<Connection, StoreError> {
        self.check()?;
        let conn = self.access.open(&self.path, self.busy)?;
        self.check()?;
        Ok(conn)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.identity.as_ref().map_or(Ok(()), |identity| identity.check())
    }

    fn put_back(&self, conn: Connection) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(conn);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the queries of one read see one moment, if they do not already.
pub(crate) fn read_transaction(conn: &Connection) -> rusqlite::Result<Option<Transaction<'_>>> {
    conn.is_autocommit().then(|| conn.unchecked_transaction()).transpose()
}
