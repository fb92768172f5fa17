//! The contract about the files of a directory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::shape;
use crate::{FileDiffStatus, HostFuture, Scope};

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

/// The files of a directory, on the machine of the host.
pub trait WorkspaceHost: Send + Sync {
    /// Lists a directory.
    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>>;
    /// Reads a file.
    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent>;
    /// Finds files by name, best match first.
    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>>;
    /// Finds lines that match a regular expression.
    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>>;
}
