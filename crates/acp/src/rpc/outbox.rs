//! What waits to be written. It is bounded: whoever adds updates waits while it is full, and text that is still waiting
//! grows in place instead of becoming another message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::stream::Sink;
use crate::lock;

/// Bytes that may wait before whoever adds an update waits as well.
const MAX_WAITING: usize = 128 << 10;
/// The longest text that grows in one message; what comes then begins another one.
const MAX_GROWN: usize = 64 << 10;
/// Bytes that are written at once: what is behind them can still grow.
const BATCH: usize = 64 << 10;

/// A message with a text in it that may grow while it waits.
#[derive(Debug, Clone)]
pub struct Growing {
    /// The message up to the text. Messages that are equal up to here may become one.
    pub before: String,
    /// The text.
    pub text: String,
    /// The message behind the text.
    pub after: &'static str,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    Growing(Growing),
    /// A state that a newer one replaces.
    Latest(String, Vec<u8>),
}

impl Entry {
    fn len(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Growing(growing) => growing.before.len() + growing.text.len() + growing.after.len(),
            Self::Latest(key, line) => key.len() + line.len(),
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Line(line) | Self::Latest(_, line) => line,
            Self::Growing(Growing { before, text, after }) => {
                let mut line = before.into_bytes();
                // A string cannot fail to be written as JSON.
                let quoted = serde_json::to_string(&text).unwrap_or_else(|_| "\"\"".to_owned());
                line.extend_from_slice(quoted.as_bytes());
                line.extend_from_slice(after.as_bytes());
                line
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Entry>,
    bytes: usize,
    closed: bool,
}

impl State {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.len();
        self.queue.push_back(entry);
    }
}

/// The queue. A handle: clones share it.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
    room: Notify,
}

impl Outbox {
    /// Adds a message that the other side waits for: answers and questions. How many there are is bounded elsewhere.
    pub fn push(&self, line: Vec<u8>) {
        self.add(|state| state.push(Entry::Line(line)));
    }

    /// Adds a message when there is room.
    pub async fn send(&self, line: Vec<u8>) {
        self.room().await;
        self.push(line);
    }

    /// Adds text when there is room; it joins the last message if that is the same up to the text.
    pub async fn grow(&self, growing: Growing) {
        self.room().await;
        self.add(|state| match state.queue.back_mut() {
            Some(Entry::Growing(last))
                if last.before == growing.before && last.text.len() + growing.text.len() <= MAX_GROWN =>
            {
                last.text.push_str(&growing.text);
                state.bytes += growing.text.len();
            }
            _ => state.push(Entry::Growing(growing)),
        });
    }

    /// Adds a state when there is room; it takes the place of an older one with the same key that still waits.
    pub async fn replace(&self, key: String, line: Vec<u8>) {
        self.room().await;
        self.add(|state| {
            let same = |entry: &&mut Entry| matches!(entry, Entry::Latest(other, _) if *other == key);
            match state.queue.iter_mut().find(same) {
                Some(Entry::Latest(_, old)) => {
                    state.bytes = state.bytes + line.len() - old.len();
                    *old = line;
                }
                _ => state.push(Entry::Latest(key, line)),
            }
        });
    }

    /// Nothing is added any more; what is there is still written.
    pub fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.news.notify_one();
        self.0.room.notify_waiters();
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        lock(&self.0.state).bytes
    }

    fn add(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0.state);
        if !state.closed {
            change(&mut state);
            drop(state);
            self.0.news.notify_one();
        }
    }

    async fn room(&self) {
        loop {
            let notified = self.0.room.notified();
            {
                let state = lock(&self.0.state);
                if state.closed || state.bytes < MAX_WAITING {
                    return;
                }
            }
            notified.await;
        }
    }

    /// The next messages; nothing at the end.
    async fn batch(&self) -> Option<Vec<Vec<u8>>> {
        loop {
            {
                let mut state = lock(&self.0.state);
                let mut batch = Vec::new();
                let mut bytes = 0;
                while bytes < BATCH
                    && let Some(entry) = state.queue.pop_front()
                {
                    bytes += entry.len();
                    batch.push(entry.bytes());
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
            self.0.news.notified().await;
        }
    }
}

/// Writes what comes, until the outbox is closed and empty, or the other side is gone.
pub async fn write(outbox: Outbox, mut sink: impl Sink) {
    while let Some(batch) = outbox.batch().await {
        if let Err(error) = sink.send(batch).await {
            tracing::debug!(%error, "the other side cannot be written to any more");
            break;
        }
    }
    outbox.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(before: &str, text: &str) -> Growing {
        Growing { before: before.into(), text: text.into(), after: "}" }
    }

    async fn lines(outbox: &Outbox) -> Vec<String> {
        outbox.close();
        let mut lines = Vec::new();
        while let Some(batch) = outbox.batch().await {
            lines.extend(batch.into_iter().map(|line| String::from_utf8(line).unwrap()));
        }
        lines
    }

    #[tokio::test]
    async fn waiting_text_grows_only_beside_its_like() {
        let outbox = Outbox::default();
        for (before, text) in [("a", "1"), ("a", "\"2"), ("b", "3"), ("a", "4")] {
            outbox.grow(growing(before, text)).await;
        }
        outbox.push(b"x".to_vec());
        outbox.grow(growing("a", "5")).await;
        assert_eq!(lines(&outbox).await, ["a\"1\\\"2\"}", "b\"3\"}", "a\"4\"}", "x", "a\"5\"}"]);
    }

    #[tokio::test]
    async fn a_newer_state_takes_the_place_of_the_older() {
        let outbox = Outbox::default();
        outbox.replace("k".into(), b"one".to_vec()).await;
        outbox.send(b"x".to_vec()).await;
        outbox.replace("k".into(), b"two".to_vec()).await;
        outbox.replace("l".into(), b"three".to_vec()).await;
        assert_eq!(lines(&outbox).await, ["two", "x", "three"]);
    }

    #[tokio::test]
    async fn whoever_adds_waits_while_it_is_full_but_answers_do_not() {
        let outbox = Outbox::default();
        outbox.send(vec![b'x'; MAX_WAITING]).await;
        let more = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.send(b"late".to_vec()).await }
        });
        outbox.push(b"answer".to_vec());
        tokio::task::yield_now().await;
        assert!(!more.is_finished() && outbox.waiting() == MAX_WAITING + 6);
        outbox.batch().await.unwrap();
        more.await.unwrap();
        assert_eq!(lines(&outbox).await, ["answer", "late"]);
    }

    #[tokio::test]
    async fn text_of_a_stalled_reader_stays_within_bounds() {
        let outbox = Outbox::default();
        let writer = tokio::spawn({
            let outbox = outbox.clone();
            async move {
                for _ in 0..1_000_000 {
                    outbox.grow(growing("a", "some text ")).await;
                }
            }
        });
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert!(!writer.is_finished());
        assert!(outbox.waiting() <= MAX_WAITING + MAX_GROWN, "{}", outbox.waiting());
        writer.abort();
    }
}
