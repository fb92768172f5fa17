//! Sessions.

use api::{
    CreateSession, HostError, JsonMap, ListSessions, MessageId, Ruleset, Session, SessionId, SessionModel,
    SessionStatus, Timestamp, Todo, UpdateSession,
};
use axum::http::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::turn::long_running;
use crate::error::{Error, RequestPart};
use crate::operation::request::{JsonBody, NoParams, OptionalJsonBody, ParsedId, Request};
use crate::operation::{JsonReply, Operation, RawReply, operation};

pub fn operations() -> Vec<Operation> {
    const SESSION: &str = "/session/{sessionID}";
    let children = "/session/{sessionID}/children";
    vec![
        operation(
            Method::GET,
            "/session",
            "session.list",
            "The sessions of a project, most recently changed first.",
            list,
        ),
        operation(Method::POST, "/session", "session.create", "Create a session.", create),
        operation(
            Method::GET,
            "/session/status",
            "session.status",
            "The status of every session that is not idle.",
            status,
        ),
        operation(Method::GET, SESSION, "session.get", "A session.", get).not_found(),
        operation(Method::PATCH, SESSION, "session.update", "Change a session.", update).not_found(),
        operation(Method::DELETE, SESSION, "session.delete", "Delete a session and its children.", delete).not_found(),
        operation(Method::GET, children, "session.children", "The sessions that a session spawned.", self::children)
            .not_found(),
        operation(Method::POST, "/session/{sessionID}/fork", "session.fork", "Copy a session.", fork).not_found(),
        operation(Method::GET, "/session/{sessionID}/todo", "session.todo", "The todo list of a session.", todo)
            .not_found(),
    ]
}

/// A session in the path.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SessionPath {
    #[serde(rename = "sessionID")]
    pub session: ParsedId<SessionId>,
}

/// Filters the sessions.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// Lists the whole project even if the query names a directory.
    scope: Option<ListScope>,
    /// Only sessions at or below this path of the project.
    path: Option<String>,
    /// Only sessions without a parent.
    roots: Option<bool>,
    /// Only sessions changed at or after this time.
    start: Option<f64>,
    /// Only sessions whose title contains this text.
    search: Option<String>,
    /// The most to list.
    limit: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ListScope {
    Project,
}

/// A whole number in a query. JavaScript clients may write it in any form (`1e3`).
pub fn whole_number(name: &str, value: Option<f64>) -> Result<Option<u64>, Error> {
    let Some(value) = value else { return Ok(None) };
    if !(0.0..=9_007_199_254_740_991.0).contains(&value) || value.fract() != 0.0 {
        return Err(Error::bad_request(
            RequestPart::Query,
            format!("Expected a whole number of at least 0, got {value}\n  at [{name:?}]"),
        ));
    }
    Ok(Some(value as u64))
}

async fn list(request: Request<NoParams, ListQuery>) -> Result<RawReply<Vec<Session>>, Error> {
    let query = request.query;
    let limit = whole_number("limit", query.limit)?.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let list = ListSessions {
        directory_only: request.directory_in_query && query.scope.is_none(),
        roots: query.roots.unwrap_or_default(),
        search: query.search.filter(|text| !text.is_empty()),
        start: whole_number("start", query.start)?.map(|start| Timestamp::try_from(start).unwrap_or(Timestamp::MAX)),
        path: query.path.filter(|path| !path.is_empty()),
        limit,
        ..ListSessions::default()
    };
    Ok(RawReply::json(request.engine.sessions_json(&request.scope, list).await?))
}

/// A new session. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct CreateBody {
    #[serde(rename = "parentID")]
    parent: Option<ParsedId<SessionId>>,
    title: Option<String>,
    agent: Option<String>,
    model: Option<SessionModel>,
    metadata: Option<JsonMap>,
    permission: Option<Ruleset>,
    #[serde(rename = "workspaceID")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
}

async fn create(
    request: Request<NoParams, NoParams, OptionalJsonBody<CreateBody>>,
) -> Result<JsonReply<Session>, Error> {
    let OptionalJsonBody(body) = request.body;
    if let Some(other) = body.workspace.as_ref().filter(|id| !id.starts_with("wrk")) {
        let message = format!("Expected a string starting with \"wrk\", got {other:?}\n  at [\"workspaceID\"]");
        return Err(Error::bad_request(RequestPart::Payload, message));
    }
    let input = CreateSession {
        parent_id: body.parent.map(|id| id.0),
        title: body.title,
        agent: body.agent,
        model: body.model,
        metadata: body.metadata,
        permission: body.permission,
        workspace_id: body.workspace,
    };
    match request.host.create_session(&request.scope, input).await {
        // The query names it, not the path.
        Err(error @ HostError::NotFound { what: "workspace", .. }) => {
            Err(Error::bad_request(RequestPart::Query, format!("{error}\n  at [\"workspace\"]")))
        }
        created => Ok(JsonReply(created?)),
    }
}

async fn status(request: Request) -> Result<JsonReply<IndexMap<SessionId, SessionStatus>>, Error> {
    Ok(JsonReply(request.host.statuses(&request.scope).await?))
}

async fn get(request: Request<SessionPath>) -> Result<JsonReply<Session>, Error> {
    Ok(JsonReply(request.host.session(&request.path.session.0).await?))
}

/// Changes to a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct UpdateBody {
    title: Option<String>,
    metadata: Option<JsonMap>,
    permission: Option<Ruleset>,
    time: Option<UpdateTime>,
    agent: Option<String>,
    model: Option<SessionModel>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct UpdateTime {
    archived: Option<f64>,
}

async fn update(request: Request<SessionPath, NoParams, JsonBody<UpdateBody>>) -> Result<JsonReply<Session>, Error> {
    let JsonBody(body) = request.body;
    let archived = body.time.as_ref().and_then(|time| time.archived).map(|at| Some(at as Timestamp));
    let UpdateBody { title, metadata, permission, agent, model, .. } = body;
    let change = UpdateSession { title, metadata, permission, archived, agent, model };
    Ok(JsonReply(request.host.update_session(&request.path.session.0, change).await?))
}

async fn delete(request: Request<SessionPath>) -> Result<JsonReply<bool>, Error> {
    request.host.delete_session(&request.path.session.0).await?;
    Ok(JsonReply(true))
}

async fn children(request: Request<SessionPath>) -> Result<RawReply<Vec<Session>>, Error> {
    let children = request.host.children(&request.path.session.0).await?;
    RawReply::large(&request.state, children).await
}

/// Where to end the copy.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct ForkBody {
    #[serde(rename = "messageID")]
    message: Option<ParsedId<MessageId>>,
}

async fn fork(request: Request<SessionPath, NoParams, OptionalJsonBody<ForkBody>>) -> Result<RawReply<Session>, Error> {
    let before = request.body.0.message.map(|id| id.0);
    let (host, session) = (request.host, request.path.session.0);
    long_running(&request.state, async move { host.fork_session(&session, before).await }).await
}

async fn todo(request: Request<SessionPath>) -> Result<JsonReply<Vec<Todo>>, Error> {
    Ok(JsonReply(request.host.todo(&request.path.session.0).await?))
}
