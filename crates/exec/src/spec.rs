//! What to run, and how it ended.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Command;

use crate::environment::{HiddenVariables, is_ours};
use crate::output::Output;

/// A command to run. Its stdin is empty; stdout and stderr go to one pipe, so that their order is kept.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program, looked up in PATH unless it contains a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// Added to our own environment. Names that start with `TREFOIL_` never reach a command.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of our own environment that it does not get.
    pub without: Vec<OsString>,
    /// The timeout.
    pub timeout: Option<Duration>,
    /// How much of its output is kept in memory, in bytes.
    pub keep_bytes: usize,
    /// The file that gets the full output if it exceeds that.
    pub spill: Option<PathBuf>,
}

impl Spec {
    /// How much output [`Spec::shell`] keeps: 1 MiB.
    pub const KEEP_BYTES: usize = 1 << 20;

    /// A program with our own environment, without a timeout. None of its output is kept.
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

    /// Sets a command's directory, arguments and environment. Every program that we start, and every supervisor, gets
    /// its environment here.
    pub(crate) fn prepare<'a>(&self, command: &'a mut Command, hidden: &HiddenVariables) -> &'a mut Command {
        hidden.remove_from(command);
        for name in &self.without {
            command.env_remove(name);
        }
        let own = self.env.iter().filter(|(name, _)| !is_ours(name)).map(|(name, value)| (name, value));
        command.args(&self.args).current_dir(&self.cwd).envs(own)
    }
}

/// How a command ended and what it printed.
#[derive(Debug)]
pub struct RunOutcome {
    /// How it ended.
    pub end: End,
    /// What it wrote.
    pub output: Output,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal, which was not ours.
    Signalled(i32),
    /// We ended it because of its timeout.
    TimedOut,
    /// We ended it because it was cancelled.
    Cancelled,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        status.signal().map_or_else(|| Self::Exited(status.code().unwrap_or(-1)), Self::Signalled)
    }
}
