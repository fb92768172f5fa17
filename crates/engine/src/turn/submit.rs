//! Accepts prompts durably, and waits for their answers.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Action, EventBody, HostError, MessageId, MessageWithParts, PromptInput, Rule, Ruleset, Session, SessionId,
    SessionModel, UserMessage, WatchScope,
};
use futures::StreamExt;
use store::{Batch, SharedText, Store, StoreError};
use tokio::sync::oneshot;

use crate::Inner;
use crate::ask::permission;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::project::models;
use crate::turn::input::AcceptedPrompt;
use crate::turn::{self, TurnLocation, known_files};

/// How often to check on a process that answers a prompt, in case it dies.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Inner {
    /// Accepts a prompt. When this returns, the prompt is durable and its turn is running. The same message id sent
    /// twice is one prompt.
    pub(crate) async fn submit(self: &Arc<Self>, id: &SessionId, input: PromptInput) -> Result<MessageId, HostError> {
        let runs_turn = !input.no_reply;
        self.submit_with(id, input, runs_turn, false, |_| {}).await
    }

    /// Like [`submit`](Self::submit), but writes something else in the same commit. `runs_turn`: whether to run a turn;
    /// otherwise the caller starts one later. `careful`: whether the prompt belongs to careful work.
    pub(crate) async fn submit_with(
        self: &Arc<Self>,
        id: &SessionId,
        input: PromptInput,
        runs_turn: bool,
        careful: bool,
        add_to_batch: impl FnOnce(&mut Batch),
    ) -> Result<MessageId, HostError> {
        let read = |store: &Store| Ok((store.session(id)?, self.stored_constraints(store, id)?));
        let (session, recorded) = self.store.snapshot(read).map_err(store_error)?;
        let session = session.ok_or_else(|| HostError::not_found("session", id.as_str()))?;
        let careful = careful || self.careful || recorded.is_some_and(|constraints| constraints.careful);
        self.note_opened(id);
        if let Some(message) = &input.message_id
            && let Some(known) = self.store.message(message).map_err(store_error)?
        {
            return existing_prompt(id, &known);
        }
        self.takes_messages(&session)?;
        let instance = self.current_instance(session.directory.as_ref()).await;
        let no_reply = input.no_reply;
        let traceparent = input.traceparent.clone();
        let accepted = self.accept(&instance, &session, input).await?;
        let message = accepted.message.id.clone();
        let mut batch = Batch::new(&instance.place).durable();
        for error in &accepted.problems {
            batch.event(EventBody::SessionError { session_id: Some(id.clone()), error: Some(error.clone()) });
        }
        update_session_from_prompt(&mut batch, id, &accepted);
        for change in &accepted.file_changes {
            known_files::store_version(&mut batch, id, change);
        }
        batch.publish_new_message(accepted.info());
        for part in &accepted.parts {
            batch.publish_part(part);
        }
        if instance.remote(&accepted.message.agent).is_none() {
            models::remember_last_used(&mut batch, &accepted.message.model);
        }
        if !no_reply {
            self.traces.store(&message, traceparent.as_deref());
            batch.enqueue_with(id, &message, &rules_at_acceptance(&instance, &session, &accepted.message, careful));
        }
        add_to_batch(&mut batch);
        let committed = match runs_turn {
            true => self.commit_and_run(id, batch, instance).await.unwrap_or(Err(StoreError::Closed)),
            false => self.store.commit(batch).await.map(drop),
        };
        match committed {
            Ok(()) => Ok(message),
            // Another caller sent the same id at the same moment.
            Err(StoreError::Exists { .. }) => existing_prompt(id, &self.message_of(id, &message)?),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Commits a prompt and makes sure that a turn answers it: the running one, or a new one, whose lease is part of
    /// the commit. The receiver is notified when the prompt is accepted. Runs on a separate task: once the prompt is
    /// being written, its turn must start even if nobody waits any more.
    fn commit_and_run(
        self: &Arc<Self>,
        id: &SessionId,
        mut batch: Batch,
        instance: Arc<Instance>,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let (accepted, receiver) = oneshot::channel();
        let guard = self.try_enter(id);
        if guard.is_some() {
            batch.claim(id);
        }
        let (inner, id) = (self.clone(), id.clone());
        self.tasks.spawn(async move {
            let committed = match inner.store.commit(batch).await {
                Ok(committed) => committed,
                Err(error) => {
                    drop(guard);
                    let _ = accepted.send(Err(error));
                    return;
                }
            };
            let Some(mut guard) = guard else {
                // A turn is running, or was a moment ago.
                inner.start(&id);
                let _ = accepted.send(Ok(()));
                return;
            };
            if let Some(acquired) = committed.claimed {
                guard.set_claim(acquired, instance);
            }
            let _ = accepted.send(Ok(()));
            guard.drive().await;
        });
        receiver
    }

    /// Waits for the answer to a prompt: the last message of its turn.
    pub(crate) async fn await_answer(
        self: &Arc<Self>,
        id: &SessionId,
        message: &MessageId,
    ) -> Result<MessageWithParts, HostError> {
        let answer = || {
            self.store.snapshot(|store| {
                if is_waiting(store, id, message)? {
                    return Ok(None);
                }
                let mut messages = store.messages_from(id, message)?;
                Ok(Some(turn::find_answer(&messages, message).map(|place| messages.swap_remove(place).0)))
            })
        };
        // The usual case: a turn runs, and there is nothing to read before it ends.
        let mut running = self.runs.get(id).inspect(|run| run.wake());
        loop {
            let run = match running.take() {
                Some(run) => run,
                None => match answer().map_err(store_error)? {
                    Some(Some(answer)) => return Ok(answer),
                    Some(None) => return self.message_of(id, message),
                    None => self.start(id),
                },
            };
            match run.wait_for_end().await {
                Ok(TurnLocation::Here) => {
                    // The run already knows the answer, so no search is needed.
                    if let Some(answer) = run.answer_to(message) {
                        return self.conversations.answer(id, &answer).map_or_else(|| self.message_of(id, &answer), Ok);
                    }
                }
                Ok(TurnLocation::Elsewhere) => self.await_answer_elsewhere(id, message).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn await_answer_elsewhere(&self, id: &SessionId, message: &MessageId) -> Result<(), HostError> {
        let mut events = self.store.watch(WatchScope::Session(id.clone()), None).map_err(store_error)?;
        while is_waiting(&self.store, id, message).map_err(store_error)?
            && self.store.lease_holder(id).map_err(store_error)?.is_some_and(|h| h.alive)
        {
            let _ = tokio::time::timeout(POLL_INTERVAL, events.next()).await;
        }
        Ok(())
    }
}

/// The rules in force for a prompt, as stored with it.
fn rules_at_acceptance(instance: &Instance, session: &Session, message: &UserMessage, careful: bool) -> SharedText {
    let mut own = session.permission.clone();
    apply_tool_switches(&mut own, message);
    instance.rules_of(&message.agent, careful, own.as_deref().unwrap_or_default()).accepted().clone()
}

fn is_waiting(store: &Store, id: &SessionId, message: &MessageId) -> Result<bool, StoreError> {
    Ok(store.inbox(id)?.iter().any(|row| row.message_id == *message))
}

fn existing_prompt(id: &SessionId, known: &MessageWithParts) -> Result<MessageId, HostError> {
    if known.info.session_id() == id && known.info.as_user().is_some() {
        return Ok(known.info.id().clone());
    }
    Err(HostError::Conflict(format!("The message id {} is in use for another message", known.info.id())))
}

/// Updates the session's agent, model and tool switches from its newest prompt.
fn update_session_from_prompt(batch: &mut Batch, id: &SessionId, accepted: &AcceptedPrompt) {
    let message = &accepted.message;
    let agent = message.agent.clone();
    let model = SessionModel {
        id: message.model.model_id.clone(),
        provider_id: message.model.provider_id.clone(),
        variant: Some(message.model.variant.clone().unwrap_or_else(|| "default".to_owned())),
    };
    let message = message.clone();
    batch.change_session(id, move |session| {
        session.agent = Some(agent.clone());
        session.model = Some(model.clone());
        apply_tool_switches(&mut session.permission, &message);
        session.time.updated = api::now();
    });
}

/// Turns a prompt's tool switches into rules of its session.
fn apply_tool_switches(rules: &mut Option<Ruleset>, message: &UserMessage) {
    for (tool, on) in message.tools.iter().flatten() {
        // Switching a tool off adds a rule to the session. Switching it on removes that rule, but lifts no other
        // denial.
        let off = Rule::new(permission::permission_of_tool(tool), "*", Action::Deny);
        let rules = rules.get_or_insert_default();
        rules.retain(|rule| *rule != off);
        if !on {
            rules.push(off);
        }
    }
}
