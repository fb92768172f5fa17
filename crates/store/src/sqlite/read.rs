//! The reading side: a small pool of connections that see the last commit, and the queries over them.
//!
//! A query reads one row by key, or the few rows of one session, call or running turn, unless its documentation says
//! otherwise; it may run on any thread. A query without such a bound is documented as a
//! [long read](crate::Store::long_read), and asynchronous code must call it there.

mod history;
mod message;
mod pages;
mod records;
mod session;
mod state;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::file::identity::FileIdentity;
use crate::sqlite::file::read_only::Access;

pub(crate) use message::newest_stamp;
pub use pages::MessagePages;
pub use records::{RECORD_PAGE_MAX, Record, RecordPage};
pub(crate) use session::session_owner;
pub use session::{CreationOrder, SessionQuery};
pub use state::{AskFilter, AskRow, InboxEntry, Stats};
pub use tree::{TreeRows, TreeSession};

/// The most idle connections kept.
const MAX_IDLE: usize = 4;

/// A pool of read connections. There are as many as threads reading at the same moment; few are kept when idle.
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

    /// Runs a query on the caller's thread. A read by key takes about 20 µs; one without a small bound is a
    /// [long read](crate::Store::long_read).
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let run = || {
            let conn = self.take()?;
            let result = query(&conn)?;
            self.put_back(conn);
            Ok(result)
        };
        run().map_err(|error: StoreError| error.at(&self.path))
    }

    /// A pool of one connection that sees the last commit as of now, whatever is committed later.
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

    /// Takes the snapshot's connection back.
    pub(crate) fn end_snapshot(&self, snapshot: &Self) {
        // A connection whose transaction cannot end is closed.
        let end = |conn: &Connection| conn.prepare_cached("COMMIT")?.execute([]);
        if let Some(conn) = snapshot.idle().pop().filter(|conn| end(conn).is_ok()) {
            self.put_back(conn);
        }
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.idle().pop();
        idle.map_or_else(|| self.open(), Ok)
    }

    /// Opens a connection, unless the path now leads to another database.
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

impl Store {
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.snapshot.as_ref().unwrap_or(&self.inner.readers).read(query)
    }
}

/// Begins a transaction so that all queries of one read see the same snapshot, unless one is already open.
pub(crate) fn read_transaction(conn: &Connection) -> rusqlite::Result<Option<Transaction<'_>>> {
    conn.is_autocommit().then(|| conn.unchecked_transaction()).transpose()
}
