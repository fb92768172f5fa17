//! Workspaces, and moving sessions.

use api::{CreateWorkspace, HostError, Json, SessionId, Workspace};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vcs::refusal;
use super::worktree::{REMOVE_FAILED, worktree_error};
use crate::error::{Error, RequestPart};
use crate::operation::request::{JsonBody, NoParams, ParsedId, Request, normalize_path};
use crate::operation::{JsonReply, NoContent, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const WORKSPACES: &str = "/experimental/workspace";
    const NOT_SELECTED: &str =
        "`?workspace=` selects a workspace for a new session alone; elsewhere name its directory";
    vec![
        operation(
            Method::GET,
            "/experimental/workspace/adapter",
            "experimental.workspace.adapter.list",
            "The kinds of workspaces.",
            adapters,
        ),
        operation(Method::GET, WORKSPACES, "experimental.workspace.list", "The workspaces of a project.", list),
        operation(Method::POST, WORKSPACES, "experimental.workspace.create", "Create a workspace.", create)
            .error(400, &["WorkspaceCreateError", "BadRequestError"])
            .partial(NOT_SELECTED),
        operation(
            Method::POST,
            "/experimental/workspace/sync-list",
            "experimental.workspace.syncList",
            "Forget workspaces whose worktrees are gone.",
            remove_stale,
        ),
        operation(
            Method::GET,
            "/experimental/workspace/status",
            "experimental.workspace.status",
            "Whether workspaces exist.",
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
            "Move a session to a workspace.",
            warp,
        )
        .error(400, &["WorkspaceWarpError", "VcsApplyError", "BadRequestError"])
        .not_found()
        .busy(),
        operation(
            Method::POST,
            "/experimental/control-plane/move-session",
            "experimental.controlPlane.moveSession",
            "Move a session to another directory of its project.",
            move_session,
        )
        .global()
        .error(400, &["MoveSessionError", "BadRequestError"])
        .partial("file changes do not move along; `warp` can copy them"),
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

async fn adapters(_: Request) -> Result<JsonReply<Vec<Adapter>>, Error> {
    let description = "A linked git working tree with a branch of its own";
    Ok(JsonReply(vec![Adapter { kind: Workspace::WORKTREE, name: "Worktree", description }]))
}

async fn list(request: Request) -> Result<JsonReply<Vec<Workspace>>, Error> {
    Ok(JsonReply(request.host.workspaces(&request.scope).await?))
}

/// A new workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CreateBody {
    id: Option<ParsedId<WorkspaceId>>,
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

async fn create(request: Request<NoParams, NoParams, JsonBody<CreateBody>>) -> Result<JsonReply<Workspace>, Error> {
    let JsonBody(CreateBody { id, kind, branch, extra }) = request.body;
    let new = CreateWorkspace { id: id.map(|id| id.0.0), kind, branch, extra };
    let created = request.host.create_workspace(&request.scope, new).await;
    Ok(JsonReply(created.map_err(|error| {
        let named = |why: String| Error::named(StatusCode::BAD_REQUEST, "WorkspaceCreateError", why);
        refusal(error).map_or_else(Error::from, named)
    })?))
}

async fn remove_stale(request: Request) -> Result<NoContent, Error> {
    request.engine.forget_missing_workspaces(&request.scope).await?;
    Ok(NoContent)
}

/// Whether a workspace exists.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WorkspaceEventConnectionStatus")]
struct WorkspaceStatus {
    #[serde(rename = "workspaceID")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: String,
    status: ConnectionStatus,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(dead_code, reason = "a local worktree is never connecting or broken, but clients know these words")]
enum ConnectionStatus {
    Connected,
    Connecting,
    Disconnected,
    Error,
}

async fn status(request: Request) -> Result<JsonReply<Vec<WorkspaceStatus>>, Error> {
    let engine = &request.engine;
    let status = |workspace: Workspace| {
        let exists = engine.workspace_exists(&workspace);
        let status = if exists { ConnectionStatus::Connected } else { ConnectionStatus::Disconnected };
        WorkspaceStatus { workspace: workspace.id, status }
    };
    Ok(JsonReply(request.host.workspaces(&request.scope).await?.into_iter().map(status).collect()))
}

/// A workspace in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct WorkspacePath {
    id: ParsedId<WorkspaceId>,
}

async fn remove(request: Request<WorkspacePath>) -> Result<JsonReply<Workspace>, Error> {
    let removed = request.host.remove_workspace(&request.scope, &request.path.id.0.0).await;
    let workspace = removed.map_err(|error| worktree_error(REMOVE_FAILED, error))?;
    if let Some(directory) = &workspace.directory {
        request.state.terminals.dispose(&request.state, Some(directory));
    }
    Ok(JsonReply(workspace))
}

/// Where to move a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct WarpBody {
    /// A workspace; null for the main tree. Required.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(with = "api::schema::Nullable<WorkspaceId>")]
    id: Option<ParsedId<WorkspaceId>>,
    #[serde(rename = "sessionID")]
    session: ParsedId<SessionId>,
    /// Whether to copy uncommitted changes there.
    copy_changes: Option<bool>,
}

async fn warp(request: Request<NoParams, NoParams, JsonBody<WarpBody>>) -> Result<NoContent, Error> {
    let JsonBody(WarpBody { id, session, copy_changes }) = request.body;
    let id = id.as_ref().map(|id| id.0.0.as_str());
    let moved = request.engine.move_to_workspace(&session.0, id, copy_changes.unwrap_or_default()).await;
    match moved {
        Ok(_) => Ok(NoContent),
        Err(HostError::Conflict(why)) => Err(Error::named(StatusCode::BAD_REQUEST, "WorkspaceWarpError", why)),
        Err(error) => Err(error.into()),
    }
}

/// Where to move a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct MoveBody {
    #[serde(rename = "sessionID")]
    session: ParsedId<SessionId>,
    destination: Destination,
    /// Whether uncommitted changes move along.
    move_changes: Option<bool>,
}

/// A directory of the session's project.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MoveSessionDestination")]
struct Destination {
    directory: String,
}

async fn move_session(request: Request<NoParams, NoParams, JsonBody<MoveBody>>) -> Result<NoContent, Error> {
    let JsonBody(MoveBody { session, destination, move_changes }) = request.body;
    let refused = |message: String| Error::named(StatusCode::BAD_REQUEST, "MoveSessionError", message);
    if move_changes == Some(true) {
        return Err(refused("File changes cannot be moved; commit them, or leave out moveChanges".into()));
    }
    let directory = normalize_path(&destination.directory, &request.scope.directory).ok_or_else(|| {
        let message = format!("Not a directory path: {:?}\n  at [\"destination\"]", destination.directory);
        Error::bad_request(RequestPart::Payload, message)
    })?;
    match request.engine.move_session(&session.0, &directory, None).await {
        Ok(_) => Ok(NoContent),
        Err(error @ HostError::Failed(_)) => Err(error.into()),
        Err(error) => Err(refused(error.to_string())),
    }
}
