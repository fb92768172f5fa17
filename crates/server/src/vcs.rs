//! What git knows of a directory: its branch, what changed in it, and patches of that.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use api::FileDiffStatus;
use exec::Exec;
use exec::git::{self, ChangeKind, DIFF, Git, GitError, LIST, PATCH, Scratch};
use schemars::JsonSchema;
use serde::Serialize;

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
    scratch: PathBuf,
}

impl Vcs {
    /// Git for a directory of a working tree. Below `scratch` it may write for a moment.
    pub fn new(directory: &Path, worktree: &Path, scratch: &Path) -> Self {
        Self { git: Git::new(directory), root: Git::new(worktree), scratch: scratch.to_owned() }
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
    pub async fn status(&self) -> Result<Vec<FileStatus>, GitError> {
        let base = self.base(Since::Commit).await?;
        self.changes(&base).await?.list().await
    }

    /// The same with patches. Without `context` a patch shows the whole file.
    pub async fn diff(&self, since: Since, context: Option<u32>) -> Result<Vec<FileDiff>, GitError> {
        if since == Since::Branch {
            let Info { branch, default_branch } = self.info().await?;
            // What the default branch has is no difference from it, committed or not.
            if branch.is_some() && branch == default_branch {
                return Ok(Vec::new());
            }
        }
        let base = self.base(since).await?;
        let changes = self.changes(&base).await?;
        let list = changes.list().await?;
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let context = format!("--unified={}", context.unwrap_or(WHOLE_FILE).min(WHOLE_FILE));
        let mut patches = split(&String::from_utf8_lossy(&changes.patch(&["--patch", &context]).await?));
        let diff = |status: FileStatus| FileDiff {
            patch: patches.remove(&status.file),
            file: status.file,
            additions: status.additions,
            deletions: status.deletions,
            status: status.status,
        };
        Ok(list.into_iter().map(diff).collect())
    }

    /// One patch of all that differs from the last commit. It can be applied elsewhere, also what is not text.
    pub async fn raw(&self) -> Result<Vec<u8>, GitError> {
        let base = self.base(Since::Commit).await?;
        self.changes(&base).await?.patch(&PATCH).await
    }

    /// Applies a patch, whose paths begin at the root of the working tree: all of it or nothing.
    pub async fn apply(&self, exec: &Exec, patch: &[u8]) -> Result<(), GitError> {
        self.root.writing(exec).run_with(&["apply", "--whitespace=nowarn", "-"], patch).await.map(drop)
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

    /// Everything below the directory against a base. Untracked files are made known to a copy of the index, so that one
    /// call shows them like the others.
    async fn changes(&self, base: &str) -> Result<Changes, GitError> {
        let others = ["ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", "."];
        let others = self.git.run(&others).await?;
        // A folder is a repository of its own.
        let files: Vec<&[u8]> = others.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
        let files: Vec<&[u8]> = files.into_iter().filter(|path| !path.ends_with(b"/")).collect();
        if files.is_empty() {
            return Ok(Changes { git: self.git.clone(), base: base.to_owned(), _scratch: None });
        }
        let scratch = Scratch::copy(&self.root, &self.scratch).await?;
        let add = ["--literal-pathspecs", "add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul"];
        let index = scratch.index();
        self.root.with_index(index.clone()).run_with(&add, &files.join(&0)).await?;
        Ok(Changes { git: self.git.with_index(index), base: base.to_owned(), _scratch: Some(scratch) })
    }
}

/// The difference between a base and the files.
struct Changes {
    git: Git,
    base: String,
    _scratch: Option<Scratch>,
}

impl Changes {
    async fn patch(&self, form: &[&str]) -> Result<Vec<u8>, GitError> {
        let arguments = [&DIFF[..], form, &[self.base.as_str(), "--", "."]].concat();
        self.git.run(&arguments).await
    }

    async fn list(&self) -> Result<Vec<FileStatus>, GitError> {
        let status = |change: git::Change| FileStatus {
            file: change.path,
            additions: change.added,
            deletions: change.removed,
            status: match change.kind {
                ChangeKind::Added => FileDiffStatus::Added,
                ChangeKind::Deleted => FileDiffStatus::Deleted,
                ChangeKind::Modified => FileDiffStatus::Modified,
            },
        };
        Ok(git::changes(&self.patch(&LIST).await?).into_iter().map(status).collect())
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
        Vcs::new(&project.path().join(below), project.path(), &project.root().join("scratch"))
    }

    fn changed(list: &[FileStatus]) -> Vec<(&str, u64, u64, FileDiffStatus)> {
        list.iter().map(|status| (&*status.file, status.additions, status.deletions, status.status)).collect()
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
            changed(&vcs(&project, "").status().await.unwrap()),
            [
                ("data.bin", 0, 0, Added),
                ("gone.txt", 0, 1, Deleted),
                ("staged.txt", 1, 0, Added),
                ("sub/kept.txt", 1, 1, Modified),
                ("sub/new one ü.txt", 2, 0, Added),
            ]
        );
        // Below a folder it is only what is there, with the same names.
        let below = vcs(&project, "sub").diff(Since::Commit, Some(0)).await.unwrap();
        let patch = below[0].patch.as_deref().unwrap();
        assert!(patch.ends_with("@@ -5 +5 @@\n-5\n+five\n"), "{patch}");
        assert!(below[1].patch.as_deref().unwrap().contains("+++ b/sub/new one ü.txt"), "{below:?}");
        let whole = vcs(&project, "sub").diff(Since::Commit, None).await.unwrap();
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
        let other = Vcs::new(&tree, &tree, &project.root().join("scratch"));
        other.apply(&Exec::direct(), &raw).await.unwrap();
        assert_eq!(changed(&other.status().await.unwrap()), changed(&vcs(&project, "").status().await.unwrap()));
        assert_eq!(std::fs::read(tree.join("data.bin")).unwrap(), b"\0\x01");
        // A second time it does not fit, and nothing of it is applied.
        assert!(other.apply(&Exec::direct(), &raw).await.is_err());
        for refused in ["", "garbage", "--- /dev/null\n+++ b/../out.txt\n@@ -0,0 +1 @@\n+x\n"] {
            assert!(other.apply(&Exec::direct(), refused.as_bytes()).await.is_err(), "{refused}");
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
        assert!(vcs(&project, "").diff(Since::Commit, None).await.unwrap().is_empty());
        let since = vcs(&project, "").diff(Since::Branch, None).await.unwrap();
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
        assert_eq!(changed(&vcs.status().await.unwrap()), [("a.txt", 1, 0, FileDiffStatus::Added)]);
        assert!(vcs.diff(Since::Branch, None).await.unwrap()[0].patch.is_some());
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
