//! Watching a session with its descendants: the events of all sessions, filtered by a tree that the events change.

use api::{Cursor, Event, EventBody, Frame, HostError, SessionId, Subtree, WatchItem, WatchScope};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use store::{Store, StoreError};

use crate::Inner;
use crate::error::store_error;

/// The type of the event that tells of a deleted session.
const SESSION_DELETED: &str = "session.deleted";

/// A deleted session, and its parent.
type DeletedSession = (SessionId, Option<SessionId>);

impl Inner {
    /// The events of a session and its descendants, in whatever directory they work.
    pub(crate) async fn watch_subtree(
        &self,
        root: &SessionId,
        after: Option<Cursor>,
    ) -> Result<BoxStream<'static, WatchItem>, HostError> {
        let since = after.as_ref().map(|cursor| cursor.seq);
        // Watch first, then read the tree: a session created in between is seen twice rather than missed.
        let events = self.store.watch(WatchScope::All, after).map_err(store_error)?;
        let id = root.clone();
        let read = self.store.long_read(move |store| store.subtree(&id)).await;
        let sessions = read.map_err(store_error)?;
        if sessions.is_empty() {
            return Err(HostError::not_found("session", root.as_str()));
        }
        let mut subtree = Subtree::new(root.clone(), sessions.into_iter().map(|session| session.id));
        if let Some(since) = since {
            subtree.revive(deleted_sessions(&self.store, since).await.map_err(store_error)?);
        }
        let mut admits = move |item: &WatchItem| match item {
            WatchItem::Frame(frame) => subtree.admits(frame),
            WatchItem::Resync(_) | WatchItem::Lagged => true,
        };
        Ok(events.filter(move |item| std::future::ready(admits(item))).boxed())
    }
}

/// The sessions that the log says were deleted after a position.
async fn deleted_sessions(store: &Store, after: u64) -> Result<Vec<DeletedSession>, StoreError> {
    let (mut deleted, mut next) = (Vec::new(), Some(after));
    while let Some(at) = next {
        let read = move |store: &Store| {
            let Some((frames, next)) = store.history(at)? else { return Ok((Vec::new(), None)) };
            Ok::<_, StoreError>((frames.iter().filter_map(deleted_session).collect(), Some(next)))
        };
        let page: Vec<DeletedSession>;
        (page, next) = store.long_read(read).await?;
        deleted.extend(page);
    }
    Ok(deleted)
}

/// The session whose deletion an event reports.
fn deleted_session(frame: &Frame) -> Option<DeletedSession> {
    if Event::type_of(frame.json())? != SESSION_DELETED {
        return None;
    }
    match &frame.event()?.body {
        EventBody::SessionDeleted { info, .. } => Some((info.id.clone(), info.parent_id.clone())),
        _ => None,
    }
}
