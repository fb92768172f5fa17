//! The input and output of a command.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Command};

use rustix::fs::{FileType, fstat};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::termios::isatty;
use tokio::net::unix::pipe::{Receiver, Sender};

/// Our ends of the pipes of an interactive command.
#[derive(Debug)]
pub struct Pipes {
    /// Its input. Closing it signals the end.
    pub stdin: Sender,
    /// Its output.
    pub stdout: Receiver,
    /// Its error output.
    pub stderr: Receiver,
}

impl Pipes {
    /// Creates pipes; also returns the command's ends.
    pub(crate) fn open() -> io::Result<(Self, Stdio)> {
        let (read_in, write_in) = io::pipe()?;
        let (read_out, write_out) = io::pipe()?;
        let (read_err, write_err) = io::pipe()?;
        let pipes = Self {
            stdin: Sender::from_owned_fd(write_in.into())?,
            stdout: Receiver::from_owned_fd(read_out.into())?,
            stderr: Receiver::from_owned_fd(read_err.into())?,
        };
        Ok((pipes, Stdio::Pipes([read_in.into(), write_out.into(), write_err.into()])))
    }
}

/// The command's ends.
pub(crate) enum Stdio {
    /// Output and errors together; there is no input.
    Output(OwnedFd),
    /// A terminal.
    Terminal(OwnedFd),
    /// Input, output and errors.
    Pipes([OwnedFd; 3]),
}

impl Stdio {
    /// Converts them to one descriptor, with which a supervisor can be started.
    pub(crate) fn into_output(self) -> io::Result<OwnedFd> {
        let three = match self {
            Self::Output(fd) | Self::Terminal(fd) => return Ok(fd),
            Self::Pipes(three) => three,
        };
        let (ours, theirs) = UnixStream::pair()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let fds = three.each_ref().map(AsFd::as_fd);
        if !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // They wait in the socket until the supervisor takes them.
        sendmsg(&ours, &[IoSlice::new(b"3")], &mut rights, SendFlags::empty())?;
        Ok(theirs.into())
    }

    /// The reverse, in the supervisor.
    pub(crate) fn from_output(output: OwnedFd) -> io::Result<Self> {
        if isatty(&output) {
            return Ok(Self::Terminal(output));
        }
        if FileType::from_raw_mode(fstat(&output)?.st_mode) != FileType::Socket {
            return Ok(Self::Output(output));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&output, &mut [IoSliceMut::new(&mut [0])], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        let fds = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let three: Vec<OwnedFd> = fds.flatten().collect();
        Ok(Self::Pipes(three.try_into().map_err(|_| io::ErrorKind::InvalidData)?))
    }

    /// Attaches them to a command.
    pub(crate) fn attach(self, command: &mut Command) -> io::Result<()> {
        match self {
            Self::Output(fd) => command.stdin(process::Stdio::null()).stdout(fd.try_clone()?).stderr(fd),
            Self::Terminal(fd) => command.stdin(fd.try_clone()?).stdout(fd.try_clone()?).stderr(fd),
            Self::Pipes([stdin, stdout, stderr]) => command.stdin(stdin).stdout(stdout).stderr(stderr),
        };
        Ok(())
    }
}
