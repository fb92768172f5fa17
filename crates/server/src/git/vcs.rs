//! What git knows of a directory: its branch, what changed in it, and patches of that.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::FileDiffStatus;
use exec::Exec;
use exec::git::{
    self, ChangeKind, DIFF, Git, GitError, LIST, MAX_FILES, MAX_NAMES, MAX_PATCH, NAMES, PATCH, Scratch, records,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::operation::Cut;

/// How long git may count lines. A list without them is better than none.
const COUNTING: Duration = Duration::from_secs(10);
/// The least that a patch says about a file, in bytes: its name twice, and its objects.
const SHORTEST_PATCH: u64 = 110;
/// The largest file that is looked into, in bytes: git reads all of it for the shortest patch.
const LARGE_FILE: u64 = 16 << 20;
/// The same for what such a file was in the base: it counts as data, not as text.
const LARGE_BASE: [&str; 2] = ["-c", "core.bigFileThreshold=16m"];
/// The mode of a file, where git has none for it. The real one is seen when it is read.
const FILE: &str = "100644";

/// Lines around a change that are as good as all.
const WHOLE_FILE: u32 = 1_000_000;

/// The tree of no files, for a repository without a commit. Git knows it without storing it.
const NO_FILES: [&str; 4] = ["hash-object", "-t", "tree", "--stdin"];

/// The branches of a repository. A client that reads `null` knows that there is none.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "VcsInfo")]
pub struct Info {
    branch: Option<String>,
    default_branch: Option<String>,
}

/// A file that changed.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "VcsFileStatus")]
pub struct FileStatus {
    /// Seen from the root of the working tree.
    pub file: String,
    /// Lines added.
    #[schemars(with = "f64")]
    pub additions: u64,
    /// Lines removed.
    #[schemars(with = "f64")]
    pub deletions: u64,
    /// What happened to it.
    pub status: FileDiffStatus,
}

/// A file that changed, and how.
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

/// What changes are measured from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// The last commit.
    Commit,
    /// The place where this branch left the default one.
    Branch,
}

/// The part of a working tree that is below a directory.
pub struct Vcs {
    git: Git,
    root: Git,
    worktree: PathBuf,
    scratch: PathBuf,
    /// The most files that are listed.
    most: usize,
    /// The most bytes of all patches.
    patches: u64,
}

impl Vcs {
    /// Git for a directory of a working tree. Below `scratch` it may write for a moment.
    pub fn new(exec: &Exec, directory: &Path, worktree: &Path, scratch: &Path) -> Self {
        let (git, root) = (exec.git(directory), exec.git(worktree));
        let (worktree, scratch) = (worktree.to_owned(), scratch.to_owned());
        Self { git, root, worktree, scratch, most: MAX_FILES, patches: MAX_PATCH }
    }

    /// The branches.
    pub async fn info(&self) -> Result<Info, GitError> {
        let branch = self.git.known(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        Ok(Info { branch, default_branch: self.default_branch().await? })
    }

    /// The branch that others begin at: what the remote says, else the usual names.
    pub async fn default_branch(&self) -> Result<Option<String>, GitError> {
        let remote = self.git.known(&["symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD"]).await?;
        if let Some(name) = remote.as_deref().and_then(|name| name.strip_prefix("origin/")) {
            return Ok(Some(name.to_owned()));
        }
        let configured = self.git.known(&["config", "--get", "init.defaultBranch"]).await?;
        for name in configured.iter().map(String::as_str).chain(["main", "master"]) {
            if self.commit(&format!("refs/heads/{name}")).await?.is_some() {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    /// The commit that a name means.
    pub async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        self.git.commit(name).await
    }

    /// The files that differ from the last commit, untracked ones too.
    pub async fn status(&self) -> Result<Cut<FileStatus>, GitError> {
        let base = self.base(Since::Commit).await?;
        let found = self.first(&base).await?;
        let counted = match self.compare(&found).await {
            Ok(Some(pair)) => pair.counted().await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let mut missing = found.missing();
        let list = found.counted(counted, &mut missing);
        Ok(Cut { list: list.into_iter().map(FileStatus::from).collect(), missing })
    }

    /// The same with patches. Without `context` a patch shows the whole file.
    pub async fn diff(&self, since: Since, context: Option<u32>) -> Result<Cut<FileDiff>, GitError> {
        if since == Since::Branch {
            let Info { branch, default_branch } = self.info().await?;
            // What the default branch has is no difference from it, committed or not.
            if branch.is_some() && branch == default_branch {
                return Ok(Cut::default());
            }
        }
        let found = self.first(&self.base(since).await?).await?;
        let (counted, patched) = match self.compare(&found).await? {
            Some(pair) => {
                let context = format!("--unified={}", context.unwrap_or(WHOLE_FILE).min(WHOLE_FILE));
                let patch = pair.diff(&["--patch", &context]);
                tokio::join!(pair.counted(), pair.git.head(&patch, self.patches))
            }
            None => (Ok(Vec::new()), Ok((Vec::new(), true))),
        };
        let mut missing = found.missing();
        let list = found.counted(counted, &mut missing);
        let (patch, whole) = match patched {
            Err(GitError::Slow(_)) => (Vec::new(), false),
            patched => patched?,
        };
        let mut patches = split(&String::from_utf8_lossy(git::whole_files(&patch, whole)));
        if !whole || !found.large.is_empty() {
            missing.push("patches");
        }
        let diff = |change: git::Change| {
            let FileStatus { file, additions, deletions, status } = change.into();
            FileDiff { patch: patches.remove(&file), file, additions, deletions, status }
        };
        Ok(Cut { list: list.into_iter().map(diff).collect(), missing })
    }

    /// One patch of all that differs from the last commit. It can be applied elsewhere, also what is not text.
    pub async fn raw(&self) -> Result<Vec<u8>, GitError> {
        let base = self.base(Since::Commit).await?;
        let found = self.find(&base, None).await?;
        if (found.files.len() as u64).saturating_mul(SHORTEST_PATCH) > MAX_PATCH {
            // Git would take its time to find that out.
            return Err(GitError::Long);
        }
        match self.compare(&found).await? {
            Some(pair) => pair.git.run(&pair.diff(&PATCH)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Applies a patch, whose paths begin at the root of the working tree: all of it or nothing.
    pub async fn apply(&self, patch: &[u8]) -> Result<(), GitError> {
        self.root.writing().run_with(&["apply", "--whitespace=nowarn", "-"], patch).await.map(drop)
    }

    async fn base(&self, since: Since) -> Result<String, GitError> {
        let Some(head) = self.commit("HEAD").await? else { return self.git.text(&NO_FILES).await };
        if since == Since::Commit {
            return Ok(head);
        }
        let Some(default) = self.default_branch().await? else { return Ok(head) };
        for name in [format!("refs/remotes/origin/{default}"), format!("refs/heads/{default}")] {
            if let Some(base) = self.git.known(&["merge-base", &name, "HEAD"]).await? {
                return Ok(base);
            }
        }
        Ok(head)
    }

    /// What differs from a base below the directory, by name alone: nothing is read of files that git knows to be unchanged or
    /// untracked. With `most` the first so many.
    async fn find(&self, base: &str, most: Option<usize>) -> Result<Found, GitError> {
        let tracked = [&DIFF[..], &NAMES, &[base, "--", "."]].concat();
        let others = ["ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", "."];
        let (tracked, others) = match most {
            Some(_) => tokio::try_join!(self.git.head(&tracked, MAX_NAMES), self.git.head(&others, MAX_NAMES))?,
            None => {
                let (tracked, others) = tokio::try_join!(self.git.run(&tracked), self.git.run(&others))?;
                ((tracked, true), (others, true))
            }
        };
        let whole = tracked.1 && others.1;
        let mut found = Found { base: base.to_owned(), files: BTreeMap::new(), large: Vec::new(), whole };
        let mut fields = records(&tracked.0);
        while let (Some(head), Some(path)) = (fields.next(), fields.next()) {
            found.files.extend(Differs::read(head).map(|differs| (path.to_vec(), differs)));
        }
        // A folder is a repository of its own.
        for path in records(&others.0).filter(|path| !path.ends_with(b"/")) {
            // One that the index has forgotten is in both lists.
            let differs = found.files.entry(path.to_vec()).or_default();
            differs.mode.get_or_insert_with(|| FILE.to_owned());
        }
        let most = most.unwrap_or(usize::MAX);
        found.whole &= found.files.len() <= most;
        found.files = found.files.into_iter().take(most).collect();
        Ok(found)
    }

    /// The first files that differ, and apart from them those that are too large to be looked into.
    async fn first(&self, base: &str) -> Result<Found, GitError> {
        let mut found = self.find(base, Some(self.most)).await?;
        let worktree = self.worktree.clone();
        let apart = tokio::task::spawn_blocking(move || {
            let is_large = |path: &[u8]| {
                let there = std::fs::symlink_metadata(worktree.join(OsStr::from_bytes(path)));
                there.is_ok_and(|there| there.is_file() && there.len() > LARGE_FILE)
            };
            let large = found.files.extract_if(.., |path, _| is_large(path));
            found.large = large.map(|(path, differs)| differs.change(&path)).collect();
            found
        });
        let failed = |error| GitError::Start { directory: self.worktree.clone(), error: std::io::Error::other(error) };
        apart.await.map_err(failed)
    }

    /// Makes what was found all that git sees: a tree that has of the base only these files, and an index that has only those
    /// that are there now. So git looks at nothing else, however large the repository is, and is told no list of paths: it would
    /// compare each with each. Nothing if nothing was found.
    async fn compare(&self, found: &Found) -> Result<Option<Pair>, GitError> {
        if found.files.is_empty() {
            return Ok(None);
        }
        let scratch = Scratch::new(&self.scratch).await?;
        let git = scratch.aside(&self.root).await?;
        let fill = ["update-index", "-z", "--index-info"];
        let before = git.with_index(scratch.file("before"));
        before.run_with(&fill, &found.before()).await?;
        let tree = before.text(&["write-tree", "--missing-ok"]).await?;
        let git = git.with_index(scratch.index());
        git.run_with(&fill, &found.now()).await?;
        Ok(Some(Pair { git, tree, _scratch: scratch }))
    }
}

/// A file that differs.
#[derive(Debug, Default)]
struct Differs {
    /// Its mode and object in the base.
    before: Option<(String, String)>,
    /// Its mode now, if it is there.
    mode: Option<String>,
}

impl Differs {
    /// Reads `:mode mode object object letter`.
    fn read(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?.strip_prefix(':')?;
        let [old_mode, mode, object, _, _] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
        let there = |mode: &str| mode.bytes().any(|digit| digit != b'0').then(|| mode.to_owned());
        Some(Self { before: there(old_mode).map(|mode| (mode, object.to_owned())), mode: there(mode) })
    }

    /// The same without its lines.
    fn change(&self, path: &[u8]) -> git::Change {
        let kind = match (&self.before, &self.mode) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            _ => ChangeKind::Modified,
        };
        git::Change { path: String::from_utf8_lossy(path).into_owned(), added: 0, removed: 0, kind }
    }
}

/// What differs from a base.
#[derive(Debug)]
struct Found {
    /// A commit or tree.
    base: String,
    files: BTreeMap<Vec<u8>, Differs>,
    /// Those that are not looked into.
    large: Vec<git::Change>,
    /// Whether these are all.
    whole: bool,
}

impl Found {
    fn missing(&self) -> Vec<&'static str> {
        if self.whole { Vec::new() } else { vec!["files"] }
    }

    /// The lines that give an index the files as they were.
    fn before(&self) -> Vec<u8> {
        let line = |(path, differs): (&Vec<u8>, &Differs)| {
            let (mode, object) = differs.before.as_ref()?;
            Some([format!("{mode} {object}\t").as_bytes(), path, b"\0"].concat())
        };
        self.files.iter().filter_map(line).flatten().collect()
    }

    /// The same with those that are there now. Git reads them, as an entry without times is never up to date; so an object that
    /// nobody has will do for those that were not there.
    fn now(&self) -> Vec<u8> {
        let nobody = "1".repeat(self.base.len());
        let line = |(path, differs): (&Vec<u8>, &Differs)| {
            let mode = differs.mode.as_ref()?;
            let object = differs.before.as_ref().map_or(&nobody, |(_, object)| object);
            Some([format!("{mode} {object}\t").as_bytes(), path, b"\0"].concat())
        };
        self.files.iter().filter_map(line).flatten().collect()
    }

    /// The files with their lines, as git counted them; without, if it could not.
    fn counted(
        &self,
        counted: Result<Vec<git::Change>, GitError>,
        missing: &mut Vec<&'static str>,
    ) -> Vec<git::Change> {
        if counted.is_err() || !self.large.is_empty() {
            missing.push("lines");
        }
        let mut list = counted.unwrap_or_else(|error| {
            tracing::debug!(%error, "changed lines are not counted");
            self.files.iter().map(|(path, differs)| differs.change(path)).collect()
        });
        list.extend(self.large.iter().cloned());
        git::sort(&mut list);
        list
    }
}

/// Git that sees what differs and nothing else, and the tree to compare with.
struct Pair {
    git: Git,
    tree: String,
    _scratch: Scratch,
}

impl Pair {
    fn diff<'a>(&'a self, form: &[&'a str]) -> Vec<&'a str> {
        [&LARGE_BASE[..], &DIFF, form, &[self.tree.as_str(), "--"]].concat()
    }

    async fn counted(&self) -> Result<Vec<git::Change>, GitError> {
        Ok(git::changes(&self.git.within(COUNTING).run(&self.diff(&LIST)).await?))
    }
}

/// The patch of each file. One whose name git has to quote is left out.
fn split(patch: &str) -> HashMap<String, String> {
    let mut patches: HashMap<String, String> = HashMap::new();
    let mut file = None;
    for line in patch.split_inclusive('\n') {
        if let Some(names) = line.strip_prefix("diff --git ") {
            file = same_name(names.trim_end_matches('\n'));
        }
        if let Some(file) = &file {
            patches.entry(String::clone(file)).or_default().push_str(line);
        }
    }
    patches
}

/// `a/x b/x` is `x`, whatever spaces it has.
fn same_name(names: &str) -> Option<String> {
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
    async fn what_changed() {
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
        // Below a folder it is only what is there, with the same names.
        let below = vcs(&project, "sub").diff(Since::Commit, Some(0)).await.unwrap().list;
        let patch = below[0].patch.as_deref().unwrap();
        assert!(patch.ends_with("@@ -5 +5 @@\n-5\n+five\n"), "{patch}");
        assert!(below[1].patch.as_deref().unwrap().contains("+++ b/sub/new one ü.txt"), "{below:?}");
        let whole = vcs(&project, "sub").diff(Since::Commit, None).await.unwrap().list;
        assert!(whole[0].patch.as_deref().unwrap().contains("\n 1\n 2\n"), "{whole:?}");
        // Nothing was staged, and nothing is left behind.
        assert!(project.git(&["status", "--porcelain"]).contains("?? data.bin"));
        assert_eq!(std::fs::read_dir(project.root().join("scratch")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_patch_can_be_applied_to_another_tree() {
        let project = changed_project();
        let raw = vcs(&project, "").raw().await.unwrap();
        let tree = project.root().join("tree");
        project.git(&["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]);
        let other = Vcs::new(&Exec::direct(), &tree, &tree, &project.root().join("scratch"));
        other.apply(&raw).await.unwrap();
        assert_eq!(changed(&status(&other).await), changed(&status(&vcs(&project, "")).await));
        assert_eq!(std::fs::read(tree.join("data.bin")).unwrap(), b"\0\x01");
        // A second time it does not fit, and nothing of it is applied.
        assert!(other.apply(&raw).await.is_err());
        for refused in ["", "garbage", "--- /dev/null\n+++ b/../out.txt\n@@ -0,0 +1 @@\n+x\n"] {
            assert!(other.apply(refused.as_bytes()).await.is_err(), "{refused}");
        }
        assert!(!project.root().join("out.txt").exists());
    }

    #[tokio::test]
    async fn a_change_of_the_same_size_in_the_same_moment_is_seen() {
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
        let patch = vcs(&project, "").raw().await.unwrap();
        assert!(String::from_utf8_lossy(&patch).contains("+two"), "{}", String::from_utf8_lossy(&patch));
    }

    #[tokio::test]
    async fn too_many_files_are_cut() {
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
        let small = |below| Vcs { most: 50, ..vcs(&project, below) };
        let found = small("").status().await.unwrap();
        assert_eq!((found.list.len(), found.missing.as_slice()), (50, &["files"][..]));
        let counts = |number: usize| (found.list[number].additions, found.list[number].deletions);
        assert_eq!((found.list[49].file.as_str(), counts(0), counts(49)), ("049", (2, 1), (2, 0)));
        let found = small("").diff(Since::Commit, Some(3)).await.unwrap();
        assert_eq!((found.list.len(), found.missing.as_slice()), (50, &["files"][..]));
        assert!(found.list.iter().all(|diff| diff.patch.is_some()));
        // What is beyond is found below its folder, and one patch of all has it.
        let below = small("new").status().await.unwrap();
        assert_eq!((below.list.len(), below.missing.len()), (40, 0));
        let raw = small("").raw().await.unwrap();
        assert_eq!(String::from_utf8(raw).unwrap().matches("diff --git").count(), 100);
    }

    #[tokio::test]
    async fn patches_are_bounded_together() {
        let project = TempProject::new();
        for name in ["a", "b", "c"] {
            project.write(name, format!("{}\n", "x".repeat(600)));
        }
        project.write("small", "s\n");
        let small = || Vcs { patches: 1000, ..vcs(&project, "") };
        let found = small().diff(Since::Commit, None).await.unwrap();
        assert_eq!(found.missing, ["patches"]);
        let shown: Vec<_> = found.list.iter().map(|diff| (diff.file.as_str(), diff.patch.is_some())).collect();
        assert_eq!(shown, [("a", true), ("b", false), ("c", false), ("small", false)]);
        assert_eq!(found.list[3].additions, 1);
        for name in ["b", "c"] {
            std::fs::remove_file(project.path().join(name)).unwrap();
        }
        let found = small().diff(Since::Commit, None).await.unwrap();
        assert!(found.missing.is_empty() && found.list.iter().all(|diff| diff.patch.is_some()), "{found:?}");
    }

    #[tokio::test]
    async fn a_huge_file_is_not_looked_into() {
        let project = TempProject::new();
        project.write("small", "s\n");
        std::fs::File::create(project.path().join("huge")).unwrap().set_len(2 << 30).unwrap();
        let found = vcs(&project, "").diff(Since::Commit, None).await.unwrap();
        assert_eq!(changed_lines(&found.list), [("huge", 0, 0), ("small", 1, 0)]);
        assert_eq!((&found.list[0].patch, &*found.missing), (&None, &["lines", "patches"][..]));
        assert!(found.list[1].patch.is_some());
        assert_eq!(vcs(&project, "").status().await.unwrap().missing, ["lines"]);
        // What was large and is not any more is compared as data.
        std::fs::File::options().write(true).open(project.path().join("huge")).unwrap().set_len(17 << 20).unwrap();
        project.commit("huge");
        project.write("huge", "h\n");
        let found = vcs(&project, "").diff(Since::Commit, None).await.unwrap();
        assert_eq!((changed_lines(&found.list), found.missing.len()), (vec![("huge", 0, 0)], 0));
        assert!(found.list[0].patch.as_deref().unwrap().contains("Binary files"), "{found:?}");
    }

    #[tokio::test]
    async fn every_kind_of_difference() {
        use FileDiffStatus::{Added, Deleted, Modified};
        let project = TempProject::new();
        for name in ["forgotten", "same", "becomes-link", "becomes-folder", "both", "moved"] {
            project.write(name, format!("{name}\n"));
        }
        project.commit("files");
        // Left in the tree but taken out of the index: changed, or not at all.
        project.git(&["rm", "--quiet", "--cached", "forgotten", "same"]);
        project.write("forgotten", "f\n");
        for name in ["becomes-link", "becomes-folder"] {
            std::fs::remove_file(project.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("same", project.path().join("becomes-link")).unwrap();
        project.write("becomes-folder/inner", "i\n");
        project.git(&["mv", "moved", "to: \"here\""]);
        // Two sides that exclude each other.
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
    async fn lines_that_cannot_be_counted_are_left_out() {
        let project = TempProject::new();
        project.write("new", "x\n");
        // Where the index of the comparison should go there is a file.
        let scratch = project.write("scratch", "");
        let vcs = Vcs::new(&Exec::direct(), project.path(), project.path(), &scratch);
        let found = vcs.status().await.unwrap();
        assert_eq!(found.missing, ["lines"]);
        let listed: Vec<_> = found.list.iter().map(|status| (status.file.as_str(), status.additions)).collect();
        assert_eq!(listed, [("new", 0), ("scratch", 0)]);
    }

    #[tokio::test]
    async fn branches() {
        let project = TempProject::new();
        let info = |branch: Option<&str>, default: Option<&str>| Info {
            branch: branch.map(str::to_owned),
            default_branch: default.map(str::to_owned),
        };
        assert_eq!(vcs(&project, "").info().await.unwrap(), info(Some("main"), Some("main")));
        project.git(&["checkout", "--quiet", "-b", "feature"]);
        project.write("f.txt", "f\n");
        project.commit("feature");
        assert_eq!(vcs(&project, "").info().await.unwrap(), info(Some("feature"), Some("main")));
        assert!(vcs(&project, "").diff(Since::Commit, None).await.unwrap().list.is_empty());
        let since = vcs(&project, "").diff(Since::Branch, None).await.unwrap().list;
        assert_eq!(since.iter().map(|diff| diff.file.as_str()).collect::<Vec<_>>(), ["f.txt"]);
        project.git(&["checkout", "--quiet", "--detach"]);
        assert_eq!(vcs(&project, "").info().await.unwrap(), info(None, Some("main")));
    }

    #[tokio::test]
    async fn a_repository_without_a_commit() {
        let project = TempProject::without_git();
        project.git(&["init", "--quiet", "--initial-branch=trunk"]);
        project.write("a.txt", "a\n");
        let vcs = vcs(&project, "");
        assert_eq!(vcs.info().await.unwrap(), Info { branch: Some("trunk".into()), default_branch: None });
        assert_eq!(changed(&status(&vcs).await), [("a.txt", 1, 0, FileDiffStatus::Added)]);
        assert!(vcs.diff(Since::Branch, None).await.unwrap().list[0].patch.is_some());
    }

    #[test]
    fn names_in_headers() {
        for name in ["x", "a b", "a b/a b", "ü", "b/x b/x"] {
            assert_eq!(same_name(&format!("a/{name} b/{name}")).as_deref(), Some(name));
        }
        for odd in ["", "a/x b/y", "\"a/x\\ty\" \"b/x\\ty\"", "a/"] {
            assert_eq!(same_name(odd), None);
        }
    }
}
