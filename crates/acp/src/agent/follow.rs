//! The events around an open session. Each has a stream and a task of its own, so that none holds up another, and so that a
//! stream begins where its session was opened: with the text so far of whatever is being written.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use api::{Cursor, Event, EventBody, HostError, Scope, Session, SessionId, WatchItem, WatchScope};
use futures::stream::{BoxStream, Fuse};
use futures::{FutureExt as _, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;

use super::open_session::Open;
use crate::agent::Agent;
use crate::lock;

/// The most subagents that are looked for.
const MAX_FAMILY: usize = 1_000;

/// The most events that are there already when a session is opened; those behind them come a moment later.
const MAX_READY: usize = 4_096;

/// The longest text that is shown in one piece because it was there at once, in bytes.
const MAX_JOINED: usize = 64 << 10;

/// Events of a directory, from the moment they were asked for.
pub type Events = BoxStream<'static, WatchItem>;

impl Agent {
    /// The events of a directory from now on.
    pub async fn watch(&self, directory: &str, after: Option<Cursor>) -> Result<Events, HostError> {
        self.host().watch(WatchScope::Directory(directory.to_owned()), after).await
    }

    /// Shows the events of a session until it is closed. Those that are there already are shown when this returns: among
    /// them is the text so far of what is being written, or was when a process died.
    pub async fn follow(self: &Arc<Self>, open: &Arc<Open>, events: Events) {
        // The task must not keep alive what keeps it.
        let (agent, open_session) = (Arc::downgrade(self), Arc::downgrade(open));
        let mut follower = Follower { agent, open: open_session, cursor: None, events: events.fuse(), behind: None };
        for _ in 0..MAX_READY {
            let Some(ready) = follower.next().now_or_never() else { break };
            let Some(item) = ready else { return };
            if !follower.take(item).await {
                return;
            }
        }
        open.followed_by(AbortOnDropHandle::new(tokio::spawn(follower.run())));
    }

    /// The open session that an event is about: itself, or one of its subagents. Nothing for an event about no session.
    fn root(&self, event: &EventBody) -> Option<Option<SessionId>> {
        let mut routes = lock(&self.routes);
        match event {
            EventBody::SessionCreated { info, .. } => {
                let root = info.parent_id.as_ref().and_then(|parent| routes.get(parent).cloned());
                if let Some(root) = &root {
                    routes.entry(info.id.clone()).or_insert_with(|| root.clone());
                }
                Some(root)
            }
            _ => event.session_id().map(|session| routes.get(session).cloned()),
        }
    }

    /// Sessions below an open one, so that their events and questions find it.
    pub async fn find_family(&self, root: &SessionId, scope: &Scope) -> Result<Vec<Session>, HostError> {
        let mut family = Vec::new();
        let mut unseen = vec![root.clone()];
        while let Some(parent) = unseen.pop()
            && family.len() < MAX_FAMILY
        {
            for child in self.host().children(scope, &parent).await? {
                lock(&self.routes).entry(child.id.clone()).or_insert_with(|| root.clone());
                unseen.push(child.id.clone());
                family.push(child);
            }
        }
        Ok(family)
    }
}

struct Follower {
    agent: Weak<Agent>,
    open: Weak<Open>,
    cursor: Option<Cursor>,
    events: Fuse<Events>,
    /// What came behind text that was joined.
    behind: Option<WatchItem>,
}

impl Follower {
    async fn run(mut self) {
        while let Some(item) = self.next().await {
            if !self.take(item).await {
                return;
            }
        }
    }

    async fn next(&mut self) -> Option<WatchItem> {
        match self.behind.take() {
            Some(item) => Some(item),
            None => self.events.next().await,
        }
    }

    /// Joins a piece of text with those of the same part that are there already. A model may write faster than pieces are
    /// shown one by one, and what is not taken waits in memory.
    fn joined<'a>(&mut self, event: &'a EventBody) -> Cow<'a, EventBody> {
        let EventBody::PartDelta { part_id, .. } = event else { return Cow::Borrowed(event) };
        let mut event = event.clone();
        while self.behind.is_none()
            && let EventBody::PartDelta { delta, .. } = &mut event
            && delta.len() < MAX_JOINED
            && let Some(Some(item)) = self.events.next().now_or_never()
        {
            let next = if let WatchItem::Frame(frame) = &item { frame.event() } else { None };
            match next.as_deref() {
                Some(Event { body: EventBody::PartDelta { part_id: part, delta: more, .. }, .. })
                    if part == part_id =>
                {
                    delta.push_str(more);
                }
                _ => self.behind = Some(item),
            }
        }
        Cow::Owned(event)
    }

    /// Shows what came; false if nothing more can come.
    async fn take(&mut self, item: WatchItem) -> bool {
        let (Some(agent), Some(open)) = (self.agent.upgrade(), self.open.upgrade()) else { return false };
        match item {
            WatchItem::Frame(frame) => {
                if let Some(cursor) = &frame.cursor {
                    self.cursor = Some(cursor.clone());
                }
                if let Some(event) = frame.event() {
                    show(&agent, &open, &self.joined(&event.body)).await;
                }
            }
            WatchItem::Resync(reason) => {
                tracing::debug!(reason, "events may be missing");
                show_again(&agent, &open).await;
            }
            // The client reads more slowly than events come: go on where we were.
            WatchItem::Lagged => {
                match agent.watch(&open.scope.directory, self.cursor.clone()).await {
                    Ok(events) => self.events = events.fuse(),
                    Err(error) => {
                        tracing::error!(%error, session = %open.id, "events cannot be followed any more");
                        return false;
                    }
                }
                show_again(&agent, &open).await;
            }
        }
        true
    }
}

async fn show(agent: &Arc<Agent>, open: &Arc<Open>, event: &EventBody) {
    if agent.root(event).is_none_or(|root| root.as_ref() == Some(&open.id)) {
        let left = open.show(|view| view.event(event)).await;
        agent.act(open, left).await;
    }
}

/// Shows the stored state where events may be missing.
async fn show_again(agent: &Arc<Agent>, open: &Arc<Open>) {
    match open.reread(agent.host()).await {
        Ok(left) => agent.act(open, left).await,
        Err(error) => tracing::warn!(%error, session = %open.id, "the session cannot be read again"),
    }
    agent.open_asks(open).await;
    agent.refresh_soon(open);
}
