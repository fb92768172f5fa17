//! Shows the events of open sessions. Each has its own feed and task, so that none delays another, and its feed
//! starts when the session is opened: with the text so far of whatever is streaming.

use std::sync::{Arc, Weak};

use api::{EventBody, HostError, Session, SessionId, WatchItem, WatchScope};
use follow::{Feed, Item, Stored};
use futures::FutureExt as _;
use futures::stream::BoxStream;
use tokio_util::task::AbortOnDropHandle;

use super::open_session::OpenSession;
use crate::agent::Agent;
use crate::lock;

/// The most events shown before opening a session returns; the rest follows from the task.
const MAX_READY_EVENTS: usize = 4_096;

/// The events of a directory.
pub type EventStream = BoxStream<'static, WatchItem>;

impl Agent {
    /// Subscribes to the events of a directory.
    pub async fn watch(&self, directory: &str) -> Result<EventStream, HostError> {
        self.host().watch(WatchScope::Directory(directory.to_owned()), None).await
    }

    /// Shows the events of a session until it is closed. Events that are ready are shown before this returns; they
    /// include the text so far of what is streaming, or was when a process died.
    pub async fn follow(self: &Arc<Self>, open: &Arc<OpenSession>, events: EventStream) {
        let feed = Feed::new(self.shared_host(), open.scope.clone(), open.id.clone(), self.patience(), events);
        open.set_feed(feed.handle());
        // Weak, because the session owns the task.
        let mut follower = Follower { agent: Arc::downgrade(self), open: Arc::downgrade(open), feed };
        for _ in 0..MAX_READY_EVENTS {
            let Some(ready) = follower.feed.next().now_or_never() else { break };
            if !follower.handle(ready).await {
                return;
            }
        }
        open.set_follower(AbortOnDropHandle::new(tokio::spawn(follower.run())));
    }

    /// The open session that an event belongs to, directly or through a subagent; the outer `None` if it is not about a
    /// session.
    fn root_of(&self, event: &EventBody) -> Option<Option<SessionId>> {
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

    /// Finds the subagents of an open session, and routes their events and asks to it.
    pub async fn find_subagents(&self, root: &SessionId) -> Result<Vec<Session>, HostError> {
        let subagents = follow::family(self.host(), root).await?;
        self.route(root, &subagents);
        Ok(subagents)
    }

    /// Routes the events and asks of subagents to an open session.
    fn route(&self, root: &SessionId, subagents: &[Session]) {
        let mut routes = lock(&self.routes);
        for child in subagents {
            routes.entry(child.id.clone()).or_insert_with(|| root.clone());
        }
    }
}

struct Follower {
    agent: Weak<Agent>,
    open: Weak<OpenSession>,
    feed: Feed,
}

impl Follower {
    async fn run(mut self) {
        loop {
            let item = self.feed.next().await;
            if !self.handle(item).await {
                return;
            }
        }
    }

    /// Handles an item; false if no more are wanted.
    async fn handle(&mut self, item: Result<Item, HostError>) -> bool {
        let (Some(agent), Some(open)) = (self.agent.upgrade(), self.open.upgrade()) else { return false };
        match item {
            Ok(Item::Event(event)) => show_event(&agent, &open, &event.body).await,
            Ok(Item::Stored(stored)) => show_stored(&agent, &open, *stored).await,
            Ok(Item::Unread(error)) => {
                tracing::warn!(%error, session = %open.id, "failed to read a session again");
                agent.refresh_soon(&open);
            }
            Err(error) => {
                tracing::error!(%error, session = %open.id, "cannot follow events any more");
                return false;
            }
        }
        true
    }
}

async fn show_event(agent: &Arc<Agent>, open: &Arc<OpenSession>, event: &EventBody) {
    if agent.root_of(event).is_none_or(|root| root.as_ref() == Some(&open.id)) {
        let left = open.show(|view| view.show_event(event)).await;
        agent.apply_effects(open, left).await;
    }
}

/// Shows the stored state again, where events may be missing.
async fn show_stored(agent: &Arc<Agent>, open: &Arc<OpenSession>, stored: Stored) {
    let Stored { subagents, messages, is_whole, asks } = stored;
    agent.route(&open.id, &subagents);
    for child in &subagents {
        let left = open.show(|view| view.add_subagent(child)).await;
        agent.apply_effects(open, left).await;
    }
    let left = open.show_again(messages, is_whole).await;
    agent.apply_effects(open, left).await;
    for ask in &asks {
        show_event(agent, open, ask).await;
    }
    agent.refresh_soon(open);
}
