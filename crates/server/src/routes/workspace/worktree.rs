//! Linked worktrees.

use api::{CreateLinkedWorktree, HostError, LinkedWorktree};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::vcs::{NO_REPOSITORY, refusal};
use crate::error::Error;
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

/// Gives a refusal the name that clients know.
pub fn worktree_error(name: &str, error: HostError) -> Error {
    let named = |name: &str, why: String| Error::named(StatusCode::BAD_REQUEST, name, why);
    if matches!(error, HostError::NotFound { what: "git repository", .. }) {
        return named("WorktreeNotGitError", NO_REPOSITORY.to_owned());
    }
    refusal(error).map_or_else(Error::from, |why| named(name, why))
}

/// The name of the error if a worktree is not removed.
pub const REMOVE_FAILED: &str = "WorktreeRemoveFailedError";

async fn list(request: Request) -> Result<JsonReply<Vec<String>>, Error> {
    Ok(JsonReply(request.host.linked_worktrees(&request.scope).await?))
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
) -> Result<JsonReply<LinkedWorktree>, Error> {
    let OptionalJsonBody(CreateBody { name, start_command }) = request.body;
    let input = CreateLinkedWorktree { name, start_command };
    let created = request.host.create_linked_worktree(&request.scope, input).await;
    Ok(JsonReply(created.map_err(|error| worktree_error("WorktreeCreateFailedError", error))?))
}

/// The worktree to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorktreeRemoveInput")]
struct RemoveBody {
    directory: String,
}

async fn remove(request: Request<NoParams, NoParams, JsonBody<RemoveBody>>) -> Result<JsonReply<bool>, Error> {
    let RemoveBody { directory } = request.body.0;
    let removed = request.host.remove_linked_worktree(&request.scope, &directory).await;
    let directory = removed.map_err(|error| worktree_error(REMOVE_FAILED, error))?;
    request.state.terminals.dispose(&request.state, Some(&directory));
    Ok(JsonReply(true))
}

/// The worktree to reset.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorktreeResetInput")]
struct ResetBody {
    directory: String,
}

async fn reset(request: Request<NoParams, NoParams, JsonBody<ResetBody>>) -> Result<JsonReply<bool>, Error> {
    let reset = request.host.reset_linked_worktree(&request.scope, &request.body.0.directory).await;
    reset.map_err(|error| worktree_error("WorktreeResetFailedError", error))?;
    Ok(JsonReply(true))
}
