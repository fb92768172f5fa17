//! Finds work that nobody is doing and resumes it: waiting prompts without a turn, turns of dead processes, and
//! background tasks whose end nobody would report.
//!
//! In normal operation there is nothing to find, because the process that accepts a prompt starts its turn. The watchdog is for
//! failures: a turn that panicked, a database that failed for a while, another process that was killed. Tests of normal
//! operation leave it off.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::{PartId, SessionId};
use store::{Background, Batch, LinkedTask, StoreError, TaskLink};
use tokio::time::Instant;

use crate::subagent::delegate::ChildResources;
use crate::{Engine, Error, Inner};

/// How often it checks. It acts on what it finds twice in a row, because someone may have been about to act.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The first pause before a session is started again, …
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// … doubled each time up to this. A session not seen for as long starts over.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The sessions a watchdog covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchdogScope {
    /// All sessions of the database, for a long-running server.
    All,
    /// Sessions that this process has prompted or recovered, and everything below them.
    Opened,
}

/// A session that nobody was running at the last check.
struct Suspect {
    /// When its turn may be started.
    due: Instant,
    /// The pause after that attempt.
    pause: Duration,
}

impl Engine {
    /// Starts a watchdog that runs until the engine ends. Must be called inside a tokio runtime.
    pub fn start_watchdog(&self, scope: WatchdogScope) {
        if scope == WatchdogScope::Opened {
            self.inner.turns.record_opened();
        }
        let (weak, closing) = (Arc::downgrade(&self.inner), self.inner.tasks.closing().clone());
        let watch = async move {
            let (mut suspects, mut unreported) = (HashMap::new(), HashSet::new());
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                let Some(inner) = weak.upgrade().filter(|inner| !inner.turns.is_parking()) else { return };
                let sessions = inner.check_sessions(&mut suspects);
                let tasks = inner.check_background_tasks(&mut unreported).await;
                let drafts = if scope == WatchdogScope::All { inner.discard_drafts().await } else { Ok(()) };
                for error in
                    [sessions.err().map(Error::from), tasks.err(), drafts.err().map(Error::from)].into_iter().flatten()
                {
                    tracing::warn!(%error, "a watchdog check failed and will be retried");
                }
            }
        };
        tokio::spawn(async move { closing.run_until_cancelled(watch).await });
    }
}

impl Inner {
    fn is_in_scope(&self, session: &SessionId) -> Result<bool, StoreError> {
        Ok(self.turns.is_watched(session)
            || self.lineage(session)?.iter().any(|above| self.turns.is_watched(&above.id)))
    }

    /// Starts waiting turns that nobody runs.
    fn check_sessions(self: &Arc<Self>, suspects: &mut HashMap<SessionId, Suspect>) -> Result<(), StoreError> {
        let (abandoned, now) = (self.abandoned_sessions()?, Instant::now());
        suspects.retain(|session, suspect| abandoned.contains(session) || suspect.due + LONGEST_PAUSE > now);
        for session in abandoned {
            let Some(suspect) = suspects.get_mut(&session) else {
                suspects.insert(session, Suspect { due: now, pause: FIRST_PAUSE });
                continue;
            };
            if suspect.due <= now {
                suspect.due = now + suspect.pause;
                suspect.pause = (suspect.pause * 2).min(LONGEST_PAUSE);
                tracing::warn!(%session, "starting the turn of a waiting prompt that nobody runs");
                self.start(&session);
            }
        }
        Ok(())
    }

    /// Sessions with work to do that no living process runs.
    fn abandoned_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        let mut unfinished = self.store.unfinished_sessions()?;
        unfinished.retain(|session| !self.turns.is_running(session) && !self.turns.runs().is_followed(session));
        let mut open = Vec::new();
        for session in unfinished {
            let elsewhere = self.store.lease_holder(&session)?.is_some_and(|holder| holder.alive && !holder.own);
            // A session without a row is an unfinished copy.
            if !elsewhere && self.is_in_scope(&session)? && self.store.session(&session)?.is_some() {
                open.push(session);
            }
        }
        Ok(open)
    }

    /// Follows background tasks that nobody follows.
    async fn check_background_tasks(self: &Arc<Self>, suspects: &mut HashSet<PartId>) -> Result<(), Error> {
        let known = std::mem::take(suspects);
        for link in self.store.background_tasks()? {
            if self.is_unfollowed(&link)? && self.is_in_scope(&link.task.parent)? {
                if known.contains(&link.part) {
                    self.take_over_task(&link).await?;
                } else {
                    suspects.insert(link.part);
                }
            }
        }
        Ok(())
    }

    /// Whether nobody would report the end of a background task. An interrupted call follows its task itself.
    pub(crate) fn is_unfollowed(&self, link: &TaskLink) -> Result<bool, StoreError> {
        let follower = link.task.background.as_ref().and_then(|background| background.follower.as_deref());
        let followed = match follower {
            Some(follower) if follower == self.store.owner() => self.subagents.is_following(&link.part),
            Some(follower) => self.store.is_alive(follower),
            None => false,
        };
        Ok(!followed && self.call_has_ended(link)?)
    }

    /// Starts following a background task, unless another process has just done so. Returns true if we follow it.
    pub(crate) async fn take_over_task(self: &Arc<Self>, link: &TaskLink) -> Result<bool, Error> {
        let Some(background) = &link.task.background else { return Ok(false) };
        if background.follower.as_deref() != Some(self.store.owner()) {
            let background = Background { follower: Some(self.store.owner().to_owned()), ..background.clone() };
            let mut batch = Batch::new(&store::Location::new("", ""));
            batch.replace_task(link, &LinkedTask { background: Some(background), ..link.task.clone() });
            match self.store.commit(batch).await {
                Ok(_) => {}
                Err(StoreError::Changed { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        self.follow(&link.part, ChildResources::default());
        Ok(true)
    }
}
