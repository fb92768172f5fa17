//! A project for one test.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::{WAIT, finish};

/// The name of the program's log file.
const LOG: &str = "trefoil.log";
/// The maximum depth of a home directory below the temporary directory.
const LOG_DEPTH: usize = 6;
/// The number of log lines shown when a test fails.
const LOG_LINES: usize = 100;

/// A temporary git repository with its own empty home directory; deleted on drop.
pub struct TempProject {
    root: TempDir,
    directory: PathBuf,
}

impl Default for TempProject {
    fn default() -> Self {
        Self::new()
    }
}

impl TempProject {
    /// A repository with one commit (`README.md`).
    pub fn new() -> Self {
        let project = Self::without_git();
        project.git(&["init", "--quiet", "--initial-branch=main"]);
        project.write("README.md", "# A project\n");
        project.commit("start");
        project
    }

    /// An empty directory without a repository.
    pub fn without_git() -> Self {
        let root = tempfile::Builder::new().prefix("trefoil-test-").tempdir().expect("a temporary directory");
        // Resolved, because the programs under test resolve symbolic links (macOS has one on the way to /tmp).
        let base = root.path().canonicalize().expect("the temporary directory exists");
        let directory = base.join("project");
        for folder in [&directory, &base.join("home"), &base.join("tmp")] {
            std::fs::create_dir(folder).expect("a folder in the temporary directory");
        }
        Self { root, directory }
    }

    /// The absolute path of the project, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The path of the project as text.
    pub fn directory(&self) -> String {
        self.directory.to_str().expect("temporary paths are UTF-8").to_owned()
    }

    /// The empty home directory next to it.
    pub fn home(&self) -> PathBuf {
        self.directory.with_file_name("home")
    }

    /// The temporary directory that contains project and home.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file in the project, creating folders; returns its absolute path. A script that waits for the file
    /// (`after`, `hold`) continues then.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        put(self.root.path(), self.directory.join(path), content.as_ref())
    }

    /// Writes a file in the home directory, for example `.config/opencode/opencode.json`.
    pub fn write_home(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        put(self.root.path(), self.home().join(path), content.as_ref())
    }

    /// Reads a file in the project.
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.directory.join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Commits everything.
    pub fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
    }

    /// Runs git in the project; returns its output.
    #[track_caller]
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut git = self.command("git");
        git.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish("git", git.spawn().expect("git is installed"), WAIT);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {}: {errors}", arguments.join(" "));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The complete environment for child processes, without anything of the real home or configuration.
    pub fn env(&self) -> Vec<(String, String)> {
        let home = self.home();
        let text = |path: &Path| path.to_str().expect("temporary paths are UTF-8").to_owned();
        let mut env = vec![
            ("HOME", text(&home)),
            ("XDG_CONFIG_HOME", text(&home.join(".config"))),
            ("XDG_DATA_HOME", text(&home.join(".local/share"))),
            ("XDG_STATE_HOME", text(&home.join(".local/state"))),
            ("XDG_CACHE_HOME", text(&home.join(".cache"))),
            ("TMPDIR", text(&self.directory.with_file_name("tmp"))),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("NO_COLOR", "1".to_owned()),
            // Prompts play scripts unless a test configures a model.
            ("TREFOIL_FALLBACK_MODEL", "script/demo".to_owned()),
        ];
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
            env.push((name, "Test".to_owned()));
        }
        for name in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            env.push((name, "test@example.org".to_owned()));
        }
        env.push(("PATH", std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned())));
        env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// A command in the project, with exactly [`env`](Self::env).
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).env_clear().envs(self.env()).stdin(Stdio::null());
        command
    }
}

impl Drop for TempProject {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Becomes part of the failed test's output.
            logs(self.root.path(), LOG_DEPTH).iter().for_each(|log| print_end(log));
        }
    }
}

/// The logs of programs that ran with a home directory below a folder.
fn logs(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => found.extend(logs(&entry.path(), depth - 1)),
            Ok(kind) if kind.is_file() && entry.file_name() == LOG => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

#[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
fn print_end(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(LOG_LINES)..];
    eprintln!("the end of {}:\n{}", log.display(), end.join("\n"));
}

/// Writes a file so that a watcher sees all of the new content or none of it: a growing file is overwritten with one
/// call, any other is replaced.
fn put(root: &Path, path: PathBuf, content: &[u8]) -> PathBuf {
    let write = || {
        std::fs::create_dir_all(path.parent().expect("a file has a folder"))?;
        let before = std::fs::symlink_metadata(&path).ok();
        if before.as_ref().is_some_and(|file| !file.is_file()) {
            return std::fs::write(&path, content);
        }
        if before.as_ref().is_some_and(|file| file.len() <= content.len() as u64) {
            return File::options().write(true).open(&path)?.write_all(content);
        }
        let mut new = tempfile::NamedTempFile::new_in(root)?;
        new.write_all(content)?;
        let permissions = before.map_or_else(|| Permissions::from_mode(0o644), |file| file.permissions());
        new.as_file().set_permissions(permissions)?;
        new.persist(&path)?;
        Ok(())
    };
    let written: std::io::Result<()> = write();
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_a_clean_repository_with_its_own_home() {
        let project = TempProject::new();
        assert_eq!(project.git(&["status", "--porcelain"]), "");
        project.write("src/deep/a.txt", "one\n");
        assert_eq!(project.git(&["status", "--porcelain"]), "?? src/");
        assert_eq!(project.read("src/deep/a.txt"), "one\n");
        for text in ["longer\n", "short\n", ""] {
            project.write("src/deep/a.txt", text);
            assert_eq!(project.read("src/deep/a.txt"), text);
        }
        let output = project.command("sh").args(["-c", "echo $HOME; pwd"]).output().unwrap();
        let want = format!("{}\n{}\n", project.home().display(), project.path().display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), want);
        let root = project.root().to_owned();
        drop(project);
        assert!(!root.exists());
    }
}
