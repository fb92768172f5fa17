//! Durable rows of this face, on the store's records.
//!
//! * `rows`, `change`: what the service sees, and several changes in one commit. `keys`: how it is laid out.
//! * `tasks`, `write`: tasks until they end. `open_tasks` knows those in memory. `list`: pages of tasks. `log`: their events.
//! * `sessions`: contexts, and the owners of sessions. `interrupts`. `pushes`: push configurations.
//! * `upkeep`: what is too old goes. `lock`: one service per database.
//!
//! A task that has ended never changes again, so each list is a range of keys that were written once, and the few tasks
//! that have not ended are in memory. Its end is guarded by the version of its row: the first one wins.

mod change;
mod interrupts;
mod keys;
mod list;
mod lock;
mod log;
mod open_tasks;
mod pushes;
mod rows;
mod sessions;
mod tasks;
mod upkeep;
mod write;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use api::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::{Batch, Location, Store, StoreError};

pub use change::{Change, Committed};
pub use rows::{
    Answering, Claim, Delivery, Inserted, Interrupt, InterruptKind, KnownMessage, NewTask, OpenWork, PushRow, RowPage,
    TaskContent, TaskRow, UnfinishedTask, WorkPrompt,
};

use interrupts::OpenInterrupts;
use lock::{ServiceLock, TemporaryDirectory};
use open_tasks::OpenTasks;
use pushes::Followed;
pub use pushes::{MAX_PUSH_CONFIGS, PutPush};
use upkeep::Totals;

/// How often a write is tried again that met another one of the same rows.
const MAX_RETRIES: usize = 8;

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
    // The order matters: the database is closed before it is unlocked, and before its directory is deleted.
    store: Store,
    _lock: ServiceLock,
    temporary: Option<TemporaryDirectory>,
    open: OpenTasks,
    /// Written while tasks end or are deleted, read while a page of a list is put together.
    totals: tokio::sync::RwLock<Totals>,
    interrupts: OpenInterrupts,
    followed: Followed,
}

impl Records {
    /// Opens the rows of a database. One service per database; a second is refused.
    pub async fn open(store: Store, path: &Path) -> Result<Self, OpenError> {
        let lock = ServiceLock::take(path)?;
        Self::load(store, lock, None).await
    }

    /// Rows that are gone when the service stops.
    pub async fn open_temporary(parent: &Path) -> Result<Self, OpenError> {
        let directory = TemporaryDirectory::create(parent)?;
        let lock = ServiceLock::take(&directory.database())?;
        let store = Store::open(&directory.database())?;
        Self::load(store, lock, Some(directory)).await
    }

    async fn load(store: Store, lock: ServiceLock, temporary: Option<TemporaryDirectory>) -> Result<Self, OpenError> {
        let totals = tokio::sync::RwLock::new(Totals::load(&store)?);
        let (open, interrupts, followed) = Default::default();
        let records =
            Self { inner: Arc::new(Inner { store, _lock: lock, temporary, open, totals, interrupts, followed }) };
        records.load_open().await?;
        records.load_interrupts().await?;
        records.load_deliveries().await?;
        Ok(records)
    }

    /// A batch without changes. A temporary database outlives no crash, so that it need not wait for the disk.
    fn batch(&self, durable: bool) -> Batch {
        let batch = Batch::new(&Location::new("", ""));
        match durable && self.inner.temporary.is_none() {
            true => batch.durable(),
            false => batch,
        }
    }
}

type Write<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs a write to its end, also when its caller goes away meanwhile: what is in memory must follow what was stored.
async fn complete<T: Send + 'static>(
    write: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let mut write: Write<Result<T, StoreError>> = Box::pin(write);
    // Most commits are done at once.
    match futures::poll!(&mut write) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => tokio::spawn(write).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a write of a task's rows did not end");
            Err(StoreError::Closed)
        }),
    }
}

fn to_json(value: &impl Serialize) -> Result<Json, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::Invalid(error.to_string()))
}

fn from_json<T: DeserializeOwned>(namespace: &'static str, key: &str, value: Json) -> Result<T, StoreError> {
    serde_json::from_value(value).map_err(|error| StoreError::Row {
        table: namespace,
        id: key.to_owned(),
        detail: error.to_string(),
    })
}

/// A record as a value.
fn read<T: DeserializeOwned>(store: &Store, namespace: &'static str, key: &str) -> Result<Option<T>, StoreError> {
    store.record(namespace, key)?.map(|record| from_json(namespace, key, record.value)).transpose()
}
