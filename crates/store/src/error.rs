//! The errors of the store.

use std::path::{Path, PathBuf};

use api::{MessageId, SessionId, TurnId};

/// What is wrong with the database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseErrorKind {
    /// The file is not a database, or is corrupt.
    #[error("the database is damaged; it was left as it is. Restore a copy, or move it away to start afresh")]
    Damaged,
    /// The file belongs to another program.
    #[error("this is a database of another program; it was left as it is. Choose another path")]
    Foreign,
    /// The disk is full.
    #[error("the disk is full, nothing was written. Free some space and try again")]
    Full,
    /// The file or its directory cannot be written.
    #[error("the database cannot be written. Check the permissions of the file and of its directory")]
    ReadOnly,
    /// Another process held the lock for too long.
    #[error("another process kept the database locked, nothing was written. Try again")]
    Busy,
    /// The file at the path is no longer the open one.
    #[error(
        "the database was moved, deleted or replaced while it was in use, so nothing is written. Put its files back, or \
         stop the program and start it again"
    )]
    Moved,
    /// The operating system could not read or write the file.
    #[error("the disk failed, nothing was written. Check the disk and try again")]
    Io,
    /// The operating system or SQLite failed in some other way.
    #[error("the database failed")]
    Failed,
}

/// Why a call failed. A failed batch has written nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The database file cannot be used.
    #[error("{}: {kind} ({detail})", path.display())]
    Database {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        kind: DatabaseErrorKind,
        /// The error text from SQLite or the operating system.
        detail: String,
    },
    /// A newer version of the program has migrated the database.
    #[error("{}: the database has schema {found}, this program knows {known}; it was left as it is. Update the program", path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The newest schema version this program knows.
        known: i64,
    },
    /// The lease that fences the batch was lost.
    #[error("session {session}: its lease was lost, so nothing was written. Acquire it again")]
    Stale {
        /// The session.
        session: SessionId,
    },
    /// A message with this id already exists.
    #[error("message {id} exists already")]
    Exists {
        /// The message.
        id: MessageId,
    },
    /// The ask cannot be answered.
    #[error("{id}: {}", if *answered { "it was answered already" } else { "no such request waits for an answer" })]
    NotOpen {
        /// The ask.
        id: String,
        /// Whether it was already answered; otherwise it is unknown.
        answered: bool,
    },
    /// The turn is not queued: it has begun, or it has ended.
    #[error("turn {turn} is not queued any more")]
    NotQueued {
        /// The turn.
        turn: TurnId,
    },
    /// The record does not have the expected version.
    #[error("record {namespace}/{key}: it has version {found}, expected was {expected}. Read it again")]
    Conflict {
        /// Its namespace.
        namespace: String,
        /// Its key.
        key: String,
        /// Its version; 0 if it does not exist.
        found: u64,
        /// The version that the caller expected.
        expected: u64,
    },
    /// The row was changed by somebody else since it was read.
    #[error("{table} {id} was changed or removed meanwhile. Read it again")]
    Changed {
        /// Its table.
        table: &'static str,
        /// Its key.
        id: String,
    },
    /// The session does not exist.
    #[error("There is no session {id}; it may have been deleted")]
    NoSession {
        /// Its id.
        id: SessionId,
    },
    /// The message to page from does not exist.
    #[error("there is no message {id}: use the cursor of a page that was listed before")]
    NoMessage {
        /// The message.
        id: MessageId,
    },
    /// A stored row cannot be parsed.
    #[error("row {id} of table {table} cannot be read: {detail}")]
    Row {
        /// Its table.
        table: &'static str,
        /// Its key.
        id: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The batch contains something that cannot be stored.
    #[error("cannot be stored: {0}")]
    Invalid(String),
    /// A bounded queue is full.
    #[error("too many {0} wait; try again later")]
    Overloaded(&'static str),
    /// The store was closed, or its writer thread ended.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    pub(crate) fn database(path: &Path, kind: DatabaseErrorKind, detail: impl ToString) -> Self {
        Self::Database { path: path.to_owned(), kind, detail: detail.to_string() }
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => DatabaseErrorKind::ReadOnly,
            Kind::StorageFull | Kind::QuotaExceeded => DatabaseErrorKind::Full,
            _ => DatabaseErrorKind::Failed,
        };
        Self::database(path, kind, error)
    }

    /// Fills in the path where the code that failed did not know it.
    pub(crate) fn at(mut self, file: &Path) -> Self {
        if let Self::Database { path, .. } | Self::Newer { path, .. } = &mut self
            && path.as_os_str().is_empty()
        {
            *path = file.to_owned();
        }
        self
    }

    /// Whether the same call may succeed later, because the cause can go away: a lock, a full disk, a moved folder.
    pub fn is_transient(&self) -> bool {
        use DatabaseErrorKind::{Busy, Full, Io, Moved, ReadOnly};
        matches!(self, Self::Database { kind: Busy | Full | Io | Moved | ReadOnly, .. })
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Database { kind: DatabaseErrorKind::Busy, .. })
    }
}
