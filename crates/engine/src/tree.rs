//! Sessions and those that they spawned: how deep, and how many.

use api::Session;
use store::StoreError;

use crate::Inner;

/// The deepest tree of sessions that is walked.
pub(crate) const DEPTH_MAX: usize = 100;

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
}
