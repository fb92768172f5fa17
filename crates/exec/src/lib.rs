//! Runs processes and parses bash.
//!
//! A command never outlives Trefoil: it runs under a re-exec of our own binary ([`supervise`]) that adopts every
//! orphan below it and kills them all when the command ends, when it is told to, or when Trefoil is gone.
//! The [`bash`] module says what a command line would do, so that permission rules can judge it.

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
pub use spec::{End, Outcome, Spec};
pub use stdio::Pipes;
pub use supervise::supervise;
pub use terminal::{Process, Size, Terminal};
pub use tree::{ignores_hangup, is_stopped};

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The hidden first argument with which our binary is a supervisor: `program SUPERVISE_ARG linger[:descriptors] command args…`,
/// where `linger` is the time in milliseconds of [`Exec::lingering`], and `descriptors` how many the command may open.
pub const SUPERVISE_ARG: &str = "__supervise";

/// How long a command may go on after it was asked to end (SIGTERM), before it is killed.
pub const GRACE: Duration = Duration::from_millis(200);

/// How long we wait for killed processes to be gone before we report that they are not.
pub const KILL_WAIT: Duration = Duration::from_secs(5);

/// Why a command could not be run, or how it ended is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The working directory is not there.
    #[error("cannot run in {}: it is not a directory; pass one that exists", .0.display())]
    Directory(PathBuf),
    /// The command's program could not be started.
    #[error("cannot start {}: {source}; check that it exists, is executable and that its arguments are not too long", program.display())]
    Spawn {
        /// The command's program.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// The supervisor could not be started, so neither was the command.
    #[error("cannot start the supervisor {}: {source}; check that Trefoil's binary is still in its place", program.display())]
    Supervisor {
        /// Our own binary.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The supervisor ended before it could say how the command ended.
    #[error(
        "the command's supervisor died ({status}): how the command ended is unknown; check its effects before it is run again"
    )]
    SupervisorDied {
        /// How the supervisor ended.
        status: ExitStatus,
    },
    /// Something that the command started is still there.
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
        /// What the system said.
        source: io::Error,
    },
}
