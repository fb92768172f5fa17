//! The working trees of a project: their changes, linked worktrees, and the workspaces made from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FileStatus, Json, Timestamp};

/// The branches of a repository. `null` tells clients that there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "VcsInfo")]
pub struct Branches {
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// The branch that others start from.
    pub default_branch: Option<String>,
}

/// What changes are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffBase {
    /// The last commit.
    Commit,
    /// The commit where this branch left the default one.
    Branch,
}

/// A changed file with its patch.
#[derive(Debug, Clone, PartialEq)]
pub struct FilePatch {
    /// The file.
    pub file: FileStatus,
    /// The change as a unified diff, if there was room for it.
    pub patch: Option<String>,
}

/// A list that may lack something because of a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct PartialList<T> {
    /// The list.
    pub list: Vec<T>,
    /// What is missing: `files`, `lines` or `patches`.
    pub missing: Vec<&'static str>,
}

impl<T> Default for PartialList<T> {
    fn default() -> Self {
        Self { list: Vec::new(), missing: Vec::new() }
    }
}

/// A worktree that is linked to a project's repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Worktree")]
pub struct LinkedWorktree {
    /// Its name.
    pub name: String,
    /// Its branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Its path.
    pub directory: String,
}

impl LinkedWorktree {
    /// What the names of branches that are created with a worktree begin with, and are removed with it.
    pub const BRANCH_PREFIX: &'static str = "opencode/";
}

/// The properties of a new linked worktree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CreateLinkedWorktree {
    /// Its name; its folder and its branch use it. The host chooses one that is free.
    pub name: Option<String>,
    /// A command to run in it once its files are there.
    pub start_command: Option<String>,
}

/// The result of removing a linked worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorktreeRemoval {
    /// It is gone. Has its path as git knows it.
    Removed(String),
    /// It stays because of changes that would be lost. Has the reason; the same call with force would remove it.
    HasChanges(String),
}

/// A further place for the sessions of a project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Workspace")]
pub struct Workspace {
    /// Its id.
    #[schemars(regex(pattern = "^wrk"))]
    pub id: String,
    /// Its kind; only [`Workspace::WORKTREE`] exists.
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
    /// The only kind of workspace: a linked worktree.
    pub const WORKTREE: &'static str = "worktree";
}

/// The properties of a new workspace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateWorkspace {
    /// Its id, if the client chose one.
    pub id: Option<String>,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its branch; created if it does not exist.
    pub branch: Option<String>,
    /// Data that the client keeps with it.
    pub extra: Option<Json>,
}
