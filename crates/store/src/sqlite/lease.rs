//! What processes that share a database file know of each other. Another back end replaces what is here, and nothing
//! outside it:
//!
//! * **Leases** are rows: which process runs a session, with an epoch per lease.
//! * **Liveness** ([`Peers`]) is a lock file for each process.
//! * **Signals** are rows ([`signal`]), which the owner takes.
//! * **Wake-ups** ([`wakeup`]) are a counter of SQLite's that changes with every commit of another process; the writer
//!   looks at it every 50 ms.
//! * **The clock** is [`api::now`], read where a time is stored. No order and no decision between processes depends on
//!   it, apart from records that expire and budgets of time.

pub(crate) mod signal;
pub(crate) mod wakeup;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::SessionId;
use rusqlite::{Connection, OptionalExtension, params};
use rustix::fs::{FlockOperation, flock};

use crate::Store;
use crate::error::StoreError;
use crate::lease::{AcquireOutcome, Lease, Peers};
use crate::sqlite::row::{self, int, uint};
use crate::sqlite::{read, turn};

/// How many names are tried for this process's lock file.
const MAX_NAME_ATTEMPTS: u32 = 16;

/// The most lock files of dead processes removed per open.
const MAX_STALE_LOCKS: usize = 1000;

/// The folder of lock files next to the database, and this process's name in it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    folder: PathBuf,
    name: String,
}

/// This process's lock, held until this is dropped and every child that inherited the file has ended; and a second lock
/// that no child inherits.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    path: PathBuf,
    file: File,
    _private: File,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(private_lock_path(&self.path));
        // A supervisor that inherited the file may still be running: then the file must stay, or the owner would look
        // dead. An explicit unlock would release the supervisor's lock too, so only a second handle can tell.
        if let Ok(probe) = File::open(&self.path) {
            let locked = std::mem::replace(&mut self.file, probe);
            drop(locked);
            if flock(&self.file, FlockOperation::NonBlockingLockShared).is_ok() {
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

impl OwnerLock {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Owners {
    /// Creates and locks a lock file for this process next to the database, and removes those of dead processes.
    pub(crate) fn register(database: &Path) -> Result<(Self, OwnerLock), StoreError> {
        let folder = database.parent().unwrap_or(Path::new("")).join("locks");
        let fail = |error: std::io::Error| StoreError::io(&folder, &error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(fail)?;
        for _ in 0..MAX_NAME_ATTEMPTS {
            let pid = std::process::id();
            let name = format!("{pid}-{:x}-{:016x}", start_time(pid).unwrap_or(0), fastrand::u64(..));
            let owners = Self { folder: folder.clone(), name };
            let path = owners.path(&owners.name);
            let file = match create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                done => done.map_err(fail)?,
            };
            // Another process may have found the file before it was locked, and removed it as a dead process's.
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            let ours = file.metadata().map_err(fail)?.ino();
            if locked && fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
                owners.remove_stale_locks();
                let private = create(&private_lock_path(&path)).map_err(fail)?;
                // Processes that check it hold it only for a moment.
                flock(&private, FlockOperation::LockExclusive).map_err(|error| fail(error.into()))?;
                return Ok((owners, OwnerLock { path, file, _private: private }));
            }
        }
        Err(StoreError::io(&folder, &std::io::Error::other("no lock file could be taken")))
    }

    /// Like [`register`](Self::register), for a read-only process: nobody can know it, so it needs no lock.
    pub(crate) fn read_only(database: &Path) -> Self {
        let name = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        Self { folder: database.parent().unwrap_or(Path::new("")).join("locks"), name }
    }

    /// Whether any process has the database open, judging by the lock files.
    pub(crate) fn any_alive(database: &Path) -> bool {
        let entries = fs::read_dir(Self::read_only(database).folder).into_iter().flatten().flatten();
        let mut locks = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "lock"));
        locks.any(|path| is_locked(&path))
    }

    fn path(&self, owner: &str) -> PathBuf {
        self.folder.join(format!("{owner}.lock"))
    }

    fn remove_stale_locks(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten().take(MAX_STALE_LOCKS) {
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(|name| name.strip_suffix(".lock")) else { continue };
            if owner == self.name {
                continue;
            }
            // Removed while holding the lock, so that a process about to lock the file notices.
            if let Ok(file) = File::open(entry.path())
                && flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
            {
                let _ = fs::remove_file(private_lock_path(&entry.path()));
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Peers for Owners {
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether its lock is held. If someone removed the lock file, checks for the process itself, because its turns must
    /// not run twice.
    fn is_alive(&self, owner: &str) -> bool {
        if owner == self.name {
            return true;
        }
        // The name comes from a row, so it must not lead out of the folder.
        if !owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return false;
        }
        let path = self.path(owner);
        is_locked(&path) || !path.exists() && is_running(owner)
    }

    fn count_others(&self) -> usize {
        let Ok(entries) = fs::read_dir(&self.folder) else { return 0 };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let owners = names.filter_map(|name| name.strip_suffix(".lock").map(str::to_owned));
        owners.filter(|owner| *owner != self.name && self.is_alive(owner)).count()
    }

    fn is_lingering(&self, owner: &str) -> bool {
        self.is_alive(owner)
            && owner != self.name
            && !is_locked(&private_lock_path(&self.path(owner)))
            && !is_running(owner)
    }
}

/// The path of the lock that children do not inherit, given the path of the one they do.
fn private_lock_path(path: &Path) -> PathBuf {
    path.with_extension("own")
}

/// Whether someone holds a lock.
fn is_locked(path: &Path) -> bool {
    match File::open(path) {
        // Shared, so that two processes checking at the same moment do not mistake each other for the owner.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Whether the named process is running on this machine. Also compares the start time, because process ids are reused.
fn is_running(owner: &str) -> bool {
    let mut fields = owner.split('-');
    let (Some(pid), Some(start), Some(_)) = (fields.next(), fields.next(), fields.next()) else { return false };
    let Ok(pid) = pid.parse() else { return false };
    let start = u64::from_str_radix(start, 16).ok().filter(|start| *start > 0);
    // A closed store of this process must count as dead.
    pid != std::process::id() && start.is_some() && start == start_time(pid)
}

/// The start time of a process, in clock ticks since boot; `None` without `/proc`.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A zombie keeps its id until its parent has reaped it.
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Reads the owner and epoch of a session's lease.
pub(crate) fn row(conn: &Connection, session: &SessionId) -> Result<Option<(String, u64)>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT owner, epoch FROM lease WHERE session = ?1")?;
    let found = statement.query_row([session.as_str()], |row| Ok((row.get(0)?, uint(row.get(1)?)))).optional()?;
    Ok(found)
}

/// Acquires the lease if it is free or its owner is dead. Must run in a transaction.
pub(crate) fn acquire(
    conn: &Connection,
    owners: &dyn Peers,
    session: &SessionId,
    revision: u64,
) -> Result<AcquireOutcome, StoreError> {
    let before = row(conn, session)?;
    if let Some((owner, _)) = &before
        && *owner != owners.name()
    {
        if owners.is_alive(owner) {
            return Ok(AcquireOutcome::HeldElsewhere { owner: owner.clone() });
        }
        conn.prepare_cached("DELETE FROM signal WHERE owner = ?1")?.execute([owner])?;
    }
    let epoch = next_counter(conn, "epoch")?;
    conn.prepare_cached("INSERT OR REPLACE INTO lease (session, owner, epoch) VALUES (?1, ?2, ?3)")?
        .execute(params![session.as_str(), owners.name(), int(epoch)])?;
    let lease = Lease { session: session.clone(), owner: owners.name().to_owned(), epoch };
    let newest = read::newest_stamp(conn, session)?;
    let turn = turn::current(conn, session)?;
    if before.is_some() {
        turn::end_interrupted(conn, session, turn)?;
    }
    Ok(AcquireOutcome::Acquired { lease, took_over: before.is_some(), revision, newest, turn })
}

/// Gives a lease back, if it is still the session's.
pub(crate) fn release(conn: &Connection, lease: &Lease) -> Result<(), StoreError> {
    conn.prepare_cached("DELETE FROM lease WHERE session = ?1 AND owner = ?2 AND epoch = ?3")?.execute(params![
        lease.session.as_str(),
        lease.owner,
        int(lease.epoch)
    ])?;
    Ok(())
}

/// Increments a counter and returns its value.
pub(crate) fn next_counter(conn: &Connection, counter: &str) -> Result<u64, StoreError> {
    // Not `RETURNING`, which is slower than both statements.
    conn.prepare_cached(
        "INSERT INTO counter (name, value) VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1",
    )?
    .execute([counter])?;
    let mut statement = conn.prepare_cached("SELECT value FROM counter WHERE name = ?1")?;
    Ok(uint(statement.query_row([counter], |row| row.get(0))?))
}

impl Store {
    /// Drafts that dead processes began and did not publish.
    pub fn abandoned_drafts(&self) -> Result<Vec<SessionId>, StoreError> {
        let dead = self.dead_owners()?;
        let drafts = self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT session, owner FROM lease WHERE NOT EXISTS (SELECT 1 FROM session WHERE id = lease.session)",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<Vec<(String, String)>, _>>()?)
        })?;
        drafts.into_iter().filter(|(_, owner)| dead.contains(owner)).map(|(id, _)| row::id("lease", &id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_alive_while_it_holds_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("t.db");
        let (first, lock) = Owners::register(&database).unwrap();
        let (second, _other) = Owners::register(&database).unwrap();
        assert!(second.is_alive(first.name()) && !second.is_lingering(first.name()));
        assert!(first.is_alive(first.name()));
        drop(lock);
        assert!(!second.is_alive(first.name()));
        let left = fs::read_dir(&second.folder).unwrap().count();
        assert_eq!(left, 2, "those of the second one");
    }

    /// Processes of which the named ones are alive.
    #[derive(Debug)]
    struct Known(&'static str, &'static [&'static str]);

    impl Peers for Known {
        fn name(&self) -> &str {
            self.0
        }

        fn is_alive(&self, owner: &str) -> bool {
            owner == self.0 || self.1.contains(&owner)
        }

        fn is_lingering(&self, _: &str) -> bool {
            false
        }

        fn count_others(&self) -> usize {
            self.1.len()
        }
    }

    #[test]
    fn a_lease_is_taken_over_only_from_the_dead() {
        let conn = crate::sqlite::schema::open_empty(std::time::Duration::ZERO).unwrap();
        conn.pragma_update(None, "query_only", false).unwrap();
        let session = SessionId::new();
        let acquire = |peers: Known| acquire(&conn, &peers, &session, 0).unwrap();
        let AcquireOutcome::Acquired { lease: first, took_over: false, .. } = acquire(Known("a", &[])) else {
            panic!("it was free")
        };
        assert_eq!(acquire(Known("b", &["a"])), AcquireOutcome::HeldElsewhere { owner: "a".into() });
        let AcquireOutcome::Acquired { lease, took_over: true, .. } = acquire(Known("b", &["c"])) else {
            panic!("its owner is dead")
        };
        assert!(lease.epoch > first.epoch);
        assert_eq!(row(&conn, &session).unwrap(), Some(("b".into(), lease.epoch)));
    }

    #[test]
    fn an_inherited_lock_keeps_the_owner_alive() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("t.db");
        let (first, lock) = Owners::register(&database).unwrap();
        let supervisor = lock.file.try_clone().unwrap();
        drop(lock);
        let (second, _other) = Owners::register(&database).unwrap();
        assert!(second.is_alive(first.name()) && second.is_lingering(first.name()));
        assert!(!first.is_lingering(second.name()) && !second.is_lingering(second.name()));
        drop(supervisor);
        assert!(!second.is_alive(first.name()) && !second.is_lingering(first.name()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_without_its_lock_files_is_alive_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("t.db");
        let (owners, _lock) = Owners::register(&database).unwrap();
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let name = format!("{pid}-{:x}-0123456789abcdef", start_time(pid).unwrap());
        assert!(owners.is_alive(&name) && !owners.is_lingering(&name));
        // The same process id, but another process.
        for name in [format!("{pid}-1-0123456789abcdef"), format!("{pid}-0123456789abcdef"), format!("{pid}-0-1")] {
            assert!(!owners.is_alive(&name), "{name}");
        }
        drop(child.stdin.take());
        let began = std::time::Instant::now();
        while start_time(pid).is_some() {
            assert!(began.elapsed().as_secs() < 60, "`cat` does not end");
            std::thread::yield_now();
        }
        assert!(!owners.is_alive(&name), "dead, but not reaped by its parent");
        child.wait().unwrap();
        assert!(!owners.is_alive(&name));
    }

    #[test]
    fn lock_files_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("t.db");
        let (first, lock) = Owners::register(&database).unwrap();
        let dead = first.path("1-dead");
        fs::write(&dead, "").unwrap();
        fs::write(private_lock_path(&dead), "").unwrap();
        let _second = Owners::register(&database).unwrap();
        assert!(!dead.exists() && !private_lock_path(&dead).exists());
        assert!(first.path(first.name()).exists());
        drop(lock);
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let (owners, _lock) = Owners::register(&folder.path().join("t.db")).unwrap();
        assert!(!owners.is_alive("../../etc/passwd"));
    }
}
