//! The turns running in this process: start, join and stop them.
//!
//! An idle session costs nothing: it has no task and no entry here. To run a session, a caller enters it first
//! ([`SessionGuard`]). That is the only way to its lease in this process, whether the lease is acquired separately or
//! together with a prompt. So two callers never acquire it in parallel, and no outdated lease is used.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::{HostError, MessageId, SessionId};
use futures::FutureExt;
use store::{AcquireOutcome, Signal, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::project::instance::Instance;
use crate::turn::{Conversation, TurnLocation};
use crate::{Inner, lock};

/// How a run ended: where it ran, or the error.
pub(crate) type RunResult = Result<TurnLocation, HostError>;

/// The turn of a run.
#[derive(Default)]
struct RunTurn {
    number: Option<u64>,
    /// Its last answer, once it has ended.
    ended: Option<Option<MessageId>>,
    /// Whether other turns of the session wait after it.
    more_turns: bool,
}

/// One running turn.
pub(crate) struct Run {
    pub(crate) cancel: CancellationToken,
    parked: AtomicBool,
    result: watch::Sender<Option<RunResult>>,
    turn: Mutex<RunTurn>,
    wakeups: watch::Sender<()>,
    /// The epoch of its lease; 0 before it has one.
    epoch: AtomicU64,
    /// The lease epoch of the turn that another process wants to abort.
    abort_epoch: AtomicU64,
}

impl Run {
    fn new() -> Self {
        Self {
            cancel: CancellationToken::new(),
            parked: AtomicBool::new(false),
            result: watch::Sender::new(None),
            turn: Mutex::default(),
            wakeups: watch::Sender::new(()),
            epoch: AtomicU64::new(0),
            abort_epoch: AtomicU64::new(0),
        }
    }

    /// Aborts the run if it has, or is about to get, the lease with this epoch.
    fn abort(&self, epoch: u64) {
        self.abort_epoch.store(epoch, Ordering::SeqCst);
        self.cancel_if_aborted();
    }

    /// Records the epoch of its lease.
    fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
        self.cancel_if_aborted();
    }

    fn cancel_if_aborted(&self) {
        let epoch = self.epoch.load(Ordering::SeqCst);
        if epoch != 0 && epoch == self.abort_epoch.load(Ordering::SeqCst) {
            self.cancel.cancel();
        }
    }

    /// Makes anything that waits inside the turn read the rows again.
    pub(crate) fn wake(&self) {
        self.wakeups.send_replace(());
    }

    /// Notified when the rows should be read again.
    pub(crate) fn wakeups(&self) -> watch::Receiver<()> {
        self.wakeups.subscribe()
    }

    fn park(&self) {
        self.parked.store(true, Ordering::Release);
        self.cancel.cancel();
    }

    /// Whether it was stopped to be resumed later, rather than for good.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// Records which turn it runs.
    pub(crate) fn set_turn(&self, number: Option<u64>) {
        lock(&self.turn).number = number;
    }

    /// Records the end of its turn.
    pub(crate) fn record_end(&self, number: Option<u64>, answer: Option<MessageId>, more_turns: bool) {
        *lock(&self.turn) = RunTurn { number, ended: Some(answer), more_turns };
    }

    /// Whether it runs this turn.
    pub(crate) fn is_of_turn(&self, number: u64) -> bool {
        lock(&self.turn).number == Some(number)
    }

    /// The last answer of a turn that it has run to the end.
    pub(crate) fn answer_of_turn(&self, number: u64) -> Option<Option<MessageId>> {
        let turn = lock(&self.turn);
        turn.ended.clone().filter(|_| turn.number == Some(number))
    }

    /// Waits for the run to end.
    pub(crate) async fn wait_for_end(&self) -> RunResult {
        let mut result = self.result.subscribe();
        match result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(TurnLocation::Here)),
            Err(_) => Ok(TurnLocation::Here),
        }
    }
}

/// The run inside a session.
struct RunEntry {
    run: Arc<Run>,
    /// Whether a caller wanted a turn while this one ran, and relies on it.
    joined: bool,
}

/// The running turns of this process.
#[derive(Default)]
pub(crate) struct Runs {
    map: Mutex<HashMap<SessionId, RunEntry>>,
    /// Sessions that another process runs and we follow.
    followed: Mutex<HashSet<SessionId>>,
    parking: AtomicBool,
}

impl Runs {
    pub(crate) fn get(&self, session: &SessionId) -> Option<Arc<Run>> {
        lock(&self.map).get(session).map(|entry| entry.run.clone())
    }

    /// The number of running turns.
    pub(crate) fn len(&self) -> usize {
        lock(&self.map).len()
    }

    /// Aborts a turn for good. Returns `None` if none runs here.
    pub(crate) fn abort(&self, session: &SessionId) -> Option<Arc<Run>> {
        let run = self.get(session)?;
        run.cancel.cancel();
        Some(run)
    }

    /// Aborts the turn with this lease epoch for good; 0 means any turn.
    pub(crate) fn abort_turn(&self, session: &SessionId, epoch: u64) {
        match self.get(session) {
            Some(run) if epoch == 0 => run.cancel.cancel(),
            Some(run) => run.abort(epoch),
            None => {}
        }
    }

    /// Stops all turns so that they resume at the next start.
    pub(crate) fn park_all(&self) {
        self.parking.store(true, Ordering::Release);
        lock(&self.map).values().for_each(|entry| entry.run.park());
    }

    /// Whether turns are being parked: a turn that ends now is not finished.
    pub(crate) fn is_parking(&self) -> bool {
        self.parking.load(Ordering::Acquire)
    }

    /// The run of a session, and whether it is new. An existing run is marked as joined.
    fn enter(&self, session: &SessionId) -> (Arc<Run>, bool) {
        let mut map = lock(&self.map);
        if let Some(entry) = map.get_mut(session) {
            entry.joined = true;
            return (entry.run.clone(), false);
        }
        let run = Arc::new(Run::new());
        if self.is_parking() {
            run.park();
        }
        map.insert(session.clone(), RunEntry { run: run.clone(), joined: false });
        (run, true)
    }

    /// Frees a session and returns whether its run was joined, in one step: anyone who comes later enters anew.
    fn leave(&self, session: &SessionId) -> bool {
        lock(&self.map).remove(session).is_some_and(|entry| entry.joined)
    }

    /// Whether another process runs a session and we wait for its end.
    pub(crate) fn is_followed(&self, session: &SessionId) -> bool {
        lock(&self.followed).contains(session)
    }
}

impl Inner {
    /// Starts a turn, or joins and wakes the running one.
    pub(crate) fn start(self: &Arc<Self>, session: &SessionId) -> Arc<Run> {
        let (run, new) = self.turns.runs().enter(session);
        if new {
            let guard = SessionGuard::new(self, session, &run);
            self.tasks.spawn(guard.drive());
        } else {
            run.wake();
        }
        run
    }

    /// Makes the turn of a session read the rows again, wherever it runs.
    pub(crate) async fn wake_turn(&self, session: &SessionId) -> Result<(), StoreError> {
        match self.turns.runs().get(session) {
            Some(run) => {
                run.wake();
                Ok(())
            }
            None => self.store.signal(session, Signal::Wake).await.map(drop),
        }
    }

    /// Enters a session. Returns `None` if it is already entered; that run is then marked as joined.
    pub(crate) fn try_enter(self: &Arc<Self>, session: &SessionId) -> Option<SessionGuard> {
        let (run, new) = self.turns.runs().enter(session);
        new.then(|| SessionGuard::new(self, session, &run))
    }

    fn start_if_turns_wait(self: &Arc<Self>, session: &SessionId) {
        if !self.tasks.is_closing() && self.store.current_turn(session).is_ok_and(|next| next.is_some()) {
            self.start(session);
        }
    }

    /// Follows a session that another process runs. If that process ends without answering what we accepted, we do.
    fn follow_other_process(self: &Arc<Self>, session: &SessionId) {
        if !lock(&self.turns.runs().followed).insert(session.clone()) {
            return;
        }
        let (inner, session) = (self.clone(), session.clone());
        self.tasks.spawn(async move {
            let _ = inner.tasks.until_closing(inner.wait_until_free(&session)).await;
            lock(&inner.turns.runs().followed).remove(&session);
            inner.start_if_turns_wait(&session);
        });
    }
}

/// A session that this process has entered: nobody else in it acquires the lease. Freed on drop. If it still has the
/// lease of a prompt then, a new run takes that over.
#[must_use = "the session is free again once this is dropped"]
pub(crate) struct SessionGuard {
    pub(crate) inner: Arc<Inner>,
    pub(crate) session: SessionId,
    pub(crate) run: Arc<Run>,
    claim: Option<Claim>,
    result: RunResult,
}

/// A lease acquired together with a prompt.
struct Claim {
    acquired: AcquireOutcome,
    /// The instance that accepted the prompt.
    instance: Arc<Instance>,
}

/// What a turn begins with.
pub(crate) struct ClaimedTurn {
    pub(crate) instance: Arc<Instance>,
    pub(crate) acquired: AcquireOutcome,
    /// The session's cached conversation, if it still matches the rows except for waiting prompts.
    pub(crate) cached: Option<Conversation>,
}

impl SessionGuard {
    fn new(inner: &Arc<Inner>, session: &SessionId, run: &Arc<Run>) -> Self {
        Self {
            inner: inner.clone(),
            session: session.clone(),
            run: run.clone(),
            claim: None,
            result: Ok(TurnLocation::Here),
        }
    }

    /// Keeps the lease that came with a prompt, if one did, for [`drive`](Self::drive).
    pub(crate) fn with_claim(mut self, acquired: Option<AcquireOutcome>, instance: Arc<Instance>) -> Self {
        self.claim = acquired.map(|acquired| Claim { acquired, instance });
        self
    }

    /// The lease that came with a prompt.
    pub(crate) fn take_claim(&mut self) -> Option<ClaimedTurn> {
        let Claim { acquired, instance } = self.claim.take()?;
        let cached = self.begin(&acquired);
        Some(ClaimedTurn { instance, acquired, cached })
    }

    /// Acquires the session's lease, for a session that none came with. Also returns its cached conversation, if that
    /// still matches the rows except for waiting prompts.
    pub(crate) async fn acquire(&mut self) -> Result<(AcquireOutcome, Option<Conversation>), StoreError> {
        let acquired = self.inner.store.acquire(&self.session).await?;
        let cached = self.begin(&acquired);
        Ok((acquired, cached))
    }

    fn begin(&self, acquired: &AcquireOutcome) -> Option<Conversation> {
        let cached = self.inner.turns.conversations().take(&self.session);
        let AcquireOutcome::Acquired { lease, took_over, revision, .. } = acquired else { return None };
        self.run.set_epoch(lease.epoch());
        cached.filter(|cached| !took_over && cached.revision == *revision)
    }

    /// Runs the session's turn to its end.
    pub(crate) async fn drive(mut self) {
        let inner = self.inner.clone();
        self.result = match AssertUnwindSafe(inner.run_turn(&mut self)).catch_unwind().await {
            Ok(Ok(location)) => Ok(location),
            // The lease stays ours; the next turn acquires it again and repairs what this one left.
            Err(_) => Err(HostError::Failed(
                "the turn failed unexpectedly; it is retried, or send another message".to_owned(),
            )),
            Ok(Err(error)) => {
                tracing::warn!(session = %self.session, %error, "the turn stopped");
                Err(error.into())
            }
        };
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(TurnLocation::Here));
        let location = result.as_ref().ok().copied();
        let joined = self.inner.turns.runs().leave(&self.session);
        self.run.result.send_replace(Some(result));
        match location {
            Some(TurnLocation::Elsewhere) => self.inner.follow_other_process(&self.session),
            // A caller that accepted a prompt meanwhile found this run in the map, and relies on it.
            Some(TurnLocation::Here) if joined || self.claim.is_some() || lock(&self.run.turn).more_turns => {
                self.inner.start_if_turns_wait(&self.session);
            }
            // Nobody relies on this run; or it failed and may fail again at once, so the watchdog retries it later.
            Some(TurnLocation::Here) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_stops_only_the_turn_with_its_epoch() {
        let (runs, session) = (Runs::default(), SessionId::new());
        let begin = || runs.enter(&session).0;
        runs.abort_turn(&session, 4);
        let run = begin();
        run.set_epoch(5);
        runs.abort_turn(&session, 4);
        assert!(!run.cancel.is_cancelled(), "it was meant for the previous turn");
        runs.abort_turn(&session, 5);
        assert!(run.cancel.is_cancelled());
        runs.leave(&session);
        // The lease is in the database before its turn knows of it.
        for (told, leased) in [(7, true), (6, false)] {
            let run = begin();
            runs.abort_turn(&session, told);
            assert!(!run.cancel.is_cancelled());
            run.set_epoch(7);
            assert_eq!(run.cancel.is_cancelled(), leased);
            runs.leave(&session);
        }
        // Older versions send no epoch, and mean any turn that runs.
        let run = begin();
        runs.abort_turn(&session, 0);
        assert!(run.cancel.is_cancelled());
    }
}
