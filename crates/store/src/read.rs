//! The reading side: a few connections that see the last commit, and the queries over them.

mod history;
mod message;
mod session;
mod state;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::schema;

pub use session::SessionQuery;
pub use state::{AskFilter, AskRow, Inbox, Record, Stats};
pub use tree::{Branch, TreeRows};

/// The most idle reader connections that are kept.
const IDLE: usize = 4;

/// A pool of connections that only read. As many exist as threads read at the same moment; few are kept.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    busy: Duration,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(path: &Path, busy: Duration) -> Self {
        Self { path: path.to_owned(), busy, idle: Mutex::default() }
    }

    /// Runs a query. A read takes some 20 µs, so it happens on the caller's thread.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle().pop();
        let run = || -> Result<T, StoreError> {
            let conn = match idle {
                Some(conn) => conn,
                None => schema::reader(&self.path, self.busy)?,
            };
            let answer = query(&conn)?;
            let mut idle = self.idle();
            if idle.len() < IDLE {
                idle.push(conn);
            }
            Ok(answer)
        };
        run().map_err(|error| error.at(&self.path))
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
