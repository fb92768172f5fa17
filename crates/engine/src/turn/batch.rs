//! The writes of a turn: batches that must be committed, and what waits for the next commit.
//!
//! A commit costs more than what it writes, so a turn defers small writes to its next commit. [`Turn::commit`] adds them
//! in front, so no caller can forget them, and [`Turn::wait`] commits them before a wait.

use std::ops::{Deref, DerefMut};
use std::panic::Location as CodeLocation;
use std::pin::pin;
use std::sync::Mutex;

use api::Part;
use futures::FutureExt;
use store::{Batch, CommitOutcome, StoreError};

use crate::lock;
use crate::turn::Turn;

/// A batch of a turn. It is refused once another process holds the session. Debug builds panic if it is dropped.
#[must_use = "a batch writes nothing until it is committed or deferred"]
pub(crate) struct TurnBatch {
    batch: Batch,
    check: LossCheck,
}

impl TurnBatch {
    #[track_caller]
    fn new(turn: &Turn) -> Self {
        let batch = Batch::new(&turn.place()).fence(&turn.lease);
        Self { batch, check: LossCheck::new(CodeLocation::caller()) }
    }

    /// Makes the commit return only once the data is on disk.
    pub(crate) fn durable(self) -> Self {
        Self { batch: self.batch.durable(), check: self.check }
    }

    fn into_batch(self) -> Batch {
        self.check.pass();
        self.batch
    }
}

impl Deref for TurnBatch {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

impl DerefMut for TurnBatch {
    fn deref_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }
}

/// Finds batches that are dropped instead of committed. Empty in a release build.
struct LossCheck {
    #[cfg(debug_assertions)]
    made_at: Option<&'static CodeLocation<'static>>,
}

#[cfg(debug_assertions)]
impl LossCheck {
    fn new(made_at: &'static CodeLocation<'static>) -> Self {
        Self { made_at: Some(made_at) }
    }

    fn pass(mut self) {
        self.made_at = None;
    }
}

#[cfg(not(debug_assertions))]
impl LossCheck {
    fn new(_: &'static CodeLocation<'static>) -> Self {
        Self {}
    }

    fn pass(self) {}
}

#[cfg(debug_assertions)]
impl Drop for LossCheck {
    fn drop(&mut self) {
        if let Some(made_at) = self.made_at.filter(|_| !std::thread::panicking()) {
            panic!("the batch made at {made_at} was neither committed nor deferred");
        }
    }
}

/// The writes of a turn that wait for its next commit. Debug builds panic if some are left at the end of the turn.
#[derive(Default)]
pub(crate) struct DeferredWrites {
    batch: Mutex<Option<Batch>>,
}

impl DeferredWrites {
    fn take(&self) -> Option<Batch> {
        lock(&self.batch).take()
    }

    fn add(&self, batch: Batch) {
        let mut deferred = lock(&self.batch);
        match &mut *deferred {
            Some(deferred) => deferred.append(batch),
            None => *deferred = Some(batch),
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for DeferredWrites {
    fn drop(&mut self) {
        if let Some(lost) = self.take().filter(|_| !std::thread::panicking()) {
            panic!("a turn ended without committing what it had deferred: {lost:?}");
        }
    }
}

impl Turn {
    /// A new batch of this turn, for [`commit`](Self::commit) or [`defer`](Self::defer). Read what it depends on first:
    /// an error must not leave a batch behind.
    #[track_caller]
    pub(crate) fn batch(&self) -> TurnBatch {
        TurnBatch::new(self)
    }

    /// Defers a batch to the next commit of this turn. Only if that commit follows soon; waits go through
    /// [`wait`](Self::wait).
    pub(crate) fn defer(&self, batch: TurnBatch) {
        self.deferred.add(batch.into_batch());
    }

    /// Sends grown text to subscribers, after anything deferred.
    pub(crate) fn send_delta(&self, part: &Part, delta: &str) {
        match &mut *lock(&self.deferred.batch) {
            Some(deferred) => deferred.delta(part, delta),
            None => self.store().send_delta(&self.place(), part, delta),
        }
    }

    /// Commits what was deferred.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        match self.deferred.take() {
            Some(batch) => self.commit_with_retry(batch).await.map(drop),
            None => Ok(()),
        }
    }

    /// Waits for something that may take long. Commits first what was deferred, unless the result is there at once.
    pub(crate) async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, StoreError> {
        let mut work = pin!(work);
        if let Some(result) = work.as_mut().now_or_never() {
            return Ok(result);
        }
        self.flush().await?;
        Ok(work.await)
    }

    /// Commits a batch of this turn, after what was deferred. All its writes go through here: while the database refuses
    /// one for a transient reason, it is retried and the session's status says so, so that nothing the turn knows is
    /// lost. If the lease is lost meanwhile, the batch fails as stale.
    pub(crate) fn commit(&self, batch: TurnBatch) -> impl Future<Output = Result<CommitOutcome, StoreError>> + Send {
        self.commit_with_retry(self.after_deferred(batch))
    }

    /// Like [`commit`](Self::commit), unless there is nothing to write. Returns whether there was.
    pub(crate) async fn commit_any(&self, batch: TurnBatch) -> Result<bool, StoreError> {
        let batch = self.after_deferred(batch);
        let writes = !batch.is_empty();
        if writes {
            self.commit_with_retry(batch).await?;
        }
        Ok(writes)
    }

    /// Like [`commit`](Self::commit), without retries.
    pub(crate) fn commit_once(
        &self,
        batch: TurnBatch,
    ) -> impl Future<Output = Result<CommitOutcome, StoreError>> + Send {
        self.store().commit(self.after_deferred(batch))
    }

    /// Commits a batch while `work` continues, so that a tool does not stall when the database does. Returns the result
    /// of `work` if it ended first.
    pub(crate) async fn commit_beside<T>(
        &self,
        batch: TurnBatch,
        work: &mut (impl Future<Output = T> + Unpin),
    ) -> Result<Option<T>, StoreError> {
        let mut write = pin!(self.commit(batch));
        tokio::select! {
            biased;
            written = &mut write => written.map(|_| None),
            ended = work => write.await.map(|_| Some(ended)),
        }
    }

    /// Commits a batch about another session, which the lease of this one says nothing about.
    pub(crate) async fn commit_unfenced(&self, batch: Batch) -> Result<CommitOutcome, StoreError> {
        self.commit_with_retry(batch).await
    }

    /// The batch behind what was deferred.
    fn after_deferred(&self, batch: TurnBatch) -> Batch {
        let batch = batch.into_batch();
        match self.deferred.take() {
            Some(mut deferred) => {
                deferred.append(batch);
                deferred
            }
            None => batch,
        }
    }

    async fn commit_with_retry(&self, batch: Batch) -> Result<CommitOutcome, StoreError> {
        self.inner.commit_with_retry(Some((&self.instance.place, &self.session_id)), batch).await
    }
}
