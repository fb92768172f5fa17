//! A turn of the task, at the agent runtime or of the script.

use std::time::Duration;

use api::{HostError, SessionId, TurnId};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::{Runner, mark};
use crate::event::TaskEvent;
use crate::model::TaskState;
use crate::service::driver::{self, Answered};
use crate::service::hub::{Mail, Subscription};
use crate::service::live::{Command, MAX_UNLOGGED};
use crate::service::metrics::AbortOutcome;
use crate::service::script::{self, Step};
use crate::service::translate::Outcome;

/// How long to wait for the events before the answer. After that they are read.
const EVENTS_WAIT: Duration = Duration::from_millis(300);

/// How a turn left the task.
pub(super) enum TurnEnd {
    /// It has an answer.
    Answered(Box<Answered>),
    /// The task has ended, or the service stops.
    Gone,
}

impl TurnEnd {
    fn failed(error: &HostError) -> Self {
        Self::Answered(Box::new(Answered { answer: None, outcome: Outcome::of_host_error(error) }))
    }
}

type Running = AbortOnDropHandle<Answered>;

impl Runner {
    /// Sends the prompt, and tells what happens until there is an answer.
    pub(super) async fn turn(&mut self, session: &SessionId) -> TurnEnd {
        let inner = self.inner.clone();
        // Before the prompt goes out, so that nothing is missed.
        if let Err(error) = inner.hub.open(&self.row.directory).await {
            return TurnEnd::failed(&error);
        }
        let mut subscription = inner.hub.subscribe(session);
        if self.is_resumed {
            self.reread(&subscription).await;
            self.give_again().await;
        } else if self.has_past {
            self.adopt_subagents(&subscription).await;
        }
        let (named, mut name) = oneshot::channel();
        let job = driver::Job {
            host: inner.host.clone(),
            scope: self.row.scope(),
            session: session.clone(),
            prompt: self.work.prompt.clone(),
            resumed: std::mem::take(&mut self.is_resumed),
        };
        let mut job: Running = AbortOnDropHandle::new(tokio::spawn(job.run(named)));
        let mut is_named = false;
        loop {
            let (flush_at, decline_at) = (self.flush_at, self.decline_at());
            tokio::select! {
                biased;
                () = inner.closing.cancelled() => return TurnEnd::Gone,
                turn = &mut name, if !is_named => {
                    is_named = true;
                    if let Ok(turn) = turn {
                        self.note_turn(turn).await;
                    }
                }
                Some(command) = self.commands.recv() => match command {
                    Command::Cancel(done) => {
                        self.cancel(session, &mut name, is_named, job).await;
                        let _ = done.send(());
                        return TurnEnd::Gone;
                    }
                    Command::Message(message, done) => {
                        let _ = done.send(self.follow_up(session, *message).await);
                    }
                },
                // What cannot be logged waits, in a mailbox that is bounded.
                mail = subscription.next(), if self.unlogged.len() < MAX_UNLOGGED => {
                    self.take_mail(mail, &mut subscription).await;
                    if self.unlogged.len() >= MAX_UNLOGGED {
                        self.flush().await;
                    }
                }
                answered = &mut job => {
                    let answered = answered.unwrap_or_else(|error| lost(&error));
                    return self.settle(answered, &mut subscription).await;
                }
                () = sleep_until(flush_at.unwrap_or_else(Instant::now)), if flush_at.is_some() => self.flush().await,
                () = sleep_until(decline_at.unwrap_or_else(Instant::now)), if decline_at.is_some() => {
                    self.decline_expired().await;
                }
            }
        }
    }

    /// Remembers the name of the turn: a cancelled one has to be found again after a crash.
    async fn note_turn(&mut self, turn: TurnId) {
        self.row.turn = Some(turn);
        self.is_row_behind = true;
        self.flush_at.get_or_insert_with(|| Instant::now() + super::log::FLUSH_AFTER);
        self.confirm_session().await;
    }

    /// The agent runtime has taken the prompt, so the session belongs to who sent it.
    async fn confirm_session(&mut self) {
        if let Some(grant) = self.grant.take()
            && let Err(error) = grant.confirm().await
        {
            tracing::warn!(%error, task = %self.row.id, "cannot confirm the owner of its session");
        }
    }

    /// Tells what came before the answer.
    async fn settle(&mut self, answered: Answered, subscription: &mut Subscription) -> TurnEnd {
        if self.inner.closing.is_cancelled() && answered.answer.is_none() {
            // It is no failure that the runtime stops, too.
            return TurnEnd::Gone;
        }
        if let Some(answer) = &answered.answer {
            self.confirm_session().await;
            let id = answer.info.id();
            let deadline = Instant::now() + EVENTS_WAIT;
            while !self.translator.has_completed(id) {
                match timeout_at(deadline, subscription.next()).await {
                    Ok(mail) => self.take_mail(mail, subscription).await,
                    Err(_) => {
                        self.take_mail(Mail::Gap, subscription).await;
                        break;
                    }
                }
            }
            if self.translator.take_behind() {
                self.reread(subscription).await;
            }
        }
        TurnEnd::Answered(Box::new(answered))
    }

    /// Stops the turn with its subagents, as far as there is time, and ends the task.
    async fn cancel(
        &mut self,
        session: &SessionId,
        name: &mut oneshot::Receiver<TurnId>,
        is_named: bool,
        job: Running,
    ) {
        let began = Instant::now();
        let limit = self.inner.settings.cancel_abort_timeout;
        let inner = self.inner.clone();
        if inner.host.features().turns && !is_named && self.row.turn.is_none() {
            // It is being accepted, and has a name in a moment.
            if let Ok(Ok(turn)) = timeout(limit, name).await {
                self.row.turn = Some(turn);
            }
        }
        let (session, turn) = (session.clone(), self.row.turn.clone());
        // On a task of its own, which goes on if the time is over.
        let stopping = inner.tracker.spawn({
            let inner = inner.clone();
            async move {
                let stop = driver::stop(&*inner.host, &session, turn.as_ref(), job);
                tokio::select! {
                    () = inner.closing.cancelled() => Err(HostError::Unavailable("The service stops".to_owned())),
                    stopped = timeout(driver::MAX_STOP, stop) => stopped.unwrap_or_else(|_| {
                        Err(HostError::Late("The turn does not stop".to_owned()))
                    }),
                }
            }
        });
        let outcome = match timeout(limit.saturating_sub(began.elapsed()), stopping).await {
            Ok(Ok(Ok(()))) => AbortOutcome::Success,
            Ok(Ok(Err(error))) => {
                tracing::warn!(%error, task = %self.row.id, "cannot stop the turn of a cancelled task");
                AbortOutcome::Error
            }
            Ok(Err(_)) => AbortOutcome::Error,
            Err(_) => AbortOutcome::Timeout,
        };
        self.end_canceled(outcome, began).await;
    }

    /// Plays the script of the agent for conformance kits.
    pub(super) async fn play(&mut self) -> TurnEnd {
        self.flush().await;
        let inner = self.inner.clone();
        let Some(message) = self.work.history.first() else { return TurnEnd::Gone };
        let has_asked = self.work.history.len() > 1 || self.live.state() == TaskState::InputRequired;
        let steps = script::steps(message);
        let after_ask = steps.iter().position(|step| matches!(step, Step::Ask(_)));
        let skip = if has_asked { after_ask.unwrap_or_default() } else { 0 };
        for step in steps.into_iter().skip(skip) {
            let until = match step {
                Step::Show(event) => {
                    self.publish(*event);
                    self.flush().await;
                    continue;
                }
                Step::End(outcome, text) => {
                    self.end_played(outcome, text).await;
                    return TurnEnd::Gone;
                }
                Step::Wait(wait) => Some(Instant::now() + wait),
                Step::Ask(_) if self.live.state() == TaskState::InputRequired => None,
                Step::Ask(text) => {
                    let status = self.status(TaskState::InputRequired, Some(text));
                    let event = TaskEvent::Status { status, metadata: api::JsonMap::new(), mark: Some(mark("status")) };
                    self.publish(event);
                    self.write(false).await;
                    None
                }
            };
            let far = Instant::now() + super::log::FLUSH_AFTER;
            loop {
                tokio::select! {
                    biased;
                    () = inner.closing.cancelled() => return TurnEnd::Gone,
                    Some(command) = self.commands.recv() => match command {
                        Command::Cancel(done) => {
                            self.end_canceled(AbortOutcome::NotNeeded, Instant::now()).await;
                            let _ = done.send(());
                            return TurnEnd::Gone;
                        }
                        Command::Message(message, done) => {
                            let taken = self.play_message(*message).await;
                            let goes_on = taken.is_ok() && until.is_none();
                            let _ = done.send(taken);
                            if goes_on {
                                break;
                            }
                        }
                    },
                    () = sleep_until(until.unwrap_or(far)), if until.is_some() => break,
                }
            }
        }
        TurnEnd::Gone
    }
}

fn lost(error: &tokio::task::JoinError) -> Answered {
    let error = HostError::Failed(format!("The turn broke off: {error}"));
    Answered { answer: None, outcome: Outcome::of_host_error(&error) }
}
