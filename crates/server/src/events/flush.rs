//! Delays the response of a turn until the open event streams have written the turn's events. A client may exit with the
//! response, as `opencode run --attach` does, and would never read what is written a moment later.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::coop::has_budget_remaining;
use tokio::time::timeout;

/// The longest that a response waits for the streams.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// How many responses may wait for one stream. A stream that takes none of them is stalled, and no further response waits
/// for it.
const MAX_WAITING: usize = 4;

/// Held by each stream that a response waits for; the response goes out when the last one is dropped.
type FlushToken = Sender<Infallible>;

/// The event streams that are open.
#[derive(Debug, Default)]
pub struct OpenStreams(Mutex<Vec<Sender<FlushToken>>>);

impl OpenStreams {
    /// Registers a stream.
    pub fn register(&self) -> StreamHandle {
        let (sender, tokens) = mpsc::channel(MAX_WAITING);
        let mut streams = self.lock();
        streams.retain(|stream| !stream.is_closed());
        streams.push(sender);
        StreamHandle { tokens, pending: Vec::new(), is_drained: false }
    }

    /// Waits until every stream has written what was published before this call.
    pub async fn flush(&self) {
        let (token, mut released) = mpsc::channel(1);
        self.lock().retain(|stream| !matches!(stream.try_send(token.clone()), Err(TrySendError::Closed(_))));
        drop(token);
        if timeout(FLUSH_TIMEOUT, released.recv()).await.is_err() {
            tracing::debug!("answering a turn while an event stream is behind");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sender<FlushToken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's side. The stream reports when it is polled, and whether it had anything.
#[derive(Debug)]
pub struct StreamHandle {
    tokens: Receiver<FlushToken>,
    /// Tokens that arrived before the stream last looked for events.
    pending: Vec<FlushToken>,
    /// Whether it found none.
    is_drained: bool,
}

impl StreamHandle {
    /// Call when the stream is polled, before it looks for events.
    pub fn before_poll(&mut self, context: &mut Context<'_>) {
        // A connection writes out what it has when its stream is drained, before it polls again.
        if self.is_drained {
            self.pending.clear();
        }
        while let Poll::Ready(Some(token)) = self.tokens.poll_recv(context) {
            self.pending.push(token);
        }
    }

    /// Call after the stream has looked for events.
    pub fn after_poll(&mut self, is_drained: bool, context: &mut Context<'_>) {
        // A task without budget finds nothing, even if frames wait.
        self.is_drained = is_drained && has_budget_remaining();
        if is_drained && !self.pending.is_empty() {
            context.waker().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Instant;

    use futures::poll;
    use futures::task::noop_waker_ref;

    use super::*;

    #[tokio::test]
    async fn a_response_waits_until_earlier_events_are_written() {
        let streams = OpenStreams::default();
        streams.flush().await;
        let mut handle = streams.register();
        let mut context = Context::from_waker(noop_waker_ref());
        handle.before_poll(&mut context);
        // An event and a response arrive between these two calls.
        let mut flushed = pin!(streams.flush());
        assert!(poll!(&mut flushed).is_pending());
        handle.after_poll(true, &mut context);
        handle.before_poll(&mut context);
        assert!(poll!(&mut flushed).is_pending(), "it arrived after the last poll");
        handle.after_poll(false, &mut context);
        handle.before_poll(&mut context);
        assert!(poll!(&mut flushed).is_pending(), "there may be more");
        handle.after_poll(true, &mut context);
        assert!(poll!(&mut flushed).is_pending(), "it is about to be written");
        handle.before_poll(&mut context);
        assert!(poll!(&mut flushed).is_ready());
    }

    #[tokio::test]
    async fn responses_soon_stop_waiting_for_a_stalled_stream() {
        let streams = OpenStreams::default();
        let (_stalled, closed) = (streams.register(), streams.register());
        drop(closed);
        for _ in 0..MAX_WAITING {
            let started = Instant::now();
            streams.flush().await;
            assert!(started.elapsed() >= FLUSH_TIMEOUT);
        }
        assert!(poll!(pin!(streams.flush())).is_ready());
    }
}
