//! Sessions.

use api::{
    CreateSession, Host as _, JsonMap, ListSessions, MessageId, Ruleset, Session, SessionId, SessionModel,
    SessionStatus, Timestamp, Todo, UpdateSession,
};
use axum::http::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::turn::patient;
use crate::error::{Error, Where};
use crate::operation::request::{Call, Given, JsonBody, Maybe, Nothing};
use crate::operation::{Data, Operation, Raw, operation};

pub fn operations() -> Vec<Operation> {
    const SESSION: &str = "/session/{sessionID}";
    let children = "/session/{sessionID}/children";
    vec![
        operation(Method::GET, "/session", "session.list", "The sessions of a project, newest change first.", list),
        operation(Method::POST, "/session", "session.create", "Make a session.", create),
        operation(Method::GET, "/session/status", "session.status", "What the sessions that are not idle do.", status),
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
    pub session: Given<SessionId>,
}

/// Which sessions.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// Those of the whole project even if the query names a directory.
    scope: Option<ProjectScope>,
    /// Only those at or below this path of the project.
    path: Option<String>,
    /// Only those without a parent.
    roots: Option<bool>,
    /// Only those that changed at or after.
    start: Option<f64>,
    /// Only those whose title contains it.
    search: Option<String>,
    /// The most.
    limit: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ProjectScope {
    Project,
}

/// A whole number of a query, which JavaScript's clients may write as they like (`1e3`).
pub fn whole(name: &str, value: Option<f64>) -> Result<Option<u64>, Error> {
    let Some(value) = value else { return Ok(None) };
    if !(0.0..=9_007_199_254_740_991.0).contains(&value) || value.fract() != 0.0 {
        return Err(Error::bad_request(
            Where::Query,
            format!("Expected a whole number from 0, got {value}\n  at [{name:?}]"),
        ));
    }
    Ok(Some(value as u64))
}

async fn list(call: Call<Nothing, ListQuery>) -> Result<Raw<Vec<Session>>, Error> {
    let query = call.query;
    let limit = whole("limit", query.limit)?.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let list = ListSessions {
        directory_only: call.directory_in_query && query.scope.is_none(),
        roots: query.roots.unwrap_or_default(),
        search: query.search.filter(|text| !text.is_empty()),
        start: whole("start", query.start)?.map(|start| Timestamp::try_from(start).unwrap_or(Timestamp::MAX)),
        path: query.path.filter(|path| !path.is_empty()),
        limit,
        ..ListSessions::default()
    };
    let rows = call.state.engine.sessions_json(&call.scope, list)?;
    Ok(Raw::json(format!("[{}]", rows.join(","))))
}

/// A new session. What is not known is ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct Create {
    #[serde(rename = "parentID")]
    parent: Option<Given<SessionId>>,
    title: Option<String>,
    agent: Option<String>,
    model: Option<SessionModel>,
    metadata: Option<JsonMap>,
    permission: Option<Ruleset>,
    #[serde(rename = "workspaceID")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
}

async fn create(call: Call<Nothing, Nothing, Maybe<Create>>) -> Result<Data<Session>, Error> {
    let Maybe(body) = call.body;
    if let Some(other) = body.workspace.as_ref().filter(|id| !id.starts_with("wrk")) {
        let message = format!("Expected a string starting with \"wrk\", got {other:?}\n  at [\"workspaceID\"]");
        return Err(Error::bad_request(Where::Payload, message));
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
    Ok(Data(call.state.engine.create_session(&call.scope, input).await?))
}

async fn status(call: Call) -> Result<Data<IndexMap<SessionId, SessionStatus>>, Error> {
    Ok(Data(call.state.engine.statuses(&call.scope).await?))
}

async fn get(call: Call<SessionPath>) -> Result<Data<Session>, Error> {
    Ok(Data(call.state.engine.session(&call.scope, &call.path.session.0).await?))
}

/// A change of a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Update {
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

async fn update(call: Call<SessionPath, Nothing, JsonBody<Update>>) -> Result<Data<Session>, Error> {
    let JsonBody(body) = call.body;
    let archived = body.time.as_ref().and_then(|time| time.archived).map(|at| Some(at as Timestamp));
    let Update { title, metadata, permission, agent, model, .. } = body;
    let change = UpdateSession { title, metadata, permission, archived, agent, model };
    Ok(Data(call.state.engine.update_session(&call.scope, &call.path.session.0, change).await?))
}

async fn delete(call: Call<SessionPath>) -> Result<Data<bool>, Error> {
    call.state.engine.delete_session(&call.scope, &call.path.session.0).await?;
    Ok(Data(true))
}

async fn children(call: Call<SessionPath>) -> Result<Data<Vec<Session>>, Error> {
    Ok(Data(call.state.engine.children(&call.scope, &call.path.session.0).await?))
}

/// Where to cut.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct Fork {
    #[serde(rename = "messageID")]
    message: Option<Given<MessageId>>,
}

async fn fork(call: Call<SessionPath, Nothing, Maybe<Fork>>) -> Result<Raw<Session>, Error> {
    let before = call.body.0.message.map(|id| id.0);
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    patient(&call.state, async move { engine.fork_session(&scope, &session, before).await }).await
}

async fn todo(call: Call<SessionPath>) -> Result<Data<Vec<Todo>>, Error> {
    Ok(Data(call.state.engine.todo(&call.scope, &call.path.session.0).await?))
}
