//! The [`WorkspaceHost`] implementation of the client.

use api::{
    CreateLinkedWorktree, CreateWorkspace, FileContent, FileNode, FindTextMatch, HostError, HostFuture, LinkedWorktree,
    Scope, Workspace, WorkspaceHost,
};
use reqwest::Method;
use serde_json::json;

use crate::Client;
use crate::wire::{self, RipgrepMatch};

/// The paths of workspaces and of linked worktrees.
const WORKSPACES: [&str; 2] = ["experimental", "workspace"];
const WORKTREES: [&str; 2] = ["experimental", "worktree"];

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

    fn workspaces<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Workspace>> {
        Box::pin(async { self.get(scope, &WORKSPACES).fetch().await })
    }

    fn create_workspace<'a>(&'a self, scope: &'a Scope, input: CreateWorkspace) -> HostFuture<'a, Workspace> {
        Box::pin(async move { self.post(scope, &WORKSPACES, &wire::body(&input)?).fetch().await })
    }

    fn remove_workspace<'a>(&'a self, scope: &'a Scope, id: &'a str) -> HostFuture<'a, Workspace> {
        Box::pin(async move {
            let path = [&WORKSPACES[..], &[id]].concat();
            // OpenCode answers `null` for an unknown one.
            let removed: Option<Workspace> = self.request(Method::DELETE, &path).scope(scope).fetch().await?;
            removed.ok_or_else(|| HostError::not_found("workspace", id))
        })
    }

    fn workspace_directory<'a>(&'a self, scope: &'a Scope, id: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move {
            // Listed for the project of the directory: a server may refuse a workspace that it does not know.
            let workspaces = self.workspaces(&Scope::new(scope.directory.as_str())).await?;
            let found = workspaces.into_iter().find(|workspace| workspace.id == id);
            let workspace = found.ok_or_else(|| HostError::not_found("workspace", id))?;
            workspace.directory.ok_or_else(|| HostError::Conflict(format!("The workspace {id} has no directory")))
        })
    }

    fn linked_worktrees<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<String>> {
        Box::pin(async { self.get(scope, &WORKTREES).fetch().await })
    }

    fn create_linked_worktree<'a>(
        &'a self,
        scope: &'a Scope,
        input: CreateLinkedWorktree,
    ) -> HostFuture<'a, LinkedWorktree> {
        Box::pin(async move { self.post(scope, &WORKTREES, &wire::body(&input)?).fetch().await })
    }

    fn remove_linked_worktree<'a>(&'a self, scope: &'a Scope, directory: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move {
            let request = self.request(Method::DELETE, &WORKTREES).scope(scope);
            request.body(&json!({"directory": directory})).perform().await?;
            Ok(directory.to_owned())
        })
    }

    fn reset_linked_worktree<'a>(&'a self, scope: &'a Scope, directory: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let path = [&WORKTREES[..], &["reset"]].concat();
            self.post(scope, &path, &json!({"directory": directory})).perform().await
        })
    }
}
