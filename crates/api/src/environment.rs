//! The seam through which tools use files and commands: the local disk and our own processes, or an editor's unsaved
//! buffers and terminals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

/// Why a file could not be read or written, or a command could not run.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: std::io::Error,
    },
    /// The other side refused.
    #[error("{path}: {message}")]
    Refused {
        /// The file, or the command's directory.
        path: PathBuf,
        /// Its reason.
        message: String,
    },
}

/// The content of a file.
pub enum Content {
    /// All of it.
    Whole(Vec<u8>),
    /// A file too large to hold in memory; read as much as you need. Reading blocks.
    Large {
        /// Its size in bytes.
        size: u64,
        /// Its bytes from the beginning.
        reader: Box<dyn std::io::Read + Send>,
    },
}

/// A version of a file's content that an agent has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    /// Identifies the content; empty if the file did not exist.
    pub hash: String,
    /// The content, if it is short text.
    pub content: Option<String>,
}

/// The files a session works on and the terminals its human sees. A face may bind one to a session (an editor does);
/// without one, files are on disk and commands run in our own processes.
pub trait Environment: Send + Sync {
    /// Reads a whole file; fails if it is too large to hold in memory.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>>;
    /// Opens a file of any size.
    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Content, EnvironmentError>> {
        Box::pin(async move { self.read(path).await.map(Content::Whole) })
    }
    /// Replaces the content of a file, creating missing directories.
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>>;
    /// A view for one tool call, if calls cache what they read: a call then fetches a file only once.
    fn for_call(self: Arc<Self>) -> Option<Arc<dyn Environment>> {
        None
    }
    /// Starts a command in a terminal of its own; `None` if this environment has no terminals.
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
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// How many bytes of output are kept, counted from the end.
    pub max_bytes: usize,
}

/// How a command in a terminal ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code, if it exited normally.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<String>,
}

/// What a command in a terminal printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The text.
    pub text: String,
    /// Whether the beginning was dropped.
    pub truncated: bool,
}

/// A terminal in another program. It is released by [`release`](Self::release) or on drop.
pub trait Terminal: Send + Sync {
    /// The id under which its face shows it.
    fn id(&self) -> &str;
    /// Waits for its command to exit.
    fn wait(&self) -> BoxFuture<'_, Result<TerminalExit, EnvironmentError>>;
    /// What it has printed so far.
    fn output(&self) -> BoxFuture<'_, Result<TerminalOutput, EnvironmentError>>;
    /// Kills its command.
    fn kill(&self) -> BoxFuture<'_, Result<(), EnvironmentError>>;
    /// Releases it.
    fn release(&self) -> BoxFuture<'_, ()>;
}
