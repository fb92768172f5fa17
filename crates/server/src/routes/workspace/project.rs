//! Projects, their directories, and copies of them.

use std::path::Path;

use api::{Host as _, Project, ProjectCommands, ProjectIcon};
use axum::http::{Method, StatusCode};
use engine::UpdateProject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::git::worktree::{self, Trees, WorktreeError};
use crate::operation::request::{Call, JsonBody, Maybe, Nothing};
use crate::operation::{Data, NoContent, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const COPY: &str = "/experimental/project/{projectID}/copy";
    const NAME: &str = "/experimental/project/{projectID}/copy/generate-name";
    const REFRESH: &str = "/experimental/project/{projectID}/copy/refresh";
    const COPY_ERRORS: &[&str] = &["ProjectCopyError", "BadRequestError"];
    vec![
        operation(Method::GET, "/project", "project.list", "The projects that were worked on.", list),
        operation(Method::GET, "/project/current", "project.current", "The project of a directory.", current),
        operation(Method::POST, "/project/git/init", "project.initGit", "Make a repository of a directory.", init),
        operation(Method::PATCH, "/project/{projectID}", "project.update", "Change what is shown.", update)
            .error(404, &["ProjectNotFoundError"]),
        operation(
            Method::GET,
            "/project/{projectID}/directories",
            "project.directories",
            "The working trees of a project.",
            directories,
        ),
        operation(Method::POST, NAME, "experimental.projectCopy.generateName", "A name for a copy.", generate_name),
        operation(Method::POST, COPY, "v2.projectCopy.create", "Copy a project.", copy)
            .global()
            .error(400, COPY_ERRORS),
        operation(Method::DELETE, COPY, "v2.projectCopy.remove", "Remove a copy.", remove_copy)
            .global()
            .error(400, COPY_ERRORS),
        operation(Method::POST, REFRESH, "v2.projectCopy.refresh", "Look for copies anew.", refresh)
            .global()
            .error(400, COPY_ERRORS),
    ]
}

async fn list(call: Call) -> Result<Data<Vec<Project>>, Error> {
    let mut projects = call.state.engine.projects().await?;
    let current = call.state.engine.project(&call.scope).await?;
    match projects.iter_mut().find(|project| project.id == current.id) {
        Some(project) => *project = current,
        None => projects.push(current),
    }
    Ok(Data(projects))
}

async fn current(call: Call) -> Result<Data<Project>, Error> {
    Ok(Data(call.state.engine.project(&call.scope).await?))
}

async fn init(call: Call) -> Result<Data<Project>, Error> {
    let known = call.state.engine.project(&call.scope).await?;
    if known.vcs.is_some() {
        return Ok(Data(known));
    }
    let git = call.state.engine.exec_at(&call.scope).git(&call.scope.directory).writing();
    git.run(&["init", "--quiet"]).await?;
    call.state.dispose(&call.scope);
    let project = call.state.engine.project(&call.scope).await?;
    Ok(Data(call.state.engine.put_project(project).await?))
}

/// A project in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    #[serde(rename = "projectID")]
    project: String,
}

/// What is shown of a project.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Update {
    name: Option<String>,
    icon: Option<ProjectIcon>,
    commands: Option<ProjectCommands>,
}

async fn update(call: Call<ProjectPath, Nothing, JsonBody<Update>>) -> Result<Data<Project>, Error> {
    let JsonBody(Update { name, icon, commands }) = call.body;
    let change = UpdateProject { name, icon, commands };
    Ok(Data(call.state.engine.update_project(&call.scope, &call.path.project, change).await?))
}

/// A working tree of a project.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Directory {
    directory: String,
    /// How it came to be, unless it is the main one.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<&'static str>,
}

/// The working trees of a project.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "ProjectDirectories")]
struct Directories(Vec<Directory>);

/// The one way to copy a project.
const STRATEGY: &str = "git_worktree";

async fn directories(call: Call<ProjectPath>) -> Result<Data<Directories>, Error> {
    let Ok(project) = call.state.engine.project_by_id(&call.scope, &call.path.project) else {
        return Ok(Data(Directories::default()));
    };
    // Everything outside of a repository is one project, which has no directory.
    let main = project.vcs.is_some().then_some(Directory { directory: project.worktree, strategy: None });
    let linked = project.sandboxes.into_iter().map(|directory| Directory { directory, strategy: Some(STRATEGY) });
    Ok(Data(Directories(linked.chain(main).collect())))
}

/// What the copy is for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct NameBody {
    context: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Name {
    name: String,
}

async fn generate_name(call: Call<ProjectPath, Nothing, Maybe<NameBody>>) -> Result<Data<Name>, Error> {
    let context = call.body.0.context.unwrap_or_default();
    let words: Vec<&str> = context.split_whitespace().take(4).collect();
    let name = Some(worktree::slug(&words.join(" "))).filter(|name| !name.is_empty()).unwrap_or_else(api::slug);
    Ok(Data(Name { name }))
}

/// Where, as v2 spells it; [`crate::operation::request::scope`] reads it.
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

fn copy_error(message: impl Into<String>, dirty: bool) -> Error {
    let mut error = Error::named(StatusCode::BAD_REQUEST, "ProjectCopyError", message);
    if let Some(body) = error.body.as_mut().filter(|_| dirty) {
        body["data"]["forceRequired"] = true.into();
    }
    error
}

fn not_copied(error: WorktreeError) -> Error {
    match error {
        WorktreeError::Host(error) => error.into(),
        other => copy_error(other.to_string(), matches!(other, WorktreeError::Remove { dirty: true, .. })),
    }
}

async fn trees<Q, B>(call: &Call<ProjectPath, Q, B>) -> Result<Trees, Error> {
    let trees = Trees::of(&call.state, &call.scope).await.map_err(not_copied)?;
    if trees.project.id != call.path.project {
        let directory = &call.scope.directory;
        return Err(copy_error(format!("{directory} is not of the project {}", call.path.project), false));
    }
    Ok(trees)
}

/// A new copy.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CopyBody {
    strategy: String,
    /// The folder that it is made in.
    directory: String,
    name: Option<String>,
}

/// A copy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProjectCopyCopy")]
struct Copied {
    directory: String,
}

async fn copy(call: Call<ProjectPath, LocationQuery, JsonBody<CopyBody>>) -> Result<Data<Copied>, Error> {
    let trees = trees(&call).await?;
    let JsonBody(CopyBody { strategy, directory, name }) = call.body;
    if strategy != STRATEGY {
        return Err(copy_error(format!("There is no strategy {strategy:?}; there is {STRATEGY:?}"), false));
    }
    let parent = Path::new(&directory);
    if !parent.is_absolute() || directory.contains('\0') {
        return Err(copy_error(format!("{directory:?} is not an absolute path"), false));
    }
    let made = trees.copy_to(parent, name.as_deref()).await.map_err(not_copied)?;
    Ok(Data(Copied { directory: made.to_string_lossy().into_owned() }))
}

/// A copy to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct RemoveBody {
    directory: String,
    /// Also with changes in it.
    force: bool,
}

async fn remove_copy(call: Call<ProjectPath, LocationQuery, JsonBody<RemoveBody>>) -> Result<NoContent, Error> {
    let trees = trees(&call).await?;
    let JsonBody(RemoveBody { directory, force }) = call.body;
    trees.remove(&directory, force).await.map_err(not_copied)?;
    Ok(NoContent)
}

async fn refresh(call: Call<ProjectPath, LocationQuery>) -> Result<NoContent, Error> {
    trees(&call).await?.prune().await.map_err(not_copied)?;
    Ok(NoContent)
}
