//! Files, as the newer API lists and finds them.

use api::HostError;
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{At, at};
use crate::error::{Error, Where};
use crate::operation::request::{Call, Nothing};
use crate::operation::{Data, Operation, operation};
use crate::routes::workspace::file::{Kind, MAX_PATHS, PATHS, find, in_query};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/api/fs/find", "v2.fs.find", "Paths that fit a query, the best first.", find_paths)
            .v2(),
        operation(Method::GET, "/api/fs/list", "v2.fs.list", "The entries of a directory.", list).v2(),
    ]
}

/// A file or a directory.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FileSystemEntry")]
struct Entry {
    /// Relative to the location; that of a directory ends in a slash.
    path: String,
    #[serde(rename = "type")]
    kind: Kind,
}

impl Entry {
    fn new(path: String) -> Self {
        let kind = if path.ends_with('/') { Kind::Directory } else { Kind::File };
        Self { path, kind }
    }
}

/// Which paths.
#[derive(Debug, Deserialize, JsonSchema)]
struct FindQuery {
    query: String,
    /// Only these.
    #[serde(rename = "type")]
    kind: Option<Kind>,
    /// The most: a number from 1 to 200.
    limit: Option<String>,
}

async fn find_paths(call: Call<Nothing, FindQuery>) -> Result<Data<At<Vec<Entry>>>, Error> {
    let FindQuery { query, kind, limit } = &call.query;
    let limit = match limit {
        None => PATHS,
        Some(text) => text.parse().ok().filter(|limit| (1..=MAX_PATHS).contains(limit)).ok_or_else(|| {
            let message = format!("Expected a number from 1 to {MAX_PATHS}, got {text:?}\n  at [\"limit\"]");
            Error::bad_request(Where::Query, message)
        })?,
    };
    let found = find(&call.state, &call.scope, query, kind.map(Into::into).unwrap_or(tools::Entries::Both), limit);
    let entries = found.await?.into_iter().map(Entry::new).collect();
    at(&call.state, &call.scope, entries).await
}

/// A path, seen from the location.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    path: Option<String>,
}

async fn list(call: Call<Nothing, ListQuery>) -> Result<Data<At<Vec<Entry>>>, Error> {
    let path = call.query.path.as_deref().unwrap_or_default();
    let listed = call.state.engine.list_files(&call.scope, path).await;
    let (nodes, _) = listed.map_err(|error| match error {
        // OpenCode documents no 404 here.
        HostError::NotFound { .. } => Error::bad_request(Where::Query, error.to_string()),
        other => in_query(other),
    })?;
    at(&call.state, &call.scope, nodes.into_iter().map(|node| Entry::new(node.path)).collect()).await
}
