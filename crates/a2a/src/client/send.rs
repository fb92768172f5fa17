//! Sends a message and waits for the answer.

use tokio::time::Instant;
use url::Url;

use super::follow::{Follower, Until};
use super::view::{Change, TaskView, TextTooLarge};
use super::{ClientError, Peer, StreamItem};
use crate::call::SendRequest;

/// The answer to a message, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The latest event.
    pub latest: Option<StreamItem>,
    /// What all events tell.
    pub view: TaskView,
}

impl Answer {
    /// Takes an event in and returns what is new.
    pub(super) fn take(&mut self, item: StreamItem, url: &Url) -> Result<Vec<Change>, ClientError> {
        let too_large = |TextTooLarge| ClientError::TooLarge { url: url.to_string(), what: TextTooLarge.to_string() };
        let changes = self.view.apply(&item).map_err(too_large)?;
        self.latest = Some(item);
        Ok(changes)
    }
}

impl Peer {
    /// Sends a message and waits for the answer: first by a stream, which is continued if it breaks off. Where the options
    /// say so, a task that still runs when the stream ends is then read again and again until it ends or needs its client.
    pub async fn send(&self, request: SendRequest) -> Result<Answer, ClientError> {
        let polling = self.options().polling;
        let mut follower = Follower::of_message(self, request, Until::StreamEnds);
        let mut failure = None;
        while let Some(changes) = follower.next().await {
            match changes {
                Ok(_) if follower.view().is_settled() => break,
                Ok(_) => {}
                // Its task may still be read.
                Err(error) if error.is_transient() && polling.enabled && follower.view().task_id().is_some() => {
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let mut answer = follower.into_answer();
        if polling.enabled {
            self.poll(&mut answer, failure).await?;
        }
        if answer.latest.is_none() {
            let why = "the stream ended without an event".to_owned();
            return Err(ClientError::Malformed { url: self.url().to_string(), why });
        }
        Ok(answer)
    }

    /// Reads the task of an answer until it ends, needs its client, or the time is over.
    async fn poll(&self, answer: &mut Answer, mut failure: Option<ClientError>) -> Result<(), ClientError> {
        let polling = self.options().polling;
        let deadline = Instant::now() + polling.timeout;
        let mut interval = polling.first();
        while !answer.view.is_settled() {
            let Some(id) = answer.view.task_id().map(str::to_owned) else { break };
            if Instant::now() + interval > deadline {
                // The last event says how far the task is, unless it is not known at all.
                return failure.map_or(Ok(()), Err);
            }
            tokio::time::sleep(interval).await;
            interval = polling.after(interval);
            match self.get_task(&id, None).await {
                Ok(task) => {
                    failure = None;
                    answer.take(StreamItem::Task(Box::new(task)), self.url())?;
                }
                Err(error) if error.is_transient() => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
