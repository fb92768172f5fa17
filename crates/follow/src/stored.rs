//! Reads the stored state of a session again, where events were lost.

use std::collections::HashSet;

use api::{
    EventBody, Host, HostError, HostFuture, ListMessages, MessageId, MessagePage, MessageWithParts, Scope, Session,
    SessionId,
};
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use indexmap::IndexSet;

/// The most messages that are read again.
pub const MAX_MESSAGES: usize = 200;
/// How many are read at a time.
const PAGE: usize = 50;
/// The most subagents of a session.
const MAX_FAMILY: usize = 1_000;
/// The most concurrent requests.
const MAX_CONCURRENT: usize = 8;

/// The stored state of a session, to be shown again. Some of it was shown before.
#[derive(Debug, Default)]
pub struct Stored {
    /// Its subagents, each parent before its children.
    pub subagents: Vec<Session>,
    /// Its newest messages, oldest first.
    pub messages: Vec<MessageWithParts>,
    /// Whether there are no older ones.
    pub is_whole: bool,
    /// The open asks of all of them, as the events that announced them.
    pub asks: Vec<EventBody>,
}

impl Stored {
    /// All of it as events, for consumers that only know those.
    pub fn into_events(self) -> impl Iterator<Item = EventBody> {
        let created = |info: Session| EventBody::SessionCreated { session_id: info.id.clone(), info: Box::new(info) };
        let subagents = self.subagents.into_iter().map(created);
        let messages = self.messages.into_iter().flat_map(|message| {
            let parts = message.parts.into_iter().filter_map(EventBody::part);
            std::iter::once(EventBody::message(message.info)).chain(parts)
        });
        subagents.chain(messages).chain(self.asks)
    }
}

/// How far back to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    /// Nothing before this message.
    pub since: Option<MessageId>,
    /// Answers that were delivered to their end, so nothing before them is missing.
    pub delivered: HashSet<MessageId>,
}

/// The messages read so far. Pure: pages go in, the newest first.
#[derive(Debug, Default)]
struct Pages {
    /// The newest page first, each of them oldest first.
    pages: Vec<Vec<MessageWithParts>>,
    count: usize,
    is_whole: bool,
}

impl Pages {
    /// Adds the next older page. Returns what to read next.
    fn add(&mut self, page: MessagePage, reach: &Reach) -> Option<ListMessages> {
        let ids = || page.messages.iter().map(|message| message.info.id());
        let reached = ids().any(|id| reach.since.as_ref() == Some(id) || reach.delivered.contains(id));
        self.count += page.messages.len();
        self.is_whole = page.older.is_none();
        let is_empty = page.messages.is_empty();
        self.pages.push(page.messages);
        let limit = MAX_MESSAGES.saturating_sub(self.count).min(PAGE);
        let before = page.older.filter(|_| !reached && !is_empty && limit > 0)?;
        Some(ListMessages { limit: Some(limit), before: Some(before) })
    }

    /// What was read, oldest first.
    fn into_messages(self, since: Option<&MessageId>) -> Vec<MessageWithParts> {
        let mut messages: Vec<MessageWithParts> = self.pages.into_iter().rev().flatten().collect();
        if let Some(since) = since {
            match messages.iter().position(|message| message.info.id() == since) {
                Some(place) => drop(messages.drain(..place)),
                // It is not stored yet, or the host gave it another place.
                None => messages.retain(|message| message.info.id() > since),
            }
        }
        messages
    }
}

/// Reads the stored state of a session. Turns continue meanwhile; a reader that has watched since before gets all that
/// the read was too early for.
pub(crate) async fn read(
    host: &dyn Host,
    scope: &Scope,
    session: &SessionId,
    reach: &Reach,
) -> Result<Stored, HostError> {
    let subagents = family(host, session).await?;
    let mut pages = Pages::default();
    let mut next = Some(ListMessages { limit: Some(PAGE), before: None });
    while let Some(query) = next {
        next = pages.add(host.messages(session, query).await?, reach);
    }
    let is_whole = pages.is_whole;
    let asks = open_asks(host, scope, session, &subagents).await?;
    Ok(Stored { messages: pages.into_messages(reach.since.as_ref()), subagents, is_whole, asks })
}

/// Reads the subagents of a session, at any depth: each parent before its children, and at most a thousand.
pub async fn family(host: &dyn Host, root: &SessionId) -> Result<Vec<Session>, HostError> {
    let mut known: HashSet<SessionId> = HashSet::from([root.clone()]);
    let mut found: Vec<Session> = Vec::new();
    let mut level = vec![root.clone()];
    while !level.is_empty() && found.len() < MAX_FAMILY {
        // Collected, because the compiler cannot see that a stream over borrowed ids is `Send`.
        let requests: Vec<HostFuture<'_, Vec<Session>>> = level.iter().map(|id| children(host, id)).collect();
        let children: Vec<Vec<Session>> = stream::iter(requests).buffered(MAX_CONCURRENT).try_collect().await?;
        let from = found.len();
        found.extend(children.into_iter().flatten().filter(|child| known.insert(child.id.clone())));
        found.truncate(MAX_FAMILY);
        level = found[from..].iter().map(|child| child.id.clone()).collect();
    }
    Ok(found)
}

fn children<'a>(host: &'a dyn Host, id: &'a SessionId) -> HostFuture<'a, Vec<Session>> {
    async move {
        match host.children(id).await {
            // It was deleted since it was listed.
            Err(HostError::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
    .boxed()
}

/// Reads the open asks of a session and its subagents, as the events that announced them.
pub async fn open_asks(
    host: &dyn Host,
    scope: &Scope,
    session: &SessionId,
    subagents: &[Session],
) -> Result<Vec<EventBody>, HostError> {
    // A subagent may work in its own directory, and hosts list asks by directory.
    let own = |child: &Session| Scope { directory: child.directory.clone(), workspace: scope.workspace.clone() };
    let scopes: IndexSet<Scope> = std::iter::once(scope.clone()).chain(subagents.iter().map(own)).collect();
    let mut asks: Vec<EventBody> = Vec::new();
    for scope in &scopes {
        let permissions = host.permissions(scope).await?;
        asks.extend(permissions.into_iter().map(|ask| EventBody::PermissionAsked(Box::new(ask))));
        let questions = host.questions(scope).await?;
        asks.extend(questions.into_iter().map(|ask| EventBody::QuestionAsked(Box::new(ask))));
    }
    let is_ours = |id: &SessionId| id == session || subagents.iter().any(|child| child.id == *id);
    asks.retain(|ask| ask.session_id().is_some_and(is_ours));
    Ok(asks)
}

#[cfg(test)]
mod tests;
