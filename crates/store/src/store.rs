//! The store's handle: opening, committing, leases, signals and watching. Queries are in
//! [`sqlite::read`](crate::sqlite::read), upkeep is in [`upkeep`](crate::upkeep).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::{Cursor, EventBody, Part, PartId, SessionId, SessionStatus, WatchItem, WatchScope};
use futures::stream::BoxStream;
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::batch::{Batch, CommitOutcome, Location};
use crate::error::StoreError;
use crate::feed::{Feed, WATCH_BYTES, watch};
use crate::long_read::LongReads;
use crate::sqlite::file::data_loss::{self, DataLoss, TipFile};
use crate::sqlite::file::identity::FileIdentity;
use crate::sqlite::file::read_only::{self, Access};
use crate::sqlite::lease::signal::{self, Signal};
use crate::sqlite::lease::{AcquireOutcome, OwnerLock, Owners};
use crate::sqlite::read::Readers;
use crate::sqlite::upkeep::space::{self, DiskUsage};
use crate::sqlite::write::{self, Job, Observer, WriteRequest, WriteResponse, Writer, WriterMessage};
use crate::sqlite::{log, schema};

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
    snapshot: Option<Arc<Readers>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// Taken on drop, which ends the writer thread.
    writer_messages: Option<std_mpsc::Sender<WriterMessage>>,
    slots: Arc<Semaphore>,
    writer: Arc<Mutex<Writer>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) feed: Arc<Feed>,
    observer: Arc<Observer>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) long_reads: LongReads,
    /// `None` for a read-only store, whose files are not checked.
    identity: Option<Arc<FileIdentity>>,
    write_retry_timeout: Duration,
    data_loss: Option<DataLoss>,
    pub(crate) owners: Owners,
    schedule: Option<WriteSchedule>,
    signals: Mutex<Option<mpsc::Receiver<(SessionId, Signal)>>>,
    /// Why nothing can be written, for a read-only store.
    read_only_reason: Option<StoreError>,
    /// Dropped last: until then this process counts as alive. `None` for a read-only store.
    lock: Option<OwnerLock>,
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

/// An open database file.
struct OpenedFile {
    conn: Connection,
    data_loss: Option<DataLoss>,
    identity: Option<Arc<FileIdentity>>,
    access: Access,
}

impl Store {
    /// Opens or creates a database (directory 0700, file 0600) and migrates it to the newest schema. A damaged file,
    /// another program's database and a newer schema are refused and left untouched.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, Options::default())
    }

    /// Like [`open`](Self::open), with other limits.
    pub fn open_with(path: &Path, options: Options) -> Result<Self, StoreError> {
        let (conn, data_loss) =
            schema::open(path, options.busy_timeout).map_err(|error| read_only::explain_open_error(path, error))?;
        if let Some(data_loss) = &data_loss {
            tracing::error!("{data_loss}");
        }
        let identity = Some(Arc::new(FileIdentity::of(path)?));
        let (owners, lock) = Owners::register(path)?;
        let opened = OpenedFile { conn, data_loss, identity, access: Access::Shared };
        Self::assemble(path, &options, opened, owners, Ok(lock))
    }

    /// Like [`open_with`](Self::open_with), but falls back to a read-only store if the disk is full or the folder is
    /// read-only. A missing database then has no rows.
    pub fn open_or_read_only(path: &Path, options: Options) -> Result<Self, StoreError> {
        let why = match Self::open_with(path, options.clone()) {
            Ok(store) => return Ok(store),
            Err(why) => why,
        };
        let busy = options.busy_timeout;
        let access = read_only::find_access(path, busy, why.clone())?;
        let conn = access.open(path, busy).map_err(|error| error.at(path))?;
        let opened = OpenedFile { conn, data_loss: None, identity: None, access };
        Self::assemble(path, &Options { max_pages: None, ..options }, opened, Owners::read_only(path), Err(why))
    }

    /// Why nothing can be written, if the store is read-only.
    pub fn read_only_reason(&self) -> Option<&StoreError> {
        self.inner.read_only_reason.as_ref()
    }

    /// `lock` is this process's lock, or the reason why the store is read-only.
    fn assemble(
        path: &Path,
        options: &Options,
        opened: OpenedFile,
        owners: Owners,
        lock: Result<OwnerLock, StoreError>,
    ) -> Result<Self, StoreError> {
        let OpenedFile { conn, data_loss, identity, access } = opened;
        let (lock, read_only_reason) = match lock {
            Ok(lock) => (Some(lock), None),
            Err(why) => (None, Some(why)),
        };
        if let Some(pages) = options.max_pages {
            let set = conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
            set.map_err(|error| StoreError::from(error).at(path))?;
        }
        let feed = Arc::new(Feed::new(options.watch_bytes));
        let tip = log::tip(&conn).map_err(|error| error.at(path))?;
        feed.start(tip);
        let (writer_messages, queue) = std_mpsc::channel();
        let (signals, signal_receiver) = mpsc::channel(signal::QUEUE);
        let observer = Arc::new(Observer::default());
        let mut writer = Writer {
            conn,
            observer: observer.clone(),
            path: path.to_owned(),
            identity: identity.clone(),
            tip: read_only_reason.is_none().then(|| TipFile::open(path, tip)).transpose()?,
            owners: owners.clone(),
            feed: feed.clone(),
            signals,
            busy: options.busy_timeout,
            keep: options.keep_events.max(1),
            keep_bytes: options.keep_event_bytes,
            crash_after: options.crash_after,
            state: write::WriterState::default(),
        };
        writer.watch_wal().map_err(|error| error.at(path))?;
        let writer = Arc::new(Mutex::new(writer));
        let run_writer = {
            let writer = writer.clone();
            move || write::run(&writer, &queue)
        };
        let thread = match read_only_reason {
            None => Some(std::thread::Builder::new().name("store-writer".to_owned()).spawn(run_writer)),
            Some(_) => None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                writer_messages: thread.is_some().then_some(writer_messages),
                slots: Arc::new(Semaphore::new(write::QUEUE)),
                writer,
                thread: thread.transpose().map_err(|error| StoreError::io(path, &error))?,
                feed,
                observer,
                readers: Arc::new(Readers::new(path, options.busy_timeout, identity.clone(), access)),
                long_reads: LongReads::new(options.schedule.is_some()),
                identity,
                write_retry_timeout: options.write_retry_timeout,
                data_loss,
                owners,
                schedule: options.schedule.clone(),
                signals: Mutex::new(Some(signal_receiver)),
                read_only_reason,
                lock,
            }),
            snapshot: None,
        })
    }

    /// Whether the disk that holds a database is full.
    pub fn is_disk_full(path: &Path) -> bool {
        read_only::is_disk_full(path)
    }

    /// Checks a whole database file for damage without changing it.
    pub fn check(path: &Path) -> Result<(), StoreError> {
        schema::check(path, BUSY_TIMEOUT)
    }

    /// Reports what uses the space of a database file, without changing it.
    pub fn disk_usage(path: &Path) -> Result<DiskUsage, StoreError> {
        space::disk_usage(path, BUSY_TIMEOUT)
    }

    /// Returns the commits that a database file lost since it was last open. Changes nothing.
    pub fn detect_data_loss(path: &Path) -> Result<Option<DataLoss>, StoreError> {
        schema::detect_data_loss(path, BUSY_TIMEOUT)
    }

    /// The reports of a database's earlier data losses, oldest first.
    pub fn past_data_losses(path: &Path) -> Vec<String> {
        data_loss::reports(path)
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
        let stream = watch::watch(feed, (readers, long_reads), self.owner(), scope, after)?;
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

    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.snapshot.as_ref().unwrap_or(&self.inner.readers).read(query)
    }

    pub(crate) fn live_texts(&self, wanted: impl Fn(&Part) -> bool) -> HashMap<PartId, String> {
        self.inner.feed.live_texts(wanted)
    }

    /// Whether the process with this name in leases is alive.
    pub fn is_alive(&self, owner: &str) -> bool {
        self.inner.owners.is_alive(owner)
    }
}
