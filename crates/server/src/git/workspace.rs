//! Workspaces: further places for the sessions of a project. There is one kind, a linked working tree; which of them are
//! workspaces is kept in the journal's records.

use std::path::Path;
use std::sync::Arc;

use api::{Host as _, Json, Scope, Session, SessionId, Timestamp};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Batch, Place, StoreError};

use crate::State;
use crate::error::Error;
use crate::git::vcs::Vcs;
use crate::git::worktree::Trees;

/// The one kind of workspace.
pub const WORKTREE: &str = "worktree";

const NAMESPACE: &str = "workspace";

/// A workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Workspace")]
pub struct Workspace {
    /// Its id.
    #[schemars(regex(pattern = "^wrk"))]
    pub id: String,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its branch.
    pub branch: Option<String>,
    /// Where it is.
    pub directory: Option<String>,
    /// What the client wants to remember.
    pub extra: Option<Json>,
    /// Its project.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// When it was last made or used.
    #[schemars(with = "f64")]
    pub time_used: Timestamp,
}

impl Workspace {
    /// Whether its tree is there.
    pub fn is_there(&self) -> bool {
        self.directory.as_deref().is_some_and(|directory| Path::new(directory).is_dir())
    }
}

/// A new workspace.
pub struct New {
    /// Its id, if the client chose one.
    pub id: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its branch; made if it is not there.
    pub branch: Option<String>,
    /// What the client wants to remember.
    pub extra: Option<Json>,
}

/// The workspaces of a project, by id.
pub async fn list(state: &Arc<State>, scope: &Scope) -> Result<Vec<Workspace>, Error> {
    let project = state.engine.project(scope).await?.id;
    let records = state.engine.store().records(NAMESPACE)?;
    let known = records.into_iter().filter_map(|(_, record)| serde_json::from_value::<Workspace>(record.value).ok());
    Ok(known.filter(|workspace| workspace.project_id == project).collect())
}

/// Makes one, with its tree.
pub async fn create(state: &Arc<State>, scope: &Scope, new: New) -> Result<Workspace, Error> {
    let refused = |why: String| Error::named(StatusCode::BAD_REQUEST, "WorkspaceCreateError", why);
    if new.kind != WORKTREE {
        return Err(refused(format!("There is no adapter {:?}; there is {WORKTREE:?}", new.kind)));
    }
    let id = new.id.unwrap_or_else(|| format!("wrk_{:026x}", fastrand::u128(..) >> 24));
    let taken = || refused(format!("There is a workspace {id} already"));
    if state.engine.store().record(NAMESPACE, &id)?.is_some() {
        return Err(taken());
    }
    let trees = Trees::of(state, scope).await.map_err(|error| refused(error.to_string()))?;
    let tree = trees.create(None, new.branch.as_deref()).await.map_err(|error| refused(error.to_string()))?;
    let workspace = Workspace {
        id: id.clone(),
        kind: new.kind,
        name: tree.name.clone(),
        branch: tree.branch.clone(),
        directory: Some(tree.directory.clone()),
        extra: new.extra,
        project_id: trees.project.id.clone(),
        time_used: api::now(),
    };
    let value = serde_json::to_value(&workspace).map_err(Error::internal)?;
    match write(state, &workspace, Some(&value), Some(0)).await {
        Err(StoreError::Conflict { .. }) => return Err(taken()),
        done => done?,
    }
    trees.fill(tree, None);
    Ok(workspace)
}

/// Removes one, with its tree and what is in it.
pub async fn remove(state: &Arc<State>, id: &str) -> Result<Workspace, Error> {
    let workspace = get(state, id)?;
    if let Some(directory) = workspace.directory.as_deref().filter(|_| workspace.is_there()) {
        Trees::of(state, &Scope::new(directory)).await?.remove(directory, true).await?;
    }
    forget(state, &workspace).await?;
    Ok(workspace)
}

/// Forgets those whose trees are gone.
pub async fn tidy(state: &Arc<State>, scope: &Scope) -> Result<(), Error> {
    for workspace in list(state, scope).await?.iter().filter(|workspace| !workspace.is_there()) {
        forget(state, workspace).await?;
    }
    Ok(())
}

/// Lets a session go on in a workspace, or without one in the project's main tree; its changes may come along.
pub async fn warp(state: &Arc<State>, id: Option<&str>, session: &SessionId, copy: bool) -> Result<Session, Error> {
    let refused = |why: String| Error::named(StatusCode::BAD_REQUEST, "WorkspaceWarpError", why);
    let current = state.engine.session(&Scope::default(), session).await?;
    let from = Scope::new(current.directory.as_str());
    let to = match id {
        None => state.engine.project_by_id(&from, &current.project_id)?.worktree,
        Some(id) => {
            let workspace = get(state, id)?;
            let directory = workspace.directory.clone().filter(|_| workspace.is_there());
            directory.ok_or_else(|| refused(format!("The worktree of {id} is gone")))?
        }
    };
    if copy && to != current.directory {
        let (from, to) = (tree(state, &from), tree(state, &Scope::new(to.as_str())));
        let changes = from.raw().await.map_err(|error| refused(error.to_string()))?;
        if !changes.is_empty() {
            let applied = to.apply(&changes).await;
            applied.map_err(|error| refused(format!("The changes do not fit there: {error}")))?;
        }
    }
    Ok(state.engine.move_session(session, &to, id.map(str::to_owned)).await?)
}

/// The whole working tree of a directory.
fn tree(state: &State, scope: &Scope) -> Vcs {
    let root = state.engine.loaded(scope).project.worktree.clone();
    Vcs::new(&state.engine.exec_at(scope), &root, &root, &state.engine.inputs().dirs.cache)
}

fn get(state: &State, id: &str) -> Result<Workspace, Error> {
    let record = state.engine.store().record(NAMESPACE, id)?;
    let known = record.and_then(|record| serde_json::from_value(record.value).ok());
    known.ok_or_else(|| Error::not_found(format!("Workspace not found: {id}")))
}

async fn forget(state: &State, workspace: &Workspace) -> Result<(), Error> {
    Ok(write(state, workspace, None, None).await?)
}

async fn write(
    state: &State,
    workspace: &Workspace,
    value: Option<&Json>,
    expect: Option<u64>,
) -> Result<(), StoreError> {
    let mut batch = Batch::new(&Place::new("", workspace.project_id.as_str())).durable();
    batch.record(NAMESPACE, &workspace.id, value, expect);
    state.engine.store().commit(batch).await.map(drop)
}
