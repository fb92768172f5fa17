//! Pages of sessions and messages: the wire cannot filter and continue all lists as the contract does.

use std::path::Path;

use api::{Host as _, HostError, ListMessages, ListSessions, MessagePage, MessageWithParts, Scope, Session, SessionId};
use reqwest::Method;

use crate::Client;
use crate::wire;

/// Sessions per page, unless the query sets a limit.
const DEFAULT_SESSIONS: usize = 100;
/// The most sessions fetched to build a page that the server cannot filter itself.
const MAX_SESSIONS_SCANNED: usize = 10_000;
/// The limit for a page before a message, which the server does not serve without one.
const MAX_MESSAGES: usize = 1_000_000;

impl Client {
    /// Lists sessions. Filters that the wire lacks are applied to the sessions it returns.
    pub(crate) async fn list_sessions(&self, scope: &Scope, query: ListSessions) -> Result<Vec<Session>, HostError> {
        let ListSessions { directory_only, everywhere, roots, search, start, before, limit, path, unarchived } = query;
        let wanted = limit.unwrap_or(DEFAULT_SESSIONS);
        let request = if everywhere {
            let request = self.request(Method::GET, &["experimental", "session"]).query("archived", !unarchived);
            let limit = if path.is_some() { MAX_SESSIONS_SCANNED } else { wanted };
            request.query_opt("cursor", before).query("limit", limit)
        } else {
            let limit = if before.is_some() || unarchived { MAX_SESSIONS_SCANNED } else { wanted };
            self.get(scope, &["session"]).query_opt("path", path.as_deref()).query("limit", limit)
        };
        let request =
            request.query_opt("directory", directory_only.then_some(&scope.directory)).query_opt("search", search);
        let mut sessions: Vec<Session> =
            request.query_opt("roots", roots.then_some(true)).query_opt("start", start).fetch().await?;
        self.inner.directories.remember_sessions(&sessions);
        sessions.retain(|session| {
            before.is_none_or(|before| session.time.updated < before)
                && !(unarchived && session.time.archived.is_some())
                && path
                    .as_ref()
                    .is_none_or(|path| Path::new(session.path.as_deref().unwrap_or_default()).starts_with(path))
        });
        sessions.truncate(wanted);
        Ok(sessions)
    }

    /// Lists messages. OpenCode's cursor of a page names a message and its time.
    pub(crate) async fn list_messages(&self, id: &SessionId, query: ListMessages) -> Result<MessagePage, HostError> {
        if query.limit == Some(0) {
            // To OpenCode, a limit of 0 means all.
            return Ok(MessagePage::default());
        }
        let mut request = self.session_request(Method::GET, id, &["message"]).await?;
        if let Some(before) = &query.before {
            // A cursor also contains the time of its message.
            let message = self.message(id, before).await?;
            request = request
                .query("before", wire::cursor(&message.info))
                .query("limit", query.limit.unwrap_or(MAX_MESSAGES));
        } else {
            request = request.query_opt("limit", query.limit);
        }
        let response = request.response().await?;
        let messages: Vec<MessageWithParts> = response.decode()?;
        let older = messages.first().filter(|_| response.headers.contains_key("x-next-cursor"));
        Ok(MessagePage { older: older.map(|message| message.info.id().clone()), messages })
    }
}
