//! What runs git: the changes of a working tree, linked worktrees, and the workspaces that are made of them.

pub mod vcs;
pub mod workspace;
pub mod worktree;
