//! The contract about the files of a directory, and about the other working trees of its project.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::shape;
use crate::{CreateLinkedWorktree, CreateWorkspace, FileDiffStatus, HostFuture, LinkedWorktree, Scope, Workspace};

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileNode {
    /// Its name.
    pub name: String,
    /// Relative to the scope's directory.
    pub path: String,
    /// Absolute.
    pub absolute: String,
    /// `file` or `directory`.
    #[serde(rename = "type")]
    #[schemars(with = "shape::NodeKind")]
    pub kind: String,
    /// Whether git ignores it.
    pub ignored: bool,
}

/// Whether a file is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ContentKind {
    /// UTF-8.
    Text,
    /// Anything else.
    Binary,
}

/// A file's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileContent {
    /// Whether it is text.
    #[serde(rename = "type")]
    pub kind: ContentKind,
    /// Text, or base64.
    pub content: String,
    /// The diff against the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// `base64`, if the content is encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Encoding>")]
    pub encoding: Option<String>,
    /// Its media type.
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

impl FileContent {
    /// A text file.
    pub fn text(content: String) -> Self {
        Self { kind: ContentKind::Text, content, diff: None, encoding: None, mime_type: None }
    }
}

/// A file that differs from the last commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "File")]
pub struct FileStatus {
    /// Relative path.
    pub path: String,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// What happened to it.
    pub status: FileDiffStatus,
}

/// A matching line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindTextMatch {
    /// Relative path.
    pub path: String,
    /// The line.
    pub line: String,
    /// Its number, from 1.
    pub line_number: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// The byte ranges in the line that matched.
    pub matches: Vec<(u64, u64)>,
}

/// The files of a directory and the working trees of its project, on the machine of the host.
pub trait WorkspaceHost: Send + Sync {
    /// Lists a directory.
    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>>;
    /// Reads a file.
    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent>;
    /// Finds files by name, best match first.
    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>>;
    /// Finds lines that match a regular expression.
    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>>;

    /// Lists the workspaces of the scope's project.
    fn workspaces<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Workspace>>;
    /// Creates a workspace with its worktree. An event tells when its files are there.
    fn create_workspace<'a>(&'a self, scope: &'a Scope, input: CreateWorkspace) -> HostFuture<'a, Workspace>;
    /// Removes a workspace with its worktree and the files in it. Returns what it was.
    fn remove_workspace<'a>(&'a self, scope: &'a Scope, id: &'a str) -> HostFuture<'a, Workspace>;
    /// Returns the directory of a workspace of the scope's project.
    fn workspace_directory<'a>(&'a self, scope: &'a Scope, id: &'a str) -> HostFuture<'a, String>;
    /// Lists the directories of the worktrees that are linked to the scope's repository; none outside of one.
    fn linked_worktrees<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<String>>;
    /// Creates a linked worktree with a branch of its own. An event tells when its files are there.
    fn create_linked_worktree<'a>(
        &'a self,
        scope: &'a Scope,
        input: CreateLinkedWorktree,
    ) -> HostFuture<'a, LinkedWorktree>;
    /// Removes a linked worktree with its changes, and its branch if it was created with it. Returns its directory.
    fn remove_linked_worktree<'a>(&'a self, scope: &'a Scope, directory: &'a str) -> HostFuture<'a, String>;
    /// Resets a linked worktree to the default branch, and removes everything else from it.
    fn reset_linked_worktree<'a>(&'a self, scope: &'a Scope, directory: &'a str) -> HostFuture<'a, ()>;
}
