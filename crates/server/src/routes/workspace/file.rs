//! Files: listing, reading, searching.

use api::{FileContent, FileNode, FindTextMatch, HostError, Scope};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tools::Entries;

use super::vcs::git_error;
use crate::State;
use crate::error::{Error, RequestPart};
use crate::operation::request::{NoParams, Request};
use crate::operation::{JsonReply, Operation, TruncatedList, operation};

/// The most lines that a search returns.
const MAX_LINES: usize = 100;
/// How many paths a search returns by default, and the most that a client may ask for.
pub const DEFAULT_PATHS: u64 = 10;
pub const MAX_PATHS: u64 = 200;
/// The longest query or pattern, in bytes.
const MAX_QUERY_BYTES: usize = 4 << 10;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/file", "file.list", "The entries of a directory.", list).not_found(),
        operation(Method::GET, "/file/content", "file.read", "A file.", read),
        operation(Method::GET, "/file/status", "file.status", "The files that differ from the last commit.", status),
        operation(Method::GET, "/find", "find.text", "Lines that match a regular expression.", text),
        operation(Method::GET, "/find/file", "find.files", "Paths that match a query, best first.", files),
        operation(Method::GET, "/find/symbol", "find.symbols", "Symbols that match a query.", symbols)
            .partial("always empty: there are no language servers yet"),
    ]
}

/// A path, relative to the directory.
#[derive(Debug, Deserialize, JsonSchema)]
struct PathQuery {
    path: String,
}

/// Reports an invalid argument as an error in the query.
pub fn query_error(error: HostError) -> Error {
    match error {
        HostError::Invalid(message) => Error::bad_request(RequestPart::Query, message),
        other => other.into(),
    }
}

async fn list(request: Request<NoParams, PathQuery>) -> Result<TruncatedList<FileNode>, Error> {
    let (list, is_complete) =
        request.engine.list_files(&request.scope, &request.query.path).await.map_err(query_error)?;
    Ok(TruncatedList { list, missing: if is_complete { Vec::new() } else { vec!["files"] } })
}

async fn read(request: Request<NoParams, PathQuery>) -> Result<JsonReply<FileContent>, Error> {
    match request.host.file(&request.scope, &request.query.path).await {
        Ok(content) => Ok(JsonReply(content)),
        // As in OpenCode: clients that compare a file with its last commit read deleted ones, too.
        Err(HostError::NotFound { .. }) => Ok(JsonReply(FileContent::text(String::new()))),
        Err(error) => Err(query_error(error)),
    }
}

async fn status(request: Request) -> Result<TruncatedList<api::FileStatus>, Error> {
    Ok(request.engine.vcs_status(&request.scope).await.map_err(git_error)?.into())
}

/// A regular expression to search for.
#[derive(Debug, Deserialize, JsonSchema)]
struct PatternQuery {
    pattern: String,
}

/// Text of a file that may not be UTF-8.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct TextField {
    text: String,
}

/// A matching line, in ripgrep's format.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct TextMatch {
    path: TextField,
    lines: TextField,
    line_number: u64,
    absolute_offset: u64,
    submatches: Vec<Submatch>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Submatch {
    #[serde(rename = "match")]
    found: TextField,
    start: u64,
    end: u64,
}

impl From<FindTextMatch> for TextMatch {
    fn from(found: FindTextMatch) -> Self {
        let bytes = found.line.as_bytes();
        let submatch = |(start, end): (u64, u64)| {
            let range = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
            let text = String::from_utf8_lossy(bytes.get(range).unwrap_or_default()).into_owned();
            Submatch { found: TextField { text }, start, end }
        };
        let submatches = found.matches.into_iter().map(submatch).collect();
        Self {
            submatches,
            path: TextField { text: found.path },
            lines: TextField { text: found.line },
            line_number: found.line_number,
            absolute_offset: found.offset,
        }
    }
}

async fn text(request: Request<NoParams, PatternQuery>) -> Result<JsonReply<Vec<TextMatch>>, Error> {
    check_length("pattern", &request.query.pattern)?;
    let found = request.host.find_text(&request.scope, &request.query.pattern, MAX_LINES).await.map_err(query_error)?;
    Ok(JsonReply(found.into_iter().map(TextMatch::from).collect()))
}

/// Searches paths.
#[derive(Debug, Deserialize, JsonSchema)]
struct FilesQuery {
    query: String,
    /// `false` leaves directories out.
    dirs: Option<Flag>,
    /// Only paths of this type.
    #[serde(rename = "type")]
    kind: Option<PathType>,
    /// The most to return.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u64>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Flag {
    True,
    False,
}

/// The type of a path.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PathType {
    /// A file.
    File,
    /// A directory.
    Directory,
}

impl From<PathType> for Entries {
    fn from(kind: PathType) -> Self {
        match kind {
            PathType::File => Self::Files,
            PathType::Directory => Self::Directories,
        }
    }
}

async fn files(request: Request<NoParams, FilesQuery>) -> Result<JsonReply<Vec<String>>, Error> {
    let FilesQuery { query, dirs, kind, limit } = request.query;
    let limit = limit.unwrap_or(DEFAULT_PATHS);
    if !(1..=MAX_PATHS).contains(&limit) {
        let message = format!("Expected a number from 1 to {MAX_PATHS}, got {limit}\n  at [\"limit\"]");
        return Err(Error::bad_request(RequestPart::Query, message));
    }
    let entries = match kind {
        Some(kind) => kind.into(),
        None if dirs == Some(Flag::False) => Entries::Files,
        None => Entries::Both,
    };
    Ok(JsonReply(find_paths(&request.state, &request.scope, &query, entries, limit).await?))
}

/// Paths that match a query, best first.
pub async fn find_paths(
    state: &State,
    scope: &Scope,
    query: &str,
    entries: Entries,
    limit: u64,
) -> Result<Vec<String>, Error> {
    check_length("query", query)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    state.engine.find_paths(scope, query, entries, limit).await.map_err(query_error)
}

fn check_length(name: &str, text: &str) -> Result<(), Error> {
    if text.len() <= MAX_QUERY_BYTES {
        return Ok(());
    }
    let message = format!("Expected at most {MAX_QUERY_BYTES} bytes, got {}\n  at [{name:?}]", text.len());
    Err(Error::bad_request(RequestPart::Query, message))
}

/// Searches symbols.
#[derive(Debug, Deserialize, JsonSchema)]
struct SymbolQuery {
    /// Part of the symbol's name.
    #[serde(rename = "query")]
    _query: String,
}

/// A symbol of a program.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Symbol")]
struct Symbol {
    name: String,
    /// The number of its kind in the language server protocol.
    kind: u64,
    location: Location,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Location {
    uri: String,
    #[schemars(with = "api::schema::Range")]
    range: Range,
}

/// A range of a text.
#[derive(Debug, Serialize)]
struct Range {
    start: Position,
    end: Position,
}

#[derive(Debug, Serialize)]
struct Position {
    line: u64,
    character: u64,
}

async fn symbols(_: Request<NoParams, SymbolQuery>) -> Result<JsonReply<Vec<Symbol>>, Error> {
    Ok(JsonReply(Vec::new()))
}
