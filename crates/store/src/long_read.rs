//! Long reads. Few threads do them for everybody, so that the threads that serve clients and run turns never wait for
//! one.
//!
//! A read by key, or of a few rows, takes about 20 µs and runs on its caller's thread; its documentation states the
//! bound. A read whose size depends on the data belongs here, in steps of a page each: a step keeps its thread until it
//! ends, and everyone else waits for a thread meanwhile. The same threads turn large values into JSON.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::Store;
use crate::error::StoreError;

/// The most long reads at the same time, and with that the most pages or responses being built in memory.
pub const MAX_LONG_READS: usize = 2;

/// The threads for long reads. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LongReads {
    slots: Arc<Semaphore>,
    /// Runs reads on their callers' threads, for tests that choose the order of everything.
    inline: bool,
}

impl LongReads {
    pub(crate) fn new(inline: bool) -> Self {
        Self { slots: Arc::new(Semaphore::new(MAX_LONG_READS)), inline }
    }

    /// Waits for a thread and runs `read` on it. A caller that goes away while it waits leaves the queue; a read that
    /// has begun frees its thread when it ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.inline {
            return Ok(read());
        }
        let slot = self.slots.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let done = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            read()
        });
        done.await.map_err(|error| {
            if error.is_panic() {
                tracing::error!(%error, "a long read panicked");
            }
            StoreError::Closed
        })
    }
}

impl Store {
    /// Runs a read without a small bound on a thread for [long reads](MAX_LONG_READS): all of it if a page bounds it,
    /// otherwise one page per call. Also the place to turn a large value into JSON.
    pub async fn long_read<T, E>(&self, read: impl FnOnce(&Self) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let store = self.clone();
        self.inner.long_reads.run(move || read(&store)).await?
    }
}
