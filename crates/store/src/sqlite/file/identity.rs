//! Checks that the open files are still the ones at the database's path. SQLite does not: it keeps writing to a deleted
//! file, and everything is lost when the process ends.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{DatabaseErrorKind, StoreError};

/// Device and inode of each file of an open database: the file itself, its WAL and the WAL index.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    files: Vec<(PathBuf, (u64, u64))>,
}

impl FileIdentity {
    /// Reads them. The database must be open, so that its files exist.
    pub(crate) fn of(path: &Path) -> Result<Self, StoreError> {
        let mut files = vec![(path.to_owned(), device_and_inode(path).map_err(|error| StoreError::io(path, &error))?)];
        for suffix in ["-wal", "-shm"] {
            let file = sibling(path, suffix);
            // Without shared memory there is no WAL index.
            files.extend(device_and_inode(&file).ok().map(|id| (file, id)));
        }
        Ok(Self { files })
    }

    /// Fails if one of them was moved, deleted or replaced.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for (file, known) in &self.files {
            let moved = |what: &str| Err(StoreError::database(file, DatabaseErrorKind::Moved, what));
            match device_and_inode(file) {
                Ok(found) if found == *known => {}
                Ok(_) => return moved("there is another file now"),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return moved("it is gone");
                }
                Err(error) => return Err(StoreError::io(file, &error)),
            }
        }
        Ok(())
    }
}

fn device_and_inode(path: &Path) -> std::io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// The path of a database's companion file. SQLite puts these next to the file itself, not next to a link to it.
pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push(suffix);
    name.into()
}
