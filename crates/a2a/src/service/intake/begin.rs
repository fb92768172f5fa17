//! A message that begins a task: its session is found or created, then its row is written, then it runs.

use std::sync::Arc;

use api::{JsonMap, PromptInput, Scope, SessionId};
use serde_json::json;

use super::{Incoming, Manner, Taken, check, task_of};
use crate::Error;
use crate::model::{TaskState, TaskStatus};
use crate::records::{Inserted, NewTask, OpenWork, TaskRow, WorkPrompt};
use crate::service::binding::Bound;
use crate::service::input::{self, Refusal};
use crate::service::live::LiveTask;
use crate::service::queue::Ticket;
use crate::service::runner::{Job, Runner};
use crate::service::{Agent, Inner, new_id, push_configs, store_error};

/// What a message asks for, before there is a session.
struct Prepared {
    wanted: Option<SessionId>,
    scope: Scope,
    input: PromptInput,
}

/// A task that is about to be stored. One without a session was refused.
struct Beginning<'a> {
    id: String,
    context: String,
    bound: Option<&'a Bound>,
    /// Where its session works, or was to work.
    scope: &'a Scope,
    state: TaskState,
}

impl Inner {
    /// A message that begins a task.
    pub(super) async fn take_new(self: &Arc<Self>, incoming: Incoming<'_>) -> Result<Taken, Error> {
        let Incoming { who, line, ref request, ref fingerprint, .. } = incoming;
        self.check_references(who, &request.message)?;
        let id = new_id();
        let push = match request.options.push.clone() {
            Some(config) => Some(push_configs::inline(self, who, line, &id, config).await?),
            None => None,
        };
        let prepared = match &incoming.manner {
            Manner::Refused(error) => Err(Refusal::of_host_error(error)),
            Manner::Send | Manner::Stream => self.prepare(&incoming).await,
        };
        // From here to the row, messages with the same id and of the same context wait.
        let message_id = &request.message.message_id;
        let _message = self.locks.message(who, message_id).await;
        if let Some(known) = self.known(who, message_id, fingerprint).await? {
            return Ok(known);
        }
        let _context = self.locks.context(who, request.message.context_id.as_deref()).await;
        let (prepared, bound) = match prepared {
            Ok(prepared) => {
                let bound = self.bind_first(&incoming, &prepared).await;
                (prepared, bound)
            }
            Err(refusal) => {
                let scope = self.places.default_scope();
                (Prepared { wanted: None, scope, input: PromptInput::default() }, Err(refusal))
            }
        };
        let (mut bound, refused) = match bound {
            Ok(bound) => (Some(bound), None),
            Err(Refusal::Call(error)) => return Err(error),
            Err(refusal) => (None, Some(refusal)),
        };
        let prompt_id = match &bound {
            Some(bound) => self.prompt_id(&bound.session, bound.is_new).await,
            None => api::MessageId::new(),
        };
        // Whoever is first begins at once.
        let mut ticket = bound.as_ref().map(|bound| self.queues.enter(&bound.session));
        let is_first = ticket.as_mut().is_none_or(Ticket::is_first);
        let row = incoming.row(
            self.agent,
            Beginning {
                id,
                context: request.message.context_id.clone().unwrap_or_else(new_id),
                bound: bound.as_ref(),
                scope: bound.as_ref().map_or(&prepared.scope, |bound| &bound.scope),
                state: if is_first { TaskState::Working } else { TaskState::Submitted },
            },
        );
        // Later messages of the context find the session by the place that they name, which is not always the session's own.
        let place = self.place_of(&prepared.scope);
        let (message_id, fingerprint) = (row.message_id.clone(), row.fingerprint.clone());
        let work = incoming.into_work(&row, prompt_id, prepared);
        let new = NewTask { row, work: work.clone(), push, place };
        let row = match self.records.insert(new).await.map_err(|error| store_error(&error))? {
            Inserted::New(row) => *row,
            Inserted::Known(known) => {
                if let Some(bound) = bound.filter(|bound| bound.is_new) {
                    self.discard_session(&bound.session).await;
                }
                // The locks let no other message with this id pass; this is for the case that they do.
                return self.same(known, &message_id, &fingerprint).await;
            }
        };
        let (live, commands) = LiveTask::new(task_of(&row, work.history.clone()), 0, false);
        let grant = bound.as_mut().and_then(|bound| bound.grant.take());
        let has_past = bound.is_some_and(|bound| !bound.is_new);
        let job = Job { row, work, grant, refused, has_past, resumed: None };
        self.start(live.clone(), Runner::new(self.clone(), live.clone(), commands, job), ticket);
        Ok(Taken::Live { live, after: 0, is_new: true })
    }

    /// Starts the runner of a task.
    pub(in crate::service) fn start(self: &Arc<Self>, live: Arc<LiveTask>, runner: Runner, ticket: Option<Ticket>) {
        self.live().insert(live.id.clone(), live);
        self.tracker.spawn(runner.run(ticket));
    }

    async fn prepare(&self, incoming: &Incoming<'_>) -> Result<Prepared, Refusal> {
        let metadata = input::metadata_of(&incoming.request);
        let scope = self.scope_of(&metadata).await?;
        let wanted = input::session_of(&metadata)?;
        let input = self.prompt(incoming.line, &incoming.request, &metadata, &scope).await?;
        Ok(Prepared { wanted, scope, input })
    }

    async fn bind_first(&self, incoming: &Incoming<'_>, prepared: &Prepared) -> Result<Bound, Refusal> {
        let Incoming { who, request, .. } = incoming;
        let (wanted, scope) = (prepared.wanted.clone(), prepared.scope.clone());
        let (context, traceparent) = (request.message.context_id.as_deref(), request.traceparent.as_deref());
        self.bind(who, wanted, context, scope, traceparent).await
    }
}

impl Incoming<'_> {
    /// The row of the task that the message begins.
    fn row(&self, agent: Agent, new: Beginning<'_>) -> TaskRow {
        let now = api::now();
        let session = new.bound.filter(|_| agent == Agent::Host).map(Bound::metadata);
        let metadata = session.map(|session| ("shared".to_owned(), json!({"session": session})));
        TaskRow {
            id: new.id,
            context_id: new.context,
            identity: self.who.identity.clone(),
            credential: self.who.credential.clone(),
            session_id: new.bound.map(|bound| bound.session.clone()),
            directory: new.scope.directory.clone(),
            workspace: new.scope.workspace.clone(),
            line: self.line,
            streamed: !matches!(self.manner, Manner::Send),
            text_only: check::is_text_only(&self.request),
            message_id: self.request.message.message_id.clone(),
            fingerprint: self.fingerprint.clone(),
            turn: None,
            status: TaskStatus { state: new.state, message: None, timestamp: now },
            metadata: JsonMap::from_iter(metadata),
            last_seq: 0,
            created: now,
            changed: now,
            accepted: 0,
            version: 0,
        }
    }

    /// The prompt of the task, and its first message.
    fn into_work(self, row: &TaskRow, id: api::MessageId, prepared: Prepared) -> OpenWork {
        let mut message = self.request.message;
        message.context_id = Some(row.context_id.clone());
        message.task_id = Some(row.id.clone());
        let prompt = WorkPrompt { id, input: prepared.input, traceparent: self.request.traceparent };
        let wanted_session = prepared.wanted.filter(|_| row.session_id.is_none());
        OpenWork { prompt, wanted_session, history: vec![message], answering: None }
    }
}
