//! One prompt at the agent runtime, from sending it to its answer, and stopping it.
//!
//! The end of a turn comes from the answer to its prompt, or from reading the session; events are not needed for it.

use std::sync::Arc;
use std::time::Duration;

use api::{
    AgentRuntime, Delivery, HostError, ListMessages, ListTurns, MessageWithParts, Scope, SessionId, SessionStatus,
    TurnId, TurnState,
};
use follow::Patience;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::translate::Outcome;
use crate::records::WorkPrompt;

/// How often to ask whether a turn without a name still runs, when its answer was lost.
const RECHECK: Duration = Duration::from_millis(500);
/// How often to stop a turn without a name again: a stop does not affect what has not begun.
const ABORT_AGAIN: Duration = Duration::from_millis(250);
/// How long a turn may take to stop after its task was cancelled.
pub(super) const MAX_STOP: Duration = Duration::from_secs(60);
/// How many messages of a session are searched for a prompt.
const MAX_MESSAGES: usize = 500;
const PAGE: usize = 50;

/// A prompt to send, or one that was sent before a restart.
pub(super) struct Job {
    pub(super) host: Arc<dyn AgentRuntime>,
    pub(super) scope: Scope,
    pub(super) session: SessionId,
    pub(super) prompt: WorkPrompt,
    /// Whether it may have been sent already.
    pub(super) resumed: bool,
}

/// How a turn ended.
pub(super) struct Answered {
    pub(super) answer: Option<MessageWithParts>,
    pub(super) outcome: Outcome,
}

impl Answered {
    fn with(answer: MessageWithParts) -> Self {
        let outcome = Outcome::of_answer(&answer);
        Self { answer: Some(answer), outcome }
    }
}

impl Job {
    /// Runs it to its end. The name of the turn is told as soon as it has one.
    pub(super) async fn run(self, named: oneshot::Sender<TurnId>) -> Answered {
        let result = match self.host.features().turns {
            true => self.run_turn(named).await,
            false => self.run_prompt().await,
        };
        result.unwrap_or_else(|error| Answered { answer: None, outcome: Outcome::of_host_error(&error) })
    }

    /// On a runtime whose turns have names. Sending a prompt again by its id changes nothing.
    async fn run_turn(&self, named: oneshot::Sender<TurnId>) -> Result<Answered, HostError> {
        let Self { host, session, prompt, .. } = self;
        let patience = Patience::of(&**host);
        let submit = || host.submit(session, self.input(), Delivery::Queue);
        let submitted = patience.retry(submit).await?;
        let Some(turn) = submitted.turn_id else {
            let answer = patience.retry(|| host.prompt(session, self.input())).await?;
            return Ok(Answered::with(answer));
        };
        // Whoever wanted to know may be gone.
        let _ = named.send(turn.clone());
        let ended = patience.retry(|| host.wait(&turn)).await?;
        let answer = match &ended.answer {
            Some(id) => Some(patience.retry(|| host.message(session, id)).await?),
            None => None,
        };
        let outcome = match (ended.state, &ended.error, &answer) {
            (TurnState::Cancelled, ..) => Outcome::Canceled,
            (_, Some(error), _) => Outcome::of_message_error(error),
            (_, None, Some(answer)) => Outcome::of_answer(answer),
            (TurnState::Failed, None, None) => {
                Outcome::of_host_error(&HostError::Failed(format!("The turn of {} failed", prompt.id)))
            }
            _ => Outcome::Completed,
        };
        Ok(Answered { answer, outcome })
    }

    /// On OpenCode, which runs a prompt again if it is sent again: after a restart the session is read first.
    async fn run_prompt(&self) -> Result<Answered, HostError> {
        if self.resumed
            && let Some(answered) = self.read_end().await?
        {
            return Ok(answered);
        }
        match self.host.prompt(&self.session, self.input()).await {
            Ok(answer) => Ok(Answered::with(answer)),
            // The connection broke, and the turn may go on.
            Err(error @ HostError::Unavailable(_)) => match self.read_end().await {
                Ok(Some(answered)) => Ok(answered),
                Ok(None) | Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn input(&self) -> api::PromptInput {
        let traceparent = self.prompt.traceparent.clone();
        api::PromptInput { message_id: Some(self.prompt.id.clone()), traceparent, ..self.prompt.input.clone() }
    }

    /// Waits until nothing runs in the session, and reads the answer to the prompt; `None` if the prompt is not there.
    async fn read_end(&self) -> Result<Option<Answered>, HostError> {
        loop {
            let statuses = self.host.statuses(&self.scope).await?;
            if statuses.get(&self.session).is_none_or(|status| *status == SessionStatus::Idle) {
                break;
            }
            sleep(RECHECK).await;
        }
        let messages = messages_since(&*self.host, &self.session, &self.prompt.id).await?;
        if messages.first().is_none_or(|first| *first.info.id() != self.prompt.id) {
            return Ok(None);
        }
        let answer = messages.into_iter().rev().find(|message| message.info.as_assistant().is_some());
        Ok(Some(match answer {
            Some(answer) if is_complete(&answer) => Answered::with(answer),
            answer => Answered {
                outcome: Outcome::of_host_error(&HostError::Failed(
                    "The agent runtime stopped before it had answered".to_owned(),
                )),
                answer,
            },
        }))
    }
}

fn is_complete(message: &MessageWithParts) -> bool {
    message.info.as_assistant().is_some_and(|answer| answer.time.completed.is_some() || answer.error.is_some())
}

/// The messages of a session from one on, oldest first; without it, the newest ones.
pub(super) async fn messages_since(
    host: &dyn AgentRuntime,
    session: &SessionId,
    first: &api::MessageId,
) -> Result<Vec<MessageWithParts>, HostError> {
    let mut pages: Vec<Vec<MessageWithParts>> = Vec::new();
    let mut query = ListMessages { limit: Some(PAGE), before: None };
    let mut count = 0;
    loop {
        let mut page = host.messages(session, query).await?;
        let found = page.messages.iter().position(|message| message.info.id() == first);
        if let Some(found) = found {
            page.messages.drain(..found);
        }
        count += page.messages.len();
        pages.push(page.messages);
        match page.older {
            Some(older) if found.is_none() && count < MAX_MESSAGES => {
                query = ListMessages { limit: Some(PAGE), before: Some(older) };
            }
            _ => return Ok(pages.into_iter().rev().flatten().collect()),
        }
    }
}

/// Stops what runs for a task, with its subagents. Returns once it has stopped; the caller bounds the time. `answer` is the
/// answer to the prompt, which comes when a turn without a name has stopped.
pub(super) async fn stop(
    host: &dyn AgentRuntime,
    session: &SessionId,
    turn: Option<&TurnId>,
    answer: impl Future,
) -> Result<(), HostError> {
    if let Some(turn) = turn {
        return host.cancel_turn(turn).await.map(drop);
    }
    let abort = async {
        loop {
            // One that is about to begin is not affected, so it is stopped again.
            host.abort(session).await?;
            sleep(ABORT_AGAIN).await;
        }
    };
    tokio::select! {
        result = abort => result,
        _ = answer => Ok(()),
    }
}

/// Stops what an earlier run left of a cancelled task.
pub(super) async fn stop_left(
    host: &dyn AgentRuntime,
    scope: &Scope,
    session: &SessionId,
    prompt: &WorkPrompt,
    turn: Option<&TurnId>,
) -> Result<(), HostError> {
    if let Some(turn) = turn {
        return host.cancel_turn(turn).await.map(drop);
    }
    if host.features().turns {
        // A prompt that was not sent stays unsent. Sending one again by its id only tells its turn; one that is queued can
        // be found in no other way.
        let open =
            host.turns(session, ListTurns { ended: Some(false), limit: Some(1), ..ListTurns::default() }).await?;
        if open.turns.is_empty() && !host.waiting(session).await?.contains(&prompt.id) {
            return Ok(());
        }
        let input = api::PromptInput { message_id: Some(prompt.id.clone()), ..prompt.input.clone() };
        return match host.submit(session, input, Delivery::Queue).await?.turn_id {
            Some(turn) => host.cancel_turn(&turn).await.map(drop),
            None => Ok(()),
        };
    }
    loop {
        host.abort(session).await?;
        sleep(ABORT_AGAIN).await;
        let statuses = host.statuses(scope).await?;
        if statuses.get(session).is_none_or(|status| *status == SessionStatus::Idle) {
            return Ok(());
        }
    }
}
