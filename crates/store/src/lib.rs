//! The durable journal: rows and their events in one SQLite file that several processes share.
//!
//! [`Store::commit`] is the one way to change durable state, [`Store::watch`] replays the log and then follows it,
//! [`Store::acquire`] says who runs a session, [`Store::signal`] reaches that process.
//!
//! Invariants: what a watcher saw was committed (text that grows is the exception, see [`Store::live`]); frames go out
//! in the order of their sequence numbers, which are never used twice; nothing waits for a watcher.

mod apply;
mod batch;
mod error;
mod feed;
mod lease;
mod ledger;
mod log;
mod read;
mod row;
mod schema;
mod signal;
mod text;
mod watch;
mod writer;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use api::{Cursor, EventBody, Part, PartId, SessionId, WatchItem, WatchScope};
use futures::stream::BoxStream;
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use batch::{AskKind, Batch, Committed, Place};
pub use error::{StoreError, Trouble};
pub use feed::WATCH_QUEUE;
pub use lease::{Acquire, Holder, Lease};
pub use ledger::{Reservation, Shortage};
pub use read::{AskFilter, AskRow, Branch, Inbox, Record, SessionQuery, Stats, TreeRows};
pub use signal::Signal;

use feed::Feed;
use lease::{Lock, Owners};
use read::Readers;
use writer::{Call, Done, Job, Observer, Work, Writer};

/// The log keeps at least this many of its newest rows, and at most 256 more once pruning has caught up.
pub const KEEP_EVENTS: u64 = 100_000;

/// How long a transaction waits for another process's.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What tests and benchmarks change; everyone else takes the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// The log keeps this many of its newest rows.
    pub keep_events: u64,
    /// How long a transaction waits for another process's.
    pub busy_timeout: Duration,
    /// The database's size limit in pages, as if the disk were that small.
    pub max_pages: Option<u32>,
    /// This process kills itself with SIGKILL right after so many commits, before anybody hears of the last one.
    pub crash_after: Option<u64>,
    /// Writes are made by whoever asks for them, in an order that a test chooses.
    pub schedule: Option<Schedule>,
}

/// Chooses the order of writes in tests: each is made on its caller's thread, which lets others go first as often as this says,
/// before the write and again after it. So a runtime of one thread plays the same order again for the same numbers.
#[derive(Clone)]
pub struct Schedule(pub Arc<dyn Fn() -> u32 + Send + Sync>);

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Schedule")
    }
}

impl Schedule {
    async fn let_others_go(&self) {
        for _ in 0..(self.0)() {
            tokio::task::yield_now().await;
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_events: KEEP_EVENTS,
            busy_timeout: BUSY_TIMEOUT,
            max_pages: None,
            crash_after: None,
            schedule: None,
        }
    }
}

/// The durable journal. Cheap to clone; the file is closed when the last clone is gone.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// The one connection that this clone reads with, if its reads are of one moment.
    moment: Option<Arc<Readers>>,
}

#[derive(Debug)]
struct Inner {
    /// Taken when the store ends: that is what ends the writer.
    calls: Option<std_mpsc::Sender<Call>>,
    room: Arc<Semaphore>,
    writer: Arc<Mutex<Writer>>,
    thread: Option<JoinHandle<()>>,
    feed: Arc<Feed>,
    observer: Arc<Observer>,
    readers: Arc<Readers>,
    owners: Owners,
    schedule: Option<Schedule>,
    signals: Mutex<Option<mpsc::Receiver<(SessionId, Signal)>>>,
    /// Dropped last: until then this process counts as alive.
    lock: Lock,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.feed.close();
        self.calls = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Store {
    /// Opens or makes a database (directory 0700, file 0600) and brings it to the newest schema. A damaged file, one
    /// of another program and one with a newer schema are refused and left as they are.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, Options::default())
    }

    /// The same, with other bounds.
    pub fn open_with(path: &Path, options: Options) -> Result<Self, StoreError> {
        let conn = schema::open(path, options.busy_timeout)?;
        let (owners, lock) = Owners::enter(path)?;
        if let Some(pages) = options.max_pages {
            let set = conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
            set.map_err(|error| StoreError::from(error).at(path))?;
        }
        let feed = Arc::new(Feed::default());
        feed.start(log::tip(&conn).map_err(|error| error.at(path))?);
        let (calls, queue) = std_mpsc::channel();
        let (signals, received) = mpsc::channel(signal::QUEUE);
        let observer = Arc::new(Observer::default());
        let mut writer = Writer {
            conn,
            observer: observer.clone(),
            path: path.to_owned(),
            owners: owners.clone(),
            feed: feed.clone(),
            signals,
            busy: options.busy_timeout,
            keep: options.keep_events.max(1),
            crash_after: options.crash_after,
            state: writer::State::default(),
        };
        writer.watch_wal().map_err(|error| error.at(path))?;
        let writer = Arc::new(Mutex::new(writer));
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn({
            let writer = writer.clone();
            move || writer::run(&writer, &queue)
        });
        Ok(Self {
            inner: Arc::new(Inner {
                calls: Some(calls),
                room: Arc::new(Semaphore::new(writer::QUEUE)),
                writer,
                thread: Some(thread.map_err(|error| StoreError::io(path, &error))?),
                feed,
                observer,
                readers: Arc::new(Readers::new(path, options.busy_timeout)),
                owners,
                schedule: options.schedule,
                signals: Mutex::new(Some(received)),
                lock,
            }),
            moment: None,
        })
    }

    /// Looks through a whole database file for damage, without changing it.
    pub fn check(path: &Path) -> Result<(), StoreError> {
        schema::check(path, BUSY_TIMEOUT)
    }

    /// This process's name in leases, different for every open store.
    pub fn owner(&self) -> &str {
        self.inner.owners.name()
    }

    /// The locked file that says that this process lives. A child that inherits it keeps this process's leases from
    /// being taken over until it ends, too.
    pub fn lock_fd(&self) -> BorrowedFd<'_> {
        self.inner.lock.fd()
    }

    /// Writes a batch: all of it or nothing. Returns after its transaction (and fsync, if it is durable), and after
    /// its events went to the watchers of this process.
    pub async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        match self.ask_writer(Work::Commit(batch)).await? {
            Done::Commit(committed) => Ok(committed),
            _ => Err(StoreError::Closed),
        }
    }

    /// Takes the lease of a session, if it is free, its owner is dead, or this store holds it already: then the earlier
    /// lease is stale from now on. The caller sees to it that its own process runs a session once.
    pub async fn acquire(&self, session: &SessionId) -> Result<Acquire, StoreError> {
        match self.ask_writer(Work::Acquire(session.clone())).await? {
            Done::Acquire(acquire) => Ok(acquire),
            _ => Err(StoreError::Closed),
        }
    }

    /// Tells the process that runs a session something. False if nobody alive runs it.
    pub async fn signal(&self, session: &SessionId, signal: Signal) -> Result<bool, StoreError> {
        match self.ask_writer(Work::Signal(session.clone(), signal)).await? {
            Done::Signal(sent) => Ok(sent),
            _ => Err(StoreError::Closed),
        }
    }

    /// The signals for this process; the first caller gets them.
    pub fn take_signals(&self) -> Option<mpsc::Receiver<(SessionId, Signal)>> {
        self.inner.signals.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends a piece of text to the watchers of this process; nothing is stored. `part` is a text or reasoning part
    /// whose row is there, with its full text so far, `delta` included.
    pub fn live(&self, place: &Place, part: &Part, delta: &str) {
        self.inner.feed.live(place, part, delta);
    }

    /// Events after a cursor, or from now on.
    ///
    /// A cursor that is not of this log, or that was pruned, gives [`WatchItem::Resync`] first. A watcher that leaves
    /// [`WATCH_QUEUE`] events unread gets [`WatchItem::Lagged`] as its last item. Parts that are growing at the moment
    /// come first as `message.part.updated` without cursor, then their deltas follow.
    pub fn watch(&self, scope: WatchScope, after: Option<Cursor>) -> Result<BoxStream<'static, WatchItem>, StoreError> {
        let stream = watch::watch(&self.inner.feed, &self.inner.readers, self.owner(), scope, after)?;
        self.call(Call::Follow)?;
        Ok(stream)
    }

    /// Has `see` look at every event that this process commits. It is called by whatever thread has written it, so that nobody
    /// is woken for it; it must be quick. A later caller takes the place of an earlier one.
    pub fn observe(&self, see: impl Fn(&EventBody) + Send + Sync + 'static) {
        self.inner.observer.set(see);
    }

    /// How many writes wait or are on their way.
    pub fn queued(&self) -> usize {
        writer::QUEUE.saturating_sub(self.inner.room.available_permits())
    }

    async fn ask_writer(&self, work: Work) -> Result<Done, StoreError> {
        if let Some(schedule) = &self.inner.schedule {
            schedule.let_others_go().await;
            let done = writer::here(&self.inner.writer, work);
            schedule.let_others_go().await;
            return done;
        }
        // Nobody is overtaken.
        let work = if self.queued() == 0 {
            match writer::at_once(&self.inner.writer, work) {
                ControlFlow::Break(done) => return done,
                ControlFlow::Continue(work) => work,
            }
        } else {
            work
        };
        let room = self.inner.room.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        self.call(Call::Job(Box::new(Job { work, reply, _room: room })))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    fn call(&self, call: Call) -> Result<(), StoreError> {
        let calls = self.inner.calls.as_ref().ok_or(StoreError::Closed)?;
        calls.send(call).map_err(|_| StoreError::Closed)
    }

    /// Reads that belong together: all that is read through the store that `look` gets is of one moment. It also costs
    /// less than as many looks at the file.
    pub fn together<T>(&self, look: impl FnOnce(&Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let moment = Arc::new(self.inner.readers.stop()?);
        let answer = look(&Self { inner: self.inner.clone(), moment: Some(moment.clone()) });
        self.inner.readers.go_on(&moment);
        answer
    }

    fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.moment.as_ref().unwrap_or(&self.inner.readers).read(query)
    }

    fn texts(&self, wanted: impl Fn(&Part) -> bool) -> HashMap<PartId, String> {
        self.inner.feed.texts(wanted)
    }

    /// Whether a process lives, by its name in leases.
    pub fn is_alive(&self, owner: &str) -> bool {
        self.inner.owners.alive(owner)
    }
}
