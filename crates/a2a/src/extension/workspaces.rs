//! Methods about projects, workspaces and worktrees. They work on the project of the service; in 1.0 their results show no
//! paths.

use std::path::Path;

use api::{CreateLinkedWorktree, CreateWorkspace, HostError, Json, JsonMap, LinkedWorktree, Project, Scope, Workspace};
use serde_json::json;

use super::Request;
use crate::{Error, Line};

impl Request<'_> {
    /// The project of the service, whatever the metadata says.
    async fn project_scope(&self) -> Result<Scope, Error> {
        self.params.metadata()?;
        self.service.scope(&JsonMap::new()).await
    }

    fn failed(&self, error: HostError) -> Error {
        self.upstream(None).error(error)
    }
}

pub(super) async fn projects(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["metadata"])?;
    let scope = request.project_scope().await?;
    let projects = request.host().projects(&scope).await.map_err(|error| request.failed(error))?;
    Ok(json!({ "items": projects.iter().map(|one| project(one, request.line)).collect::<Vec<_>>() }))
}

pub(super) async fn current_project(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["metadata"])?;
    let scope = request.project_scope().await?;
    let current = request.host().project(&scope).await.map_err(|error| request.failed(error))?;
    Ok(json!({ "item": project(&current, request.line) }))
}

pub(super) async fn list(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["metadata"])?;
    let scope = request.project_scope().await?;
    let workspaces = request.host().workspaces(&scope).await.map_err(|error| request.failed(error))?;
    Ok(json!({ "items": workspaces.iter().map(|one| workspace(one, request.line)).collect::<Vec<_>>() }))
}

pub(super) async fn create(request: &Request<'_>) -> Result<Json, Error> {
    request.service.access().workspace_mutation(request.who, request.method)?;
    request.params.only(&["request", "metadata"])?;
    let body = request.params.request()?;
    body.only(&["type", "id", "branch", "extra"])?;
    let input = CreateWorkspace {
        kind: body.required_text("type")?.to_owned(),
        id: body.text("id")?.map(str::to_owned),
        branch: body.text("branch")?.map(str::to_owned),
        extra: body.get("extra").cloned(),
    };
    let scope = request.project_scope().await?;
    let created = request.host().create_workspace(&scope, input).await.map_err(|error| request.failed(error))?;
    Ok(json!({ "item": workspace(&created, request.line) }))
}

pub(super) async fn remove(request: &Request<'_>) -> Result<Json, Error> {
    request.service.access().workspace_mutation(request.who, request.method)?;
    request.params.only(&["workspace_id", "metadata"])?;
    let id = request.params.required_text("workspace_id")?;
    let scope = request.project_scope().await?;
    match request.host().remove_workspace(&scope, id).await {
        Ok(removed) => Ok(json!({ "item": workspace(&removed, request.line) })),
        // There was nothing to remove.
        Err(HostError::NotFound { what: "workspace", .. }) => Ok(json!({ "item": null })),
        Err(error) => Err(request.failed(error)),
    }
}

pub(super) async fn worktrees(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["metadata"])?;
    let scope = request.project_scope().await?;
    let directories = request.host().linked_worktrees(&scope).await.map_err(|error| request.failed(error))?;
    let items: Vec<Json> = match request.line {
        Line::V03 => directories.into_iter().map(Json::String).collect(),
        Line::V10 => directories.iter().map(|directory| json!({ "name": last_component(directory) })).collect(),
    };
    Ok(json!({ "items": items }))
}

pub(super) async fn create_worktree(request: &Request<'_>) -> Result<Json, Error> {
    request.service.access().workspace_mutation(request.who, request.method)?;
    request.params.only(&["request", "metadata"])?;
    let empty = JsonMap::new();
    let body = request.params.optional_request(&empty)?;
    body.only(&["name", "startCommand"])?;
    let input = CreateLinkedWorktree {
        name: body.text("name")?.map(str::to_owned),
        start_command: body.text("startCommand")?.map(str::to_owned),
    };
    let scope = request.project_scope().await?;
    let created = request.host().create_linked_worktree(&scope, input).await.map_err(|error| request.failed(error))?;
    Ok(json!({ "item": worktree(&created, request.line) }))
}

pub(super) async fn remove_worktree(request: &Request<'_>) -> Result<Json, Error> {
    let (scope, directory) = worktree_of(request).await?;
    let removed = request.host().remove_linked_worktree(&scope, directory).await;
    ok(request, removed.map(drop))
}

pub(super) async fn reset_worktree(request: &Request<'_>) -> Result<Json, Error> {
    let (scope, directory) = worktree_of(request).await?;
    let reset = request.host().reset_linked_worktree(&scope, directory).await;
    ok(request, reset)
}

/// The worktree that a call names.
async fn worktree_of<'a>(request: &Request<'a>) -> Result<(Scope, &'a str), Error> {
    request.service.access().workspace_mutation(request.who, request.method)?;
    request.params.only(&["request", "metadata"])?;
    let body = request.params.request()?;
    body.only(&["directory"])?;
    let directory = body.required_text("directory")?;
    Ok((request.project_scope().await?, directory))
}

/// Whether it was done; a worktree that does not exist is no error.
fn ok(request: &Request<'_>, done: Result<(), HostError>) -> Result<Json, Error> {
    match done {
        Ok(()) => Ok(json!({ "ok": true })),
        Err(HostError::NotFound { what: "worktree", .. }) => Ok(json!({ "ok": false })),
        Err(error) => Err(request.failed(error)),
    }
}

fn project(project: &Project, line: Line) -> Json {
    match line {
        Line::V03 => {
            let mut fields = json!({ "id": project.id, "worktree": project.worktree, "time": project.time });
            add_name_and_vcs(&mut fields, project);
            fields
        }
        Line::V10 => {
            let mut fields = json!({ "id": project.id });
            add_name_and_vcs(&mut fields, project);
            fields
        }
    }
}

fn add_name_and_vcs(fields: &mut Json, project: &Project) {
    for (key, value) in [("vcs", &project.vcs), ("name", &project.name)] {
        if let Some(value) = value {
            fields[key] = value.as_str().into();
        }
    }
}

fn workspace(workspace: &Workspace, line: Line) -> Json {
    let mut fields = json!({
        "id": workspace.id, "type": workspace.kind, "name": workspace.name, "branch": workspace.branch,
    });
    if line == Line::V03 {
        fields["directory"] = json!(workspace.directory);
        fields["projectID"] = workspace.project_id.as_str().into();
    }
    fields
}

fn worktree(worktree: &LinkedWorktree, line: Line) -> Json {
    let mut fields = json!({ "name": worktree.name });
    if let Some(branch) = &worktree.branch {
        fields["branch"] = branch.as_str().into();
    }
    if line == Line::V03 {
        fields["directory"] = worktree.directory.as_str().into();
    }
    fields
}

fn last_component(path: &str) -> String {
    Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
