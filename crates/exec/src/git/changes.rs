//! Differences between two states of a repository, and a scratch index.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Git, GitError};

/// Options for patches that are independent of the user's settings. A repository inside the working tree counts only by
/// its commit: otherwise git would start a git in it, with that repository's settings.
pub const DIFF: [&str; 11] = [
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-relative",
    "--no-color",
    "--submodule=short",
    "--ignore-submodules=dirty",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--no-indent-heuristic",
];

/// The maximum number of files in a list of changes, and the maximum size of git's output about them before it looks at
/// their contents: ten thousand files take two megabytes.
pub const MAX_FILES: usize = 10_000;
/// See [`MAX_FILES`].
pub const MAX_NAMES: u64 = 4 << 20;
/// The maximum size of all patches in an answer, in bytes.
pub const MAX_PATCH: u64 = 16 << 20;

/// Options that make [`DIFF`] list files, for [`changes`].
pub const LIST: [&str; 3] = ["--raw", "--numstat", "-z"];

/// Likewise without looking into files, for [`changes`] too.
pub const NAMES: [&str; 3] = ["--raw", "--no-abbrev", "-z"];

/// Options that make [`DIFF`] produce a patch that can be applied elsewhere, even to binary files.
pub const PATCH: [&str; 4] = ["--patch", "--binary", "--full-index", "--unified=3"];

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was added.
    Added,
    /// It was deleted.
    Deleted,
    /// It was modified.
    Modified,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the root of the working tree.
    pub path: String,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// Parses git's output for [`LIST`]: `:modes ids status\0path\0…` and after that `added\tremoved\tpath\0…`, which may
/// be missing. Sorted by path, ignoring case.
pub fn changes(output: &[u8]) -> Vec<Change> {
    let text = String::from_utf8_lossy(output);
    let mut fields = text.split('\0');
    let mut found: HashMap<&str, Change> = HashMap::new();
    let change = |path: &str, kind| Change { path: path.to_owned(), added: 0, removed: 0, kind };
    while let Some(field) = fields.next() {
        if field.starts_with(':') {
            let kind = match field.rsplit(' ').next() {
                Some("A") => ChangeKind::Added,
                Some("D") => ChangeKind::Deleted,
                _ => ChangeKind::Modified,
            };
            found.extend(fields.next().map(|path| (path, change(path, kind))));
        } else if let [added, removed, path] = field.splitn(3, '\t').collect::<Vec<_>>()[..] {
            // Binary files have a dash instead of a number.
            let number = |text: &str| text.parse().unwrap_or(0);
            let change = found.entry(path).or_insert_with(|| change(path, ChangeKind::Modified));
            (change.added, change.removed) = (number(added), number(removed));
        }
    }
    let mut list: Vec<Change> = found.into_values().collect();
    sort(&mut list);
    list
}

/// Sorts by path, ignoring case.
pub fn sort(list: &mut [Change]) {
    list.sort_by_cached_key(|change| (change.path.to_lowercase(), change.path.clone()));
}

/// The fields of git's `-z` output. The last one may be cut off, and is omitted.
pub fn records(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = output.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
    output[..whole].split(|byte| *byte == 0).filter(|field| !field.is_empty())
}

/// A patch without its last file if that is cut off.
pub fn whole_files(patch: &[u8], whole: bool) -> &[u8] {
    const HEAD: &[u8] = b"\ndiff --git ";
    let end = || patch.windows(HEAD.len()).rposition(|bytes| bytes == HEAD).map_or(0, |last| last + 1);
    if whole { patch } else { &patch[..end()] }
}

/// A temporary folder for an index and for throw-away objects. Deleted on drop.
#[derive(Debug)]
pub struct ScratchIndex(PathBuf);

impl ScratchIndex {
    /// Creates an empty one below `parent`.
    pub async fn new(parent: &Path) -> Result<Self, GitError> {
        Self::make(parent, |_| Ok(())).await
    }

    /// Creates one with a copy of the index, if there is one: a new repository has none.
    pub async fn copy(git: &Git, parent: &Path) -> Result<Self, GitError> {
        let index = PathBuf::from(git.text(&["rev-parse", "--path-format=absolute", "--git-path", "index"]).await?);
        Self::make(parent, move |scratch| match copy_with_time(&index, &scratch.index()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }

    async fn make(
        parent: &Path,
        fill: impl FnOnce(&Self) -> std::io::Result<()> + Send + 'static,
    ) -> Result<Self, GitError> {
        let folder = parent.join(format!("index-{:016x}", fastrand::u64(..)));
        let made = tokio::task::spawn_blocking(move || {
            let scratch = Self(folder);
            std::fs::create_dir_all(scratch.objects())?;
            fill(&scratch).map(|()| scratch)
        });
        let made = made.await.map_err(std::io::Error::other).and_then(|made| made);
        made.map_err(|error| GitError::Start { directory: parent.to_owned(), error })
    }

    /// The index.
    pub fn index(&self) -> PathBuf {
        self.0.join("index")
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn objects(&self) -> PathBuf {
        self.0.join("objects")
    }

    /// Git with its new objects in the folder; it finds those of the repository, too.
    pub async fn redirect_objects(&self, git: &Git) -> Result<Git, GitError> {
        let known = git.text(&["rev-parse", "--path-format=absolute", "--git-path", "objects"]).await?;
        // It is a list, in which a colon would start the next entry.
        let known = format!("\"{}\"", known.replace('\\', "\\\\").replace('"', "\\\""));
        Ok(git.with("GIT_OBJECT_DIRECTORY", self.objects()).with("GIT_ALTERNATE_OBJECT_DIRECTORIES", known))
    }
}

impl Drop for ScratchIndex {
    fn drop(&mut self) {
        // A leftover folder bothers nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Copies an index with its modification time. A file that changed right after the index was written may have the time
/// and size recorded there; git detects that by the index's own time, which the copy must keep.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    let written = std::fs::metadata(from)?.modified()?;
    std::fs::copy(from, to)?;
    std::fs::File::options().write(true).open(to)?.set_modified(written)
}
