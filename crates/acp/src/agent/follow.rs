//! Follows the events of open sessions. Each has its own stream and task, so that none delays another, and its stream
//! starts when the session is opened: with the text so far of whatever is streaming.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use api::{Cursor, Event, EventBody, HostError, Session, SessionId, WatchItem, WatchScope};
use futures::stream::{BoxStream, Fuse};
use futures::{FutureExt as _, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;

use super::open_session::OpenSession;
use crate::agent::Agent;
use crate::lock;

/// The most subagents to look for.
const MAX_SUBAGENTS: usize = 1_000;

/// The most events shown before opening a session returns; the rest follows from the task.
const MAX_READY_EVENTS: usize = 4_096;

/// The longest text joined from deltas that are ready, in bytes.
const MAX_JOINED_TEXT: usize = 64 << 10;

/// The events of a directory.
pub type EventStream = BoxStream<'static, WatchItem>;

impl Agent {
    /// Subscribes to the events of a directory, after a cursor or from now on.
    pub async fn watch(&self, directory: &str, after: Option<Cursor>) -> Result<EventStream, HostError> {
        self.host().watch(WatchScope::Directory(directory.to_owned()), after).await
    }

    /// Shows the events of a session until it is closed. Events that are ready are shown before this returns; they
    /// include the text so far of what is streaming, or was when a process died.
    pub async fn follow(self: &Arc<Self>, open: &Arc<OpenSession>, events: EventStream) {
        // Weak, because the session owns the task.
        let (agent, open_session) = (Arc::downgrade(self), Arc::downgrade(open));
        let mut follower = Follower { agent, open: open_session, cursor: None, events: events.fuse(), lookahead: None };
        for _ in 0..MAX_READY_EVENTS {
            let Some(ready) = follower.next().now_or_never() else { break };
            let Some(item) = ready else { return };
            if !follower.handle(item).await {
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
        let mut subagents = Vec::new();
        let mut unseen = vec![root.clone()];
        while let Some(parent) = unseen.pop()
            && subagents.len() < MAX_SUBAGENTS
        {
            for child in self.host().children(&parent).await? {
                lock(&self.routes).entry(child.id.clone()).or_insert_with(|| root.clone());
                unseen.push(child.id.clone());
                subagents.push(child);
            }
        }
        Ok(subagents)
    }
}

struct Follower {
    agent: Weak<Agent>,
    open: Weak<OpenSession>,
    cursor: Option<Cursor>,
    events: Fuse<EventStream>,
    /// The item that ended a run of joined text.
    lookahead: Option<WatchItem>,
}

impl Follower {
    async fn run(mut self) {
        while let Some(item) = self.next().await {
            if !self.handle(item).await {
                return;
            }
        }
    }

    async fn next(&mut self) -> Option<WatchItem> {
        match self.lookahead.take() {
            Some(item) => Some(item),
            None => self.events.next().await,
        }
    }

    /// Joins a text delta with those of the same part that are ready. A model may write faster than single deltas can
    /// be shown, and untaken events stay in memory.
    fn join_deltas<'a>(&mut self, event: &'a EventBody) -> Cow<'a, EventBody> {
        let EventBody::PartDelta { part_id, .. } = event else { return Cow::Borrowed(event) };
        let mut event = event.clone();
        while self.lookahead.is_none()
            && let EventBody::PartDelta { delta, .. } = &mut event
            && delta.len() < MAX_JOINED_TEXT
            && let Some(Some(item)) = self.events.next().now_or_never()
        {
            let next = if let WatchItem::Frame(frame) = &item { frame.event() } else { None };
            match next.as_deref() {
                Some(Event { body: EventBody::PartDelta { part_id: part, delta: more, .. }, .. })
                    if part == part_id =>
                {
                    delta.push_str(more);
                }
                _ => self.lookahead = Some(item),
            }
        }
        Cow::Owned(event)
    }

    /// Handles an item; false if the stream has ended.
    async fn handle(&mut self, item: WatchItem) -> bool {
        let (Some(agent), Some(open)) = (self.agent.upgrade(), self.open.upgrade()) else { return false };
        match item {
            WatchItem::Frame(frame) => {
                if let Some(cursor) = &frame.cursor {
                    self.cursor = Some(cursor.clone());
                }
                if let Some(event) = frame.event() {
                    show_event(&agent, &open, &self.join_deltas(&event.body)).await;
                }
            }
            WatchItem::Resync(reason) => {
                tracing::debug!(reason, "events may be missing");
                show_stored_state(&agent, &open).await;
            }
            // The client reads more slowly than events come: resume after the last one.
            WatchItem::Lagged => {
                match agent.watch(&open.scope.directory, self.cursor.clone()).await {
                    Ok(events) => self.events = events.fuse(),
                    Err(error) => {
                        tracing::error!(%error, session = %open.id, "cannot follow events any more");
                        return false;
                    }
                }
                show_stored_state(&agent, &open).await;
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
async fn show_stored_state(agent: &Arc<Agent>, open: &Arc<OpenSession>) {
    match open.reread(agent.host()).await {
        Ok(left) => agent.apply_effects(open, left).await,
        Err(error) => tracing::warn!(%error, session = %open.id, "failed to read a session again"),
    }
    agent.ask_pending(open).await;
    agent.refresh_soon(open);
}
