//! The working trees of a project: their changes, linked worktrees, and the workspaces made from them. Owns the records
//! of workspaces. Knows nothing of turns; subagents' worktrees are managed in [`crate::worktree`], with the same
//! [`git_worktree`].

pub(crate) mod git_worktree;
pub(crate) mod vcs;
mod workspaces;
mod worktrees;

use api::{HostError, Scope};
use exec::git::GitError;

pub use worktrees::worktree_name;

/// The error for a directory outside a repository.
fn no_repository(scope: &Scope) -> HostError {
    HostError::not_found("git repository", scope.directory.as_str())
}

/// Converts an error of git. What git refuses contradicts the state of the repository; everything else is about the
/// directory: git cannot run there, or takes too long, or prints too much.
fn git_error(error: GitError) -> HostError {
    match error {
        GitError::Refused(why) => HostError::Conflict(why),
        error => HostError::Invalid(error.to_string()),
    }
}
