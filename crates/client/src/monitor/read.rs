//! Reads what exists of a tree.

use std::collections::HashSet;

use api::{Host, HostError, HostFuture, ListMessages, MessageWithParts, Scope, Session, SessionId, SessionStatus};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use indexmap::{IndexMap, IndexSet};

use super::event::Ask;
use super::tree::{Read, ReadSession, SESSIONS};

/// Requests at once.
const AT_ONCE: usize = 8;
/// The newest messages of a session that are read.
pub(super) const MESSAGES: usize = 100;

/// Reads a tree. A root that does not exist is [`HostError::NotFound`].
///
/// Turns go on meanwhile. Whoever follows the events since before the read hears of all that it saw too early.
pub(super) async fn read(host: &dyn Host, scope: &Scope, root: &SessionId) -> Result<Read, HostError> {
    let (sessions, truncated) = walk(host, scope, root).await?;
    let scopes: IndexSet<Scope> = sessions.iter().map(|session| within(scope, session)).collect();
    let before = statuses(host, &scopes).await?;
    let messages =
        all(sessions.iter().map(|session| messages(host, within(scope, session), &session.id).boxed())).await?;
    let asks = asks(host, &scopes).await?;
    let mut after = statuses(host, &scopes).await?;
    let sessions = sessions.into_iter().zip(messages).filter_map(|(session, messages)| {
        let status = after.shift_remove(&session.id).or_else(|| before.get(&session.id).cloned());
        Some(ReadSession { status: status.unwrap_or(SessionStatus::Idle), session, messages: messages? })
    });
    Ok(Read { sessions: sessions.collect(), asks, truncated })
}

/// A child may work in a directory of its own.
fn within(scope: &Scope, session: &Session) -> Scope {
    Scope { directory: session.directory.clone(), workspace: scope.workspace.clone() }
}

/// The root and what is below it, level by level; and whether that is not all.
async fn walk(host: &dyn Host, scope: &Scope, root: &SessionId) -> Result<(Vec<Session>, bool), HostError> {
    let mut found = vec![host.session(scope, root).await?];
    let mut known: HashSet<SessionId> = HashSet::from([root.clone()]);
    let mut level = 0;
    while level < found.len() {
        let parents = found[level..].iter();
        let children = all(parents.map(|session| children(host, within(scope, session), &session.id).boxed())).await?;
        level = found.len();
        found.extend(children.into_iter().flatten().filter(|child| known.insert(child.id.clone())));
        if found.len() > SESSIONS {
            found.truncate(SESSIONS);
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

/// Sends requests, some at once; gives the answers in their order.
async fn all<'a, T>(requests: impl Iterator<Item = HostFuture<'a, T>>) -> Result<Vec<T>, HostError> {
    // Collected, because the compiler cannot see that a stream over borrowed sessions is `Send`.
    stream::iter(requests.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await
}

async fn children(host: &dyn Host, scope: Scope, id: &SessionId) -> Result<Vec<Session>, HostError> {
    let mut children = existing(host.children(&scope, id).await)?.unwrap_or_default();
    if host.features().tree {
        // Trefoil lists them as they were made.
        return Ok(children);
    }
    children.sort_by(|a, b| (a.time.created, &b.id).cmp(&(b.time.created, &a.id)));
    Ok(children)
}

async fn messages(host: &dyn Host, scope: Scope, id: &SessionId) -> Result<Option<Vec<MessageWithParts>>, HostError> {
    let query = ListMessages { limit: Some(MESSAGES), before: None };
    Ok(existing(host.messages(&scope, id, query).await)?.map(|page| page.messages))
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

/// Nothing of what was deleted since it was found.
fn existing<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Err(HostError::NotFound { .. }) => Ok(None),
        other => other.map(Some),
    }
}
