//! What differs between two states of a repository, and an index to try things with.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Git, GitError};

/// Patches that read the same whatever the user's settings are.
pub const DIFF: [&str; 10] = [
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-relative",
    "--no-color",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--no-indent-heuristic",
];

/// What makes [`DIFF`] list files, for [`changes`].
pub const LIST: [&str; 3] = ["--raw", "--numstat", "-z"];

/// What makes [`DIFF`] give a patch that can be applied elsewhere, also to what is not text.
pub const PATCH: [&str; 4] = ["--patch", "--binary", "--full-index", "--unified=3"];

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// It is another.
    Modified,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Seen from the root of the working tree.
    pub path: String,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// Reads what git answers to [`LIST`]: `:modes ids status\0path\0…` and after that `added\tremoved\tpath\0…`. Sorted by
/// path, as a human would.
pub fn changes(output: &[u8]) -> Vec<Change> {
    let text = String::from_utf8_lossy(output);
    let mut fields = text.split('\0');
    let mut kinds: HashMap<&str, ChangeKind> = HashMap::new();
    let mut list = Vec::new();
    while let Some(field) = fields.next() {
        if field.starts_with(':') {
            let kind = match field.rsplit(' ').next() {
                Some("A") => ChangeKind::Added,
                Some("D") => ChangeKind::Deleted,
                _ => ChangeKind::Modified,
            };
            kinds.extend(fields.next().map(|path| (path, kind)));
        } else if let [added, removed, path] = field.splitn(3, '\t').collect::<Vec<_>>()[..] {
            // What is not text has a dash for a number.
            let number = |text: &str| text.parse().unwrap_or(0);
            let kind = kinds.get(path).copied().unwrap_or(ChangeKind::Modified);
            list.push(Change { path: path.to_owned(), added: number(added), removed: number(removed), kind });
        }
    }
    list.sort_by_cached_key(|change| (change.path.to_lowercase(), change.path.clone()));
    list
}

/// A copy of a working tree's index, in a folder that is gone when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A copy of the index of git's working tree, if it has one: a new repository has none. It is made below `parent`.
    pub async fn copy(git: &Git, parent: &Path) -> Result<Self, GitError> {
        let index = git.text(&["rev-parse", "--path-format=absolute", "--git-path", "index"]).await?;
        let (index, folder) = (PathBuf::from(index), parent.join(format!("index-{:016x}", fastrand::u64(..))));
        let copied = tokio::task::spawn_blocking(move || {
            let scratch = Self(folder);
            std::fs::create_dir_all(&scratch.0)?;
            match copy_with_time(&index, &scratch.index()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(scratch),
            }
        });
        let copied = copied.await.map_err(std::io::Error::other).and_then(|copied| copied);
        copied.map_err(|error| GitError::Start { directory: parent.to_owned(), error })
    }

    /// The index.
    pub fn index(&self) -> PathBuf {
        self.0.join("index")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind is in the way of nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Copies an index. A file that changed right after the index was written may have the time and size that stand there; git
/// tells so by the index's own time, which the copy must keep.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    let written = std::fs::metadata(from)?.modified()?;
    std::fs::copy(from, to)?;
    std::fs::File::options().write(true).open(to)?.set_modified(written)
}
