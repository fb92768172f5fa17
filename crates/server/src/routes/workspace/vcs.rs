//! The paths of a directory, and git for it.

use std::path::Path;

use api::Scope;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::State;
use crate::error::Error;
use crate::git::vcs::{Branches, DiffBase, FileDiff, FileStatus, Vcs};
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, Operation, Reply, TruncatedList, operation};
use exec::git::GitError;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/path", "path.get", "The directories in use.", paths),
        operation(Method::GET, "/vcs", "vcs.get", "The current and the default branch.", branches),
        operation(Method::GET, "/vcs/status", "vcs.status", "The files that differ from the last commit.", status),
        operation(Method::GET, "/vcs/diff", "vcs.diff", "How files differ from the last commit, or a branch.", diff),
        operation(Method::GET, "/vcs/diff/raw", "vcs.diff.raw", "All changes as one patch.", raw),
        operation(Method::POST, "/vcs/apply", "vcs.apply", "Apply a patch.", apply)
            .error(400, &["VcsApplyError", "BadRequestError"]),
    ]
}

/// Git for a directory, if it is in a repository.
pub fn vcs(state: &State, scope: &Scope) -> Option<Vcs> {
    let project = &state.engine.loaded(scope).project;
    project.vcs.as_ref()?;
    let (exec, scratch) = (state.engine.exec_at(scope), &state.engine.inputs().dirs.cache);
    Some(Vcs::new(&exec, Path::new(&scope.directory), &project.worktree, scratch))
}

impl From<GitError> for Error {
    fn from(error: GitError) -> Self {
        Self::named(StatusCode::BAD_REQUEST, "BadRequest", error.to_string())
    }
}

/// The directories in use.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Path")]
struct Paths {
    home: String,
    state: String,
    config: String,
    worktree: String,
    directory: String,
}

async fn paths(request: Request) -> Result<JsonReply<Paths>, Error> {
    let inputs = request.state.engine.inputs();
    let project = &request.state.engine.loaded(&request.scope).project;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Ok(JsonReply(Paths {
        home: text(&inputs.home),
        state: text(&inputs.dirs.state),
        config: inputs.dirs.config.last().map(|config| text(config)).unwrap_or_default(),
        worktree: text(if project.vcs.is_some() { &project.worktree } else { Path::new("/") }),
        directory: request.scope.directory,
    }))
}

async fn branches(request: Request) -> Result<JsonReply<Branches>, Error> {
    let Some(vcs) = vcs(&request.state, &request.scope) else { return Ok(JsonReply(Branches::default())) };
    Ok(JsonReply(vcs.branches().await?))
}

async fn status(request: Request) -> Result<TruncatedList<FileStatus>, Error> {
    let Some(vcs) = vcs(&request.state, &request.scope) else { return Ok(TruncatedList::default()) };
    Ok(vcs.status().await?)
}

/// Selects the changes.
#[derive(Debug, Deserialize, JsonSchema)]
struct DiffQuery {
    /// Since the last commit, or since the branch left the default one.
    mode: DiffMode,
    /// Lines of context; the whole file without it.
    context: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum DiffMode {
    Git,
    Branch,
}

async fn diff(request: Request<NoParams, DiffQuery>) -> Result<TruncatedList<FileDiff>, Error> {
    let base = match request.query.mode {
        DiffMode::Git => DiffBase::Commit,
        DiffMode::Branch => DiffBase::Branch,
    };
    let context = request.query.context.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    let Some(vcs) = vcs(&request.state, &request.scope) else { return Ok(TruncatedList::default()) };
    Ok(vcs.diff(base, context).await?)
}

/// A patch.
struct Patch(Vec<u8>);

const PATCH_TYPE: &str = "text/x-diff; charset=utf-8";

impl Reply for Patch {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((PATCH_TYPE, generator.subschema_for::<String>()))
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.0));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PATCH_TYPE));
        response
    }
}

async fn raw(request: Request) -> Result<Patch, Error> {
    let Some(vcs) = vcs(&request.state, &request.scope) else { return Ok(Patch(Vec::new())) };
    Ok(Patch(vcs.raw_patch().await?))
}

/// A patch to apply.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ApplyBody {
    patch: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ApplyResult {
    applied: bool,
}

async fn apply(request: Request<NoParams, NoParams, JsonBody<ApplyBody>>) -> Result<JsonReply<ApplyResult>, Error> {
    let Some(vcs) = vcs(&request.state, &request.scope) else {
        return Err(apply_error("non-git", "There is no git repository here to apply a patch to".to_owned()));
    };
    match vcs.apply(request.body.0.patch.as_bytes()).await {
        Ok(()) => Ok(JsonReply(ApplyResult { applied: true })),
        Err(GitError::Refused(why)) => Err(apply_error("not-clean", why)),
        Err(error) => Err(error.into()),
    }
}

fn apply_error(reason: &str, message: String) -> Error {
    let mut error = Error::named(StatusCode::BAD_REQUEST, "VcsApplyError", message);
    if let Some(body) = &mut error.body {
        body["data"]["reason"] = reason.into();
    }
    error
}
