//! How many descriptors this process may have open, and those that it starts.

use std::io;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as we ask for. A server with thousands of clients needs no more, and some systems allow a billion, which programs
/// that close all they could have inherited take for real.
const WANTED: u64 = 65_536;

/// The limit that this process was started with, if it was raised. It is the process's, so there is one.
static GIVEN: OnceLock<u64> = OnceLock::new();

/// Lets this process open as many descriptors as the system lets it, within reason. Commands get the limit that it was
/// started with: those that use `select` break with descriptors above 1023.
///
/// Call it in `main`, before anything is started.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(WANTED).min(WANTED);
    if let Some(given) = limit.current.filter(|given| *given < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        // Where that fails we have what we were given.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            let _ = GIVEN.set(given);
        }
    }
}

/// How many descriptors this process may have open.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(WANTED)
}

/// The limit for commands, if it is another than our own.
pub(crate) fn given() -> Option<u64> {
    GIVEN.get().copied()
}

/// Sets the limit of this process, and of what it starts.
pub(crate) fn set(limit: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum })?)
}

/// Has a command begin with the limit that we were started with.
#[expect(
    unsafe_code,
    reason = "std has no word for it; what is done between fork and exec must be, and is, fit for it"
)]
pub(crate) fn give_back(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    if let Some(given) = given() {
        // SAFETY: the closure allocates nothing, takes no lock and makes two async-signal-safe system calls.
        unsafe {
            command.pre_exec(move || set(given));
        }
    }
}
