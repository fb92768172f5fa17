//! Accepts prompts durably, and waits for their answers.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Action, Caller, Cursor, Delivery, EventBody, HostError, MessageError, MessageId, MessageWithParts, PromptInput,
    Rule, Session, SessionId, SessionModel, SessionStatus, TurnId, TurnState, UserMessage, WatchScope,
};
use futures::StreamExt;
use store::{Batch, CommitOutcome, RuleSwitch, SessionChange, SharedText, Store, StoreError, TurnRow};
use tokio::sync::oneshot;

use crate::ask::permission;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::project::models;
use crate::turn::input::AcceptedPrompt;
use crate::turn::{self, Turn, TurnLocation, known_files};
use crate::{Error, Inner};

/// How often to check on a process that answers a prompt, in case it dies.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A prompt that was accepted.
pub(crate) struct AcceptedTurn {
    /// The prompt's message. While the prompt is queued, a placeholder unless the client chose the id.
    pub(crate) message: MessageId,
    /// The turn that answers it, if one does.
    pub(crate) turn: Option<u64>,
    /// The position in the log at which it was accepted.
    pub(crate) cursor: Option<Cursor>,
}

/// How a prompt is submitted.
#[derive(Clone, Copy, Default)]
pub(crate) struct SubmitOptions<'a> {
    /// Accept it without running its turn; the caller starts that later.
    pub(crate) runs_later: bool,
    /// Whether it belongs to careful work.
    pub(crate) careful: bool,
    /// What happens to it while another turn runs.
    pub(crate) delivery: Delivery,
    /// Who sends it; nobody if the engine itself does, on behalf of the session's owner.
    pub(crate) caller: Option<&'a Caller>,
}

impl Inner {
    /// Accepts a prompt. When this returns, the prompt is durable and its turn is running or queued. The same message
    /// id sent twice is one prompt.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        input: PromptInput,
    ) -> Result<AcceptedTurn, HostError> {
        let options = SubmitOptions { caller: Some(caller), ..SubmitOptions::default() };
        self.submit_with(id, input, options, |_| {}).await
    }

    /// Like [`submit`](Self::submit), with options. `add_to_batch` writes something else in the same commit.
    pub(crate) async fn submit_with(
        self: &Arc<Self>,
        id: &SessionId,
        input: PromptInput,
        options: SubmitOptions<'_>,
        add_to_batch: impl FnOnce(&mut Batch),
    ) -> Result<AcceptedTurn, HostError> {
        let read = |store: &Store| Ok((store.session(id)?, self.stored_constraints(store, id)?));
        let (session, recorded) = self.store.snapshot(read).map_err(store_error)?;
        let session = session.ok_or_else(|| HostError::not_found("session", id.as_str()))?;
        let careful =
            options.careful || self.settings.careful || recorded.is_some_and(|constraints| constraints.careful);
        self.turns.note_opened(id);
        if let Some(message) = &input.message_id
            && let Some(known) = self.known_prompt(id, message)?
        {
            return Ok(known);
        }
        self.takes_messages(&session)?;
        let instance = self.current_instance(session.directory.as_ref()).await;
        let (no_reply, is_queued) = (input.no_reply, options.delivery == Delivery::Queue && !input.no_reply);
        let traceparent =
            input.traceparent.clone().or_else(|| options.caller.and_then(|caller| caller.traceparent.clone()));
        // A queued prompt is read again when its turn begins; here it only has to be valid.
        let queued_input = is_queued.then(|| serde_json::json!(input));
        let accepted = self.accept(&instance, &session, input).await?;
        let message = accepted.message.id.clone();
        let mut batch = Batch::new(&instance.place).durable();
        if !no_reply {
            self.turns.traces().store(&message, traceparent.as_deref());
            let rules = rules_at_acceptance(&instance, &session, &accepted.message, careful);
            let caller = options.caller.and_then(|caller| caller.identity.as_deref());
            match &queued_input {
                Some(input) => batch.queue(id, &message, input, &rules, caller),
                None => batch.enqueue_with(id, &message, &rules, caller),
            }
        }
        if is_queued {
            batch.require_session(id);
            batch.turn_event(id, TurnState::Queued);
        } else {
            write_prompt(&mut batch, id, &instance, &accepted);
        }
        add_to_batch(&mut batch);
        let committed = match no_reply || options.runs_later {
            false => self.commit_and_run(id, batch, instance).await.unwrap_or(Err(StoreError::Closed)),
            true => self.store.commit(batch).await,
        };
        match committed {
            Ok(committed) => Ok(AcceptedTurn { message, turn: committed.turn, cursor: committed.last }),
            // Another caller sent the same id at the same moment.
            Err(error @ StoreError::Exists { .. }) => {
                self.known_prompt(id, &message)?.ok_or_else(|| store_error(error))
            }
            Err(error) => Err(store_error(error)),
        }
    }

    /// A prompt that was accepted before under this id. Fails if the id belongs to something else.
    fn known_prompt(&self, id: &SessionId, message: &MessageId) -> Result<Option<AcceptedTurn>, HostError> {
        let known = self.store.snapshot(|store| {
            let queued = store.queued_turn(message)?;
            Ok((queued, store.message(message)?, store.turn_of_message(message)?))
        });
        let taken = || HostError::Conflict(format!("The message id {message} is in use for another message"));
        let message = message.clone();
        match known.map_err(store_error)? {
            (Some(turn), ..) if turn.session == *id => {
                Ok(Some(AcceptedTurn { message, turn: Some(turn.number), cursor: None }))
            }
            (None, None, _) => Ok(None),
            (None, Some(known), turn) if known.info.session_id() == id && known.info.as_user().is_some() => {
                Ok(Some(AcceptedTurn { message, turn, cursor: None }))
            }
            _ => Err(taken()),
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
    ) -> oneshot::Receiver<Result<CommitOutcome, StoreError>> {
        let (accepted, receiver) = oneshot::channel();
        let guard = self.try_enter(id);
        if guard.is_some() {
            batch.claim(id);
        }
        let (inner, id) = (self.clone(), id.clone());
        self.tasks.spawn(async move {
            let mut committed = match inner.store.commit(batch).await {
                Ok(committed) => committed,
                Err(error) => {
                    drop(guard);
                    let _ = accepted.send(Err(error));
                    return;
                }
            };
            let Some(guard) = guard else {
                // A turn is running, or was a moment ago.
                inner.start(&id);
                let _ = accepted.send(Ok(committed));
                return;
            };
            let guard = guard.with_claim(committed.claimed.take(), instance);
            let _ = accepted.send(Ok(committed));
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
        let turn = self.store.turn_of_message(message).map_err(store_error)?;
        self.await_answer_of(id, message, turn).await
    }

    /// Like [`await_answer`](Self::await_answer), for a prompt whose turn is known.
    pub(crate) async fn await_answer_of(
        self: &Arc<Self>,
        id: &SessionId,
        message: &MessageId,
        turn: Option<u64>,
    ) -> Result<MessageWithParts, HostError> {
        if let Some(turn) = turn.map(|number| TurnId::new(id, number)) {
            let took_in = || {
                let row = self.store.turn(&turn)?;
                Ok(row.is_some_and(|row| row.prompts.contains(message)))
            };
            // A run that still exists knows the answer without reading rows.
            let runs = self.turns.runs().get(id).is_some_and(|run| run.is_of_turn(turn.number));
            if runs || took_in().map_err(store_error)? {
                return match self.wait_for_turn(&turn).await? {
                    Some(answer) => {
                        self.turns.conversations().answer(id, &answer).map_or_else(|| self.message_of(id, &answer), Ok)
                    }
                    None => self.message_of(id, message),
                };
            }
        }
        // Forked and old messages have no turn that records the answer.
        let mut messages = self.store.messages_from(id, message).map_err(store_error)?;
        match turn::find_answer(&messages, message) {
            Some(place) => Ok(messages.swap_remove(place).0),
            None => self.message_of(id, message),
        }
    }

    /// Waits for the end of a turn, and makes sure that it is run. Returns its last answer.
    pub(crate) async fn wait_for_turn(self: &Arc<Self>, turn: &TurnId) -> Result<Option<MessageId>, HostError> {
        let session = &turn.session;
        // The usual case: it runs, and there is nothing to read before it ends.
        let mut running = self.turns.runs().get(session).inspect(|run| run.wake());
        loop {
            let run = match running.take() {
                Some(run) => run,
                None => match self.store.turn(turn).map_err(store_error)? {
                    None => return Err(HostError::not_found("turn", turn.to_string())),
                    Some(row) if row.state.is_ended() => return Ok(row.answer),
                    Some(_) => self.start(session),
                },
            };
            match run.wait_for_end().await {
                Ok(TurnLocation::Here) => {
                    if let Some(answer) = run.answer_of_turn(turn.number) {
                        return Ok(answer);
                    }
                }
                Ok(TurnLocation::Elsewhere) => self.wait_elsewhere(turn).await?,
                Err(error) if run.is_of_turn(turn.number) || self.turns.is_parking() => return Err(error),
                // Another turn failed, and is retried before this one begins.
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Waits while another process runs the session of a turn that has not ended.
    async fn wait_elsewhere(&self, turn: &TurnId) -> Result<(), HostError> {
        let mut events = self.store.watch(WatchScope::Session(turn.session.clone()), None).map_err(store_error)?;
        let is_open = |row: TurnRow| !row.state.is_ended();
        while self.store.turn(turn).map_err(store_error)?.is_some_and(is_open)
            && self.store.lease_holder(&turn.session).map_err(store_error)?.is_some_and(|h| h.alive)
        {
            let _ = tokio::time::timeout(POLL_INTERVAL, events.next()).await;
        }
        Ok(())
    }
}

impl Turn {
    /// Turns the queued prompt into a message. Returns false if it is gone, or cannot be run any more; then the turn
    /// has ended.
    pub(super) async fn promote(&self) -> Result<bool, Error> {
        let Some(id) = self.number().map(|number| TurnId::new(&self.session_id, number)) else { return Ok(false) };
        let (queued, session) = self.store().snapshot(|store| Ok((store.queued_prompt(&id)?, self.session(store)?)))?;
        let input: Option<(MessageId, Result<PromptInput, _>)> =
            queued.map(|(key, input)| (key, serde_json::from_str(&input)));
        let accepted = match input {
            // It was cancelled at the same moment.
            None => Err(None),
            Some((key, Err(error))) => Err(Some((key, error.to_string()))),
            Some((key, Ok(input))) => match self.inner.accept(&self.instance, &session, input).await {
                Ok(accepted) => Ok((key, accepted)),
                Err(error) => Err(Some((key, error.to_string()))),
            },
        };
        let mut batch = self.batch().durable();
        match accepted {
            Ok((queued, accepted)) => {
                self.inner.turns.traces().rename(&queued, &accepted.message.id);
                batch.promote(&queued, &accepted.message.id);
                write_prompt(&mut batch, &self.session_id, &self.instance, &accepted);
                self.commit(batch).await?;
                Ok(true)
            }
            Err(None) => {
                batch.event(self.status_event(SessionStatus::Idle));
                batch.release(&self.lease);
                self.commit(batch).await?;
                Ok(false)
            }
            Err(Some((queued, why))) => {
                let error = MessageError::unknown(format!("The queued prompt cannot be run: {why}"));
                batch.dequeue(&queued);
                let session_id = Some(self.session_id.clone());
                batch.event(EventBody::SessionError { session_id, error: Some(error.clone()) });
                self.go_idle_with(&mut batch, None, Some(error));
                let committed = self.commit(batch).await?;
                self.run.record_end(self.number(), None, committed.more_turns);
                Ok(false)
            }
        }
    }
}

/// Writes a prompt: its message and parts, and what it changes in its session.
fn write_prompt(batch: &mut Batch, id: &SessionId, instance: &Instance, accepted: &AcceptedPrompt) {
    for error in &accepted.problems {
        batch.event(EventBody::SessionError { session_id: Some(id.clone()), error: Some(error.clone()) });
    }
    update_session_from_prompt(batch, id, accepted);
    for change in &accepted.file_changes {
        known_files::store_version(batch, id, change);
    }
    batch.publish_new_message(accepted.info());
    for part in &accepted.parts {
        batch.publish_part(part);
    }
    if instance.remote(&accepted.message.agent).is_none() {
        models::remember_last_used(batch, &accepted.message.model);
    }
}

/// The rules in force for a prompt, as stored with it.
fn rules_at_acceptance(instance: &Instance, session: &Session, message: &UserMessage, careful: bool) -> SharedText {
    let mut own = session.permission.clone();
    tool_switches(message).iter().for_each(|switch| switch.apply(&mut own));
    instance.rules_of(&message.agent, careful, own.as_deref().unwrap_or_default()).accepted().clone()
}

/// Updates the session's agent, model and tool switches from its newest prompt.
fn update_session_from_prompt(batch: &mut Batch, id: &SessionId, accepted: &AcceptedPrompt) {
    let message = &accepted.message;
    let model = SessionModel {
        id: message.model.model_id.clone(),
        provider_id: message.model.provider_id.clone(),
        variant: Some(message.model.variant.clone().unwrap_or_else(|| "default".to_owned())),
    };
    let change = SessionChange {
        agent: Some(message.agent.clone()),
        model: Some(model),
        rule_switches: tool_switches(message),
        is_activity: true,
        ..SessionChange::default()
    };
    batch.change_session(id, change);
}

/// A prompt's tool switches as rules of its session. Switching a tool off puts a denial in force. Switching it on lifts
/// that one, but no other.
fn tool_switches(message: &UserMessage) -> Vec<RuleSwitch> {
    let deny = |tool: &str| Rule::new(permission::permission_of_tool(tool), "*", Action::Deny);
    let switches = message.tools.iter().flatten();
    switches.map(|(tool, is_enabled)| RuleSwitch { rule: deny(tool), is_on: !is_enabled }).collect()
}
