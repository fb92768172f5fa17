//! A message becomes a task, or reaches one that has not ended.

mod begin;
mod check;
mod locks;

use std::sync::Arc;

use api::{HostError, JsonMap, PromptInput};
use serde_json::json;
use tokio::sync::oneshot;

use super::input::{self, Refusal};
use super::live::{Command, FollowUp, LiveTask};
use super::stream::{EventStream, StreamPlace};
use super::{Agent, Inner, Service, script, store_error};
use crate::extension::failure::upstream;
use crate::model::{Message, Task, TaskState};
use crate::records::{KnownMessage, TaskRow};
use crate::{Error, ErrorKind, Line, Principal, Reply, SendRequest};
pub(super) use locks::Locks;

/// The most tasks that a message may refer to.
const MAX_REFERENCES: usize = 100;

/// A message that is being taken.
struct Incoming<'a> {
    who: &'a Principal,
    line: Line,
    request: SendRequest,
    /// Tells the same message sent again from another one with the same id.
    fingerprint: String,
    manner: Manner,
}

/// What the sender of a message wants of its task.
enum Manner {
    /// The task, once it waits or has ended.
    Send,
    /// Its events.
    Stream,
    /// Its events, but there are too many streams: a task that begins fails with this.
    Refused(HostError),
}

/// What became of a message.
enum Taken {
    /// A task that has not ended, or ended a moment ago. `after` is the number of the last event before the message.
    Live { live: Arc<LiveTask>, after: u64, is_new: bool },
    /// A task that ended before the message was sent again.
    Ended(Box<Task>, u64),
    /// A message is the answer.
    Message(Box<Message>),
}

impl Service {
    /// Takes a message, and answers as its options say.
    pub async fn send(&self, who: &Principal, line: Line, request: SendRequest) -> Result<Reply, Error> {
        let (at_once, length) = (request.options.return_immediately, request.options.history_length);
        let live = match self.inner.take(who, line, request, Manner::Send).await? {
            Taken::Live { live, .. } => live,
            Taken::Ended(task, _) => return Ok(Reply::Sent(Box::new(with_history(*task, length)))),
            Taken::Message(message) => return Ok(Reply::Message(message)),
        };
        if !at_once {
            tokio::select! {
                biased;
                () = live.settled() => {}
                () = self.inner.closing.cancelled() => return Err(shutting_down()),
            }
        }
        Ok(Reply::Sent(Box::new(with_history(live.snapshot().0, length))))
    }

    /// Takes a message, and streams the events of its task.
    pub async fn stream(&self, who: &Principal, line: Line, request: SendRequest) -> Result<EventStream, Error> {
        self.inner.metrics.stream_requests.add();
        let length = request.options.history_length;
        let place = self.inner.streams.enter();
        let manner = place.as_ref().map_or_else(|error| Manner::Refused(error.clone()), |_| Manner::Stream);
        Ok(match self.inner.take(who, line, request, manner).await? {
            Taken::Live { live, after, is_new } => {
                let place = match place {
                    // Its task ends at once.
                    Err(_) if is_new => StreamPlace::unlimited(),
                    place => place.map_err(upstream)?,
                };
                self.follow(line, live, after, is_new, length, place)
            }
            Taken::Ended(task, seq) => EventStream::of_ended(with_history(*task, length), seq),
            Taken::Message(message) => EventStream::of_message(*message),
        })
    }

    /// In 0.3 a stream has events alone; in 1.0 it begins with the task. So does one of a message that was sent again.
    fn follow(
        &self,
        line: Line,
        live: Arc<LiveTask>,
        after: u64,
        is_new: bool,
        length: Option<u32>,
        place: StreamPlace,
    ) -> EventStream {
        if line == Line::V03 && is_new {
            return EventStream::follow(self.inner.clone(), live, after, None, place);
        }
        let (task, seq) = live.snapshot();
        EventStream::follow(self.inner.clone(), live, seq, Some(with_history(task, length)), place)
    }
}

impl Inner {
    async fn take(
        self: &Arc<Self>,
        who: &Principal,
        line: Line,
        request: SendRequest,
        manner: Manner,
    ) -> Result<Taken, Error> {
        if self.closing.is_cancelled() {
            return Err(shutting_down());
        }
        check::check(&request)?;
        let fingerprint = check::fingerprint(&request);
        if let Some(known) = self.known(who, &request.message.message_id, &fingerprint).await? {
            return Ok(known);
        }
        if let (Agent::Script, None, Some(reply)) =
            (self.agent, &request.message.task_id, script::message_reply(&request.message))
        {
            return Ok(Taken::Message(Box::new(reply)));
        }
        let incoming = Incoming { who, line, request, fingerprint, manner };
        match incoming.request.message.task_id.clone() {
            Some(task) => self.take_follow_up(incoming, &task).await,
            None => self.take_new(incoming).await,
        }
    }

    /// What became of the same message, if it was sent before.
    async fn known(&self, who: &Principal, message_id: &str, fingerprint: &str) -> Result<Option<Taken>, Error> {
        let known = self.records.message(&who.identity, message_id).map_err(|error| store_error(&error))?;
        match known {
            Some(known) => self.same(known, message_id, fingerprint).await.map(Some),
            None => Ok(None),
        }
    }

    async fn same(&self, known: KnownMessage, message_id: &str, fingerprint: &str) -> Result<Taken, Error> {
        if known.fingerprint != fingerprint {
            return Err(id_in_use(message_id));
        }
        if let Some(live) = self.live_task(&known.task) {
            return Ok(Taken::Live { live, after: 0, is_new: false });
        }
        let stored = self.stored(&known.task).await?;
        let (row, task) = stored.ok_or_else(|| Error::task_not_found(&known.task))?;
        Ok(Taken::Ended(Box::new(task), row.last_seq))
    }

    /// A message to a task that exists.
    async fn take_follow_up(&self, incoming: Incoming<'_>, task: &str) -> Result<Taken, Error> {
        let Incoming { who, line, request, fingerprint, manner } = incoming;
        if let Manner::Refused(error) = manner {
            return Err(upstream(error));
        }
        let row = self.records.row(task).map_err(|error| store_error(&error))?;
        self.access.task(who, task, row.as_ref().map(|row| row.identity.as_str()))?;
        let row = row.ok_or_else(|| Error::task_not_found(task))?;
        if request.message.context_id.as_ref().is_some_and(|context| *context != row.context_id) {
            let message = format!("Task {task} belongs to another context; leave contextId out, or name the task's");
            return Err(Error::invalid("message.contextId", message));
        }
        let live = match self.live_task(task) {
            Some(live) if !live.state().is_terminal() => live,
            Some(live) => return Err(in_terminal_state(line, task, live.state())),
            None if row.state().is_terminal() => return Err(in_terminal_state(line, task, row.state())),
            None => return Err(shutting_down()),
        };
        self.check_references(who, &request.message)?;
        let metadata = input::metadata_of(&request);
        let prompt = self.prompt(line, &request, &metadata, &row.scope()).await;
        let input = prompt.map_err(|refusal| match refusal {
            Refusal::Call(error) => error,
            Refusal::Task(text) => Error::invalid("message", text),
            Refusal::Runtime(failure) => Error::new(ErrorKind::UpstreamUnreachable, failure.text()),
        })?;
        let SendRequest { mut message, traceparent, .. } = request;
        message.context_id = Some(row.context_id.clone());
        let text = input::text_of(&message);
        let (_, after) = live.snapshot();
        let follow_up = FollowUp { who: who.clone(), message, fingerprint, text, input, traceparent };
        let (done, taken) = oneshot::channel();
        live.send(Command::Message(Box::new(follow_up), done)).await?;
        match taken.await {
            Ok(taken) => taken?,
            // It has ended, or was parked.
            Err(_) if live.state().is_terminal() => return Err(in_terminal_state(line, task, live.state())),
            Err(_) => return Err(shutting_down()),
        }
        Ok(Taken::Live { live, after, is_new: true })
    }

    async fn prompt(
        &self,
        line: Line,
        request: &SendRequest,
        metadata: &JsonMap,
        scope: &api::Scope,
    ) -> Result<PromptInput, Refusal> {
        match self.agent {
            Agent::Host => self.prompt_of(line, &request.message, metadata, scope).await,
            Agent::Script => Ok(PromptInput::default()),
        }
    }

    /// The tasks that a message refers to must be there for its sender.
    fn check_references(&self, who: &Principal, message: &Message) -> Result<(), Error> {
        let references = &message.reference_task_ids;
        if references.len() > MAX_REFERENCES {
            let text = format!("A message refers to at most {MAX_REFERENCES} tasks, this one to {}", references.len());
            return Err(Error::invalid("message.referenceTaskIds", text));
        }
        for id in references {
            let row = self.records.row(id).map_err(|error| store_error(&error))?;
            self.access.task(who, id, row.as_ref().map(|row| row.identity.as_str()))?;
        }
        Ok(())
    }
}

/// The task of a row, with its messages.
pub(super) fn task_of(row: &TaskRow, history: Vec<Message>) -> Task {
    Task {
        id: row.id.clone(),
        context_id: row.context_id.clone(),
        status: row.status.clone(),
        artifacts: Vec::new(),
        history,
        metadata: row.metadata.clone(),
    }
}

/// A task with the newest messages of its history.
pub(super) fn with_history(mut task: Task, length: Option<u32>) -> Task {
    if let Some(length) = length {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        task.history.drain(..task.history.len().saturating_sub(length));
    }
    task
}

/// The error about a message id that belongs to another message.
pub(super) fn id_in_use(message_id: &str) -> Error {
    let text = format!("The message id {message_id} belongs to another message; choose a new one");
    Error::invalid("message.messageId", text)
}

/// The error about a message to a task that has ended.
fn in_terminal_state(line: Line, task: &str, state: TaskState) -> Error {
    let state = json!(state);
    let message = format!("Task {task} is in terminal state: {}", state.as_str().unwrap_or_default());
    match line {
        Line::V03 => Error::new(ErrorKind::InvalidParams, message),
        Line::V10 => Error::new(ErrorKind::UnsupportedOperation, message),
    }
}

pub(super) fn shutting_down() -> Error {
    Error::new(ErrorKind::ShuttingDown, "The service stops; try again later")
}
