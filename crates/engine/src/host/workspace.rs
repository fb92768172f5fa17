//! The engine as a [`WorkspaceHost`].

use api::{FileContent, FileNode, FindTextMatch, HostFuture, Scope, WorkspaceHost};

use crate::Engine;
use crate::project::files;

impl WorkspaceHost for Engine {
    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>> {
        Box::pin(async { Ok(self.list_files(scope, path).await?.0) })
    }

    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent> {
        Box::pin(async { files::content(self.at(scope), path.to_owned()).await })
    }

    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>> {
        Box::pin(async move { self.find_paths(scope, query, tools::Entries::Files, limit).await })
    }

    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>> {
        Box::pin(async move { files::grep(self.at(scope), pattern.to_owned(), limit).await })
    }
}
