//! What a call without an id is about.

/// The directory and workspace that a call is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The directory, absolute.
    pub directory: String,
    /// The workspace, if workspaces are in use.
    pub workspace: Option<String>,
}

impl Scope {
    /// A scope for a directory.
    pub fn new(directory: impl Into<String>) -> Self {
        Self { directory: directory.into(), workspace: None }
    }
}
