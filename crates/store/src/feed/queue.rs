//! What waits for watchers. A frame is queued once, however many wait for it, and is counted as long as one of them does: so
//! what all watchers together leave unread has a bound.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use api::Frame;
use tokio::task::coop::cooperative;

/// The max_bytes frames that wait for one watcher; a slower one is cut.
pub const WATCH_QUEUE: usize = 4096;

/// The memory of all frames that wait, counted once each. A handle: clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByteCounter(Arc<AtomicUsize>);

impl ByteCounter {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A frame that somebody may wait for.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    frame: Frame,
    /// Its place among all that were ever sent.
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

/// What waits for one watcher.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<Arc<QueuedFrame>>,
    waker: Option<Waker>,
    end: Option<QueueEnd>,
}

/// Why nothing more comes.
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

    /// Adds a frame; false if there are too many, and the watcher is cut.
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

    /// Cuts the watcher. What waits for it is dropped: one that is stuck would never read it, and whoever reads on goes back
    /// to the log for it.
    pub(crate) fn cut(&self) {
        self.finish(QueueEnd::Lagged);
    }

    /// Nothing more comes; what waits can still be read.
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

    /// Since when the watcher is behind: the place of the oldest frame that it has not read, unless that is the newest one
    /// too.
    pub(crate) fn oldest_unread(&self) -> Option<u64> {
        let state = self.lock();
        state.frames.front().filter(|_| state.frames.len() > 1).map(|oldest| oldest.order)
    }

    /// The next frame, or why there is none any more.
    pub(crate) async fn next(&self) -> Result<Frame, QueueEnd> {
        // A watcher that has much to read leaves room for others, too.
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
