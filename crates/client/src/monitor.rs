//! Follows the subagents of a session on any host through its events.

mod event;
mod node;
mod read;
mod throttle;
mod tree;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::{EventBody, Host, HostError, Scope, SessionId, WatchItem, WatchScope};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::time::{Instant, sleep_until, timeout_at};

pub use event::{
    Ask, FileChanges, MonitorEvent, Progress, SessionUsage, Subagent, SubagentState, SubagentTree, ToolUse, TurnOutcome,
};

use crate::events::watch::reconnect_delay;
use throttle::ProgressThrottle;
use tree::{Tree, TreeSnapshot};

/// How long progress is held back by default.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
/// The longest interval for progress.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// After this long, a session that is idle without an end of its turn is read again.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// Follows the tree of subagents below a session, on Trefoil, on OpenCode itself, or in this process.
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
    tree: Tree,
    throttle: ProgressThrottle,
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
        let tree = Tree::new(root.clone(), read::read_tree(&*host, &scope, &root).await?);
        let mut monitor = Self {
            host,
            scope,
            root,
            tree,
            throttle: ProgressThrottle::new(DEFAULT_INTERVAL),
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

    /// The tree as of the last event that [`next`](Self::next) processed.
    pub fn tree(&self) -> SubagentTree {
        self.tree.snapshot()
    }

    /// Returns the next event, or `None` once the root is deleted. Cancel safe.
    pub async fn next(&mut self) -> Option<MonitorEvent> {
        loop {
            let now = Instant::now();
            let read = [self.read_at, self.recheck_at].into_iter().flatten().min();
            let away = self.items.is_none() || read.is_some_and(|at| at <= now);
            if away || self.tree.is_gone() {
                // Reading or watching may take long.
                self.throttle.flush();
            }
            if let Some(event) = self.throttle.pop(now) {
                return Some(event);
            }
            if self.tree.is_gone() {
                return None;
            }
            match &mut self.items {
                None => self.watch().await,
                Some(_) if away => self.read().await,
                Some(items) => {
                    let item = match [self.throttle.due(), read].into_iter().flatten().min() {
                        Some(wake) => timeout_at(wake, items.next()).await.ok(),
                        None => Some(items.next().await),
                    };
                    if let Some(item) = item {
                        self.receive(item);
                    }
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
                    EventBody::InstanceDisposed { directory } => self.tree.is_in(directory),
                    EventBody::GlobalDisposed {} => true,
                    _ => false,
                };
                if dropped {
                    self.read_at = Some(Instant::now());
                }
                let events = self.tree.apply(&event);
                self.emit(events);
            }
            Some(WatchItem::Resync(reason)) => {
                tracing::debug!(root = %self.root, reason, "the tree of subagents is read again");
                self.read_at = Some(Instant::now());
            }
            Some(WatchItem::Lagged) | None => self.items = None,
        }
    }

    fn emit(&mut self, events: Vec<MonitorEvent>) {
        let now = Instant::now();
        for event in events {
            self.throttle.push(event, now);
        }
        self.schedule_recheck();
    }

    /// Schedules another read if it is uncertain whether a turn has ended.
    fn schedule_recheck(&mut self) {
        if !self.tree.is_uncertain() {
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
        let events = self.tree.resync(read, is_recheck);
        self.emit(events);
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
