//! Event streams as responses, within bounds of size and silence.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use futures::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use transport::backlog::ClientBacklog;
use transport::limit::ConcurrencyPermit;
use transport::metrics::GaugeGuard;
use transport::sse::{self, SseFrame};

use super::Endpoint;
use crate::event::{NumberedEvent, TaskEvent};
use crate::service::{EventStream, StreamItem};
use crate::wire::{self, EventWriter};
use crate::{Error, ErrorKind};

impl Endpoint {
    /// The events of a task as server-sent events. The permit is held until the stream ends.
    pub(super) fn stream_response(
        &self,
        request: &wire::Request,
        events: EventStream,
        client: Option<Arc<ClientBacklog>>,
        permit: ConcurrencyPermit,
    ) -> Response<Body> {
        if request.notification {
            // Nobody reads the events, and the task goes on without a reader.
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return response;
        }
        let frames = TaskFrames {
            writer: EventWriter::new(request, events.task_id(), events.context_id()),
            limits: Limits::new(self.settings.stream_max_bytes, self.settings.stream_idle_timeout),
            events,
            is_over: false,
            _open: (permit, self.metrics.stream_opened()),
        };
        sse::response(frames, client, &self.closing)
    }
}

/// The frames of one stream.
struct TaskFrames {
    events: EventStream,
    writer: EventWriter,
    limits: Limits,
    is_over: bool,
    _open: (ConcurrencyPermit, GaugeGuard),
}

/// How long and how much a stream may be.
struct Limits {
    max_bytes: u64,
    bytes: u64,
    max_silence: Duration,
    last_event: Instant,
    /// Wakes the stream when it may have been silent for too long.
    silence: Pin<Box<Sleep>>,
    /// Whether the task waits for its client. That is no silence of the task.
    waits_for_client: bool,
}

impl Limits {
    fn new(max_bytes: u64, max_silence: Duration) -> Self {
        let now = Instant::now();
        let silence = Box::pin(sleep_until(now + max_silence));
        Self { max_bytes, bytes: 0, max_silence, last_event: now, silence, waits_for_client: false }
    }

    /// Takes note of an item.
    fn heard(&mut self, item: &StreamItem) {
        self.last_event = Instant::now();
        let state = match item {
            StreamItem::Snapshot(task) => Some(task.status.state),
            StreamItem::Event(event) => event.event.state(),
            StreamItem::Message(_) => None,
        };
        if let Some(state) = state {
            self.waits_for_client = state.is_interrupted();
        }
    }

    /// Counts the bytes of a frame; the error says that there are too many.
    fn count(&mut self, frame: &SseFrame) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(frame.data.len() as u64);
        if self.bytes <= self.max_bytes {
            return Ok(());
        }
        let message = format!("The stream has more than {} bytes; subscribe to the task to go on", self.max_bytes);
        Err(Error::new(ErrorKind::UnsupportedOperation, message))
    }

    /// Ready once the task was silent for too long.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        while self.silence.as_mut().poll(context).is_ready() {
            let quiet_since = if self.waits_for_client { Instant::now() } else { self.last_event };
            let deadline = quiet_since + self.max_silence;
            if deadline <= Instant::now() {
                let seconds = self.max_silence.as_secs();
                let message = format!("Nothing happened for {seconds} s; subscribe to the task to go on");
                return Poll::Ready(Error::new(ErrorKind::UnsupportedOperation, message));
            }
            self.silence.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl TaskFrames {
    /// An item as this client reads it; `None` if it says nothing to it.
    fn frame(&mut self, item: StreamItem) -> Option<SseFrame> {
        let (id, data) = match item {
            StreamItem::Snapshot(task) => (self.events.snapshot_seq(), self.writer.snapshot(&task)),
            StreamItem::Event(event) => (Some(event.seq), self.writer.event(&event)?),
            StreamItem::Message(message) => {
                let event = NumberedEvent { seq: 1, event: TaskEvent::Message(*message) };
                (None, self.writer.event(&event)?)
            }
        };
        Some(SseFrame { event: None, id: id.map(|id| id.to_string()), data: data.into() })
    }

    /// The last frame of a stream that ends early.
    fn fail(&mut self, error: &Error) -> SseFrame {
        self.is_over = true;
        SseFrame { event: Some("error"), id: None, data: self.writer.error(error).into() }
    }
}

impl Stream for TaskFrames {
    type Item = SseFrame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SseFrame>> {
        let this = &mut *self;
        while !this.is_over {
            match Pin::new(&mut this.events).poll_next(context) {
                Poll::Ready(None) => break,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(this.fail(&error))),
                Poll::Ready(Some(Ok(item))) => {
                    this.limits.heard(&item);
                    let Some(frame) = this.frame(item) else { continue };
                    let counted = this.limits.count(&frame);
                    return Poll::Ready(Some(counted.map_or_else(|error| this.fail(&error), |()| frame)));
                }
                Poll::Pending => {
                    return match this.limits.poll_silence(context) {
                        Poll::Ready(error) => Poll::Ready(Some(this.fail(&error))),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use api::JsonMap;

    use super::*;
    use crate::model::{TaskState, TaskStatus};

    fn status(state: TaskState) -> StreamItem {
        let status = TaskStatus { state, message: None, timestamp: api::now() };
        let event = TaskEvent::Status { status, metadata: JsonMap::new(), mark: None };
        StreamItem::Event(Arc::new(NumberedEvent { seq: 1, event }))
    }

    fn is_late(limits: &mut Limits) -> bool {
        limits.poll_silence(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_task_ends_its_stream_unless_it_waits_for_its_client() {
        let silence = Duration::from_secs(10);
        let mut limits = Limits::new(1, silence);
        assert!(!is_late(&mut limits));
        tokio::time::advance(silence * 2 / 3).await;
        limits.heard(&status(TaskState::Working));
        tokio::time::advance(silence * 2 / 3).await;
        assert!(!is_late(&mut limits), "an event came in between");
        limits.heard(&status(TaskState::InputRequired));
        tokio::time::advance(silence * 5).await;
        assert!(!is_late(&mut limits), "the client has to answer");
        limits.heard(&status(TaskState::Working));
        // Timers wake at the next millisecond.
        tokio::time::advance(silence + Duration::from_millis(1)).await;
        assert!(is_late(&mut limits));
    }

    #[tokio::test]
    async fn a_stream_has_a_bounded_number_of_bytes() {
        let mut limits = Limits::new(5, Duration::from_secs(10));
        let frame = SseFrame { event: None, id: None, data: "123".into() };
        assert!(limits.count(&frame).is_ok());
        assert!(limits.count(&frame).is_err());
    }
}
