//! Further messages of the client to a task that has not ended.

use api::{Delivery, HostError, MessageId, PromptInput, SessionId, SteerInput};

use super::Runner;
use crate::extension::failure::upstream;
use crate::model::{Message, TaskState};
use crate::records::{Answering, Change, Interrupt};
use crate::service::live::FollowUp;
use crate::service::{input, interrupts, store_error};
use crate::{Error, ErrorKind};

impl Runner {
    /// A message to a task whose turn runs: it steers the turn, or answers what the turn asks.
    pub(super) async fn follow_up(&mut self, session: &SessionId, message: FollowUp) -> Result<(), Error> {
        if self.is_known(&message)? {
            return Ok(());
        }
        match self.asks.first().cloned() {
            Some(ask) => self.answer(&message, ask).await?,
            None => self.steer(session, &message).await?,
        }
        self.remember(message, false).await
    }

    /// A message to a task that waits for its turn becomes part of its prompt.
    pub(super) async fn add_to_prompt(&mut self, message: FollowUp) -> Result<(), Error> {
        if self.is_known(&message)? {
            return Ok(());
        }
        self.work.prompt.input.parts.extend(message.input.parts.iter().cloned());
        self.remember(message, true).await
    }

    /// A message to a task that lacked credentials: its prompt is sent again. Returns whether it is new.
    pub(super) async fn try_again(&mut self, message: FollowUp) -> Result<bool, Error> {
        if self.is_known(&message)? {
            return Ok(false);
        }
        let input = match self.translator.has_begun() {
            // The session has the prompt, and only lacks an answer.
            true => message.input.clone(),
            false => {
                let mut input = self.work.prompt.input.clone();
                input.parts.extend(message.input.parts.iter().cloned());
                input
            }
        };
        self.work.prompt.input = input;
        self.work.prompt.traceparent = message.traceparent.clone();
        self.work.prompt.id = match &self.row.session_id {
            Some(session) => self.inner.prompt_id(session, false).await,
            None => MessageId::new(),
        };
        self.translator.expect(self.work.prompt.id.clone());
        self.row.turn = None;
        self.publish_state(TaskState::Working);
        self.remember(message, true).await?;
        Ok(true)
    }

    /// A message to the agent for conformance kits.
    pub(super) async fn play_message(&mut self, message: FollowUp) -> Result<(), Error> {
        if self.is_known(&message)? {
            return Ok(());
        }
        if self.live.state() != TaskState::Working {
            self.publish_state(TaskState::Working);
        }
        self.remember(message, false).await
    }

    /// Whether it was taken already. An error if its id belongs to another message.
    fn is_known(&self, message: &FollowUp) -> Result<bool, Error> {
        let id = &message.message.message_id;
        let known = self.inner.records.message(&self.row.identity, id).map_err(|error| store_error(&error))?;
        match known {
            None => Ok(false),
            Some(known) if known.fingerprint == message.fingerprint && known.task == self.row.id => Ok(true),
            Some(_) => Err(crate::service::intake::id_in_use(id)),
        }
    }

    async fn answer(&mut self, message: &FollowUp, ask: Interrupt) -> Result<(), Error> {
        self.inner.access.answer(&message.who, &ask)?;
        match interrupts::parse_answer(&ask, &message.text) {
            Ok(answer) => {
                // Stored first: sent again after a crash, the same message must not say anything new.
                self.work.answering = Some(Answering {
                    request_id: ask.request_id.clone(),
                    message: message.message.clone(),
                    fingerprint: message.fingerprint.clone(),
                });
                self.store_work().await?;
                let given = self.give(&ask, answer).await;
                self.work.answering = None;
                if given.is_err() {
                    self.store_work().await?;
                }
                given
            }
            Err(explanation) => {
                self.show_ask_as(&ask, &explanation);
                self.flush().await;
                Ok(())
            }
        }
    }

    /// Gives the answer of a message again that a crash may have kept from the agent runtime, which takes the first one.
    pub(super) async fn give_again(&mut self) {
        let Some(Answering { request_id, message, fingerprint }) = self.work.answering.take() else { return };
        if let Some(ask) = self.asks.iter().find(|ask| ask.request_id == request_id).cloned()
            && let Ok(answer) = interrupts::parse_answer(&ask, &input::text_of(&message))
            && let Err(error) = self.give(&ask, answer).await
            && error.kind != ErrorKind::InterruptNotFound
        {
            tracing::warn!(?error, task = %self.row.id, "cannot give the answer of a message again");
            // Its sender was told nothing, and sends it again.
            return;
        }
        if let Err(error) = self.remember_message(message, fingerprint, false).await {
            tracing::warn!(?error, task = %self.row.id, "cannot store a message that answered a request");
        }
    }

    async fn give(&mut self, ask: &Interrupt, answer: interrupts::Answer) -> Result<(), Error> {
        let declined = answer.is_rejection();
        self.inner.answer(ask, answer).await?;
        // The event of the agent runtime comes as well, and says nothing new then.
        self.translator.note_resolved(&ask.request_id);
        self.resolved(&ask.request_id, declined).await;
        Ok(())
    }

    async fn steer(&mut self, session: &SessionId, message: &FollowUp) -> Result<(), Error> {
        let host = &self.inner.host;
        let features = host.features();
        let parts = message.input.parts.clone();
        let input = || PromptInput {
            message_id: Some(MessageId::new()),
            traceparent: message.traceparent.clone(),
            ..message.input.clone()
        };
        let sent = if features.steer {
            host.steer(session, SteerInput { text: None, parts }).await.map(drop)
        } else if features.turns {
            host.submit(session, input(), Delivery::Join).await.map(drop)
        } else {
            let id = self.inner.prompt_id(session, false).await;
            host.prompt_async(session, PromptInput { message_id: Some(id), ..input() }).await.map(drop)
        };
        sent.map_err(|error| match error {
            HostError::Conflict(_) => {
                let text = format!("Task {} is about to end; send the message without the id of the task", self.row.id);
                Error::new(ErrorKind::UnsupportedOperation, text)
            }
            error => upstream(error),
        })
    }

    /// Stores the message with the task.
    async fn remember(&mut self, message: FollowUp, durable: bool) -> Result<(), Error> {
        let FollowUp { message, fingerprint, .. } = message;
        self.remember_message(message, fingerprint, durable).await
    }

    async fn remember_message(&mut self, message: Message, fingerprint: String, durable: bool) -> Result<(), Error> {
        let mut change = Change::of(&self.row.id);
        change.follow_up(&self.row.identity, &message.message_id, &fingerprint);
        self.live.change(|task| task.history.push(message.clone()));
        self.work.history.push(message);
        change.work(self.work.clone());
        if durable {
            change.durable();
        }
        self.store(change).await
    }

    async fn store_work(&mut self) -> Result<(), Error> {
        let mut change = Change::of(&self.row.id);
        change.work(self.work.clone());
        self.store(change).await
    }

    async fn store(&mut self, change: Change) -> Result<(), Error> {
        match self.flush_with(change).await {
            true => Ok(()),
            false => Err(Error::internal(format!("A message to task {} could not be stored", self.row.id))),
        }
    }
}
