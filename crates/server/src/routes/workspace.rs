//! Files, git, projects, worktrees, workspaces and terminals.

pub mod file;
pub mod project;
pub mod pty;
pub mod vcs;
pub mod workspaces;
pub mod worktree;

use crate::operation::Operation;

/// The operations of this area.
pub fn operations() -> Vec<Operation> {
    [
        file::operations(),
        vcs::operations(),
        project::operations(),
        worktree::operations(),
        workspaces::operations(),
        pty::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
