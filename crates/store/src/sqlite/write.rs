//! The one connection that writes, and the thread that it mostly works on: that takes all batches that wait into one
//! transaction, and follows other processes.
//!
//! What needs no fsync is written by its caller itself while nobody else writes: that takes less than two threads that wait
//! for each other.
//!
//! Before a transaction it checks that the files are still at their path ([`Identity`]); after it, it notes the end of the log
//! ([`Note`]).

mod apply;

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

use crate::batch::{Batch, Committed, Op};
use crate::error::StoreError;
use crate::feed::Feed;
use crate::sqlite::file::data_loss::Note;
use crate::sqlite::file::identity::Identity;
use crate::sqlite::lease::signal::{self, Signal};
use crate::sqlite::lease::{self, Acquire, Owners};
use crate::sqlite::row::int;
use crate::sqlite::upkeep::space;
use crate::sqlite::upkeep::sweep::Sweep;
use crate::sqlite::{log, schema};
use apply::Applied;

/// The most jobs that wait for the writer; further callers wait for room.
pub(crate) const QUEUE: usize = 1024;

/// The most jobs of one transaction.
const GROUP: usize = 128;

/// How often other processes' commits are looked for. Half of the 50 ms within which they must be seen.
const POLL: Duration = Duration::from_millis(25);

/// The log is pruned whenever it grew by this many rows, or bytes.
const PRUNE_EVERY: u64 = 256;
const PRUNE_EVERY_BYTES: u64 = 1 << 20;

/// The most rows, and about the most bytes, that are pruned in one transaction, so that nobody waits long for it.
const PRUNE_STEP: u64 = 2048;
const PRUNE_STEP_BYTES: u64 = 8 << 20;

/// What can wait is done when nobody has written for so long, one bounded step at a time.
const IDLE: Duration = Duration::from_millis(100);

/// What the writer is asked to do.
#[derive(Debug)]
pub(crate) enum Work {
    /// Shared with its caller, who may retry it.
    Commit(Arc<Batch>),
    Acquire(SessionId),
    Signal(SessionId, Signal),
    /// A piece of what is left of deleted sessions.
    Sweep(Sweep),
    /// Rewrites the whole file, or gives a few of its free pages back.
    Rewrite,
    GiveBack,
}

impl Work {
    /// Whether it must be alone and outside of a transaction.
    fn is_upkeep(&self) -> bool {
        matches!(self, Self::Rewrite | Self::GiveBack)
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Done {
    Commit(Committed),
    Acquire(Acquire),
    Signal(bool),
    Sweep(Option<Sweep>),
    /// Whether something was given back.
    Upkeep(bool),
}

/// Work with its way back.
#[derive(Debug)]
pub(crate) struct Job {
    pub work: Work,
    /// When its caller asked for it.
    pub asked: Instant,
    pub reply: oneshot::Sender<Result<Done, StoreError>>,
    pub _room: OwnedSemaphorePermit,
}

/// What reaches the writer's queue.
#[derive(Debug)]
pub(crate) enum Call {
    Job(Box<Job>),
    /// Somebody watches now.
    Follow,
}

/// The outcome of one job inside a transaction that is not committed yet.
enum Outcome {
    Applied(Applied),
    Acquire(Acquire),
    Sent(bool),
    Swept(Option<Sweep>),
    /// The owner is this process: no row is needed.
    Deliver,
}

/// Why a whole group failed.
enum Failure {
    /// The transaction could not begin: nothing was tried.
    Begin(StoreError),
    /// The transaction was lost: a smaller one may still work.
    Lost(StoreError),
}

type See = dyn Fn(&EventBody) + Send + Sync;

/// Whoever looks at this process's events.
#[derive(Default)]
pub(crate) struct Observer(Mutex<Option<Box<See>>>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    pub(crate) fn set(&self, see: impl Fn(&EventBody) + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(see));
    }

    fn see<'a>(&self, frames: impl Iterator<Item = &'a Frame>) {
        if let Some(see) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            frames.filter_map(Frame::event).for_each(|event| see(&event.body));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub conn: Connection,
    pub path: PathBuf,
    /// Both are there if it can write.
    pub identity: Option<Arc<Identity>>,
    pub note: Option<Note>,
    pub owners: Owners,
    pub feed: Arc<Feed>,
    pub observer: Arc<Observer>,
    pub signals: mpsc::Sender<(SessionId, Signal)>,
    /// How long a transaction waits for another process's.
    pub busy: Duration,
    /// The log keeps this many of its newest rows, and no more bytes than that.
    pub keep: u64,
    pub keep_bytes: u64,
    /// Commits until this process kills itself, for crash tests.
    pub crash_after: Option<u64>,
    pub state: State,
}

/// What the writer remembers between transactions.
#[derive(Debug)]
pub(crate) struct State {
    /// Whether commits are fsynced at the moment.
    full: bool,
    /// Changes when another process has committed.
    data_version: i64,
    /// The epochs of the leases that this process holds.
    leases: HashMap<SessionId, u64>,
    /// When other processes' commits were last looked for.
    polled: Option<Instant>,
    /// Signals wait that did not fit into the queue.
    signals_left: bool,
    /// Rows and bytes added to the log since it was last found short enough.
    grown: (u64, u64),
    /// When something was last written.
    wrote: Instant,
    /// Whether there may be free pages to give back.
    frees: bool,
    /// Whether some were given back a moment ago.
    gave: bool,
    /// Counts what may have changed a conversation behind the back of its turn.
    revision: u64,
    /// The data version when the revision was last told.
    told: i64,
    /// The pages of the WAL that wait for a checkpoint.
    pages: Arc<AtomicI32>,
    /// When the files were last checked.
    seen: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            full: false,
            data_version: 0,
            leases: HashMap::new(),
            polled: None,
            signals_left: false,
            grown: (0, 0),
            wrote: Instant::now(),
            frees: true,
            gave: false,
            revision: 0,
            told: 0,
            pages: Arc::default(),
            seen: None,
        }
    }
}

/// Works until the store is dropped.
pub(crate) fn run(writer: &Mutex<Writer>, calls: &Receiver<Call>) {
    loop {
        let patience = lock(writer).patience();
        let call = if let Some(patience) = patience {
            match calls.recv_timeout(patience) {
                Ok(call) => Some(call),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match calls.recv() {
                Ok(call) => Some(call),
                Err(_) => return,
            }
        };
        let more = std::iter::from_fn(|| calls.try_recv().ok());
        let group: Vec<Job> = call
            .into_iter()
            .chain(more)
            .take(GROUP)
            .filter_map(|call| match call {
                Call::Job(job) => Some(*job),
                Call::Follow => None,
            })
            .collect();
        let mut writer = lock(writer);
        if !group.is_empty() {
            writer.process(group);
        }
        if writer.following()
            && writer.state.polled.is_none_or(|polled| polled.elapsed() >= POLL)
            && let Err(error) = writer.poll()
        {
            let error = error.at(&writer.path);
            // Writers get the same error and report it.
            if !error.is_passing() {
                tracing::warn!(%error, "other processes cannot be followed");
            }
        }
        writer.checkpoint();
        writer.shrink();
    }
}

/// The writer; what a panic left of a transaction is rolled back when the next one begins.
fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something at once, on the caller's thread, if it is small and needs no fsync, and nobody else writes; gives it back
/// otherwise.
pub(crate) fn at_once(writer: &Mutex<Writer>, work: Work) -> ControlFlow<Result<Done, StoreError>, Work> {
    if !matches!(&work, Work::Commit(batch) if batch.is_quick()) {
        return ControlFlow::Continue(work);
    }
    match writer.try_lock() {
        Ok(mut writer) => writer.at_once(work),
        Err(_) => ControlFlow::Continue(work),
    }
}

/// Does something on the caller's thread, whatever it takes.
pub(crate) fn here(writer: &Mutex<Writer>, work: Work) -> Result<Done, StoreError> {
    let mut writer = lock(writer);
    let until = Instant::now() + writer.busy;
    writer.perform(&[work], until).pop().unwrap_or(Err(StoreError::Closed))
}

impl Writer {
    /// Has the connection tell how long the WAL is.
    pub(crate) fn watch_wal(&mut self) -> Result<(), StoreError> {
        let pages = self.state.pages.clone();
        let hook = move |_: &mut Wal, now| {
            pages.store(now, Ordering::Relaxed);
            Ok(())
        };
        Ok(self.conn.wal_hook(Some(hook))?)
    }

    fn following(&self) -> bool {
        !self.state.leases.is_empty() || self.state.signals_left || self.feed.watched()
    }

    /// How long to wait for a call before there is something else to do.
    fn patience(&self) -> Option<Duration> {
        match (self.following(), self.state.frees) {
            (true, _) => Some(POLL),
            (false, true) => Some(IDLE),
            (false, false) => None,
        }
    }

    /// Gives a few free pages back, if nobody has written for a while.
    fn shrink(&mut self) {
        if !self.state.frees || self.state.wrote.elapsed() < IDLE {
            return;
        }
        self.state.wrote = Instant::now();
        // Nobody is waited for: while another process writes it is not the time.
        let begun = self.conn.busy_timeout(Duration::ZERO).map_err(StoreError::from);
        let done = begun.and_then(|()| self.give_back(space::SLACK));
        let done = self.conn.busy_timeout(self.busy).map_err(StoreError::from).and(done);
        self.state.frees = match done {
            Ok(gave) => gave,
            Err(error) if error.is_busy() => true,
            Err(error) => {
                tracing::warn!(error = %error.at(&self.path), "free pages cannot be given back");
                false
            }
        };
    }

    /// Gives some free pages back, but for those to be kept. False if there were none; then the file itself is as short as
    /// it gets, if this has shortened it.
    fn give_back(&mut self, keep: u64) -> Result<bool, StoreError> {
        schema::version(&self.conn).and_then(schema::refuse_newer)?;
        let gave = space::give_back(&self.conn, keep)?;
        if self.state.gave && !gave {
            space::truncate_wal(&self.conn)?;
        }
        self.state.gave = gave;
        Ok(gave)
    }

    /// What cannot be part of a transaction.
    fn upkeep(&mut self, work: &Work) -> Result<Done, StoreError> {
        self.state.gave = true;
        let known = schema::version(&self.conn).and_then(schema::refuse_newer);
        let done = known.and_then(|()| match work {
            Work::Rewrite => space::rewrite(&self.conn).and_then(|()| self.give_back(0)),
            _ => self.give_back(0),
        });
        done.map(Done::Upkeep).map_err(|error| error.at(&self.path))
    }

    /// Moves what was written into the database itself, when it has become much: that takes several fsyncs.
    fn checkpoint(&mut self) {
        if self.state.pages.load(Ordering::Relaxed) < schema::WAL_PAGES {
            return;
        }
        // Later commits tell how long it is then; until there is one, nothing is to be moved.
        self.state.pages.store(0, Ordering::Relaxed);
        if let Err(error) = self.conn.pragma_query(None, "wal_checkpoint", |_| Ok(())) {
            tracing::warn!(error = %StoreError::from(error).at(&self.path), "a checkpoint failed; later ones may not");
        }
    }

    /// Runs a group of jobs, and answers. A job waits for the lock of another process for the busy timeout in all, including
    /// the time that it has waited in the queue.
    fn process(&mut self, mut group: Vec<Job>) {
        while let Some(asked) = group.iter().map(|job| job.asked).min() {
            let (works, callers): (Vec<_>, Vec<_>) =
                group.drain(..).map(|job| (job.work, (job.asked, job.reply, job._room))).unzip();
            let answers = self.perform(&works, asked + self.busy);
            for ((work, (asked, reply, _room)), answer) in works.into_iter().zip(callers).zip(answers) {
                let waits_on = answer.as_ref().is_err_and(StoreError::is_busy) && asked.elapsed() < self.busy;
                if waits_on {
                    group.push(Job { work, asked, reply, _room });
                } else {
                    // The caller may have stopped waiting; what it asked for is done all the same.
                    let _ = reply.send(answer);
                }
            }
        }
    }

    fn at_once(&mut self, work: Work) -> ControlFlow<Result<Done, StoreError>, Work> {
        if self.state.pages.load(Ordering::Relaxed) >= schema::WAL_PAGES {
            // The thread checkpoints after what it writes.
            return ControlFlow::Continue(work);
        }
        let now = Instant::now();
        let begun = self.begin(false, now);
        if begun.as_ref().is_err_and(StoreError::is_busy) {
            return ControlFlow::Continue(work);
        }
        let done = self.complete(&[work], begun, now).pop();
        ControlFlow::Break(done.unwrap_or(Err(StoreError::Closed)))
    }

    /// Does everything in one transaction; alone, each in its own, if that was lost. Waits for others until then.
    fn perform(&mut self, works: &[Work], until: Instant) -> Vec<Result<Done, StoreError>> {
        if works.iter().any(Work::is_upkeep) {
            let alone = works.iter().flat_map(|work| match work.is_upkeep() {
                true => vec![self.upkeep(work)],
                false => self.perform(std::slice::from_ref(work), until),
            });
            return alone.collect();
        }
        let durable = works.iter().any(|work| matches!(work, Work::Commit(batch) if batch.durable));
        let begun = self.begin(durable, until);
        self.complete(works, begun, until)
    }

    fn complete(
        &mut self,
        works: &[Work],
        begun: Result<(), StoreError>,
        until: Instant,
    ) -> Vec<Result<Done, StoreError>> {
        match begun.map_err(Failure::Begin).and_then(|()| self.transact(works)) {
            Ok(outcomes) => self.finish(works, outcomes),
            Err(Failure::Lost(_)) if works.len() > 1 => {
                works.iter().flat_map(|work| self.perform(std::slice::from_ref(work), until)).collect()
            }
            Err(Failure::Begin(error) | Failure::Lost(error)) => {
                let error = error.at(&self.path);
                works.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    fn transact(&mut self, group: &[Work]) -> Result<Vec<Result<Outcome, StoreError>>, Failure> {
        match self.apply(group) {
            Ok(outcomes) => Ok(outcomes),
            Err(error) => {
                // After some errors SQLite has rolled back already.
                if !self.conn.is_autocommit()
                    && let Err(error) = self.conn.execute_batch("ROLLBACK")
                {
                    tracing::error!(%error, "a failed transaction cannot be rolled back");
                }
                Err(Failure::Lost(error))
            }
        }
    }

    /// Begins a transaction; waits for the lock of another process until then.
    fn begin(&mut self, durable: bool, until: Instant) -> Result<(), StoreError> {
        if !self.conn.is_autocommit() {
            // Whoever began it panicked.
            self.conn.execute_batch("ROLLBACK")?;
        }
        self.look(durable)?;
        if durable != self.state.full {
            self.conn.execute_batch(if durable {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            self.state.full = durable;
        }
        let left = until.saturating_duration_since(Instant::now());
        self.waiting(left, |conn| Ok(conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?))?;
        if let Err(error) = schema::version(&self.conn).and_then(schema::refuse_newer) {
            self.conn.execute_batch("ROLLBACK")?;
            return Err(error);
        }
        Ok(())
    }

    /// Runs something with another busy timeout.
    fn waiting<T>(
        &self,
        time: Duration,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.conn.busy_timeout(time)?;
        let done = work(&self.conn);
        self.conn.busy_timeout(self.busy)?;
        done
    }

    /// Fails if the files are no longer at their path. Durable commits check every time, others only now and then: a check
    /// takes a few microseconds.
    fn look(&mut self, fresh: bool) -> Result<(), StoreError> {
        if fresh || self.state.seen.is_none_or(|seen| seen.elapsed() >= POLL) {
            self.state.seen = None;
            self.identity.as_ref().map_or(Ok(()), |identity| identity.check())?;
            self.state.seen = Some(Instant::now());
        }
        Ok(())
    }

    /// Applies each job under its own savepoint and commits. An error means that the transaction is of no use.
    fn apply(&mut self, group: &[Work]) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        let mut outcomes = Vec::with_capacity(group.len());
        let (mut logged, mut bytes, mut last) = (0, 0, 0);
        // One job alone needs no savepoint, which copies every page that is changed: it takes the transaction with it.
        let alone = group.len() == 1;
        for work in group {
            if !alone {
                self.conn.prepare_cached("SAVEPOINT job")?.execute([])?;
            }
            let outcome = self.one(work);
            match &outcome {
                Ok(Outcome::Applied(applied)) => {
                    logged += applied.logged;
                    bytes += applied.logged_bytes;
                    last = applied.last.max(last);
                }
                Ok(Outcome::Swept(_)) => self.state.frees = true,
                Ok(_) => {}
                Err(error) if alone || self.conn.is_autocommit() => return Err(error.clone()),
                Err(_) => {
                    self.conn.prepare_cached("ROLLBACK TO job")?.execute([])?;
                }
            }
            if !alone {
                self.conn.prepare_cached("RELEASE job")?.execute([])?;
            }
            outcomes.push(outcome);
        }
        let grown = self.prune((self.state.grown.0 + logged, self.state.grown.1 + bytes))?;
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        if let Some(note) = &mut self.note {
            note.put(last, self.state.full);
        }
        self.maybe_crash();
        self.state.grown = grown;
        self.state.wrote = Instant::now();
        Ok(outcomes)
    }

    fn maybe_crash(&mut self) {
        if let Some(left) = &mut self.crash_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
        }
    }

    fn one(&mut self, work: &Work) -> Result<Outcome, StoreError> {
        match work {
            Work::Commit(batch) => {
                // Counted even if the batch fails: too often is harmless.
                self.state.revision += u64::from(batch.disturbs());
                let mut applied = apply::batch(&self.conn, batch)?;
                if let Some(session) = &batch.claim
                    && lease::row(&self.conn, session)?.is_none()
                {
                    applied.claimed = Some(self.acquire(session)?);
                }
                Ok(Outcome::Applied(applied))
            }
            Work::Acquire(session) => self.acquire(session).map(Outcome::Acquire),
            Work::Signal(session, signal) => match lease::row(&self.conn, session)? {
                Some((owner, _)) if owner == self.owners.name() => Ok(Outcome::Deliver),
                Some((owner, _)) if self.owners.alive(&owner) => {
                    signal::send(&self.conn, &owner, session, signal)?;
                    Ok(Outcome::Sent(true))
                }
                _ => Ok(Outcome::Sent(false)),
            },
            Work::Sweep(sweep) => sweep.step(&self.conn).map(Outcome::Swept),
            // Never part of a transaction.
            Work::Rewrite | Work::GiveBack => Err(StoreError::Closed),
        }
    }

    fn acquire(&mut self, session: &SessionId) -> Result<Acquire, StoreError> {
        let revision = self.revision()?;
        lease::acquire(&self.conn, &self.owners, session, revision)
    }

    /// What another process committed may have changed any conversation. Inside a transaction nothing can follow.
    fn revision(&mut self) -> Result<u64, StoreError> {
        let version = self.data_version()?;
        if version != self.state.told {
            self.state.told = version;
            self.state.revision += 1;
        }
        Ok(self.state.revision)
    }

    /// A number that is another one whenever another process has committed.
    fn data_version(&self) -> Result<i64, StoreError> {
        Ok(self.conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
    }

    /// Cuts the log to its bounds, a piece at a time. Gives back how much growth is still to be looked at.
    fn prune(&mut self, grown: (u64, u64)) -> Result<(u64, u64), StoreError> {
        if grown.0 < PRUNE_EVERY && grown.1 < PRUNE_EVERY_BYTES {
            return Ok(grown);
        }
        let (first, stays) = log::bounds(&self.conn, self.keep, self.keep_bytes)?;
        if first == stays {
            return Ok((0, 0));
        }
        let to = log::piece(&self.conn, first, stays, PRUNE_STEP, PRUNE_STEP_BYTES)?;
        self.conn.prepare_cached("DELETE FROM event WHERE seq < ?1")?.execute(params![int(to)])?;
        self.state.frees = true;
        Ok(if to < stays { grown } else { (0, 0) })
    }

    /// Sends the frames of a committed group; gives the answers.
    fn finish(&mut self, group: &[Work], outcomes: Vec<Result<Outcome, StoreError>>) -> Vec<Result<Done, StoreError>> {
        let mut answers = Vec::with_capacity(group.len());
        for (work, outcome) in group.iter().zip(outcomes) {
            answers.push(match (outcome, work) {
                (Ok(Outcome::Applied(applied)), Work::Commit(batch)) => {
                    let made = applied.short.as_ref().map_or(batch.ops.len(), |(made, _)| *made);
                    self.free(&batch.ops[..made]);
                    self.hold(applied.claimed.as_ref());
                    Ok(Done::Commit(self.publish(batch, &batch.ops[..made], applied)))
                }
                (Ok(Outcome::Acquire(acquire)), _) => {
                    self.hold(Some(&acquire));
                    Ok(Done::Acquire(acquire))
                }
                (Ok(Outcome::Deliver), Work::Signal(session, signal)) => {
                    match self.signals.try_send((session.clone(), signal.clone())) {
                        Ok(()) => Ok(Done::Signal(true)),
                        Err(_) => Err(StoreError::Overloaded("signals")),
                    }
                }
                (Ok(Outcome::Sent(sent)), _) => Ok(Done::Signal(sent)),
                (Ok(Outcome::Swept(next)), _) => Ok(Done::Sweep(next)),
                (Ok(_), _) => Err(StoreError::Closed),
                (Err(error), _) => Err(error.at(&self.path)),
            });
        }
        answers
    }

    /// Remembers a lease that was taken.
    fn hold(&mut self, acquire: Option<&Acquire>) {
        if let Some(Acquire::Taken { lease, .. }) = acquire {
            self.state.leases.insert(lease.session.clone(), lease.epoch);
        }
    }

    /// Forgets the leases that a batch gave back.
    fn free(&mut self, made: &[Op]) {
        for op in made {
            match op {
                Op::Release(lease) => self.state.leases.retain(|_, epoch| *epoch != lease.epoch),
                Op::DeleteSession(session) => drop(self.state.leases.remove(session)),
                _ => {}
            }
        }
    }

    fn publish(&mut self, batch: &Batch, made: &[Op], applied: Applied) -> Committed {
        let Applied { frames, last, versions, logged, short, claimed, .. } = applied;
        if logged > 0 {
            // What others committed before this batch must go out before it.
            self.catch_up(last - logged);
        }
        self.observer.see(frames.iter().filter(|frame| frame.cursor.is_some()));
        self.feed.publish_own(batch, made, &frames, last);
        let last = frames.into_iter().rev().find_map(|frame| frame.cursor);
        Committed { last, versions, shortage: short.map(|(_, shortage)| shortage), claimed }
    }

    /// Sends what other processes committed, up to a sequence number.
    fn catch_up(&self, to: u64) {
        loop {
            let published = self.feed.published();
            if published >= to {
                return;
            }
            if !self.feed.watched() {
                self.feed.skip(to);
                continue;
            }
            match log::follow(&self.conn, published, to, |part| self.feed.sent(part)) {
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

    /// Looks for what other processes committed.
    fn poll(&mut self) -> Result<(), StoreError> {
        self.state.polled = Some(Instant::now());
        let version = self.data_version()?;
        if version != self.state.data_version {
            self.catch_up(log::tip(&self.conn)?);
            self.check_leases()?;
            self.state.signals_left = signal::waiting(&self.conn, self.owners.name())?;
            self.state.data_version = version;
        }
        let room = self.signals.capacity();
        if self.state.signals_left && room > 0 {
            self.look(false)?;
            // Without waiting: jobs queue up behind this, and the next poll is soon.
            let taken = match self.waiting(Duration::ZERO, |conn| signal::take(conn, self.owners.name(), room)) {
                Err(error) if error.is_busy() => return Ok(()),
                taken => taken?,
            };
            for signal in taken {
                // Only this thread fills the queue, so the room is still there.
                let _ = self.signals.try_send(signal);
            }
            self.state.signals_left = signal::waiting(&self.conn, self.owners.name())?;
        }
        Ok(())
    }

    /// Forgets all leases if there is none any more: another process may have deleted their sessions.
    fn check_leases(&mut self) -> Result<(), StoreError> {
        let mut statement = self.conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM lease WHERE owner = ?1)")?;
        if !statement.query_row([self.owners.name()], |row| row.get(0))? {
            self.state.leases.clear();
        }
        Ok(())
    }
}
