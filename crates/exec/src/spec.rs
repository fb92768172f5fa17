//! What to run, and how it ended.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Command;

use crate::environment::{Hidden, is_ours};
use crate::output::Output;

/// A command to run. Its stdin is empty; stdout and stderr go to one pipe, so their order is kept.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program, looked up in PATH unless it contains a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The directory that it runs in.
    pub cwd: PathBuf,
    /// Added to our own environment, or replacing it. Names that start with `TREFOIL_` never reach a command.
    pub env: Vec<(OsString, OsString)>,
    /// Names of our own environment that it does not get.
    pub without: Vec<OsString>,
    /// When it is ended.
    pub timeout: Option<Duration>,
    /// How much of its output is kept in memory, in bytes.
    pub keep_bytes: usize,
    /// The file that gets all of its output once that is more than is kept.
    pub spill: Option<PathBuf>,
}

impl Spec {
    /// What [`Spec::shell`] keeps of the output: 1 MiB.
    pub const KEEP_BYTES: usize = 1 << 20;

    /// A program with our own environment, without a timeout. Nothing of its output is kept.
    pub fn new(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        cwd: impl Into<PathBuf>,
    ) -> Spec {
        Spec {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            cwd: cwd.into(),
            env: Vec::new(),
            without: Vec::new(),
            timeout: None,
            keep_bytes: 0,
            spill: None,
        }
    }

    /// A command line for a shell, without a timeout.
    pub fn shell(shell: &Path, command: &str, cwd: &Path) -> Spec {
        Spec { keep_bytes: Self::KEEP_BYTES, ..Spec::new(shell, ["-c", command], cwd) }
    }

    /// Puts a command where it is to run, with its arguments and its environment. Every program that we start, and every
    /// supervisor above one, gets its environment here.
    pub(crate) fn prepare<'a>(&self, command: &'a mut Command, hidden: &Hidden) -> &'a mut Command {
        hidden.forget(command);
        for name in &self.without {
            command.env_remove(name);
        }
        let own = self.env.iter().filter(|(name, _)| !is_ours(name)).map(|(name, value)| (name, value));
        command.args(&self.args).current_dir(&self.cwd).envs(own)
    }
}

/// How a command ended and what it wrote.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What it wrote.
    pub output: Output,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal, which was not ours.
    Signalled(i32),
    /// We ended it: its time was over.
    TimedOut,
    /// We ended it: it was cancelled.
    Cancelled,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        status.signal().map_or_else(|| Self::Exited(status.code().unwrap_or(-1)), Self::Signalled)
    }
}
