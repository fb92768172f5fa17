//! Runs git: with a timeout, with bounded output, and without programs that a repository could make it run, unless the
//! user trusts it.
//!
//! A git that reads needs no supervisor: nothing that it starts outlives it, and it dies with us. One that writes takes
//! locks, and a leftover lock makes every later git fail. Git removes its locks when asked to end, but not in the
//! moment between creating one and registering it, which happens in some percent of the cases. So we do not ask it to
//! end: a supervisor lets it finish, even without us.

mod changes;
mod programs;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

use crate::{End, Exec, ExecError, GRACE, Spec, descriptors};
use programs::{RepositoryLocation, RepositorySettings, SETTINGS};

pub use changes::{
    Change, ChangeKind, DIFF, LIST, MAX_FILES, MAX_NAMES, MAX_PATCH, NAMES, PATCH, ScratchIndex, changes, records,
    sort, whole_files,
};
pub use programs::Programs;
pub(crate) use programs::Repositories;

/// The default timeout. Clients wait for git.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout when nobody waits, for example for checking out a large tree.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a writing git may continue when nobody waits for it any more.
const LINGER: Duration = Duration::from_secs(5);
/// The maximum output, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// The maximum error output, in bytes.
const MAX_ERRORS: u64 = 16 << 10;

/// Settings that override those of a repository, trusted or not, that would start programs or prompt somebody. Also:
/// where several gits want the same lock, each waits for its turn (the index has no setting for this).
const SETTINGS_OVERRIDE: [&str; 23] = [
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.quotePath=false",
    "-c",
    "submodule.recurse=false",
    // A folder in the working tree that looks like a repository is not one.
    "-c",
    "safe.bareRepository=explicit",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "maintenance.auto=false",
    "-c",
    "gc.auto=0",
    "-c",
    "core.filesRefLockTimeout=10000",
    "-c",
    "core.packedRefsTimeout=10000",
];

/// Environment variables for the same purpose. Nothing is fetched, so no transport is ever started.
const VARIABLES: [(&str, &str); 8] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_EDITOR", ":"),
    ("GIT_SEQUENCE_EDITOR", ":"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C.UTF-8"),
];

/// Variables that would make git use another repository than that of its directory.
const REPOSITORY_VARIABLES: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
];

/// Why git failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// Git or its directory is missing.
    #[error("git cannot be run in {directory}: {error}")]
    Start {
        /// The directory.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It took too long.
    #[error("git did not end within {} seconds", .0.as_secs())]
    Slow(Duration),
    /// Its output was too long.
    #[error("git answered more than {} MB", MAX_OUTPUT >> 20)]
    Long,
}

/// Git in a directory, from [`Exec::git`].
#[derive(Debug, Clone)]
pub struct Git {
    directory: PathBuf,
    /// Additional variables: another index, another object directory.
    env: Vec<(OsString, OsString)>,
    timeout: Duration,
    exec: Exec,
    /// It takes locks.
    writes: bool,
}

impl Git {
    pub(crate) fn new(exec: &Exec, directory: PathBuf) -> Self {
        Self { directory, env: Vec::new(), timeout: TIMEOUT, exec: exec.lingering(LINGER), writes: false }
    }

    /// Uses another index.
    pub fn with_index(&self, index: PathBuf) -> Self {
        self.with("GIT_INDEX_FILE", index)
    }

    fn with(&self, name: &str, value: impl Into<OsString>) -> Self {
        let mut with = self.clone();
        with.env.push((name.into(), value.into()));
        with
    }

    /// Uses another timeout.
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Uses a long timeout, for work that nobody waits for.
    pub fn with_long_timeout(&self) -> Self {
        Self { timeout: LONG_TIMEOUT, ..self.clone() }
    }

    /// For commands that take locks in the repository.
    pub fn writing(&self) -> Self {
        Self { writes: true, ..self.clone() }
    }

    /// The programs that the repository's own configuration names.
    pub async fn programs(&self) -> Result<Option<Programs>, GitError> {
        Ok(self.settings(RepositoryLocation::find(&self.directory).as_ref()).await?.programs)
    }

    /// Runs it; returns its output.
    pub async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        self.run_with(arguments, &[]).await
    }

    /// Likewise, as text without the trailing newline.
    pub async fn text(&self, arguments: &[&str]) -> Result<String, GitError> {
        let output = self.run(arguments).await?;
        Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
    }

    /// Likewise, or `None` if it refuses.
    pub async fn try_text(&self, arguments: &[&str]) -> Result<Option<String>, GitError> {
        match self.text(arguments).await {
            Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Err(GitError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The commit that a name refers to.
    pub async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let name = format!("{name}^{{commit}}");
        self.try_text(&["rev-parse", "--quiet", "--verify", "--end-of-options", &name]).await
    }

    /// Runs it with input; returns its output.
    pub async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        match self.check(arguments, input).await? {
            (true, output) => Ok(output),
            (false, output) => Err(refused(arguments, &output)),
        }
    }

    /// The beginning of its output, and whether that is all. It is stopped after `most` bytes.
    pub async fn head(&self, arguments: &[&str], most: u64) -> Result<(Vec<u8>, bool), GitError> {
        match self.bounded(arguments, &[], most).await? {
            GitAnswer::Whole { output, yes: true } => Ok((output, true)),
            GitAnswer::Whole { output, yes: false } => Err(refused(arguments, &output)),
            GitAnswer::Truncated(mut output) => {
                output.truncate(usize::try_from(most).unwrap_or(usize::MAX));
                Ok((output, false))
            }
        }
    }

    /// Runs it for an answer that may be no: exit code 1 without error output.
    pub async fn check(&self, arguments: &[&str], input: &[u8]) -> Result<(bool, Vec<u8>), GitError> {
        match self.bounded(arguments, input, MAX_OUTPUT).await? {
            GitAnswer::Whole { output, yes } => Ok((yes, output)),
            GitAnswer::Truncated(_) => Err(GitError::Long),
        }
    }

    async fn bounded(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<GitAnswer, GitError> {
        let attempt = tokio::time::timeout(self.timeout, self.attempt(arguments, input, most));
        attempt.await.unwrap_or(Err(GitError::Slow(self.timeout)))
    }

    async fn attempt(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<GitAnswer, GitError> {
        let harmless = self.without_untrusted_programs().await?;
        harmless.start(arguments, input, most).await
    }

    /// Disables the untrusted programs of the repository.
    async fn without_untrusted_programs(&self) -> Result<Self, GitError> {
        let place = RepositoryLocation::find(&self.directory);
        let repositories = &self.exec.repositories;
        if place.as_ref().is_some_and(|place| repositories.is_harmless(&self.directory, place)) {
            return Ok(self.clone());
        }
        let found = self.settings(place.as_ref()).await?;
        let mut git = self.clone();
        if found.moves_tree {
            // The working tree is where it is, not where the configuration says.
            git = git.with("GIT_WORK_TREE", place.as_ref().map_or(&self.directory, |place| &place.root));
        }
        let trusted = found.programs.as_ref().is_some_and(|programs| repositories.trusts(programs));
        if !trusted && !found.overlay.is_empty() {
            // By environment variables, since a key with "=" in it would end there on a command line.
            git = git.with("GIT_CONFIG_COUNT", found.overlay.len().to_string());
            for (number, (key, value)) in found.overlay.iter().enumerate() {
                git = git.with(&format!("GIT_CONFIG_KEY_{number}"), key);
                git = git.with(&format!("GIT_CONFIG_VALUE_{number}"), value);
            }
        }
        if let Some(place) = place.filter(|_| found.is_harmless()) {
            repositories.remember(&self.directory, place);
        }
        Ok(git)
    }

    /// The repository's configuration. Listing it starts nothing.
    async fn settings(&self, place: Option<&RepositoryLocation>) -> Result<RepositorySettings, GitError> {
        let reading = Self { writes: false, ..self.clone() };
        match reading.start(&SETTINGS, &[], MAX_OUTPUT).await? {
            GitAnswer::Whole { output, yes: true } => RepositorySettings::read(&output, place, &self.directory),
            GitAnswer::Whole { output, yes: false } => Err(refused(&SETTINGS, &output)),
            GitAnswer::Truncated(_) => Err(GitError::Long),
        }
    }

    async fn start(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<GitAnswer, GitError> {
        let failed = |error| GitError::Start { directory: self.directory.clone(), error };
        let attempt = match self.writes {
            true => self.supervised(arguments, input, most).await,
            false => self.unsupervised(arguments, input, most).await,
        };
        let (GitOutput { output, errors }, end) = match attempt {
            Ok(result) => result,
            Err(OutputError::TooLong(output)) => return Ok(GitAnswer::Truncated(output)),
            Err(OutputError::Io(error)) => return Err(failed(error)),
        };
        match end {
            End::Exited(0) => return Ok(GitAnswer::Whole { output, yes: true }),
            End::Exited(1) if errors.is_empty() => return Ok(GitAnswer::Whole { output, yes: false }),
            _ => {}
        }
        let name = name(arguments);
        Err(GitError::Refused(match end {
            _ if !errors.is_empty() => errors,
            End::Exited(code) => format!("git {name} ended with exit code {code}"),
            End::Signalled(signal) => format!("git {name} was ended by signal {signal}"),
            End::TimedOut | End::Cancelled => format!("git {name} was ended"),
        }))
    }

    fn spec(&self, arguments: &[&str]) -> Spec {
        let variables = VARIABLES.into_iter().map(|(name, value)| (name.into(), value.into()));
        Spec {
            env: variables.chain(self.env.iter().cloned()).collect(),
            without: REPOSITORY_VARIABLES.iter().map(Into::into).collect(),
            ..Spec::new("git", SETTINGS_OVERRIDE.iter().chain(arguments), &self.directory)
        }
    }

    async fn supervised(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<(GitOutput, End), OutputError> {
        let failed = |error| match error {
            ExecError::Spawn { source, .. } | ExecError::Io { source, .. } => source,
            ExecError::Directory(_) => io::ErrorKind::NotADirectory.into(),
            error => io::Error::other(error),
        };
        let (pipes, mut process) = self.exec.pipes(self.spec(arguments)).await.map_err(failed)?;
        let output = exchange((Some(pipes.stdin), Some(pipes.stdout), Some(pipes.stderr)), input, most).await?;
        Ok((output, process.ended().await.map_err(failed)?))
    }

    async fn unsupervised(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<(GitOutput, End), OutputError> {
        let spec = self.spec(arguments);
        let mut command = Command::new(&spec.program);
        spec.prepare(&mut command, &self.exec.hidden);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        die_with_us(&mut command);
        descriptors::restore_limit(command.as_std_mut());
        let mut running = RunningGit(None);
        let child = running.0.insert(command.spawn()?);
        let output = exchange((child.stdin.take(), child.stdout.take(), child.stderr.take()), input, most).await?;
        Ok((output, child.wait().await?.into()))
    }
}

/// The result of a git command.
enum GitAnswer {
    /// It exited; `yes` unless it answered no.
    Whole { output: Vec<u8>, yes: bool },
    /// Its output was longer than wanted.
    Truncated(Vec<u8>),
}

/// What git printed.
struct GitOutput {
    output: Vec<u8>,
    /// Its error output, without the trailing newline.
    errors: String,
}

/// Why git's output could not be read completely.
enum OutputError {
    /// It was longer than wanted; contains the beginning.
    TooLong(Vec<u8>),
    /// The system failed.
    Io(io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The subcommand among its arguments, after settings.
fn name<'a>(arguments: &[&'a str]) -> &'a str {
    arguments.iter().find(|argument| !argument.starts_with('-') && !argument.contains('=')).copied().unwrap_or_default()
}

/// The error of a git that refused.
fn refused(arguments: &[&str], output: &[u8]) -> GitError {
    let output = String::from_utf8_lossy(&output[..output.len().min(MAX_ERRORS as usize)]).trim().to_owned();
    let name = name(arguments);
    GitError::Refused(if output.is_empty() { format!("git {name} says no") } else { output })
}

/// Writes `input` to git and reads its output, unless that is longer than `most` bytes.
async fn exchange(
    (stdin, stdout, stderr): (
        Option<impl AsyncWrite + Unpin>,
        Option<impl AsyncRead + Unpin>,
        Option<impl AsyncRead + Unpin>,
    ),
    input: &[u8],
    most: u64,
) -> Result<GitOutput, OutputError> {
    let feed = async {
        if let Some(mut pipe) = stdin {
            // Git may have read enough; its exit code says whether it succeeded.
            let _ = pipe.write_all(input).await;
        }
        Ok(())
    };
    let ((), output, errors) = tokio::try_join!(feed, read(stdout, most), read_errors(stderr))?;
    Ok(GitOutput { output, errors: String::from_utf8_lossy(&errors).trim().to_owned() })
}

/// Makes the kernel end git when the thread that started it ends. Those are the runtime's threads, which live as long
/// as we do. Git is asked to end, not killed, so that it can clean up.
#[expect(unsafe_code, reason = "std has no API for it; the code between fork and exec is async-signal-safe")]
fn die_with_us(command: &mut Command) {
    // SAFETY: the closure allocates nothing, takes no lock and makes one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// Reads everything, up to a limit.
async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Result<Vec<u8>, OutputError> {
    let mut content = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most + 1).read_to_end(&mut content).await?;
    }
    if content.len() as u64 > most { Err(OutputError::TooLong(content)) } else { Ok(content) }
}

/// Reads the beginning and discards the rest, so that git can continue.
async fn read_errors(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, OutputError> {
    let mut content = Vec::new();
    if let Some(pipe) = pipe {
        let mut limited = pipe.take(MAX_ERRORS);
        limited.read_to_end(&mut content).await?;
        tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(content)
}

/// A running git. On drop it is asked to end with its children, and killed if it does not.
struct RunningGit(Option<Child>);

impl Drop for RunningGit {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // It may have exited.
        let Some(group) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else { return };
        let _ = kill_process_group(group, Signal::TERM);
        let end = async move {
            if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait().await;
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(end)),
            Err(_) => drop(kill_process_group(group, Signal::KILL)),
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempProject;

    use super::*;

    #[tokio::test]
    async fn output_or_the_reason_for_failure() {
        let project = TempProject::new();
        let git = Exec::direct().git(project.path());
        assert_eq!(git.text(&["rev-parse", "--is-inside-work-tree"]).await.unwrap(), "true");
        let hash = git.run_with(&["hash-object", "--stdin"], b"x").await.unwrap();
        assert_eq!(hash.len(), 41);
        let refused = git.run(&["rev-parse", "--verify", "nothing"]).await.unwrap_err();
        assert_eq!(refused.to_string(), "fatal: Needed a single revision");
        let absent = Exec::direct().git("/nowhere/at/all").run(&["status"]).await.unwrap_err();
        assert!(matches!(absent, GitError::Start { .. }), "{absent}");
    }

    #[tokio::test]
    async fn a_repository_cannot_start_programs() {
        let project = TempProject::new();
        let (mark, hook) = (project.root().join("ran"), project.path().join(".git/hooks/post-checkout"));
        let script = project.write("evil.sh", format!("#!/bin/sh\ntouch {}\n", mark.display()));
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::copy(&script, &hook).unwrap();
        for file in [&script, &hook] {
            std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        project.git(&["config", "core.fsmonitor", script.to_str().unwrap()]);
        let git = Exec::direct().git(project.path());
        git.run(&["status"]).await.unwrap();
        git.run(&["checkout", "-b", "other"]).await.unwrap();
        assert!(!mark.exists());
        // Without our settings it would have worked.
        project.git(&["checkout", "--quiet", "-b", "third"]);
        assert!(mark.exists());
    }

    #[tokio::test]
    async fn too_much_output_is_an_error() {
        let project = TempProject::new();
        project.write("large", vec![b'x'; (MAX_OUTPUT + 1) as usize]);
        project.commit("large");
        let error = Exec::direct().git(project.path()).run(&["cat-file", "blob", "HEAD:large"]).await.unwrap_err();
        assert!(matches!(error, GitError::Long), "{error}");
        let (head, whole) =
            Exec::direct().git(project.path()).head(&["cat-file", "blob", "HEAD:large"], 10).await.unwrap();
        assert_eq!((head.as_slice(), whole), (&b"xxxxxxxxxx"[..], false));
    }
}
