//! Files as clients browse them: relative to the scope's directory, never outside its worktree.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{ContentKind, Environment as _, EnvironmentError, FileContent, FileNode, FindTextMatch, HostError};
use base64::Engine as _;
use tokio_util::sync::CancellationToken;
use tools::{Entries, LocalEnvironment, TopN};

use crate::project::instance::Instance;
use crate::run_blocking;

/// The size of the largest file that is shown.
const FILE_MAX: u64 = 10 << 20;
/// How long a file system may delay a request. Searches end earlier by themselves.
const TIMEOUT: Duration = Duration::from_secs(75);
/// The maximum number of entries listed per directory, in listing order.
const ENTRIES_MAX: usize = 10_000;

/// The entries of a directory (directories first, then by name), and whether the list is complete.
pub(crate) async fn list(instance: Arc<Instance>, path: String) -> Result<(Vec<FileNode>, bool), HostError> {
    run_cancellable(move |_| entries(&instance, &path)).await?
}

fn entries(instance: &Instance, path: &str) -> Result<(Vec<FileNode>, bool), HostError> {
    // A client that offers a choice of projects lists `/` too: its entries, and nothing below.
    let itself = Path::new(path).components().all(|part| part == Component::CurDir);
    let directory = if itself { canonical(&instance.directory) } else { resolve_inside(instance, path)? };
    let mut first = TopN::new(ENTRIES_MAX);
    for entry in fs::read_dir(&directory).map_err(|error| read_error(path, &error))?.filter_map(Result::ok) {
        // Only symbolic links need a `stat`; the directory tells the kind of everything else.
        let kind = entry.file_type();
        let is_directory = kind.is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir());
        let name = entry.file_name().to_string_lossy().into_owned();
        first.add((!is_directory, name.to_lowercase(), name));
    }
    let whole = first.seen() <= ENTRIES_MAX;
    let ignored = tools::IgnoreRules::new(instance.worktree(), &directory);
    let base = directory.strip_prefix(canonical(&instance.directory)).unwrap_or(&directory);
    let node = |(is_file, _, name): (bool, String, String)| {
        let (slash, kind) = if is_file { ("", "file") } else { ("/", "directory") };
        let absolute = directory.join(&name);
        FileNode {
            path: format!("{}{slash}", base.join(&name).display()),
            ignored: ignored.matches(&absolute, !is_file),
            absolute: absolute.to_string_lossy().into_owned(),
            kind: kind.to_owned(),
            name,
        }
    };
    Ok((first.into_sorted().into_iter().map(node).collect(), whole))
}

/// The content of a file: text as it is, anything else as base64.
pub(crate) async fn content(instance: Arc<Instance>, path: String) -> Result<FileContent, HostError> {
    let wanted = path.clone();
    let (file, size) = run_cancellable(move |_| {
        let file = resolve_inside(&instance, &wanted)?;
        let size = fs::metadata(&file).map_err(|error| read_error(&wanted, &error))?.len();
        Ok::<_, HostError>((file, size))
    })
    .await??;
    let too_large = |size: u64| {
        HostError::Invalid(format!(
            "{path} has {size} bytes; files of up to {} MB are shown. The read tool shows a part of it",
            FILE_MAX >> 20
        ))
    };
    if size > FILE_MAX {
        return Err(too_large(size));
    }
    let bytes = LocalEnvironment.read(&file).await.map_err(|error| match error {
        EnvironmentError::Io { source, .. } => read_error(&path, &source),
        other => HostError::Invalid(other.to_string()),
    })?;
    // It may have grown since the size check.
    if bytes.len() as u64 > FILE_MAX {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => FileContent::text(text),
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

/// Files and directories whose path matches, best match first.
pub(crate) async fn find(
    instance: Arc<Instance>,
    query: String,
    entries: Entries,
    limit: usize,
) -> Result<Vec<String>, HostError> {
    run_cancellable(move |cancel| tools::find_paths(&instance.directory, &query, entries, limit, cancel)).await
}

/// Matching lines.
pub(crate) async fn grep(
    instance: Arc<Instance>,
    pattern: String,
    limit: usize,
) -> Result<Vec<FindTextMatch>, HostError> {
    let found = run_cancellable(move |cancel| tools::find_text(&instance.directory, &pattern, limit, cancel)).await?;
    found.map_err(|error| HostError::Invalid(error.to_string()))
}

/// Runs work on a blocking thread. It is cancelled when the caller stops waiting.
async fn run_cancellable<T: Send + 'static>(
    work: impl FnOnce(CancellationToken) -> T + Send + 'static,
) -> Result<T, HostError> {
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    let work = run_blocking(move || work(cancel));
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done.map_err(|error| HostError::Failed(format!("The search failed: {error}"))),
        Err(_) => {
            Err(HostError::Invalid(format!("The file system did not respond within {} seconds", TIMEOUT.as_secs())))
        }
    }
}

/// Resolves the symbolic links of a path, if it lies inside the workspace.
fn resolve_inside(instance: &Instance, path: &str) -> Result<PathBuf, HostError> {
    let wanted = instance.directory.join(path);
    let found = wanted.canonicalize().map_err(|error| read_error(path, &error));
    // For a missing path the nearest existing ancestor decides, so that errors reveal nothing about paths outside.
    let nearest = || wanted.ancestors().find_map(|folder| folder.canonicalize().ok());
    let Some(there) = found.as_ref().ok().cloned().or_else(|| nearest().filter(|_| instance.directory.exists())) else {
        return found;
    };
    // With `/` as a root, every path would be inside.
    let within = |root: &Path| root != Path::new("/") && there.starts_with(canonical(root));
    if [instance.worktree(), &instance.directory].into_iter().any(within) {
        found
    } else {
        Err(HostError::Invalid(format!("{path} lies outside the workspace")))
    }
}

/// A root with symbolic links resolved, or as it is if it no longer exists.
fn canonical(root: &Path) -> PathBuf {
    root.canonicalize().unwrap_or_else(|_| root.to_owned())
}

fn read_error(path: &str, error: &std::io::Error) -> HostError {
    if error.kind() == std::io::ErrorKind::NotFound {
        HostError::not_found("file", path)
    } else {
        HostError::Invalid(format!("{path} cannot be read: {error}"))
    }
}
