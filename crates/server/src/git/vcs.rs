//! Git for a directory: its branches, its changes, and patches of them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::FileDiffStatus;
use exec::Exec;
use exec::git::{
    self, ChangeKind, DIFF, Git, GitError, LIST, MAX_FILES, MAX_NAMES, MAX_PATCH, NAMES, PATCH, ScratchIndex, records,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::operation::TruncatedList;

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

/// The branches of a repository. `null` tells clients that there is none.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "VcsInfo")]
pub struct Branches {
    branch: Option<String>,
    default_branch: Option<String>,
}

/// A changed file.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "VcsFileStatus")]
pub struct FileStatus {
    /// Relative to the root of the working tree.
    pub file: String,
    /// Lines added.
    #[schemars(with = "f64")]
    pub additions: u64,
    /// Lines removed.
    #[schemars(with = "f64")]
    pub deletions: u64,
    /// The kind of change.
    pub status: FileDiffStatus,
}

/// A changed file with its patch.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "VcsFileDiff")]
pub struct FileDiff {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[schemars(with = "f64")]
    additions: u64,
    #[schemars(with = "f64")]
    deletions: u64,
    #[schemars(with = "Option<FileDiffStatus>")]
    status: FileDiffStatus,
}

impl From<git::Change> for FileStatus {
    fn from(change: git::Change) -> Self {
        Self {
            file: change.path,
            additions: change.added,
            deletions: change.removed,
            status: match change.kind {
                ChangeKind::Added => FileDiffStatus::Added,
                ChangeKind::Deleted => FileDiffStatus::Deleted,
                ChangeKind::Modified => FileDiffStatus::Modified,
            },
        }
    }
}

/// What changes are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffBase {
    /// The last commit.
    Commit,
    /// The commit where this branch left the default one.
    Branch,
}

/// The part of a working tree below a directory.
pub struct Vcs {
    git: Git,
    root: Git,
    worktree: PathBuf,
    scratch: PathBuf,
    /// The most files to list.
    max_files: usize,
    /// The most bytes of all patches together.
    max_patch_bytes: u64,
}

impl Vcs {
    /// Git for a directory of a working tree. It may write temporary files below `scratch`.
    pub fn new(exec: &Exec, directory: &Path, worktree: &Path, scratch: &Path) -> Self {
        let (git, root) = (exec.git(directory), exec.git(worktree));
        let (worktree, scratch) = (worktree.to_owned(), scratch.to_owned());
        Self { git, root, worktree, scratch, max_files: MAX_FILES, max_patch_bytes: MAX_PATCH }
    }

    /// The branches.
    pub async fn branches(&self) -> Result<Branches, GitError> {
        let branch = self.git.try_text(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        Ok(Branches { branch, default_branch: self.default_branch().await? })
    }

    /// The branch that others start from: the one the remote names, else the usual names.
    pub async fn default_branch(&self) -> Result<Option<String>, GitError> {
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
    pub async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        self.git.commit(name).await
    }

    /// The files that differ from the last commit, with untracked ones.
    pub async fn status(&self) -> Result<TruncatedList<FileStatus>, GitError> {
        let base = self.base_commit(DiffBase::Commit).await?;
        let changes = self.bounded_changes(&base).await?;
        let counts = match self.comparison(&changes).await {
            Ok(Some(comparison)) => comparison.count_lines().await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let mut missing = changes.missing();
        let list = changes.with_counts(counts, &mut missing);
        Ok(TruncatedList { list: list.into_iter().map(FileStatus::from).collect(), missing })
    }

    /// The same with patches. Without `context` a patch shows the whole file.
    pub async fn diff(&self, base: DiffBase, context: Option<u32>) -> Result<TruncatedList<FileDiff>, GitError> {
        if base == DiffBase::Branch {
            let Branches { branch, default_branch } = self.branches().await?;
            // The default branch does not differ from itself, committed or not.
            if branch.is_some() && branch == default_branch {
                return Ok(TruncatedList::default());
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
        let diff = |change: git::Change| {
            let FileStatus { file, additions, deletions, status } = change.into();
            FileDiff { patch: patches.remove(&file), file, additions, deletions, status }
        };
        Ok(TruncatedList { list: list.into_iter().map(diff).collect(), missing })
    }

    /// One patch with all changes since the last commit. It can be applied elsewhere, binary files included.
    pub async fn raw_patch(&self) -> Result<Vec<u8>, GitError> {
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
    pub async fn apply(&self, patch: &[u8]) -> Result<(), GitError> {
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
mod tests {
    use testkit::TempProject;

    use super::*;

    fn vcs(project: &TempProject, below: &str) -> Vcs {
        Vcs::new(&Exec::direct(), &project.path().join(below), project.path(), &project.root().join("scratch"))
    }

    fn changed(list: &[FileStatus]) -> Vec<(&str, u64, u64, FileDiffStatus)> {
        list.iter().map(|status| (&*status.file, status.additions, status.deletions, status.status)).collect()
    }

    fn changed_lines(list: &[FileDiff]) -> Vec<(&str, u64, u64)> {
        list.iter().map(|diff| (&*diff.file, diff.additions, diff.deletions)).collect()
    }

    async fn status(vcs: &Vcs) -> Vec<FileStatus> {
        let status = vcs.status().await.unwrap();
        assert!(status.missing.is_empty(), "{:?}", status.missing);
        status.list
    }

    fn changed_project() -> TempProject {
        let project = TempProject::new();
        project.write("sub/kept.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        project.write("gone.txt", "x\n");
        project.commit("files");
        project.write("sub/kept.txt", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n");
        std::fs::remove_file(project.path().join("gone.txt")).unwrap();
        project.write("sub/new one ü.txt", "a\nb\n");
        project.write("data.bin", b"\0\x01");
        project.write("staged.txt", "s\n");
        project.git(&["add", "staged.txt"]);
        project
    }

    #[tokio::test]
    async fn changes_are_listed() {
        use FileDiffStatus::{Added, Deleted, Modified};
        let project = changed_project();
        assert_eq!(
            changed(&status(&vcs(&project, "")).await),
            [
                ("data.bin", 0, 0, Added),
                ("gone.txt", 0, 1, Deleted),
                ("staged.txt", 1, 0, Added),
                ("sub/kept.txt", 1, 1, Modified),
                ("sub/new one ü.txt", 2, 0, Added),
            ]
        );
        // Below a folder only its own changes are listed, with the same names.
        let below = vcs(&project, "sub").diff(DiffBase::Commit, Some(0)).await.unwrap().list;
        let patch = below[0].patch.as_deref().unwrap();
        assert!(patch.ends_with("@@ -5 +5 @@\n-5\n+five\n"), "{patch}");
        assert!(below[1].patch.as_deref().unwrap().contains("+++ b/sub/new one ü.txt"), "{below:?}");
        let whole = vcs(&project, "sub").diff(DiffBase::Commit, None).await.unwrap().list;
        assert!(whole[0].patch.as_deref().unwrap().contains("\n 1\n 2\n"), "{whole:?}");
        // Nothing was staged, and no temporary file is left.
        assert!(project.git(&["status", "--porcelain"]).contains("?? data.bin"));
        assert_eq!(std::fs::read_dir(project.root().join("scratch")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_raw_patch_applies_to_another_tree() {
        let project = changed_project();
        let raw = vcs(&project, "").raw_patch().await.unwrap();
        let tree = project.root().join("tree");
        project.git(&["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]);
        let other = Vcs::new(&Exec::direct(), &tree, &tree, &project.root().join("scratch"));
        other.apply(&raw).await.unwrap();
        assert_eq!(changed(&status(&other).await), changed(&status(&vcs(&project, "")).await));
        assert_eq!(std::fs::read(tree.join("data.bin")).unwrap(), b"\0\x01");
        // It does not apply a second time, and nothing of it is applied.
        assert!(other.apply(&raw).await.is_err());
        for refused in ["", "garbage", "--- /dev/null\n+++ b/../out.txt\n@@ -0,0 +1 @@\n+x\n"] {
            assert!(other.apply(refused.as_bytes()).await.is_err(), "{refused}");
        }
        assert!(!project.root().join("out.txt").exists());
    }

    #[tokio::test]
    async fn a_change_with_the_same_size_and_time_is_found() {
        let project = TempProject::new();
        let moment = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        let set_time = |path: &str| {
            let file = std::fs::File::options().write(true).open(project.path().join(path)).unwrap();
            file.set_modified(moment).unwrap();
        };
        project.git(&["config", "core.trustctime", "false"]);
        project.write("README.md", "one\n");
        set_time("README.md");
        project.commit("one");
        project.write("untracked.txt", "u\n");
        set_time(".git/index");
        project.write("README.md", "two\n");
        set_time("README.md");
        let patch = vcs(&project, "").raw_patch().await.unwrap();
        assert!(String::from_utf8_lossy(&patch).contains("+two"), "{}", String::from_utf8_lossy(&patch));
    }

    #[tokio::test]
    async fn a_long_list_is_truncated() {
        let project = TempProject::new();
        for number in 0..20 {
            project.write(format!("{number:03}"), "1\n");
        }
        project.commit("some");
        for number in 0..60 {
            project.write(format!("{number:03}"), "2\n2\n");
        }
        for number in 60..100 {
            project.write(format!("new/{number:03}"), "3\n");
        }
        let small = |below| Vcs { max_files: 50, ..vcs(&project, below) };
        let found = small("").status().await.unwrap();
        assert_eq!((found.list.len(), found.missing.as_slice()), (50, &["files"][..]));
        let counts = |number: usize| (found.list[number].additions, found.list[number].deletions);
        assert_eq!((found.list[49].file.as_str(), counts(0), counts(49)), ("049", (2, 1), (2, 0)));
        let found = small("").diff(DiffBase::Commit, Some(3)).await.unwrap();
        assert_eq!((found.list.len(), found.missing.as_slice()), (50, &["files"][..]));
        assert!(found.list.iter().all(|diff| diff.patch.is_some()));
        // Files beyond the limit are listed below their folder, and the raw patch has all of them.
        let below = small("new").status().await.unwrap();
        assert_eq!((below.list.len(), below.missing.len()), (40, 0));
        let raw = small("").raw_patch().await.unwrap();
        assert_eq!(String::from_utf8(raw).unwrap().matches("diff --git").count(), 100);
    }

    #[tokio::test]
    async fn patches_share_one_bound() {
        let project = TempProject::new();
        for name in ["a", "b", "c"] {
            project.write(name, format!("{}\n", "x".repeat(600)));
        }
        project.write("small", "s\n");
        let small = || Vcs { max_patch_bytes: 1000, ..vcs(&project, "") };
        let found = small().diff(DiffBase::Commit, None).await.unwrap();
        assert_eq!(found.missing, ["patches"]);
        let shown: Vec<_> = found.list.iter().map(|diff| (diff.file.as_str(), diff.patch.is_some())).collect();
        assert_eq!(shown, [("a", true), ("b", false), ("c", false), ("small", false)]);
        assert_eq!(found.list[3].additions, 1);
        for name in ["b", "c"] {
            std::fs::remove_file(project.path().join(name)).unwrap();
        }
        let found = small().diff(DiffBase::Commit, None).await.unwrap();
        assert!(found.missing.is_empty() && found.list.iter().all(|diff| diff.patch.is_some()), "{found:?}");
    }

    #[tokio::test]
    async fn a_huge_file_is_not_diffed() {
        let project = TempProject::new();
        project.write("small", "s\n");
        std::fs::File::create(project.path().join("huge")).unwrap().set_len(2 << 30).unwrap();
        let found = vcs(&project, "").diff(DiffBase::Commit, None).await.unwrap();
        assert_eq!(changed_lines(&found.list), [("huge", 0, 0), ("small", 1, 0)]);
        assert_eq!((&found.list[0].patch, &*found.missing), (&None, &["lines", "patches"][..]));
        assert!(found.list[1].patch.is_some());
        assert_eq!(vcs(&project, "").status().await.unwrap().missing, ["lines"]);
        // A file that was too large before is compared as binary.
        std::fs::File::options().write(true).open(project.path().join("huge")).unwrap().set_len(17 << 20).unwrap();
        project.commit("huge");
        project.write("huge", "h\n");
        let found = vcs(&project, "").diff(DiffBase::Commit, None).await.unwrap();
        assert_eq!((changed_lines(&found.list), found.missing.len()), (vec![("huge", 0, 0)], 0));
        assert!(found.list[0].patch.as_deref().unwrap().contains("Binary files"), "{found:?}");
    }

    #[tokio::test]
    async fn every_kind_of_change_is_listed() {
        use FileDiffStatus::{Added, Deleted, Modified};
        let project = TempProject::new();
        for name in ["forgotten", "same", "becomes-link", "becomes-folder", "both", "moved"] {
            project.write(name, format!("{name}\n"));
        }
        project.commit("files");
        // Kept in the tree but removed from the index: changed, or not at all.
        project.git(&["rm", "--quiet", "--cached", "forgotten", "same"]);
        project.write("forgotten", "f\n");
        for name in ["becomes-link", "becomes-folder"] {
            std::fs::remove_file(project.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("same", project.path().join("becomes-link")).unwrap();
        project.write("becomes-folder/inner", "i\n");
        project.git(&["mv", "moved", "to: \"here\""]);
        // Changed after a stash.
        project.git(&["stash", "--quiet", "--", "both"]);
        project.write("both", "ours\n");
        project.write("staged and gone", "x\n");
        project.git(&["add", "staged and gone"]);
        std::fs::remove_file(project.path().join("staged and gone")).unwrap();
        project.git(&["init", "--quiet", "repository"]);
        project.write("repository/file", "of another\n");
        let seen = status(&vcs(&project, "")).await;
        assert_eq!(
            changed(&seen),
            [
                ("becomes-folder", 0, 1, Deleted),
                ("becomes-folder/inner", 1, 0, Added),
                ("becomes-link", 1, 1, Modified),
                ("both", 1, 1, Modified),
                ("forgotten", 1, 1, Modified),
                ("moved", 0, 1, Deleted),
                ("to: \"here\"", 1, 0, Added),
            ]
        );
    }

    #[tokio::test]
    async fn lines_that_cannot_be_counted_are_reported_missing() {
        let project = TempProject::new();
        project.write("new", "x\n");
        // A file is where the comparison's index should go.
        let scratch = project.write("scratch", "");
        let vcs = Vcs::new(&Exec::direct(), project.path(), project.path(), &scratch);
        let found = vcs.status().await.unwrap();
        assert_eq!(found.missing, ["lines"]);
        let listed: Vec<_> = found.list.iter().map(|status| (status.file.as_str(), status.additions)).collect();
        assert_eq!(listed, [("new", 0), ("scratch", 0)]);
    }

    #[tokio::test]
    async fn branches_are_reported() {
        let project = TempProject::new();
        let info = |branch: Option<&str>, default: Option<&str>| Branches {
            branch: branch.map(str::to_owned),
            default_branch: default.map(str::to_owned),
        };
        assert_eq!(vcs(&project, "").branches().await.unwrap(), info(Some("main"), Some("main")));
        project.git(&["checkout", "--quiet", "-b", "feature"]);
        project.write("f.txt", "f\n");
        project.commit("feature");
        assert_eq!(vcs(&project, "").branches().await.unwrap(), info(Some("feature"), Some("main")));
        assert!(vcs(&project, "").diff(DiffBase::Commit, None).await.unwrap().list.is_empty());
        let since = vcs(&project, "").diff(DiffBase::Branch, None).await.unwrap().list;
        assert_eq!(since.iter().map(|diff| diff.file.as_str()).collect::<Vec<_>>(), ["f.txt"]);
        project.git(&["checkout", "--quiet", "--detach"]);
        assert_eq!(vcs(&project, "").branches().await.unwrap(), info(None, Some("main")));
    }

    #[tokio::test]
    async fn a_repository_may_have_no_commit() {
        let project = TempProject::without_git();
        project.git(&["init", "--quiet", "--initial-branch=trunk"]);
        project.write("a.txt", "a\n");
        let vcs = vcs(&project, "");
        assert_eq!(vcs.branches().await.unwrap(), Branches { branch: Some("trunk".into()), default_branch: None });
        assert_eq!(changed(&status(&vcs).await), [("a.txt", 1, 0, FileDiffStatus::Added)]);
        assert!(vcs.diff(DiffBase::Branch, None).await.unwrap().list[0].patch.is_some());
    }

    #[test]
    fn names_are_found_in_headers() {
        for name in ["x", "a b", "a b/a b", "ü", "b/x b/x"] {
            assert_eq!(name_in_header(&format!("a/{name} b/{name}")).as_deref(), Some(name));
        }
        for odd in ["", "a/x b/y", "\"a/x\\ty\" \"b/x\\ty\"", "a/"] {
            assert_eq!(name_in_header(odd), None);
        }
    }
}
