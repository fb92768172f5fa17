//! Limits on open file descriptors, for this process and those it starts.

use std::io;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit we ask for. A server with thousands of clients needs no more, and some systems allow a billion, which is
/// slow for programs that close everything they could have inherited.
const WANTED_LIMIT: u64 = 65_536;

/// The limit that this process was started with, if it was raised. It is a property of the process, hence the static.
static INHERITED_LIMIT: OnceLock<u64> = OnceLock::new();

/// Raises this process's limit as far as the system allows, within reason. Commands get the limit that it was started
/// with: those that use `select` break with descriptors above 1023.
///
/// Call it in `main`, before anything is started.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(WANTED_LIMIT).min(WANTED_LIMIT);
    if let Some(given) = limit.current.filter(|given| *given < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        // If it fails, the current limit stays.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            let _ = INHERITED_LIMIT.set(given);
        }
    }
}

/// How many descriptors this process may have open.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(WANTED_LIMIT)
}

/// The limit for commands, if it differs from ours.
pub(crate) fn inherited_limit() -> Option<u64> {
    INHERITED_LIMIT.get().copied()
}

/// Sets the limit of this process and of its future children.
pub(crate) fn set(limit: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum })?)
}

/// Makes a command start with the limit that we were started with.
#[expect(unsafe_code, reason = "std has no API for it; the code between fork and exec is async-signal-safe")]
pub(crate) fn restore_limit(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    if let Some(given) = inherited_limit() {
        // SAFETY: the closure allocates nothing, takes no lock and makes two async-signal-safe system calls.
        unsafe {
            command.pre_exec(move || set(given));
        }
    }
}
