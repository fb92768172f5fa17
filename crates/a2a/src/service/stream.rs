//! The events of a task as a stream: from its log, then as they happen.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::HostError;
use futures::Stream;
use futures::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use super::Inner;
use super::live::{EVENT_PAGE, LiveTask, Published, Tail};
use crate::event::NumberedEvent;
use crate::model::{Message, Task};
use crate::{Error, ErrorKind};

/// An item of a stream.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// The task as it is, in place of the events before.
    Snapshot(Box<Task>),
    /// An event.
    Event(Arc<NumberedEvent>),
    /// A message instead of a task; the only item of its stream.
    Message(Box<Message>),
}

/// The streams that are open at the same time, where the agent runtime limits them.
pub(super) struct Streams(Option<Arc<Semaphore>>);

/// One of them, until it is dropped.
pub(super) struct StreamPlace(
    #[expect(dead_code, reason = "dropping it frees the place")] Option<OwnedSemaphorePermit>,
);

impl Streams {
    /// At most this many; 0 means any number.
    pub(super) fn new(limit: usize) -> Self {
        Self((limit > 0).then(|| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)))))
    }

    /// Takes a place, or fails at once.
    pub(super) fn enter(&self) -> Result<StreamPlace, HostError> {
        let Some(places) = &self.0 else { return Ok(StreamPlace(None)) };
        let permit = places.clone().try_acquire_owned().map_err(|_| {
            HostError::Overloaded(
                "All streams of OPENCODE_MAX_CONCURRENT_STREAMS are in use; try again later".to_owned(),
            )
        })?;
        Ok(StreamPlace(Some(permit)))
    }
}

impl StreamPlace {
    /// A place for what ends at once.
    pub(super) fn unlimited() -> Self {
        Self(None)
    }
}

/// The events of a task.
pub struct EventStream {
    task: String,
    context: String,
    snapshot_seq: Option<u64>,
    is_over: bool,
    items: BoxStream<'static, Result<StreamItem, Error>>,
}

impl EventStream {
    /// The task.
    pub fn task_id(&self) -> &str {
        &self.task
    }

    /// Its context.
    pub fn context_id(&self) -> &str {
        &self.context
    }

    /// The number of the last event that the snapshot contains, if the stream begins with one.
    pub fn snapshot_seq(&self) -> Option<u64> {
        self.snapshot_seq
    }

    /// Whether the task had ended when the stream was opened.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// A message alone.
    pub(super) fn of_message(message: Message) -> Self {
        let (task, context) = (String::new(), message.context_id.clone().unwrap_or_default());
        let items = futures::stream::iter([Ok(StreamItem::Message(Box::new(message)))]);
        Self { task, context, snapshot_seq: None, is_over: true, items: Box::pin(items) }
    }

    /// The stored task alone.
    pub(super) fn of_ended(task: Task, seq: u64) -> Self {
        let (id, context) = (task.id.clone(), task.context_id.clone());
        let items = futures::stream::iter([Ok(StreamItem::Snapshot(Box::new(task)))]);
        Self { task: id, context, snapshot_seq: Some(seq), is_over: true, items: Box::pin(items) }
    }

    /// The events of a task after a number, from its log and then as they happen. With a snapshot, that comes first.
    pub(super) fn follow(
        inner: Arc<Inner>,
        live: Arc<LiveTask>,
        after: u64,
        snapshot: Option<Task>,
        place: StreamPlace,
    ) -> Self {
        let (task, context) = (live.id.clone(), live.context.clone());
        let snapshot_seq = snapshot.as_ref().map(|_| after);
        let is_over = live.state().is_terminal() && live.snapshot().1 <= after;
        inner.metrics.stream_opened();
        let follower = Follower {
            progress: live.progress(),
            deadline: Instant::now() + inner.settings.stream_max_duration,
            ready: snapshot.map(|task| Ok(StreamItem::Snapshot(Box::new(task)))).into_iter().collect(),
            position: after,
            is_done: false,
            live,
            inner,
            _place: place,
        };
        let items = futures::stream::unfold(follower, |mut follower| async move {
            follower.next().await.map(|item| (item, follower))
        });
        Self { task, context, snapshot_seq, is_over, items: Box::pin(items) }
    }
}

impl Stream for EventStream {
    type Item = Result<StreamItem, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.as_mut().poll_next(context)
    }
}

/// Reads events for one stream, no faster than it is read itself.
struct Follower {
    inner: Arc<Inner>,
    live: Arc<LiveTask>,
    progress: watch::Receiver<Published>,
    deadline: Instant,
    ready: VecDeque<Result<StreamItem, Error>>,
    /// The number of the last event that was read.
    position: u64,
    is_done: bool,
    _place: StreamPlace,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<StreamItem, Error>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.is_done {
                return None;
            }
            // Looked at before the events: an end that comes in between is read with the next ones.
            let is_over = self.progress.borrow_and_update().state.is_terminal();
            let events = match self.live.events_after(self.position) {
                Tail::Here(events) => events,
                Tail::InLog => match self.read_log().await {
                    Ok(events) => events,
                    Err(error) => return self.fail(error),
                },
            };
            if events.is_empty() {
                if is_over {
                    return None;
                }
                if let Err(error) = self.wait().await {
                    return self.fail(error);
                }
                continue;
            }
            for event in events {
                self.position = event.seq;
                self.is_done |= event.event.is_last();
                self.ready.push_back(Ok(StreamItem::Event(event)));
            }
        }
    }

    async fn read_log(&self) -> Result<Vec<Arc<NumberedEvent>>, Error> {
        let events = self.inner.records.events(&self.live.id, self.position, EVENT_PAGE).await;
        let events = events.map_err(|error| super::store_error(&error))?;
        if events.is_empty() {
            return Err(Error::internal(format!("The events of task {} are gone from the log", self.live.id)));
        }
        Ok(events.into_iter().map(Arc::new).collect())
    }

    async fn wait(&mut self) -> Result<(), Error> {
        tokio::select! {
            // The sender lives as long as the task, which this holds.
            _ = self.progress.changed() => Ok(()),
            () = sleep_until(self.deadline) => {
                let seconds = self.inner.settings.stream_max_duration.as_secs();
                let message = format!("The stream was open for {seconds} s; subscribe to the task again to go on");
                Err(Error::new(ErrorKind::UnsupportedOperation, message))
            }
            () = self.inner.closing.cancelled() => {
                Err(Error::new(ErrorKind::ShuttingDown, "The service stops; subscribe to the task again later"))
            }
        }
    }

    fn fail(&mut self, error: Error) -> Option<Result<StreamItem, Error>> {
        self.is_done = true;
        Some(Err(error))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.inner.metrics.stream_closed();
    }
}
