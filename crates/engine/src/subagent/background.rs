//! Background tasks: the caller continues, and the result arrives as a message.
//!
//! The process that runs the caller follows the child. The report is one durable commit that inserts the message, adds
//! it to the caller's inbox and removes the task link, so it arrives exactly once, even after a crash. It wakes an idle
//! caller; a working one takes it in at its next step.

use std::sync::Arc;
use std::time::Duration;

use api::{HostError, MessageId, Part, PartId, PromptInput, PromptPart, SessionId};
use futures::future::try_join_all;
use store::{Background, Batch, LinkedTask, StoreError, TaskLink};

use crate::error::store_error;
use crate::subagent::delegate::{ChildResources, TaskEnd, task_report};
use crate::turn::Turn;
use crate::turn::submit::SubmitOptions;
use crate::{Error, Inner};

/// How often to retry a change of a task link that conflicts with another change.
const CONFLICT_RETRIES: usize = 8;
/// How often a turn waiting for tasks polls, in case nobody wakes it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Inner {
    /// Sends the child of a call its prompt, unless it was sent already. Fails if the task link changed meanwhile.
    pub(crate) async fn send_task_prompt(
        self: &Arc<Self>,
        link: &TaskLink,
        traceparent: Option<String>,
    ) -> Result<(), HostError> {
        let Some(input) = &link.task.input else { return Ok(()) };
        if link.task.cancelled {
            return Err(HostError::Conflict("It was cancelled before it began".to_owned()));
        }
        let system =
            self.prepare_worktree(&link.task.child).await.map_err(HostError::from)?.map_err(HostError::Invalid)?;
        let input = PromptInput { traceparent, system, ..PromptInput::clone(input) };
        let started = LinkedTask { input: None, ..link.task.clone() };
        let careful = started.careful;
        let options = SubmitOptions { runs_later: true, careful, ..SubmitOptions::default() };
        self.submit_with(&started.child, input, options, |batch| batch.replace_task(link, &started)).await.map(drop)
    }

    /// Follows a background task until its report is delivered. Its call must have ended: until then it may still
    /// return the result itself.
    pub(crate) fn follow(self: &Arc<Self>, part: &PartId, resources: ChildResources) {
        if !self.subagents.begin_following(part) {
            return;
        }
        let (inner, part) = (self.clone(), part.clone());
        self.tasks.spawn(async move {
            let done = inner.tasks.until_closing(inner.follow_to_end(&part, resources)).await;
            inner.subagents.end_following(&part);
            if let Some(Err(error)) = done {
                tracing::warn!(%part, %error, "cannot report the end of a background task");
            }
        });
    }

    /// Follows all unfollowed background tasks of a session and everything below it, or of all sessions. Returns the
    /// child sessions.
    pub(crate) async fn follow_all(self: &Arc<Self>, only: Option<&SessionId>) -> Result<Vec<SessionId>, Error> {
        let mut followed = Vec::new();
        for link in self.store.background_tasks()? {
            let wanted = match only {
                Some(only) => self.is_within(&link.task.parent, only)?,
                None => true,
            };
            if wanted && self.is_unfollowed(&link)? && self.take_over_task(&link).await? {
                followed.push(link.task.child);
            }
        }
        Ok(followed)
    }

    /// Whether the call of a task has ended. An interrupted call runs again, and follows its child itself.
    pub(crate) fn call_has_ended(&self, link: &TaskLink) -> Result<bool, StoreError> {
        let part = self.store.part(&link.part)?;
        Ok(part.as_ref().and_then(Part::as_tool).is_none_or(|call| call.state.is_done()))
    }

    async fn follow_to_end(self: &Arc<Self>, part: &PartId, mut resources: ChildResources) -> Result<(), HostError> {
        let link = || self.store.task_link(part).map_err(store_error);
        let Some(TaskLink { task, .. }) = link()? else { return Ok(()) };
        let (session, child) = (&task.parent, &task.child);
        if resources.slot.is_none() {
            let Some(caller) = self.store.session(session).map_err(store_error)? else {
                return self.deliver_report(part, &TaskEnd::Cancelled, false).await;
            };
            let max_concurrent = self.instance(caller.directory.as_ref()).limits.max_concurrent;
            // The semaphore is never closed.
            resources.slot = self.subagents.slots(session, max_concurrent).acquire_owned().await.ok();
        }
        if resources.shared.is_none() {
            resources.shared = self.share_environment(session, child);
        }
        // It may have been cancelled while waiting.
        let Some(waiting) = link()? else { return Ok(()) };
        let mut retry = self.write_retry(None);
        let sent = loop {
            let sent = self.send_task_prompt(&waiting, None).await;
            if !retry.should_retry(&sent).await {
                break sent;
            }
        };
        if let Err(error) = sent
            && link()?.is_some_and(|link| link.task.input.is_some())
        {
            return self.deliver_report(part, &TaskEnd::Failed(error.to_string()), true).await;
        }
        let answer = self.await_answer(child, &task.prompt).await;
        if self.turns.is_parking() {
            // The child resumes at the next start, and so does its follower.
            return Ok(());
        }
        if answer.is_err() {
            // It failed, and must not resume when nobody expects it any more.
            self.stop_unwanted(child).await?;
        }
        let (end, _) = self.add_worktree_report(child, TaskEnd::of(answer)).await;
        let mut retry = self.write_retry(None);
        loop {
            let done = self.deliver_report(part, &end, true).await;
            if !retry.should_retry(&done).await {
                return done;
            }
        }
    }

    /// Reports the end of a background task to its caller. `wake`: whether the caller should act on it now.
    pub(crate) async fn deliver_report(
        self: &Arc<Self>,
        part: &PartId,
        end: &TaskEnd,
        wake: bool,
    ) -> Result<(), HostError> {
        for _ in 0..CONFLICT_RETRIES {
            let Some(link) = self.store.task_link(part).map_err(store_error)? else { return Ok(()) };
            if link.task.background.is_none() {
                return Ok(());
            }
            let session = &link.task.parent;
            let Some(caller) = self.store.session(session).map_err(store_error)? else {
                let mut batch = Batch::new(&store::Location::new("", "")).durable();
                batch.remove_task(&link);
                return self.store.commit(batch).await.map(drop).map_err(store_error);
            };
            let text = report_text(&link.task, end);
            let part =
                PromptPart::Text { id: None, text, synthetic: Some(true), ignored: None, time: None, metadata: None };
            let input = PromptInput { parts: vec![part], no_reply: !wake, ..PromptInput::default() };
            let options = SubmitOptions { careful: link.task.careful, ..SubmitOptions::default() };
            match self.submit_with(&caller.id, input, options, |batch| batch.remove_task(&link)).await {
                // The task link changed at the same moment.
                Err(HostError::Conflict(_)) => {}
                done => return done.map(drop),
            }
        }
        Err(HostError::Conflict(format!("The task of {part} keeps being changed by others")))
    }

    /// Cancels the background tasks of sessions that are being stopped. The reports appear in their conversations but
    /// do not wake them. Returns the children, which may still be working.
    pub(crate) async fn cancel_background(
        self: &Arc<Self>,
        of: impl Fn(&SessionId) -> bool,
    ) -> Result<Vec<SessionId>, HostError> {
        let mut links = self.store.background_tasks().map_err(store_error)?;
        links.retain(|link| of(&link.task.parent));
        try_join_all(links.iter().map(|link| self.deliver_report(&link.part, &TaskEnd::Cancelled, false))).await?;
        Ok(links.into_iter().map(|link| link.task.child).collect())
    }

    /// Cancels the background tasks of a session, and waits until none of them works.
    pub(crate) async fn stop_background(self: &Arc<Self>, session: &SessionId) -> Result<(), HostError> {
        let children = self.cancel_background(|id| id == session).await?;
        try_join_all(children.iter().map(|child| self.stop_unwanted(child))).await.map(drop)
    }

    /// Stops waiting for tasks, or waits for those in the background. The id of a child means only that child, unless
    /// it has tasks of its own. Returns false if nothing changed.
    pub(crate) async fn set_background(self: &Arc<Self>, id: &SessionId, away: bool) -> Result<bool, HostError> {
        let place = self.place(&self.session(id)?);
        let awaited = |link: &TaskLink| link.task.background.as_ref().is_some_and(|background| background.awaited);
        let is_meant = |link: &TaskLink| awaited(link) == away || away && link.task.background.is_none();
        let mut links = self.store.tasks_of(id).map_err(store_error)?;
        links.retain(is_meant);
        if links.is_empty() {
            links = self.store.tasks_for(id).map_err(store_error)?;
            links.retain(is_meant);
        }
        let mut moved = false;
        for link in links {
            // The process that runs the caller follows the task once the call has ended.
            let runs = self.store.lease_holder(&link.task.parent).map_err(store_error)?.map(|holder| holder.owner);
            let follower = link.task.background.as_ref().and_then(|background| background.follower.clone()).or(runs);
            let background = Background { awaited: !away, follower };
            let mut batch = Batch::new(&place).durable();
            batch.replace_task(&link, &LinkedTask { background: Some(background), ..link.task.clone() });
            match self.store.commit(batch).await {
                Ok(_) => {}
                // The task has just ended.
                Err(StoreError::Changed { .. }) => continue,
                Err(error) => return Err(store_error(error)),
            }
            moved = true;
            if away {
                self.wake_turn(&link.task.parent).await.map_err(store_error)?;
            } else {
                self.start(&link.task.parent);
            }
        }
        Ok(moved)
    }
}

impl Turn {
    /// Waits for the background tasks that must finish before the turn ends. Returns true if there may be work now.
    /// `known` are the prompts the turn has seen.
    pub(crate) async fn await_background(&self, known: &[MessageId]) -> Result<bool, Error> {
        let (mut wakeups, mut waited) = (self.run.wakeups(), false);
        loop {
            if self.cancel().is_cancelled() {
                return if self.run.is_parked() { Err(Error::Parked) } else { Ok(false) };
            }
            let links = self.store().background_tasks_of(&self.session_id)?;
            if links.is_empty() || !self.must_wait_for(&links)? {
                return Ok(waited);
            }
            if self.inbox()?.iter().any(|row| !known.contains(&row.message_id)) {
                return Ok(true);
            }
            if !std::mem::replace(&mut waited, true) {
                self.begin_without_prompt().await?;
            }
            for link in &links {
                if self.inner.is_unfollowed(link)? {
                    self.inner.take_over_task(link).await?;
                }
            }
            tokio::select! {
                () = self.cancel().cancelled() => {}
                _ = wakeups.changed() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Whether the turn must wait for one of these tasks: because it was told to, or because it is a subagent's turn,
    /// whose answer is read before the reports would arrive.
    fn must_wait_for(&self, links: &[TaskLink]) -> Result<bool, StoreError> {
        if links.iter().any(|link| link.task.background.as_ref().is_some_and(|background| background.awaited)) {
            return Ok(true);
        }
        Ok(self.store().session(&self.session_id)?.is_some_and(|session| session.parent_id.is_some()))
    }
}

/// The report as the caller's model reads it.
fn report_text(task: &LinkedTask, end: &TaskEnd) -> String {
    let (state, what, tag, text) = match end {
        TaskEnd::Done(text) => ("completed", "completed", "task_result", text.as_str()),
        TaskEnd::Failed(why) => ("error", "failed", "task_error", why.as_str()),
        TaskEnd::Cancelled => ("cancelled", "cancelled", "task_error", "The task was stopped before it had finished."),
    };
    let summary = format!("Background task {what}: {}", task.title);
    task_report(&task.child, state, Some(&summary), tag, text)
}
