//! The [`WorkspaceHost`] implementation of the client.

use api::{FileContent, FileNode, FindTextMatch, HostFuture, Scope, WorkspaceHost};

use crate::Client;
use crate::wire::RipgrepMatch;

/// The most files that a server returns from a search.
const MAX_FILES: usize = 200;

impl WorkspaceHost for Client {
    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>> {
        Box::pin(async move { self.get(scope, &["file"]).query("path", path).fetch().await })
    }

    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent> {
        Box::pin(async move { self.get(scope, &["file", "content"]).query("path", path).fetch().await })
    }

    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>> {
        Box::pin(async move {
            let request = self.get(scope, &["find", "file"]).query("query", query).query("type", "file");
            let mut files: Vec<String> = request.query("limit", limit.clamp(1, MAX_FILES)).fetch().await?;
            files.truncate(limit);
            Ok(files)
        })
    }

    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>> {
        Box::pin(async move {
            let found: Vec<RipgrepMatch> = self.get(scope, &["find"]).query("pattern", pattern).fetch().await?;
            Ok(found.into_iter().take(limit).map(FindTextMatch::from).collect())
        })
    }
}
