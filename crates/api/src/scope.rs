//! What a call without an id is about.

/// The directory and workspace that a call is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The directory, absolute.
    pub directory: String,
    /// The workspace, if workspaces are in use. [`workspace_directory`](crate::WorkspaceHost::workspace_directory) leads
    /// to its directory, where a session that is created in this scope works.
    pub workspace: Option<String>,
}

impl Scope {
    /// A scope for a directory.
    pub fn new(directory: impl Into<String>) -> Self {
        Self { directory: directory.into(), workspace: None }
    }
}
