//! The events of a directory, handed to the sessions that the client has open there.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Cursor, EventBody, HostError, SessionId, WatchItem, WatchScope};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio_util::task::AbortOnDropHandle;

use crate::agent::Agent;
use crate::lock;
use crate::open::Open;

/// The directories that are followed.
#[derive(Default)]
pub struct Followed {
    directories: tokio::sync::Mutex<HashMap<String, AbortOnDropHandle<()>>>,
}

type Events = BoxStream<'static, WatchItem>;

impl Agent {
    /// Follows the events of a directory; those that happen after this returned are not missed.
    pub async fn follow(self: &Arc<Self>, directory: &str) -> Result<(), HostError> {
        let mut followed = self.followed.directories.lock().await;
        if followed.get(directory).is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let events = self.host().watch(WatchScope::Directory(directory.to_owned()), None).await?;
        // The task must not keep the agent alive that keeps the task.
        let agent = Arc::downgrade(self);
        let place = directory.to_owned();
        let task = tokio::spawn(async move {
            let mut follower = Follower { directory: place, cursor: None, events };
            while let Some(item) = follower.events.next().await {
                let Some(agent) = agent.upgrade() else { return };
                if !follower.take(&agent, item).await {
                    return;
                }
            }
        });
        followed.insert(directory.to_owned(), AbortOnDropHandle::new(task));
        Ok(())
    }

    /// Follows a directory no longer if nothing is open there.
    pub async fn unfollow(&self, directory: &str) {
        let mut followed = self.followed.directories.lock().await;
        let used = lock(&self.sessions).values().any(|open| open.scope.directory == directory);
        if !used {
            followed.remove(directory);
        }
    }

    /// The open session that an event is about: itself, or one of its subagents.
    fn route(&self, event: &EventBody) -> Option<Arc<Open>> {
        let routes = lock(&self.routes);
        let root = match event {
            EventBody::SessionCreated { info, .. } => {
                let root = routes.get(info.parent_id.as_ref()?)?.clone();
                drop(routes);
                lock(&self.routes).entry(info.id.clone()).or_insert_with(|| root.clone());
                root
            }
            _ => routes.get(event.session_id()?)?.clone(),
        };
        lock(&self.sessions).get(&root).cloned()
    }

    fn opened_in(&self, directory: &str) -> Vec<Arc<Open>> {
        lock(&self.sessions).values().filter(|open| open.scope.directory == directory).cloned().collect()
    }

    /// Sessions below an open one, so that their events and questions find it.
    pub async fn find_family(&self, root: &SessionId, scope: &api::Scope) -> Result<Vec<api::Session>, HostError> {
        const MOST: usize = 1_000;
        let mut family = Vec::new();
        let mut unseen = vec![root.clone()];
        while let Some(parent) = unseen.pop()
            && family.len() < MOST
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
    directory: String,
    cursor: Option<Cursor>,
    events: Events,
}

impl Follower {
    /// False if it cannot go on.
    async fn take(&mut self, agent: &Arc<Agent>, item: WatchItem) -> bool {
        match item {
            WatchItem::Frame(frame) => {
                if let Some(cursor) = &frame.cursor {
                    self.cursor = Some(cursor.clone());
                }
                if let Some(event) = frame.event() {
                    show(agent, &self.directory, &event.body).await;
                }
                true
            }
            WatchItem::Resync(reason) => {
                tracing::debug!(reason, "events may be missing");
                reread(agent, &self.directory).await;
                true
            }
            // The client reads more slowly than events come: go on where we were.
            WatchItem::Lagged => {
                let scope = WatchScope::Directory(self.directory.clone());
                match agent.host().watch(scope, self.cursor.clone()).await {
                    Ok(events) => {
                        self.events = events;
                        reread(agent, &self.directory).await;
                        true
                    }
                    Err(error) => {
                        tracing::error!(%error, "events cannot be followed any more");
                        false
                    }
                }
            }
        }
    }
}

async fn show(agent: &Arc<Agent>, directory: &str, event: &EventBody) {
    let opened = match event.session_id() {
        Some(_) => agent.route(event).into_iter().collect(),
        None => agent.opened_in(directory),
    };
    for open in opened {
        let left = open.show(|view| view.event(event)).await;
        agent.act(&open, left).await;
    }
}

/// Shows the stored state again where events may be missing.
async fn reread(agent: &Arc<Agent>, directory: &str) {
    for open in agent.opened_in(directory) {
        match open.reread(agent.host()).await {
            Ok(left) => agent.act(&open, left).await,
            Err(error) => tracing::warn!(%error, session = %open.id, "the session cannot be read again"),
        }
        agent.open_asks(&open).await;
    }
}
