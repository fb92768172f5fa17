//! Control over a running tree: steering, pausing, and stopping a session with everything below it.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Caller, CancelResult, EventBody, HostError, Json, MessageId, PromptInput, PromptPart, Session, SessionId,
    SteerInput, TreeState,
};
use futures::future::join_all;
use serde_json::json;
use store::{Batch, LinkedTask, Store, StoreError, TaskLink};

use crate::error::store_error;
use crate::subagent::delegate::TaskEnd;
use crate::turn::Turn;
use crate::{Engine, Error, Inner};

/// The maximum depth of a session tree that is walked.
const DEPTH_MAX: usize = 100;
/// How often a paused turn polls, in case nobody wakes it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often to retry a change of a task link that conflicts with another change.
const CONFLICT_RETRIES: usize = 8;

impl Engine {
    /// Whether a session is `ancestor` or below it.
    pub fn is_within(&self, session: &SessionId, ancestor: &SessionId) -> Result<bool, HostError> {
        self.inner.is_within(session, ancestor).map_err(store_error)
    }
}

impl Inner {
    /// A session and its ancestors, from the root down.
    pub(crate) fn lineage(&self, session: &SessionId) -> Result<Vec<Session>, StoreError> {
        lineage(&self.store, session)
    }

    /// Whether a session is `ancestor` or below it.
    pub(crate) fn is_within(&self, session: &SessionId, ancestor: &SessionId) -> Result<bool, StoreError> {
        Ok(session == ancestor || self.lineage(session)?.iter().any(|above| above.id == *ancestor))
    }

    /// The path from the root to a subagent, shown with its asks. `None` for a root.
    pub(crate) fn subagent_path(&self, session: &SessionId) -> Result<Option<Json>, StoreError> {
        let line = self.lineage(session)?;
        let [root, _, ..] = &line[..] else { return Ok(None) };
        let step = |session: &Session| json!({ "sessionID": session.id, "agent": session.agent });
        Ok(Some(json!({ "rootID": root.id, "path": line.iter().map(step).collect::<Vec<_>>() })))
    }

    /// Whether a turn of a session is running, here or in another process.
    pub(crate) fn is_running(&self, session: &SessionId) -> Result<bool, StoreError> {
        Ok(self.turns.is_running(session) || self.store.lease_holder(session)?.is_some_and(|holder| holder.alive))
    }

    /// Sends a message to the running turn. If the turn ends at the same moment, the message begins the next one.
    pub(crate) async fn steer(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        input: SteerInput,
    ) -> Result<MessageId, HostError> {
        self.session(id)?;
        let mut parts = input.parts;
        parts.extend(input.text.map(PromptPart::text));
        if parts.is_empty() {
            return Err(HostError::Invalid("A message needs text or parts".to_owned()));
        }
        if !self.is_running(id).map_err(store_error)? {
            return Err(HostError::Conflict(format!("No turn runs in {id}; send a prompt instead")));
        }
        Ok(self.submit(caller, id, PromptInput { parts, ..PromptInput::default() }).await?.message)
    }

    /// Pauses a session and everything below it before their next step, or resumes them. Returns false if nothing
    /// changed.
    pub(crate) async fn pause(self: &Arc<Self>, id: &SessionId, paused: bool) -> Result<bool, HostError> {
        let session = self.session(id)?;
        if self.store.is_paused(id).map_err(store_error)? == paused {
            return Ok(false);
        }
        let blocked = self.blocked(id).map_err(store_error)?.filter(|_| !paused);
        let state = match &blocked {
            _ if paused => TreeState::Paused,
            Some(_) => TreeState::Blocked,
            None if self.is_running(id).map_err(store_error)? => TreeState::Running,
            None => TreeState::Idle,
        };
        let mut batch = Batch::new(&self.place(&session)).durable();
        if paused {
            batch.pause(id, api::now());
        } else {
            batch.resume(id);
        }
        batch.event(EventBody::SessionTree { session_id: id.clone(), state, blocked });
        match self.store.commit(batch).await {
            Ok(_) => {}
            // Another caller did the same at the same moment.
            Err(StoreError::Changed { .. }) => return Ok(false),
            Err(error) => return Err(store_error(error)),
        }
        if !paused {
            for session in self.store.subtree(&session.id).map_err(store_error)? {
                self.wake_turn(&session.id).await.map_err(store_error)?;
            }
        }
        Ok(true)
    }

    /// Stops a session and everything below it.
    pub(crate) async fn cancel(self: &Arc<Self>, id: &SessionId) -> Result<CancelResult, HostError> {
        self.session(id)?;
        Ok(CancelResult { sessions: self.stop_tree(id).await? })
    }

    /// Stops a session and everything below it, and cancels its queued turns. Returns those that were running or about
    /// to start. Afterwards none of them runs or is paused.
    pub(crate) async fn stop_tree(self: &Arc<Self>, top: &SessionId) -> Result<Vec<SessionId>, HostError> {
        let queued = self.store.queued_turns(top).map_err(store_error)?;
        for turn in &queued {
            self.cancel_queued(turn).await?;
        }
        let mut stopped = self.stop_running_tree(top).await?;
        if !queued.is_empty() && !stopped.contains(top) {
            stopped.push(top.clone());
        }
        Ok(stopped)
    }

    /// Stops the turn that runs in a session and everything below it. Queued turns follow. Returns the sessions that
    /// were running or about to start.
    pub(crate) async fn stop_running_tree(self: &Arc<Self>, top: &SessionId) -> Result<Vec<SessionId>, HostError> {
        self.can_be_stopped(top)?;
        let tree = self.store.subtree(top).map_err(store_error)?;
        // First of all, or the end of a child would wake its caller. If this fails, the turns are still aborted.
        let cancelled = self.cancel_background(|id| tree.iter().any(|session| session.id == *id)).await;
        // Abort a parent before its children, or it would continue with the news that one was stopped. It stops any
        // child it starts after this check itself, before it ends.
        let aborted: Vec<bool> = tree.iter().map(|session| self.turns.abort(&session.id).is_some()).collect();
        cancelled?;
        let cancelled_start = self.cancel_unstarted(top).await?;
        let stopped = join_all(tree.iter().map(|session| self.stop_unwanted(&session.id))).await;
        let mut sessions = Vec::new();
        for ((session, stopped), aborted) in tree.iter().zip(stopped).zip(aborted) {
            // A turn that was aborted above may have ended since.
            if stopped? || aborted || cancelled_start && session.id == *top {
                sessions.push(session.id.clone());
            }
        }
        for paused in self.store.paused_within(top).map_err(store_error)? {
            self.pause(&paused, false).await?;
        }
        Ok(sessions)
    }

    /// Stops a session whose work is no longer wanted. Returns false if it had none. A prompt without a turn is aborted
    /// as well, so that it does not wait forever.
    pub(crate) async fn stop_unwanted(self: &Arc<Self>, session: &SessionId) -> Result<bool, HostError> {
        let elsewhere = self.store.lease_holder(session).map_err(store_error)?.is_some_and(|h| h.alive && !h.own);
        if !elsewhere && !self.store.inbox(session).map_err(store_error)?.is_empty() {
            self.start(session);
        }
        self.stop(session).await
    }

    /// Cancels the task of a child that has not started, because it waits for a slot or its caller is paused. Returns
    /// true if there was one.
    async fn cancel_unstarted(self: &Arc<Self>, child: &SessionId) -> Result<bool, HostError> {
        for _ in 0..CONFLICT_RETRIES {
            let links = self.store.tasks_for(child).map_err(store_error)?;
            let is_unstarted = |link: &&TaskLink| link.task.input.is_some();
            let Some(link) = links.iter().find(is_unstarted).filter(|link| !link.task.cancelled) else {
                return Ok(false);
            };
            if link.task.background.is_some() {
                self.deliver_report(&link.part, &TaskEnd::Cancelled, true).await?;
                return Ok(true);
            }
            let mut batch = Batch::new(&self.place(&self.session(&link.task.parent)?)).durable();
            batch.replace_task(link, &LinkedTask { cancelled: true, ..link.task.clone() });
            match self.store.commit(batch).await {
                Ok(_) => {
                    self.wake_turn(&link.task.parent).await.map_err(store_error)?;
                    return Ok(true);
                }
                // It has just started or moved to the background.
                Err(StoreError::Changed { .. }) => {}
                Err(error) => return Err(store_error(error)),
            }
        }
        Ok(false)
    }
}

impl Turn {
    /// Waits while the session or an ancestor is paused. Returns true if it had to wait.
    pub(crate) async fn wait_out_pause(&self) -> Result<bool, Error> {
        let (mut wakeups, mut paused) = (self.run.wakeups(), false);
        while !self.cancel().is_cancelled() && self.store().is_lineage_paused(&self.session_id)? {
            paused = true;
            self.flush().await?;
            tokio::select! {
                () = self.cancel().cancelled() => {}
                _ = wakeups.changed() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        Ok(paused)
    }
}

pub(crate) fn lineage(store: &Store, session: &SessionId) -> Result<Vec<Session>, StoreError> {
    let mut line = Vec::new();
    let mut next = Some(session.clone());
    while let Some(id) = next.take().filter(|_| line.len() < DEPTH_MAX) {
        let Some(session) = store.session(&id)? else { break };
        next.clone_from(&session.parent_id);
        line.push(session);
    }
    line.reverse();
    Ok(line)
}
