//! One subscription to the events of the agent runtime for all tasks, opened before the first prompt goes out.
//!
//! The hub knows which sessions belong to the running tasks, subagents included, and hands each event to its task. A task
//! that does not keep up, or whose events were lost on the way, is told of the gap and reads the stored state.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{AgentRuntime, EventBody, Frame, HostError, SessionId, WatchItem, WatchScope};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::metrics::Metrics;

/// How many events may wait for one task.
const MAILBOX: usize = 1024;
/// How long to wait before the subscription is opened again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The most directories with a subscription of their own, for servers without one for all.
const MAX_DIRECTORIES: usize = 64;

type Events = BoxStream<'static, WatchItem>;

/// What a task receives.
pub(super) enum Mail {
    /// An event of its session, or of a subagent.
    Frame(Frame),
    /// Events were lost.
    Gap,
}

/// The shared subscription.
pub(super) struct Hub {
    host: Arc<dyn AgentRuntime>,
    routes: Mutex<HashMap<SessionId, Arc<Mailbox>>>,
    sources: tokio::sync::Mutex<Sources>,
    metrics: Arc<Metrics>,
    tracker: TaskTracker,
    closing: CancellationToken,
}

/// What is subscribed to.
#[derive(Default)]
struct Sources {
    all: bool,
    /// Set once the server has refused a subscription to everything.
    directories: Option<Vec<String>>,
}

struct Mailbox {
    sender: mpsc::Sender<Frame>,
    /// Whether an event was lost since the task looked last.
    gap: AtomicBool,
    gap_found: Notify,
}

/// The events of one task.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
    receiver: mpsc::Receiver<Frame>,
}

impl Hub {
    pub(super) fn new(
        host: Arc<dyn AgentRuntime>,
        metrics: Arc<Metrics>,
        tracker: TaskTracker,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let (routes, sources) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { host, routes, sources, metrics, tracker, closing })
    }

    /// Makes sure that events of a directory arrive from now on.
    pub(super) async fn open(self: &Arc<Self>, directory: &str) -> Result<(), HostError> {
        let mut sources = self.sources.lock().await;
        if sources.all {
            return Ok(());
        }
        if sources.directories.is_none() {
            match self.host.watch(WatchScope::All, None).await {
                Ok(events) => {
                    sources.all = true;
                    self.pump(WatchScope::All, events);
                    return Ok(());
                }
                Err(
                    HostError::NotFound { .. } | HostError::Unsupported(_) | HostError::Upstream { status: 404, .. },
                ) => {
                    sources.directories = Some(Vec::new());
                }
                Err(error) => return Err(error),
            }
        }
        let open = sources.directories.get_or_insert_default();
        if open.iter().any(|known| known == directory) {
            return Ok(());
        }
        if open.len() >= MAX_DIRECTORIES {
            let message = format!("Events of {MAX_DIRECTORIES} directories are subscribed to already");
            return Err(HostError::Overloaded(message));
        }
        let scope = WatchScope::Directory(directory.to_owned());
        let events = self.host.watch(scope.clone(), None).await?;
        open.push(directory.to_owned());
        self.pump(scope, events);
        Ok(())
    }

    /// Subscribes a task to the events of its session.
    pub(super) fn subscribe(self: &Arc<Self>, session: &SessionId) -> Subscription {
        let (sender, receiver) = mpsc::channel(MAILBOX);
        let mailbox = Arc::new(Mailbox { sender, gap: AtomicBool::new(false), gap_found: Notify::new() });
        self.routes().insert(session.clone(), mailbox.clone());
        Subscription { hub: self.clone(), mailbox, receiver }
    }

    fn routes(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Mailbox>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pump(self: &Arc<Self>, scope: WatchScope, events: Events) {
        let hub = self.clone();
        self.tracker.spawn(async move {
            let closing = hub.closing.clone();
            tokio::select! {
                () = closing.cancelled() => {}
                () = hub.pump_until_closed(scope, events) => {}
            }
        });
    }

    async fn pump_until_closed(&self, scope: WatchScope, mut events: Events) {
        let mut delay = RETRY_MIN;
        loop {
            while let Some(item) = events.next().await {
                match item {
                    WatchItem::Frame(frame) => {
                        delay = RETRY_MIN;
                        self.deliver(frame);
                    }
                    WatchItem::Resync(reason) => self.announce_gap(&reason),
                    WatchItem::Lagged => break,
                }
            }
            self.announce_gap("the event stream ended");
            events = loop {
                self.metrics.stream_retries.add();
                match self.host.watch(scope.clone(), None).await {
                    Ok(events) => break events,
                    Err(error) => {
                        tracing::warn!(%error, "cannot subscribe to the events of the agent runtime; trying again");
                        tokio::time::sleep(delay).await;
                        delay = (delay * 2).min(RETRY_MAX);
                    }
                }
            };
            // What happened while nobody listened.
            self.announce_gap("the event stream was opened again");
        }
    }

    fn deliver(&self, frame: Frame) {
        let Some(session) = &frame.session else { return };
        let mailbox = self.routes().get(session).cloned();
        let mailbox = match mailbox {
            Some(mailbox) => mailbox,
            None => match self.adopt_child(&frame) {
                Some(mailbox) => mailbox,
                None => return,
            },
        };
        mailbox.put(frame);
    }

    /// A new session below one that is known belongs to the same task.
    fn adopt_child(&self, frame: &Frame) -> Option<Arc<Mailbox>> {
        let event = frame.event()?;
        let EventBody::SessionCreated { session_id, info } = &event.body else { return None };
        let mut routes = self.routes();
        let mailbox = routes.get(info.parent_id.as_ref()?)?.clone();
        routes.insert(session_id.clone(), mailbox.clone());
        Some(mailbox)
    }

    fn announce_gap(&self, reason: &str) {
        let routes = self.routes();
        if !routes.is_empty() {
            tracing::debug!(reason, "events may be missing");
        }
        routes.values().for_each(|mailbox| mailbox.miss());
    }
}

impl Mailbox {
    fn put(&self, frame: Frame) {
        if self.sender.try_send(frame).is_err() {
            self.miss();
        }
    }

    fn miss(&self) {
        self.gap.store(true, Ordering::Release);
        self.gap_found.notify_one();
    }
}

impl Subscription {
    /// The next event, or the news that some were lost. Never ends. Cancel safe.
    pub(super) async fn next(&mut self) -> Mail {
        loop {
            if self.mailbox.gap.swap(false, Ordering::AcqRel) {
                return Mail::Gap;
            }
            tokio::select! {
                biased;
                () = self.mailbox.gap_found.notified() => {}
                // This holds a sender itself, so that the channel stays open.
                frame = self.receiver.recv() => if let Some(frame) = frame { return Mail::Frame(frame) },
            }
        }
    }

    /// The next event, if it is there already.
    pub(super) fn try_next(&mut self) -> Option<Frame> {
        // A gap comes first.
        if self.mailbox.gap.load(Ordering::Acquire) {
            return None;
        }
        self.receiver.try_recv().ok()
    }

    /// Adds sessions of subagents that were found otherwise than by an event.
    pub(super) fn adopt(&self, sessions: impl IntoIterator<Item = SessionId>) {
        let mut routes = self.hub.routes();
        for session in sessions {
            routes.entry(session).or_insert_with(|| self.mailbox.clone());
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.routes().retain(|_, mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
    }
}
