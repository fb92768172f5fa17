//! One task, from its row to its end. It alone publishes the task's events and writes its row.
//!
//! * `session`: the session of a task that had none at first.
//! * `turn`: a turn at the agent runtime, or the script of the conformance agent.
//! * `news`: what happens there becomes events. `asks`: what it asks of the client.
//! * `messages`: further messages of the client.
//! * `log`: events and row, to the records.
//! * `end`: the terminal state.

mod asks;
mod end;
mod log;
mod messages;
mod news;
mod session;
mod turn;

use std::sync::Arc;

use api::{JsonMap, SessionId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::access::SessionGrant;
use super::input::Refusal;
use super::live::{Command, LiveTask};
use super::metrics::AbortOutcome;
use super::queue::Ticket;
use super::translate::{Failure, Outcome, Translator};
use super::{Agent, Inner};
use crate::event::{NumberedEvent, StreamMark, TaskEvent};
use crate::model::{TaskState, TaskStatus};
use crate::records::{Interrupt, OpenWork, TaskRow};
use turn::TurnEnd;

/// A task to run.
pub(super) struct Job {
    pub(super) row: TaskRow,
    pub(super) work: OpenWork,
    /// The right to use its session, if that has no owner yet.
    pub(super) grant: Option<SessionGrant>,
    /// Why it has no session, and does not begin.
    pub(super) refused: Option<Refusal>,
    /// Whether its session may have subagents already.
    pub(super) has_past: bool,
    /// What was told before a restart; `None` for a new task.
    pub(super) resumed: Option<Translator>,
}

/// The runner of a task.
pub(super) struct Runner {
    inner: Arc<Inner>,
    live: Arc<LiveTask>,
    commands: mpsc::Receiver<Command>,
    row: TaskRow,
    work: OpenWork,
    grant: Option<SessionGrant>,
    refused: Option<Refusal>,
    translator: Translator,
    /// Whether its session may have subagents already.
    has_past: bool,
    /// Whether its prompt may have been sent before a restart.
    is_resumed: bool,
    /// The requests that wait for an answer, oldest first. Some may have expired.
    asks: Vec<Interrupt>,
    /// When to try again to decline those whose time is over, if that has failed.
    decline_again_at: Option<Instant>,
    /// The events that were shown but are not in the log.
    unlogged: Vec<Arc<NumberedEvent>>,
    /// Whether the row in the records is behind.
    is_row_behind: bool,
    /// When to write what is not in the log.
    flush_at: Option<Instant>,
}

impl Runner {
    /// The runner of a task that is shown already.
    pub(super) fn new(inner: Arc<Inner>, live: Arc<LiveTask>, commands: mpsc::Receiver<Command>, job: Job) -> Self {
        let Job { row, work, grant, refused, has_past, resumed } = job;
        let is_resumed = resumed.is_some();
        let mut translator = resumed.unwrap_or_else(|| Translator::new(row.session_id.clone(), work.prompt.id.clone()));
        translator.restore_shared(&row.metadata);
        let asks = if is_resumed { inner.records.task_interrupts(&row.id, api::now()) } else { Vec::new() };
        // One whose time ended while the service was down is asked anew if the agent runtime still waits.
        translator.retain_asks(|id| asks.iter().any(|ask| ask.request_id == id));
        let mut runner = Self {
            inner,
            live,
            commands,
            row,
            work,
            grant,
            refused,
            has_past,
            translator,
            is_resumed,
            asks,
            decline_again_at: None,
            unlogged: Vec::new(),
            is_row_behind: false,
            flush_at: None,
        };
        if !is_resumed {
            // The row says so already. Whoever looks at the task from now on sees its first event.
            let status = runner.live.read(|task| task.status.clone());
            runner.publish(TaskEvent::Status { status, metadata: JsonMap::new(), mark: None });
        }
        runner
    }

    /// Runs the task to its end, or until the service stops.
    /// A task without a session has no place in a queue yet.
    pub(super) async fn run(mut self, ticket: Option<Ticket>) {
        self.drive(ticket).await;
        self.flush().await;
        if let Some(grant) = self.grant.take() {
            let _ = grant.release().await;
        }
        if self.live.state().is_terminal() {
            self.inner.live().remove(&self.row.id);
        }
    }

    async fn drive(&mut self, mut ticket: Option<Ticket>) {
        if self.is_resumed && self.inner.agent == Agent::Host && self.work.prompt.input.parts.is_empty() {
            // It was refused, and a crash came before its end.
            self.refused = Some(Refusal::Task("The message was refused; send it again to learn why".to_owned()));
        }
        if self.inner.records.is_cancel_requested(&self.row.id) {
            return self.end_canceled(AbortOutcome::NotNeeded, Instant::now()).await;
        }
        let mut waits_for_client = self.is_resumed && self.live.state() == TaskState::AuthRequired;
        loop {
            if std::mem::take(&mut waits_for_client) {
                // Other tasks of the session need not wait for its client.
                drop(ticket.take());
                if !self.wait_for_credentials().await {
                    return;
                }
            }
            let session = match self.session().await {
                Some(Ok(session)) => session,
                Some(Err(Refusal::Runtime(failure))) if failure.needs_credentials() => {
                    self.require_credentials(&failure).await;
                    waits_for_client = true;
                    continue;
                }
                Some(Err(refusal)) => return self.end_refused(refusal).await,
                None => return,
            };
            let ticket = ticket.get_or_insert_with(|| self.inner.queues.enter(&session));
            if !self.wait_for_turn(ticket).await || !self.begin(&session).await {
                return;
            }
            let end = match self.inner.agent {
                Agent::Host => self.turn(&session).await,
                Agent::Script => self.play().await,
            };
            match end {
                TurnEnd::Gone => return,
                TurnEnd::Answered(answered) => match &answered.outcome {
                    Outcome::Failed(failure) if failure.needs_credentials() => {
                        self.require_credentials(failure).await;
                        waits_for_client = true;
                    }
                    _ => return self.finish(*answered).await,
                },
            }
        }
    }

    /// Waits until the tasks of the session that were accepted earlier have ended. False if it ended meanwhile, or if the
    /// service stops.
    async fn wait_for_turn(&mut self, ticket: &mut Ticket) -> bool {
        if ticket.is_first() {
            return true;
        }
        self.flush().await;
        let inner = self.inner.clone();
        loop {
            tokio::select! {
                biased;
                () = inner.closing.cancelled() => return false,
                Some(command) = self.commands.recv() => match command {
                    Command::Cancel(done) => {
                        self.end_canceled(AbortOutcome::NotNeeded, Instant::now()).await;
                        let _ = done.send(());
                        return false;
                    }
                    Command::Message(message, done) => {
                        let _ = done.send(self.add_to_prompt(*message).await);
                    }
                },
                () = ticket.wait() => return true,
            }
        }
    }

    /// Waits for a message that tries again. False if it ended meanwhile, or if the service stops.
    async fn wait_for_credentials(&mut self) -> bool {
        let inner = self.inner.clone();
        loop {
            tokio::select! {
                biased;
                () = inner.closing.cancelled() => return false,
                Some(command) = self.commands.recv() => match command {
                    Command::Cancel(done) => {
                        self.end_canceled(AbortOutcome::NotNeeded, Instant::now()).await;
                        let _ = done.send(());
                        return false;
                    }
                    Command::Message(message, done) => {
                        let taken = self.try_again(*message).await;
                        let is_taken = matches!(taken, Ok(true));
                        let _ = done.send(taken.map(drop));
                        if is_taken {
                            return true;
                        }
                    }
                },
            }
        }
    }

    /// Its turn has come: the row says so before the prompt goes out. False if that cannot be written.
    async fn begin(&mut self, session: &SessionId) -> bool {
        let was_waiting = self.live.state() != TaskState::Working;
        if was_waiting && self.live.state() == TaskState::Submitted {
            // The session has new messages; clients sort them by their ids.
            self.work.prompt.id = self.inner.prompt_id(session, false).await;
            self.translator.expect(self.work.prompt.id.clone());
        }
        // One that waits for an answer is still doing so after a restart.
        if was_waiting && !self.live.state().is_interrupted() {
            self.publish_state(TaskState::Working);
            return self.write(true).await;
        }
        true
    }

    async fn require_credentials(&mut self, failure: &Failure) {
        let mut metadata = self.shared_session();
        metadata.insert("opencode".to_owned(), serde_json::json!({"error": failure.metadata()}));
        let text = format!("{} Send a message to try again.", failure.text());
        let status = self.status(TaskState::AuthRequired, Some(&text));
        self.publish(TaskEvent::Status { status, metadata, mark: Some(mark("status")) });
        self.write(false).await;
    }

    /// Shows an event, and remembers to log it.
    fn publish(&mut self, event: TaskEvent) {
        if matches!(&event, TaskEvent::Status { status, .. } if status.state != self.row.status.state) {
            self.is_row_behind = true;
        }
        let event = self.live.publish(event);
        self.unlogged.push(event);
        self.flush_at.get_or_insert_with(|| Instant::now() + log::FLUSH_AFTER);
    }

    fn publish_state(&mut self, state: TaskState) {
        let status = self.status(state, None);
        self.publish(TaskEvent::Status { status, metadata: JsonMap::new(), mark: None });
    }

    /// A status with what the agent says about it.
    fn status(&self, state: TaskState, text: Option<&str>) -> TaskStatus {
        let message = text.map(|text| self.live.read(|task| super::agent_message(task, text)));
        TaskStatus { state, message, timestamp: api::now() }
    }

    /// Metadata with the session, if there is one.
    fn shared_session(&self) -> JsonMap {
        self.shared(JsonMap::new())
    }

    /// Metadata with the session and more.
    fn shared(&self, more: JsonMap) -> JsonMap {
        let session = self.translator.session().map(|session| ("session".to_owned(), session));
        let shared: JsonMap = session.into_iter().chain(more).collect();
        if shared.is_empty() { shared } else { JsonMap::from_iter([("shared".to_owned(), shared.into())]) }
    }
}

fn mark(source: &str) -> StreamMark {
    StreamMark { message_id: None, source: source.to_owned(), role: None }
}
