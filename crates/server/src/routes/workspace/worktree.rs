//! Linked worktrees.

use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::git::worktree::{Worktree, WorktreeError, Worktrees};
use crate::operation::request::{JsonBody, NoParams, OptionalJsonBody, Request};
use crate::operation::{JsonReply, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const WORKTREE: &str = "/experimental/worktree";
    const ERRORS: &[&str] = &["WorktreeError", "BadRequestError"];
    vec![
        operation(Method::GET, WORKTREE, "worktree.list", "The linked worktrees of a project.", list)
            .error(400, ERRORS),
        operation(
            Method::POST,
            WORKTREE,
            "worktree.create",
            "Create a worktree; an event tells when it is ready.",
            create,
        )
        .error(400, ERRORS),
        operation(Method::DELETE, WORKTREE, "worktree.remove", "Remove a worktree with its branch.", remove)
            .error(400, ERRORS),
        operation(Method::POST, "/experimental/worktree/reset", "worktree.reset", "Reset a worktree.", reset)
            .error(400, ERRORS)
            .partial("resets to the default branch as it is here; nothing is fetched"),
    ]
}

async fn list(request: Request) -> Result<JsonReply<Vec<String>>, Error> {
    match Worktrees::for_scope(&request.state, &request.scope).await {
        Ok(worktrees) => Ok(JsonReply(worktrees.project.sandboxes)),
        Err(WorktreeError::NotGit) => Ok(JsonReply(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// A new worktree.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "WorktreeCreateInput")]
struct CreateBody {
    name: Option<String>,
    /// A command to run in it once its files are there.
    start_command: Option<String>,
}

async fn create(
    request: Request<NoParams, NoParams, OptionalJsonBody<CreateBody>>,
) -> Result<JsonReply<Worktree>, Error> {
    let OptionalJsonBody(CreateBody { name, start_command }) = request.body;
    let worktrees = Worktrees::for_scope(&request.state, &request.scope).await?;
    let worktree = worktrees.create(name.as_deref(), None).await?;
    worktrees.spawn_setup(worktree.clone(), start_command);
    Ok(JsonReply(worktree))
}

/// The worktree to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorktreeRemoveInput")]
struct RemoveBody {
    directory: String,
}

async fn remove(request: Request<NoParams, NoParams, JsonBody<RemoveBody>>) -> Result<JsonReply<bool>, Error> {
    Worktrees::for_scope(&request.state, &request.scope).await?.remove(&request.body.0.directory, true).await?;
    Ok(JsonReply(true))
}

/// The worktree to reset.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorktreeResetInput")]
struct ResetBody {
    directory: String,
}

async fn reset(request: Request<NoParams, NoParams, JsonBody<ResetBody>>) -> Result<JsonReply<bool>, Error> {
    Worktrees::for_scope(&request.state, &request.scope).await?.reset(&request.body.0.directory).await?;
    Ok(JsonReply(true))
}
