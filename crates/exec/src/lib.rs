//! Runs processes and parses bash.
//!
//! A command never outlives Trefoil: it runs under a re-exec of our own binary ([`supervise`]), which adopts every
//! orphan below it and kills them all when the command ends, on request, or when Trefoil is gone. The [`bash`] module
//! determines what a command line would do, so that permission rules can judge it.

pub mod bash;
mod descriptors;
mod environment;
pub mod git;
mod job;
mod output;
mod run;
mod spec;
mod stdio;
mod supervise;
mod terminal;
mod tree;
mod wire;

pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub use output::{Output, SPILL_LIMIT};
pub use run::Exec;
pub use spec::{End, RunOutcome, Spec};
pub use stdio::Pipes;
pub use supervise::supervise;
pub use terminal::{Process, Size, Terminal};
pub use tree::{ignores_hangup, is_stopped};

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The hidden first argument that makes our binary a supervisor: `program SUPERVISE_ARG linger[:descriptors] command
/// args…`, where `linger` is the time of [`Exec::lingering`] in milliseconds, and `descriptors` the limit of open files
/// for the command.
pub const SUPERVISE_ARG: &str = "__supervise";

/// How long a command may continue after SIGTERM before it is killed.
pub const GRACE: Duration = Duration::from_millis(200);

/// How long we wait for killed processes to disappear before we report that they did not.
pub const KILL_WAIT: Duration = Duration::from_secs(5);

/// Why a command could not run, or why its end is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The working directory does not exist.
    #[error("cannot run in {}: it is not a directory; pass one that exists", .0.display())]
    Directory(PathBuf),
    /// The command's program could not be started.
    #[error("cannot start {}: {source}; check that it exists, is executable and that its arguments are not too long", program.display())]
    Spawn {
        /// The command's program.
        program: OsString,
        /// The system's error.
        source: io::Error,
    },
    /// The supervisor could not be started, so neither was the command.
    #[error("cannot start the supervisor {}: {source}; check that Trefoil's binary is still in its place", program.display())]
    Supervisor {
        /// Our own binary.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The supervisor died before it reported the command's end.
    #[error(
        "the command's supervisor died ({status}): how the command ended is unknown; check its effects before it is run again"
    )]
    SupervisorDied {
        /// How the supervisor ended.
        status: ExitStatus,
    },
    /// A process that the command started is still there.
    #[error(
        "a process that {} started could not be killed within {} s: it runs as another user or hangs in the kernel; end it by hand",
        program.display(), KILL_WAIT.as_secs()
    )]
    Unkillable {
        /// The command's program.
        program: OsString,
    },
    /// A pipe to the command failed.
    #[error("lost contact with {}: {source}; how it ended is unknown", program.display())]
    Io {
        /// The command's program.
        program: OsString,
        /// The system's error.
        source: io::Error,
    },
}
