//! Workspaces: further places for the sessions of a project. The only kind is a linked worktree; records say which
//! worktrees are workspaces.

use std::path::Path;

use api::{
    CreateWorkspace, Host as _, HostError, Json, LinkedWorktree, Scope, Session, SessionId, Workspace, WorktreeRemoval,
};
use store::{Batch, Location, StoreError};

use super::git_worktree::Force;
use super::vcs::Vcs;
use super::worktrees::ProjectWorktrees;
use crate::Engine;
use crate::error::store_error;

/// The record namespace of workspaces, by id.
const NAMESPACE: &str = "workspace";

impl Engine {
    /// The workspaces of a project, by id.
    pub(crate) fn project_workspaces(&self, scope: &Scope) -> Result<Vec<Workspace>, HostError> {
        let project = self.inner.project_of(&self.inner.instance(scope.directory.as_ref()))?.id;
        let records = self.inner.store.records(NAMESPACE).map_err(store_error)?;
        let workspaces =
            records.into_iter().filter_map(|(_, record)| serde_json::from_value::<Workspace>(record.value).ok());
        Ok(workspaces.filter(|workspace| workspace.project_id == project).collect())
    }

    /// Creates a workspace with its worktree. An event tells when the files are there.
    pub(crate) async fn add_workspace(&self, scope: &Scope, new: CreateWorkspace) -> Result<Workspace, HostError> {
        if new.kind != Workspace::WORKTREE {
            let why = format!("There is no adapter {:?}; use {:?}", new.kind, Workspace::WORKTREE);
            return Err(HostError::Invalid(why));
        }
        let id = new.id.unwrap_or_else(|| format!("wrk_{:026x}", fastrand::u128(..) >> 24));
        if self.inner.store.record(NAMESPACE, &id).map_err(store_error)?.is_some() {
            return Err(already_exists(&id));
        }
        let worktrees = ProjectWorktrees::open(self, scope)?;
        let created = worktrees.create(None, new.branch.as_deref()).await?;
        let LinkedWorktree { name, branch, directory } = created.info.clone();
        let workspace = Workspace {
            id,
            kind: new.kind,
            name,
            branch,
            directory: Some(directory),
            extra: new.extra,
            project_id: worktrees.project.id.clone(),
            time_used: api::now(),
        };
        if let Err(error) = self.record_new_workspace(&workspace).await {
            created.discard().await;
            return Err(error);
        }
        worktrees.spawn_setup(created, None);
        Ok(workspace)
    }

    /// Removes a workspace with its worktree and the files in it.
    pub(crate) async fn discard_workspace(&self, id: &str) -> Result<Workspace, HostError> {
        let workspace = self.workspace(id)?;
        if let Some(directory) = existing_directory(&workspace) {
            let worktrees = ProjectWorktrees::open(self, &Scope::new(directory))?;
            if let WorktreeRemoval::HasChanges(why) = worktrees.remove(directory, Force::Changes).await? {
                return Err(HostError::Conflict(why));
            }
        }
        self.forget_workspace(&workspace).await?;
        Ok(workspace)
    }

    /// Forgets the workspaces of a project whose worktrees are gone.
    pub async fn forget_missing_workspaces(&self, scope: &Scope) -> Result<(), HostError> {
        for workspace in self.project_workspaces(scope)?.iter().filter(|workspace| !self.workspace_exists(workspace)) {
            self.forget_workspace(workspace).await?;
        }
        Ok(())
    }

    /// Whether the worktree of a workspace exists.
    pub fn workspace_exists(&self, workspace: &Workspace) -> bool {
        existing_directory(workspace).is_some()
    }

    /// The directory of a workspace of the scope's project.
    pub(crate) fn directory_of_workspace(&self, scope: &Scope, id: &str) -> Result<String, HostError> {
        let workspace = self.workspace(id)?;
        // Whoever may work in one project may not thereby work in another.
        if workspace.project_id != self.inner.instance(scope.directory.as_ref()).project.id {
            return Err(HostError::not_found("workspace", id));
        }
        existing_directory(&workspace).map(str::to_owned).ok_or_else(|| is_gone(id))
    }

    /// Moves a session to a workspace, or without one to the project's main tree. With `copy_changes` its uncommitted
    /// changes go along; if they do not apply there, that is a [`HostError::Conflict`] and nothing moves.
    pub async fn move_to_workspace(
        &self,
        session: &SessionId,
        id: Option<&str>,
        copy_changes: bool,
    ) -> Result<Session, HostError> {
        let current = self.session(session).await?;
        let to = match id {
            None => self.project_by_id(&Scope::new(current.directory.as_str()), &current.project_id)?.worktree,
            Some(id) => {
                let workspace = self.workspace(id)?;
                existing_directory(&workspace).ok_or_else(|| is_gone(id))?.to_owned()
            }
        };
        if copy_changes && to != current.directory {
            self.copy_changes(&current.directory, &to).await?;
        }
        self.move_session(session, &to, id.map(str::to_owned)).await
    }

    /// Copies the uncommitted changes of a working tree to another.
    async fn copy_changes(&self, from: &str, to: &str) -> Result<(), HostError> {
        let tree = |directory: &str| Vcs::whole_tree(self, &self.inner.instance(directory.as_ref()));
        let (from, to) = (tree(from), tree(to));
        let changes = from.raw_patch().await.map_err(|error| HostError::Conflict(error.to_string()))?;
        if changes.is_empty() {
            return Ok(());
        }
        let applied = to.apply(&changes).await;
        applied.map_err(|error| HostError::Conflict(format!("The changes do not apply there: {error}")))
    }

    fn workspace(&self, id: &str) -> Result<Workspace, HostError> {
        let record = self.inner.store.record(NAMESPACE, id).map_err(store_error)?;
        let known = record.and_then(|record| serde_json::from_value(record.value).ok());
        known.ok_or_else(|| HostError::not_found("workspace", id))
    }

    /// Records a workspace, unless there is one with its id.
    async fn record_new_workspace(&self, workspace: &Workspace) -> Result<(), HostError> {
        let value = serde_json::to_value(workspace).map_err(|error| HostError::Failed(error.to_string()))?;
        self.write_workspace(workspace, Some(&value), Some(0)).await.map_err(|error| match error {
            StoreError::Conflict { .. } => already_exists(&workspace.id),
            error => store_error(error),
        })
    }

    async fn forget_workspace(&self, workspace: &Workspace) -> Result<(), HostError> {
        self.write_workspace(workspace, None, None).await.map_err(store_error)
    }

    async fn write_workspace(
        &self,
        workspace: &Workspace,
        value: Option<&Json>,
        expected: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::new(&Location::new("", workspace.project_id.as_str())).durable();
        batch.record(NAMESPACE, &workspace.id, value, expected);
        self.inner.store.commit(batch).await.map(drop)
    }
}

/// The directory of a workspace, if its worktree exists.
fn existing_directory(workspace: &Workspace) -> Option<&str> {
    workspace.directory.as_deref().filter(|directory| Path::new(directory).is_dir())
}

fn is_gone(id: &str) -> HostError {
    HostError::Conflict(format!("The worktree of {id} is gone"))
}

fn already_exists(id: &str) -> HostError {
    HostError::Conflict(format!("There is already a workspace {id}"))
}
