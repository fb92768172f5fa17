//! The work that the engine does on tasks of its own, and the end of that work at shutdown.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tasks of an engine.
#[derive(Default)]
pub(crate) struct Tasks {
    /// Cancelled when the engine shuts down.
    closing: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// Runs work that a shutdown waits for.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tracker.spawn(work)
    }

    /// For code that spawns its own tasks.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Cancelled when the engine shuts down.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Whether the engine shuts down.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Runs work until the engine shuts down. Returns `None` if that came first.
    pub(crate) async fn until_closing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.closing.run_until_cancelled(work).await
    }

    /// Waits for the tasks to end. No new ones are expected.
    pub(crate) async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
