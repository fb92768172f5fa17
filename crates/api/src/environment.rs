//! The seam through which tools touch files: the disk, or an editor's unsaved buffers.

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;

/// Why a file could not be read or written.
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
        /// The file.
        path: PathBuf,
        /// What it said.
        message: String,
    },
}

/// Files as the session sees them. A face binds one to a session (an editor's buffers); without one it is the disk.
pub trait Environment: Send + Sync {
    /// The whole content of a file.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>>;
    /// Replaces the whole content of a file, making its directories.
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>>;
}
