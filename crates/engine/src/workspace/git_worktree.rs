//! Creates, checks out, resets and removes linked git worktrees, for users and for subagents. Git fails while another git
//! writes in the same worktree, so commands that write in one need its lock ([`GitWorktree::lock`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use exec::Exec;
use exec::git::{Git, GitError};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedMutexGuard};

use crate::{Inner, lock};

/// The maximum number of linked worktrees of a repository, including those not created by Trefoil.
pub(crate) const MAX_WORKTREES: usize = 200;

/// Whether a repository has as many linked worktrees as it may.
pub(crate) fn is_full(main: &Path) -> bool {
    config::linked_trees(main).len() >= MAX_WORKTREES
}

/// Who writes in which worktree.
#[derive(Default)]
pub(crate) struct Worktrees {
    /// Held while worktrees of subagents are merged or removed: two merges into one tree would not see each other's
    /// changes.
    merging: AsyncMutex<()>,
    /// The locks of the worktrees in use, by directory.
    locks: Mutex<HashMap<PathBuf, Weak<AsyncMutex<()>>>>,
}

impl Worktrees {
    /// Waits until nobody else in this process merges or removes worktrees of subagents.
    pub(crate) async fn lock_merging(&self) -> MutexGuard<'_, ()> {
        self.merging.lock().await
    }

    /// The lock of the git commands that write in a worktree.
    fn lock_for(&self, directory: &Path) -> Arc<AsyncMutex<()>> {
        let mut locks = lock(&self.locks);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(directory).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(directory.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// What a new worktree has checked out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WorktreeHead<'a> {
    /// A new branch at a commit. The caller has made sure that there is no such branch.
    NewBranch { name: &'a str, commit: &'a str },
    /// A branch that exists.
    Branch(&'a str),
    /// A commit without a branch.
    Commit(&'a str),
}

/// What a removal may ignore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    /// Nothing: a worktree with uncommitted changes stays.
    Nothing,
    /// Uncommitted changes, which are lost.
    Changes,
    /// Uncommitted changes, and that the worktree is locked (`git worktree lock`).
    ChangesAndLocks,
}

impl Force {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Changes => &["--force"],
            Self::ChangesAndLocks => &["--force", "--force"],
        }
    }
}

/// A linked worktree, existing or not. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GitWorktree {
    /// Its path.
    pub(crate) directory: PathBuf,
    /// The repository's main working tree.
    pub(crate) main: PathBuf,
    exec: Exec,
    lock: Arc<AsyncMutex<()>>,
}

impl GitWorktree {
    pub(crate) fn new(inner: &Inner, exec: &Exec, main: &Path, directory: &Path) -> Self {
        let lock = inner.worktrees.lock_for(directory);
        Self { directory: directory.to_owned(), main: main.to_owned(), exec: exec.clone(), lock }
    }

    /// Git in the worktree, for commands that only read.
    pub(crate) fn git(&self) -> Git {
        self.exec.git(&self.directory).with_long_timeout()
    }

    /// The same in another working tree of the repository.
    pub(crate) fn git_at(&self, directory: &Path) -> Git {
        self.exec.git(directory).with_long_timeout()
    }

    /// Waits until nobody else writes in it.
    pub(crate) async fn lock(&self) -> LockedWorktree {
        LockedWorktree { _guard: self.lock.clone().lock_owned().await, tree: self.clone() }
    }

    /// The branch that is checked out; `None` if there is none, or no such worktree.
    pub(crate) async fn branch(&self) -> Option<String> {
        self.exec.git(&self.directory).text(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await.ok()
    }

    /// Whether the repository has a branch.
    pub(crate) async fn has_branch(&self, name: &str) -> Result<bool, GitError> {
        Ok(self.exec.git(&self.main).commit(&format!("refs/heads/{name}")).await?.is_some())
    }

    /// Removes a branch of the repository, if it exists. Git refuses while a worktree has it checked out.
    pub(crate) async fn remove_branch(&self, name: &str) -> Result<(), GitError> {
        if self.main.is_dir() && self.has_branch(name).await? {
            self.git_at(&self.main).writing().run(&["branch", "--quiet", "-D", "--", name]).await?;
        }
        Ok(())
    }
}

/// A worktree that nobody else writes in until this is dropped.
pub(crate) struct LockedWorktree {
    tree: GitWorktree,
    _guard: OwnedMutexGuard<()>,
}

impl LockedWorktree {
    /// Git in the worktree, for commands that write.
    pub(crate) fn writer(&self) -> Git {
        self.tree.git().writing()
    }

    /// Whether its folder exists.
    pub(crate) fn exists(&self) -> bool {
        self.tree.directory.exists()
    }

    /// Creates it without files. If that fails, nothing is left of it.
    pub(crate) async fn add(&self, head: WorktreeHead<'_>) -> Result<(), GitError> {
        let directory = utf8(&self.tree.directory)?;
        let head_arguments = match head {
            WorktreeHead::NewBranch { name, commit } => vec!["-b", name, "--", directory, commit],
            WorktreeHead::Branch(name) => vec!["--", directory, name],
            WorktreeHead::Commit(commit) => vec!["--detach", "--", directory, commit],
        };
        let arguments = [&["worktree", "add", "--no-checkout", "--quiet"][..], &head_arguments[..]].concat();
        let existed = self.exists();
        // Not with the long timeout: a client waits.
        let added = self.tree.exec.git(&self.tree.main).writing().run(&arguments).await;
        if let Err(error) = &added
            && !existed
            && let Err(error) = self.undo_add(head, error).await
        {
            tracing::warn!(directory, %error, "cannot remove what is left of a new worktree");
        }
        added.map(drop)
    }

    /// Removes what a failed `git worktree add` leaves behind. Git itself removes the tree if it refuses, but not the
    /// branch, which it creates first.
    async fn undo_add(&self, head: WorktreeHead<'_>, error: &GitError) -> Result<(), GitError> {
        match error {
            // Somebody else created it at the same moment.
            GitError::Refused(why) if why.contains("a branch named") => return Ok(()),
            // Git cannot run at all.
            GitError::Start { .. } => return Ok(()),
            GitError::Refused(_) => {}
            GitError::Slow(_) | GitError::Long => self.remove(Force::ChangesAndLocks).await?,
        }
        match head {
            WorktreeHead::NewBranch { name, .. } => self.tree.remove_branch(name).await,
            WorktreeHead::Branch(_) | WorktreeHead::Commit(_) => Ok(()),
        }
    }

    /// Checks out the files of its commit.
    pub(crate) async fn check_out(&self) -> Result<(), GitError> {
        self.writer().run(&["reset", "--hard", "--quiet"]).await.map(drop)
    }

    /// Checks out another commit and removes everything that is not in it.
    pub(crate) async fn reset(&self, commit: &str) -> Result<(), GitError> {
        self.writer().run(&["reset", "--hard", "--quiet", commit]).await?;
        self.writer().run(&["clean", "-ffdx", "--quiet"]).await.map(drop)
    }

    /// Removes the tree. Its branch stays.
    pub(crate) async fn remove(&self, force: Force) -> Result<(), GitError> {
        let GitWorktree { directory, main, .. } = &self.tree;
        let git = self.tree.git_at(main).writing();
        match (main.is_dir(), self.exists()) {
            (true, true) => {
                let path = ["--", utf8(directory)?];
                git.run(&[&["worktree", "remove"][..], force.arguments(), &path].concat()).await.map(drop)
            }
            (true, false) => git.run(&["worktree", "prune"]).await.map(drop),
            // The repository is gone, so git cannot remove the worktree.
            (false, true) => {
                let (removed, failed) = (directory.clone(), directory.clone());
                let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(removed)).await;
                let removed = removed.map_err(std::io::Error::other).and_then(|removed| removed);
                removed.map_err(|error| GitError::Start { directory: failed, error })
            }
            (false, false) => Ok(()),
        }
    }
}

/// The path as an argument of git.
pub(crate) fn utf8(path: &Path) -> Result<&str, GitError> {
    path.to_str().ok_or_else(|| GitError::Refused(format!("{} is not UTF-8", path.display())))
}
