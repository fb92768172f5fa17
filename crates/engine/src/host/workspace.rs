//! The engine as a [`WorkspaceHost`].

use api::{
    CreateLinkedWorktree, CreateWorkspace, FileContent, FileNode, FindTextMatch, HostError, HostFuture, LinkedWorktree,
    Scope, Workspace, WorkspaceHost, WorktreeRemoval,
};

use crate::Engine;
use crate::access::Right;
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

    fn workspaces<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Workspace>> {
        Box::pin(async { self.project_workspaces(scope) })
    }

    fn create_workspace<'a>(&'a self, scope: &'a Scope, input: CreateWorkspace) -> HostFuture<'a, Workspace> {
        Box::pin(async {
            self.require(Right::Work)?;
            self.add_workspace(scope, input).await
        })
    }

    fn remove_workspace<'a>(&'a self, _: &'a Scope, id: &'a str) -> HostFuture<'a, Workspace> {
        Box::pin(async {
            self.require(Right::Work)?;
            self.discard_workspace(id).await
        })
    }

    fn workspace_directory<'a>(&'a self, scope: &'a Scope, id: &'a str) -> HostFuture<'a, String> {
        Box::pin(async { self.directory_of_workspace(scope, id) })
    }

    fn linked_worktrees<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<String>> {
        Box::pin(async { self.worktree_directories(scope) })
    }

    fn create_linked_worktree<'a>(
        &'a self,
        scope: &'a Scope,
        input: CreateLinkedWorktree,
    ) -> HostFuture<'a, LinkedWorktree> {
        Box::pin(async {
            self.require(Right::Work)?;
            self.add_worktree(scope, input).await
        })
    }

    fn remove_linked_worktree<'a>(&'a self, scope: &'a Scope, directory: &'a str) -> HostFuture<'a, String> {
        Box::pin(async {
            self.require(Right::Work)?;
            match self.discard_worktree(scope, directory, true).await? {
                WorktreeRemoval::Removed(directory) => Ok(directory),
                WorktreeRemoval::HasChanges(why) => Err(HostError::Conflict(why)),
            }
        })
    }

    fn reset_linked_worktree<'a>(&'a self, scope: &'a Scope, directory: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.require(Right::Work)?;
            self.reset_worktree(scope, directory).await
        })
    }
}
