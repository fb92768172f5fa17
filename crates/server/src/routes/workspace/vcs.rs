//! Where a directory is, and what git knows of it.

use std::path::Path;

use api::Scope;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::State;
use crate::error::Error;
use crate::git::vcs::{FileDiff, FileStatus, Info, Since, Vcs};
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Cut, Data, Operation, Reply, operation};
use exec::git::GitError;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/path", "path.get", "Where things are.", paths),
        operation(Method::GET, "/vcs", "vcs.get", "The branches.", info),
        operation(Method::GET, "/vcs/status", "vcs.status", "The files that differ from the last commit.", status),
        operation(Method::GET, "/vcs/diff", "vcs.diff", "How files differ from the last commit, or a branch.", diff),
        operation(Method::GET, "/vcs/diff/raw", "vcs.diff.raw", "All that differs, as one patch.", raw),
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

/// Where things are.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Path")]
struct Paths {
    home: String,
    state: String,
    config: String,
    worktree: String,
    directory: String,
}

async fn paths(call: Call) -> Result<Data<Paths>, Error> {
    let inputs = call.state.engine.inputs();
    let project = &call.state.engine.loaded(&call.scope).project;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Ok(Data(Paths {
        home: text(&inputs.home),
        state: text(&inputs.dirs.state),
        config: inputs.dirs.config.last().map(|config| text(config)).unwrap_or_default(),
        worktree: text(if project.vcs.is_some() { &project.worktree } else { Path::new("/") }),
        directory: call.scope.directory,
    }))
}

async fn info(call: Call) -> Result<Data<Info>, Error> {
    let Some(vcs) = vcs(&call.state, &call.scope) else { return Ok(Data(Info::default())) };
    Ok(Data(vcs.info().await?))
}

async fn status(call: Call) -> Result<Cut<FileStatus>, Error> {
    let Some(vcs) = vcs(&call.state, &call.scope) else { return Ok(Cut::default()) };
    Ok(vcs.status().await?)
}

/// Which changes.
#[derive(Debug, Deserialize, JsonSchema)]
struct DiffQuery {
    /// Since the last commit, or since the default branch was left.
    mode: Mode,
    /// Lines around a change; the whole file without it.
    context: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    Git,
    Branch,
}

async fn diff(call: Call<Nothing, DiffQuery>) -> Result<Cut<FileDiff>, Error> {
    let since = match call.query.mode {
        Mode::Git => Since::Commit,
        Mode::Branch => Since::Branch,
    };
    let context = call.query.context.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    let Some(vcs) = vcs(&call.state, &call.scope) else { return Ok(Cut::default()) };
    Ok(vcs.diff(since, context).await?)
}

/// A patch.
struct Patch(Vec<u8>);

const PATCH: &str = "text/x-diff; charset=utf-8";

impl Reply for Patch {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((PATCH, generator.subschema_for::<String>()))
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.0));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PATCH));
        response
    }
}

async fn raw(call: Call) -> Result<Patch, Error> {
    let Some(vcs) = vcs(&call.state, &call.scope) else { return Ok(Patch(Vec::new())) };
    Ok(Patch(vcs.raw().await?))
}

/// A patch to apply.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ApplyBody {
    patch: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Applied {
    applied: bool,
}

async fn apply(call: Call<Nothing, Nothing, JsonBody<ApplyBody>>) -> Result<Data<Applied>, Error> {
    let Some(vcs) = vcs(&call.state, &call.scope) else {
        return Err(refused("non-git", "There is no git repository here to apply a patch to".to_owned()));
    };
    match vcs.apply(call.body.0.patch.as_bytes()).await {
        Ok(()) => Ok(Data(Applied { applied: true })),
        Err(GitError::Refused(why)) => Err(refused("not-clean", why)),
        Err(error) => Err(error.into()),
    }
}

fn refused(reason: &str, message: String) -> Error {
    let mut error = Error::named(StatusCode::BAD_REQUEST, "VcsApplyError", message);
    if let Some(body) = &mut error.body {
        body["data"]["reason"] = reason.into();
    }
    error
}
