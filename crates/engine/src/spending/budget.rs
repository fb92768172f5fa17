//! Budgets for a session and everything below it, and turns that wait for one.
//!
//! The store decides: the commit that begins a model call reserves the most the call may use, unless a budget above has
//! no room. This module handles the wait that follows.

use std::time::Duration;

use api::{Blocked, Budget, BudgetState, EventBody, HostError, MessageError, SessionId, SessionStatus, TreeState};
use store::{Batch, BudgetExceeded, Reservation, SessionChange, StoreError};
use tokio::time::Instant;

use crate::error::store_error;
use crate::project::instance::Instance;
use crate::subagent::task::TaskInput;
use crate::turn::Turn;
use crate::{Error, Inner};

/// How often a waiting turn tries again: a call in another process may have freed budget.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest possible wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The result of waiting for a budget.
pub(crate) enum Admission {
    /// The batch is committed.
    Admitted,
    /// The turn was stopped while waiting.
    Stopped,
    /// The wait took too long.
    Expired(MessageError),
}

impl Inner {
    /// Sets or removes a budget, and wakes the turns that were waiting for it.
    pub(crate) async fn set_budget(&self, id: &SessionId, budget: Budget) -> Result<BudgetState, HostError> {
        let session = self.session(id)?;
        check(&budget).map_err(HostError::Invalid)?;
        let mut batch = Batch::new(&self.place(&session)).durable();
        batch.budget(id, (budget != Budget::default()).then_some(&budget));
        // Sends watchers an update; the session itself has not changed.
        batch.change_session(id, SessionChange::default());
        self.store.commit(batch).await.map_err(store_error)?;
        for blocked in self.store.blocked_within(id).map_err(store_error)? {
            self.wake_turn(&blocked).await.map_err(store_error)?;
        }
        if let Some(state) = self.store.budget(id).map_err(store_error)? {
            return Ok(state);
        }
        let total = self.store.usage(id).map_err(store_error)?.1;
        let spent = Budget {
            cost: Some(total.cost),
            tokens: Some(total.all_tokens()),
            steps: Some(total.steps),
            seconds: None,
        };
        Ok(BudgetState { limit: Budget::default(), spent, reserved: Budget::default() })
    }

    /// Why a session's turn is waiting for its budget, if it is. Its row only counts together with
    /// [`SessionStatus::Retry`] with attempt 0, because a process may die before removing it.
    pub(crate) fn blocked(&self, id: &SessionId) -> Result<Option<Blocked>, StoreError> {
        let Some(blocked) = self.store.blocked(id)? else { return Ok(None) };
        let is_waiting = |(session, status): &(SessionId, SessionStatus)| session == id && is_budget_wait(status);
        let is_waiting = self.store.statuses()?.iter().any(is_waiting);
        Ok(Some(blocked).filter(|_| is_waiting))
    }
}

/// Whether a status means that the turn waits for its budget. Other retries count from 1.
pub(crate) fn is_budget_wait(status: &SessionStatus) -> bool {
    matches!(status, SessionStatus::Retry { attempt: 0, .. })
}

/// Rejects a budget that could never allow anything.
pub(crate) fn check(budget: &Budget) -> Result<(), String> {
    let zero = budget.tokens == Some(0) || budget.steps == Some(0) || budget.seconds == Some(0);
    if zero || budget.cost.is_some_and(|cost| !(cost.0 > 0.0 && cost.0.is_finite())) {
        return Err(
            "Every limit of a budget must be greater than zero. Omit a limit to remove it, or pause the session to \
             stop it"
                .to_owned(),
        );
    }
    Ok(())
}

/// The budget of a task: from the call, otherwise from its agent, otherwise for a root's task from the configuration.
pub(crate) fn for_task(instance: &Instance, task: &TaskInput, caller_is_root: bool) -> Result<Option<Budget>, String> {
    if let Some(budget) = &task.budget {
        check(budget)?;
        return Ok(Some(*budget).filter(|budget| *budget != Budget::default()));
    }
    let agent = instance.agent_limits(&task.subagent_type).budget;
    let configured = if caller_is_root { instance.limits.budget } else { Budget::default() };
    let usable = |budget: &Budget| *budget != Budget::default() && check(budget).is_ok();
    Ok([agent, configured].into_iter().find(usable))
}

impl Turn {
    /// Commits the start of a model call. While a budget has no room, the turn waits visibly.
    pub(crate) async fn admit(&self, call: &Reservation, begin: impl Fn(&mut Batch)) -> Result<Admission, Error> {
        let mut wakeups = self.run.wakeups();
        let (mut first, mut blocked) = (true, None::<Box<BudgetExceeded>>);
        let mut deadline = self.wait_deadline();
        loop {
            if blocked.is_some() {
                // If it was paused meanwhile, a free budget alone does not resume it, and its wait starts over.
                if self.wait_out_pause().await? {
                    deadline = self.wait_deadline();
                }
                if self.cancel().is_cancelled() {
                    self.end_wait(true).await?;
                    return Ok(Admission::Stopped);
                }
            }
            // Subscribe before trying, or a signal in between would be missed.
            let mut freed = self.inner.spending.ended_calls();
            let mut batch = self.batch();
            batch.reserve(call);
            if blocked.is_some() {
                self.show_unblocked(&mut batch);
            }
            begin(&mut batch);
            let committed = self.commit(batch).await?;
            if std::mem::take(&mut first) {
                // The end of the previous step was part of this commit.
                self.inner.spending.call_ended();
            }
            let Some(shortage) = committed.budget_exceeded else { return Ok(Admission::Admitted) };
            let same = blocked.as_ref().is_some_and(|b| (&b.session, b.bound) == (&shortage.session, shortage.bound));
            if !same && deadline > Instant::now() {
                self.show_blocked(&shortage, deadline).await?;
                blocked = Some(shortage.clone());
            }
            tokio::select! {
                biased;
                () = self.cancel().cancelled() => {
                    self.end_wait(blocked.is_some()).await?;
                    return Ok(Admission::Stopped);
                }
                () = tokio::time::sleep_until(deadline) => {
                    self.end_wait(blocked.is_some()).await?;
                    let session = &shortage.session;
                    let text = format!("{shortage}. Raise the budget of {session} and send the message again");
                    return Ok(Admission::Expired(MessageError::limit(shortage.bound, text)));
                }
                _ = wakeups.changed() => {}
                _ = freed.changed() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// When the turn stops waiting for its budget.
    fn wait_deadline(&self) -> Instant {
        Instant::now() + self.instance.limits.budget_wait.min(LONGEST_WAIT)
    }

    /// Shows that the turn is waiting.
    async fn show_blocked(&self, shortage: &BudgetExceeded, deadline: Instant) -> Result<(), StoreError> {
        let message = shortage.to_string();
        let blocked = Blocked { bound: shortage.bound, session_id: shortage.session.clone(), message: message.clone() };
        let left = i64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(i64::MAX);
        let (session_id, next) = (self.session_id.clone(), api::now().saturating_add(left));
        let mut batch = self.batch();
        batch.block(&session_id, &blocked);
        let status = SessionStatus::Retry { attempt: 0, message, action: None, next };
        batch.event(EventBody::SessionStatus { session_id: session_id.clone(), status });
        batch.event(EventBody::SessionTree { session_id, state: TreeState::Blocked, blocked: Some(blocked) });
        self.commit(batch).await.map(drop)
    }

    /// Shows that the turn no longer waits.
    fn show_unblocked(&self, batch: &mut Batch) {
        let session_id = self.session_id.clone();
        batch.unblock(&session_id);
        batch.event(EventBody::SessionTree { session_id, state: TreeState::Running, blocked: None });
    }

    async fn end_wait(&self, blocked: bool) -> Result<(), StoreError> {
        if !blocked {
            return Ok(());
        }
        let mut batch = self.batch();
        self.show_unblocked(&mut batch);
        batch.event(EventBody::SessionStatus { session_id: self.session_id.clone(), status: SessionStatus::Busy });
        self.commit(batch).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_budget_is_refused() {
        let zero = [
            Budget { cost: Some(api::Usd(0.0)), ..Budget::default() },
            Budget { cost: Some(api::Usd(-1.0)), ..Budget::default() },
            Budget { cost: Some(api::Usd(f64::NAN)), ..Budget::default() },
            Budget { cost: Some(api::Usd(f64::INFINITY)), ..Budget::default() },
            Budget { tokens: Some(0), ..Budget::default() },
            Budget { steps: Some(0), ..Budget::default() },
            Budget { seconds: Some(0), ..Budget::default() },
        ];
        for budget in zero {
            assert!(check(&budget).is_err(), "{budget:?}");
        }
        assert!(check(&Budget::default()).is_ok());
        assert!(check(&Budget { cost: Some(api::Usd(0.01)), seconds: Some(1), ..Budget::default() }).is_ok());
    }
}
