//! Linked working trees.

use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::git::worktree::{Trees, Worktree, WorktreeError};
use crate::operation::request::{Call, JsonBody, Maybe, Nothing};
use crate::operation::{Data, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const TREE: &str = "/experimental/worktree";
    const ERRORS: &[&str] = &["WorktreeError", "BadRequestError"];
    vec![
        operation(Method::GET, TREE, "worktree.list", "The linked working trees of a project.", list)
            .error(400, ERRORS),
        operation(Method::POST, TREE, "worktree.create", "Make one; an event tells when it is ready.", create)
            .error(400, ERRORS),
        operation(Method::DELETE, TREE, "worktree.remove", "Remove one with its branch.", remove).error(400, ERRORS),
        operation(Method::POST, "/experimental/worktree/reset", "worktree.reset", "Reset one.", reset)
            .error(400, ERRORS)
            .partial("the default branch is taken as it is here, nothing is fetched"),
    ]
}

async fn list(call: Call) -> Result<Data<Vec<String>>, Error> {
    match Trees::of(&call.state, &call.scope).await {
        Ok(trees) => Ok(Data(trees.project.sandboxes)),
        Err(WorktreeError::NotGit) => Ok(Data(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// A new working tree.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "WorktreeCreateInput")]
struct Create {
    name: Option<String>,
    /// Run in it once its files are there.
    start_command: Option<String>,
}

async fn create(call: Call<Nothing, Nothing, Maybe<Create>>) -> Result<Data<Worktree>, Error> {
    let Maybe(Create { name, start_command }) = call.body;
    let trees = Trees::of(&call.state, &call.scope).await?;
    let tree = trees.create(name.as_deref(), None).await?;
    trees.fill(tree.clone(), start_command);
    Ok(Data(tree))
}

/// A working tree.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorktreeRemoveInput")]
struct Remove {
    directory: String,
}

async fn remove(call: Call<Nothing, Nothing, JsonBody<Remove>>) -> Result<Data<bool>, Error> {
    Trees::of(&call.state, &call.scope).await?.remove(&call.body.0.directory, true).await?;
    Ok(Data(true))
}

/// A working tree.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorktreeResetInput")]
struct Reset {
    directory: String,
}

async fn reset(call: Call<Nothing, Nothing, JsonBody<Reset>>) -> Result<Data<bool>, Error> {
    Trees::of(&call.state, &call.scope).await?.reset(&call.body.0.directory).await?;
    Ok(Data(true))
}
