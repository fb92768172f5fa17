//! Reads a tree from the host.

use std::collections::HashSet;

use api::{Host, HostError, HostFuture, ListMessages, MessageWithParts, Scope, Session, SessionId, SessionStatus};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use indexmap::{IndexMap, IndexSet};

use super::event::Ask;
use super::tree::{MAX_SESSIONS, SessionSnapshot, TreeSnapshot};

/// The most concurrent requests.
const MAX_CONCURRENT: usize = 8;
/// How many of a session's newest messages are read.
pub(super) const MAX_MESSAGES: usize = 100;

/// Reads a tree. A missing root is [`HostError::NotFound`].
///
/// Turns continue meanwhile. A reader that has followed the events since before the read receives everything that the
/// read was too early for.
pub(super) async fn read_tree(host: &dyn Host, scope: &Scope, root: &SessionId) -> Result<TreeSnapshot, HostError> {
    let (sessions, truncated) = walk(host, scope, root).await?;
    let scopes: IndexSet<Scope> = sessions.iter().map(|session| within(scope, session)).collect();
    let before = statuses(host, &scopes).await?;
    let messages =
        send_all(sessions.iter().map(|session| messages(host, within(scope, session), &session.id).boxed())).await?;
    let asks = asks(host, &scopes).await?;
    let mut after = statuses(host, &scopes).await?;
    let sessions = sessions.into_iter().zip(messages).filter_map(|(session, messages)| {
        let status = after.shift_remove(&session.id).or_else(|| before.get(&session.id).cloned());
        Some(SessionSnapshot { status: status.unwrap_or(SessionStatus::Idle), session, messages: messages? })
    });
    Ok(TreeSnapshot { sessions: sessions.collect(), asks, truncated })
}

/// A child may work in its own directory.
fn within(scope: &Scope, session: &Session) -> Scope {
    Scope { directory: session.directory.clone(), workspace: scope.workspace.clone() }
}

/// The root and its descendants, level by level, and whether some are missing.
async fn walk(host: &dyn Host, scope: &Scope, root: &SessionId) -> Result<(Vec<Session>, bool), HostError> {
    let mut found = vec![host.session(scope, root).await?];
    let mut known: HashSet<SessionId> = HashSet::from([root.clone()]);
    let mut level = 0;
    while level < found.len() {
        let parents = found[level..].iter();
        let children =
            send_all(parents.map(|session| children(host, within(scope, session), &session.id).boxed())).await?;
        level = found.len();
        found.extend(children.into_iter().flatten().filter(|child| known.insert(child.id.clone())));
        if found.len() > MAX_SESSIONS {
            found.truncate(MAX_SESSIONS);
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

async fn children(host: &dyn Host, scope: Scope, id: &SessionId) -> Result<Vec<Session>, HostError> {
    let mut children = ignore_not_found(host.children(&scope, id).await)?.unwrap_or_default();
    if host.features().tree {
        // Trefoil lists them in the order of their creation.
        return Ok(children);
    }
    children.sort_by(|a, b| (a.time.created, &b.id).cmp(&(b.time.created, &a.id)));
    Ok(children)
}

async fn messages(host: &dyn Host, scope: Scope, id: &SessionId) -> Result<Option<Vec<MessageWithParts>>, HostError> {
    let query = ListMessages { limit: Some(MAX_MESSAGES), before: None };
    Ok(ignore_not_found(host.messages(&scope, id, query).await)?.map(|page| page.messages))
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
