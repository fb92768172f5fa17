//! The linked worktrees of a project that users make: created for an agent to work in, reset, removed. Only worktrees
//! that git lists as linked to the project are ever touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{CreateLinkedWorktree, EventBody, HostError, LinkedWorktree, Project, Scope, WorktreeRemoval};
use exec::git::GitError;
use exec::{End, Spec};
use store::Location;
use tokio_util::sync::CancellationToken;

use super::git_worktree::{self, Force, GitWorktree, LockedWorktree, MAX_WORKTREES, WorktreeHead};
use super::vcs::Vcs;
use super::{git_error, no_repository};
use crate::Engine;
use crate::project::instance::Instance;

/// The folder of these worktrees, below the data directory.
const FOLDER: &str = "worktree";
/// How many names are tried before giving up.
const MAX_NAME_ATTEMPTS: usize = 20;
/// The longest name, in bytes; the branch and the folder use it.
const MAX_NAME_BYTES: usize = 60;
/// How long a start command may take.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// How much of a failed start command's output is reported, in bytes.
const START_OUTPUT_BYTES: usize = 2 << 10;

impl Engine {
    /// The directories of a project's linked worktrees; none outside a repository.
    pub(crate) fn worktree_directories(&self, scope: &Scope) -> Result<Vec<String>, HostError> {
        let project = self.inner.project_of(&self.inner.instance(scope.directory.as_ref()))?;
        Ok(if project.vcs.is_some() { project.sandboxes } else { Vec::new() })
    }

    /// Creates a linked worktree with a branch of its own. Its files are checked out after the call; then the project's
    /// start command and this one run in it. An event tells when it is ready.
    pub(crate) async fn add_worktree(
        &self,
        scope: &Scope,
        input: CreateLinkedWorktree,
    ) -> Result<LinkedWorktree, HostError> {
        let CreateLinkedWorktree { name, start_command } = input;
        let worktrees = ProjectWorktrees::open(self, scope)?;
        let created = worktrees.create(name.as_deref(), None).await?;
        let info = created.info.clone();
        worktrees.spawn_setup(created, start_command);
        Ok(info)
    }

    /// Creates a linked worktree without a branch, with its files, in a folder that the caller chose.
    pub async fn copy_project(&self, scope: &Scope, parent: &Path, name: Option<&str>) -> Result<PathBuf, HostError> {
        ProjectWorktrees::open(self, scope)?.copy_to(parent, name).await
    }

    /// Removes a linked worktree, and its branch if we created it. Uncommitted changes are lost with `force`, and stop the
    /// removal without.
    pub async fn discard_worktree(
        &self,
        scope: &Scope,
        directory: &str,
        force: bool,
    ) -> Result<WorktreeRemoval, HostError> {
        let force = if force { Force::Changes } else { Force::Nothing };
        ProjectWorktrees::open(self, scope)?.remove(directory, force).await
    }

    /// Resets a linked worktree to the default branch, removes everything else from it, and runs the project's start
    /// command again.
    pub(crate) async fn reset_worktree(&self, scope: &Scope, directory: &str) -> Result<(), HostError> {
        ProjectWorktrees::open(self, scope)?.reset(directory).await
    }

    /// Makes git forget linked worktrees whose folders are gone.
    pub async fn prune_linked_worktrees(&self, scope: &Scope) -> Result<(), HostError> {
        ProjectWorktrees::open(self, scope)?.prune().await
    }
}

/// The linked worktrees of a project, seen from one of its working trees.
pub(super) struct ProjectWorktrees {
    engine: Engine,
    pub(super) project: Project,
    /// The caller's directory; new worktrees start at the commit of its working tree.
    instance: Arc<Instance>,
}

/// A worktree without files that nobody else writes in yet.
pub(super) struct CreatedWorktree {
    pub(super) info: LinkedWorktree,
    tree: GitWorktree,
    locked: LockedWorktree,
    /// Its branch, if it was created with the worktree.
    new_branch: Option<String>,
}

impl CreatedWorktree {
    /// Removes it again, with its branch if that is new.
    pub(super) async fn discard(self) {
        let removed = match (self.locked.remove(Force::ChangesAndLocks).await, &self.new_branch) {
            (Ok(()), Some(branch)) => self.tree.remove_branch(branch).await,
            (removed, _) => removed,
        };
        if let Err(error) = removed {
            tracing::warn!(directory = self.info.directory, %error, "cannot remove a new worktree");
        }
    }
}

impl ProjectWorktrees {
    pub(super) fn open(engine: &Engine, scope: &Scope) -> Result<Self, HostError> {
        let instance = engine.inner.instance(scope.directory.as_ref());
        let project = engine.inner.project_of(&instance)?;
        if project.vcs.is_none() {
            return Err(no_repository(scope));
        }
        Ok(Self { engine: engine.clone(), project, instance })
    }

    fn tree(&self, directory: &Path) -> GitWorktree {
        GitWorktree::new(&self.engine.inner, &self.instance.exec, Path::new(&self.project.worktree), directory)
    }

    /// The caller's working tree.
    fn current(&self) -> Vcs {
        Vcs::whole_tree(&self.engine, &self.instance)
    }

    /// Creates a worktree below the data directory, on a branch of its own or on `branch`, which is created if it does not
    /// exist. [`Self::spawn_setup`] adds its files.
    pub(super) async fn create(&self, name: Option<&str>, branch: Option<&str>) -> Result<CreatedWorktree, HostError> {
        let folder = self.engine.inner.settings.inputs.dirs.data.join(FOLDER).join(&self.project.id);
        let requested = name.map(worktree_name).filter(|name| !name.is_empty());
        for attempt in 0..MAX_NAME_ATTEMPTS {
            let name = match &requested {
                Some(name) if attempt == 0 => name.clone(),
                Some(name) => format!("{name}-{}", api::slug()),
                None => api::slug(),
            };
            let own_branch = format!("{}{name}", LinkedWorktree::BRANCH_PREFIX);
            let directory = folder.join(&name);
            if directory.exists() {
                // Before its lock is acquired: its creator may hold it for the whole checkout.
                continue;
            }
            let tree = self.tree(&directory);
            let locked = tree.lock().await;
            let branch_name = branch.unwrap_or(&own_branch);
            let has_branch = tree.has_branch(branch_name).await.map_err(git_error)?;
            if locked.exists() || (branch.is_none() && has_branch) {
                continue;
            }
            self.add(&locked, Some(branch_name), has_branch).await?;
            let (branch, new_branch) = (branch_name.to_owned(), (!has_branch).then(|| branch_name.to_owned()));
            let directory = directory.to_string_lossy().into_owned();
            let info = LinkedWorktree { name, branch: Some(branch), directory };
            return Ok(CreatedWorktree { info, tree, locked, new_branch });
        }
        Err(HostError::Conflict(format!("There is no free name below {}; choose another name", folder.display())))
    }

    async fn copy_to(&self, parent: &Path, name: Option<&str>) -> Result<PathBuf, HostError> {
        let name = name.map(worktree_name).filter(|name| !name.is_empty()).unwrap_or_else(api::slug);
        let directory = parent.join(&name);
        let tree = self.tree(&directory);
        let locked = tree.lock().await;
        if locked.exists() {
            return Err(HostError::Conflict(format!("{} already exists", directory.display())));
        }
        self.add(&locked, None, false).await?;
        if let Err(error) = locked.check_out().await {
            let info = LinkedWorktree { name, branch: None, directory: directory.to_string_lossy().into_owned() };
            CreatedWorktree { info, tree, locked, new_branch: None }.discard().await;
            return Err(git_error(error));
        }
        self.announce_change().await?;
        Ok(directory)
    }

    /// Adds a worktree on a branch that exists or on a new one, or without a branch.
    async fn add(&self, locked: &LockedWorktree, branch: Option<&str>, exists: bool) -> Result<(), HostError> {
        if git_worktree::is_full(Path::new(&self.project.worktree)) {
            let why = format!("There are already {MAX_WORKTREES} worktrees; remove some first");
            return Err(HostError::Conflict(why));
        }
        let current = self.current().commit("HEAD").await.map_err(git_error)?;
        let no_commit = || HostError::Conflict("The repository has no commit yet, which a worktree needs".to_owned());
        let head = match branch {
            Some(branch) if exists => WorktreeHead::Branch(branch),
            Some(name) => WorktreeHead::NewBranch { name, commit: current.as_deref().ok_or_else(no_commit)? },
            None => WorktreeHead::Commit(current.as_deref().ok_or_else(no_commit)?),
        };
        locked.add(head).await.map_err(git_error)
    }

    /// Checks out the files of a new worktree and runs the start commands, the project's and then its own. An event tells
    /// when it is ready. Other writers wait for the checkout.
    pub(super) fn spawn_setup(self, created: CreatedWorktree, start_command: Option<String>) {
        let inner = self.engine.inner.clone();
        let tasks = self.engine.inner.clone();
        tasks.tasks.spawn(async move {
            let CreatedWorktree { info, locked, .. } = created;
            let set_up = self.set_up(Path::new(&info.directory), locked, start_command);
            let place = Location::new(info.directory.as_str(), self.project.id.as_str());
            let body = match inner.tasks.until_closing(set_up).await {
                // The engine shuts down; the worktree stays as it is.
                None => return,
                Some(Ok(())) => EventBody::WorktreeReady { name: info.name.clone(), branch: info.branch.clone() },
                Some(Err(message)) => EventBody::WorktreeFailed { message },
            };
            inner.store.publish_transient(&place, body);
        });
    }

    async fn set_up(&self, directory: &Path, locked: LockedWorktree, own: Option<String>) -> Result<(), String> {
        self.announce_change().await.map_err(|error| error.to_string())?;
        locked.check_out().await.map_err(|error| error.to_string())?;
        drop(locked);
        self.run_start_commands(directory, own).await
    }

    /// Runs the project's start command in a worktree, then the worktree's own.
    async fn run_start_commands(&self, directory: &Path, own: Option<String>) -> Result<(), String> {
        let common = self.project.commands.as_ref().and_then(|commands| commands.start.clone());
        for command in [common, own].into_iter().flatten().filter(|command| !command.trim().is_empty()) {
            let mut spec = Spec::shell(Path::new("/bin/sh"), &command, directory);
            spec.timeout = Some(START_TIMEOUT);
            spec.keep_bytes = START_OUTPUT_BYTES;
            let run = self.instance.exec.run(spec, CancellationToken::new(), &mut |_| {}).await;
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

    pub(super) async fn remove(&self, directory: &str, force: Force) -> Result<WorktreeRemoval, HostError> {
        let directory = self.find_linked(directory)?;
        let tree = self.tree(Path::new(directory));
        let locked = tree.lock().await;
        let branch = tree.branch().await;
        match locked.remove(force).await {
            Err(GitError::Refused(why)) if why.contains("use --force") => return Ok(WorktreeRemoval::HasChanges(why)),
            removed => removed.map_err(git_error)?,
        }
        if let Some(branch) = branch.filter(|branch| branch.starts_with(LinkedWorktree::BRANCH_PREFIX)) {
            tree.remove_branch(&branch).await.map_err(git_error)?;
        }
        self.engine.reload(&Scope::new(directory));
        let place = Location::new(directory, self.project.id.as_str());
        let body = EventBody::InstanceDisposed { directory: directory.to_owned() };
        self.engine.inner.store.publish_transient(&place, body);
        self.announce_change().await?;
        Ok(WorktreeRemoval::Removed(directory.to_owned()))
    }

    async fn reset(&self, directory: &str) -> Result<(), HostError> {
        let tree = self.tree(Path::new(self.find_linked(directory)?));
        let current = self.current();
        let default = current.default_branch().await.map_err(git_error)?;
        let no_default = || HostError::Conflict("There is no default branch to reset to".to_owned());
        let default = default.ok_or_else(no_default)?;
        let remote = current.commit(&format!("refs/remotes/origin/{default}")).await.map_err(git_error)?;
        let target = remote.unwrap_or_else(|| format!("refs/heads/{default}"));
        tree.lock().await.reset(&target).await.map_err(git_error)?;
        self.run_start_commands(&tree.directory, None).await.map_err(HostError::Conflict)
    }

    /// A linked worktree of this project, by the directory that a client names.
    fn find_linked(&self, directory: &str) -> Result<&str, HostError> {
        let is_same = |tree: &&String| {
            Path::new(tree.as_str()) == Path::new(directory)
                || Path::new(directory).canonicalize().is_ok_and(|real| real == Path::new(tree.as_str()))
        };
        let found = self.project.sandboxes.iter().find(is_same).map(String::as_str);
        found.ok_or_else(|| HostError::Invalid(format!("{directory} is not a linked worktree of this project")))
    }

    async fn prune(&self) -> Result<(), HostError> {
        let git = self.instance.exec.git(self.instance.worktree()).writing();
        git.run(&["worktree", "prune"]).await.map_err(git_error)?;
        self.announce_change().await
    }

    /// Announces that the project's worktrees have changed.
    async fn announce_change(&self) -> Result<(), HostError> {
        let Project { id, worktree, .. } = &self.project;
        let project = self.engine.project_by_id(&Scope::new(worktree.as_str()), id)?;
        self.engine.put_project(project).await?;
        let body = EventBody::ProjectDirectoriesUpdated { project_id: id.clone() };
        self.engine.inner.store.publish_transient(&Location::new(worktree.as_str(), id.as_str()), body);
        Ok(())
    }
}

/// A name that works as a folder and a branch: lower-case letters and digits, separated by dashes.
pub fn worktree_name(text: &str) -> String {
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
    use super::worktree_name;

    #[test]
    fn names_are_made_of_letters_digits_and_dashes() {
        for (text, name) in [
            ("My Feature! x", "my-feature-x"),
            ("--../..//etc", "etc"),
            ("ÜBER 7", "ber-7"),
            ("", ""),
            ("!!!", ""),
            (&"ab ".repeat(100), &"ab-".repeat(20)[..59]),
        ] {
            assert_eq!(worktree_name(text), name);
        }
    }
}
