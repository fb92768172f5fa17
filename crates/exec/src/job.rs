//! A running command: under a supervisor, or directly below us.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};

use crate::environment::HiddenVariables;
use crate::stdio::Stdio;
use crate::supervise::own_session;
use crate::wire::{MESSAGE_LEN, Message, TERMINATE};
use crate::{End, ExecError, GRACE, SUPERVISE_ARG, Spec, descriptors};

/// What a job reports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JobEvent {
    /// The command started; reported only with a terminal or pipes.
    Running,
    /// The command ended.
    Ended(End),
    /// All its processes are gone.
    Gone,
}

/// A started command. Dropping it kills it.
pub(crate) enum Job {
    Supervised(SupervisedJob),
    Direct(DirectJob),
}

impl Job {
    /// The next event; cancel-safe.
    pub(crate) async fn next(&mut self, spec: &Spec) -> Result<JobEvent, ExecError> {
        match self {
            Self::Supervised(job) => job.next(spec).await,
            Self::Direct(job) => job.next(spec).await,
        }
    }

    /// Waits until a command with a terminal or pipes has started; returns its process id.
    pub(crate) async fn running(&mut self, spec: &Spec) -> Result<i32, ExecError> {
        let pid = match self {
            Self::Supervised(job) => match job.next(spec).await? {
                JobEvent::Running => job.session,
                JobEvent::Ended(_) | JobEvent::Gone => None,
            },
            // Starting it already waited for that.
            Self::Direct(job) => job.group,
        };
        let unknown = || ExecError::Io { program: spec.program.clone(), source: io::ErrorKind::InvalidData.into() };
        pid.map(|pid| pid.as_raw_nonzero().get()).ok_or_else(unknown)
    }

    /// Ends the command: SIGTERM, and SIGKILL after [`GRACE`].
    pub(crate) fn terminate(&mut self) {
        match self {
            // The socket's buffer is empty, so one byte fits; if nobody reads it, `next` will notice. The write
            // bypasses the runtime, which may not know yet that a new socket is writable.
            Self::Supervised(job) => drop(rustix::io::write(&job.control, &[TERMINATE])),
            Self::Direct(job) => {
                job.signal(Signal::TERM);
                job.kill_at = Some(Instant::now() + GRACE);
            }
        }
    }
}

/// A command below a supervisor, which kills everything when `control` is dropped, or when its linger time is over.
pub(crate) struct SupervisedJob {
    supervisor: Child,
    control: UnixStream,
    message: [u8; MESSAGE_LEN],
    filled: usize,
    session: Option<Pid>,
    clean: bool,
}

impl SupervisedJob {
    pub(crate) fn start(
        program: &Path,
        lock: Option<&OwnedFd>,
        linger: Duration,
        hidden: &HiddenVariables,
        spec: &Spec,
        output: OwnedFd,
    ) -> Result<SupervisedJob, ExecError> {
        let start = || -> io::Result<SupervisedJob> {
            let (ours, theirs) = StdUnixStream::pair()?;
            ours.set_nonblocking(true)?;
            let control = UnixStream::from_std(ours)?;
            let lock = match lock {
                Some(fd) => process::Stdio::from(fd.try_clone()?),
                None => process::Stdio::null(),
            };
            let mut supervisor = Command::new(program);
            let limit = descriptors::inherited_limit().map(|limit| format!(":{limit}")).unwrap_or_default();
            supervisor.arg(SUPERVISE_ARG).arg(format!("{}{limit}", linger.as_millis())).arg(&spec.program);
            let supervisor = spec
                .prepare(&mut supervisor, hidden)
                .stdin(OwnedFd::from(theirs))
                .stdout(output)
                .stderr(lock)
                // In its own group: Ctrl-C at the terminal must not kill it before it has cleaned up.
                .process_group(0)
                .spawn()?;
            Ok(SupervisedJob { supervisor, control, message: [0; MESSAGE_LEN], filled: 0, session: None, clean: false })
        };
        start().map_err(|source| ExecError::Supervisor { program: program.into(), source })
    }

    async fn next(&mut self, spec: &Spec) -> Result<JobEvent, ExecError> {
        loop {
            match self.control.read(&mut self.message[self.filled..]).await {
                Ok(0) | Err(_) => return self.gone(spec).await,
                Ok(count) => self.filled += count,
            }
            if self.filled < MESSAGE_LEN {
                continue;
            }
            self.filled = 0;
            match Message::decode(self.message) {
                Some(Message::Started(pid)) => self.session = Pid::from_raw(pid),
                Some(Message::Running) => return Ok(JobEvent::Running),
                Some(Message::Failed(errno)) => {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(ExecError::Spawn { program: spec.program.clone(), source });
                }
                Some(Message::Exited(code)) => return Ok(JobEvent::Ended(End::Exited(code))),
                Some(Message::Signalled(signal)) => return Ok(JobEvent::Ended(End::Signalled(signal))),
                Some(Message::Clean) => self.clean = true,
                None => {
                    let source = io::ErrorKind::InvalidData.into();
                    return Err(ExecError::Io { program: spec.program.clone(), source });
                }
            }
        }
    }

    async fn gone(&mut self, spec: &Spec) -> Result<JobEvent, ExecError> {
        let status =
            self.supervisor.wait().await.map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
        if self.clean {
            return Ok(JobEvent::Gone);
        }
        // The kernel killed the command together with its supervisor; we kill the rest of its group.
        if let Some(session) = self.session {
            let _ = kill_process_group(session, Signal::KILL);
        }
        Err(ExecError::SupervisorDied { status })
    }
}

/// A command in its own process group, without a supervisor.
pub(crate) struct DirectJob {
    child: Child,
    group: Option<Pid>,
    kill_at: Option<Instant>,
    /// It is not killed on drop.
    lingers: bool,
    ended: bool,
}

impl DirectJob {
    pub(crate) fn start(
        linger: Duration,
        hidden: &HiddenVariables,
        spec: &Spec,
        stdio: Stdio,
    ) -> Result<DirectJob, ExecError> {
        let start = || -> io::Result<DirectJob> {
            let on_terminal = matches!(stdio, Stdio::Terminal(_));
            let mut command = Command::new(&spec.program);
            stdio.attach(spec.prepare(&mut command, hidden).as_std_mut())?;
            descriptors::restore_limit(command.as_std_mut());
            if on_terminal {
                own_session(command.as_std_mut(), on_terminal, None);
            } else {
                command.process_group(0);
            }
            let child = command.spawn()?;
            let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            Ok(DirectJob { child, group, kill_at: None, lingers: !linger.is_zero(), ended: false })
        };
        start().map_err(|source| ExecError::Spawn { program: spec.program.clone(), source })
    }

    async fn next(&mut self, spec: &Spec) -> Result<JobEvent, ExecError> {
        if self.ended {
            return Ok(JobEvent::Gone);
        }
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                () = until(self.kill_at) => {
                    self.kill_at = None;
                    self.signal(Signal::KILL);
                }
            }
        };
        let status = status.map_err(|source| ExecError::Io { program: spec.program.clone(), source })?;
        self.signal(Signal::KILL);
        self.ended = true;
        Ok(JobEvent::Ended(status.into()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for DirectJob {
    fn drop(&mut self) {
        if !self.ended && !self.lingers {
            self.signal(Signal::KILL);
        }
    }
}

/// Waits until an instant, or forever.
pub(crate) async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}
