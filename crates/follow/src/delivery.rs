//! What a feed has delivered: whoever waits for an answer learns here that everything before its end was shown.

use std::sync::Arc;
use std::time::Duration;

use api::{EventBody, Message, MessageId, SessionId};
use indexmap::IndexSet;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::stored::{MAX_MESSAGES, Stored};

/// How long the events of an answer may take to arrive. A server sends them over another connection than the answer.
const LATE_EVENTS: Duration = Duration::from_secs(2);
/// How long reading the stored state instead may take.
const READ_WAIT: Duration = Duration::from_secs(10);
/// The most answers that are remembered: more than are read again after a gap.
const MAX_ANSWERS: usize = MAX_MESSAGES + 56;

/// Which answers of a session were delivered to their end. Pure: items go in, and count once the next is asked for.
#[derive(Debug, Default)]
pub struct Delivery {
    /// The answers that were delivered, oldest first.
    answers: IndexSet<MessageId>,
    /// Those that are in the consumer's hands.
    handed: Vec<MessageId>,
    /// Whether the consumer has an item in its hands.
    is_busy: bool,
    /// How often the stored state was delivered.
    reads: u64,
    /// Whether the stored state is in the consumer's hands.
    read_handed: bool,
}

impl Delivery {
    /// Records that the consumer gets an event of its feed.
    pub fn hand_event(&mut self, session: &SessionId, event: &EventBody) {
        self.is_busy = true;
        if let EventBody::MessageUpdated { session_id, info } = event
            && session_id == session
        {
            self.handed.extend(finished(info));
        }
    }

    /// Records that the consumer gets the stored state; `None` if it could not be read.
    pub fn hand_stored(&mut self, stored: Option<&Stored>) {
        self.is_busy = true;
        self.read_handed = true;
        self.handed.extend(stored.iter().flat_map(|stored| &stored.messages).filter_map(|m| finished(&m.info)));
    }

    /// Records that the consumer asks for the next item. Returns whether that makes a difference to who waits.
    pub fn take(&mut self) -> bool {
        self.is_busy = false;
        let read = std::mem::take(&mut self.read_handed);
        self.reads += u64::from(read);
        let handed = std::mem::take(&mut self.handed);
        let is_news = read || !handed.is_empty();
        self.answers.extend(handed);
        if self.answers.len() > MAX_ANSWERS {
            self.answers.drain(..self.answers.len() - MAX_ANSWERS);
        }
        is_news
    }

    /// The newest answers that were delivered to their end, oldest first.
    pub fn answers(&self) -> &IndexSet<MessageId> {
        &self.answers
    }

    /// Whether an answer was delivered to its end.
    pub fn has(&self, answer: &MessageId) -> bool {
        self.answers.contains(answer)
    }
}

fn finished(info: &Message) -> Option<MessageId> {
    let answer = info.as_assistant().filter(|answer| answer.time.completed.is_some())?;
    Some(answer.id.clone())
}

/// Waits for what a [`Feed`](crate::Feed) delivers.
#[derive(Debug, Clone)]
pub struct FeedHandle {
    pub(crate) delivery: watch::Receiver<Delivery>,
    pub(crate) read_again: Arc<Notify>,
}

impl FeedHandle {
    /// Waits until the feed has delivered an answer to its end. If its events do not come, the feed delivers the stored
    /// state instead. Returns early if the feed ends.
    pub async fn delivered(&self, answer: &MessageId) {
        self.delivered_within(answer, LATE_EVENTS, READ_WAIT).await;
    }

    async fn delivered_within(&self, answer: &MessageId, events: Duration, read: Duration) {
        if self.wait(events, |delivery| delivery.has(answer)).await {
            return;
        }
        let reads = self.delivery.borrow().reads;
        self.read_again.notify_one();
        if !self.wait(read, |delivery| delivery.has(answer) || delivery.reads > reads).await {
            tracing::warn!(%answer, "the events of an answer did not arrive, and it could not be read");
        }
    }

    /// Waits until this holds, or the feed ends. Returns false if it takes too long, which the consumer may: the time
    /// counts only while it waits for the feed.
    async fn wait(&self, limit: Duration, holds: impl Fn(&Delivery) -> bool) -> bool {
        let mut delivery = self.delivery.clone();
        let mut deadline = Instant::now() + limit;
        loop {
            if holds(&delivery.borrow_and_update()) {
                return true;
            }
            match timeout_at(deadline, delivery.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return true,
                Err(_) if delivery.borrow().is_busy => deadline = Instant::now() + limit,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
