//! The events around an open session. Each has a stream and a task of its own, so that none holds up another, and so that a
//! stream begins where its session was opened: with the text so far of whatever is being written.

use std::sync::{Arc, Weak};

use api::{Cursor, EventBody, HostError, Scope, Session, SessionId, WatchItem, WatchScope};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;

use crate::agent::Agent;
use crate::lock;
use crate::open::Open;

/// The most subagents that are looked for.
const MAX_FAMILY: usize = 1_000;

/// The most events that are there already when a session is opened; those behind them come a moment later.
const MAX_READY: usize = 4_096;

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
        let mut follower = Follower { agent: Arc::downgrade(self), open: Arc::downgrade(open), cursor: None, events };
        for _ in 0..MAX_READY {
            let Some(ready) = follower.events.next().now_or_never() else { break };
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
    events: Events,
}

impl Follower {
    async fn run(mut self) {
        while let Some(item) = self.events.next().await {
            if !self.take(item).await {
                return;
            }
        }
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
                    show(&agent, &open, &event.body).await;
                }
            }
            WatchItem::Resync(reason) => {
                tracing::debug!(reason, "events may be missing");
                show_again(&agent, &open).await;
            }
            // The client reads more slowly than events come: go on where we were.
            WatchItem::Lagged => {
                match agent.watch(&open.scope.directory, self.cursor.clone()).await {
                    Ok(events) => self.events = events,
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
