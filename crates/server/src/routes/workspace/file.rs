//! Files: browsed, read, searched.

use api::{FileContent, FileNode, FindTextMatch, Host as _, HostError, Scope};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tools::Entries;

use super::vcs::vcs;
use crate::State;
use crate::error::{Error, Where};
use crate::operation::request::{Call, Nothing};
use crate::operation::{Cut, Data, Operation, operation};

/// The most lines that a search gives.
const LINES: usize = 100;
/// Paths that a search gives without a limit, and the most that one may ask for.
pub const PATHS: u64 = 10;
pub const MAX_PATHS: u64 = 200;
/// The longest query or pattern, in bytes.
const MAX_QUERY: usize = 4 << 10;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/file", "file.list", "The entries of a directory.", list).not_found(),
        operation(Method::GET, "/file/content", "file.read", "A file.", read),
        operation(Method::GET, "/file/status", "file.status", "The files that differ from the last commit.", status),
        operation(Method::GET, "/find", "find.text", "Lines that match a regular expression.", text),
        operation(Method::GET, "/find/file", "find.files", "Paths that fit a query, the best first.", files),
        operation(Method::GET, "/find/symbol", "find.symbols", "Symbols that fit a query.", symbols)
            .partial("always empty: there are no language servers yet"),
    ]
}

/// A path, seen from the directory.
#[derive(Debug, Deserialize, JsonSchema)]
struct PathQuery {
    path: String,
}

/// What a search refused was in the query.
pub fn in_query(error: HostError) -> Error {
    match error {
        HostError::Invalid(message) => Error::bad_request(Where::Query, message),
        other => other.into(),
    }
}

async fn list(call: Call<Nothing, PathQuery>) -> Result<Cut<FileNode>, Error> {
    let (list, whole) = call.state.engine.list_files(&call.scope, &call.query.path).await.map_err(in_query)?;
    Ok(Cut { list, missing: if whole { Vec::new() } else { vec!["files"] } })
}

async fn read(call: Call<Nothing, PathQuery>) -> Result<Data<FileContent>, Error> {
    match call.state.engine.file(&call.scope, &call.query.path).await {
        Ok(content) => Ok(Data(content)),
        // As OpenCode has it: clients that compare a file with its last commit read those that were deleted, too.
        Err(HostError::NotFound { .. }) => Ok(Data(FileContent::text(String::new()))),
        Err(error) => Err(in_query(error)),
    }
}

async fn status(call: Call) -> Result<Cut<api::FileStatus>, Error> {
    let Some(vcs) = vcs(&call.state, &call.scope) else { return Ok(Cut::default()) };
    let file = |changed: crate::git::vcs::FileStatus| api::FileStatus {
        path: changed.file,
        added: changed.additions,
        removed: changed.deletions,
        status: changed.status,
    };
    let Cut { list, missing } = vcs.status().await?;
    Ok(Cut { list: list.into_iter().map(file).collect(), missing })
}

/// What to look for.
#[derive(Debug, Deserialize, JsonSchema)]
struct Pattern {
    pattern: String,
}

/// Text of a file that need not be UTF-8.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Text {
    text: String,
}

/// A line, as ripgrep tells it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Line {
    path: Text,
    lines: Text,
    line_number: u64,
    absolute_offset: u64,
    submatches: Vec<Submatch>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Submatch {
    #[serde(rename = "match")]
    found: Text,
    start: u64,
    end: u64,
}

impl From<FindTextMatch> for Line {
    fn from(found: FindTextMatch) -> Self {
        let bytes = found.line.as_bytes();
        let submatch = |(start, end): (u64, u64)| {
            let range = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
            let text = String::from_utf8_lossy(bytes.get(range).unwrap_or_default()).into_owned();
            Submatch { found: Text { text }, start, end }
        };
        let submatches = found.matches.into_iter().map(submatch).collect();
        Self {
            submatches,
            path: Text { text: found.path },
            lines: Text { text: found.line },
            line_number: found.line_number,
            absolute_offset: found.offset,
        }
    }
}

async fn text(call: Call<Nothing, Pattern>) -> Result<Data<Vec<Line>>, Error> {
    bounded("pattern", &call.query.pattern)?;
    let found = call.state.engine.find_text(&call.scope, &call.query.pattern, LINES).await.map_err(in_query)?;
    Ok(Data(found.into_iter().map(Line::from).collect()))
}

/// Which paths.
#[derive(Debug, Deserialize, JsonSchema)]
struct FilesQuery {
    query: String,
    /// `false` leaves directories out.
    dirs: Option<Flag>,
    /// Only these.
    #[serde(rename = "type")]
    kind: Option<Kind>,
    /// The most.
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

/// What a path can lead to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

impl From<Kind> for Entries {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File => Self::Files,
            Kind::Directory => Self::Directories,
        }
    }
}

async fn files(call: Call<Nothing, FilesQuery>) -> Result<Data<Vec<String>>, Error> {
    let FilesQuery { query, dirs, kind, limit } = call.query;
    let limit = limit.unwrap_or(PATHS);
    if !(1..=MAX_PATHS).contains(&limit) {
        let message = format!("Expected a number from 1 to {MAX_PATHS}, got {limit}\n  at [\"limit\"]");
        return Err(Error::bad_request(Where::Query, message));
    }
    let entries = match kind {
        Some(kind) => kind.into(),
        None if dirs == Some(Flag::False) => Entries::Files,
        None => Entries::Both,
    };
    Ok(Data(find(&call.state, &call.scope, &query, entries, limit).await?))
}

/// Paths that fit a query, the best first.
pub async fn find(
    state: &State,
    scope: &Scope,
    query: &str,
    entries: Entries,
    limit: u64,
) -> Result<Vec<String>, Error> {
    bounded("query", query)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    state.engine.find_paths(scope, query, entries, limit).await.map_err(in_query)
}

fn bounded(name: &str, text: &str) -> Result<(), Error> {
    if text.len() <= MAX_QUERY {
        return Ok(());
    }
    let message = format!("Expected at most {MAX_QUERY} bytes, got {}\n  at [{name:?}]", text.len());
    Err(Error::bad_request(Where::Query, message))
}

/// What to look for.
#[derive(Debug, Deserialize, JsonSchema)]
struct SymbolQuery {
    /// A part of the symbol's name.
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

/// A piece of a text.
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

async fn symbols(_: Call<Nothing, SymbolQuery>) -> Result<Data<Vec<Symbol>>, Error> {
    Ok(Data(Vec::new()))
}
