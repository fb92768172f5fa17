//! Tasks in the background: the caller goes on, and the end of the task comes to it as a message.
//!
//! Whoever runs the caller follows the child. The report is one durable commit that inserts the message, puts it into the
//! caller's inbox and removes the bond, so it comes once, whatever crashes. An idle caller is woken by it, one at work takes
//! it in at its next step.

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{HostError, MessageId, Part, PartId, PromptInput, PromptPart, SessionId, SessionStatus};
use futures::future::try_join_all;
use store::{Batch, StoreError};
use tokio::sync::Semaphore;

use crate::error::stored;
use crate::subagent::delegate::{Ending, Held, report};
use crate::subagent::task_link::{Background, Bond, Bound};
use crate::turn::Turn;
use crate::{Error, Inner, lock};

/// How often a change of a bond is tried that somebody else is changing.
const TRIES: usize = 8;
/// A turn that waits for tasks looks at the rows this often, in case nobody told it.
const LOOK: Duration = Duration::from_secs(1);

impl Inner {
    /// What lets so many children of a session work at once, in the background or not.
    pub(crate) fn slots(&self, session: &SessionId, at_once: usize) -> Arc<Semaphore> {
        let mut slots = lock(&self.slots);
        if let Some(known) = slots.get(session).and_then(Weak::upgrade) {
            return known;
        }
        slots.retain(|_, slots| slots.strong_count() > 0);
        let fresh = Arc::new(Semaphore::new(at_once));
        slots.insert(session.clone(), Arc::downgrade(&fresh));
        fresh
    }

    /// Sends the child of a call its prompt, if that was not done. Refused if the bond was changed meanwhile.
    pub(crate) async fn send(self: &Arc<Self>, bond: &Bond, traceparent: Option<String>) -> Result<(), HostError> {
        let Some(input) = &bond.bound.input else { return Ok(()) };
        if bond.bound.cancelled {
            return Err(HostError::Conflict("It was cancelled before it began".to_owned()));
        }
        let system = self.enter(&bond.bound.child).await.map_err(HostError::from)?.map_err(HostError::Invalid)?;
        let input = PromptInput { traceparent, system, ..PromptInput::clone(input) };
        let begun = Bound { input: None, ..bond.bound.clone() };
        let careful = begun.careful;
        self.submit_with(&begun.child, input, false, careful, |batch| bond.replace(batch, &begun)).await.map(drop)
    }

    /// Sees a task in the background through to its report, unless that is done already. Its call must have ended: until
    /// then it may still give the result itself.
    pub(crate) fn follow(self: &Arc<Self>, part: &PartId, held: Held) {
        if !lock(&self.background).insert(part.clone()) {
            return;
        }
        let (inner, part) = (self.clone(), part.clone());
        self.tasks.spawn(async move {
            let done = inner.closing.run_until_cancelled(inner.see_through(&part, held)).await;
            lock(&inner.background).remove(&part);
            if let Some(Err(error)) = done {
                tracing::warn!(%part, %error, "a task in the background was not reported");
            }
        });
    }

    /// Follows the tasks in the background that nobody follows: of a session and all below it, or all. Gives their sessions.
    pub(crate) async fn follow_all(self: &Arc<Self>, only: Option<&SessionId>) -> Result<Vec<SessionId>, Error> {
        let mut followed = Vec::new();
        for bond in Bond::background(&self.store)? {
            let wanted = match only {
                Some(only) => self.is_within(&bond.bound.session, only)?,
                None => true,
            };
            if wanted && self.is_unfollowed(&bond)? && self.take_up(&bond).await? {
                followed.push(bond.bound.child);
            }
        }
        Ok(followed)
    }

    /// Whether the call of a task has ended. One that was cut off is run again, and follows its child itself.
    pub(crate) fn was_left(&self, bond: &Bond) -> Result<bool, StoreError> {
        let part = self.store.part(&bond.part)?;
        Ok(part.as_ref().and_then(Part::as_tool).is_none_or(|call| call.state.is_done()))
    }

    async fn see_through(self: &Arc<Self>, part: &PartId, mut held: Held) -> Result<(), HostError> {
        let bond = || Bond::of_call(&self.store, part).map_err(stored);
        let Some(Bond { bound, .. }) = bond()? else { return Ok(()) };
        let (session, child) = (&bound.session, &bound.child);
        if held.slot.is_none() {
            let Some(caller) = self.store.session(session).map_err(stored)? else {
                return self.deliver(part, &Ending::Cancelled, false).await;
            };
            let at_once = self.instance(caller.directory.as_ref()).limits.at_once;
            // It is never closed.
            held.slot = self.slots(session, at_once).acquire_owned().await.ok();
        }
        if held.shared.is_none() {
            held.shared = self.share_environment(session, child);
        }
        // It may have been cancelled while it waited.
        let Some(waiting) = bond()? else { return Ok(()) };
        let mut patience = self.patience(None);
        let sent = loop {
            let sent = self.send(&waiting, None).await;
            if !patience.lasts(&sent).await {
                break sent;
            }
        };
        if let Err(error) = sent
            && bond()?.is_some_and(|bond| bond.bound.input.is_some())
        {
            return self.deliver(part, &Ending::Failed(error.to_string()), true).await;
        }
        let answer = self.answered(child, &bound.prompt).await;
        if self.runs.is_parking() {
            // The child goes on at the next start, and so does whoever follows it.
            return Ok(());
        }
        if answer.is_err() {
            // It broke down: it must not go on when nobody expects it any more.
            self.call_off(child).await?;
        }
        let (ending, _) = self.with_worktree(child, Ending::of(answer)).await;
        let mut patience = self.patience(None);
        loop {
            let done = self.deliver(part, &ending, true).await;
            if !patience.lasts(&done).await {
                return done;
            }
        }
    }

    /// Tells the caller how a task in the background has ended; `wake`: the caller shall do something about it now.
    pub(crate) async fn deliver(self: &Arc<Self>, part: &PartId, ending: &Ending, wake: bool) -> Result<(), HostError> {
        for _ in 0..TRIES {
            let Some(bond) = Bond::of_call(&self.store, part).map_err(stored)? else { return Ok(()) };
            if bond.bound.background.is_none() {
                return Ok(());
            }
            let session = &bond.bound.session;
            let Some(caller) = self.store.session(session).map_err(stored)? else {
                let mut batch = Batch::new(&store::Place::new("", "")).durable();
                bond.remove(&mut batch);
                return self.store.commit(batch).await.map(drop).map_err(stored);
            };
            let text = tell(&bond.bound, ending);
            let part =
                PromptPart::Text { id: None, text, synthetic: Some(true), ignored: None, time: None, metadata: None };
            let input = PromptInput { parts: vec![part], no_reply: !wake, ..PromptInput::default() };
            let careful = bond.bound.careful;
            match self.submit_with(&caller.id, input, wake, careful, |batch| bond.remove(batch)).await {
                // Somebody changed the bond at this moment.
                Err(HostError::Conflict(_)) => {}
                done => return done.map(drop),
            }
        }
        Err(HostError::Conflict(format!("The task of {part} is being changed by others all the time")))
    }

    /// Ends what sessions have left in the background, for they are stopped themselves. The reports stand in their
    /// conversations, but do not wake them. Gives the children, which may still work.
    pub(crate) async fn forget_background(
        self: &Arc<Self>,
        of: impl Fn(&SessionId) -> bool,
    ) -> Result<Vec<SessionId>, HostError> {
        let mut bonds = Bond::background(&self.store).map_err(stored)?;
        bonds.retain(|bond| of(&bond.bound.session));
        try_join_all(bonds.iter().map(|bond| self.deliver(&bond.part, &Ending::Cancelled, false))).await?;
        Ok(bonds.into_iter().map(|bond| bond.bound.child).collect())
    }

    /// Ends what a session has left in the background, and waits until nothing of it works.
    pub(crate) async fn end_background(self: &Arc<Self>, session: &SessionId) -> Result<(), HostError> {
        let children = self.forget_background(|id| id == session).await?;
        try_join_all(children.iter().map(|child| self.call_off(child))).await.map(drop)
    }

    /// Lets a session go on without waiting for its tasks, or has it wait for those in the background. The id of a child
    /// means this one alone, unless it has tasks of its own. False if there was nothing to change.
    pub(crate) async fn move_tasks(self: &Arc<Self>, id: &SessionId, away: bool) -> Result<bool, HostError> {
        let place = self.place(&self.session(id)?);
        let awaited = |bond: &Bond| bond.bound.background.as_ref().is_some_and(|task| task.awaited);
        let mut bonds = Bond::background(&self.store).map_err(stored)?;
        bonds.retain(|bond| awaited(bond) == away);
        if away {
            bonds.extend(Bond::waiting(&self.store).map_err(stored)?);
        }
        let own = bonds.iter().any(|bond| bond.bound.session == *id);
        bonds.retain(|bond| if own { bond.bound.session == *id } else { bond.bound.child == *id });
        let mut moved = false;
        for bond in bonds {
            // Whoever runs the caller follows it once the call has ended.
            let runs = self.store.holder(&bond.bound.session).map_err(stored)?.map(|holder| holder.owner);
            let follower = bond.bound.background.as_ref().and_then(|task| task.follower.clone()).or(runs);
            let background = Background { awaited: !away, follower };
            let mut batch = Batch::new(&place).durable();
            bond.replace(&mut batch, &Bound { background: Some(background), ..bond.bound.clone() });
            match self.store.commit(batch).await {
                Ok(_) => {}
                // It has just ended.
                Err(StoreError::Conflict { .. }) => continue,
                Err(error) => return Err(stored(error)),
            }
            moved = true;
            if away {
                self.nudge(&bond.bound.session).await.map_err(stored)?;
            } else {
                self.start(&bond.bound.session);
            }
        }
        Ok(moved)
    }
}

impl Turn {
    /// Waits for the tasks in the background without which the turn must not end; true if there may be something to do
    /// now. `known`: the prompts that the turn has seen.
    pub(crate) async fn await_background(&self, known: &[MessageId]) -> Result<bool, Error> {
        let (mut news, mut waited) = (self.run.news(), false);
        loop {
            if self.cancel().is_cancelled() {
                return if self.run.is_parked() { Err(Error::Parked) } else { Ok(false) };
            }
            let mut bonds = Bond::background(self.store())?;
            bonds.retain(|bond| bond.bound.session == self.session_id);
            if bonds.is_empty() || !self.is_held_by(&bonds)? {
                return Ok(waited);
            }
            if self.store().inbox(&self.session_id)?.iter().any(|row| !known.contains(&row.message_id)) {
                return Ok(true);
            }
            if !std::mem::replace(&mut waited, true) {
                self.status(SessionStatus::Busy).await?;
            }
            for bond in &bonds {
                if self.inner.is_unfollowed(bond)? {
                    self.inner.take_up(bond).await?;
                }
            }
            tokio::select! {
                () = self.cancel().cancelled() => {}
                _ = news.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Whether the turn waits for one of these tasks: it was told to, or it is a subagent's, whose answer somebody else
    /// reads before the reports would come.
    fn is_held_by(&self, bonds: &[Bond]) -> Result<bool, StoreError> {
        if bonds.iter().any(|bond| bond.bound.background.as_ref().is_some_and(|task| task.awaited)) {
            return Ok(true);
        }
        Ok(self.store().session(&self.session_id)?.is_some_and(|session| session.parent_id.is_some()))
    }
}

/// The report as the caller's model reads it.
fn tell(bound: &Bound, ending: &Ending) -> String {
    let (state, what, tag, text) = match ending {
        Ending::Done(text) => ("completed", "completed", "task_result", text.as_str()),
        Ending::Failed(why) => ("error", "failed", "task_error", why.as_str()),
        Ending::Cancelled => ("cancelled", "cancelled", "task_error", "The task was stopped before it had ended."),
    };
    let summary = format!("Background task {what}: {}", bound.title);
    report(&bound.child, state, Some(&summary), tag, text)
}
