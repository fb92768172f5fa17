//! The linked worktrees of a project: created for an agent to work in, reset, removed. Only worktrees that git lists as
//! linked to the project are ever touched.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use api::{EventBody, Host as _, HostError, Project, Scope};
use axum::http::StatusCode;
use exec::git::{Git, GitError};
use exec::{End, Exec, Spec};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::State;
use crate::error::Error;
use crate::git::vcs::Vcs;

/// The most linked worktrees of a project.
const MAX_WORKTREES: usize = 200;
/// How many names are tried before giving up.
const MAX_NAME_ATTEMPTS: usize = 20;
/// The longest name, in bytes; the branch and the folder use it.
const MAX_NAME_BYTES: usize = 60;
/// How long a start command may take.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// How much of a failed start command's output is reported, in bytes.
const START_OUTPUT_BYTES: usize = 2 << 10;

/// A linked worktree.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Worktree")]
pub struct Worktree {
    /// Its name.
    pub name: String,
    /// Its branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Its path.
    pub directory: String,
}

/// Why a worktree was not created, reset or removed.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// The project is not a git repository.
    #[error("There is no git repository here, so there are no worktrees; POST /project/git/init makes one")]
    NotGit,
    /// It was not created.
    #[error("{0}")]
    Create(String),
    /// It was not removed.
    #[error("{why}")]
    Remove {
        /// The cause.
        why: String,
        /// Whether only uncommitted changes prevent it, so that force would remove it.
        is_dirty: bool,
    },
    /// It was not reset.
    #[error("{0}")]
    Reset(String),
    /// The engine failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<WorktreeError> for Error {
    fn from(error: WorktreeError) -> Self {
        let name = match error {
            WorktreeError::NotGit => "WorktreeNotGitError",
            WorktreeError::Create(_) => "WorktreeCreateFailedError",
            WorktreeError::Remove { .. } => "WorktreeRemoveFailedError",
            WorktreeError::Reset(_) => "WorktreeResetFailedError",
            WorktreeError::Host(error) => return error.into(),
        };
        Self::named(StatusCode::BAD_REQUEST, name, error.to_string())
    }
}

/// Locks for the git commands that write in a worktree, by directory: a second git fails while another holds its index.
#[derive(Default)]
pub struct WorktreeLocks(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl WorktreeLocks {
    fn of(&self, directory: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(directory).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(directory.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// The linked worktrees of a project.
pub struct Worktrees {
    state: Arc<State>,
    /// The project.
    pub project: Project,
    /// The working tree of the request; new worktrees start at its commit.
    current: Vcs,
    git: Git,
    exec: Exec,
}

impl Worktrees {
    /// The worktrees of the scope's project.
    pub async fn for_scope(state: &Arc<State>, scope: &Scope) -> Result<Self, WorktreeError> {
        let project = state.engine.project(scope).await?;
        if project.vcs.is_none() {
            return Err(WorktreeError::NotGit);
        }
        let root = state.engine.loaded(scope).project.worktree.clone();
        let exec = state.engine.exec_at(scope);
        let current = Vcs::new(&exec, &root, &root, &state.engine.inputs().dirs.cache);
        Ok(Self { state: state.clone(), project, current, git: exec.git(root).writing(), exec })
    }

    /// Creates a worktree with a branch of its own, below the data directory. [`Self::spawn_setup`] adds its files.
    pub async fn create(&self, name: Option<&str>, branch: Option<&str>) -> Result<Worktree, WorktreeError> {
        let folder = self.state.engine.inputs().dirs.data.join("worktree").join(&self.project.id);
        let requested = name.map(slug).filter(|name| !name.is_empty());
        for attempt in 0..MAX_NAME_ATTEMPTS {
            let name = match &requested {
                Some(name) if attempt == 0 => name.clone(),
                Some(name) => format!("{name}-{}", api::slug()),
                None => api::slug(),
            };
            let own_branch = format!("opencode/{name}");
            let directory = folder.join(&name);
            let is_taken = branch.is_none() && self.has_branch(&own_branch).await?;
            if !is_taken && !directory.exists() {
                let branch = branch.unwrap_or(&own_branch);
                self.add(&directory, Some(branch)).await?;
                let directory = directory.to_string_lossy().into_owned();
                return Ok(Worktree { name, branch: Some(branch.to_owned()), directory });
            }
        }
        Err(WorktreeError::Create(format!("There is no free name below {}; choose another name", folder.display())))
    }

    /// Creates a worktree without a branch, with its files, below a folder that the client chose.
    pub async fn copy_to(&self, parent: &Path, name: Option<&str>) -> Result<PathBuf, WorktreeError> {
        let name = name.map(slug).filter(|name| !name.is_empty()).unwrap_or_else(api::slug);
        let directory = parent.join(name);
        if directory.exists() {
            return Err(WorktreeError::Create(format!("{} already exists", directory.display())));
        }
        self.add(&directory, None).await?;
        self.check_out(&directory).await.map_err(WorktreeError::Create)?;
        self.announce_change().await?;
        Ok(directory)
    }

    async fn add(&self, directory: &Path, branch: Option<&str>) -> Result<(), WorktreeError> {
        if self.project.sandboxes.len() >= MAX_WORKTREES {
            return Err(WorktreeError::Create(format!(
                "There are already {MAX_WORKTREES} worktrees; remove some first"
            )));
        }
        let directory = directory.to_str().ok_or_else(|| WorktreeError::Create("The path is not UTF-8".into()))?;
        let mut arguments = vec!["worktree", "add", "--no-checkout"];
        match branch {
            Some(branch) if self.has_branch(branch).await? => arguments.extend(["--", directory, branch]),
            Some(branch) => arguments.extend(["-b", branch, "--", directory]),
            None => arguments.extend(["--detach", "--", directory]),
        }
        self.git.run(&arguments).await.map_err(|error| WorktreeError::Create(error.to_string()))?;
        Ok(())
    }

    async fn has_branch(&self, name: &str) -> Result<bool, WorktreeError> {
        let found = self.current.commit(&format!("refs/heads/{name}")).await;
        Ok(found.map_err(|error| WorktreeError::Create(error.to_string()))?.is_some())
    }

    /// Checks out the files of a new worktree and runs the start commands, the project's and then its own. An event tells
    /// when it is ready.
    pub fn spawn_setup(self, tree: Worktree, start: Option<String>) {
        // Taken here: a request that follows at once waits for the checkout.
        let checkout = self.state.worktree_locks.of(&tree.directory).try_lock_owned().ok();
        tokio::spawn(async move {
            let closing = self.state.closing.clone();
            let result = closing.run_until_cancelled(self.set_up(&tree, start, checkout)).await;
            let body = match result {
                // The server stops; the worktree stays as it is.
                None => return,
                Some(Ok(())) => EventBody::WorktreeReady { name: tree.name, branch: tree.branch },
                Some(Err(message)) => EventBody::WorktreeFailed { message },
            };
            self.state.publish(&tree.directory, &self.project.id, body);
        });
    }

    async fn set_up(
        &self,
        tree: &Worktree,
        start: Option<String>,
        checkout: Option<OwnedMutexGuard<()>>,
    ) -> Result<(), String> {
        let directory = Path::new(&tree.directory);
        self.announce_change().await.map_err(|error| error.to_string())?;
        self.check_out(directory).await?;
        drop(checkout);
        self.run_start_commands(directory, start).await
    }

    async fn check_out(&self, directory: &Path) -> Result<(), String> {
        let reset = self.writing_git(directory).run(&["reset", "--hard", "--quiet"]).await;
        reset.map(drop).map_err(|error| error.to_string())
    }

    /// Git for changes in another worktree of the project.
    fn writing_git(&self, tree: impl Into<PathBuf>) -> Git {
        self.exec.git(tree).with_long_timeout().writing()
    }

    /// Runs the start commands in a worktree.
    async fn run_start_commands(&self, directory: &Path, own: Option<String>) -> Result<(), String> {
        let common = self.project.commands.as_ref().and_then(|commands| commands.start.clone());
        for command in [common, own].into_iter().flatten().filter(|command| !command.trim().is_empty()) {
            let mut spec = Spec::shell(Path::new("/bin/sh"), &command, directory);
            spec.timeout = Some(START_TIMEOUT);
            spec.keep_bytes = START_OUTPUT_BYTES;
            let run = self.exec.run(spec, CancellationToken::new(), &mut |_| {}).await;
            let outcome = run.map_err(|error| format!("The start command cannot run: {error}"))?;
            let failure = match outcome.end {
                End::Exited(0) => continue,
                End::Exited(code) => format!("ended with exit code {code}"),
                End::TimedOut => format!("did not end within {} minutes", START_TIMEOUT.as_secs() / 60),
                End::Signalled(signal) => format!("was ended by signal {signal}"),
                End::Cancelled => "was cancelled".to_owned(),
            };
            return Err(format!("The start command {failure}: {}", outcome.output.text.trim()));
        }
        Ok(())
    }

    /// Removes a worktree with its changes, and its branch if we created it.
    pub async fn remove(&self, directory: &str, force: bool) -> Result<(), WorktreeError> {
        let refused = |why: String| WorktreeError::Remove { why, is_dirty: false };
        let tree = self.find_linked(directory).map_err(refused)?;
        let _lock = self.state.worktree_locks.of(tree).lock_owned().await;
        let branch = self.exec.git(tree).text(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await.ok();
        let main = self.writing_git(&self.project.worktree);
        let arguments = ["worktree", "remove", "--force", "--", tree];
        let arguments: Vec<&str> = arguments.into_iter().filter(|word| force || *word != "--force").collect();
        if let Err(error) = main.run(&arguments).await {
            let is_dirty = matches!(&error, GitError::Refused(why) if why.contains("use --force"));
            return Err(WorktreeError::Remove { why: error.to_string(), is_dirty });
        }
        if let Some(branch) = branch.filter(|branch| branch.starts_with("opencode/")) {
            main.run(&["branch", "-D", "--", &branch]).await.map_err(|error| refused(error.to_string()))?;
        }
        self.state.dispose(&Scope::new(tree));
        self.announce_change().await
    }

    /// Resets a worktree to the default branch, removes everything else from it, and runs the project's start command
    /// again.
    pub async fn reset(&self, directory: &str) -> Result<(), WorktreeError> {
        let failed = |error: GitError| WorktreeError::Reset(error.to_string());
        let tree = self.find_linked(directory).map_err(WorktreeError::Reset)?;
        let git = self.writing_git(tree);
        let default = self.current.default_branch().await.map_err(failed)?;
        let default = default.ok_or_else(|| WorktreeError::Reset("There is no default branch to reset to".into()))?;
        let remote = format!("refs/remotes/origin/{default}");
        let target = match self.current.commit(&remote).await.map_err(failed)? {
            Some(commit) => commit,
            None => format!("refs/heads/{default}"),
        };
        {
            let _lock = self.state.worktree_locks.of(tree).lock_owned().await;
            git.run(&["reset", "--hard", "--quiet", &target]).await.map_err(failed)?;
            git.run(&["clean", "-ffdx", "--quiet"]).await.map_err(failed)?;
        }
        self.run_start_commands(Path::new(tree), None).await.map_err(WorktreeError::Reset)
    }

    /// A linked worktree of this project, by the directory that a client names.
    fn find_linked(&self, directory: &str) -> Result<&str, String> {
        let is_same = |tree: &&String| {
            Path::new(tree.as_str()) == Path::new(directory)
                || Path::new(directory).canonicalize().is_ok_and(|real| real == Path::new(tree.as_str()))
        };
        let found = self.project.sandboxes.iter().find(is_same);
        found.map(String::as_str).ok_or_else(|| format!("{directory} is not a linked worktree of this project"))
    }

    /// Forgets worktrees whose folders are gone.
    pub async fn prune(&self) -> Result<(), WorktreeError> {
        let pruned = self.git.run(&["worktree", "prune"]).await;
        pruned.map_err(|error| WorktreeError::Remove { why: error.to_string(), is_dirty: false })?;
        self.announce_change().await
    }

    /// Announces that the project's worktrees have changed.
    async fn announce_change(&self) -> Result<(), WorktreeError> {
        let engine = &self.state.engine;
        let project = engine.project_by_id(&Scope::new(self.project.worktree.as_str()), &self.project.id)?;
        engine.put_project(project).await?;
        let body = EventBody::ProjectDirectoriesUpdated { project_id: self.project.id.clone() };
        self.state.publish(&self.project.worktree, &self.project.id, body);
        Ok(())
    }
}

/// A name that works as a folder and a branch: lower-case letters and digits, separated by dashes.
pub fn slug(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() >= MAX_NAME_BYTES {
            break;
        }
    }
    name.truncate(name.trim_end_matches('-').len());
    name
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn slugs() {
        for (text, name) in [
            ("My Feature! x", "my-feature-x"),
            ("--../..//etc", "etc"),
            ("ÜBER 7", "ber-7"),
            ("", ""),
            ("!!!", ""),
            (&"ab ".repeat(100), &"ab-".repeat(20)[..59]),
        ] {
            assert_eq!(slug(text), name);
        }
    }
}
