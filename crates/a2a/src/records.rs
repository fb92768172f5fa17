//! Durable rows of this face, on the store's records.

mod change;
mod rows;

use std::path::Path;
use std::sync::Arc;

use api::{SessionId, Timestamp};
use store::{Store, StoreError};

pub use change::{Change, Committed};
pub use rows::{
    Claim, Delivery, Inserted, Interrupt, InterruptKind, KnownMessage, NewTask, OpenWork, PushRow, RowPage,
    TaskContent, TaskRow, UnfinishedTask, WorkPrompt,
};

use crate::call::ListRequest;
use crate::event::NumberedEvent;

/// Why the rows cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another A2A service uses the database.
    #[error("another A2A service uses the database {path}")]
    InUse {
        /// The database.
        path: String,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be made or locked.
    #[error("cannot open {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

/// The rows of a service. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
}

#[allow(unused_variables)]
impl Records {
    /// Opens the rows of a database. One service per database; a second is refused.
    pub async fn open(store: Store, path: &Path) -> Result<Self, OpenError> {
        let _ = path;
        Ok(Self { inner: Arc::new(Inner { store }) })
    }

    /// Rows that are gone when the service stops.
    pub async fn open_temporary(parent: &Path) -> Result<Self, OpenError> {
        unimplemented!()
    }

    /// Inserts a task, its message, the binding of its context and its push configuration. On disk when this returns.
    pub async fn insert(&self, task: NewTask) -> Result<Inserted, StoreError> {
        unimplemented!()
    }

    /// The row of a task.
    pub fn row(&self, task: &str) -> Result<Option<TaskRow>, StoreError> {
        unimplemented!()
    }

    /// The messages of a task, and if it has ended, what it made.
    pub async fn content(&self, task: &str) -> Result<TaskContent, StoreError> {
        unimplemented!()
    }

    /// Writes changes of a task.
    pub async fn commit(&self, change: Change) -> Result<Committed, StoreError> {
        unimplemented!()
    }

    /// A message of an owner that was taken before. Forgotten with its task.
    pub fn message(&self, identity: &str, message_id: &str) -> Result<Option<KnownMessage>, StoreError> {
        unimplemented!()
    }

    /// Marks that the cancellation of a task was asked for. On disk when this returns; the row is not changed.
    pub async fn mark_canceled(&self, task: &str) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// The tasks that have not ended, in the order in which they were accepted.
    pub fn unfinished(&self) -> Vec<String> {
        unimplemented!()
    }

    /// A task that has not ended, with all that is needed to go on.
    pub async fn load_unfinished(&self, task: &str) -> Result<Option<UnfinishedTask>, StoreError> {
        unimplemented!()
    }

    /// The events of a task after a number, oldest first. Those of an ended task are kept for an hour.
    pub async fn events(&self, task: &str, after: u64, limit: usize) -> Result<Vec<NumberedEvent>, StoreError> {
        let _ = &self.inner.store;
        unimplemented!()
    }

    /// A page of the tasks of an owner. A bad cursor is an invalid-params error.
    pub async fn list(&self, identity: &str, request: &ListRequest) -> Result<RowPage, crate::Error> {
        unimplemented!()
    }

    /// The session of a context in a place; `None` names the place where contexts work by default.
    pub fn context_session(
        &self,
        identity: &str,
        context: &str,
        place: Option<&str>,
    ) -> Result<Option<SessionId>, StoreError> {
        unimplemented!()
    }

    /// Binds a context to a session, in a place. Inserting a task does the same.
    pub async fn bind_context(
        &self,
        identity: &str,
        context: &str,
        place: Option<&str>,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Who owns a session.
    pub fn session_owner(&self, session: &SessionId) -> Result<Option<String>, StoreError> {
        unimplemented!()
    }

    /// Who owns sessions, in their order.
    pub async fn session_owners(&self, sessions: Vec<SessionId>) -> Result<Vec<Option<String>>, StoreError> {
        unimplemented!()
    }

    /// Makes an identity the owner of a session. An error if somebody else owns it or has claimed it.
    pub async fn own_session(&self, identity: &str, session: &SessionId) -> Result<(), crate::Error> {
        unimplemented!()
    }

    /// Forgets the owner of a session that was deleted.
    pub async fn forget_session(&self, session: &SessionId) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Reserves a session without an owner for an identity, until it is owned, released, or the time is over.
    pub async fn claim_session(
        &self,
        identity: &str,
        session: &SessionId,
        ttl: std::time::Duration,
    ) -> Result<Claim, StoreError> {
        unimplemented!()
    }

    /// Gives up the claim of an identity.
    pub async fn release_session(&self, identity: &str, session: &SessionId) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// An interrupt that is open, or expired a short while ago: compare [`Interrupt::expires_at`].
    pub fn interrupt(&self, request_id: &str, now: Timestamp) -> Option<Interrupt> {
        unimplemented!()
    }

    /// The interrupts that an identity can answer, oldest first.
    pub fn interrupts(&self, identity: &str, kind: InterruptKind, now: Timestamp) -> Vec<Interrupt> {
        unimplemented!()
    }

    /// The interrupts of a task that can be answered, oldest first.
    pub fn task_interrupts(&self, task: &str, now: Timestamp) -> Vec<Interrupt> {
        unimplemented!()
    }

    /// Deletes what is too old or too much, a bounded amount at a time. Returns whether there is more to do.
    pub async fn upkeep(&self, now: Timestamp) -> Result<bool, StoreError> {
        unimplemented!()
    }
}
