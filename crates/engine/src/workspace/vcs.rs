//! Git for a directory: its branches, its changes, and patches of them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{Branches, DiffBase, FileDiffStatus, FilePatch, FileStatus, HostError, PartialList, Scope};
use exec::Exec;
use exec::git::{
    self, ChangeKind, DIFF, Git, GitError, LIST, MAX_FILES, MAX_NAMES, MAX_PATCH, NAMES, PATCH, ScratchIndex, records,
};

use super::{git_error, no_repository};
use crate::Engine;
use crate::project::instance::Instance;

/// How long git may count changed lines. A list without counts is better than none.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// The least that a patch says about a file, in bytes: its name twice, and its objects.
const MIN_PATCH_BYTES: u64 = 110;
/// The largest file that is diffed, in bytes: git reads all of it even for the shortest patch.
const MAX_DIFFED_BYTES: u64 = 16 << 20;
/// The same for a file's old content: above the limit git treats it as binary.
const BIG_FILE_ARGS: [&str; 2] = ["-c", "core.bigFileThreshold=16m"];
/// The mode for a file that git has none for. Git sees the real one when it reads the file.
const REGULAR_FILE_MODE: &str = "100644";

/// So many lines of context that a patch shows the whole file.
const WHOLE_FILE_CONTEXT: u32 = 1_000_000;

/// Names the empty tree, for a repository without a commit. Git knows it without storing it.
const EMPTY_TREE_COMMAND: [&str; 4] = ["hash-object", "-t", "tree", "--stdin"];

/// The part of a working tree below a directory.
pub(crate) struct Vcs {
    git: Git,
    root: Git,
    worktree: PathBuf,
    scratch: PathBuf,
    /// The most files to list.
    max_files: usize,
    /// The most bytes of all patches together.
    max_patch_bytes: u64,
}

impl Engine {
    /// Git for the part of a working tree below a directory; `None` outside a repository.
    fn vcs(&self, scope: &Scope) -> Option<Vcs> {
        let instance = self.inner.instance(scope.directory.as_ref());
        let scratch = &self.inner.settings.inputs.dirs.cache;
        let is_repository = instance.loaded.project.vcs.is_some();
        is_repository.then(|| Vcs::new(&instance.exec, scope.directory.as_ref(), instance.worktree(), scratch))
    }

    /// The current and the default branch of a directory's repository.
    pub async fn vcs_branches(&self, scope: &Scope) -> Result<Branches, HostError> {
        let Some(vcs) = self.vcs(scope) else { return Ok(Branches::default()) };
        vcs.branches().await.map_err(git_error)
    }

    /// The files below a directory that differ from the last commit, with untracked ones.
    pub async fn vcs_status(&self, scope: &Scope) -> Result<PartialList<FileStatus>, HostError> {
        let Some(vcs) = self.vcs(scope) else { return Ok(PartialList::default()) };
        vcs.status().await.map_err(git_error)
    }

    /// The same with patches, compared with `base`. Without `context` a patch shows the whole file.
    pub async fn vcs_diff(
        &self,
        scope: &Scope,
        base: DiffBase,
        context: Option<u32>,
    ) -> Result<PartialList<FilePatch>, HostError> {
        let Some(vcs) = self.vcs(scope) else { return Ok(PartialList::default()) };
        vcs.diff(base, context).await.map_err(git_error)
    }

    /// One patch with all changes below a directory since the last commit. It can be applied elsewhere.
    pub async fn vcs_patch(&self, scope: &Scope) -> Result<Vec<u8>, HostError> {
        let Some(vcs) = self.vcs(scope) else { return Ok(Vec::new()) };
        vcs.raw_patch().await.map_err(git_error)
    }

    /// Applies a patch, whose paths start at the root of the working tree: all of it or nothing. A patch that does not
    /// apply is a [`HostError::Conflict`].
    pub async fn vcs_apply(&self, scope: &Scope, patch: &[u8]) -> Result<(), HostError> {
        let vcs = self.vcs(scope).ok_or_else(|| no_repository(scope))?;
        vcs.apply(patch).await.map_err(git_error)
    }

    /// Creates a repository in a directory. It is used after the next [`reload`](Self::reload).
    pub async fn vcs_init(&self, scope: &Scope) -> Result<(), HostError> {
        let git = self.exec_at(scope).git(&scope.directory).writing();
        git.run(&["init", "--quiet"]).await.map(drop).map_err(git_error)
    }
}

impl Vcs {
    /// Git for the whole working tree of a directory.
    pub(super) fn whole_tree(engine: &Engine, instance: &Instance) -> Self {
        let root = instance.worktree();
        Self::new(&instance.exec, root, root, &engine.inner.settings.inputs.dirs.cache)
    }

    /// Git for a directory of a working tree. It may write temporary files below `scratch`.
    pub(crate) fn new(exec: &Exec, directory: &Path, worktree: &Path, scratch: &Path) -> Self {
        let (git, root) = (exec.git(directory), exec.git(worktree));
        let (worktree, scratch) = (worktree.to_owned(), scratch.to_owned());
        Self { git, root, worktree, scratch, max_files: MAX_FILES, max_patch_bytes: MAX_PATCH }
    }

    /// The branches.
    pub(crate) async fn branches(&self) -> Result<Branches, GitError> {
        let branch = self.git.try_text(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        Ok(Branches { branch, default_branch: self.default_branch().await? })
    }

    /// The branch that others start from: the one the remote names, else the usual names.
    pub(crate) async fn default_branch(&self) -> Result<Option<String>, GitError> {
        let remote = self.git.try_text(&["symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD"]).await?;
        if let Some(name) = remote.as_deref().and_then(|name| name.strip_prefix("origin/")) {
            return Ok(Some(name.to_owned()));
        }
        let configured = self.git.try_text(&["config", "--get", "init.defaultBranch"]).await?;
        for name in configured.iter().map(String::as_str).chain(["main", "master"]) {
            if self.commit(&format!("refs/heads/{name}")).await?.is_some() {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    /// The commit that a name refers to.
    pub(crate) async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        self.git.commit(name).await
    }

    /// The files that differ from the last commit, with untracked ones.
    pub(crate) async fn status(&self) -> Result<PartialList<FileStatus>, GitError> {
        let base = self.base_commit(DiffBase::Commit).await?;
        let changes = self.bounded_changes(&base).await?;
        let counts = match self.comparison(&changes).await {
            Ok(Some(comparison)) => comparison.count_lines().await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let mut missing = changes.missing();
        let list = changes.with_counts(counts, &mut missing);
        Ok(PartialList { list: list.into_iter().map(file_status).collect(), missing })
    }

    /// The same with patches. Without `context` a patch shows the whole file.
    pub(crate) async fn diff(&self, base: DiffBase, context: Option<u32>) -> Result<PartialList<FilePatch>, GitError> {
        if base == DiffBase::Branch {
            let Branches { branch, default_branch } = self.branches().await?;
            // The default branch does not differ from itself, committed or not.
            if branch.is_some() && branch == default_branch {
                return Ok(PartialList::default());
            }
        }
        let changes = self.bounded_changes(&self.base_commit(base).await?).await?;
        let (counts, patch_output) = match self.comparison(&changes).await? {
            Some(comparison) => {
                let context = format!("--unified={}", context.unwrap_or(WHOLE_FILE_CONTEXT).min(WHOLE_FILE_CONTEXT));
                let patch = comparison.diff(&["--patch", &context]);
                tokio::join!(comparison.count_lines(), comparison.git.head(&patch, self.max_patch_bytes))
            }
            None => (Ok(Vec::new()), Ok((Vec::new(), true))),
        };
        let mut missing = changes.missing();
        let list = changes.with_counts(counts, &mut missing);
        let (patch, is_whole) = match patch_output {
            Err(GitError::Slow(_)) => (Vec::new(), false),
            patch_output => patch_output?,
        };
        let mut patches = split_patch(&String::from_utf8_lossy(git::whole_files(&patch, is_whole)));
        if !is_whole || !changes.too_large.is_empty() {
            missing.push("patches");
        }
        let diff = |change: git::Change| FilePatch { patch: patches.remove(&change.path), file: file_status(change) };
        Ok(PartialList { list: list.into_iter().map(diff).collect(), missing })
    }

    /// One patch with all changes since the last commit. It can be applied elsewhere, binary files included.
    pub(crate) async fn raw_patch(&self) -> Result<Vec<u8>, GitError> {
        let base = self.base_commit(DiffBase::Commit).await?;
        let changes = self.changed_files(&base, None).await?;
        if (changes.files.len() as u64).saturating_mul(MIN_PATCH_BYTES) > MAX_PATCH {
            // Git would take long to find that out.
            return Err(GitError::Long);
        }
        match self.comparison(&changes).await? {
            Some(comparison) => comparison.git.run(&comparison.diff(&PATCH)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Applies a patch, whose paths start at the root of the working tree: all of it or nothing.
    pub(crate) async fn apply(&self, patch: &[u8]) -> Result<(), GitError> {
        self.root.writing().run_with(&["apply", "--whitespace=nowarn", "-"], patch).await.map(drop)
    }

    async fn base_commit(&self, base: DiffBase) -> Result<String, GitError> {
        let Some(head) = self.commit("HEAD").await? else { return self.git.text(&EMPTY_TREE_COMMAND).await };
        if base == DiffBase::Commit {
            return Ok(head);
        }
        let Some(default) = self.default_branch().await? else { return Ok(head) };
        for name in [format!("refs/remotes/origin/{default}"), format!("refs/heads/{default}")] {
            if let Some(base) = self.git.try_text(&["merge-base", &name, "HEAD"]).await? {
                return Ok(base);
            }
        }
        Ok(head)
    }

    /// The files below the directory that differ from a base, by name only: git reads no file that it knows to be
    /// unchanged or untracked. At most `limit` of them, the first.
    async fn changed_files(&self, base: &str, limit: Option<usize>) -> Result<ChangeSet, GitError> {
        let tracked = [&DIFF[..], &NAMES, &[base, "--", "."]].concat();
        let untracked = ["ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", "."];
        let (tracked, untracked) = match limit {
            Some(_) => tokio::try_join!(self.git.head(&tracked, MAX_NAMES), self.git.head(&untracked, MAX_NAMES))?,
            None => {
                let (tracked, untracked) = tokio::try_join!(self.git.run(&tracked), self.git.run(&untracked))?;
                ((tracked, true), (untracked, true))
            }
        };
        let is_complete = tracked.1 && untracked.1;
        let mut changes =
            ChangeSet { base: base.to_owned(), files: BTreeMap::new(), too_large: Vec::new(), is_complete };
        let mut fields = records(&tracked.0);
        while let (Some(head), Some(path)) = (fields.next(), fields.next()) {
            changes.files.extend(ChangedFile::parse(head).map(|file| (path.to_vec(), file)));
        }
        // A path that ends in a slash is a nested repository.
        for path in records(&untracked.0).filter(|path| !path.ends_with(b"/")) {
            // A file that was removed from the index is in both lists.
            let file = changes.files.entry(path.to_vec()).or_default();
            file.mode.get_or_insert_with(|| REGULAR_FILE_MODE.to_owned());
        }
        let limit = limit.unwrap_or(usize::MAX);
        changes.is_complete &= changes.files.len() <= limit;
        changes.files = changes.files.into_iter().take(limit).collect();
        Ok(changes)
    }

    /// The first files that differ, with those set apart that are too large to diff.
    async fn bounded_changes(&self, base: &str) -> Result<ChangeSet, GitError> {
        let mut changes = self.changed_files(base, Some(self.max_files)).await?;
        let worktree = self.worktree.clone();
        let split = tokio::task::spawn_blocking(move || {
            let is_too_large = |path: &[u8]| {
                let metadata = std::fs::symlink_metadata(worktree.join(OsStr::from_bytes(path)));
                metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() > MAX_DIFFED_BYTES)
            };
            let too_large = changes.files.extract_if(.., |path, _| is_too_large(path));
            changes.too_large = too_large.map(|(path, file)| file.change(&path)).collect();
            changes
        });
        let failed = |error| GitError::Start { directory: self.worktree.clone(), error: std::io::Error::other(error) };
        split.await.map_err(failed)
    }

    /// Limits git to the changed files: a tree with only these files of the base, and an index with only those that exist
    /// now. So git looks at nothing else, however large the repository is. A list of paths would not do: git compares
    /// each of them with each file. `None` if nothing changed.
    async fn comparison(&self, changes: &ChangeSet) -> Result<Option<Comparison>, GitError> {
        if changes.files.is_empty() {
            return Ok(None);
        }
        let scratch = ScratchIndex::new(&self.scratch).await?;
        let git = scratch.redirect_objects(&self.root).await?;
        let add_entries = ["update-index", "-z", "--index-info"];
        let base = git.with_index(scratch.file("before"));
        base.run_with(&add_entries, &changes.base_entries()).await?;
        let tree = base.text(&["write-tree", "--missing-ok"]).await?;
        let git = git.with_index(scratch.index());
        git.run_with(&add_entries, &changes.current_entries()).await?;
        Ok(Some(Comparison { git, tree, _scratch: scratch }))
    }
}

/// A file that differs from the base.
#[derive(Debug, Default)]
struct ChangedFile {
    /// Its mode and object in the base.
    before: Option<(String, String)>,
    /// Its mode now; `None` if it is gone.
    mode: Option<String>,
}

impl ChangedFile {
    /// Parses `:mode mode object object letter`.
    fn parse(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?.strip_prefix(':')?;
        let [old_mode, mode, object, _, _] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
        let existing = |mode: &str| mode.bytes().any(|digit| digit != b'0').then(|| mode.to_owned());
        Some(Self { before: existing(old_mode).map(|mode| (mode, object.to_owned())), mode: existing(mode) })
    }

    /// The change without line counts.
    fn change(&self, path: &[u8]) -> git::Change {
        let kind = match (&self.before, &self.mode) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            _ => ChangeKind::Modified,
        };
        git::Change { path: String::from_utf8_lossy(path).into_owned(), added: 0, removed: 0, kind }
    }
}

/// The files that differ from a base.
#[derive(Debug)]
struct ChangeSet {
    /// A commit or tree.
    base: String,
    files: BTreeMap<Vec<u8>, ChangedFile>,
    /// Files too large to diff.
    too_large: Vec<git::Change>,
    /// Whether no changed file was left out.
    is_complete: bool,
}

impl ChangeSet {
    fn missing(&self) -> Vec<&'static str> {
        if self.is_complete { Vec::new() } else { vec!["files"] }
    }

    /// Index entries for the files as they were.
    fn base_entries(&self) -> Vec<u8> {
        let line = |(path, file): (&Vec<u8>, &ChangedFile)| {
            let (mode, object) = file.before.as_ref()?;
            Some([format!("{mode} {object}\t").as_bytes(), path, b"\0"].concat())
        };
        self.files.iter().filter_map(line).flatten().collect()
    }

    /// Index entries for the files that exist now. Git reads them anyway, as an entry without times is never up to date,
    /// so any object id will do for new files.
    fn current_entries(&self) -> Vec<u8> {
        let placeholder = "1".repeat(self.base.len());
        let line = |(path, file): (&Vec<u8>, &ChangedFile)| {
            let mode = file.mode.as_ref()?;
            let object = file.before.as_ref().map_or(&placeholder, |(_, object)| object);
            Some([format!("{mode} {object}\t").as_bytes(), path, b"\0"].concat())
        };
        self.files.iter().filter_map(line).flatten().collect()
    }

    /// The files with the line counts of git; without them if counting failed.
    fn with_counts(
        &self,
        counts: Result<Vec<git::Change>, GitError>,
        missing: &mut Vec<&'static str>,
    ) -> Vec<git::Change> {
        if counts.is_err() || !self.too_large.is_empty() {
            missing.push("lines");
        }
        let mut list = counts.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot count changed lines");
            self.files.iter().map(|(path, file)| file.change(path)).collect()
        });
        list.extend(self.too_large.iter().cloned());
        git::sort(&mut list);
        list
    }
}

/// Git limited to the changed files, and the tree to compare with.
struct Comparison {
    git: Git,
    tree: String,
    _scratch: ScratchIndex,
}

impl Comparison {
    fn diff<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        [&BIG_FILE_ARGS[..], &DIFF, options, &[self.tree.as_str(), "--"]].concat()
    }

    async fn count_lines(&self) -> Result<Vec<git::Change>, GitError> {
        Ok(git::changes(&self.git.within(COUNT_TIMEOUT).run(&self.diff(&LIST)).await?))
    }
}

/// A change as clients see it.
pub(crate) fn file_status(change: git::Change) -> FileStatus {
    let status = match change.kind {
        ChangeKind::Added => FileDiffStatus::Added,
        ChangeKind::Deleted => FileDiffStatus::Deleted,
        ChangeKind::Modified => FileDiffStatus::Modified,
    };
    FileStatus { path: change.path, added: change.added, removed: change.removed, status }
}

/// Splits a patch by file. Files whose names git has to quote are left out.
fn split_patch(patch: &str) -> HashMap<String, String> {
    let mut patches: HashMap<String, String> = HashMap::new();
    let mut file = None;
    for line in patch.split_inclusive('\n') {
        if let Some(names) = line.strip_prefix("diff --git ") {
            file = name_in_header(names.trim_end_matches('\n'));
        }
        if let Some(file) = &file {
            patches.entry(String::clone(file)).or_default().push_str(line);
        }
    }
    patches
}

/// `a/x b/x` is `x`, even if it contains spaces.
fn name_in_header(names: &str) -> Option<String> {
    let length = names.len().checked_sub("a/ b/".len())? / 2;
    let name = names.strip_prefix("a/")?.get(..length)?;
    (names.strip_prefix(&format!("a/{name} b/"))? == name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests;
