//! The queue of outgoing messages. It is bounded: senders of updates wait while it is full, and text is appended to a
//! message that is still queued instead of becoming another one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::stream::Sink;
use crate::lock;

/// Queued bytes above which senders of updates wait.
const MAX_QUEUED_BYTES: usize = 128 << 10;
/// The longest text of one message; more text starts another message.
const MAX_APPENDED_TEXT: usize = 64 << 10;
/// Bytes taken from the queue for one write; text behind them can still be appended to.
const BATCH_BYTES: usize = 64 << 10;

/// A message that ends with a text, to which more can be appended while it is queued.
#[derive(Debug, Clone)]
pub struct AppendableMessage {
    /// The message up to the text. Messages with the same prefix may be merged.
    pub prefix: String,
    /// The text.
    pub text: String,
    /// The message after the text.
    pub suffix: &'static str,
}

#[derive(Debug)]
enum QueuedMessage {
    Line(Vec<u8>),
    Appendable(AppendableMessage),
    /// A key and a state; a newer state with the same key replaces it.
    Latest(String, Vec<u8>),
}

impl QueuedMessage {
    fn len(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Appendable(message) => message.prefix.len() + message.text.len() + message.suffix.len(),
            Self::Latest(key, line) => key.len() + line.len(),
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Line(line) | Self::Latest(_, line) => line,
            Self::Appendable(AppendableMessage { prefix, text, suffix }) => {
                let mut line = prefix.into_bytes();
                // Serialising a string cannot fail.
                let quoted = serde_json::to_string(&text).unwrap_or_else(|_| "\"\"".to_owned());
                line.extend_from_slice(quoted.as_bytes());
                line.extend_from_slice(suffix.as_bytes());
                line
            }
        }
    }
}

#[derive(Debug, Default)]
struct OutboxState {
    queue: VecDeque<QueuedMessage>,
    bytes: usize,
    closed: bool,
}

impl OutboxState {
    fn push(&mut self, message: QueuedMessage) {
        self.bytes += message.len();
        self.queue.push_back(message);
    }
}

/// The queue. Cheap to clone: clones share it.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<OutboxShared>);

#[derive(Debug, Default)]
struct OutboxShared {
    state: Mutex<OutboxState>,
    added: Notify,
    room: Notify,
}

impl Outbox {
    /// Adds a response or a request, without waiting for room. Their number is bounded elsewhere.
    pub fn push(&self, line: Vec<u8>) {
        self.add(|state| state.push(QueuedMessage::Line(line)));
    }

    /// Adds a message once there is room.
    pub async fn send(&self, line: Vec<u8>) {
        self.wait_for_room().await;
        self.push(line);
    }

    /// Adds text once there is room, to the last message if that has the same prefix.
    pub async fn append(&self, message: AppendableMessage) {
        self.wait_for_room().await;
        self.add(|state| match state.queue.back_mut() {
            Some(QueuedMessage::Appendable(last))
                if last.prefix == message.prefix && last.text.len() + message.text.len() <= MAX_APPENDED_TEXT =>
            {
                last.text.push_str(&message.text);
                state.bytes += message.text.len();
            }
            _ => state.push(QueuedMessage::Appendable(message)),
        });
    }

    /// Adds a state once there is room, in place of an older one with the same key that is still queued.
    pub async fn replace(&self, key: String, line: Vec<u8>) {
        self.wait_for_room().await;
        self.add(|state| {
            let same =
                |message: &&mut QueuedMessage| matches!(message, QueuedMessage::Latest(other, _) if *other == key);
            match state.queue.iter_mut().find(same) {
                Some(QueuedMessage::Latest(_, old)) => {
                    state.bytes = state.bytes + line.len() - old.len();
                    *old = line;
                }
                _ => state.push(QueuedMessage::Latest(key, line)),
            }
        });
    }

    /// Refuses further messages; queued ones are still written.
    pub fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.added.notify_one();
        self.0.room.notify_waiters();
    }

    /// Bytes in the queue.
    #[cfg(test)]
    pub fn queued_bytes(&self) -> usize {
        lock(&self.0.state).bytes
    }

    fn add(&self, change: impl FnOnce(&mut OutboxState)) {
        let mut state = lock(&self.0.state);
        if !state.closed {
            change(&mut state);
            drop(state);
            self.0.added.notify_one();
        }
    }

    async fn wait_for_room(&self) {
        loop {
            let notified = self.0.room.notified();
            {
                let state = lock(&self.0.state);
                if state.closed || state.bytes < MAX_QUEUED_BYTES {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Waits for the next messages; `None` once the outbox is closed and empty.
    async fn next_batch(&self) -> Option<Vec<Vec<u8>>> {
        loop {
            {
                let mut state = lock(&self.0.state);
                let mut batch = Vec::new();
                let mut bytes = 0;
                while bytes < BATCH_BYTES
                    && let Some(message) = state.queue.pop_front()
                {
                    bytes += message.len();
                    batch.push(message.bytes());
                }
                state.bytes -= bytes;
                if !batch.is_empty() {
                    drop(state);
                    self.0.room.notify_waiters();
                    return Some(batch);
                }
                if state.closed {
                    return None;
                }
            }
            self.0.added.notified().await;
        }
    }
}

/// Writes queued messages until the outbox is closed and empty, or the peer is gone.
pub async fn write(outbox: Outbox, mut sink: impl Sink) {
    while let Some(batch) = outbox.next_batch().await {
        if let Err(error) = sink.send(batch).await {
            tracing::debug!(%error, "cannot write to the other side any more");
            break;
        }
    }
    outbox.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(prefix: &str, text: &str) -> AppendableMessage {
        AppendableMessage { prefix: prefix.into(), text: text.into(), suffix: "}" }
    }

    async fn lines(outbox: &Outbox) -> Vec<String> {
        outbox.close();
        let mut lines = Vec::new();
        while let Some(batch) = outbox.next_batch().await {
            lines.extend(batch.into_iter().map(|line| String::from_utf8(line).unwrap()));
        }
        lines
    }

    #[tokio::test]
    async fn text_is_appended_only_to_the_last_message_with_the_same_prefix() {
        let outbox = Outbox::default();
        for (prefix, text) in [("a", "1"), ("a", "\"2"), ("b", "3"), ("a", "4")] {
            outbox.append(message(prefix, text)).await;
        }
        outbox.push(b"x".to_vec());
        outbox.append(message("a", "5")).await;
        assert_eq!(lines(&outbox).await, ["a\"1\\\"2\"}", "b\"3\"}", "a\"4\"}", "x", "a\"5\"}"]);
    }

    #[tokio::test]
    async fn a_newer_state_replaces_the_older() {
        let outbox = Outbox::default();
        outbox.replace("k".into(), b"one".to_vec()).await;
        outbox.send(b"x".to_vec()).await;
        outbox.replace("k".into(), b"two".to_vec()).await;
        outbox.replace("l".into(), b"three".to_vec()).await;
        assert_eq!(lines(&outbox).await, ["two", "x", "three"]);
    }

    #[tokio::test]
    async fn senders_wait_while_it_is_full_but_responses_do_not() {
        let outbox = Outbox::default();
        outbox.send(vec![b'x'; MAX_QUEUED_BYTES]).await;
        let more = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.send(b"late".to_vec()).await }
        });
        outbox.push(b"answer".to_vec());
        tokio::task::yield_now().await;
        assert!(!more.is_finished() && outbox.queued_bytes() == MAX_QUEUED_BYTES + 6);
        outbox.next_batch().await.unwrap();
        more.await.unwrap();
        assert_eq!(lines(&outbox).await, ["answer", "late"]);
    }

    #[tokio::test]
    async fn queued_text_stays_bounded_while_the_reader_stalls() {
        let outbox = Outbox::default();
        let writer = tokio::spawn({
            let outbox = outbox.clone();
            async move {
                for _ in 0..1_000_000 {
                    outbox.append(message("a", "some text ")).await;
                }
            }
        });
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert!(!writer.is_finished());
        assert!(outbox.queued_bytes() <= MAX_QUEUED_BYTES + MAX_APPENDED_TEXT, "{}", outbox.queued_bytes());
        writer.abort();
    }
}
