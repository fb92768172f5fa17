//! Subagents that work in a git worktree of their own, so that several can change the same files at once and nothing
//! reaches the caller's tree unasked.
//!
//! A durable row comes first, then the tree and its branch, then the session, then the files: anything a crash
//! leaves behind has a row without a session and can be found. A worktree starts at the last commit of the caller's
//! tree, without uncommitted changes. The changes are committed to its branch whenever a task ends, and before a merge
//! or a removal.

mod contents;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{FileStatus, HostError, Json, Session, SessionId, Worktree, WorktreeDiff};
use exec::git::{self, GitError, MAX_NAMES};
use serde_json::json;
use store::{Batch, Location, StoreError, WorktreeRow};

use crate::error::store_error;
use crate::project::instance::Instance;
use crate::subagent::delegate::TaskEnd;
use crate::workspace::git_worktree::{self, Force, GitWorktree, MAX_WORKTREES, WorktreeHead};
use crate::{Engine, Error, Inner};
use contents::{ChangedFiles, MergeError, WorktreeContents};

/// The folder of all worktrees, below the data directory.
const FOLDER: &str = "isolated";
/// The maximum number of changed files listed in a result.
const FILES_MAX: usize = 50;
/// The maximum number of changed files stored in a task's metadata, for clients.
const RECORDED_MAX: usize = 1_000;
/// The maximum number of unrecorded folders that are examined.
const STRAYS_MAX: usize = 1000;
/// The minimum age of an unrecorded folder before it is removed: another database may know it and use it.
const STRAY_AGE: Duration = Duration::from_secs(24 * 3600);

/// The worktree of a session, as its durable row describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IsolatedWorktree(WorktreeRow);

impl std::ops::Deref for IsolatedWorktree {
    type Target = WorktreeRow;

    fn deref(&self) -> &WorktreeRow {
        &self.0
    }
}

/// A finished task's report about its worktree.
pub(crate) struct WorktreeReport {
    /// For the caller's model.
    pub(crate) text: String,
    /// For clients.
    pub(crate) metadata: Json,
}

/// A worktree in a list.
#[derive(Debug, Clone)]
pub struct ListedWorktree {
    /// The worktree itself.
    pub worktree: Worktree,
    /// The title of its session; `None` if the session is gone.
    pub title: Option<String>,
    /// Whether its session is running.
    pub running: bool,
    /// Why its files could not be read.
    pub problem: Option<String>,
}

/// The result of a cleanup.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CleanedWorktrees {
    /// The removed directories.
    pub removed: Vec<String>,
    /// Branches that were kept because of unmerged changes.
    pub kept: Vec<String>,
    /// What could not be removed, and why.
    pub problems: Vec<String>,
}

impl IsolatedWorktree {
    fn tree(&self, inner: &Inner) -> GitWorktree {
        let instance = inner.instance(Path::new(&self.origin));
        GitWorktree::new(inner, &instance.exec, Path::new(&self.main), Path::new(&self.directory))
    }

    fn contents<'a>(&'a self, inner: &'a Inner) -> WorktreeContents<'a> {
        WorktreeContents { tree: self.tree(inner), branch: &self.branch, scratch: &inner.settings.inputs.dirs.cache }
    }

    fn is_there(&self) -> bool {
        Path::new(&self.directory).join(".git").exists()
    }

    /// The unmerged changes, and their git tree.
    async fn changed(&self, inner: &Inner) -> Result<(ChangedFiles, String), GitError> {
        let contents = self.contents(inner);
        let tree = if self.filled && self.is_there() {
            contents.snapshot().await?
        } else {
            // Without files there is nothing to compare; use what is on the branch.
            let git = inner.exec.git(&self.main);
            let branch = git.commit(&format!("refs/heads/{}", self.branch)).await?;
            branch.unwrap_or_else(|| self.base.clone())
        };
        Ok((contents.files(&self.base, &tree).await?, tree))
    }

    fn to_api(&self, session: &SessionId, files: ChangedFiles) -> Worktree {
        Worktree {
            session_id: session.clone(),
            directory: self.directory.clone(),
            branch: self.branch.clone(),
            base: self.base.clone(),
            target: self.target.clone(),
            files: files.list,
            more: files.more,
        }
    }
}

impl Inner {
    fn isolated_folder(&self) -> PathBuf {
        self.settings.inputs.dirs.data.join(FOLDER)
    }

    /// The session whose worktree contains a directory.
    fn isolated_session(&self, directory: &Path) -> Option<SessionId> {
        let inside = directory.strip_prefix(self.isolated_folder()).ok()?;
        SessionId::parse(inside.components().nth(1)?.as_os_str().to_str()?).ok()
    }

    /// The worktree that contains a directory.
    pub(crate) fn isolated_at(&self, directory: &Path) -> Option<IsolatedWorktree> {
        self.isolated_worktree(&self.isolated_session(directory)?).ok()?
    }

    /// The worktree of a session, if it has one.
    pub(crate) fn isolated_worktree(&self, session: &SessionId) -> Result<Option<IsolatedWorktree>, StoreError> {
        Ok(self.store.worktree(session)?.map(IsolatedWorktree))
    }

    /// Where the events of a session are published. For a session with a worktree that is its caller's place.
    pub(crate) fn place(&self, session: &Session) -> Location {
        let isolated = self.isolated_at(session.directory.as_ref());
        let directory = isolated.map_or_else(|| session.directory.clone(), |isolated| isolated.0.origin);
        Location::new(directory.as_str(), session.project_id.as_str())
    }

    /// Creates the worktree of a session that is about to be created, or returns the refusal for the model.
    pub(crate) async fn create_worktree(
        &self,
        caller: &Instance,
        child: &mut Session,
    ) -> Result<Result<(), String>, Error> {
        let Some(parent) = child.parent_id.clone() else { return Ok(Ok(())) };
        let agent = child.agent.clone().unwrap_or_default();
        let refused = |why: &str| {
            Ok(Err(format!("The agent {agent} works in a git worktree of its own, which cannot be created: {why}")))
        };
        let project = &caller.loaded.project;
        if project.vcs.is_none() {
            return refused("this directory is not in a git repository. Use another agent, or tell the user");
        }
        let target = caller.worktree();
        let git = caller.exec.git(target);
        let base = match git.commit("HEAD").await {
            Ok(Some(base)) => base,
            Ok(None) => return refused("the repository has no commit yet"),
            Err(error) => return refused(&error.to_string()),
        };
        if git_worktree::is_full(&project.main) {
            let most =
                format!("there are {MAX_WORKTREES} worktrees already; `trefoil worktree clean` removes old ones");
            return refused(&most);
        }
        let missing = match git
            .head(&["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=dirty"], MAX_NAMES)
            .await
        {
            Ok((output, _)) => git::records(&output).count() as u64,
            Err(error) => return refused(&error.to_string()),
        };
        let directory = self.isolated_folder().join(&project.id).join(child.id.as_str());
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let isolated = IsolatedWorktree(WorktreeRow {
            parent,
            origin: text(&caller.origin),
            target: text(target),
            main: text(&project.main),
            directory: text(&directory),
            branch: format!("trefoil/{}", child.id),
            base,
            missing,
            filled: false,
        });
        self.record_worktree(&caller.place, &child.id, Some(&isolated)).await?;
        let head = WorktreeHead::NewBranch { name: &isolated.branch, commit: &isolated.base };
        if let Err(error) = isolated.tree(self).lock().await.add(head).await {
            self.record_worktree(&caller.place, &child.id, None).await?;
            return refused(&error.to_string());
        }
        let path = caller.path();
        child.directory = text(&if path.is_empty() { directory } else { directory.join(path) });
        Ok(Ok(()))
    }

    async fn record_worktree(
        &self,
        place: &Location,
        session: &SessionId,
        isolated: Option<&IsolatedWorktree>,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::new(place).durable();
        batch.worktree(session, isolated.map(|isolated| &isolated.0));
        // Retry: the worktree changes together with the record, and giving up early would leave them inconsistent.
        self.commit_with_retry(None, batch).await.map(drop)
    }

    /// Makes a session's worktree ready to work in. Returns the note for its model, `None` without a worktree, or the
    /// error for its caller.
    pub(crate) async fn prepare_worktree(&self, session: &SessionId) -> Result<Result<Option<String>, String>, Error> {
        let Some(found) = self.store.session(session)? else { return Ok(Ok(None)) };
        let directory = Path::new(&found.directory);
        let Some(mut isolated) = self.isolated_at(directory) else {
            return Ok(if self.isolated_session(directory).is_some() { Err(gone_text(session)) } else { Ok(None) });
        };
        if !isolated.filled {
            let filled = isolated.tree(self).lock().await.check_out().await.map_err(|error| error.to_string());
            // The caller's folder may not be in any commit.
            let filled = filled.and_then(|()| std::fs::create_dir_all(directory).map_err(|error| error.to_string()));
            if let Err(why) = filled {
                return Ok(Err(format!("The files of the worktree of task {session} cannot be checked out: {why}")));
            }
            isolated.0.filled = true;
            self.record_worktree(&self.place(&found), session, Some(&isolated)).await?;
        } else if !directory.is_dir() {
            return Ok(Err(gone_text(session)));
        }
        let WorktreeRow { target, directory, branch, .. } = &isolated.0;
        Ok(Ok(Some(format!(
            "You work in a git worktree of your own, {directory}, on the branch {branch}. It holds what was \
             committed in {target}: read and change files here, not there, even if you are given a path below \
             {target}. Your changes are kept on your branch; your caller decides whether to merge them. You need \
             not commit."
        ))))
    }

    /// Commits the changes in a session's worktree after its task has ended, and reports them.
    pub(crate) async fn commit_and_report(&self, session: &SessionId) -> Option<WorktreeReport> {
        let isolated = self.isolated_worktree(session).ok()??;
        let WorktreeRow { directory, branch, base, target, missing, .. } = &isolated.0;
        let mut metadata = json!({ "directory": directory, "branch": branch, "base": base, "target": target });
        let files = match self.commit_changes(session, &isolated).await {
            Ok((files, _)) => files,
            Err(error) => {
                let text = format!("Its changes are unknown: {error}");
                metadata["error"] = json!(error.to_string());
                return Some(WorktreeReport { text: worktree_block(&isolated, &text), metadata });
            }
        };
        // A task's record is no place for thousands of files.
        metadata["files"] = json!(files.list[..files.list.len().min(RECORDED_MAX)]);
        let changed = !files.list.is_empty();
        let mut text = if changed { file_list(&files) } else { "Nothing was changed in it.".to_owned() };
        if changed {
            text.push_str(&format!(
                "\nNothing of this is in {target} yet. `git diff {base} {branch}` shows it; to apply it, run `git \
                 diff --binary {base} {branch} | git apply --3way`, or tell the user about `trefoil worktree merge \
                 {session}`."
            ));
        }
        if *missing > 0 {
            text.push_str(&format!(
                "\nThe work began at the last commit, without the {missing} files of {target} that differed from it."
            ));
        }
        Some(WorktreeReport { text: worktree_block(&isolated, &text), metadata })
    }

    /// Adds the worktree's report to the end of a task, and returns its metadata for clients.
    pub(crate) async fn add_worktree_report(&self, child: &SessionId, end: TaskEnd) -> (TaskEnd, Option<Json>) {
        if matches!(end, TaskEnd::Cancelled) {
            // The caller that cancels the task is waiting.
            return (end, None);
        }
        let Some(WorktreeReport { text, metadata }) = self.commit_and_report(child).await else { return (end, None) };
        // The report goes before the answer, which may be cut off.
        let end = match end {
            TaskEnd::Done(answer) => TaskEnd::Done(format!("{text}\n\n{answer}")),
            TaskEnd::Failed(why) => TaskEnd::Failed(format!("{why}\n\n{text}")),
            TaskEnd::Cancelled => TaskEnd::Cancelled,
        };
        (end, Some(metadata))
    }

    /// Commits the changes to the branch. Returns the unmerged files, and the commit.
    async fn commit_changes(
        &self,
        session: &SessionId,
        isolated: &IsolatedWorktree,
    ) -> Result<(ChangedFiles, String), GitError> {
        let (files, tree) = isolated.changed(self).await?;
        if !isolated.filled || !isolated.is_there() {
            return Ok((files, tree));
        }
        let title = self.store.session(session).ok().flatten().map(|session| session.title);
        let message = format!("{}\n\nSession: {session}", title.as_deref().unwrap_or("Work of a subagent"));
        let commit = isolated.contents(self).commit(&tree, &message).await?;
        Ok((files, commit))
    }

    /// Removes a worktree whose session is gone or unwanted. Unmerged changes stay on the branch; returns true if there
    /// are any.
    async fn remove_worktree(&self, session: &SessionId, isolated: &IsolatedWorktree) -> Result<bool, GitError> {
        let inside = Path::new(&isolated.directory).starts_with(self.isolated_folder());
        if !inside {
            return Err(GitError::Refused(format!("{} is not a folder of Trefoil's", isolated.directory)));
        }
        let unmerged = if Path::new(&isolated.main).is_dir() {
            !self.commit_changes(session, isolated).await?.0.list.is_empty()
        } else {
            false
        };
        let tree = isolated.tree(self);
        tree.lock().await.remove(Force::ChangesAndLocks).await?;
        if !unmerged {
            tree.remove_branch(&isolated.branch).await?;
        }
        Ok(unmerged)
    }

    /// Removes the worktree of a session that is being deleted. A later cleanup finds what fails here.
    pub(crate) async fn drop_worktree(&self, session: &Session, batch: &mut Batch) {
        let Ok(Some(isolated)) = self.isolated_worktree(&session.id) else { return };
        match self.remove_worktree(&session.id, &isolated).await {
            Ok(unmerged) => {
                if unmerged {
                    tracing::info!(branch = isolated.branch, "the branch of a deleted session has unmerged changes");
                }
                batch.worktree(&session.id, None);
            }
            Err(error) => tracing::warn!(session = %session.id, %error, "cannot remove a worktree"),
        }
    }

    fn worktree_of(&self, id: &SessionId) -> Result<(Session, IsolatedWorktree), HostError> {
        let session = self.session(id)?;
        let isolated = self.isolated_worktree(id).map_err(store_error)?;
        Ok((session, isolated.ok_or_else(|| HostError::not_found("worktree", id.as_str()))?))
    }

    pub(crate) async fn worktree_diff(&self, id: &SessionId) -> Result<WorktreeDiff, HostError> {
        let (_, isolated) = self.worktree_of(id)?;
        let (files, tree) = isolated.changed(self).await.map_err(git_error)?;
        let (patch, whole) = isolated.contents(self).patch(&isolated.base, &tree).await.map_err(git_error)?;
        Ok(WorktreeDiff { worktree: isolated.to_api(id, files), patch, cut: !whole })
    }

    pub(crate) async fn worktree_merge(&self, id: &SessionId) -> Result<Worktree, HostError> {
        let _guard = self.worktrees.lock_merging().await;
        let (session, mut isolated) = self.worktree_of(id)?;
        self.ensure_idle(id)?;
        let target = Path::new(&isolated.target);
        if !target.is_dir() {
            let gone = format!("{} is gone; its branch {} has the changes", isolated.target, isolated.branch);
            return Err(HostError::Conflict(gone));
        }
        let (files, commit) = self.commit_changes(id, &isolated).await.map_err(git_error)?;
        let worktree = isolated.to_api(id, files);
        if !worktree.files.is_empty() {
            let merged = isolated.contents(self).merge(&isolated.base, &commit, target).await;
            merged.map_err(|error| match error {
                MergeError::Git(error) => git_error(error),
                conflict => HostError::Conflict(conflict.to_string()),
            })?;
            isolated.0.base = commit;
            self.record_worktree(&self.place(&session), id, Some(&isolated)).await.map_err(store_error)?;
        }
        Ok(worktree)
    }

    pub(crate) async fn worktree_discard(&self, id: &SessionId) -> Result<Worktree, HostError> {
        let _guard = self.worktrees.lock_merging().await;
        let (session, isolated) = self.worktree_of(id)?;
        self.ensure_idle(id)?;
        // A broken tree is discarded too, although its changes are unknown.
        let files = isolated.changed(self).await.map_or_else(|_| ChangedFiles::default(), |(files, _)| files);
        let tree = isolated.tree(self);
        tree.lock().await.remove(Force::ChangesAndLocks).await.map_err(git_error)?;
        tree.remove_branch(&isolated.branch).await.map_err(git_error)?;
        let place = self.place(&session);
        self.record_worktree(&place, id, None).await.map_err(store_error)?;
        Ok(isolated.to_api(id, files))
    }

    fn all_isolated_worktrees(&self) -> Result<Vec<(SessionId, IsolatedWorktree)>, StoreError> {
        let rows = self.store.worktrees()?.into_iter();
        Ok(rows.map(|(session, row)| (session, IsolatedWorktree(row))).collect())
    }

    fn is_held(&self, session: &SessionId) -> Result<bool, StoreError> {
        Ok(self.store.lease_holder(session)?.is_some_and(|holder| holder.alive))
    }

    /// Whether a session is working, or will be.
    fn is_in_use(&self, session: &SessionId) -> Result<bool, StoreError> {
        Ok(self.is_held(session)?
            || self.store.current_turn(session)?.is_some()
            || !self.store.tasks_for(session)?.is_empty())
    }

    /// Removes worktrees without a session. With `unused`, also those of idle sessions without unmerged changes, and
    /// old unrecorded ones.
    async fn clean_worktrees(&self, unused: bool) -> Result<CleanedWorktrees, StoreError> {
        let _guard = self.worktrees.lock_merging().await;
        let mut cleaned = CleanedWorktrees::default();
        let known = self.all_isolated_worktrees()?;
        for (id, isolated) in &known {
            let removed = match self.store.session(id)? {
                // Its session may still be about to be created.
                None if self.is_held(&isolated.parent)? => continue,
                None => self.remove_worktree(id, isolated).await,
                Some(_) if !unused || self.is_in_use(id)? => continue,
                Some(_) => match isolated.changed(self).await {
                    Ok((files, _)) if files.list.is_empty() => self.remove_worktree(id, isolated).await,
                    Ok(_) => continue,
                    Err(error) => Err(error),
                },
            };
            match removed {
                Ok(unmerged) => {
                    let place = Location::new(isolated.origin.as_str(), "");
                    self.record_worktree(&place, id, None).await?;
                    cleaned.removed.push(isolated.directory.clone());
                    cleaned.kept.extend(unmerged.then(|| isolated.branch.clone()));
                }
                Err(error) => cleaned.problems.push(format!("{}: {error}", isolated.directory)),
            }
        }
        if unused {
            for (id, directory) in self.strays() {
                if known.iter().any(|(known, _)| *known == id) {
                    continue;
                }
                match self.remove_stray(&id, &directory).await {
                    Ok((unmerged, branch)) => {
                        cleaned.removed.push(directory.to_string_lossy().into_owned());
                        cleaned.kept.extend(unmerged.then_some(branch));
                    }
                    Err(error) => cleaned.problems.push(format!("{}: {error}", directory.display())),
                }
            }
        }
        Ok(cleaned)
    }

    /// Old folders that look like worktrees made here.
    fn strays(&self) -> Vec<(SessionId, PathBuf)> {
        let entries =
            |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let trees = entries(&self.isolated_folder()).flat_map(|project| entries(&project).collect::<Vec<_>>());
        let tree = |path: PathBuf| Some((SessionId::parse(path.file_name()?.to_str()?).ok()?, path));
        // Git writes this file once.
        let made = |path: &Path| path.join(".git").symlink_metadata().and_then(|file| file.modified());
        let old =
            |(_, path): &(_, PathBuf)| made(path).is_ok_and(|made| made.elapsed().is_ok_and(|age| age >= STRAY_AGE));
        trees.filter_map(tree).filter(old).take(STRAYS_MAX).collect()
    }

    /// Removes an unrecorded worktree. Its changes stay on its branch.
    async fn remove_stray(&self, id: &SessionId, directory: &Path) -> Result<(bool, String), GitError> {
        let git = self.exec.git(directory);
        let common = git.text(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).await?;
        let main = Path::new(&common).parent().unwrap_or(directory).to_owned();
        let fork = ["merge-base", "HEAD"];
        let head = self.exec.git(&main).text(&["rev-parse", "--verify", "HEAD^{commit}"]).await?;
        let base = git.text(&[&fork[..], &[&head]].concat()).await?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let isolated = IsolatedWorktree(WorktreeRow {
            parent: id.clone(),
            origin: text(&main),
            target: text(&main),
            main: text(&main),
            directory: text(directory),
            branch: format!("trefoil/{id}"),
            base,
            missing: 0,
            // Without an index its files were never checked out.
            filled: !git.head(&["ls-files", "--cached", "-z"], 1).await?.0.is_empty(),
        });
        Ok((self.remove_worktree(id, &isolated).await?, isolated.0.branch))
    }
}

impl Engine {
    /// All worktrees of subagents.
    pub async fn worktrees(&self) -> Result<Vec<ListedWorktree>, HostError> {
        let inner: &Arc<Inner> = &self.inner;
        let mut listed = Vec::new();
        for (id, isolated) in inner.all_isolated_worktrees().map_err(store_error)? {
            let title = inner.store.session(&id).map_err(store_error)?.map(|session| session.title);
            let running = inner.is_held(&id).map_err(store_error)?;
            let (files, problem) = match isolated.changed(inner).await {
                Ok((files, _)) => (files, None),
                Err(error) => (ChangedFiles::default(), Some(error.to_string())),
            };
            listed.push(ListedWorktree { worktree: isolated.to_api(&id, files), title, running, problem });
        }
        Ok(listed)
    }

    /// Removes worktrees that crashes and deletions left behind. With `unused`, also those without unmerged changes,
    /// and those missing from the database for a day.
    pub async fn clean_worktrees(&self, unused: bool) -> Result<CleanedWorktrees, HostError> {
        self.inner.clean_worktrees(unused).await.map_err(store_error)
    }
}

fn gone_text(session: &SessionId) -> String {
    format!("The worktree of task {session} is gone: it was discarded or cleaned up. Omit task_id to start a new task.")
}

fn git_error(error: GitError) -> HostError {
    HostError::Failed(format!("git failed: {error}"))
}

fn worktree_block(isolated: &IsolatedWorktree, text: &str) -> String {
    let WorktreeRow { directory, branch, base, .. } = &isolated.0;
    format!("<task_worktree>\ndirectory: {directory}\nbranch: {branch}\nbase: {base}\n{text}\n</task_worktree>")
}

/// The changed files, as text for the caller's model.
fn file_list(files: &ChangedFiles) -> String {
    let line = |file: &FileStatus| {
        let status = match file.status {
            api::FileDiffStatus::Added => "added",
            api::FileDiffStatus::Deleted => "deleted",
            api::FileDiffStatus::Modified => "modified",
        };
        format!("\n- {} ({status}, +{} -{})", file.path, file.added, file.removed)
    };
    let listed: String = files.list.iter().take(FILES_MAX).map(line).collect();
    let (count, at_least) = (files.list.len(), if files.more { "more than " } else { "" });
    let more = count.saturating_sub(FILES_MAX);
    let more = if more > 0 { format!("\n- and {at_least}{more} more") } else { String::new() };
    format!("changed files ({at_least}{count}):{listed}{more}")
}
