//! The queues of watchers. A frame is stored once, however many watchers wait for it, and counted until the last of
//! them has read it. That bounds the memory that all watchers together leave unread.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use api::Frame;
use tokio::task::coop::cooperative;

/// The most frames queued for one watcher; a slower one is cut.
pub const WATCH_QUEUE: usize = 4096;

/// The memory of all queued frames, each counted once. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByteCounter(Arc<AtomicUsize>);

impl ByteCounter {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A frame in the queues of any number of watchers.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    frame: Frame,
    /// Its position among all frames ever sent.
    order: u64,
    bytes: usize,
    counter: ByteCounter,
}

impl QueuedFrame {
    pub(crate) fn new(frame: &Frame, order: u64, counter: &ByteCounter) -> Arc<Self> {
        let bytes = frame.weight();
        counter.0.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Self { frame: frame.clone(), order, bytes, counter: counter.clone() })
    }
}

impl Drop for QueuedFrame {
    fn drop(&mut self) {
        self.counter.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The queue of one watcher.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<Arc<QueuedFrame>>,
    waker: Option<Waker>,
    end: Option<QueueEnd>,
}

/// Why the queue ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// The feed is closed.
    Closed,
    /// The watcher was too slow.
    Lagged,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame. Returns false and cuts the watcher if the queue is full.
    pub(crate) fn push(&self, frame: Arc<QueuedFrame>) -> bool {
        let mut state = self.lock();
        if state.frames.len() >= WATCH_QUEUE {
            drop(state);
            self.cut();
            return false;
        }
        state.frames.push_back(frame);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Cuts the watcher and drops its queue: a stuck watcher would never read it, and one that resumes reads the log
    /// instead.
    pub(crate) fn cut(&self) {
        self.finish(QueueEnd::Lagged);
    }

    /// Ends the queue; frames in it can still be read.
    pub(crate) fn close(&self) {
        self.finish(QueueEnd::Closed);
    }

    fn finish(&self, end: QueueEnd) {
        let mut state = self.lock();
        state.end = Some(end);
        let unread = if end == QueueEnd::Lagged { std::mem::take(&mut state.frames) } else { VecDeque::new() };
        let waker = state.waker.take();
        drop(state);
        drop(unread);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The position of the oldest unread frame, if the watcher is behind, that is, if more than the newest frame is
    /// unread.
    pub(crate) fn oldest_unread(&self) -> Option<u64> {
        let state = self.lock();
        state.frames.front().filter(|_| state.frames.len() > 1).map(|oldest| oldest.order)
    }

    /// The next frame, or why the queue ended.
    pub(crate) async fn next(&self) -> Result<Frame, QueueEnd> {
        // Lets other tasks run even if there is a lot to read.
        cooperative(poll_fn(|context| self.poll(context))).await
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Frame, QueueEnd>> {
        let mut state = self.lock();
        if let Some(oldest) = state.frames.pop_front() {
            return Poll::Ready(Ok(oldest.frame.clone()));
        }
        match state.end {
            Some(end) => Poll::Ready(Err(end)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
