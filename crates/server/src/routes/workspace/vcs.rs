//! The paths of a directory, and git for it.

use std::path::Path;

use api::{Branches, DiffBase, FileDiffStatus, FilePatch, FileStatus, HostError, PartialList};
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, Operation, Reply, TruncatedList, operation};

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

/// What clients read if there is no repository.
pub const NO_REPOSITORY: &str =
    "There is no git repository here, so there are no worktrees; POST /project/git/init makes one";

/// The reason why git, or the state of a repository, refuses a request; other errors as they are.
pub fn refusal(error: HostError) -> Result<String, HostError> {
    match error {
        HostError::NotFound { what: "git repository", .. } => Ok(NO_REPOSITORY.to_owned()),
        HostError::Invalid(why) | HostError::Conflict(why) => Ok(why),
        other => Err(other),
    }
}

/// Reports an error of git as a bad request.
pub fn git_error(error: HostError) -> Error {
    refusal(error).map_or_else(Error::from, |why| Error::named(StatusCode::BAD_REQUEST, "BadRequest", why))
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
    let inputs = request.engine.inputs();
    let project = &request.engine.loaded(&request.scope).project;
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
    Ok(JsonReply(request.engine.vcs_branches(&request.scope).await.map_err(git_error)?))
}

/// A changed file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "VcsFileStatus")]
struct VcsFileStatus {
    /// Relative to the root of the working tree.
    file: String,
    #[schemars(with = "f64")]
    additions: u64,
    #[schemars(with = "f64")]
    deletions: u64,
    status: FileDiffStatus,
}

impl From<FileStatus> for VcsFileStatus {
    fn from(FileStatus { path, added, removed, status }: FileStatus) -> Self {
        Self { file: path, additions: added, deletions: removed, status }
    }
}

/// A changed file with its patch.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "VcsFileDiff")]
struct VcsFileDiff {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[schemars(with = "f64")]
    additions: u64,
    #[schemars(with = "f64")]
    deletions: u64,
    #[schemars(with = "Option<FileDiffStatus>")]
    status: FileDiffStatus,
}

impl From<FilePatch> for VcsFileDiff {
    fn from(FilePatch { file, patch }: FilePatch) -> Self {
        let FileStatus { path, added, removed, status } = file;
        Self { file: path, patch, additions: added, deletions: removed, status }
    }
}

/// A list with each element in the form of the wire.
fn wire_list<T, W: From<T>>(PartialList { list, missing }: PartialList<T>) -> TruncatedList<W> {
    TruncatedList { list: list.into_iter().map(W::from).collect(), missing }
}

async fn status(request: Request) -> Result<TruncatedList<VcsFileStatus>, Error> {
    Ok(wire_list(request.engine.vcs_status(&request.scope).await.map_err(git_error)?))
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

async fn diff(request: Request<NoParams, DiffQuery>) -> Result<TruncatedList<VcsFileDiff>, Error> {
    let base = match request.query.mode {
        DiffMode::Git => DiffBase::Commit,
        DiffMode::Branch => DiffBase::Branch,
    };
    let context = request.query.context.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    Ok(wire_list(request.engine.vcs_diff(&request.scope, base, context).await.map_err(git_error)?))
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
    Ok(Patch(request.engine.vcs_patch(&request.scope).await.map_err(git_error)?))
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
    match request.engine.vcs_apply(&request.scope, request.body.0.patch.as_bytes()).await {
        Ok(()) => Ok(JsonReply(ApplyResult { applied: true })),
        Err(HostError::NotFound { what: "git repository", .. }) => {
            Err(apply_error("non-git", "There is no git repository here to apply a patch to".to_owned()))
        }
        Err(HostError::Conflict(why)) => Err(apply_error("not-clean", why)),
        Err(error) => Err(git_error(error)),
    }
}

fn apply_error(reason: &str, message: String) -> Error {
    let mut error = Error::named(StatusCode::BAD_REQUEST, "VcsApplyError", message);
    if let Some(body) = &mut error.body {
        body["data"]["reason"] = reason.into();
    }
    error
}
