//! Runs git: for a bounded time, with bounded output, and without anything that a repository could make it run, unless the
//! user trusts it.
//!
//! A git that reads needs no supervisor: nothing that it starts goes on without it, and it dies with us. One that writes
//! takes locks, and every later git fails on a lock that is left behind. Git takes its locks away when it is asked to end,
//! but not in the moment between making one and noting it, which some ends in a hundred meet. So it is not asked: a
//! supervisor lets it come to its end, also without us.

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
use programs::{Found, Place, SETTINGS};

pub use changes::{
    Change, ChangeKind, DIFF, LIST, MAX_FILES, MAX_NAMES, MAX_PATCH, NAMES, PATCH, Scratch, changes, records, sort,
    whole_files,
};
pub use programs::Programs;
pub(crate) use programs::Repositories;

/// How long git may take. Clients wait for it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take where nobody waits: a large tree is checked out.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long one that writes may go on when nobody waits for it any more.
const LINGER: Duration = Duration::from_secs(5);
/// What it may answer, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// What it may complain, in bytes.
const MAX_ERRORS: u64 = 16 << 10;

/// Settings against those of a repository that would start programs or ask somebody, whoever is trusted; and where several
/// gits want the same lock, each waits for its turn, which the index alone has no setting for.
const QUIET: [&str; 23] = [
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.quotePath=false",
    "-c",
    "submodule.recurse=false",
    // A folder in the working tree that looks like a repository is none.
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

/// Variables to the same end. Nothing is fetched, so no transport is ever started.
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

/// What would make git look at another repository than that of its directory.
const FOREIGN: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
];

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// It is missing, or its directory is.
    #[error("git cannot be run in {directory}: {error}")]
    Start {
        /// Where.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It took too long.
    #[error("git did not end within {} seconds", .0.as_secs())]
    Slow(Duration),
    /// It said too much.
    #[error("git answered more than {} MB", MAX_OUTPUT >> 20)]
    Long,
}

/// Git in a directory, from [`Exec::git`].
#[derive(Debug, Clone)]
pub struct Git {
    directory: PathBuf,
    /// Further variables: another index, another place for objects.
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

    /// The same with another index.
    pub fn with_index(&self, index: PathBuf) -> Self {
        self.with("GIT_INDEX_FILE", index)
    }

    fn with(&self, name: &str, value: impl Into<OsString>) -> Self {
        let mut with = self.clone();
        with.env.push((name.into(), value.into()));
        with
    }

    /// The same, with so much time.
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same for work that nobody waits for.
    pub fn patient(&self) -> Self {
        Self { timeout: PATIENCE, ..self.clone() }
    }

    /// The same for what takes locks in the repository.
    pub fn writing(&self) -> Self {
        Self { writes: true, ..self.clone() }
    }

    /// The programs that the repository's own configuration names.
    pub async fn programs(&self) -> Result<Option<Programs>, GitError> {
        Ok(self.settings(Place::find(&self.directory).as_ref()).await?.programs)
    }

    /// Runs it; gives what it wrote.
    pub async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        self.run_with(arguments, &[]).await
    }

    /// The same, as text without the last line's end.
    pub async fn text(&self, arguments: &[&str]) -> Result<String, GitError> {
        let output = self.run(arguments).await?;
        Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
    }

    /// The same, or nothing where it says no.
    pub async fn known(&self, arguments: &[&str]) -> Result<Option<String>, GitError> {
        match self.text(arguments).await {
            Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Err(GitError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The commit that a name means.
    pub async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let name = format!("{name}^{{commit}}");
        self.known(&["rev-parse", "--quiet", "--verify", "--end-of-options", &name]).await
    }

    /// The same, with something to read.
    pub async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        match self.judge(arguments, input).await? {
            (true, output) => Ok(output),
            (false, output) => Err(refused(arguments, &output)),
        }
    }

    /// The beginning of what it writes, and whether that is all. It is ended once there is more than `most` bytes.
    pub async fn head(&self, arguments: &[&str], most: u64) -> Result<(Vec<u8>, bool), GitError> {
        match self.bounded(arguments, &[], most).await? {
            Answer::Whole { output, yes: true } => Ok((output, true)),
            Answer::Whole { output, yes: false } => Err(refused(arguments, &output)),
            Answer::Cut(mut output) => {
                output.truncate(usize::try_from(most).unwrap_or(usize::MAX));
                Ok((output, false))
            }
        }
    }

    /// The same for a question that it may answer with no: exit code 1 without a complaint.
    pub async fn judge(&self, arguments: &[&str], input: &[u8]) -> Result<(bool, Vec<u8>), GitError> {
        match self.bounded(arguments, input, MAX_OUTPUT).await? {
            Answer::Whole { output, yes } => Ok((yes, output)),
            Answer::Cut(_) => Err(GitError::Long),
        }
    }

    async fn bounded(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<Answer, GitError> {
        let attempt = tokio::time::timeout(self.timeout, self.attempt(arguments, input, most));
        attempt.await.unwrap_or(Err(GitError::Slow(self.timeout)))
    }

    async fn attempt(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<Answer, GitError> {
        let harmless = self.disarmed().await?;
        harmless.start(arguments, input, most).await
    }

    /// The same without the programs of the repository that are not trusted.
    async fn disarmed(&self) -> Result<Self, GitError> {
        let place = Place::find(&self.directory);
        let repositories = &self.exec.repositories;
        if place.as_ref().is_some_and(|place| repositories.is_harmless(&self.directory, place)) {
            return Ok(self.clone());
        }
        let found = self.settings(place.as_ref()).await?;
        let mut git = self.clone();
        if found.moves_tree {
            // What is in the working tree is decided by where it is, not by what it says.
            git = git.with("GIT_WORK_TREE", place.as_ref().map_or(&self.directory, |place| &place.root));
        }
        let trusted = found.programs.as_ref().is_some_and(|programs| repositories.trusts(programs));
        if !trusted && !found.overlay.is_empty() {
            // By variables, since a name with "=" in it would end there on a command line.
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

    /// What the repository's configuration says. Listing it starts nothing.
    async fn settings(&self, place: Option<&Place>) -> Result<Found, GitError> {
        let reading = Self { writes: false, ..self.clone() };
        match reading.start(&SETTINGS, &[], MAX_OUTPUT).await? {
            Answer::Whole { output, yes: true } => Found::read(&output, place, &self.directory),
            Answer::Whole { output, yes: false } => Err(refused(&SETTINGS, &output)),
            Answer::Cut(_) => Err(GitError::Long),
        }
    }

    async fn start(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<Answer, GitError> {
        let failed = |error| GitError::Start { directory: self.directory.clone(), error };
        let attempt = match self.writes {
            true => self.supervised(arguments, input, most).await,
            false => self.alone(arguments, input, most).await,
        };
        let (Said { output, errors }, end) = match attempt {
            Ok(said) => said,
            Err(Broken::Full(output)) => return Ok(Answer::Cut(output)),
            Err(Broken::Io(error)) => return Err(failed(error)),
        };
        match end {
            End::Exited(0) => return Ok(Answer::Whole { output, yes: true }),
            End::Exited(1) if errors.is_empty() => return Ok(Answer::Whole { output, yes: false }),
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
            without: FOREIGN.iter().map(Into::into).collect(),
            ..Spec::new("git", QUIET.iter().chain(arguments), &self.directory)
        }
    }

    async fn supervised(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<(Said, End), Broken> {
        let failed = |error| match error {
            ExecError::Spawn { source, .. } | ExecError::Io { source, .. } => source,
            ExecError::Directory(_) => io::ErrorKind::NotADirectory.into(),
            error => io::Error::other(error),
        };
        let (pipes, mut process) = self.exec.pipes(self.spec(arguments)).await.map_err(failed)?;
        let said = talk((Some(pipes.stdin), Some(pipes.stdout), Some(pipes.stderr)), input, most).await?;
        Ok((said, process.ended().await.map_err(failed)?))
    }

    async fn alone(&self, arguments: &[&str], input: &[u8], most: u64) -> Result<(Said, End), Broken> {
        let spec = self.spec(arguments);
        let mut command = Command::new(&spec.program);
        spec.prepare(&mut command, &self.exec.hidden);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        die_with_us(&mut command);
        descriptors::give_back(command.as_std_mut());
        let mut running = Running(None);
        let child = running.0.insert(command.spawn()?);
        let said = talk((child.stdin.take(), child.stdout.take(), child.stderr.take()), input, most).await?;
        Ok((said, child.wait().await?.into()))
    }
}

/// What came of a git.
enum Answer {
    /// It ended; `yes` unless it said no.
    Whole { output: Vec<u8>, yes: bool },
    /// It had more to say than was wanted.
    Cut(Vec<u8>),
}

/// What git said.
struct Said {
    output: Vec<u8>,
    /// Its complaints, without the last line's end.
    errors: String,
}

/// Why a git was not heard out.
enum Broken {
    /// It said more than was wanted; its beginning.
    Full(Vec<u8>),
    /// The system failed.
    Io(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The command among its arguments, behind settings.
fn name<'a>(arguments: &[&'a str]) -> &'a str {
    arguments.iter().find(|argument| !argument.starts_with('-') && !argument.contains('=')).copied().unwrap_or_default()
}

/// The error of a git that said no.
fn refused(arguments: &[&str], output: &[u8]) -> GitError {
    let output = String::from_utf8_lossy(&output[..output.len().min(MAX_ERRORS as usize)]).trim().to_owned();
    let name = name(arguments);
    GitError::Refused(if output.is_empty() { format!("git {name} says no") } else { output })
}

/// Has git read all of `input`, and hears it out, unless it says more than `most` bytes.
async fn talk(
    (stdin, stdout, stderr): (
        Option<impl AsyncWrite + Unpin>,
        Option<impl AsyncRead + Unpin>,
        Option<impl AsyncRead + Unpin>,
    ),
    input: &[u8],
    most: u64,
) -> Result<Said, Broken> {
    let feed = async {
        if let Some(mut pipe) = stdin {
            // It may have seen enough; its exit says whether that was well.
            let _ = pipe.write_all(input).await;
        }
        Ok(())
    };
    let ((), output, errors) = tokio::try_join!(feed, read(stdout, most), complaints(stderr))?;
    Ok(Said { output, errors: String::from_utf8_lossy(&errors).trim().to_owned() })
}

/// Has the kernel end it when the thread that starts it ends. Those are the runtime's own, which live as long as we do. It
/// is asked to end, not killed, so that nothing of its own stays behind.
#[expect(
    unsafe_code,
    reason = "std has no word for it; what is done between fork and exec must be, and is, fit for it"
)]
fn die_with_us(command: &mut Command) {
    // SAFETY: the closure allocates nothing, takes no lock and makes one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// Reads everything, within a bound.
async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Result<Vec<u8>, Broken> {
    let mut content = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most + 1).read_to_end(&mut content).await?;
    }
    if content.len() as u64 > most { Err(Broken::Full(content)) } else { Ok(content) }
}

/// Reads the beginning and takes in the rest, so that git can go on.
async fn complaints(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Broken> {
    let mut content = Vec::new();
    if let Some(pipe) = pipe {
        let mut limited = pipe.take(MAX_ERRORS);
        limited.read_to_end(&mut content).await?;
        tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(content)
}

/// A git that runs. Dropped, it is asked to end with its children, and is killed if it does not.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // Nothing once it has ended.
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
    async fn an_answer_or_the_reason_why_not() {
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
    async fn a_repository_starts_nothing() {
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
        // What it is kept from would have worked.
        project.git(&["checkout", "--quiet", "-b", "third"]);
        assert!(mark.exists());
    }

    #[tokio::test]
    async fn too_much_is_an_error() {
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
