//! Files, as the newer API lists and finds them.

use api::HostError;
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{WithLocation, with_location};
use crate::error::{Error, RequestPart};
use crate::operation::request::{NoParams, Request};
use crate::operation::{JsonReply, Operation, operation};
use crate::routes::workspace::file::{DEFAULT_PATHS, MAX_PATHS, PathType, find_paths, query_error};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/api/fs/find", "v2.fs.find", "Paths that match a query, best first.", find).v2(),
        operation(Method::GET, "/api/fs/list", "v2.fs.list", "The entries of a directory.", list).v2(),
    ]
}

/// A file or a directory.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FileSystemEntry")]
struct FileSystemEntry {
    /// Relative to the location; a directory's ends in a slash.
    path: String,
    #[serde(rename = "type")]
    kind: PathType,
}

impl FileSystemEntry {
    fn new(path: String) -> Self {
        let kind = if path.ends_with('/') { PathType::Directory } else { PathType::File };
        Self { path, kind }
    }
}

/// Searches paths.
#[derive(Debug, Deserialize, JsonSchema)]
struct FindQuery {
    query: String,
    /// Only paths of this type.
    #[serde(rename = "type")]
    kind: Option<PathType>,
    /// The most to return: a number from 1 to 200.
    limit: Option<String>,
}

async fn find(request: Request<NoParams, FindQuery>) -> Result<JsonReply<WithLocation<Vec<FileSystemEntry>>>, Error> {
    let FindQuery { query, kind, limit } = &request.query;
    let limit = match limit {
        None => DEFAULT_PATHS,
        Some(text) => text.parse().ok().filter(|limit| (1..=MAX_PATHS).contains(limit)).ok_or_else(|| {
            let message = format!("Expected a number from 1 to {MAX_PATHS}, got {text:?}\n  at [\"limit\"]");
            Error::bad_request(RequestPart::Query, message)
        })?,
    };
    let found =
        find_paths(&request.state, &request.scope, query, kind.map(Into::into).unwrap_or(tools::Entries::Both), limit);
    let entries = found.await?.into_iter().map(FileSystemEntry::new).collect();
    with_location(&request.state, &request.scope, entries).await
}

/// A path, relative to the location.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    path: Option<String>,
}

async fn list(request: Request<NoParams, ListQuery>) -> Result<JsonReply<WithLocation<Vec<FileSystemEntry>>>, Error> {
    let path = request.query.path.as_deref().unwrap_or_default();
    let listed = request.host.files(&request.scope, path).await;
    let nodes = listed.map_err(|error| match error {
        // OpenCode documents no 404 here.
        HostError::NotFound { .. } => Error::bad_request(RequestPart::Query, error.to_string()),
        other => query_error(other),
    })?;
    with_location(
        &request.state,
        &request.scope,
        nodes.into_iter().map(|node| FileSystemEntry::new(node.path)).collect(),
    )
    .await
}
