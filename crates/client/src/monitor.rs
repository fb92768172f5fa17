//! Follows the subagents of a session on any host through its events.

mod event;
pub(crate) mod read;
mod throttle;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::{
    EventBody, Host, HostError, Scope, SessionId, SubagentTree, Tree, TreeChange, TreeSnapshot, TreeTracker, WatchItem,
    WatchScope,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::time::{Instant, sleep_until, timeout_at};

pub use event::MonitorEvent;

use crate::events::watch::reconnect_delay;
use throttle::ProgressThrottle;

/// How long progress is held back by default.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
/// The longest interval for progress.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// After this long, a session that is idle without an end of its turn is read again.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// Follows the tree of subagents below a session, on Trefoil, on OpenCode itself, or in this process: feeds a
/// [`TreeTracker`] from a [`Host`].
///
/// It reads the tree once, and again after each gap between events; everything else comes from the events. What existed
/// when it was opened is in [`tree`](Self::tree) and not reported; from then on each creation, ask, error and end is
/// reported once, however often the connection breaks.
///
/// ```no_run
/// # async fn example(client: trefoil_client::Client, session: api::Session) -> Result<(), api::HostError> {
/// use std::sync::Arc;
/// use trefoil_client::{MonitorEvent, SubagentMonitor};
///
/// let scope = api::Scope::new(session.directory);
/// let mut monitor = SubagentMonitor::open(Arc::new(client), scope, session.id).await?;
/// while let Some(event) = monitor.next().await {
///     if let MonitorEvent::ChildCompleted { session_id, outcome, progress } = event {
///         tracing::info!(%session_id, ?outcome, calls = progress.tool_calls, "a subagent is done");
///         tracing::info!(cost = monitor.tree().sessions[0].total.cost.0, "of the whole tree");
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct SubagentMonitor {
    host: Arc<dyn Host>,
    scope: Scope,
    root: SessionId,
    tracker: TreeTracker,
    throttle: ProgressThrottle,
    /// The changes that [`changed`](Self::changed) has not returned yet, if somebody calls it.
    changes: Option<Vec<TreeChange>>,
    /// How often the host is asked whether something changed without an event.
    polling: Option<Duration>,
    /// When it is asked next.
    poll_at: Option<Instant>,
    /// `None` while there is no stream.
    items: Option<BoxStream<'static, WatchItem>>,
    /// When to read the tree again because events are missing.
    read_at: Option<Instant>,
    /// When to read it again because a turn may have ended without an event.
    recheck_at: Option<Instant>,
    /// The earliest time for the next attempt to watch.
    watch_at: Instant,
    /// Consecutive failed attempts to read or watch.
    failures: u32,
}

impl SubagentMonitor {
    /// Starts to follow. Everything that happens after this returns is reported.
    pub async fn open(host: Arc<dyn Host>, scope: Scope, root: SessionId) -> Result<Self, HostError> {
        let items = host.watch(WatchScope::All, None).await?;
        let snapshot = read::read_tree(&*host, &scope, &root).await?;
        let mut monitor = Self {
            host,
            scope,
            tracker: TreeTracker::from_snapshot(root.clone(), snapshot, api::now()),
            root,
            throttle: ProgressThrottle::new(DEFAULT_INTERVAL),
            changes: None,
            polling: None,
            poll_at: None,
            items: Some(items),
            read_at: None,
            recheck_at: None,
            watch_at: Instant::now(),
            failures: 0,
        };
        monitor.schedule_recheck();
        Ok(monitor)
    }

    /// Reports a session's progress at most once per interval, which is capped at ten seconds.
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.throttle.set_interval(interval.min(MAX_INTERVAL));
        self
    }

    /// Also asks the host this often whether something changed. A process that is killed sends no event; a server that
    /// ends is noticed without this.
    pub fn with_polling(mut self, interval: Duration) -> Self {
        self.polling = Some(interval);
        self.poll_at = Some(Instant::now() + interval);
        self
    }

    /// The tree as of the last event that [`next`](Self::next) processed.
    pub fn tree(&self) -> SubagentTree {
        self.tracker.snapshot()
    }

    /// The tracker behind it, with what the root does too.
    pub fn tracker(&self) -> &TreeTracker {
        &self.tracker
    }

    /// Reads the tree from a host that has trees, with exact sums and budgets. Elsewhere it is the tracked one. What
    /// this read changes is not reported.
    pub async fn read_tree(&mut self) -> Result<Tree, HostError> {
        if !self.host.features().tree {
            return Ok(self.tracker.tree());
        }
        let tree = self.host.tree(&self.root).await?;
        self.tracker.apply_tree(&tree, api::now());
        Ok(tree)
    }

    /// Returns the next changes, of the root too, before anything after it is applied to the
    /// [`tracker`](Self::tracker); `None` once the root is deleted. For callers that need more than
    /// [`next`](Self::next) reports; a change is reported by one of the two. Cancel safe.
    pub async fn changed(&mut self) -> Option<Vec<TreeChange>> {
        loop {
            let changes = std::mem::take(self.changes.get_or_insert_default());
            if !changes.is_empty() {
                return Some(changes);
            }
            if self.tracker.is_gone() {
                return None;
            }
            self.advance(None).await;
        }
    }

    /// Returns the next event, or `None` once the root is deleted. Cancel safe.
    pub async fn next(&mut self) -> Option<MonitorEvent> {
        self.changes = None;
        loop {
            let now = Instant::now();
            if self.must_request(now) || self.tracker.is_gone() {
                // Reading or watching may take long.
                self.throttle.flush();
            }
            if let Some(event) = self.throttle.pop(now) {
                return Some(event);
            }
            if self.tracker.is_gone() {
                return None;
            }
            self.advance(self.throttle.due()).await;
        }
    }

    /// Whether the next step is a request to the host.
    fn must_request(&self, now: Instant) -> bool {
        self.items.is_none() || self.request_at().is_some_and(|at| at <= now)
    }

    fn request_at(&self) -> Option<Instant> {
        [self.read_at, self.recheck_at, self.poll_at].into_iter().flatten().min()
    }

    /// Sends the request that is due, or receives an item. Returns at `wake` at the latest if it only receives.
    async fn advance(&mut self, wake: Option<Instant>) {
        let (now, due) = (Instant::now(), self.request_at());
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        match &mut self.items {
            None => self.watch().await,
            Some(_) if is_due(self.read_at) || is_due(self.recheck_at) => self.read().await,
            Some(_) if is_due(self.poll_at) => self.poll().await,
            Some(items) => {
                let item = match [wake, due].into_iter().flatten().min() {
                    Some(wake) => timeout_at(wake, items.next()).await.ok(),
                    None => Some(items.next().await),
                };
                if let Some(item) = item {
                    self.receive(item);
                }
            }
        }
    }

    /// The events as a stream.
    pub fn into_stream(self) -> BoxStream<'static, MonitorEvent> {
        stream::unfold(self, |mut monitor| async move { Some((monitor.next().await?, monitor)) }).boxed()
    }

    fn receive(&mut self, item: Option<WatchItem>) {
        match item {
            Some(WatchItem::Frame(frame)) => {
                let Some(event) = frame.event() else { return };
                // Turns running there may have ended without an event.
                let dropped = match &event.body {
                    EventBody::InstanceDisposed { directory } => self.tracker.is_in(directory),
                    EventBody::GlobalDisposed {} => true,
                    _ => false,
                };
                if dropped {
                    self.read_at = Some(Instant::now());
                }
                let changes = self.tracker.apply(&event.body, api::now());
                self.emit(changes);
            }
            Some(WatchItem::Resync(reason)) => {
                tracing::debug!(root = %self.root, reason, "the tree of subagents is read again");
                self.read_at = Some(Instant::now());
            }
            Some(WatchItem::Lagged) | None => self.items = None,
        }
    }

    /// Passes on changes: all of them to [`changed`](Self::changed), those of subagents to [`next`](Self::next).
    fn emit(&mut self, changes: Vec<TreeChange>) {
        self.schedule_recheck();
        if let Some(pending) = &mut self.changes {
            pending.extend(changes);
            return;
        }
        let now = Instant::now();
        for change in changes {
            // The root is not a child.
            if *change.session_id() != self.root
                && let Some(event) = MonitorEvent::of(change)
            {
                self.throttle.push(event, now);
            }
        }
    }

    /// Schedules another read if it is uncertain whether a turn has ended.
    fn schedule_recheck(&mut self) {
        if !self.tracker.is_uncertain() {
            self.recheck_at = None;
        } else if self.recheck_at.is_none() {
            self.recheck_at = Some(Instant::now() + RECHECK_DELAY);
        }
    }

    async fn read(&mut self) {
        let is_recheck = self.recheck_at.is_some_and(|at| at <= Instant::now());
        let read = match read::read_tree(&*self.host, &self.scope, &self.root).await {
            Ok(read) => read,
            Err(HostError::NotFound { what: "session", .. }) => TreeSnapshot::default(),
            Err(error) => {
                tracing::debug!(root = %self.root, %error, "the tree of subagents could not be read");
                self.read_at = Some(self.next_attempt());
                return;
            }
        };
        (self.read_at, self.recheck_at, self.failures) = (None, None, 0);
        let changes = self.tracker.resync(read, is_recheck, api::now());
        self.emit(changes);
    }

    /// Asks the host whether something changed without an event, and reads what did.
    async fn poll(&mut self) {
        self.poll_at = self.polling.map(|interval| Instant::now() + interval);
        let checked = match self.host.features().tree {
            true => self.host.tree(&self.root).await.map(Some),
            false => match read::statuses_match(&*self.host, &self.scope, &self.tracker).await {
                Ok(true) => return,
                other => other.map(|_| None),
            },
        };
        match checked {
            Ok(Some(tree)) => {
                let changes = self.tracker.apply_tree(&tree, api::now());
                self.emit(changes);
            }
            Ok(None) => self.read_at = Some(Instant::now()),
            Err(error) => {
                tracing::debug!(root = %self.root, %error, "the host could not be polled");
                // The root may be gone.
                self.read_at = Some(self.next_attempt());
            }
        }
    }

    async fn watch(&mut self) {
        sleep_until(self.watch_at).await;
        match self.host.watch(WatchScope::All, None).await {
            Ok(items) => {
                self.items = Some(items);
                self.read_at = Some(Instant::now());
            }
            Err(error) => {
                tracing::debug!(root = %self.root, %error, "events could not be watched");
                self.watch_at = self.next_attempt();
            }
        }
    }

    fn next_attempt(&mut self) -> Instant {
        self.failures = self.failures.saturating_add(1);
        Instant::now() + reconnect_delay(self.failures)
    }
}
