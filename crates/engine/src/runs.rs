//! Which sessions run a turn in this process, and how to start, join and stop them.
//!
//! An idle session costs nothing: it has no task and no entry here.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use api::SessionId;
use futures::FutureExt;
use store::{Signal, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::turn::Ran;
use crate::{Error, Inner, lock};

/// How a run ended: where it ran, or the text of what went wrong.
pub(crate) type End = Result<Ran, String>;

/// One running turn.
pub(crate) struct Run {
    pub(crate) cancel: CancellationToken,
    parked: AtomicBool,
    /// Somebody wanted a turn while this one ran, and relies on it.
    joined: AtomicBool,
    end: watch::Sender<Option<End>>,
    news: watch::Sender<()>,
}

impl Run {
    fn new() -> Self {
        Self {
            cancel: CancellationToken::new(),
            parked: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            end: watch::Sender::new(None),
            news: watch::Sender::new(()),
        }
    }

    /// Has whatever waits inside the turn look at the rows again.
    pub(crate) fn wake(&self) {
        self.news.send_replace(());
    }

    /// Tells when to look at the rows again.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Whether it was stopped to go on later, rather than for good.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Ok(Ran::Here)),
            Err(_) => Ok(Ran::Here),
        }
    }
}

/// The running turns of this process.
#[derive(Default)]
pub(crate) struct Runs {
    map: Mutex<HashMap<SessionId, Arc<Run>>>,
    /// Sessions that another process runs and that we look after.
    followed: Mutex<HashSet<SessionId>>,
    parking: AtomicBool,
}

impl Runs {
    pub(crate) fn get(&self, session: &SessionId) -> Option<Arc<Run>> {
        lock(&self.map).get(session).cloned()
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

    /// Stops every turn so that it goes on at the next start.
    pub(crate) fn park_all(&self) {
        self.parking.store(true, Ordering::Release);
        for run in lock(&self.map).values() {
            run.parked.store(true, Ordering::Release);
            run.cancel.cancel();
        }
    }

    /// Whether turns are being stopped to go on later: what ends now has not come to its end.
    pub(crate) fn is_parking(&self) -> bool {
        self.parking.load(Ordering::Acquire)
    }

    /// The run of a session, and whether it is new; else it knows that it was joined.
    fn enter(&self, session: &SessionId) -> (Arc<Run>, bool) {
        let mut map = lock(&self.map);
        if let Some(run) = map.get(session) {
            run.joined.store(true, Ordering::Release);
            return (run.clone(), false);
        }
        let run = Arc::new(Run::new());
        map.insert(session.clone(), run.clone());
        (run, true)
    }

    fn leave(&self, session: &SessionId) {
        lock(&self.map).remove(session);
    }
}

impl Inner {
    /// Starts a turn, or joins the one that runs; it looks for news.
    pub(crate) fn start(self: &Arc<Self>, session: &SessionId) -> Arc<Run> {
        let (run, new) = self.runs.enter(session);
        if new {
            let (inner, session, run) = (self.clone(), session.clone(), run.clone());
            self.tasks.spawn(async move { inner.drive(&session, &run).await });
        } else {
            run.wake();
        }
        run
    }

    /// Has the turn of a session look at the rows again, wherever it runs.
    pub(crate) async fn nudge(&self, session: &SessionId) -> Result<(), StoreError> {
        match self.runs.get(session) {
            Some(run) => {
                run.wake();
                Ok(())
            }
            None => self.store.signal(session, Signal::Wake).await.map(drop),
        }
    }

    /// Enters a session for something that is not a turn but must not run beside one; `None` if one runs.
    pub(crate) fn occupy(self: &Arc<Self>, session: &SessionId) -> Option<Occupied> {
        let (run, new) = self.runs.enter(session);
        new.then(|| Occupied { inner: self.clone(), session: session.clone(), run })
    }

    async fn drive(self: &Arc<Self>, session: &SessionId, run: &Arc<Run>) {
        let turn =
            async { if self.closing.is_cancelled() { Err(Error::Parked) } else { self.turn(session, run).await } };
        let end = match AssertUnwindSafe(turn).catch_unwind().await {
            Ok(Ok(ran)) => Ok(ran),
            // The lease stays ours; the next turn takes it again and repairs what this one left.
            Err(_) => Err("the turn broke down; send the message again to go on".to_owned()),
            Ok(Err(error)) => {
                tracing::warn!(%session, %error, "the turn stopped");
                Err(error.to_string())
            }
        };
        self.release(session, run, end);
    }

    fn release(self: &Arc<Self>, session: &SessionId, run: &Run, end: End) {
        let ran = end.as_ref().ok().copied();
        self.runs.leave(session);
        run.end.send_replace(Some(end));
        match ran {
            // Whoever accepted a prompt while we were ending found us in the map.
            Some(Ran::Here) if run.joined.load(Ordering::Acquire) => self.start_if_waiting(session),
            Some(Ran::Elsewhere) => self.look_after(session),
            Some(Ran::Here) | None => {}
        }
    }

    fn start_if_waiting(self: &Arc<Self>, session: &SessionId) {
        if !self.closing.is_cancelled() && self.store.inbox(session).is_ok_and(|inbox| !inbox.is_empty()) {
            self.start(session);
        }
    }

    /// Another process runs the session. If it ends without answering what we accepted, we do.
    fn look_after(self: &Arc<Self>, session: &SessionId) {
        if !lock(&self.runs.followed).insert(session.clone()) {
            return;
        }
        let (inner, session) = (self.clone(), session.clone());
        self.tasks.spawn(async move {
            let _ = inner.closing.run_until_cancelled(inner.until_free(&session)).await;
            lock(&inner.runs.followed).remove(&session);
            inner.start_if_waiting(&session);
        });
    }
}

/// A session that is held by something other than a turn; free again when this is dropped.
pub(crate) struct Occupied {
    inner: Arc<Inner>,
    session: SessionId,
    pub(crate) run: Arc<Run>,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.inner.release(&self.session, &self.run, Ok(Ran::Here));
    }
}
