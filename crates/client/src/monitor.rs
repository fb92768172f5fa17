//! Follows the subagents of a session on any host, from its events.

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

pub use event::{Ask, Changes, MonitorEvent, Outcome, Progress, State, Subagent, SubagentTree, ToolUse, Usage};

use crate::events::watch::pause;
use throttle::Batch;
use tree::{Read, Tree};

/// How long progress is held back, if nobody says otherwise.
const INTERVAL: Duration = Duration::from_millis(100);
/// The longest that it can be.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
/// After this long a session that is idle without an end of its turn is looked at again.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Follows the tree of subagents below a session, on Trefoil, on OpenCode itself, or in this process.
///
/// It reads what exists once, and again after a gap between events; all else comes from the events. What existed when it
/// was opened is in [`tree`](Self::tree) and not told; from then on each creation, ask, error and end is told once,
/// however often the connection breaks.
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
    batch: Batch,
    /// Nothing while there is no stream to read from.
    items: Option<BoxStream<'static, WatchItem>>,
    /// What exists is to be read then, because events are missing.
    read_at: Option<Instant>,
    /// … because a turn may have ended without a word.
    look_at: Option<Instant>,
    /// There is no new stream before.
    watch_at: Instant,
    /// Attempts to read or to watch that failed one after the other.
    failures: u32,
}

impl SubagentMonitor {
    /// Begins to follow. What happens after this returned is told.
    pub async fn open(host: Arc<dyn Host>, scope: Scope, root: SessionId) -> Result<Self, HostError> {
        let items = host.watch(WatchScope::All, None).await?;
        let tree = Tree::new(root.clone(), read::read(&*host, &scope, &root).await?);
        let mut monitor = Self {
            host,
            scope,
            root,
            tree,
            batch: Batch::new(INTERVAL),
            items: Some(items),
            read_at: None,
            look_at: None,
            watch_at: Instant::now(),
            failures: 0,
        };
        monitor.doubt();
        Ok(monitor)
    }

    /// Tells a session's progress at most this often; ten seconds are the most.
    pub fn every(mut self, interval: Duration) -> Self {
        self.batch.set_interval(interval.min(LONGEST_INTERVAL));
        self
    }

    /// The tree as it stands, as far as [`next`](Self::next) has heard.
    pub fn tree(&self) -> SubagentTree {
        self.tree.snapshot()
    }

    /// The next thing to tell; nothing once the root was deleted. A call that is dropped loses nothing.
    pub async fn next(&mut self) -> Option<MonitorEvent> {
        loop {
            let now = Instant::now();
            let read = [self.read_at, self.look_at].into_iter().flatten().min();
            let away = self.items.is_none() || read.is_some_and(|at| at <= now);
            if away || self.tree.is_gone() {
                // It may take long.
                self.batch.flush();
            }
            if let Some(event) = self.batch.pop(now) {
                return Some(event);
            }
            if self.tree.is_gone() {
                return None;
            }
            match &mut self.items {
                None => self.watch().await,
                Some(_) if away => self.read().await,
                Some(items) => {
                    let item = match [self.batch.due(), read].into_iter().flatten().min() {
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

    /// The same as a stream.
    pub fn into_stream(self) -> BoxStream<'static, MonitorEvent> {
        stream::unfold(self, |mut monitor| async move { Some((monitor.next().await?, monitor)) }).boxed()
    }

    fn receive(&mut self, item: Option<WatchItem>) {
        match item {
            Some(WatchItem::Frame(frame)) => {
                let Some(event) = frame.event() else { return };
                // Turns that ran there may have ended without a word.
                let dropped = match &event.body {
                    EventBody::InstanceDisposed { directory } => self.tree.is_in(directory),
                    EventBody::GlobalDisposed {} => true,
                    _ => false,
                };
                if dropped {
                    self.read_at = Some(Instant::now());
                }
                let told = self.tree.apply(&event);
                self.tell(told);
            }
            Some(WatchItem::Resync(reason)) => {
                tracing::debug!(root = %self.root, reason, "the tree of subagents is read anew");
                self.read_at = Some(Instant::now());
            }
            Some(WatchItem::Lagged) | None => self.items = None,
        }
    }

    fn tell(&mut self, told: Vec<MonitorEvent>) {
        let now = Instant::now();
        for event in told {
            self.batch.push(event, now);
        }
        self.doubt();
    }

    /// Looks again later if it is not known whether a turn is over.
    fn doubt(&mut self) {
        if !self.tree.is_doubtful() {
            self.look_at = None;
        } else if self.look_at.is_none() {
            self.look_at = Some(Instant::now() + SECOND_LOOK);
        }
    }

    async fn read(&mut self) {
        let second = self.look_at.is_some_and(|at| at <= Instant::now());
        let read = match read::read(&*self.host, &self.scope, &self.root).await {
            Ok(read) => read,
            Err(HostError::NotFound { what: "session", .. }) => Read::default(),
            Err(error) => {
                tracing::debug!(root = %self.root, %error, "the tree of subagents is not read");
                self.read_at = Some(self.next_attempt());
                return;
            }
        };
        (self.read_at, self.look_at, self.failures) = (None, None, 0);
        let told = self.tree.resync(read, second);
        self.tell(told);
    }

    async fn watch(&mut self) {
        sleep_until(self.watch_at).await;
        match self.host.watch(WatchScope::All, None).await {
            Ok(items) => {
                self.items = Some(items);
                self.read_at = Some(Instant::now());
            }
            Err(error) => {
                tracing::debug!(root = %self.root, %error, "events are not followed");
                self.watch_at = self.next_attempt();
            }
        }
    }

    fn next_attempt(&mut self) -> Instant {
        self.failures = self.failures.saturating_add(1);
        Instant::now() + pause(self.failures)
    }
}
