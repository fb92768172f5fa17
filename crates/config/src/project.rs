//! Determines the project of a directory.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, UNIX_EPOCH};

use crate::files::{self, Access, Durability};
use crate::trust::content_hash;

/// The project of everything outside a repository, and of repositories without a commit.
pub const GLOBAL_PROJECT: &str = "global";
/// The maximum number of linked worktrees to examine.
const MAX_TREES: usize = 1000;
/// The maximum number of parent directories to examine.
const MAX_PARENTS: usize = 128;
/// How long git may take to find the first commit of a large history; it is asked once per repository.
const GIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of git's answer, which has a line per root commit.
const MAX_ANSWER_BYTES: u64 = 1 << 16;

/// The project of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectInfo {
    /// The first commit of the repository, or [`GLOBAL_PROJECT`].
    pub id: String,
    /// The root of the worktree; outside a repository the directory itself.
    pub worktree: PathBuf,
    /// The main worktree, which differs for a linked worktree; `/` outside a repository.
    pub main: PathBuf,
    /// `git`, in a repository.
    pub vcs: Option<String>,
}

/// Determines the project of `directory`. Git is asked for the first commit once per repository; the answer is cached
/// below `state`.
pub fn project_info(directory: &Path, state: &Path) -> ProjectInfo {
    let root = directory.ancestors().take(MAX_PARENTS).find_map(|at| Some((at, git_dir(at)?)));
    match root {
        None => ProjectInfo {
            id: GLOBAL_PROJECT.to_owned(),
            worktree: directory.to_owned(),
            main: PathBuf::from("/"),
            vcs: None,
        },
        Some((worktree, git)) => ProjectInfo {
            id: first_commit(worktree, &git, state).unwrap_or_else(|| GLOBAL_PROJECT.to_owned()),
            worktree: worktree.to_owned(),
            // The git directory of a bare repository or submodule has another name, and no worktree next to it.
            main: git.parent().filter(|_| git.ends_with(".git")).unwrap_or(worktree).to_owned(),
            vcs: Some("git".to_owned()),
        },
    }
}

/// The existing linked worktrees of a main worktree, sorted by path.
pub fn linked_trees(main: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(main.join(".git/worktrees")) else { return Vec::new() };
    let tree = |entry: fs::DirEntry| {
        // It contains the path of the worktree's own `.git` file.
        let text = files::read(&entry.path().join("gitdir"), 1 << 12).ok()??;
        let link = entry.path().join(text.trim());
        link.exists().then(|| link.parent().map(Path::to_owned)).flatten()
    };
    let mut trees: Vec<PathBuf> = entries.take(MAX_TREES).filter_map(Result::ok).filter_map(tree).collect();
    trees.sort();
    trees
}

/// The git directory that holds the history, if `at` is the root of a worktree.
fn git_dir(at: &Path) -> Option<PathBuf> {
    let path = at.join(".git");
    let metadata = fs::metadata(&path).ok()?;
    if metadata.is_dir() {
        // A stray empty folder is not a repository.
        return path.join("HEAD").exists().then_some(path);
    }
    // In a linked worktree or submodule it is a file that names the git directory, which may name the common one.
    let text = files::read(&path, 1 << 12).ok()??;
    let own = at.join(text.strip_prefix("gitdir:")?.trim());
    match files::read(&own.join("commondir"), 1 << 12) {
        Ok(Some(common)) => fs::canonicalize(own.join(common.trim())).ok(),
        _ => own.join("HEAD").exists().then_some(own),
    }
}

fn first_commit(worktree: &Path, git: &Path, state: &Path) -> Option<String> {
    let cached = state.join("projects").join(repository_key(git)?);
    if let Ok(Some(id)) = files::read(&cached, 64)
        && is_commit(&id)
    {
        return Some(id);
    }
    let id = ask_git(worktree)?;
    // If it cannot be cached, we ask again next time.
    let _ = files::replace(&cached, id.as_bytes(), Access::Owner, Durability::Cache);
    Some(id)
}

/// Identifies this repository: one recreated at the same path has another birth time.
fn repository_key(git: &Path) -> Option<String> {
    let metadata = fs::metadata(git).ok()?;
    let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let text = format!("{}\n{}\n{}\n{}", git.display(), metadata.dev(), metadata.ino(), born.as_nanos());
    let mut key = content_hash(text.as_bytes());
    key.truncate(32);
    Some(key)
}

fn is_commit(text: &str) -> bool {
    (text.len() == 40 || text.len() == 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn ask_git(worktree: &Path) -> Option<String> {
    let mut command = Command::new("git");
    // The repository must not make git start anything; `exec::git` does the same for every other command.
    command.args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]);
    command.args(["-c", "safe.bareRepository=explicit", "rev-list", "--max-parents=0", "HEAD"]).current_dir(worktree);
    // The answer must be about this worktree, whatever our environment says, and must not fetch anything.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(name);
    }
    command
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.take(MAX_ANSWER_BYTES).read_to_string(&mut text);
        // The receiver is gone after the timeout.
        let _ = sender.send(read.map(|_| text));
    });
    let answer = receiver.recv_timeout(GIT_TIMEOUT);
    if !matches!(answer, Ok(Ok(_))) {
        // It may have exited by itself meanwhile.
        let _ = child.kill();
    }
    let ended = child.wait().ok()?;
    let text = answer.ok()?.ok()?;
    // A history may have several root commits; take the smallest, which everybody finds.
    text.lines().map(str::trim).filter(|line| ended.success() && is_commit(line)).min().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(at: &Path, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .current_dir(at)
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn outside_of_a_repository_it_is_global() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        let info = project_info(dir.path(), dir.path());
        let (worktree, main) = (dir.path().to_owned(), PathBuf::from("/"));
        assert_eq!(info, ProjectInfo { id: "global".to_owned(), worktree, main, vcs: None });
    }

    #[test]
    fn the_first_commit_names_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, state) = (dir.path().join("tree"), dir.path().join("state"));
        fs::create_dir_all(tree.join("sub")).unwrap();
        git(&tree, &["init", "-q"]);
        let empty = project_info(&tree, &state);
        assert_eq!((empty.id.as_str(), empty.vcs.as_deref()), ("global", Some("git")));
        git(&tree, &["commit", "-q", "--allow-empty", "-m", "one"]);
        let first = git(&tree, &["rev-parse", "HEAD"]);
        git(&tree, &["commit", "-q", "--allow-empty", "-m", "two"]);
        let info = project_info(&tree.join("sub"), &state);
        assert_eq!((info.id.as_str(), info.worktree.as_path()), (first.as_str(), tree.as_path()));
        // The second time git is not asked: the history may be gone.
        let cached: Vec<_> = fs::read_dir(state.join("projects")).unwrap().collect();
        assert_eq!(cached.len(), 1);
        fs::rename(tree.join(".git/objects"), tree.join(".git/gone")).unwrap();
        assert_eq!(project_info(&tree, &state).id, first);
        fs::rename(tree.join(".git/gone"), tree.join(".git/objects")).unwrap();
        // A linked worktree is the same project with its own root.
        let linked = dir.path().join("linked");
        git(&tree, &["worktree", "add", "-q", linked.to_str().unwrap()]);
        let info = project_info(&linked, &state);
        let real = |path: &Path| path.canonicalize().unwrap();
        assert_eq!((info.id, info.worktree.as_path(), real(&info.main)), (first, linked.as_path(), real(&tree)));
        assert_eq!(linked_trees(&tree), [real(&linked)]);
        fs::remove_dir_all(&linked).unwrap();
        assert!(linked_trees(&tree).is_empty() && linked_trees(dir.path()).is_empty());
    }

    #[test]
    fn a_broken_repository_is_no_crash() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        fs::write(dir.path().join(".git/HEAD"), "nonsense").unwrap();
        assert_eq!(project_info(dir.path(), dir.path()).id, "global");
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join(".git"), "gitdir: /nowhere/at/all").unwrap();
        assert_eq!(project_info(other.path(), dir.path()).vcs, None);
    }
}
