//! The store's handle: committing, leases, signals and watching. The back end opens it and has its queries; upkeep is in
//! [`upkeep`](crate::upkeep).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::{Cursor, EventBody, Part, PartId, SessionId, SessionStatus, WatchItem, WatchScope};
use futures::stream::BoxStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::batch::{Batch, CommitOutcome, Location};
use crate::error::StoreError;
use crate::feed::stored::StoredLog;
use crate::feed::{Feed, WATCH_BYTES, watch};
use crate::lease::{AcquireOutcome, Peers, Signal};
use crate::long_read::LongReads;
use crate::sqlite::file::data_loss::DataLoss;
use crate::sqlite::file::identity::FileIdentity;
use crate::sqlite::lease::OwnerLock;
use crate::sqlite::read::Readers;
use crate::sqlite::write::{self, Job, Observer, WriteRequest, WriteResponse, Writer, WriterMessage};

/// The number of newest rows the log keeps. It holds at most 256 more once pruning has caught up.
pub const KEEP_EVENTS: u64 = 100_000;

/// The log keeps fewer rows if they exceed this many bytes, by at most a megabyte. The newest row always stays,
/// whatever its size.
pub const KEEP_EVENT_BYTES: u64 = 64 << 20;

/// How long a transaction waits for another process's lock.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a turn retries a write that fails for a transient reason. Long enough for a person to free some space,
/// short enough that an unattended turn ends with an error instead of waiting forever.
pub const WRITE_RETRY_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Settings that tests and benchmarks change; everyone else uses the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of newest rows the log keeps.
    pub keep_events: u64,
    /// The most bytes the log keeps.
    pub keep_event_bytes: u64,
    /// The most memory used by events queued for all watchers together.
    pub watch_bytes: usize,
    /// How long a transaction waits for another process's lock.
    pub busy_timeout: Duration,
    /// How long a turn retries a failed write.
    pub write_retry_timeout: Duration,
    /// The database's size limit in pages, to simulate a small disk.
    pub max_pages: Option<u32>,
    /// Kills this process with SIGKILL right after this many commits, before anyone hears of the last one.
    pub crash_after: Option<u64>,
    /// Runs writes and long reads on their callers' threads, the writes in an order that the test chooses.
    pub schedule: Option<WriteSchedule>,
}

/// Chooses the order of writes in tests. Each write runs on its caller's thread, which yields this many times before
/// and after it, so a single-threaded runtime replays the same order for the same numbers.
#[derive(Clone)]
pub struct WriteSchedule(pub Arc<dyn Fn() -> u32 + Send + Sync>);

impl std::fmt::Debug for WriteSchedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteSchedule")
    }
}

impl WriteSchedule {
    async fn yield_to_others(&self) {
        for _ in 0..(self.0)() {
            tokio::task::yield_now().await;
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_events: KEEP_EVENTS,
            keep_event_bytes: KEEP_EVENT_BYTES,
            watch_bytes: WATCH_BYTES,
            busy_timeout: BUSY_TIMEOUT,
            write_retry_timeout: WRITE_RETRY_TIMEOUT,
            max_pages: None,
            crash_after: None,
            schedule: None,
        }
    }
}

/// A handle on the durable journal. Cheap to clone; the file is closed when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// The connection this clone reads with, if all its reads come from one snapshot.
    pub(crate) snapshot: Option<Arc<Readers>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// Taken on drop, which ends the writer thread.
    pub(crate) writer_messages: Option<std_mpsc::Sender<WriterMessage>>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) writer: Arc<Mutex<Writer>>,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) long_reads: LongReads,
    /// `None` for a read-only store, whose files are not checked.
    pub(crate) identity: Option<Arc<FileIdentity>>,
    pub(crate) write_retry_timeout: Duration,
    pub(crate) data_loss: Option<DataLoss>,
    pub(crate) owners: Arc<dyn Peers>,
    pub(crate) schedule: Option<WriteSchedule>,
    pub(crate) signals: Mutex<Option<mpsc::Receiver<(SessionId, Signal)>>>,
    /// Why nothing can be written, for a read-only store.
    pub(crate) read_only_reason: Option<StoreError>,
    /// Dropped last: until then this process counts as alive. `None` for a read-only store.
    pub(crate) lock: Option<OwnerLock>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.feed.close();
        self.writer_messages = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Store {
    /// Why nothing can be written, if the store is read-only.
    pub fn read_only_reason(&self) -> Option<&StoreError> {
        self.inner.read_only_reason.as_ref()
    }

    /// The commits that were missing when the database was opened.
    pub fn data_loss(&self) -> Option<&DataLoss> {
        self.inner.data_loss.as_ref()
    }

    /// Fails if the file at the path is no longer the open database, so that nothing can be written.
    pub fn health(&self) -> Result<(), StoreError> {
        match (&self.inner.read_only_reason, &self.inner.identity) {
            (Some(why), _) => Err(why.clone()),
            (None, Some(identity)) => identity.check(),
            (None, None) => Ok(()),
        }
    }

    /// How long a turn retries a write that fails for a transient reason.
    pub fn write_retry_timeout(&self) -> Duration {
        self.inner.write_retry_timeout
    }

    /// This process's name in leases, unique to each open store.
    pub fn owner(&self) -> &str {
        self.inner.owners.name()
    }

    /// The locked file that shows that this process is alive. A child that inherits it keeps this process's leases from
    /// being taken over until the child ends too. `None` if the store is read-only.
    pub fn lock_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.lock.as_ref().map(OwnerLock::fd)
    }

    /// Writes a batch, all of it or nothing. Returns after the transaction (and the fsync, if the batch is durable),
    /// and after its events went to the watchers of this process. A failed batch has written nothing and can be
    /// committed again.
    pub async fn commit(&self, batch: impl Into<Arc<Batch>>) -> Result<CommitOutcome, StoreError> {
        match self.request(WriteRequest::Commit(batch.into())).await? {
            WriteResponse::Commit(committed) => Ok(committed),
            _ => Err(StoreError::Closed),
        }
    }

    /// Acquires a session's lease if it is free, if its owner is dead, or if this store already holds it; in the last
    /// case the earlier lease becomes stale. The caller makes sure that its own process runs a session only once.
    pub async fn acquire(&self, session: &SessionId) -> Result<AcquireOutcome, StoreError> {
        match self.request(WriteRequest::Acquire(session.clone())).await? {
            WriteResponse::Acquire(acquire) => Ok(acquire),
            _ => Err(StoreError::Closed),
        }
    }

    /// Sends a signal to the process that runs a session. Returns false if no live process does.
    pub async fn signal(&self, session: &SessionId, signal: Signal) -> Result<bool, StoreError> {
        match self.request(WriteRequest::Signal(session.clone(), signal)).await? {
            WriteResponse::Signal(sent) => Ok(sent),
            _ => Err(StoreError::Closed),
        }
    }

    /// The receiver of this process's signals. Only the first caller gets it.
    pub fn take_signals(&self) -> Option<mpsc::Receiver<(SessionId, Signal)>> {
        self.inner.signals.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends new text to the watchers of this process without storing it. `part` is a text or reasoning part that has a
    /// row, with its full text so far, `delta` included.
    pub fn send_delta(&self, location: &Location, part: &Part, delta: &str) {
        self.inner.feed.send_delta(location, part, delta);
    }

    /// Sends an event to the watchers of this process without storing it: one that matters only now, or while the
    /// database refuses writes. A session status also overrides the stored one in [`statuses`](Self::statuses). The
    /// next commit under the session's lease sends the stored status again before its own events; so does
    /// [`restore_status`](Self::restore_status).
    pub fn publish_transient(&self, location: &Location, body: EventBody) {
        let stored = match &body {
            // Only a running turn publishes a status.
            EventBody::SessionStatus { session_id, .. } => {
                Some(self.stored_status(session_id).unwrap_or(SessionStatus::Busy))
            }
            _ => None,
        };
        self.inner.feed.publish_transient(location, body, stored);
    }

    /// Sends the stored status of a session again if [`publish_transient`](Self::publish_transient) replaced it.
    pub fn restore_status(&self, session: &SessionId) {
        self.inner.feed.restore_status(session);
    }

    /// The status with which [`publish_transient`](Self::publish_transient) replaced a session's stored one.
    pub fn transient_status(&self, session: &SessionId) -> Option<SessionStatus> {
        self.inner.feed.transient_status(session)
    }

    /// Streams events after a cursor, or from now on.
    ///
    /// A cursor that is pruned or belongs to another log yields [`WatchItem::Resync`] first. A watcher that leaves
    /// [`WATCH_QUEUE`](crate::WATCH_QUEUE) events unread, or that is furthest behind when [`WATCH_BYTES`] are queued
    /// for all watchers, gets [`WatchItem::Lagged`] as its last item. Parts whose text is growing come first, as
    /// `message.part.updated` without a cursor; their deltas follow.
    ///
    /// This call reads little: the row of the cursor, and for the first watcher the parts that are growing. The stream
    /// replays the log as [long reads](Self::long_read), a page at a time, and needs a Tokio runtime for that.
    pub fn watch(&self, scope: WatchScope, after: Option<Cursor>) -> Result<BoxStream<'static, WatchItem>, StoreError> {
        let Inner { feed, readers, long_reads, .. } = &*self.inner;
        let log: Arc<dyn StoredLog> = readers.clone();
        let stream = watch::watch(feed, (&log, long_reads), self.owner(), scope, after)?;
        self.send(WriterMessage::Follow)?;
        Ok(stream)
    }

    /// Calls `observer` for every event that this process commits, on the thread that wrote it, so that no other thread
    /// is woken. It must be quick. A later observer replaces an earlier one.
    pub fn observe(&self, observer: impl Fn(&EventBody) + Send + Sync + 'static) {
        self.inner.observer.set(observer);
    }

    /// The approximate memory of events that watchers have not read yet.
    pub fn unread_bytes(&self) -> usize {
        self.inner.feed.unread_bytes()
    }

    /// How many writes are queued or running.
    pub fn queued_writes(&self) -> usize {
        write::QUEUE.saturating_sub(self.inner.slots.available_permits())
    }

    pub(crate) async fn request(&self, request: WriteRequest) -> Result<WriteResponse, StoreError> {
        if let Some(why) = &self.inner.read_only_reason {
            return Err(why.clone());
        }
        if let Some(schedule) = &self.inner.schedule {
            schedule.yield_to_others().await;
            let result = write::execute_here(&self.inner.writer, request);
            schedule.yield_to_others().await;
            return result;
        }
        let requested_at = Instant::now();
        // Inline commits must not overtake queued writes.
        let request = if self.queued_writes() == 0 {
            match write::commit_inline(&self.inner.writer, request) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(request) => request,
            }
        } else {
            request
        };
        let slot = self.inner.slots.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, response) = oneshot::channel();
        self.send(WriterMessage::Job(Box::new(Job { request, requested_at, reply, _slot: slot })))?;
        response.await.map_err(|_| StoreError::Closed)?
    }

    fn send(&self, message: WriterMessage) -> Result<(), StoreError> {
        let closed = || self.inner.read_only_reason.clone().unwrap_or(StoreError::Closed);
        let writer_messages = self.inner.writer_messages.as_ref().ok_or_else(closed)?;
        writer_messages.send(message).map_err(|_| StoreError::Closed)
    }

    /// Runs several reads against one snapshot: everything read through the store passed to `read` is from the same
    /// moment. This also costs less than separate reads.
    pub fn snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let snapshot = Arc::new(self.inner.readers.begin_snapshot()?);
        let result = read(&Self { inner: self.inner.clone(), snapshot: Some(snapshot.clone()) });
        self.inner.readers.end_snapshot(&snapshot);
        result
    }

    pub(crate) fn live_texts(&self, wanted: impl Fn(&Part) -> bool) -> HashMap<PartId, String> {
        self.inner.feed.live_texts(wanted)
    }

    /// Whether the process with this name in leases is alive.
    pub fn is_alive(&self, owner: &str) -> bool {
        self.inner.owners.is_alive(owner)
    }
}
