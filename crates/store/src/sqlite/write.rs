//! The single writing connection, and the thread that uses it most of the time: it commits all waiting batches in one
//! transaction, and follows other processes.
//!
//! A batch that needs no fsync is committed inline, on its caller's thread, while nobody else is writing; that is
//! cheaper than two threads waiting for each other.
//!
//! Before each transaction the writer checks that the files are still at their path ([`FileIdentity`]); afterwards it
//! records the end of the log ([`TipFile`]).

pub(crate) mod apply;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{EventBody, Frame, SessionId};
use rusqlite::hooks::Wal;
use rusqlite::{Connection, params};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::batch::{Batch, CommitOutcome, Op};
use crate::error::StoreError;
use crate::feed::Feed;
use crate::lease::{AcquireOutcome, Peers, Signal};
use crate::sqlite::file::data_loss::TipFile;
use crate::sqlite::file::identity::FileIdentity;
use crate::sqlite::lease;
use crate::sqlite::lease::{signal, wakeup};
use crate::sqlite::row::int;
use crate::sqlite::upkeep::space;
use crate::sqlite::upkeep::sweep::Sweep;
use crate::sqlite::{log, schema};
use apply::{Applied, SessionOwners};

/// The most jobs queued for the writer; further callers wait for a slot.
pub(crate) const QUEUE: usize = 1024;

/// The most jobs in one transaction.
const MAX_GROUP: usize = 128;

/// How often the writer looks for other processes' commits: half of the 50 ms within which they must be seen.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The log is pruned after it has grown by this many rows or bytes.
const PRUNE_EVERY_ROWS: u64 = 256;
const PRUNE_EVERY_BYTES: u64 = 1 << 20;

/// The most rows, and about the most bytes, pruned in one transaction, so that nobody waits long for it.
const PRUNE_STEP_ROWS: u64 = 2048;
const PRUNE_STEP_BYTES: u64 = 8 << 20;

/// Deferred upkeep starts after this long without a write, one bounded step at a time.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// A request to the writer.
#[derive(Debug)]
pub(crate) enum WriteRequest {
    /// Shared with the caller, who may retry it.
    Commit(Arc<Batch>),
    Acquire(SessionId),
    Signal(SessionId, Signal),
    /// One step of deleting the rows of deleted sessions.
    Sweep(Sweep),
    /// Rewrites the whole file, or releases a few free pages.
    Rewrite,
    ReleasePages,
}

impl WriteRequest {
    /// Whether it must run alone, outside a transaction.
    fn is_upkeep(&self) -> bool {
        matches!(self, Self::Rewrite | Self::ReleasePages)
    }
}

/// The response to a [`WriteRequest`].
#[derive(Debug)]
pub(crate) enum WriteResponse {
    Commit(CommitOutcome),
    Acquire(AcquireOutcome),
    Signal(bool),
    Sweep(Option<Sweep>),
    /// Whether pages were released.
    Upkeep(bool),
}

/// A request with the channel for its response.
#[derive(Debug)]
pub(crate) struct Job {
    pub request: WriteRequest,
    /// When the caller made the request.
    pub requested_at: Instant,
    pub reply: oneshot::Sender<Result<WriteResponse, StoreError>>,
    pub _slot: OwnedSemaphorePermit,
}

/// A message in the writer's queue.
#[derive(Debug)]
pub(crate) enum WriterMessage {
    Job(Box<Job>),
    /// Someone is watching now.
    Follow,
}

/// The outcome of one job in a transaction that is not committed yet.
enum JobOutcome {
    Applied(Applied),
    Acquire(AcquireOutcome),
    Sent(bool),
    Swept(Option<Sweep>),
    /// The session's owner is this process, so no row is needed.
    Deliver,
}

/// Why a whole group failed.
enum GroupFailure {
    /// The transaction could not begin, so nothing was tried.
    Begin(StoreError),
    /// The transaction failed; a smaller one may still succeed.
    Lost(StoreError),
}

type ObserverFn = dyn Fn(&EventBody) + Send + Sync;

/// The callback that sees this process's events.
#[derive(Default)]
pub(crate) struct Observer(Mutex<Option<Box<ObserverFn>>>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    pub(crate) fn set(&self, observer: impl Fn(&EventBody) + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(observer));
    }

    fn notify<'a>(&self, frames: impl Iterator<Item = &'a Frame>) {
        if let Some(observer) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            frames.filter_map(Frame::event).for_each(|event| observer(&event.body));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub conn: Connection,
    pub path: PathBuf,
    /// Both are `None` if the store is read-only.
    pub identity: Option<Arc<FileIdentity>>,
    pub tip: Option<TipFile>,
    pub owners: Arc<dyn Peers>,
    pub feed: Arc<Feed>,
    pub observer: Arc<Observer>,
    pub signals: mpsc::Sender<(SessionId, Signal)>,
    /// How long a transaction waits for another process's lock.
    pub busy: Duration,
    /// The most rows and bytes the log keeps.
    pub keep: u64,
    pub keep_bytes: u64,
    /// Commits left until this process kills itself, for crash tests.
    pub crash_after: Option<u64>,
    pub state: WriterState,
}

/// State that the writer keeps between transactions.
#[derive(Debug)]
pub(crate) struct WriterState {
    /// Whether commits currently fsync.
    synchronous_full: bool,
    /// Changes when another process has committed.
    data_version: i64,
    /// The epochs of this process's leases.
    leases: HashMap<SessionId, u64>,
    /// When the writer last looked for other processes' commits.
    last_poll: Option<Instant>,
    /// Whether signals are waiting in the database because the queue was full.
    has_stored_signals: bool,
    /// Rows and bytes added to the log since it was last within its limits.
    unpruned: (u64, u64),
    /// When something was last written.
    last_write: Instant,
    /// Whether there may be free pages to release.
    may_have_free_pages: bool,
    /// Whether the last step released pages.
    released: bool,
    /// Counts changes to conversations that did not come from their own turn.
    revision: u64,
    /// The data version when the revision was last reported.
    revision_data_version: i64,
    /// Pages in the WAL that wait for a checkpoint.
    wal_pages: Arc<AtomicI32>,
    /// When the files were last checked.
    last_file_check: Option<Instant>,
    /// The owners of the sessions that were written to.
    session_owners: SessionOwners,
}

impl Default for WriterState {
    fn default() -> Self {
        Self {
            synchronous_full: false,
            data_version: 0,
            leases: HashMap::new(),
            last_poll: None,
            has_stored_signals: false,
            unpruned: (0, 0),
            last_write: Instant::now(),
            may_have_free_pages: true,
            released: false,
            revision: 0,
            revision_data_version: 0,
            wal_pages: Arc::default(),
            last_file_check: None,
            session_owners: SessionOwners::default(),
        }
    }
}

/// Runs until the store is dropped.
pub(crate) fn run(writer: &Mutex<Writer>, messages: &Receiver<WriterMessage>) {
    loop {
        let idle_timeout = lock(writer).idle_timeout();
        let message = if let Some(idle_timeout) = idle_timeout {
            match messages.recv_timeout(idle_timeout) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match messages.recv() {
                Ok(message) => Some(message),
                Err(_) => return,
            }
        };
        let more = std::iter::from_fn(|| messages.try_recv().ok());
        let group: Vec<Job> = message
            .into_iter()
            .chain(more)
            .take(MAX_GROUP)
            .filter_map(|message| match message {
                WriterMessage::Job(job) => Some(*job),
                WriterMessage::Follow => None,
            })
            .collect();
        let mut writer = lock(writer);
        if !group.is_empty() {
            writer.process(group);
        }
        if writer.is_following()
            && writer.state.last_poll.is_none_or(|polled| polled.elapsed() >= POLL_INTERVAL)
            && let Err(error) = writer.poll()
        {
            let error = error.at(&writer.path);
            // Callers that write get the same error and report it.
            if !error.is_transient() {
                tracing::warn!(%error, "other processes cannot be followed");
            }
        }
        writer.checkpoint();
        writer.release_when_idle();
    }
}

/// Locks the writer. If a holder panicked, the next transaction rolls back what it left.
fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commits a batch on the caller's thread if it is small, needs no fsync, and nobody else is writing. Otherwise returns
/// the request.
pub(crate) fn commit_inline(
    writer: &Mutex<Writer>,
    request: WriteRequest,
) -> ControlFlow<Result<WriteResponse, StoreError>, WriteRequest> {
    if !matches!(&request, WriteRequest::Commit(batch) if batch.can_commit_inline()) {
        return ControlFlow::Continue(request);
    }
    match writer.try_lock() {
        Ok(mut writer) => writer.commit_inline(request),
        Err(_) => ControlFlow::Continue(request),
    }
}

/// Executes a request on the caller's thread, however long it takes.
pub(crate) fn execute_here(writer: &Mutex<Writer>, request: WriteRequest) -> Result<WriteResponse, StoreError> {
    let mut writer = lock(writer);
    let deadline = Instant::now() + writer.busy;
    writer.execute(&[request], deadline).pop().unwrap_or(Err(StoreError::Closed))
}

impl Writer {
    /// Makes the connection report the length of the WAL.
    pub(crate) fn watch_wal(&mut self) -> Result<(), StoreError> {
        let pages = self.state.wal_pages.clone();
        let hook = move |_: &mut Wal, now| {
            pages.store(now, Ordering::Relaxed);
            Ok(())
        };
        Ok(self.conn.wal_hook(Some(hook))?)
    }

    fn is_following(&self) -> bool {
        !self.state.leases.is_empty() || self.state.has_stored_signals || self.feed.has_watchers()
    }

    /// How long to wait for a message before there is other work to do.
    fn idle_timeout(&self) -> Option<Duration> {
        match (self.is_following(), self.state.may_have_free_pages) {
            (true, _) => Some(POLL_INTERVAL),
            (false, true) => Some(IDLE_AFTER),
            (false, false) => None,
        }
    }

    /// Releases a few free pages if nothing was written for a while.
    fn release_when_idle(&mut self) {
        if !self.state.may_have_free_pages || self.state.last_write.elapsed() < IDLE_AFTER {
            return;
        }
        self.state.last_write = Instant::now();
        // Does not wait: if another process is writing, this can be done later.
        let timeout_set = self.conn.busy_timeout(Duration::ZERO).map_err(StoreError::from);
        let done = timeout_set.and_then(|()| self.release_free_pages(space::KEPT_FREE_PAGES));
        let done = self.conn.busy_timeout(self.busy).map_err(StoreError::from).and(done);
        self.state.may_have_free_pages = match done {
            Ok(released) => released,
            Err(error) if error.is_busy() => true,
            Err(error) => {
                tracing::warn!(error = %error.at(&self.path), "free pages could not be released");
                false
            }
        };
    }

    /// Releases free pages, except `keep` of them. Returns false if there were none; then, if earlier steps released
    /// some, truncates the WAL so that the file itself shrinks.
    fn release_free_pages(&mut self, keep: u64) -> Result<bool, StoreError> {
        schema::version(&self.conn).and_then(schema::refuse_newer)?;
        let released = space::release_free_pages(&self.conn, keep)?;
        if self.state.released && !released {
            space::truncate_wal(&self.conn)?;
        }
        self.state.released = released;
        Ok(released)
    }

    /// Runs a request that cannot be part of a transaction.
    fn run_upkeep(&mut self, request: &WriteRequest) -> Result<WriteResponse, StoreError> {
        self.state.released = true;
        let known = schema::version(&self.conn).and_then(schema::refuse_newer);
        let done = known.and_then(|()| match request {
            WriteRequest::Rewrite => space::rewrite(&self.conn).and_then(|()| self.release_free_pages(0)),
            _ => self.release_free_pages(0),
        });
        done.map(WriteResponse::Upkeep).map_err(|error| error.at(&self.path))
    }

    /// Moves the WAL into the database once it is long enough. That takes several fsyncs.
    fn checkpoint(&mut self) {
        if self.state.wal_pages.load(Ordering::Relaxed) < schema::CHECKPOINT_PAGES {
            return;
        }
        // The next commit reports the new length; until then there is nothing to move.
        self.state.wal_pages.store(0, Ordering::Relaxed);
        if let Err(error) = self.conn.pragma_query(None, "wal_checkpoint", |_| Ok(())) {
            tracing::warn!(error = %StoreError::from(error).at(&self.path), "a checkpoint failed; a later one may succeed");
        }
    }

    /// Runs a group of jobs and sends the responses. A job waits for another process's lock for the busy timeout in
    /// total, including its time in the queue.
    fn process(&mut self, mut group: Vec<Job>) {
        while let Some(requested_at) = group.iter().map(|job| job.requested_at).min() {
            let (requests, callers): (Vec<_>, Vec<_>) =
                group.drain(..).map(|job| (job.request, (job.requested_at, job.reply, job._slot))).unzip();
            let answers = self.execute(&requests, requested_at + self.busy);
            for ((request, (requested_at, reply, _slot)), answer) in requests.into_iter().zip(callers).zip(answers) {
                let keeps_waiting =
                    answer.as_ref().is_err_and(StoreError::is_busy) && requested_at.elapsed() < self.busy;
                if keeps_waiting {
                    group.push(Job { request, requested_at, reply, _slot });
                } else {
                    // The caller may have stopped waiting; its request was executed all the same.
                    let _ = reply.send(answer);
                }
            }
        }
    }

    fn commit_inline(&mut self, request: WriteRequest) -> ControlFlow<Result<WriteResponse, StoreError>, WriteRequest> {
        if self.state.wal_pages.load(Ordering::Relaxed) >= schema::CHECKPOINT_PAGES {
            // The writer thread checkpoints after its next write.
            return ControlFlow::Continue(request);
        }
        let now = Instant::now();
        let begin_result = self.begin(false, now);
        if begin_result.as_ref().is_err_and(StoreError::is_busy) {
            return ControlFlow::Continue(request);
        }
        let done = self.finish_transaction(&[request], begin_result, now).pop();
        ControlFlow::Break(done.unwrap_or(Err(StoreError::Closed)))
    }

    /// Executes all requests in one transaction, or each in its own if that one fails. Waits for other processes until
    /// `deadline`.
    fn execute(&mut self, requests: &[WriteRequest], deadline: Instant) -> Vec<Result<WriteResponse, StoreError>> {
        if requests.iter().any(WriteRequest::is_upkeep) {
            let results = requests.iter().flat_map(|request| match request.is_upkeep() {
                true => vec![self.run_upkeep(request)],
                false => self.execute(std::slice::from_ref(request), deadline),
            });
            return results.collect();
        }
        let durable = requests.iter().any(|request| matches!(request, WriteRequest::Commit(batch) if batch.durable));
        let begin_result = self.begin(durable, deadline);
        self.finish_transaction(requests, begin_result, deadline)
    }

    fn finish_transaction(
        &mut self,
        requests: &[WriteRequest],
        begin_result: Result<(), StoreError>,
        deadline: Instant,
    ) -> Vec<Result<WriteResponse, StoreError>> {
        match begin_result.map_err(GroupFailure::Begin).and_then(|()| self.transact(requests)) {
            Ok(outcomes) => self.publish_outcomes(requests, outcomes),
            Err(GroupFailure::Lost(_)) if requests.len() > 1 => {
                requests.iter().flat_map(|request| self.execute(std::slice::from_ref(request), deadline)).collect()
            }
            Err(GroupFailure::Begin(error) | GroupFailure::Lost(error)) => {
                let error = error.at(&self.path);
                requests.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    fn transact(&mut self, group: &[WriteRequest]) -> Result<Vec<Result<JobOutcome, StoreError>>, GroupFailure> {
        match self.apply(group) {
            Ok(outcomes) => Ok(outcomes),
            Err(error) => {
                self.state.session_owners.clear();
                // After some errors SQLite has already rolled back.
                if !self.conn.is_autocommit()
                    && let Err(error) = self.conn.execute_batch("ROLLBACK")
                {
                    tracing::error!(%error, "a failed transaction cannot be rolled back");
                }
                Err(GroupFailure::Lost(error))
            }
        }
    }

    /// Begins a transaction. Waits for another process's lock until `deadline`.
    fn begin(&mut self, durable: bool, deadline: Instant) -> Result<(), StoreError> {
        if !self.conn.is_autocommit() {
            // The thread that began this transaction panicked.
            self.conn.execute_batch("ROLLBACK")?;
        }
        self.check_files(durable)?;
        if durable != self.state.synchronous_full {
            self.conn.execute_batch(if durable {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            self.state.synchronous_full = durable;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.with_busy_timeout(left, |conn| Ok(conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?))?;
        if let Err(error) = schema::version(&self.conn).and_then(schema::refuse_newer) {
            self.conn.execute_batch("ROLLBACK")?;
            return Err(error);
        }
        Ok(())
    }

    /// Runs `work` with another busy timeout.
    fn with_busy_timeout<T>(
        &self,
        time: Duration,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.conn.busy_timeout(time)?;
        let done = work(&self.conn);
        self.conn.busy_timeout(self.busy)?;
        done
    }

    /// Fails if the files are no longer at their path. A check takes a few microseconds, so durable commits always
    /// check and others only once per poll interval.
    fn check_files(&mut self, always: bool) -> Result<(), StoreError> {
        if always || self.state.last_file_check.is_none_or(|checked| checked.elapsed() >= POLL_INTERVAL) {
            self.state.last_file_check = None;
            self.identity.as_ref().map_or(Ok(()), |identity| identity.check())?;
            self.state.last_file_check = Some(Instant::now());
        }
        Ok(())
    }

    /// Applies each job under its own savepoint and commits. An error means that the whole transaction failed.
    fn apply(&mut self, group: &[WriteRequest]) -> Result<Vec<Result<JobOutcome, StoreError>>, StoreError> {
        let mut outcomes = Vec::with_capacity(group.len());
        let (mut logged, mut bytes, mut last) = (0, 0, 0);
        // A savepoint copies every page that changes. A single job does not need one, because its failure rolls back
        // the whole transaction.
        let is_single = group.len() == 1;
        for request in group {
            if !is_single {
                self.conn.prepare_cached("SAVEPOINT job")?.execute([])?;
            }
            let outcome = self.apply_request(request);
            match &outcome {
                Ok(JobOutcome::Applied(applied)) => {
                    logged += applied.logged;
                    bytes += applied.logged_bytes;
                    last = applied.last.max(last);
                }
                Ok(JobOutcome::Swept(_)) => self.state.may_have_free_pages = true,
                Ok(_) => {}
                Err(error) if is_single || self.conn.is_autocommit() => return Err(error.clone()),
                Err(_) => {
                    self.state.session_owners.clear();
                    self.conn.prepare_cached("ROLLBACK TO job")?.execute([])?;
                }
            }
            if !is_single {
                self.conn.prepare_cached("RELEASE job")?.execute([])?;
            }
            outcomes.push(outcome);
        }
        let unpruned = self.prune((self.state.unpruned.0 + logged, self.state.unpruned.1 + bytes))?;
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        if let Some(tip) = &mut self.tip {
            tip.record(last, self.state.synchronous_full);
        }
        self.crash_if_due();
        self.state.unpruned = unpruned;
        self.state.last_write = Instant::now();
        Ok(outcomes)
    }

    fn crash_if_due(&mut self) {
        if let Some(left) = &mut self.crash_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
        }
    }

    fn apply_request(&mut self, request: &WriteRequest) -> Result<JobOutcome, StoreError> {
        match request {
            WriteRequest::Commit(batch) => {
                // Counted even if the batch fails: counting too often is harmless.
                self.state.revision += u64::from(batch.invalidates_cache());
                let mut applied = apply::batch(&self.conn, &mut self.state.session_owners, batch)?;
                if let Some(session) = &batch.claim
                    && lease::row(&self.conn, session)?.is_none()
                {
                    applied.claimed = Some(self.acquire(session)?);
                }
                Ok(JobOutcome::Applied(applied))
            }
            WriteRequest::Acquire(session) => self.acquire(session).map(JobOutcome::Acquire),
            WriteRequest::Signal(session, signal) => match lease::row(&self.conn, session)? {
                Some((owner, _)) if owner == self.owners.name() => Ok(JobOutcome::Deliver),
                Some((owner, _)) if self.owners.is_alive(&owner) => {
                    signal::send(&self.conn, &owner, session, signal)?;
                    Ok(JobOutcome::Sent(true))
                }
                _ => Ok(JobOutcome::Sent(false)),
            },
            WriteRequest::Sweep(sweep) => sweep.step(&self.conn).map(JobOutcome::Swept),
            // Never part of a transaction.
            WriteRequest::Rewrite | WriteRequest::ReleasePages => Err(StoreError::Closed),
        }
    }

    fn acquire(&mut self, session: &SessionId) -> Result<AcquireOutcome, StoreError> {
        let revision = self.revision()?;
        lease::acquire(&self.conn, &*self.owners, session, revision)
    }

    /// The revision, increased if another process has committed, since that may have changed any conversation. No such
    /// commit can follow inside the transaction.
    fn revision(&mut self) -> Result<u64, StoreError> {
        let version = self.data_version()?;
        if version != self.state.revision_data_version {
            self.state.revision_data_version = version;
            self.state.revision += 1;
        }
        Ok(self.state.revision)
    }

    /// A number that changes whenever another process commits.
    fn data_version(&self) -> Result<i64, StoreError> {
        wakeup::foreign_commits(&self.conn)
    }

    /// Prunes the log one step towards its limits. Returns the growth that is still to be checked.
    fn prune(&mut self, unpruned: (u64, u64)) -> Result<(u64, u64), StoreError> {
        if unpruned.0 < PRUNE_EVERY_ROWS && unpruned.1 < PRUNE_EVERY_BYTES {
            return Ok(unpruned);
        }
        let (first, stays) = log::retention_bounds(&self.conn, self.keep, self.keep_bytes)?;
        if first == stays {
            return Ok((0, 0));
        }
        let to = log::chunk_end(&self.conn, first, stays, PRUNE_STEP_ROWS, PRUNE_STEP_BYTES)?;
        self.conn.prepare_cached("DELETE FROM event WHERE seq < ?1")?.execute(params![int(to)])?;
        self.state.may_have_free_pages = true;
        Ok(if to < stays { unpruned } else { (0, 0) })
    }

    /// Publishes the frames of a committed group and returns the responses.
    fn publish_outcomes(
        &mut self,
        group: &[WriteRequest],
        outcomes: Vec<Result<JobOutcome, StoreError>>,
    ) -> Vec<Result<WriteResponse, StoreError>> {
        let mut answers = Vec::with_capacity(group.len());
        for (request, outcome) in group.iter().zip(outcomes) {
            answers.push(match (outcome, request) {
                (Ok(JobOutcome::Applied(applied)), WriteRequest::Commit(batch)) => {
                    let count = applied.count(batch);
                    self.forget_leases(&batch.ops[..count]);
                    self.remember_lease(applied.claimed.as_ref());
                    Ok(WriteResponse::Commit(self.publish_batch(batch, &batch.ops[..count], applied)))
                }
                (Ok(JobOutcome::Acquire(acquire)), _) => {
                    self.remember_lease(Some(&acquire));
                    Ok(WriteResponse::Acquire(acquire))
                }
                (Ok(JobOutcome::Deliver), WriteRequest::Signal(session, signal)) => {
                    match self.signals.try_send((session.clone(), signal.clone())) {
                        Ok(()) => Ok(WriteResponse::Signal(true)),
                        Err(_) => Err(StoreError::Overloaded("signals")),
                    }
                }
                (Ok(JobOutcome::Sent(sent)), _) => Ok(WriteResponse::Signal(sent)),
                (Ok(JobOutcome::Swept(next)), _) => Ok(WriteResponse::Sweep(next)),
                (Ok(_), _) => Err(StoreError::Closed),
                (Err(error), _) => Err(error.at(&self.path)),
            });
        }
        answers
    }

    /// Remembers an acquired lease.
    fn remember_lease(&mut self, acquire: Option<&AcquireOutcome>) {
        if let Some(AcquireOutcome::Acquired { lease, .. }) = acquire {
            self.state.leases.insert(lease.session.clone(), lease.epoch);
        }
    }

    /// Forgets the leases that a batch released.
    fn forget_leases(&mut self, applied_ops: &[Op]) {
        for op in applied_ops {
            match op {
                Op::Release(lease) => self.state.leases.retain(|_, epoch| *epoch != lease.epoch),
                Op::DeleteSession(session) => drop(self.state.leases.remove(session)),
                _ => {}
            }
        }
    }

    fn publish_batch(&mut self, batch: &Batch, applied_ops: &[Op], applied: Applied) -> CommitOutcome {
        let Applied { frames, last, versions, logged, budget_exceeded, claimed, turn, more_turns, .. } = applied;
        let turn_continues = applied.turn_continues.is_some();
        if logged > 0 {
            // Other processes' commits before this batch must be sent first.
            self.catch_up(last - logged);
        }
        self.observer.notify(frames.iter().filter(|frame| frame.cursor.is_some()));
        self.feed.publish_own(batch, applied_ops, &frames, last);
        let last = frames.into_iter().rev().find_map(|frame| frame.cursor);
        CommitOutcome {
            last,
            versions,
            budget_exceeded: budget_exceeded.map(|(_, exceeded)| exceeded),
            claimed,
            turn: turn.map(|(_, number)| number),
            turn_continues,
            more_turns,
        }
    }

    /// Sends other processes' commits up to a sequence number.
    fn catch_up(&self, to: u64) {
        loop {
            let published = self.feed.published();
            if published >= to {
                return;
            }
            if !self.feed.has_watchers() {
                self.feed.skip(to);
                continue;
            }
            match log::read_entries(&self.conn, published, to, |part| self.feed.sent_bytes(part)) {
                // Sequence numbers have no holes, so a missing one was pruned before it could be sent.
                Ok(entries) if entries.first().is_none_or(|entry| entry.seq() > published + 1) => {
                    return self.feed.cut(to);
                }
                Ok(entries) => self.feed.publish_foreign(entries),
                Err(error) => {
                    tracing::error!(error = %error.at(&self.path), "the log cannot be followed; watchers are cut");
                    return self.feed.cut(to);
                }
            }
        }
    }

    /// Looks for other processes' commits and signals.
    fn poll(&mut self) -> Result<(), StoreError> {
        self.state.last_poll = Some(Instant::now());
        let version = self.data_version()?;
        if version != self.state.data_version {
            self.catch_up(log::tip(&self.conn)?);
            self.check_leases()?;
            self.state.has_stored_signals = signal::has_waiting(&self.conn, self.owners.name())?;
            self.state.data_version = version;
        }
        let room = self.signals.capacity();
        if self.state.has_stored_signals && room > 0 {
            self.check_files(false)?;
            // Does not wait: jobs queue up behind this, and the next poll comes soon.
            let taken =
                match self.with_busy_timeout(Duration::ZERO, |conn| signal::take(conn, self.owners.name(), room)) {
                    Err(error) if error.is_busy() => return Ok(()),
                    taken => taken?,
                };
            for signal in taken {
                // Only this thread fills the queue, so there is still room.
                let _ = self.signals.try_send(signal);
            }
            self.state.has_stored_signals = signal::has_waiting(&self.conn, self.owners.name())?;
        }
        Ok(())
    }

    /// Forgets all leases if the database has none of this process: another process may have deleted their sessions.
    fn check_leases(&mut self) -> Result<(), StoreError> {
        let mut statement = self.conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM lease WHERE owner = ?1)")?;
        if !statement.query_row([self.owners.name()], |row| row.get(0))? {
            self.state.leases.clear();
        }
        Ok(())
    }
}
