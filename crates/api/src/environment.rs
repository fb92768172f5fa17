//! The seam through which tools touch files and run commands: the disk and our own processes, or an editor's unsaved
//! buffers and terminals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

/// Why a file could not be read or written, or a command not be run.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The operating system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The other side said no.
    #[error("{path}: {message}")]
    Refused {
        /// The file, or the directory of the command.
        path: PathBuf,
        /// What it said.
        message: String,
    },
}

/// What a file holds.
pub enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// A file that is too large to be held in memory, to be read as far as it is wanted. Reading blocks.
    Large {
        /// Its size in bytes.
        size: u64,
        /// Its bytes from the beginning.
        reader: Box<dyn std::io::Read + Send>,
    },
}

/// The content of a file that an agent has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    /// Names the content; empty if there was no file.
    pub hash: String,
    /// The content, if it is a short text.
    pub content: Option<String>,
}

/// Files as the session sees them, and terminals that its human sees. A face binds one to a session (an editor's); without
/// one it is the disk, and commands run in our own processes.
pub trait Environment: Send + Sync {
    /// The whole content of a file; one that is too large to be held in memory is an error.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>>;
    /// The content of a file of any size.
    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Content, EnvironmentError>> {
        Box::pin(async move { self.read(path).await.map(Content::Whole) })
    }
    /// Replaces the whole content of a file, making its directories.
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>>;
    /// What one call of a tool sees, if calls share what they have read: the same file need not be fetched twice.
    fn for_call(self: Arc<Self>) -> Option<Arc<dyn Environment>> {
        None
    }
    /// Starts a command in a terminal of its own; nothing if there are no terminals here.
    fn terminal(
        &self,
        _command: TerminalCommand,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Terminal>>, EnvironmentError>> {
        Box::pin(async { Ok(None) })
    }
}

/// A command for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs, absolute.
    pub directory: PathBuf,
    /// Further variables.
    pub env: Vec<(String, String)>,
    /// How much of its output is kept: the end.
    pub max_bytes: usize,
}

/// How a command in a terminal ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// What a command in a terminal printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The text.
    pub text: String,
    /// Whether its beginning is missing.
    pub truncated: bool,
}

/// A terminal somewhere else. It is given back with [`release`](Self::release), or when it is dropped.
pub trait Terminal: Send + Sync {
    /// The name by which its face shows it.
    fn id(&self) -> &str;
    /// Waits for the end of its command.
    fn wait(&self) -> BoxFuture<'_, Result<TerminalExit, EnvironmentError>>;
    /// What it printed so far.
    fn output(&self) -> BoxFuture<'_, Result<TerminalOutput, EnvironmentError>>;
    /// Ends its command.
    fn kill(&self) -> BoxFuture<'_, Result<(), EnvironmentError>>;
    /// Gives it back.
    fn release(&self) -> BoxFuture<'_, ()>;
}
