//! Stops a turn, also one that has not begun yet.
//!
//! On a host whose turns have names, the turn is cancelled as soon as it has one. Elsewhere the session is aborted, and
//! again whenever something begins to run in it: an abort does not affect what has not begun.

use std::sync::Arc;
use std::time::Duration;

use api::{EventBody, Host, HostError, SessionId, SessionStatus, TurnId, WatchItem, WatchScope};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::retry::Patience;

/// When to abort again if no event says that something has begun.
const FALLBACK: Duration = Duration::from_secs(1);
/// The most aborts.
const MAX_ABORTS: u32 = 30;

/// How far a turn is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is being accepted, and will have a name.
    Starting,
    /// It was accepted under this name.
    Named(TurnId),
    /// It was sent to a host that names no turns, or as something else than a prompt.
    Unnamed,
    /// It has ended.
    Ended,
}

/// Stops one turn.
#[derive(Clone)]
pub struct Stopper {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) session: SessionId,
    pub(crate) patience: Patience,
    pub(crate) phase: watch::Receiver<Phase>,
}

impl Stopper {
    /// Stops the turn with its subagents; once it has ended, what else runs in its session. Returns when it has
    /// stopped, or when the host cannot stop it. The turn's own future must be polled meanwhile.
    pub fn stop(&self) -> impl Future<Output = ()> + Send + use<> {
        let stopper = self.clone();
        async move {
            let result = match stopper.name().await {
                Some(turn) => stopper.patience.retry(|| stopper.host.cancel_turn(&turn)).await.map(drop),
                None => stopper.abort().await,
            };
            if let Err(error) = result {
                tracing::warn!(%error, session = %stopper.session, "cannot stop a turn");
            }
        }
    }

    /// The name of the turn while it has one. Waits for it while it is being accepted.
    async fn name(&self) -> Option<TurnId> {
        let mut phase = self.phase.clone();
        let phase = phase.wait_for(|phase| *phase != Phase::Starting).await;
        match phase.as_deref() {
            Ok(Phase::Named(turn)) => Some(turn.clone()),
            _ => None,
        }
    }

    async fn abort(&self) -> Result<(), HostError> {
        // Before the first abort, so that nothing begins unseen. Without events, the fallback has to do.
        let events = self.host.watch(WatchScope::Session(self.session.clone()), None).await;
        let mut events: BoxStream<'static, WatchItem> = events.unwrap_or_else(|_| stream::pending().boxed());
        let mut plan = AbortPlan::new(self.host.features().turns);
        loop {
            let aborted = self.patience.retry(|| self.host.abort(&self.session)).await?;
            let has_ended = *self.phase.borrow() == Phase::Ended;
            if plan.is_done(aborted, has_ended) {
                return Ok(());
            }
            let began = async {
                while let Some(item) = events.next().await {
                    if plan.is_beginning(&self.session, &item) {
                        return;
                    }
                }
                std::future::pending().await
            };
            // Whether it began or the time is up, the next abort follows.
            let _ = timeout(FALLBACK, began).await;
        }
    }
}

/// When to abort again. Pure.
#[derive(Debug)]
struct AbortPlan {
    /// Whether the host says truthfully if something ran. OpenCode always says so.
    is_truthful: bool,
    left: u32,
}

impl AbortPlan {
    fn new(is_truthful: bool) -> Self {
        Self { is_truthful, left: MAX_ABORTS }
    }

    /// Takes in the response to an abort, and whether the turn has ended. Returns whether that was the last abort.
    fn is_done(&mut self, aborted: bool, has_ended: bool) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0 || aborted && (self.is_truthful || has_ended)
    }

    /// Whether an item tells that something may have begun in the session.
    fn is_beginning(&self, session: &SessionId, item: &WatchItem) -> bool {
        let WatchItem::Frame(frame) = item else { return true };
        matches!(
            frame.event().as_deref().map(|event| &event.body),
            Some(EventBody::SessionStatus { session_id, status })
                if session_id == session && *status != SessionStatus::Idle
        )
    }
}

#[cfg(test)]
mod tests;
