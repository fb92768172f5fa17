//! Workspaces, and sessions that move.

use api::{HostError, Json, SessionId};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Where};
use crate::git::workspace::{self, WORKTREE, Workspace};
use crate::operation::request::{Call, Given, JsonBody, Nothing, normal};
use crate::operation::{Data, NoContent, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const SPACES: &str = "/experimental/workspace";
    const NOT_ROUTED: &str = "requests are not led to a workspace by ?workspace=; name its directory";
    vec![
        operation(
            Method::GET,
            "/experimental/workspace/adapter",
            "experimental.workspace.adapter.list",
            "The kinds of workspaces.",
            adapters,
        ),
        operation(Method::GET, SPACES, "experimental.workspace.list", "The workspaces of a project.", list),
        operation(Method::POST, SPACES, "experimental.workspace.create", "Make a workspace.", create)
            .error(400, &["WorkspaceCreateError", "BadRequestError"])
            .partial(NOT_ROUTED),
        operation(
            Method::POST,
            "/experimental/workspace/sync-list",
            "experimental.workspace.syncList",
            "Forget workspaces that are gone.",
            tidy,
        ),
        operation(
            Method::GET,
            "/experimental/workspace/status",
            "experimental.workspace.status",
            "Whether workspaces are there.",
            status,
        ),
        operation(
            Method::DELETE,
            "/experimental/workspace/{id}",
            "experimental.workspace.remove",
            "Remove a workspace with its files.",
            remove,
        )
        .not_found(),
        operation(
            Method::POST,
            "/experimental/workspace/warp",
            "experimental.workspace.warp",
            "Let a session go on in a workspace.",
            warp,
        )
        .error(400, &["WorkspaceWarpError", "VcsApplyError", "BadRequestError"])
        .not_found()
        .busy(),
        operation(
            Method::POST,
            "/experimental/control-plane/move-session",
            "experimental.controlPlane.moveSession",
            "Let a session go on in another directory of its project.",
            move_session,
        )
        .global()
        .error(400, &["MoveSessionError", "BadRequestError"])
        .partial("changes of files cannot be taken along; `warp` can copy them"),
    ]
}

/// A kind of workspace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Adapter {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    description: &'static str,
}

async fn adapters(_: Call) -> Result<Data<Vec<Adapter>>, Error> {
    let description = "A linked git working tree with a branch of its own";
    Ok(Data(vec![Adapter { kind: WORKTREE, name: "Worktree", description }]))
}

async fn list(call: Call) -> Result<Data<Vec<Workspace>>, Error> {
    Ok(Data(workspace::list(&call.state, &call.scope).await?))
}

/// A new workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Create {
    id: Option<Given<WorkspaceId>>,
    #[serde(rename = "type")]
    kind: String,
    branch: Option<String>,
    extra: Option<Json>,
}

/// The id of a workspace.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
struct WorkspaceId(#[schemars(regex(pattern = "^wrk"))] String);

impl std::str::FromStr for WorkspaceId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("wrk") && text.len() <= 128 {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(40).collect();
        Err(format!("Expected a string starting with \"wrk\", got {shown:?}"))
    }
}

async fn create(call: Call<Nothing, Nothing, JsonBody<Create>>) -> Result<Data<Workspace>, Error> {
    let JsonBody(Create { id, kind, branch, extra }) = call.body;
    let new = workspace::New { id: id.map(|id| id.0.0), kind, branch, extra };
    Ok(Data(workspace::create(&call.state, &call.scope, new).await?))
}

async fn tidy(call: Call) -> Result<NoContent, Error> {
    workspace::tidy(&call.state, &call.scope).await?;
    Ok(NoContent)
}

/// Whether a workspace is there.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkspaceEventConnectionStatus")]
struct Status {
    #[serde(rename = "workspaceID")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: String,
    status: Connection,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(dead_code, reason = "a tree on this disk is never on its way or broken, and clients know these words")]
enum Connection {
    Connected,
    Connecting,
    Disconnected,
    Error,
}

async fn status(call: Call) -> Result<Data<Vec<Status>>, Error> {
    let status = |workspace: Workspace| Status {
        status: if workspace.is_there() { Connection::Connected } else { Connection::Disconnected },
        workspace: workspace.id,
    };
    Ok(Data(workspace::list(&call.state, &call.scope).await?.into_iter().map(status).collect()))
}

/// A workspace in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct WorkspacePath {
    id: Given<WorkspaceId>,
}

async fn remove(call: Call<WorkspacePath>) -> Result<Data<Workspace>, Error> {
    Ok(Data(workspace::remove(&call.state, &call.path.id.0.0).await?))
}

/// Where a session goes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct Warp {
    /// A workspace; null is the main tree. It must be said.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(with = "api::schema::Nullable<WorkspaceId>")]
    id: Option<Given<WorkspaceId>>,
    #[serde(rename = "sessionID")]
    session: Given<SessionId>,
    /// Whether changes that are not committed are copied there.
    copy_changes: Option<bool>,
}

async fn warp(call: Call<Nothing, Nothing, JsonBody<Warp>>) -> Result<NoContent, Error> {
    let JsonBody(Warp { id, session, copy_changes }) = call.body;
    let id = id.as_ref().map(|id| id.0.0.as_str());
    workspace::warp(&call.state, id, &session.0, copy_changes.unwrap_or_default()).await?;
    Ok(NoContent)
}

/// Where a session goes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct Move {
    #[serde(rename = "sessionID")]
    session: Given<SessionId>,
    destination: Destination,
    /// Whether changes that are not committed go along.
    move_changes: Option<bool>,
}

/// A directory of the session's project.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MoveSessionDestination")]
struct Destination {
    directory: String,
}

async fn move_session(call: Call<Nothing, Nothing, JsonBody<Move>>) -> Result<NoContent, Error> {
    let JsonBody(Move { session, destination, move_changes }) = call.body;
    let refused = |message: String| Error::named(StatusCode::BAD_REQUEST, "MoveSessionError", message);
    if move_changes == Some(true) {
        return Err(refused("Changes of files cannot be moved; commit them, or leave out moveChanges".into()));
    }
    let directory = normal(&destination.directory, &call.scope.directory).ok_or_else(|| {
        let message = format!("Not a path of a directory: {:?}\n  at [\"destination\"]", destination.directory);
        Error::bad_request(Where::Payload, message)
    })?;
    match call.state.engine.move_session(&session.0, &directory, None).await {
        Ok(_) => Ok(NoContent),
        Err(error @ HostError::Failed(_)) => Err(error.into()),
        Err(error) => Err(refused(error.to_string())),
    }
}
