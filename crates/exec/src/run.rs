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

use crate::environment::Hidden;
use crate::git::{Git, Repositories};
use crate::job::{Direct, Event, Job, Supervised, until};
use crate::output::Sink;
use crate::stdio::{Pipes, Stdio};
use crate::terminal::{Process, Size, Terminal};
use crate::{End, ExecError, GRACE, KILL_WAIT, Outcome, Spec};

/// What is read at once, in bytes.
const READ_BYTES: usize = 32 << 10;

/// What is still read after a command's end, in bytes: what a pipe holds at most.
const DRAIN_BYTES: usize = 1 << 20;

/// Runs commands. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Exec {
    mode: Arc<Mode>,
    linger: Duration,
    pub(crate) hidden: Hidden,
    pub(crate) repositories: Repositories,
}

#[derive(Debug)]
enum Mode {
    Supervised { program: PathBuf, lock: Option<OwnedFd> },
    Direct,
}

impl Exec {
    /// Every command runs below `program SUPERVISE_ARG …`, whose `main` calls [`crate::supervise`]. `program` is absolute.
    ///
    /// `lock`, the file that this process holds an flock on, is inherited by supervisors and never by commands: the
    /// lock can be taken by another process only when this one and everything that it started are gone.
    pub fn supervised(program: PathBuf, lock: Option<OwnedFd>) -> Exec {
        Self::new(Mode::Supervised { program, lock })
    }

    /// Without a supervisor, for tests: a process group that is killed at the end and on drop. A daemon can leave it,
    /// and it outlives a SIGKILL of this process.
    pub fn direct() -> Exec {
        Self::new(Mode::Direct)
    }

    fn new(mode: Mode) -> Exec {
        let (hidden, repositories) = (Hidden::default(), Repositories::default());
        Exec { mode: Arc::new(mode), linger: Duration::ZERO, hidden, repositories }
    }

    /// The same without these variables of our environment: names, in which a star stands for anything.
    pub fn hiding(&self, patterns: &[String]) -> Exec {
        Exec { hidden: self.hidden.and(patterns), ..self.clone() }
    }

    /// The same, where git may start the programs that a repository's own configuration names, if the user trusts them: a
    /// function of the file that names them and of a text that lists them.
    pub fn trusting(&self, trusts: impl Fn(&Path, &str) -> bool + Send + Sync + 'static) -> Exec {
        Exec { repositories: Repositories::trusting(trusts), ..self.clone() }
    }

    /// Git in a directory.
    pub fn git(&self, directory: impl Into<PathBuf>) -> Git {
        Git::new(self, directory.into())
    }

    /// The same for commands that should not be cut off: when nobody waits for one any more, or Trefoil is gone, it may
    /// end by itself within this time, and is asked to end before it is killed.
    pub fn lingering(&self, linger: Duration) -> Exec {
        Exec { linger, ..self.clone() }
    }

    /// Runs a command to its end, and hands over its output piece by piece as it comes.
    ///
    /// When this returns, nothing that the command started is left; dropping the future kills it all too.
    pub async fn run(
        &self,
        spec: Spec,
        cancel: CancellationToken,
        on_output: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Outcome, ExecError> {
        let mut sink = Sink::new(spec.keep_bytes, spec.spill.clone());
        if cancel.is_cancelled() {
            return Ok(Outcome { end: End::Cancelled, output: sink.finish().0 });
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
                    Ok(Event::Running) => {}
                    Ok(Event::Ended(how)) => {
                        end.get_or_insert(how);
                        limit = Some(Instant::now() + KILL_WAIT);
                    }
                    Ok(Event::Gone) => break Ok(()),
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
        Ok(Outcome { end, output })
    }

    /// Starts a command on a terminal of its own. The timeout of `spec` and what it says about output do not apply.
    pub async fn terminal(&self, spec: Spec, size: Size) -> Result<(Terminal, Process), ExecError> {
        let opened = Terminal::open(size);
        let (terminal, slave) = opened.map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
        let job = self.spawn(&spec, Stdio::Terminal(slave))?;
        Ok((terminal, Process::started(job, spec).await?))
    }

    /// Starts a command that is talked to: three pipes of its own. The timeout of `spec` and what it says about output do
    /// not apply.
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
                Job::Supervised(Supervised::start(program, lock.as_ref(), self.linger, &self.hidden, spec, output)?)
            }
            Mode::Direct => Job::Direct(Direct::start(self.linger, &self.hidden, spec, stdio)?),
        })
    }
}

fn emit(text: &str, on_output: &mut (dyn FnMut(&str) + Send)) {
    if !text.is_empty() {
        on_output(text);
    }
}

/// Reads what is in the pipe now. Everything that wrote to it is dead, so that is all; and should something outside our
/// reach hold it open, we do not wait for it. The system is asked, since the runtime may not know yet that there is more.
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
