//! The files of a subagent's worktree: snapshot, commit, merge.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use api::FileStatus;
use exec::git::{self, DIFF, Git, GitError, LIST, MAX_FILES, MAX_NAMES, MAX_PATCH, NAMES, PATCH, ScratchIndex};

use crate::workspace::git_worktree::{GitWorktree, utf8};
use crate::workspace::vcs::file_status;

/// The commit identity for repositories that have none configured.
const FALLBACK_IDENTITY: [&str; 4] = ["-c", "user.name=Trefoil", "-c", "user.email=trefoil@localhost"];

/// The maximum number of file names in an error.
const NAMES_MAX: usize = 20;

/// Why changes were not merged.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    /// Both sides changed the same lines.
    #[error(
        "Nothing was merged: {} changed in the worktree and in {target} in conflicting ways. Merge the branch \
         {branch} by hand, or make these files agree and merge again", names(.files)
    )]
    Conflict { files: Vec<String>, target: String, branch: String },
    /// The target tree does not accept the changes.
    #[error("Nothing was merged: {0}")]
    Refused(String),
    /// Git failed.
    #[error("Nothing was merged: {0}")]
    Git(#[from] GitError),
}

fn names(files: &[String]) -> String {
    let more = files.len().saturating_sub(NAMES_MAX);
    let listed = files[..files.len() - more].join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more files") }
}

/// The changed files.
#[derive(Debug, Default)]
pub(super) struct ChangedFiles {
    pub(super) list: Vec<FileStatus>,
    /// Whether the list is incomplete.
    pub(super) more: bool,
}

/// The files of a worktree, and its branch.
pub(super) struct WorktreeContents<'a> {
    pub(super) tree: GitWorktree,
    /// Its branch.
    pub(super) branch: &'a str,
    /// A folder for temporary files.
    pub(super) scratch: &'a Path,
}

impl WorktreeContents<'_> {
    /// Git in the repository's main working tree.
    fn main(&self) -> Git {
        self.tree.git_at(&self.tree.main)
    }

    /// A git tree of its current files, without ignored ones. Its own index is left alone, because it may be in use.
    pub(super) async fn snapshot(&self) -> Result<String, GitError> {
        let git = self.tree.git();
        let scratch = ScratchIndex::copy(&git, self.scratch).await?;
        let git = git.with_index(scratch.index());
        // Not `add`, which starts a git process in every nested repository.
        let changed = [&DIFF[..], &["--name-only", "-z", "--"]].concat();
        let others = ["ls-files", "--others", "--exclude-standard", "-z"];
        for names in [git.run(&changed).await?, git.run(&others).await?] {
            git.run_with(&["update-index", "-z", "--add", "--remove", "--replace", "--stdin"], &files_of(&names))
                .await?;
        }
        git.text(&["write-tree"]).await
    }

    /// The difference between a commit and a tree. A very long list is cut off and has no line counts.
    pub(super) async fn files(&self, base: &str, tree: &str) -> Result<ChangedFiles, GitError> {
        let git = self.main();
        let diff = |form: &[&'static str]| [&DIFF[..], form, &[base, tree, "--"]].concat();
        let (names, whole) = git.head(&diff(&NAMES), MAX_NAMES).await?;
        let mut list = git::changes(&names);
        let more = !whole || list.len() > MAX_FILES;
        if more {
            list.truncate(MAX_FILES);
        } else if !list.is_empty() {
            list = git::changes(&git.run(&diff(&LIST)).await?);
        }
        Ok(ChangedFiles { list: list.into_iter().map(file_status).collect(), more })
    }

    /// The same as a patch, and whether it is complete: a very long one is cut off after whole files.
    pub(super) async fn patch(&self, base: &str, tree: &str) -> Result<(String, bool), GitError> {
        let patch = [&DIFF[..], &PATCH, &[base, tree, "--"]].concat();
        let (patch, whole) = self.main().head(&patch, MAX_PATCH).await?;
        Ok((String::from_utf8_lossy(git::whole_files(&patch, whole)).into_owned(), whole))
    }

    /// Makes the branch end in a commit of this tree.
    pub(super) async fn commit(&self, tree: &str, message: &str) -> Result<String, GitError> {
        let git = self.tree.git();
        let locked = self.tree.lock().await;
        let head = git.text(&["rev-parse", "--verify", "HEAD^{commit}"]).await?;
        let same = git.text(&["rev-parse", "--verify", "HEAD^{tree}"]).await? == tree;
        let commit = if same { head } else { commit_tree(&git, tree, &head, message).await? };
        let writer = locked.writer();
        writer.run(&["update-ref", &format!("refs/heads/{}", self.branch), &commit]).await?;
        let own = git.try_text(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        if !same && own.as_deref() == Some(self.branch) {
            // The files match the new commit; update the index.
            writer.run(&["reset", "--quiet"]).await?;
        }
        Ok(commit)
    }

    /// Applies the difference between `base` and `tree` to another working tree as uncommitted edits: all of it or
    /// nothing. Other edits there stay, even in the same files, as long as both sides are compatible.
    pub(super) async fn merge(&self, base: &str, tree: &str, target: &Path) -> Result<(), MergeError> {
        let git = self.tree.git_at(target);
        let name = target.display().to_string();
        let paths = [&DIFF[..], &["--name-only", "-z", base, tree, "--"]].concat();
        let paths = self.main().run(&paths).await?;
        check_no_file_in_the_way(target, &paths)?;
        // The target's version of these files, including edits.
        let scratch = ScratchIndex::copy(&git, self.scratch).await?;
        let indexed = git.with_index(scratch.index());
        indexed.run_with(&["update-index", "-z", "--add", "--remove", "--stdin"], &paths).await?;
        let theirs = indexed.text(&["write-tree"]).await?;
        // Both sides start at the base, whatever their history is by now.
        let ours = commit_tree(&git, &format!("{tree}^{{tree}}"), base, "worktree").await?;
        let theirs_commit = commit_tree(&git, &theirs, base, "target").await?;
        let merge = ["-c", "merge.renames=false", "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z"];
        let (clean, output) = git.check(&[&merge[..], &[&theirs_commit, &ours]].concat(), &[]).await?;
        let output = String::from_utf8_lossy(&output);
        let mut fields = output.split('\0').filter(|field| !field.is_empty());
        let merged = fields.next().unwrap_or_default().trim().to_owned();
        if !clean {
            let files = fields.map(str::to_owned).collect();
            return Err(MergeError::Conflict { files, target: name, branch: self.branch.to_owned() });
        }
        // Through a file, because it may exceed the output limit.
        let patch = scratch.file("patch");
        let written = format!("--output={}", utf8(&patch)?);
        git.run(&[&DIFF[..], &PATCH, &[&written, &theirs, &merged, "--"]].concat()).await?;
        if std::fs::metadata(&patch).is_ok_and(|patch| patch.len() == 0) {
            return Ok(());
        }
        let applied = git.writing().run(&["apply", "--whitespace=nowarn", "--", utf8(&patch)?]).await;
        applied.map(drop).map_err(|error| match error {
            GitError::Refused(why) => MergeError::Refused(format!("the changes cannot be applied to {name}: {why}")),
            error => error.into(),
        })
    }
}

/// The names without folders, which are nested repositories.
fn files_of(names: &[u8]) -> Vec<u8> {
    git::records(names).filter(|name| !name.ends_with(b"/")).flat_map(|name| [name, b"\0"].concat()).collect()
}

async fn commit_tree(git: &Git, tree: &str, parent: &str, message: &str) -> Result<String, GitError> {
    let has_identity = git.try_text(&["var", "GIT_COMMITTER_IDENT"]).await?.is_some();
    let identity: &[&str] = if has_identity { &[] } else { &FALLBACK_IDENTITY };
    git.text(&[identity, &["commit-tree", tree, "-p", parent, "-m", message]].concat()).await
}

/// Fails if a file is where a folder must be: git would notice only halfway through.
fn check_no_file_in_the_way(target: &Path, paths: &[u8]) -> Result<(), MergeError> {
    let mut seen = HashSet::new();
    for path in git::records(paths).map(|path| Path::new(OsStr::from_bytes(path))) {
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if !seen.insert(above) {
                break;
            }
            let above = target.join(above);
            if std::fs::symlink_metadata(&above).is_ok_and(|there| !there.is_dir()) {
                let message = format!("{} is in the way of {}", above.display(), path.display());
                return Err(MergeError::Refused(message));
            }
        }
    }
    Ok(())
}
