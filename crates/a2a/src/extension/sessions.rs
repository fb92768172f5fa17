//! Methods that read sessions.

use api::{Json, ListMessages, ListSessions, MessageId, Scope, Session};
use serde_json::json;

use super::params::Params;
use super::{Request, results};
use crate::service::access::Use;
use crate::{Error, Line};

/// The default and the largest number of items in a page.
const PAGE: usize = 20;
const MAX_PAGE: usize = 100;
/// How many sessions are looked at to fill a page, since those of others are left out.
const MAX_LOOKED_AT: usize = 2000;

const SESSION: [&str; 3] = ["session_id", "directory", "metadata"];

pub(super) async fn status(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["directory", "metadata"])?;
    let scope = request.scope().await?;
    let statuses = request.host().statuses(&scope).await.map_err(|error| request.upstream(None).error(error))?;
    let visible = request.service.access().session_ids(request.who, statuses.keys().cloned().collect()).await?;
    let mut shown: Vec<_> = statuses.iter().filter(|(session, _)| visible.contains(*session)).collect();
    shown.sort_unstable_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
    let items = shown.into_iter().map(|(session, status)| results::status(session.as_str(), status));
    Ok(json!({ "items": items.collect::<Vec<_>>() }))
}

/// The parameters of a list: at the top, and in 0.3 also in `query`, which wins.
struct Filters<'a>(Vec<Params<'a>>);

impl<'a> Filters<'a> {
    fn new(request: &Request<'a>) -> Result<Self, Error> {
        let query = match request.line {
            Line::V03 => request.params.object("query", "query.")?,
            Line::V10 => None,
        };
        let all: Vec<Params<'a>> = query.into_iter().chain([request.params]).collect();
        for params in &all {
            params.only_limit_pagination()?;
        }
        Ok(Self(all))
    }

    fn first<T>(&self, read: impl Fn(&Params<'a>) -> Result<Option<T>, Error>) -> Result<Option<T>, Error> {
        self.0.iter().find_map(|params| read(params).transpose()).transpose()
    }

    fn limit(&self) -> Result<usize, Error> {
        let limit = self.first(|params| match params.get("limit") {
            Some(_) => params.limit(PAGE, MAX_PAGE).map(Some),
            None => Ok(None),
        })?;
        Ok(limit.unwrap_or(PAGE))
    }
}

/// Fails if a list has other parameters, or `query` where it is not read.
fn only(request: &Request<'_>, keys: &[&str]) -> Result<(), Error> {
    if request.line == Line::V10 && request.params.get("query").is_some() {
        return Err(request.params.invalid("query", "is not supported; put the filters beside each other"));
    }
    let keys: Vec<&str> = keys.iter().copied().chain(["query", "cursor", "page", "size"]).collect();
    request.params.only(&keys)
}

pub(super) async fn list(request: &Request<'_>) -> Result<Json, Error> {
    only(request, &["limit", "directory", "roots", "start", "search", "metadata"])?;
    let filters = Filters::new(request)?;
    let start = filters.first(|params| params.number("start"))?;
    let limit = filters.limit()?;
    let query = ListSessions {
        directory_only: filters.first(|params| params.text("directory"))?.is_some(),
        roots: filters.first(|params| params.flag("roots"))?.unwrap_or(false),
        search: filters.first(|params| params.text("search"))?.map(str::to_owned),
        start: start.and_then(|start| start.try_into().ok()),
        limit: Some(MAX_PAGE),
        ..ListSessions::default()
    };
    let scope = request.scope().await?;
    let sessions = visible_sessions(request, &scope, query, limit).await?;
    Ok(json!({ "items": tasks(request, &sessions) }))
}

/// The first sessions that the caller may see.
async fn visible_sessions(
    request: &Request<'_>,
    scope: &Scope,
    mut query: ListSessions,
    limit: usize,
) -> Result<Vec<Session>, Error> {
    let mut visible: Vec<Session> = Vec::new();
    let mut looked_at = 0;
    loop {
        let page = request.host().sessions(scope, query.clone()).await;
        let page = page.map_err(|error| request.upstream(None).error(error))?;
        let (length, oldest) = (page.len(), page.last().map(|session| session.time.updated));
        looked_at += length;
        // A server may ignore the cursor and send the same page again.
        let is_new = |session: &Session| !visible.iter().any(|known| known.id == session.id);
        let page: Vec<Session> = page.into_iter().filter(is_new).collect();
        let nothing_new = page.is_empty();
        visible.extend(request.service.access().sessions(request.who, page).await?);
        if visible.len() >= limit || nothing_new || length < MAX_PAGE || looked_at >= MAX_LOOKED_AT {
            visible.truncate(limit);
            return Ok(visible);
        }
        query.before = oldest;
    }
}

fn tasks(request: &Request<'_>, sessions: &[Session]) -> Vec<Json> {
    sessions.iter().map(|session| results::session_task(session, request.line)).collect()
}

pub(super) async fn get(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&SESSION)?;
    let (id, _) = request.session(Use::Read).await?;
    let session = request.host().session(&id).await.map_err(|error| request.upstream(Some(&id)).error(error))?;
    Ok(json!({ "item": results::session_task(&session, request.line) }))
}

pub(super) async fn children(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&SESSION)?;
    let (id, _) = request.session(Use::Read).await?;
    let children = request.host().children(&id).await.map_err(|error| request.upstream(Some(&id)).error(error))?;
    Ok(json!({ "items": tasks(request, &children) }))
}

pub(super) async fn todo(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&SESSION)?;
    let (id, _) = request.session(Use::Read).await?;
    let todos = request.host().todo(&id).await.map_err(|error| request.upstream(Some(&id)).error(error))?;
    Ok(json!({ "items": todos.iter().enumerate().map(results::todo).collect::<Vec<_>>() }))
}

pub(super) async fn diff(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "message_id", "directory", "metadata"])?;
    let message = request.params.text("message_id")?.map(|id| message_id(request, id)).transpose()?;
    let (id, _) = request.session(Use::Read).await?;
    let diffs = request.host().session_diff(&id, message.as_ref()).await;
    let diffs = diffs.map_err(|error| request.upstream(Some(&id)).error(error))?;
    Ok(json!({ "items": diffs.iter().map(results::diff).collect::<Vec<_>>() }))
}

pub(super) async fn messages(request: &Request<'_>) -> Result<Json, Error> {
    only(request, &["session_id", "limit", "before", "directory", "metadata"])?;
    let filters = Filters::new(request)?;
    let before = filters.first(|params| params.text("before"))?;
    let before = before.map(|id| {
        MessageId::parse(id).map_err(|_| Error::invalid("before", "before must be a cursor of an earlier page"))
    });
    let query = ListMessages { limit: Some(filters.limit()?), before: before.transpose()? };
    let (id, _) = request.session(Use::Read).await?;
    let page = request.host().messages(&id, query).await.map_err(|error| request.upstream(Some(&id)).error(error))?;
    let items: Vec<Json> = page.messages.iter().map(|message| results::message(message, request.line)).collect();
    Ok(json!({ "items": items, "next_cursor": page.older }))
}

pub(super) async fn message(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "message_id", "directory", "metadata"])?;
    let message = message_id(request, request.params.required_text("message_id")?)?;
    let (id, _) = request.session(Use::Read).await?;
    let message = request.host().message(&id, &message).await;
    let message = message.map_err(|error| request.upstream(Some(&id)).error(error))?;
    Ok(json!({ "item": results::message(&message, request.line) }))
}

fn message_id(request: &Request<'_>, id: &str) -> Result<MessageId, Error> {
    MessageId::parse(id).map_err(|_| request.params.invalid("message_id", "is not the id of a message"))
}
