//! What waits for watchers. A frame is held once, however many wait for it, and is counted as long as one of them does: so
//! what all watchers together leave unread has a bound.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use api::Frame;
use tokio::task::coop::cooperative;

/// The most frames that wait for one watcher; a slower one is cut.
pub const WATCH_QUEUE: usize = 4096;

/// The memory of all frames that wait, counted once each. A handle: clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A frame that somebody may wait for.
#[derive(Debug)]
pub(crate) struct Held {
    frame: Frame,
    /// Its place among all that were ever sent.
    order: u64,
    weight: usize,
    gauge: Gauge,
}

impl Held {
    pub(crate) fn new(frame: &Frame, order: u64, gauge: &Gauge) -> Arc<Self> {
        let weight = frame.weight();
        gauge.0.fetch_add(weight, Ordering::Relaxed);
        Arc::new(Self { frame: frame.clone(), order, weight, gauge: gauge.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

/// What waits for one watcher.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Arc<Held>>,
    waker: Option<Waker>,
    end: Option<End>,
}

/// Why nothing more comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The feed is closed.
    Closed,
    /// The watcher was too slow.
    Lagged,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame; false if there are too many, and the watcher is cut.
    pub(crate) fn push(&self, frame: Arc<Held>) -> bool {
        let mut waiting = self.lock();
        if waiting.frames.len() >= WATCH_QUEUE {
            drop(waiting);
            self.cut();
            return false;
        }
        waiting.frames.push_back(frame);
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Cuts the watcher. What waits for it is dropped: one that is stuck would never read it, and whoever reads on goes back
    /// to the log for it.
    pub(crate) fn cut(&self) {
        self.end(End::Lagged);
    }

    /// Nothing more comes; what waits can still be read.
    pub(crate) fn close(&self) {
        self.end(End::Closed);
    }

    fn end(&self, end: End) {
        let mut waiting = self.lock();
        waiting.end = Some(end);
        let unread = if end == End::Lagged { std::mem::take(&mut waiting.frames) } else { VecDeque::new() };
        let waker = waiting.waker.take();
        drop(waiting);
        drop(unread);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Since when the watcher is behind: the place of the oldest frame that it has not read, unless that is the newest one
    /// too.
    pub(crate) fn behind_since(&self) -> Option<u64> {
        let waiting = self.lock();
        waiting.frames.front().filter(|_| waiting.frames.len() > 1).map(|oldest| oldest.order)
    }

    /// The next frame, or why there is none any more.
    pub(crate) async fn next(&self) -> Result<Frame, End> {
        // A watcher that has much to read leaves room for others, too.
        cooperative(poll_fn(|context| self.poll(context))).await
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Frame, End>> {
        let mut waiting = self.lock();
        if let Some(held) = waiting.frames.pop_front() {
            return Poll::Ready(Ok(held.frame.clone()));
        }
        match waiting.end {
            Some(end) => Poll::Ready(Err(end)),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
