//! Server-sent events: framing, and sending them no faster than the client reads.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::backlog::{Backlog, ClientBacklog};

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

/// How often a comment is sent while nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// An event of a stream.
#[derive(Debug, Clone, Default)]
pub struct SseFrame {
    /// Its type.
    pub event: Option<&'static str>,
    /// Its id, without line ends.
    pub id: Option<String>,
    /// Its data. Each line of it becomes a line of the event.
    pub data: Bytes,
}

/// A response that sends events no faster than the client reads, with comments while nothing happens. Without a client
/// nobody else counts what waits.
pub fn response(
    frames: impl Stream<Item = SseFrame> + Send + 'static,
    client: Option<Arc<ClientBacklog>>,
    closing: &CancellationToken,
) -> Response<Body> {
    let client = client.unwrap_or_else(|| Backlog::default().add_client());
    let mut output = SseOutput::new(client, closing, HEARTBEAT);
    output.push(COMMENT);
    let mut response = Response::new(Body::from_stream(FrameStream { frames: Box::pin(frames), output }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must pass each event on at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct FrameStream {
    frames: Pin<Box<dyn Stream<Item = SseFrame> + Send>>,
    output: SseOutput,
}

impl FrameStream {
    /// Takes what is ready; the source wakes the stream later for the rest.
    fn fill(&mut self, context: &mut Context<'_>) {
        while self.output.has_room() {
            match self.frames.as_mut().poll_next(context) {
                Poll::Ready(Some(frame)) => frame.write(&mut self.output),
                Poll::Ready(None) => self.output.finish(),
                Poll::Pending => break,
            }
        }
        if self.output.poll_tick(context) {
            self.output.push(COMMENT);
        }
        self.output.flush(context);
    }
}

impl Stream for FrameStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.output.is_drained() {
            self.fill(context);
        }
        self.output.poll_send(context)
    }
}

impl SseFrame {
    fn write(&self, output: &mut SseOutput) {
        if let Some(event) = self.event {
            [b"event: ", event.as_bytes(), b"\n"].into_iter().for_each(|piece| output.push(piece));
        }
        if let Some(id) = &self.id {
            [b"id: ", id.as_bytes(), b"\n"].into_iter().for_each(|piece| output.push(piece));
        }
        for line in self.data.split(|byte| *byte == b'\n') {
            [b"data: ", line, b"\n"].into_iter().for_each(|piece| output.push(piece));
        }
        output.push(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;

    use super::*;

    fn frame(id: u32, data: &'static str) -> SseFrame {
        SseFrame { event: None, id: Some(id.to_string()), data: Bytes::from_static(data.as_bytes()) }
    }

    async fn text(response: Response<Body>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn events_are_framed_and_end_with_the_source() {
        let error = SseFrame { event: Some("error"), id: None, data: Bytes::from_static(b"two\nlines") };
        let frames = futures::stream::iter([frame(1, "{}"), frame(2, ""), error]);
        let response = response(frames, None, &CancellationToken::new());
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream; charset=utf-8");
        let want = ":\n\nid: 1\ndata: {}\n\nid: 2\ndata: \n\nevent: error\ndata: two\ndata: lines\n\n";
        assert_eq!(text(response).await, want);
    }

    #[tokio::test(start_paused = true)]
    async fn comments_keep_a_silent_stream_open() {
        let (sender, receiver) = mpsc::unbounded_channel::<SseFrame>();
        let frames = futures::stream::unfold(receiver, |mut from| async { Some((from.recv().await?, from)) });
        let mut body = response(frames, None, &CancellationToken::new()).into_body();
        let began = Instant::now();
        for expected in [0, 15, 30] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), COMMENT);
            assert_eq!(began.elapsed().as_secs(), expected);
        }
        sender.send(frame(7, "x")).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "id: 7\ndata: x\n\n");
        drop(sender);
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_are_made_no_faster_than_the_client_reads() {
        let client = Backlog::default().add_client();
        let mut body =
            response(futures::stream::repeat(frame(1, "x")), Some(client.clone()), &CancellationToken::new())
                .into_body()
                .into_data_stream();
        let first = body.next().await.unwrap().unwrap();
        assert!((CHUNK_BYTES..2 * CHUNK_BYTES).contains(&first.len()), "{}", first.len());
        // It takes nothing: no second chunk is made.
        let waiting = client.hold(first.len());
        assert!(body.next().now_or_never().is_none());
        drop(waiting);
        assert!(body.next().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_server_that_stops_cuts_its_streams() {
        let closing = CancellationToken::new();
        let mut body = response(futures::stream::pending(), None, &closing).into_body();
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().now_or_never().is_none());
        closing.cancel();
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
    }
}
