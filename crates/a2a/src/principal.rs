//! Who calls.

/// What a credential allows besides using tasks and sessions of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Run shell commands in a session.
    pub session_shell: bool,
    /// Create, reset and remove workspaces and worktrees.
    pub workspace_mutation: bool,
}

/// An authenticated caller. Owns what it creates: tasks, contexts, sessions, interrupts, push configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Who it is. Never contains `/` or control characters, since keys of records contain it.
    pub identity: String,
    /// The credential that it used.
    pub credential: Option<String>,
    /// What it may do.
    pub capabilities: Capabilities,
}
