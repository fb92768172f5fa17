//! Sessions and those that they spawned: how deep, how many, and how to stop them all.

use std::sync::Arc;

use api::{HostError, Session, SessionId};
use futures::future::join_all;
use store::StoreError;

use crate::Inner;
use crate::error::stored;

/// The deepest tree of sessions that is walked.
const DEPTH_MAX: usize = 100;

impl Inner {
    /// The first ancestor of a session, and how far it is away.
    pub(crate) fn root(&self, session: Session) -> Result<(Session, usize), StoreError> {
        let mut root = session;
        for depth in 0..DEPTH_MAX {
            let parent = root.parent_id.as_ref().map(|id| self.store.session(id)).transpose()?.flatten();
            match parent {
                Some(parent) => root = parent,
                None => return Ok((root, depth)),
            }
        }
        Ok((root, DEPTH_MAX))
    }

    /// A session and all below it, parents before their children.
    pub(crate) fn tree(&self, session: Session) -> Result<Vec<Session>, StoreError> {
        let mut tree = vec![session];
        let mut level = 0..1;
        for _ in 0..DEPTH_MAX {
            let mut below = Vec::new();
            for parent in &tree[level.clone()] {
                below.extend(self.store.children(&parent.id)?);
            }
            if below.is_empty() {
                break;
            }
            level = tree.len()..tree.len() + below.len();
            tree.extend(below);
        }
        Ok(tree)
    }

    /// Stops a session and all below it; false if none of them ran. When it returns, none of them runs any more.
    pub(crate) async fn stop_tree(self: &Arc<Self>, session: Session) -> Result<bool, HostError> {
        let tree = self.tree(session).map_err(stored)?;
        // A parent is told first, or it would go on with the news that its child was stopped. What it spawns after we have
        // looked it stops itself, before it ends.
        for session in &tree {
            self.runs.abort(&session.id);
        }
        let stopped = join_all(tree.iter().map(|session| self.stop(&session.id))).await;
        stopped.into_iter().try_fold(false, |any, stopped| Ok(any | stopped?))
    }

    /// Stops a session whose work nobody wants any more. A prompt that nobody runs is aborted as well, so that it does not
    /// wait for ever.
    pub(crate) async fn call_off(self: &Arc<Self>, session: &SessionId) -> Result<(), HostError> {
        let elsewhere = self.store.holder(session).map_err(stored)?.is_some_and(|h| h.alive && !h.own);
        if !elsewhere && !self.store.inbox(session).map_err(stored)?.is_empty() {
            self.start(session);
        }
        self.stop(session).await.map(drop)
    }
}
