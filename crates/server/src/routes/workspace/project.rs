//! Projects, their directories, and copies of them.

use std::path::Path;

use api::{HostError, Project, ProjectCommands, ProjectIcon, WorktreeRemoval};
use axum::http::{Method, StatusCode};
use engine::UpdateProject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vcs::{NO_REPOSITORY, git_error, refusal};
use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, OptionalJsonBody, Request};
use crate::operation::{JsonReply, NoContent, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const COPY: &str = "/experimental/project/{projectID}/copy";
    const NAME: &str = "/experimental/project/{projectID}/copy/generate-name";
    const REFRESH: &str = "/experimental/project/{projectID}/copy/refresh";
    const COPY_ERRORS: &[&str] = &["ProjectCopyError", "BadRequestError"];
    vec![
        operation(Method::GET, "/project", "project.list", "The known projects.", list),
        operation(Method::GET, "/project/current", "project.current", "The project of a directory.", current),
        operation(
            Method::POST,
            "/project/git/init",
            "project.initGit",
            "Create a git repository in a directory.",
            init_git,
        ),
        operation(
            Method::PATCH,
            "/project/{projectID}",
            "project.update",
            "Change the display settings of a project.",
            update,
        )
        .error(404, &["ProjectNotFoundError"]),
        operation(
            Method::GET,
            "/project/{projectID}/directories",
            "project.directories",
            "The working trees of a project.",
            directories,
        ),
        operation(
            Method::POST,
            NAME,
            "experimental.projectCopy.generateName",
            "Suggest a name for a copy.",
            generate_name,
        ),
        operation(Method::POST, COPY, "v2.projectCopy.create", "Copy a project.", copy)
            .global()
            .error(400, COPY_ERRORS),
        operation(Method::DELETE, COPY, "v2.projectCopy.remove", "Remove a copy.", remove_copy)
            .global()
            .error(400, COPY_ERRORS),
        operation(Method::POST, REFRESH, "v2.projectCopy.refresh", "Refresh the list of copies.", refresh)
            .global()
            .error(400, COPY_ERRORS),
    ]
}

async fn list(request: Request) -> Result<JsonReply<Vec<Project>>, Error> {
    Ok(JsonReply(request.host.projects(&request.scope).await?))
}

async fn current(request: Request) -> Result<JsonReply<Project>, Error> {
    Ok(JsonReply(request.host.project(&request.scope).await?))
}

async fn init_git(request: Request) -> Result<JsonReply<Project>, Error> {
    let project = request.host.project(&request.scope).await?;
    if project.vcs.is_some() {
        return Ok(JsonReply(project));
    }
    request.engine.vcs_init(&request.scope).await.map_err(git_error)?;
    request.state.dispose(&request.scope);
    let project = request.host.project(&request.scope).await?;
    Ok(JsonReply(request.engine.put_project(project).await?))
}

/// A project in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    #[serde(rename = "projectID")]
    project: String,
}

/// The display settings of a project.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct UpdateBody {
    name: Option<String>,
    icon: Option<ProjectIcon>,
    commands: Option<ProjectCommands>,
}

async fn update(request: Request<ProjectPath, NoParams, JsonBody<UpdateBody>>) -> Result<JsonReply<Project>, Error> {
    let JsonBody(UpdateBody { name, icon, commands }) = request.body;
    let change = UpdateProject { name, icon, commands };
    Ok(JsonReply(request.engine.update_project(&request.scope, &request.path.project, change).await?))
}

/// A working tree of a project.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ProjectDirectory {
    directory: String,
    /// How it was made; absent for the main one.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<&'static str>,
}

/// The working trees of a project.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "ProjectDirectories")]
struct ProjectDirectories(Vec<ProjectDirectory>);

/// The only way to copy a project.
const COPY_STRATEGY: &str = "git_worktree";

async fn directories(request: Request<ProjectPath>) -> Result<JsonReply<ProjectDirectories>, Error> {
    let Ok(project) = request.engine.project_by_id(&request.scope, &request.path.project) else {
        return Ok(JsonReply(ProjectDirectories::default()));
    };
    // Everything outside a repository is one project, which has no directory.
    let main = project.vcs.is_some().then_some(ProjectDirectory { directory: project.worktree, strategy: None });
    let linked =
        project.sandboxes.into_iter().map(|directory| ProjectDirectory { directory, strategy: Some(COPY_STRATEGY) });
    Ok(JsonReply(ProjectDirectories(linked.chain(main).collect())))
}

/// The purpose of the copy.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct NameBody {
    context: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct GeneratedName {
    name: String,
}

async fn generate_name(
    request: Request<ProjectPath, NoParams, OptionalJsonBody<NameBody>>,
) -> Result<JsonReply<GeneratedName>, Error> {
    let context = request.body.0.context.unwrap_or_default();
    let words: Vec<&str> = context.split_whitespace().take(4).collect();
    let name = Some(engine::worktree_name(&words.join(" "))).filter(|name| !name.is_empty()).unwrap_or_else(api::slug);
    Ok(JsonReply(GeneratedName { name }))
}

/// The location, as v2 spells it; [`crate::operation::request::parse_scope`] reads it.
#[derive(Debug, Deserialize, JsonSchema)]
struct LocationQuery {
    #[serde(rename = "location")]
    _location: Option<Location>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Location {
    #[serde(rename = "directory")]
    _directory: Option<String>,
    #[serde(rename = "workspace")]
    _workspace: Option<String>,
}

fn copy_error(message: impl Into<String>, is_dirty: bool) -> Error {
    let mut error = Error::named(StatusCode::BAD_REQUEST, "ProjectCopyError", message);
    if let Some(body) = error.body.as_mut().filter(|_| is_dirty) {
        body["data"]["forceRequired"] = true.into();
    }
    error
}

fn worktree_error(error: HostError) -> Error {
    refusal(error).map_or_else(Error::from, |why| copy_error(why, false))
}

/// Refuses a directory that is not in a repository, or in that of another project than the path names.
async fn check_project<Q, B>(request: &Request<ProjectPath, Q, B>) -> Result<(), Error> {
    let project = request.host.project(&request.scope).await?;
    if project.vcs.is_none() {
        return Err(copy_error(NO_REPOSITORY, false));
    }
    if project.id != request.path.project {
        let directory = &request.scope.directory;
        return Err(copy_error(format!("{directory} does not belong to the project {}", request.path.project), false));
    }
    Ok(())
}

/// A new copy.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CopyBody {
    strategy: String,
    /// The folder to create it in.
    directory: String,
    name: Option<String>,
}

/// A copy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProjectCopyCopy")]
struct ProjectCopy {
    directory: String,
}

async fn copy(
    request: Request<ProjectPath, LocationQuery, JsonBody<CopyBody>>,
) -> Result<JsonReply<ProjectCopy>, Error> {
    check_project(&request).await?;
    let JsonBody(CopyBody { strategy, directory, name }) = request.body;
    if strategy != COPY_STRATEGY {
        return Err(copy_error(format!("There is no strategy {strategy:?}; use {COPY_STRATEGY:?}"), false));
    }
    let parent = Path::new(&directory);
    if !parent.is_absolute() || directory.contains('\0') {
        return Err(copy_error(format!("{directory:?} is not an absolute path"), false));
    }
    let copied = request.engine.copy_project(&request.scope, parent, name.as_deref()).await;
    let copy = copied.map_err(worktree_error)?;
    Ok(JsonReply(ProjectCopy { directory: copy.to_string_lossy().into_owned() }))
}

/// A copy to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct RemoveBody {
    directory: String,
    /// Also if it has uncommitted changes.
    force: bool,
}

async fn remove_copy(request: Request<ProjectPath, LocationQuery, JsonBody<RemoveBody>>) -> Result<NoContent, Error> {
    check_project(&request).await?;
    let JsonBody(RemoveBody { directory, force }) = request.body;
    let removed = request.engine.discard_worktree(&request.scope, &directory, force).await;
    match removed.map_err(worktree_error)? {
        WorktreeRemoval::Removed(directory) => {
            request.state.terminals.dispose(&request.state, Some(&directory));
            Ok(NoContent)
        }
        WorktreeRemoval::HasChanges(why) => Err(copy_error(why, true)),
    }
}

async fn refresh(request: Request<ProjectPath, LocationQuery>) -> Result<NoContent, Error> {
    check_project(&request).await?;
    request.engine.prune_linked_worktrees(&request.scope).await.map_err(worktree_error)?;
    Ok(NoContent)
}
