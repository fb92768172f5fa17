//! Reads a database that cannot be written because its disk is full or its folder is read-only.
//!
//! In WAL mode readers share an index in its own file (`-shm`), which the first of them creates. Where that is not
//! possible there are two other ways; both require that no process has the database open.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{StatVfs, StatVfsMountFlags, statvfs};

use crate::error::{DatabaseErrorKind, StoreError};
use crate::sqlite::file::identity::sibling;
use crate::sqlite::lease::Owners;
use crate::sqlite::schema;

/// A VFS without locks. SQLite's locks are useless where there is no other process, and cannot be taken where nothing
/// can be written.
const NO_LOCKS_VFS: &std::ffi::CStr = c"unix-none";

/// How readers access the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Like all other processes, through the shared index.
    Shared,
    /// Only the file, because its WAL is empty.
    Immutable,
    /// The file and its WAL, with an index in memory.
    PrivateIndex,
    /// The file does not exist, so there are no rows.
    Missing,
}

impl Access {
    /// Opens a connection for reading.
    pub(crate) fn open(self, path: &Path, busy: Duration) -> Result<Connection, StoreError> {
        let conn = match self {
            Self::Shared => return schema::open_reader(path, busy),
            Self::Missing => return schema::open_empty(busy),
            Self::Immutable => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?
            }
            Self::PrivateIndex => {
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let conn = Connection::open_with_flags_and_vfs(path, flags, NO_LOCKS_VFS)?;
                // Closing the connection would otherwise move the WAL into the file.
                conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                // Keeps the index in memory, because nobody shares it. Must precede the first read, which opens the
                // WAL.
                conn.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(()))?;
                conn
            }
        };
        schema::configure_reader(&conn, busy)?;
        Ok(conn)
    }
}

/// Finds a way to read a database that could not be opened for writing. Returns `why` if there is none.
pub(crate) fn find_access(path: &Path, busy: Duration, why: StoreError) -> Result<Access, StoreError> {
    let StoreError::Database {
        kind: DatabaseErrorKind::Full | DatabaseErrorKind::ReadOnly | DatabaseErrorKind::Failed,
        ..
    } = &why
    else {
        return Err(why);
    };
    match fs::exists(path) {
        Ok(true) => {}
        Ok(false) => return Ok(Access::Missing),
        Err(_) => return Err(why),
    }
    if is_readable(Access::Shared, path, busy) {
        return Ok(Access::Shared);
    }
    if Owners::any_alive(path) {
        return Err(why);
    }
    let wal = fs::metadata(sibling(path, "-wal")).map_or(0, |wal| wal.len());
    let access = if wal == 0 { Access::Immutable } else { Access::PrivateIndex };
    if is_readable(access, path, busy) { Ok(access) } else { Err(why) }
}

/// Opens a connection to a database that may be another program's. Nothing is changed, not even when it is closed.
pub(crate) fn inspect(access: Access, path: &Path, busy: Duration) -> Result<Connection, StoreError> {
    let conn = access.open(path, busy)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    schema::verify(path, &conn)?;
    Ok(conn)
}

/// Whether it is a database of ours with the current schema.
fn is_readable(access: Access, path: &Path, busy: Duration) -> bool {
    let read = || Ok::<_, StoreError>(schema::version(&inspect(access, path, busy)?)? == schema::VERSION);
    read().unwrap_or_else(|error| {
        tracing::debug!(%error, ?access, "the database cannot be read this way");
        false
    })
}

/// Turns an error met while opening into "disk full" if that is the cause: SQLite only knows that a file could not be
/// created.
pub(crate) fn explain_open_error(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Database { path: file, kind: DatabaseErrorKind::ReadOnly | DatabaseErrorKind::Failed, detail }
            if is_disk_full(path) =>
        {
            StoreError::Database { path: file, kind: DatabaseErrorKind::Full, detail }
        }
        error => error,
    }
}

/// Whether the disk that holds a file is full, if it is writable at all.
pub(crate) fn is_disk_full(path: &Path) -> bool {
    let folder = path.ancestors().skip(1).find(|folder| folder.exists());
    let full = |disk: StatVfs| {
        let (blocks, files) = (disk.f_bavail == 0, disk.f_files > 0 && disk.f_favail == 0);
        !disk.f_flag.contains(StatVfsMountFlags::RDONLY) && (blocks || files)
    };
    folder.and_then(|folder| statvfs(folder).ok()).is_some_and(full)
}

/// The URI of a file that does not change while it is read.
fn immutable_uri(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte);
    let mut address = String::from("file:");
    for byte in OsStr::as_bytes(path.as_os_str()) {
        if plain(byte) {
            address.push(char::from(*byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address + "?immutable=1"
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const BUSY: Duration = Duration::from_secs(1);

    fn full(path: &Path) -> StoreError {
        StoreError::database(path, DatabaseErrorKind::Full, "said so")
    }

    fn count(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM counter", [], |row| row.get(0)).unwrap()
    }

    /// A database with one row in its file and one in its WAL but no index, as a killed process leaves it.
    fn left_by_a_dead_process(folder: &Path) -> PathBuf {
        let (origin, copy) = (folder.join("origin.db"), folder.join("a copy?#%.db"));
        let (conn, _) = schema::open(&origin, BUSY).unwrap();
        conn.execute("INSERT INTO counter VALUES ('file', 1)", []).unwrap();
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        conn.execute("INSERT INTO counter VALUES ('wal', 1)", []).unwrap();
        fs::copy(&origin, &copy).unwrap();
        fs::copy(sibling(&origin, "-wal"), sibling(&copy, "-wal")).unwrap();
        copy
    }

    #[test]
    fn a_wal_is_read_without_a_shared_index_and_left_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = left_by_a_dead_process(folder.path());
        let files = || [fs::read(&path).unwrap(), fs::read(sibling(&path, "-wal")).unwrap()];
        let before = files();
        for _ in 0..2 {
            let (one, two) =
                (Access::PrivateIndex.open(&path, BUSY).unwrap(), Access::PrivateIndex.open(&path, BUSY).unwrap());
            assert_eq!((count(&one), count(&two)), (2, 2));
            assert!(one.execute("INSERT INTO counter VALUES ('x', 1)", []).is_err(), "it only reads");
        }
        assert!(files() == before && !sibling(&path, "-shm").exists(), "nothing was changed or created");
        assert!(is_readable(Access::PrivateIndex, &path, BUSY));
    }

    #[test]
    fn a_file_without_a_wal_is_read_as_immutable() {
        let folder = tempfile::tempdir().unwrap();
        let path = left_by_a_dead_process(folder.path());
        fs::remove_file(sibling(&path, "-wal")).unwrap();
        let conn = Access::Immutable.open(&path, BUSY).unwrap();
        assert_eq!(count(&conn), 1);
        assert!(conn.execute("INSERT INTO counter VALUES ('x', 1)", []).is_err(), "it only reads");
        assert!(!sibling(&path, "-wal").exists() && !sibling(&path, "-shm").exists());
    }

    #[test]
    fn the_right_access_is_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none/at/all.db");
        assert_eq!(find_access(&missing, BUSY, full(&missing)).unwrap(), Access::Missing);
        assert_eq!(count(&Access::Missing.open(&missing, BUSY).unwrap()), 0);
        let path = left_by_a_dead_process(folder.path());
        // With free space, it is read as usual.
        assert_eq!(find_access(&path, BUSY, full(&path)).unwrap(), Access::Shared);
        let damaged = StoreError::database(&path, DatabaseErrorKind::Damaged, "said so");
        assert_eq!(find_access(&path, BUSY, damaged.clone()), Err(damaged));
        // A dangling link takes the index's path, so that the index cannot be created.
        let _ = fs::remove_file(sibling(&path, "-shm"));
        std::os::unix::fs::symlink("/nowhere/at/all", sibling(&path, "-shm")).unwrap();
        assert_eq!(find_access(&path, BUSY, full(&path)).unwrap(), Access::PrivateIndex);
        // Someone may be writing.
        let (_, lock) = Owners::register(&path).unwrap();
        assert_eq!(find_access(&path, BUSY, full(&path)), Err(full(&path)));
        drop(lock);
        fs::remove_file(sibling(&path, "-wal")).unwrap();
        assert_eq!(find_access(&path, BUSY, full(&path)).unwrap(), Access::Immutable);
        let (conn, _) = schema::open(&folder.path().join("origin.db"), BUSY).unwrap();
        conn.pragma_update(None, "user_version", schema::VERSION - 1).unwrap();
        drop(conn);
        let old = folder.path().join("origin.db");
        assert_eq!(
            find_access(&old, BUSY, full(&old)),
            Err(full(&old)),
            "tables that this program would not understand"
        );
    }
}
