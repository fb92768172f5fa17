//! The supervisor: the small process between Trefoil and a command.
//!
//! It is started with the control socket as stdin, the output pipe as stdout and the owner's lock file as stderr, which
//! needs no tricks with inherited descriptors on Trefoil's side. It adopts every orphan below it (child subreaper), and
//! exits only when nothing below it is left: after the command's end, on request, or when the socket closes, which the
//! kernel does for us however Trefoil dies. Until then it keeps the lock.
//!
//! If the output is a terminal, it is also the command's input and its controlling terminal. If it is a socket, it
//! carries three descriptors: the command's input, output and errors.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpgid, getpid, getppid, ioctl_tiocsctty, pidfd_open,
    set_child_subreaper, set_parent_process_death_signal, setpgid, setsid, wait,
};
use rustix::stdio;

use crate::GRACE;
use crate::descriptors;
use crate::stdio::Stdio;
use crate::tree::signal_below;
use crate::wire::{Message, TERMINATE};

/// How long we keep killing what does not die before we give up and release the lock.
const KILL_LIMIT: Duration = Duration::from_secs(60);

/// The interval for collecting dead orphans while the command runs.
const COLLECT_INTERVAL: Duration = Duration::from_secs(2);

/// The polling interval for the command's end if the kernel has no pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The minimum and maximum pause between two checks of dying processes.
const KILL_PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(50));

/// The main function of a supervisor: `args` is what follows [`crate::SUPERVISE_ARG`].
///
/// Call it first in `main`, before any thread or runtime is started.
pub fn supervise(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    leave_terminal();
    let given = args.next().and_then(|given| given.into_string().ok()).unwrap_or_default();
    let (linger, limit) = given.split_once(':').map_or((given.as_str(), None), |(linger, limit)| (linger, Some(limit)));
    let Some(linger) = linger.parse().ok().map(Duration::from_millis) else { return ExitCode::FAILURE };
    if let Some(limit) = limit.and_then(|limit| limit.parse().ok()) {
        // A limit that cannot be lowered does no harm.
        let _ = descriptors::set(limit);
    }
    let Ok((mut control, output, _lock)) = take_descriptors() else { return ExitCode::FAILURE };
    match next_request(&control, None, Duration::ZERO) {
        ControlRequest::Nothing => {}
        ControlRequest::Terminate => {
            // It is over before it started.
            send(&mut control, Message::Signalled(Signal::TERM.as_raw()));
            send(&mut control, Message::Clean);
            return ExitCode::SUCCESS;
        }
        ControlRequest::Abandon => return ExitCode::SUCCESS,
    }
    let Ok(stdio) = Stdio::from_output(output) else { return ExitCode::FAILURE };
    let is_interactive = !matches!(stdio, Stdio::Output(_));
    match spawn(args, stdio, &control) {
        Ok(command) => {
            if is_interactive {
                send(&mut control, Message::Running);
            }
            Supervisor { control, command, linger, status: None }.run();
            ExitCode::SUCCESS
        }
        Err(error) => {
            send(&mut control, Message::Failed(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())));
            ExitCode::FAILURE
        }
    }
}

/// Moves to a session of its own, where no signals of a terminal reach us, nor the SIGHUP that the kernel sends to a
/// stopped group when its parent dies. We are started as a group leader, so that Ctrl-C spares us from the first
/// moment; but a leader cannot start a session, so we return to our parent's group for a moment. If that fails, the
/// parent is gone, which the control socket tells us next.
fn leave_terminal() {
    if let Ok(group) = getpgid(getppid()) {
        let _ = setpgid(None, Some(group));
    }
    let _ = setsid();
}

/// Moves the three descriptors out of the command's way, and leaves /dev/null in their places: nothing that this
/// process might write, such as a panic, may end up in the output or in the lock file.
fn take_descriptors() -> io::Result<(UnixStream, OwnedFd, OwnedFd)> {
    let control = fcntl_dupfd_cloexec(stdio::stdin(), 3)?;
    let output = fcntl_dupfd_cloexec(stdio::stdout(), 3)?;
    let lock = fcntl_dupfd_cloexec(stdio::stderr(), 3)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    stdio::dup2_stdin(&null)?;
    stdio::dup2_stdout(&null)?;
    stdio::dup2_stderr(&null)?;
    Ok((UnixStream::from(control), output, lock))
}

fn spawn(mut args: impl Iterator<Item = OsString>, stdio: Stdio, control: &UnixStream) -> io::Result<Pid> {
    set_child_subreaper(Some(getpid()))?;
    let program = args.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    let on_terminal = matches!(stdio, Stdio::Terminal(_));
    command.args(args);
    stdio.attach(&mut command)?;
    own_session(&mut command, on_terminal, Some(control.try_clone()?));
    let child = command.spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Starts a session of its own: no foreign terminal whose signals or password prompts could reach the command, and a
/// process group that we are not in.
///
/// A supervisor passes its control socket: if it is killed, the kernel kills the command, and Trefoil learns the
/// session before the command can do anything: should the command kill us, Trefoil knows what else to kill.
#[expect(unsafe_code, reason = "std cannot start sessions; the code between fork and exec is async-signal-safe")]
pub(crate) fn own_session(command: &mut Command, on_terminal: bool, control: Option<UnixStream>) {
    // SAFETY: the closure allocates nothing, takes no lock and makes async-signal-safe system calls only.
    unsafe {
        command.pre_exec(move || {
            let session = setsid()?;
            if on_terminal {
                ioctl_tiocsctty(stdio::stdin())?;
            }
            if let Some(control) = &control {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                rustix::io::write(control, &Message::Started(session.as_raw_nonzero().get()).encode())?;
            }
            Ok(())
        });
    }
}

/// What Trefoil requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ControlRequest {
    Nothing,
    /// End the command, with a grace period.
    Terminate,
    /// Nobody waits for the command any more: kill everything once its linger time is over.
    Abandon,
}

/// Waits for a request, for the end of `command` or for `limit`.
fn next_request(mut control: &UnixStream, command: Option<&OwnedFd>, limit: Duration) -> ControlRequest {
    let limit = timespec(limit);
    let mut fds = vec![PollFd::new(control, PollFlags::IN)];
    fds.extend(command.map(|fd| PollFd::new(fd, PollFlags::IN)));
    match poll(&mut fds, Some(&limit)) {
        Ok(_) if fds[0].revents().is_empty() => ControlRequest::Nothing,
        Ok(_) => {
            let mut byte = [0];
            match control.read(&mut byte) {
                Ok(1) if byte == [TERMINATE] => ControlRequest::Terminate,
                _ => ControlRequest::Abandon,
            }
        }
        Err(Errno::INTR) => ControlRequest::Nothing,
        Err(_) => ControlRequest::Abandon,
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

/// If a message cannot be delivered, nobody is there to read it, and the next request will be to abandon.
fn send(control: &mut UnixStream, message: Message) {
    let _ = control.write_all(&message.encode());
}

struct Supervisor {
    control: UnixStream,
    command: Pid,
    linger: Duration,
    status: Option<WaitStatus>,
}

impl Supervisor {
    fn run(&mut self) {
        let end = pidfd_open(self.command, PidfdFlags::empty()).ok();
        let pause = if end.is_some() { COLLECT_INTERVAL } else { POLL_INTERVAL };
        let request = loop {
            self.collect();
            if self.status.is_some() {
                break ControlRequest::Nothing;
            }
            match next_request(&self.control, end.as_ref(), pause) {
                ControlRequest::Nothing => {}
                request => break request,
            }
        };
        match request {
            // Report the end right away, so that it does not depend on what the command left behind.
            ControlRequest::Nothing => self.report_end(),
            ControlRequest::Terminate => self.terminate(end.as_ref()),
            ControlRequest::Abandon => self.linger(end.as_ref()),
        }
        if self.kill() {
            if request == ControlRequest::Terminate {
                self.report_end();
            }
            send(&mut self.control, Message::Clean);
        }
    }

    /// Collects dead children; returns whether any child is left, dead or alive.
    fn collect(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.command => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn report_end(&mut self) {
        let Some(status) = self.status else { return };
        let message = match status.terminating_signal() {
            Some(signal) => Message::Signalled(signal),
            None => Message::Exited(status.exit_status().unwrap_or(-1)),
        };
        send(&mut self.control, message);
    }

    /// Asks everything below us to end, and waits until it has or the grace period is over.
    fn terminate(&mut self, end: Option<&OwnedFd>) {
        signal_below(getpid(), Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while self.collect() && Instant::now() < deadline {
            // The command's end is reported once; then only leftovers matter.
            let end = end.filter(|_| self.status.is_none());
            if next_request(&self.control, end, POLL_INTERVAL) == ControlRequest::Abandon {
                return;
            }
        }
    }

    /// Lets the command end by itself for a while, and then asks it to.
    fn linger(&mut self, end: Option<&OwnedFd>) {
        if !self.linger.is_zero() && !self.ends_within(self.linger, end) {
            signal_below(getpid(), Signal::TERM);
            self.ends_within(GRACE, end);
        }
    }

    /// Waits for the command's end, whatever Trefoil requests.
    fn ends_within(&mut self, limit: Duration, end: Option<&OwnedFd>) -> bool {
        let deadline = Instant::now() + limit;
        while self.collect() && self.status.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match end {
                Some(end) => drop(poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&timespec(left)))),
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
        true
    }

    /// Kills until nothing is left: whatever is forked or orphaned meanwhile is ours by the next round.
    fn kill(&mut self) -> bool {
        let deadline = Instant::now() + KILL_LIMIT;
        let mut pause = KILL_PAUSE.0;
        while self.collect() {
            if Instant::now() > deadline {
                return false;
            }
            signal_below(getpid(), Signal::KILL);
            std::thread::sleep(pause);
            pause = (pause * 2).min(KILL_PAUSE.1);
        }
        true
    }
}
