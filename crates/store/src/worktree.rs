//! The rows of git worktrees that sessions work in.

use api::SessionId;

use crate::batch::{Batch, Op};

/// The worktree of a session. Its row comes before the session and stays until the tree is removed, so that a crash
/// leaves no tree that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeRow {
    /// The session that spawned the one working in it.
    pub parent: SessionId,
    /// The directory whose configuration it uses and where its events are published.
    pub origin: String,
    /// The working tree that its changes are merged into.
    pub target: String,
    /// The repository's main working tree.
    pub main: String,
    /// Its path.
    pub directory: String,
    /// Its branch.
    pub branch: String,
    /// The commit its changes are relative to.
    pub base: String,
    /// How many files of the target differed from the base when it was created.
    pub missing: u64,
    /// Whether its files are checked out.
    pub filled: bool,
}

impl Batch {
    /// Writes the row of a session's worktree, or removes it.
    pub fn worktree(&mut self, session: &SessionId, row: Option<&WorktreeRow>) {
        self.ops.push(Op::Worktree { session: session.clone(), row: row.cloned().map(Box::new) });
    }
}
