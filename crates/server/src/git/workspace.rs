//! Workspaces: further places for the sessions of a project. The only kind is a linked worktree; the journal's records
//! say which worktrees are workspaces.

use std::path::Path;
use std::sync::Arc;

use api::{Host as _, Json, Scope, Session, SessionId, Timestamp};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Batch, Location, StoreError};

use crate::State;
use crate::error::Error;
use crate::git::vcs::Vcs;
use crate::git::worktree::Worktrees;

/// The only kind of workspace.
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
    /// Its path.
    pub directory: Option<String>,
    /// Data that the client keeps with it.
    pub extra: Option<Json>,
    /// Its project.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// When it was created or last used.
    #[schemars(with = "f64")]
    pub time_used: Timestamp,
}

impl Workspace {
    /// Whether its worktree exists.
    pub fn exists(&self) -> bool {
        self.directory.as_deref().is_some_and(|directory| Path::new(directory).is_dir())
    }
}

/// A new workspace.
pub struct NewWorkspace {
    /// Its id, if the client chose one.
    pub id: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its branch; created if it does not exist.
    pub branch: Option<String>,
    /// Data that the client keeps with it.
    pub extra: Option<Json>,
}

/// The workspaces of a project, by id.
pub async fn list(state: &Arc<State>, scope: &Scope) -> Result<Vec<Workspace>, Error> {
    let project = state.engine.project(scope).await?.id;
    let records = state.engine.store().records(NAMESPACE)?;
    let workspaces =
        records.into_iter().filter_map(|(_, record)| serde_json::from_value::<Workspace>(record.value).ok());
    Ok(workspaces.filter(|workspace| workspace.project_id == project).collect())
}

/// Creates a workspace with its worktree.
pub async fn create(state: &Arc<State>, scope: &Scope, new: NewWorkspace) -> Result<Workspace, Error> {
    let refused = |why: String| Error::named(StatusCode::BAD_REQUEST, "WorkspaceCreateError", why);
    if new.kind != WORKTREE {
        return Err(refused(format!("There is no adapter {:?}; use {WORKTREE:?}", new.kind)));
    }
    let id = new.id.unwrap_or_else(|| format!("wrk_{:026x}", fastrand::u128(..) >> 24));
    let already_exists = || refused(format!("There is already a workspace {id}"));
    if state.engine.store().record(NAMESPACE, &id)?.is_some() {
        return Err(already_exists());
    }
    let worktrees = Worktrees::for_scope(state, scope).await.map_err(|error| refused(error.to_string()))?;
    let worktree = worktrees.create(None, new.branch.as_deref()).await.map_err(|error| refused(error.to_string()))?;
    let workspace = Workspace {
        id: id.clone(),
        kind: new.kind,
        name: worktree.name.clone(),
        branch: worktree.branch.clone(),
        directory: Some(worktree.directory.clone()),
        extra: new.extra,
        project_id: worktrees.project.id.clone(),
        time_used: api::now(),
    };
    let value = serde_json::to_value(&workspace).map_err(Error::internal)?;
    match write(state, &workspace, Some(&value), Some(0)).await {
        Err(StoreError::Conflict { .. }) => return Err(already_exists()),
        done => done?,
    }
    worktrees.spawn_setup(worktree, None);
    Ok(workspace)
}

/// Removes a workspace with its worktree and the files in it.
pub async fn remove(state: &Arc<State>, id: &str) -> Result<Workspace, Error> {
    let workspace = get(state, id)?;
    if let Some(directory) = workspace.directory.as_deref().filter(|_| workspace.exists()) {
        Worktrees::for_scope(state, &Scope::new(directory)).await?.remove(directory, true).await?;
    }
    forget(state, &workspace).await?;
    Ok(workspace)
}

/// Forgets the workspaces whose worktrees are gone.
pub async fn remove_stale(state: &Arc<State>, scope: &Scope) -> Result<(), Error> {
    for workspace in list(state, scope).await?.iter().filter(|workspace| !workspace.exists()) {
        forget(state, workspace).await?;
    }
    Ok(())
}

/// Moves a session to a workspace, or without one to the project's main tree. With `copy_changes` its uncommitted changes go
/// along.
pub async fn move_session(
    state: &Arc<State>,
    id: Option<&str>,
    session: &SessionId,
    copy_changes: bool,
) -> Result<Session, Error> {
    let refused = |why: String| Error::named(StatusCode::BAD_REQUEST, "WorkspaceWarpError", why);
    let current = state.engine.session(&Scope::default(), session).await?;
    let from = Scope::new(current.directory.as_str());
    let to = match id {
        None => state.engine.project_by_id(&from, &current.project_id)?.worktree,
        Some(id) => {
            let workspace = get(state, id)?;
            let directory = workspace.directory.clone().filter(|_| workspace.exists());
            directory.ok_or_else(|| refused(format!("The worktree of {id} is gone")))?
        }
    };
    if copy_changes && to != current.directory {
        let (from, to) = (whole_tree(state, &from), whole_tree(state, &Scope::new(to.as_str())));
        let changes = from.raw_patch().await.map_err(|error| refused(error.to_string()))?;
        if !changes.is_empty() {
            let applied = to.apply(&changes).await;
            applied.map_err(|error| refused(format!("The changes do not apply there: {error}")))?;
        }
    }
    Ok(state.engine.move_session(session, &to, id.map(str::to_owned)).await?)
}

/// Git for the whole working tree of a directory.
fn whole_tree(state: &State, scope: &Scope) -> Vcs {
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
    expected: Option<u64>,
) -> Result<(), StoreError> {
    let mut batch = Batch::new(&Location::new("", workspace.project_id.as_str())).durable();
    batch.record(NAMESPACE, &workspace.id, value, expected);
    state.engine.store().commit(batch).await.map(drop)
}
