//! Commands on their own terminal, such as a shell that a human types into.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout};

use crate::job::{Job, JobEvent, until};
use crate::{End, ExecError, KILL_WAIT, Spec};

/// How long a command may take to start.
const START_WAIT: Duration = Duration::from_secs(10);

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

impl From<Size> for Winsize {
    fn from(size: Size) -> Self {
        Self { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

#[expect(unsafe_code, reason = "tokio cannot know that a descriptor stays what it is")]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which `AsyncFd` does.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Our end of a terminal: writing types into it, reading returns what it shows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Terminal {
    master: Arc<AsyncFd<OwnedFd>>,
}

impl Terminal {
    /// Creates a terminal; also returns the command's end.
    pub(crate) fn open(size: Size) -> io::Result<(Self, OwnedFd)> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        tcsetwinsize(&master, size.into())?;
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok((Self { master: Arc::new(register(master)?) }, slave))
    }

    /// Reads what is shown; 0 once nothing has the terminal open any more.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.master.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)) {
                Ok(Ok(count)) => return Ok(count),
                // This is how Linux reports that the other end is closed.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Ok(0),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_not_ready) => {}
            }
        }
    }

    /// Types all bytes. Waits while the command does not read.
    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.master.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_not_ready) => {}
            }
        }
        Ok(())
    }

    /// Resizes it; the program in it is notified.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        Ok(tcsetwinsize(&*self.master, size.into())?)
    }
}

/// A command that runs on a terminal or with pipes. Dropping it kills the command and everything that it started.
pub struct Process {
    job: Job,
    spec: Spec,
    pid: i32,
    end: Option<End>,
    limit: Option<Instant>,
}

impl Process {
    /// Waits until the command is running.
    pub(crate) async fn started(mut job: Job, spec: Spec) -> Result<Self, ExecError> {
        match timeout(START_WAIT, job.running(&spec)).await {
            Ok(pid) => Ok(Self { pid: pid?, job, spec, end: None, limit: None }),
            Err(_) => Err(ExecError::Io { program: spec.program, source: io::ErrorKind::TimedOut.into() }),
        }
    }

    /// The command's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Ends the command and everything that it started: SIGTERM, and SIGKILL after [`crate::GRACE`].
    pub fn terminate(&mut self) {
        self.job.terminate();
    }

    /// Waits for its end, when nothing that it started is left. Cancel-safe.
    pub async fn ended(&mut self) -> Result<End, ExecError> {
        loop {
            tokio::select! {
                event = self.job.next(&self.spec) => match event? {
                    JobEvent::Running => {}
                    JobEvent::Ended(how) => {
                        self.end.get_or_insert(how);
                        self.limit = Some(Instant::now() + KILL_WAIT);
                    }
                    JobEvent::Gone => {
                        let lost = || io::ErrorKind::UnexpectedEof.into();
                        return self.end.ok_or_else(|| ExecError::Io { program: self.spec.program.clone(), source: lost() });
                    }
                },
                () = until(self.limit) => return Err(ExecError::Unkillable { program: self.spec.program.clone() }),
            }
        }
    }
}
