//! Runs a command from its start to its end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::environment::HiddenVariables;
use crate::git::{Git, Repositories};
use crate::job::{DirectJob, Job, JobEvent, SupervisedJob, until};
use crate::output::OutputSink;
use crate::stdio::{Pipes, Stdio};
use crate::terminal::{Process, Size, Terminal};
use crate::{End, ExecError, GRACE, KILL_WAIT, RunOutcome, Spec};

/// The read buffer size, in bytes.
const READ_BYTES: usize = 32 << 10;

/// How much is still read after a command's end, in bytes: the maximum capacity of a pipe.
const DRAIN_BYTES: usize = 1 << 20;

/// Runs commands. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Exec {
    mode: Arc<Mode>,
    linger: Duration,
    pub(crate) hidden: HiddenVariables,
    pub(crate) repositories: Repositories,
}

#[derive(Debug)]
enum Mode {
    Supervised { program: PathBuf, lock: Option<OwnedFd> },
    Direct,
}

impl Exec {
    /// Runs every command below `program SUPERVISE_ARG …`, whose `main` calls [`crate::supervise`]. `program` is
    /// absolute.
    ///
    /// `lock`, the file on which this process holds an flock, is inherited by supervisors and never by commands:
    /// another process can take the lock only when this one and everything that it started are gone.
    pub fn supervised(program: PathBuf, lock: Option<OwnedFd>) -> Exec {
        Self::new(Mode::Supervised { program, lock })
    }

    /// Runs commands without a supervisor, for tests: in a process group that is killed at the end and on drop. A
    /// daemon can escape it, and it survives a SIGKILL of this process.
    pub fn direct() -> Exec {
        Self::new(Mode::Direct)
    }

    fn new(mode: Mode) -> Exec {
        let (hidden, repositories) = (HiddenVariables::default(), Repositories::default());
        Exec { mode: Arc::new(mode), linger: Duration::ZERO, hidden, repositories }
    }

    /// Hides environment variables from commands; `*` matches anything.
    pub fn hiding(&self, patterns: &[String]) -> Exec {
        Exec { hidden: self.hidden.and(patterns), ..self.clone() }
    }

    /// Lets git start the programs that a repository's own configuration names if the user trusts them: `trusts` gets
    /// the file that names them and a text that lists them.
    pub fn trusting(&self, trusts: impl Fn(&Path, &str) -> bool + Send + Sync + 'static) -> Exec {
        Exec { repositories: Repositories::trusting(trusts), ..self.clone() }
    }

    /// Git in a directory.
    pub fn git(&self, directory: impl Into<PathBuf>) -> Git {
        Git::new(self, directory.into())
    }

    /// For commands that should not be cut off: when nobody waits for one any more, or Trefoil is gone, it may end by
    /// itself within this time, and is asked to end before it is killed.
    pub fn lingering(&self, linger: Duration) -> Exec {
        Exec { linger, ..self.clone() }
    }

    /// Runs a command to its end, and passes on its output piece by piece.
    ///
    /// When this returns, nothing that the command started is left; dropping the future kills everything too.
    pub async fn run(
        &self,
        spec: Spec,
        cancel: CancellationToken,
        on_output: &mut (dyn FnMut(&str) + Send),
    ) -> Result<RunOutcome, ExecError> {
        let mut sink = OutputSink::new(spec.keep_bytes, spec.spill.clone());
        if cancel.is_cancelled() {
            return Ok(RunOutcome { end: End::Cancelled, output: sink.finish().0 });
        }
        let lost = |source| ExecError::Io { program: spec.program.clone(), source };
        let (mut job, mut pipe) = self.start(&spec)?;
        let mut limit = spec.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut buffer = vec![0; READ_BYTES];
        let mut open = true;
        let mut end = None;
        let result = loop {
            tokio::select! {
                read = pipe.read(&mut buffer), if open => match read.map_err(lost)? {
                    0 => open = false,
                    count => emit(&sink.push(&buffer[..count]), on_output),
                },
                event = job.next(&spec) => match event {
                    Ok(JobEvent::Running) => {}
                    Ok(JobEvent::Ended(how)) => {
                        end.get_or_insert(how);
                        limit = Some(Instant::now() + KILL_WAIT);
                    }
                    Ok(JobEvent::Gone) => break Ok(()),
                    Err(error) => break Err(error),
                },
                () = cancel.cancelled(), if end.is_none() => {
                    end = Some(End::Cancelled);
                    limit = Some(Instant::now() + GRACE + KILL_WAIT);
                    job.terminate();
                }
                () = until(limit) => {
                    if end.is_some() {
                        break Err(ExecError::Unkillable { program: spec.program.clone() });
                    }
                    end = Some(End::TimedOut);
                    limit = Some(Instant::now() + GRACE + KILL_WAIT);
                    job.terminate();
                }
            }
        };
        if open {
            drain(&pipe, &mut buffer, |bytes| emit(&sink.push(bytes), on_output)).map_err(lost)?;
        }
        let (output, rest) = sink.finish();
        emit(rest, on_output);
        result?;
        let end = end.ok_or_else(|| lost(io::ErrorKind::UnexpectedEof.into()))?;
        Ok(RunOutcome { end, output })
    }

    /// Starts a command on its own terminal. The timeout and output settings of `spec` do not apply.
    pub async fn terminal(&self, spec: Spec, size: Size) -> Result<(Terminal, Process), ExecError> {
        let opened = Terminal::open(size);
        let (terminal, slave) = opened.map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
        let job = self.spawn(&spec, Stdio::Terminal(slave))?;
        Ok((terminal, Process::started(job, spec).await?))
    }

    /// Starts an interactive command with three pipes. The timeout and output settings of `spec` do not apply.
    pub async fn pipes(&self, spec: Spec) -> Result<(Pipes, Process), ExecError> {
        let opened = Pipes::open();
        let (pipes, stdio) = opened.map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
        let job = self.spawn(&spec, stdio)?;
        Ok((pipes, Process::started(job, spec).await?))
    }

    fn start(&self, spec: &Spec) -> Result<(Job, Receiver), ExecError> {
        let pipe = || -> io::Result<(Receiver, OwnedFd)> {
            let (read, write) = io::pipe()?;
            Ok((Receiver::from_owned_fd(read.into())?, write.into()))
        };
        let (read, write) = pipe().map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
        Ok((self.spawn(spec, Stdio::Output(write))?, read))
    }

    fn spawn(&self, spec: &Spec, stdio: Stdio) -> Result<Job, ExecError> {
        if !spec.cwd.is_dir() {
            return Err(ExecError::Directory(spec.cwd.clone()));
        }
        Ok(match &*self.mode {
            Mode::Supervised { program, lock } => {
                let output = stdio.into_output();
                let output = output.map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
                Job::Supervised(SupervisedJob::start(program, lock.as_ref(), self.linger, &self.hidden, spec, output)?)
            }
            Mode::Direct => Job::Direct(DirectJob::start(self.linger, &self.hidden, spec, stdio)?),
        })
    }
}

fn emit(text: &str, on_output: &mut (dyn FnMut(&str) + Send)) {
    if !text.is_empty() {
        on_output(text);
    }
}

/// Reads what is in the pipe now. Everything that wrote to it is dead, so that is all; if something out of our reach
/// holds it open, we do not wait for it. The read bypasses the runtime, which may not know yet that there is more.
fn drain(pipe: &Receiver, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut left = DRAIN_BYTES;
    while left > 0 {
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => {
                take(&buffer[..count]);
                left = left.saturating_sub(count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
