//! Server-sent events: framing, and sending them no faster than the client reads.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::backlog::ClientBacklog;

/// The header of a client that reconnects: the id of the last event that it has seen.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A comment, which readers skip: sent first so that proxies let the response through, and while nothing happens.
pub const COMMENT: &[u8] = b":\n\n";

/// Small frames are joined up to this size. A stalled client holds one such chunk, with one more waiting behind it.
const CHUNK_BYTES: usize = 16 << 10;

/// A client that takes nothing for this long is disconnected.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The id of the last event that a reconnecting client has seen.
pub fn last_event_id(request: &HeaderMap) -> Option<&str> {
    request.get(&LAST_EVENT_ID).and_then(|id| id.to_str().ok())
}

/// How a stream ends: with an error, after which clients reconnect, or as planned, after which many do not.
#[derive(Debug, Clone, Copy)]
enum StreamEnd {
    Planned,
    Error(&'static str),
}

/// The sending half of an event stream: what is ready for one client, in chunks that it has to take one by one.
///
/// A stream that owns it fills it while [`is_drained`](Self::is_drained) and [`has_room`](Self::has_room), then calls
/// [`flush`](Self::flush), then returns what [`poll_send`](Self::poll_send) returns.
#[derive(Debug)]
pub struct SseOutput {
    client: Arc<ClientBacklog>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    tick: Interval,
    stall_timeout: Duration,
    /// Small frames, joined.
    buffer: Vec<u8>,
    /// Chunks to send, in order.
    chunks: VecDeque<Bytes>,
    end: Option<StreamEnd>,
}

impl SseOutput {
    /// The output to a client, until the server stops. It ticks at this interval.
    pub fn new(client: Arc<ClientBacklog>, closing: &CancellationToken, interval: Duration) -> Self {
        let mut tick = tokio::time::interval_at(Instant::now() + interval, interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client,
            closing: Box::pin(closing.clone().cancelled_owned()),
            tick,
            stall_timeout: STALL_TIMEOUT,
            buffer: Vec::new(),
            chunks: VecDeque::new(),
            end: None,
        }
    }

    /// Adds bytes to the current chunk.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Adds bytes that are sent from where they are, without a copy.
    pub fn push_shared(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        self.join_buffer();
        self.chunks.extend(pieces);
    }

    /// Ends the stream as planned, after what was added.
    pub fn finish(&mut self) {
        self.end = Some(StreamEnd::Planned);
    }

    /// Breaks the stream off after what was added, so that the client reconnects.
    pub fn cut(&mut self, why: &'static str) {
        self.end = Some(StreamEnd::Error(why));
    }

    /// Whether more can be added now.
    pub fn has_room(&self) -> bool {
        self.end.is_none() && self.buffer.len() < CHUNK_BYTES && self.chunks.is_empty()
    }

    /// Whether everything was handed on and more may come.
    pub fn is_drained(&self) -> bool {
        self.end.is_none() && self.chunks.is_empty()
    }

    /// Whether the interval has passed since the last tick. Wakes the stream at the next one.
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> bool {
        if self.end.is_some() {
            return false;
        }
        let is_due = self.tick.poll_tick(context).is_ready();
        if is_due {
            // A tick that was due registers no waker, so poll again.
            let _ = self.tick.poll_tick(context);
        }
        is_due
    }

    /// Makes a chunk of what was added, and ends the stream if the server stops.
    pub fn flush(&mut self, context: &mut Context<'_>) {
        if self.end.is_none() && self.closing.as_mut().poll(context).is_ready() {
            self.cut("the server stops");
        }
        self.join_buffer();
    }

    /// The next chunk, if the client has taken everything before it.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if !self.chunks.is_empty() {
            // One chunk at a time: what waits here may be shared with others, what waits in the connection is not.
            if self.client.poll_drained(context).is_ready() {
                return Poll::Ready(self.chunks.pop_front().map(Ok));
            }
            if !self.should_close(context) {
                return Poll::Pending;
            }
            self.chunks.clear();
            self.cut("the client reads too slowly, or the server stops");
        }
        match self.end {
            None => Poll::Pending,
            Some(StreamEnd::Planned) => Poll::Ready(None),
            Some(StreamEnd::Error(why)) => {
                self.end = Some(StreamEnd::Planned);
                tracing::debug!(why, "closing an event stream");
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::ConnectionReset, why))))
            }
        }
    }

    fn join_buffer(&mut self) {
        if !self.buffer.is_empty() {
            self.chunks.push_back(std::mem::take(&mut self.buffer).into());
        }
    }

    /// Whether the client has stalled for too long, or the server stops.
    fn should_close(&mut self, context: &mut Context<'_>) -> bool {
        let is_late = self.tick.poll_tick(context).is_ready() && self.client.stalled_for() > self.stall_timeout;
        // A tick that was due registers no waker, so poll again.
        let _ = self.tick.poll_tick(context);
        is_late || self.closing.as_mut().poll(context).is_ready()
    }
}

/// An event of a stream.
#[derive(Debug, Clone, Default)]
pub struct SseFrame {
    /// Its type.
    pub event: Option<&'static str>,
    /// Its id.
    pub id: Option<String>,
    /// Its data, without line ends.
    pub data: Bytes,
}

/// A response that sends events no faster than the client reads, with comments while nothing happens.
pub fn response(
    frames: impl futures::Stream<Item = SseFrame> + Send + 'static,
    client: Option<Arc<ClientBacklog>>,
    closing: &CancellationToken,
) -> axum::http::Response<axum::body::Body> {
    let _ = (Box::pin(frames), client, closing);
    unimplemented!()
}
