//! One service per database: a lock on a file beside it. The system releases it when the process ends, however it ends.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::OpenError;

/// What the names of directories with temporary databases begin with.
const TEMPORARY: &str = "trefoil-a2a-";
/// How many names are tried for one.
const MAX_NAMES: usize = 16;
/// How many entries of the parent are looked at for directories that a killed process left behind.
const MAX_LEFT_BEHIND: usize = 1000;

/// The right to use a database, until it is dropped.
pub(super) struct ServiceLock {
    _file: File,
}

impl ServiceLock {
    pub(super) fn take(database: &Path) -> Result<Self, OpenError> {
        let path = lock_path(database);
        let file = open(&path).map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: database.display().to_string() }),
            Err(TryLockError::Error(error)) => Err(failed(&path, error)),
        }
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".a2a.lock");
    database.with_file_name(name)
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

fn failed(path: &Path, error: std::io::Error) -> OpenError {
    OpenError::File { path: path.display().to_string(), error }
}

/// A private directory that is deleted when it is dropped.
pub(super) struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    /// Makes one, and deletes those of processes that were killed.
    pub(super) fn create(parent: &Path) -> Result<Self, OpenError> {
        delete_left_behind(parent);
        for attempt in 1.. {
            let path = parent.join(format!("{TEMPORARY}{:016x}", fastrand::u64(..)));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < MAX_NAMES => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        unreachable!("the loop ends by returning")
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join("tasks.db")
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a temporary database could not be deleted");
        }
    }
}

fn delete_left_behind(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().take(MAX_LEFT_BEHIND);
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPORARY)) {
        let lock = lock_path(&entry.path().join("tasks.db"));
        // Without the file the directory was made a moment ago. A lock that can be taken has no living owner.
        if let Ok(file) = OpenOptions::new().write(true).open(&lock)
            && file.try_lock().is_ok()
        {
            // It may belong to somebody else, who deletes it then.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
