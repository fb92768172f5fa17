//! What the errors of SQLite mean for a caller.

use std::path::Path;

use crate::error::{DatabaseErrorKind, StoreError};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let extended = error.sqlite_error().map(|error| error.extended_code);
        let kind = match error.sqlite_error_code() {
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => DatabaseErrorKind::Damaged,
            Some(Code::DiskFull) => DatabaseErrorKind::Full,
            // The WAL index could not grow.
            Some(Code::SystemIoFailure) if extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => {
                DatabaseErrorKind::Full
            }
            Some(Code::SystemIoFailure) => DatabaseErrorKind::Io,
            Some(Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen) => DatabaseErrorKind::ReadOnly,
            Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => {
                DatabaseErrorKind::Busy
            }
            _ => DatabaseErrorKind::Failed,
        };
        Self::database(Path::new(""), kind, error)
    }
}
