//! A message becomes a task, or reaches one that has not ended.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use api::{JsonMap, PromptInput, SessionId};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, MutexGuard, oneshot};

use super::binding::Bound;
use super::input::{self, Refusal};
use super::live::{Command, FollowUp, LiveTask};
use super::runner::{Job, Runner};
use super::stream::{EventStream, StreamPlace};
use super::{Agent, Inner, Service, new_id, push_configs, script, store_error};
use crate::model::{Message, Role, Task, TaskState, TaskStatus};
use crate::records::{Inserted, KnownMessage, NewTask, OpenWork, TaskRow, WorkPrompt};
use crate::{Error, ErrorKind, Line, Principal, Reply, SendRequest};

/// The output that every client has to take, and what else there is.
const REQUIRED_MODE: &str = "text/plain";
const DATA_MODE: &str = "application/json";
/// The most tasks that a message may refer to.
const MAX_REFERENCES: usize = 100;
/// The longest id that a client may choose.
const MAX_ID_BYTES: usize = 512;
/// Where contexts of tasks work that were refused before they had a session.
const NOWHERE: &str = "\n";

/// Messages with the same id, and first messages of the same context, are taken one after another.
pub(super) struct Locks {
    messages: Vec<Mutex<()>>,
    contexts: Vec<Mutex<()>>,
}

impl Default for Locks {
    fn default() -> Self {
        /// Two that differ rarely wait for each other.
        const LOCKS: usize = 64;
        let locks = || (0..LOCKS).map(|_| Mutex::new(())).collect();
        Self { messages: locks(), contexts: locks() }
    }
}

/// The lock for a value.
async fn lock<'a>(locks: &'a [Mutex<()>], value: (&str, &str)) -> Option<MutexGuard<'a, ()>> {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let index = usize::try_from(hasher.finish()).unwrap_or_default() % locks.len().max(1);
    match locks.get(index) {
        Some(lock) => Some(lock.lock().await),
        None => None,
    }
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
        let live = match self.inner.take(who, line, request, false).await? {
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
        let place = self.inner.streams.enter()?;
        Ok(match self.inner.take(who, line, request, true).await? {
            Taken::Live { live, after, is_new } => self.follow(line, live, after, is_new, length, place),
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
        streamed: bool,
    ) -> Result<Taken, Error> {
        if self.closing.is_cancelled() {
            return Err(shutting_down());
        }
        check(&request)?;
        let fingerprint = fingerprint(&request);
        if let Some(known) = self.known(who, &request.message.message_id, &fingerprint).await? {
            return Ok(known);
        }
        if let (Agent::Script, None, Some(reply)) =
            (self.agent, &request.message.task_id, script::message_reply(&request.message))
        {
            return Ok(Taken::Message(Box::new(reply)));
        }
        match request.message.task_id.clone() {
            Some(task) => self.take_follow_up(who, line, request, fingerprint, &task).await,
            None => self.take_new(who, line, request, fingerprint, streamed).await,
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
    async fn take_follow_up(
        self: &Arc<Self>,
        who: &Principal,
        line: Line,
        request: SendRequest,
        fingerprint: String,
        task: &str,
    ) -> Result<Taken, Error> {
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

    /// A message that begins a task.
    async fn take_new(
        self: &Arc<Self>,
        who: &Principal,
        line: Line,
        request: SendRequest,
        fingerprint: String,
        streamed: bool,
    ) -> Result<Taken, Error> {
        self.check_references(who, &request.message)?;
        let id = new_id();
        let push = match request.options.push.clone() {
            Some(config) => Some(push_configs::inline(self, who, line, &id, config).await?),
            None => None,
        };
        let metadata = input::metadata_of(&request);
        let prepared = self.prepare(line, &request, &metadata).await;
        // From here to the row, messages with the same id and of the same context wait.
        let _message = lock(&self.locks.messages, (&who.identity, &request.message.message_id)).await;
        if let Some(known) = self.known(who, &request.message.message_id, &fingerprint).await? {
            return Ok(known);
        }
        let known_context = request.message.context_id.as_deref();
        let _context = match known_context {
            Some(context) => lock(&self.locks.contexts, (&who.identity, context)).await,
            None => None,
        };
        let bound = match prepared {
            Ok((wanted, scope, input)) => self
                .bind(who, wanted, known_context, scope, request.traceparent.as_deref())
                .await
                .map(|bound| (bound, input)),
            Err(refusal) => Err(refusal),
        };
        let (bound, input, refused) = match bound {
            Ok((bound, input)) => (bound, input, None),
            Err(Refusal::Call(error)) => return Err(error),
            Err(Refusal::Task(text)) => {
                let scope = self.places.default_scope();
                let bound = Bound { session: SessionId::new(), scope, grant: None, title: None, is_new: true };
                (bound, PromptInput::default(), Some(text))
            }
        };
        let context = request.message.context_id.clone().unwrap_or_else(new_id);
        let place = if refused.is_some() { Some(NOWHERE.to_owned()) } else { self.place_of(&bound.scope) };
        let prompt_id = self.prompt_id(&bound.session, bound.is_new).await;
        // Whoever is first begins at once.
        let mut ticket = self.queues.enter(&bound.session);
        let state = if ticket.is_first() { TaskState::Working } else { TaskState::Submitted };
        let row = self.new_row(who, line, &request, &bound, (id, context, fingerprint), state, streamed);
        let mut message = request.message;
        message.context_id = Some(row.context_id.clone());
        message.task_id = Some(row.id.clone());
        let prompt = WorkPrompt { id: prompt_id, input, traceparent: request.traceparent };
        let work = OpenWork { prompt, history: vec![message], answering: None };
        let new = NewTask { row, work: work.clone(), push, place };
        let (message_id, job_fingerprint) = (new.row.message_id.clone(), new.row.fingerprint.clone());
        let row = match self.records.insert(new).await.map_err(|error| store_error(&error))? {
            Inserted::New(row) => *row,
            Inserted::Known(known) => {
                if bound.is_new && refused.is_none() && self.agent == Agent::Host {
                    self.discard_session(&bound.session).await;
                }
                // The locks let no other message with this id pass; this is for the case that they do.
                return self.same(known, &message_id, &job_fingerprint).await;
            }
        };
        let task = task_of(&row, work.history.clone());
        let (live, commands) = LiveTask::new(task, 0, false);
        let job = Job { row, work, grant: bound.grant, refused, has_past: !bound.is_new, resumed: None };
        self.start(live.clone(), Runner::new(self.clone(), live.clone(), commands, job), ticket);
        Ok(Taken::Live { live, after: 0, is_new: true })
    }

    /// Starts the runner of a task.
    pub(super) fn start(self: &Arc<Self>, live: Arc<LiveTask>, runner: Runner, ticket: super::queue::Ticket) {
        self.live().insert(live.id.clone(), live);
        self.tracker.spawn(runner.run(ticket));
    }

    /// What a message asks for, before there is a session.
    async fn prepare(
        &self,
        line: Line,
        request: &SendRequest,
        metadata: &JsonMap,
    ) -> Result<(Option<SessionId>, api::Scope, PromptInput), Refusal> {
        let scope = self.scope_of(metadata).await?;
        let wanted = input::session_of(metadata)?;
        let input = self.prompt(line, request, metadata, &scope).await?;
        Ok((wanted, scope, input))
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

    #[expect(clippy::too_many_arguments, reason = "a row has many fields")]
    fn new_row(
        &self,
        who: &Principal,
        line: Line,
        request: &SendRequest,
        bound: &Bound,
        (id, context_id, fingerprint): (String, String, String),
        state: TaskState,
        streamed: bool,
    ) -> TaskRow {
        let now = api::now();
        let modes = &request.options.accepted_output_modes;
        let metadata = match self.agent {
            Agent::Host => {
                let shared = json!({"session": bound.metadata()});
                JsonMap::from_iter([("shared".to_owned(), shared)])
            }
            Agent::Script => JsonMap::new(),
        };
        TaskRow {
            id,
            context_id,
            identity: who.identity.clone(),
            credential: who.credential.clone(),
            session_id: bound.session.clone(),
            directory: bound.scope.directory.clone(),
            workspace: bound.scope.workspace.clone(),
            line,
            streamed,
            text_only: !takes(modes, DATA_MODE),
            message_id: request.message.message_id.clone(),
            fingerprint,
            turn: None,
            status: TaskStatus { state, message: None, timestamp: now },
            metadata,
            last_seq: 0,
            created: now,
            changed: now,
            accepted: 0,
            version: 0,
        }
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

/// Refuses what needs no look at anything.
fn check(request: &SendRequest) -> Result<(), Error> {
    let SendRequest { message, options, .. } = request;
    if message.message_id.is_empty() {
        return Err(Error::invalid("message.messageId", "message.messageId must not be empty"));
    }
    if message.role != Role::User {
        return Err(Error::invalid("message.role", "A message to the agent has the role of the user"));
    }
    let ids = [
        ("message.messageId", Some(&message.message_id)),
        ("message.contextId", message.context_id.as_ref()),
        ("message.taskId", message.task_id.as_ref()),
    ];
    for (field, id) in ids {
        if id.is_some_and(|id| id.len() > MAX_ID_BYTES || id.chars().any(char::is_control)) {
            return Err(Error::invalid(field, format!("{field} is longer than {MAX_ID_BYTES} bytes or malformed")));
        }
    }
    let modes = &options.accepted_output_modes;
    if takes(modes, REQUIRED_MODE) {
        return Ok(());
    }
    let message = "Answers are text; add text/plain to acceptedOutputModes";
    Err(Error::new(ErrorKind::UnsupportedOperation, message)
        .with("accepted_output_modes", modes.clone())
        .with("required_output_modes", vec![REQUIRED_MODE])
        .with("supported_output_modes", vec![REQUIRED_MODE, DATA_MODE]))
}

/// Whether a client takes a media type. Without a list it takes all.
fn takes(modes: &[String], wanted: &str) -> bool {
    let kind = wanted.split('/').next().unwrap_or_default();
    modes.is_empty()
        || modes.iter().any(|mode| {
            let mode = mode.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            mode == wanted || mode == "*/*" || mode.strip_suffix("/*") == Some(kind)
        })
}

/// Tells the same message sent again from another one.
fn fingerprint(request: &SendRequest) -> String {
    let content = json!([request.message, input::metadata_of(request)]);
    let digest = Sha256::digest(content.to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
