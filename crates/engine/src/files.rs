//! Files as clients browse them: inside the directory of the scope, never outside its worktree.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{ContentKind, FileContent, FileNode, FindTextMatch, HostError};
use base64::Engine as _;
use tokio_util::sync::CancellationToken;

use crate::instance::Instance;

/// The largest file that is shown.
const FILE_MAX: u64 = 10 << 20;
/// The most entries of one directory.
const ENTRIES_MAX: usize = 10_000;

/// The entries of a directory: directories first, then by name.
pub(crate) fn list(instance: &Instance, path: &str) -> Result<Vec<FileNode>, HostError> {
    let directory = inside(instance, path)?;
    let entries = fs::read_dir(&directory).map_err(|error| unreadable(path, &error))?;
    let ignored = tools::Ignored::new(instance.worktree(), &directory);
    let mut nodes: Vec<FileNode> = entries
        .take(ENTRIES_MAX)
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name() != ".git")
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_directory = entry.path().is_dir();
            FileNode {
                path: Path::new(path).join(&name).to_string_lossy().trim_start_matches("./").to_owned(),
                absolute: entry.path().to_string_lossy().into_owned(),
                kind: if is_directory { "directory" } else { "file" }.to_owned(),
                ignored: ignored.matches(&entry.path(), is_directory),
                name,
            }
        })
        .collect();
    nodes.sort_by(|a, b| (a.kind != "directory", &a.name).cmp(&(b.kind != "directory", &b.name)));
    Ok(nodes)
}

/// A file: text as it is, anything else as base64.
pub(crate) fn content(instance: &Instance, path: &str) -> Result<FileContent, HostError> {
    let file = inside(instance, path)?;
    let mut bytes = Vec::new();
    let opened = fs::File::open(&file).map_err(|error| unreadable(path, &error))?;
    opened.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(HostError::Invalid(format!("{path} is larger than {FILE_MAX} bytes")));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            FileContent { kind: ContentKind::Text, content: text, diff: None, encoding: None, mime_type: None }
        }
        Ok(text) => binary(text.as_bytes()),
        Err(error) => binary(error.as_bytes()),
    })
}

fn binary(bytes: &[u8]) -> FileContent {
    FileContent {
        kind: ContentKind::Binary,
        content: base64::engine::general_purpose::STANDARD.encode(bytes),
        diff: None,
        encoding: Some("base64".to_owned()),
        mime_type: Some(tools::sniff(bytes).unwrap_or("application/octet-stream").to_owned()),
    }
}

/// Files whose name fits, best first.
pub(crate) async fn find(instance: Arc<Instance>, query: String, limit: usize) -> Result<Vec<String>, HostError> {
    blocking(move |cancel| tools::find_files(&instance.directory, &query, limit, cancel)).await
}

/// Lines that match.
pub(crate) async fn grep(
    instance: Arc<Instance>,
    pattern: String,
    limit: usize,
) -> Result<Vec<FindTextMatch>, HostError> {
    let found = blocking(move |cancel| tools::find_text(&instance.directory, &pattern, limit, cancel)).await?;
    found.map_err(|error| HostError::Invalid(error.to_string()))
}

/// Runs a search off the runtime; it stops when nobody waits for it any more.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce(CancellationToken) -> T + Send + 'static,
) -> Result<T, HostError> {
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    let work = tokio::task::spawn_blocking(move || work(cancel));
    work.await.map_err(|error| HostError::Failed(format!("The search broke down: {error}")))
}

/// A path with its symbolic links resolved, if it lies inside the workspace.
fn inside(instance: &Instance, path: &str) -> Result<PathBuf, HostError> {
    let wanted = instance.directory.join(path);
    let real = wanted.canonicalize().map_err(|error| unreadable(path, &error))?;
    let roots = [instance.worktree(), &instance.directory];
    let within = |root: &Path| root != Path::new("/") && root.canonicalize().is_ok_and(|root| real.starts_with(root));
    if roots.into_iter().any(within) {
        Ok(real)
    } else {
        Err(HostError::Invalid(format!("{path} lies outside the workspace")))
    }
}

fn unreadable(path: &str, error: &std::io::Error) -> HostError {
    if error.kind() == std::io::ErrorKind::NotFound {
        HostError::not_found("file", path)
    } else {
        HostError::Invalid(format!("{path} cannot be read: {error}"))
    }
}
