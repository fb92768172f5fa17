//! Which sessions run a turn in this process, and how to start, join and stop them.
//!
//! An idle session costs nothing: it has no task and no entry here. Whoever wants to run one enters it first ([`Occupied`]). That
//! is the only way to the session's lease in this process, whether the lease is taken by itself or comes along with a prompt:
//! so two never take it beside each other, and none is used that another one has outdated.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::{HostError, MessageId, SessionId};
use futures::FutureExt;
use store::{Acquire, Signal, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::project::instance::Instance;
use crate::turn::{Conversation, TurnLocation};
use crate::{Inner, lock};

/// How a run ended: where it ran, or what went wrong.
pub(crate) type RunResult = Result<TurnLocation, HostError>;

/// What a turn has done at its end.
#[derive(Default)]
struct FinishedTurn {
    prompts: Vec<MessageId>,
    answer: Option<MessageId>,
}

/// One running turn.
pub(crate) struct Run {
    pub(crate) cancel: CancellationToken,
    parked: AtomicBool,
    result: watch::Sender<Option<RunResult>>,
    finished: Mutex<FinishedTurn>,
    wakeups: watch::Sender<()>,
    /// The epoch of its lease; 0 before it has one.
    epoch: AtomicU64,
    /// The epoch of the turn that another process wants to be stopped.
    abort_epoch: AtomicU64,
}

impl Run {
    fn new() -> Self {
        Self {
            cancel: CancellationToken::new(),
            parked: AtomicBool::new(false),
            result: watch::Sender::new(None),
            finished: Mutex::default(),
            wakeups: watch::Sender::new(()),
            epoch: AtomicU64::new(0),
            abort_epoch: AtomicU64::new(0),
        }
    }

    /// Stops it if it has, or is about to get, the lease with that epoch.
    fn abort(&self, epoch: u64) {
        self.abort_epoch.store(epoch, Ordering::SeqCst);
        self.cancel_if_aborted();
    }

    /// It has this lease now.
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

    /// Has whatever waits inside the turn look at the rows again.
    pub(crate) fn wake(&self) {
        self.wakeups.send_replace(());
    }

    /// Tells when to look at the rows again.
    pub(crate) fn wakeups(&self) -> watch::Receiver<()> {
        self.wakeups.subscribe()
    }

    fn park(&self) {
        self.parked.store(true, Ordering::Release);
        self.cancel.cancel();
    }

    /// Whether it was stopped to go on later, rather than for good.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// Notes which prompts the turn took in, and its last answer, which is the answer to all of them.
    pub(crate) fn record_result(&self, prompts: Vec<MessageId>, answer: Option<MessageId>) {
        *lock(&self.finished) = FinishedTurn { prompts, answer };
    }

    /// The answer to a prompt that the turn took in. Another turn may have followed since.
    pub(crate) fn answer_to(&self, prompt: &MessageId) -> Option<MessageId> {
        let finished = lock(&self.finished);
        finished.answer.clone().filter(|_| finished.prompts.contains(prompt))
    }

    /// Waits for its end.
    pub(crate) async fn wait_for_end(&self) -> RunResult {
        let mut result = self.result.subscribe();
        match result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(TurnLocation::Here)),
            Err(_) => Ok(TurnLocation::Here),
        }
    }
}

/// What is in a session at the moment.
struct RunEntry {
    run: Arc<Run>,
    /// Somebody wanted a turn while this one ran, and relies on it.
    joined: bool,
}

/// The running turns of this process.
#[derive(Default)]
pub(crate) struct Runs {
    map: Mutex<HashMap<SessionId, RunEntry>>,
    /// Sessions that another process runs and that we look after.
    followed: Mutex<HashSet<SessionId>>,
    parking: AtomicBool,
}

impl Runs {
    pub(crate) fn get(&self, session: &SessionId) -> Option<Arc<Run>> {
        lock(&self.map).get(session).map(|entry| entry.run.clone())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.map).len()
    }

    /// Stops a turn for good; `None` if none runs here.
    pub(crate) fn abort(&self, session: &SessionId) -> Option<Arc<Run>> {
        let run = self.get(session)?;
        run.cancel.cancel();
        Some(run)
    }

    /// Stops the turn with that epoch for good; with 0 whatever runs.
    pub(crate) fn abort_turn(&self, session: &SessionId, epoch: u64) {
        match self.get(session) {
            Some(run) if epoch == 0 => run.cancel.cancel(),
            Some(run) => run.abort(epoch),
            None => {}
        }
    }

    /// Stops every turn so that it goes on at the next start.
    pub(crate) fn park_all(&self) {
        self.parking.store(true, Ordering::Release);
        lock(&self.map).values().for_each(|entry| entry.run.park());
    }

    /// Whether turns are being stopped to go on later: what ends now has not come to its end.
    pub(crate) fn is_parking(&self) -> bool {
        self.parking.load(Ordering::Acquire)
    }

    /// The run of a session, and whether it is new; else it knows that it was joined.
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

    /// Frees a session for the next one; true if somebody joined who was there. Both at once: whoever comes later enters anew.
    fn leave(&self, session: &SessionId) -> bool {
        lock(&self.map).remove(session).is_some_and(|entry| entry.joined)
    }

    /// Whether another process runs a session and we wait for its end.
    pub(crate) fn is_followed(&self, session: &SessionId) -> bool {
        lock(&self.followed).contains(session)
    }
}

impl Inner {
    /// Starts a turn, or joins the one that runs; it looks for news.
    pub(crate) fn start(self: &Arc<Self>, session: &SessionId) -> Arc<Run> {
        let (run, new) = self.runs.enter(session);
        if new {
            let guard = SessionGuard::new(self, session, &run);
            self.tasks.spawn(guard.drive());
        } else {
            run.wake();
        }
        run
    }

    /// Has the turn of a session look at the rows again, wherever it runs.
    pub(crate) async fn wake_turn(&self, session: &SessionId) -> Result<(), StoreError> {
        match self.runs.get(session) {
            Some(run) => {
                run.wake();
                Ok(())
            }
            None => self.store.signal(session, Signal::Wake).await.map(drop),
        }
    }

    /// Enters a session; `None` if somebody is there, who then knows that it was joined.
    pub(crate) fn try_enter(self: &Arc<Self>, session: &SessionId) -> Option<SessionGuard> {
        let (run, new) = self.runs.enter(session);
        new.then(|| SessionGuard::new(self, session, &run))
    }

    fn start_if_prompts_wait(self: &Arc<Self>, session: &SessionId) {
        if !self.closing.is_cancelled() && self.store.inbox(session).is_ok_and(|inbox| !inbox.is_empty()) {
            self.start(session);
        }
    }

    /// Another process runs the session. If it ends without answering what we accepted, we do.
    fn follow_other_process(self: &Arc<Self>, session: &SessionId) {
        if !lock(&self.runs.followed).insert(session.clone()) {
            return;
        }
        let (inner, session) = (self.clone(), session.clone());
        self.tasks.spawn(async move {
            let _ = inner.closing.run_until_cancelled(inner.wait_until_free(&session)).await;
            lock(&inner.runs.followed).remove(&session);
            inner.start_if_prompts_wait(&session);
        });
    }
}

/// A session that this process has entered: nobody else here takes its lease. Free again when this is dropped.
pub(crate) struct SessionGuard {
    pub(crate) inner: Arc<Inner>,
    pub(crate) session: SessionId,
    pub(crate) run: Arc<Run>,
    claim: Option<Claim>,
    result: RunResult,
}

/// A lease that was taken along with a prompt.
struct Claim {
    acquired: Acquire,
    /// Where the prompt was accepted.
    instance: Arc<Instance>,
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

    /// Keeps the lease that came with a prompt until it is [taken](Self::acquire).
    pub(crate) fn set_claim(&mut self, acquired: Acquire, instance: Arc<Instance>) {
        self.claim = Some(Claim { acquired, instance });
    }

    /// Where the prompt was accepted that brought the lease along.
    pub(crate) fn instance(&self) -> Option<Arc<Instance>> {
        self.claim.as_ref().map(|claim| claim.instance.clone())
    }

    /// Takes the lease of the session, and its conversation if that is still what the rows say, but for prompts that wait.
    pub(crate) async fn acquire(&mut self) -> Result<(Acquire, Option<Conversation>), StoreError> {
        let cached = self.inner.conversations.take(&self.session);
        let acquired = match self.claim.take() {
            Some(claim) => claim.acquired,
            None => self.inner.store.acquire(&self.session).await?,
        };
        if let Acquire::Taken { lease, .. } = &acquired {
            self.run.set_epoch(lease.epoch());
        }
        let current = match &acquired {
            Acquire::Taken { took_over: false, revision, .. } => cached.filter(|cached| cached.revision == *revision),
            _ => None,
        };
        Ok((acquired, current))
    }

    /// Runs the session's turn to its end.
    pub(crate) async fn drive(mut self) {
        let inner = self.inner.clone();
        self.result = match AssertUnwindSafe(inner.run_turn(&mut self)).catch_unwind().await {
            Ok(Ok(location)) => Ok(location),
            // The lease stays ours; the next turn takes it again and repairs what this one left.
            Err(_) => {
                Err(HostError::Failed("the turn broke down; it is tried again, or send another message".to_owned()))
            }
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
        let joined = self.inner.runs.leave(&self.session);
        self.run.result.send_replace(Some(result));
        match location {
            Some(TurnLocation::Elsewhere) => self.inner.follow_other_process(&self.session),
            // Whoever accepted a prompt while we were here found us in the map, and relies on us.
            Some(TurnLocation::Here) if joined || self.claim.is_some() => {
                self.inner.start_if_prompts_wait(&self.session);
            }
            // Nobody relies on us; or it broke, and may break again at once, so the watchdog tries it after a while.
            Some(TurnLocation::Here) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_stops_the_turn_that_was_meant_and_no_other() {
        let (runs, session) = (Runs::default(), SessionId::new());
        let begin = || runs.enter(&session).0;
        runs.abort_turn(&session, 4);
        let run = begin();
        run.set_epoch(5);
        runs.abort_turn(&session, 4);
        assert!(!run.cancel.is_cancelled(), "it was for the turn before");
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
        // A version that does not tell which one means what runs.
        let run = begin();
        runs.abort_turn(&session, 0);
        assert!(run.cancel.is_cancelled());
    }
}
