//! Reads a tree from the host.

use std::collections::HashSet;

use api::{
    Ask, Host, HostError, HostFuture, ListMessages, MessageWithParts, Scope, Session, SessionId, SessionSnapshot,
    SessionStatus, TreeSnapshot, TreeTracker,
};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use indexmap::{IndexMap, IndexSet};

/// The most concurrent requests.
const MAX_CONCURRENT: usize = 8;

/// Reads a tree. A missing root is [`HostError::NotFound`].
///
/// Turns continue meanwhile. A reader that has followed the events since before the read receives everything that the
/// read was too early for.
pub(super) async fn read_tree(host: &dyn Host, scope: &Scope, root: &SessionId) -> Result<TreeSnapshot, HostError> {
    let (sessions, truncated) = walk(host, root).await?;
    let scopes: IndexSet<Scope> = sessions.iter().map(|session| within(scope, session)).collect();
    let before = statuses(host, &scopes).await?;
    let messages = send_all(sessions.iter().map(|session| messages(host, &session.id).boxed())).await?;
    let asks = asks(host, &scopes).await?;
    let mut after = statuses(host, &scopes).await?;
    let sessions = sessions.into_iter().zip(messages).filter_map(|(session, messages)| {
        let status = after.shift_remove(&session.id).or_else(|| before.get(&session.id).cloned());
        Some(SessionSnapshot { status: status.unwrap_or(SessionStatus::Idle), session, messages: messages? })
    });
    let sessions: Vec<SessionSnapshot> = sessions.collect();
    let tree = match host.features().tree {
        true => Some(host.tree(root).await?),
        false => None,
    };
    Ok(TreeSnapshot { sessions, asks, tree, truncated })
}

/// Whether the host agrees with a tracker on who works.
pub(super) async fn statuses_match(host: &dyn Host, scope: &Scope, tracker: &TreeTracker) -> Result<bool, HostError> {
    let within = |directory: &str| Scope { directory: directory.to_owned(), workspace: scope.workspace.clone() };
    let scopes: IndexSet<Scope> = tracker.directories().into_iter().map(within).collect();
    let working = statuses(host, &scopes).await?;
    Ok(tracker.session_ids().all(|id| tracker.is_live(id) == Some(working.contains_key(id))))
}

/// A child may work in its own directory.
fn within(scope: &Scope, session: &Session) -> Scope {
    Scope { directory: session.directory.clone(), workspace: scope.workspace.clone() }
}

/// The root and its descendants, level by level, and whether some are missing.
pub(crate) async fn walk(host: &dyn Host, root: &SessionId) -> Result<(Vec<Session>, bool), HostError> {
    let mut found = vec![host.session(root).await?];
    let mut known: HashSet<SessionId> = HashSet::from([root.clone()]);
    let mut level = 0;
    while level < found.len() {
        let parents = found[level..].iter();
        let children = send_all(parents.map(|session| children(host, &session.id).boxed())).await?;
        level = found.len();
        found.extend(children.into_iter().flatten().filter(|child| known.insert(child.id.clone())));
        if found.len() > TreeTracker::MAX_SESSIONS {
            found.truncate(TreeTracker::MAX_SESSIONS);
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

/// Sends requests, some of them concurrently, and returns the responses in order.
async fn send_all<'a, T>(requests: impl Iterator<Item = HostFuture<'a, T>>) -> Result<Vec<T>, HostError> {
    // Collected, because the compiler cannot see that a stream over borrowed sessions is `Send`.
    stream::iter(requests.collect::<Vec<_>>()).buffered(MAX_CONCURRENT).try_collect().await
}

async fn children(host: &dyn Host, id: &SessionId) -> Result<Vec<Session>, HostError> {
    let mut children = ignore_not_found(host.children(id).await)?.unwrap_or_default();
    if host.features().tree {
        // Trefoil lists them in the order of their creation.
        return Ok(children);
    }
    children.sort_by(|a, b| (a.time.created, &b.id).cmp(&(b.time.created, &a.id)));
    Ok(children)
}

async fn messages(host: &dyn Host, id: &SessionId) -> Result<Option<Vec<MessageWithParts>>, HostError> {
    let query = ListMessages { limit: Some(TreeTracker::MAX_MESSAGES), before: None };
    Ok(ignore_not_found(host.messages(id, query).await)?.map(|page| page.messages))
}

async fn statuses(host: &dyn Host, scopes: &IndexSet<Scope>) -> Result<IndexMap<SessionId, SessionStatus>, HostError> {
    let mut all = IndexMap::new();
    for scope in scopes {
        all.extend(host.statuses(scope).await?.into_iter().filter(|(_, status)| *status != SessionStatus::Idle));
    }
    Ok(all)
}

async fn asks(host: &dyn Host, scopes: &IndexSet<Scope>) -> Result<Vec<Ask>, HostError> {
    let mut asks = Vec::new();
    for scope in scopes {
        asks.extend(host.permissions(scope).await?.into_iter().map(|ask| Ask::Permission(Box::new(ask))));
        asks.extend(host.questions(scope).await?.into_iter().map(|ask| Ask::Question(Box::new(ask))));
    }
    Ok(asks)
}

/// Turns "not found" into `None`, for what was deleted since it was listed.
fn ignore_not_found<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Err(HostError::NotFound { .. }) => Ok(None),
        other => other.map(Some),
    }
}
