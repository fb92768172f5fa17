//! The tables, their migrations, and opening a database file without harming another program's.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{DatabaseErrorKind, StoreError};
use crate::sqlite::file::data_loss::{self, DataLoss, Tip};
use crate::sqlite::file::read_only::{self, Access};

/// Marks a file as ours ("Tref"), so that another program's database is never migrated.
const APPLICATION_ID: i64 = 0x5472_6566;

/// The WAL file is truncated to this size after a checkpoint.
const MAX_WAL_BYTES: i64 = 16 << 20;

/// A checkpoint follows after this many pages, which is less than the size above. The number is high because a turn
/// writes the same few pages over and over and only their last state is moved; it is not higher because a sync costs
/// more while the file still grows.
pub(crate) const CHECKPOINT_PAGES: i32 = 1000;

/// How long to retry opening while another process opens or locks the same file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The delay between those attempts.
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Each migration takes the schema from its index to the next version.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
    include_str!("schema/8.sql"),
    include_str!("schema/9.sql"),
    include_str!("schema/10.sql"),
    include_str!("schema/11.sql"),
    include_str!("schema/12.sql"),
    include_str!("schema/13.sql"),
];

/// The schema version this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Opens the file for writing, creates it if it is missing, and migrates it to the newest schema. Also returns the
/// commits it has lost since it was last open.
pub(crate) fn open(path: &Path, busy: Duration) -> Result<(Connection, Option<DataLoss>), StoreError> {
    let new = create_if_missing(path)?;
    let (began, mut lost) = (Instant::now(), None);
    loop {
        match connect(path, busy, new, &mut lost) {
            // Switching to WAL takes an exclusive lock and does not wait for it, so another process opening at the same
            // moment can make it fail.
            Err(error) if error.is_busy() && began.elapsed() < OPEN_TIMEOUT => std::thread::sleep(OPEN_RETRY_DELAY),
            done => return done.map(|conn| (conn, lost)).map_err(|error| error.at(path)),
        }
    }
}

/// Creates directory and file with tight permissions. Returns whether the file was created.
///
/// Never opens the file: closing it would drop the locks that SQLite holds on it for another connection of this
/// process.
fn create_if_missing(path: &Path) -> Result<bool, StoreError> {
    let fail = |error: std::io::Error| StoreError::io(path, &error);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(fail)?;
    }
    if !fs::exists(path).map_err(fail)? {
        let fresh = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(fail)?;
        let linked = fs::hard_link(&fresh, path);
        fs::remove_file(&fresh).map_err(fail)?;
        return match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(fail(error)),
            linked => Ok(linked.is_ok()),
        };
    }
    Ok(false)
}

fn connect(path: &Path, busy: Duration, new: bool, lost: &mut Option<DataLoss>) -> Result<Connection, StoreError> {
    // Read before the log, or commits of another process in between would look like a loss. A new file has lost
    // nothing, even if the tip file of a removed database still exists.
    let tip = if new { None } else { Tip::read(path) };
    let mut conn = Connection::open_with_flags(path, open_flags())?;
    configure(&conn, busy)?;
    // Until the file is known to be ours, closing it must not move pages from the WAL into it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    verify(path, &conn)?;
    if lost.is_none()
        && let Some(loss) = data_loss::detect(path, &conn, tip)?
    {
        *lost = Some(data_loss::preserve(&conn, loss)?);
    }
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    restrict_permissions(path).map_err(|error| StoreError::io(path, &error))?;
    if conn.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        // Only possible before anything is written to the file; later it takes a `VACUUM`.
        conn.pragma_update(None, "auto_vacuum", "incremental")?;
    }
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    // Overwrites deleted content on pages that are written anyway; pages that become free are released.
    conn.pragma_update_and_check(None, "secure_delete", "fast", |_| Ok(()))?;
    conn.pragma_update_and_check(None, "journal_size_limit", MAX_WAL_BYTES, |_| Ok(()))?;
    // The writer checkpoints when nobody is waiting for it.
    conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "normal")?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.set_prepared_statement_cache_capacity(128);
    migrate(&mut conn)?;
    Ok(conn)
}

/// Refuses a file that is damaged, newer or another program's. Only reads.
pub(crate) fn verify(path: &Path, conn: &Connection) -> Result<(), StoreError> {
    // One snapshot, because another process may be creating the tables right now.
    let snapshot = conn.unchecked_transaction()?;
    let tables: i64 = snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i64 = snapshot.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID && tables > 0 {
        return Err(StoreError::database(path, DatabaseErrorKind::Foreign, format!("application id {application:#x}")));
    }
    refuse_newer(version(&snapshot)?)
}

/// Makes the file unreadable for other users.
fn restrict_permissions(path: &Path) -> std::io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o600);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

fn migrate(conn: &mut Connection) -> Result<(), StoreError> {
    if version(conn)? == VERSION {
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    let from = version(&transaction)?;
    refuse_newer(from)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

/// The file's schema version as this connection sees it now.
pub(crate) fn version(conn: &Connection) -> Result<i64, StoreError> {
    Ok(conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?)
}

/// Fails if the file is newer than this program.
pub(crate) fn refuse_newer(found: i64) -> Result<(), StoreError> {
    if found > VERSION {
        return Err(StoreError::Newer { path: Default::default(), found, known: VERSION });
    }
    Ok(())
}

fn open_flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Settings for every connection.
fn configure(conn: &Connection, busy: Duration) -> rusqlite::Result<()> {
    conn.busy_timeout(busy)?;
    // Otherwise the planner looks at bound values, and a cached statement is recompiled whenever they change.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Opens a connection for reading. It is opened writable, because WAL readers share an index file that they may have to
/// create.
pub(crate) fn open_reader(path: &Path, busy: Duration) -> Result<Connection, StoreError> {
    let conn = Connection::open_with_flags(path, open_flags())?;
    configure_reader(&conn, busy)?;
    Ok(conn)
}

/// Settings for every read connection.
pub(crate) fn configure_reader(conn: &Connection, busy: Duration) -> rusqlite::Result<()> {
    configure(conn, busy)?;
    conn.pragma_update(None, "query_only", true)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Opens an in-memory database without rows.
pub(crate) fn open_empty(busy: Duration) -> Result<Connection, StoreError> {
    let mut conn = Connection::open_in_memory()?;
    migrate(&mut conn)?;
    configure_reader(&conn, busy)?;
    Ok(conn)
}

/// Checks the whole file for damage without changing it.
pub(crate) fn check(path: &Path, busy: Duration) -> Result<(), StoreError> {
    let found =
        inspect(path, busy, |conn| Ok(conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?));
    match found.map_err(|error| error.at(path))? {
        text if text == "ok" => Ok(()),
        text => Err(StoreError::database(path, DatabaseErrorKind::Damaged, text)),
    }
}

/// Returns the commits the file has lost since it was last open. Changes nothing.
pub(crate) fn detect_data_loss(path: &Path, busy: Duration) -> Result<Option<DataLoss>, StoreError> {
    let tip = Tip::read(path);
    inspect(path, busy, |conn| data_loss::detect(path, conn, tip)).map_err(|error| error.at(path))
}

/// Reads a file of ours without changing it.
pub(crate) fn inspect<T>(
    path: &Path,
    busy: Duration,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    fs::metadata(path).map_err(|error| StoreError::io(path, &error))?;
    // A file that cannot be written can still be read.
    let conn = match read_only::inspect(Access::Shared, path, busy) {
        Err(why) => read_only::inspect(read_only::find_access(path, busy, why)?, path, busy)?,
        conn => conn?,
    };
    read(&conn)
}
