//! Detects commits that are gone because the WAL was removed, truncated or damaged while no process had the database
//! open. SQLite silently uses what is left of the WAL.
//!
//! After each commit the writer records the newest sequence number of the log in a small file next to the database, the
//! tip file. It is not synced: it only has to survive the death of the process, so writing it costs a microsecond. A
//! log that ends before the recorded number has lost commits. A commit interrupted by a crash is not a loss, because
//! its number was never recorded.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use crate::error::{DatabaseErrorKind, StoreError};
use crate::sqlite::file::identity::sibling;
use crate::sqlite::file::wal::{self, WalState};
use crate::sqlite::{log, schema};

/// The first bytes of a tip file.
const MAGIC: [u8; 8] = *b"TrefTip1";

/// The most reports kept, each with its torn WAL. The oldest are removed.
const MAX_REPORTS: usize = 4;

/// Part of the names of preserved WALs.
const TORN_WAL: &str = "-wal.torn-";

/// The newest sequence number of the log, and the newest that was synced to disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    newest: u64,
    synced: u64,
}

impl Tip {
    /// Reads the tip file of a database, and when it was written. `None` if there is no valid one.
    pub(crate) fn read(path: &Path) -> Option<(Self, Timestamp)> {
        let file = File::open(tip_path(path)).ok()?;
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let written = file.metadata().ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        let written = Timestamp::try_from(written.as_millis()).ok()?;
        let tip = Self { newest: number(8), synced: number(16) };
        (bytes[..8] == MAGIC).then_some((tip, written))
    }
}

/// The tip file of an open database.
#[derive(Debug)]
pub(crate) struct TipFile {
    file: File,
    tip: Tip,
}

impl TipFile {
    /// Opens the tip file and resets it to the current end of the log.
    pub(crate) fn open(path: &Path, tip: u64) -> Result<Self, StoreError> {
        let tip_path = tip_path(path);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&tip_path);
        let file = file.map_err(|error| StoreError::io(&tip_path, &error))?;
        let tip_file = Self { file, tip: Tip { newest: tip, synced: tip } };
        tip_file.write();
        Ok(tip_file)
    }

    /// Records the end of the log after a commit.
    pub(crate) fn record(&mut self, newest: u64, synced: bool) {
        let newest = newest.max(self.tip.newest);
        let tip = Tip { newest, synced: if synced { newest } else { self.tip.synced } };
        if self.tip != tip {
            self.tip = tip;
            self.write();
        }
    }

    fn write(&self) {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.tip.newest.to_le_bytes());
        bytes[16..].copy_from_slice(&self.tip.synced.to_le_bytes());
        // A failure only means that less can be detected.
        let _ = self.file.write_all_at(&bytes, 0);
    }
}

/// Does not match `trefoil.db-*`, so that removing those files does not remove the tip file too.
fn tip_path(path: &Path) -> PathBuf {
    sibling(path, ".tip")
}

/// Commits that a database lost while no process had it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLoss {
    /// The database.
    pub path: PathBuf,
    /// How many of the log's newest rows are gone.
    pub events: u64,
    /// How many of them had been synced to disk. A power failure loses none of these.
    pub synced: u64,
    /// When the newest remaining row was written; `None` if the log is empty.
    pub since: Option<Timestamp>,
    /// When the newest lost row was written.
    pub until: Timestamp,
    /// The copy of the WAL as it was found, if it existed.
    pub kept: Option<PathBuf>,
    wal: WalState,
}

impl std::fmt::Display for DataLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, events, synced, since, until, kept, wal } = self;
        let time = |time: Timestamp| {
            let time = chrono::DateTime::from_timestamp_millis(time).unwrap_or_default();
            time.format("%Y-%m-%d %H:%M:%S UTC").to_string()
        };
        let after = since.map(|since| format!("after {}, ", time(since))).unwrap_or_default();
        let (path, until) = (path.display(), time(*until));
        write!(f, "{path}: the newest {events} events of its log are gone: those {after}up to {until}. ")?;
        match wal {
            WalState::Missing => f.write_str("The -wal file that held them is missing. ")?,
            WalState::Torn { transactions: 0 } => {
                f.write_str("The -wal file that held them is cut off or damaged. ")?
            }
            WalState::Torn { transactions } => {
                write!(f, "The -wal file that held them is damaged; {transactions} commits follow the damage. ")?;
            }
            WalState::Sound => f.write_str("The -wal file was cut off, or it or the database is an older copy. ")?,
        }
        if *synced == 0 {
            f.write_str("None of them had been synced to the disk yet, so a power failure can be the reason. ")?;
        }
        f.write_str(match since {
            Some(_) => "Everything older is sound, and work goes on with it. ",
            None => "Nothing is left, so work begins anew. ",
        })?;
        match kept {
            Some(kept) => write!(f, "The -wal file as it was found is kept as {}", kept.display()),
            None => f.write_str("If you have a copy of the -wal file, stop the program before you put it back"),
        }
    }
}

/// Compares a newly opened database with its tip file, which must have been read before opening.
pub(crate) fn detect(
    path: &Path,
    conn: &Connection,
    recorded: Option<(Tip, Timestamp)>,
) -> Result<Option<DataLoss>, StoreError> {
    let Some((recorded, until)) = recorded else { return Ok(None) };
    // The tables themselves may have existed only in the WAL.
    let empty = schema::version(conn)? == 0;
    let tip = if empty { 0 } else { log::tip(conn)? };
    if tip >= recorded.newest {
        return Ok(None);
    }
    let last: Option<String> = if empty {
        None
    } else {
        let mut statement = conn.prepare("SELECT id FROM event WHERE id <> '' ORDER BY seq DESC LIMIT 1")?;
        statement.query_row([], |row| row.get(0)).optional()?
    };
    let wal_path = sibling(path, "-wal");
    Ok(Some(DataLoss {
        path: path.to_owned(),
        events: recorded.newest - tip,
        synced: recorded.synced.saturating_sub(tip),
        since: last.as_deref().and_then(api::made_at),
        until,
        kept: None,
        wal: wal::inspect(&wal_path).map_err(|error| StoreError::io(&wal_path, &error))?,
    }))
}

/// Copies the WAL before it is overwritten, and writes a report. Refuses a database that is damaged without the lost
/// commits, which happens if a checkpoint was under way.
pub(crate) fn preserve(conn: &Connection, mut loss: DataLoss) -> Result<DataLoss, StoreError> {
    let sound: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound != "ok" {
        return Err(StoreError::database(&loss.path, DatabaseErrorKind::Damaged, format!("{sound}; {loss}")));
    }
    let time = chrono::DateTime::from_timestamp_millis(api::now()).unwrap_or_default();
    let kept = sibling(&loss.path, &format!("{TORN_WAL}{}", time.format("%Y%m%dT%H%M%S%3fZ")));
    let report = report_path(&kept);
    let mut write = || {
        if loss.wal != WalState::Missing {
            // Keeps the file's mode, which is private.
            fs::copy(sibling(&loss.path, "-wal"), &kept)?;
            loss.kept = Some(kept.clone());
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&report)?;
        writeln!(file, "{loss}")
    };
    let written: std::io::Result<()> = write();
    written.map_err(|error| StoreError::io(&kept, &error))?;
    remove_old_reports(&loss.path);
    Ok(loss)
}

/// The reports of earlier data losses, oldest first.
pub(crate) fn reports(path: &Path) -> Vec<String> {
    preserved_wals(path).iter().filter_map(|kept| fs::read_to_string(report_path(kept)).ok()).collect()
}

fn report_path(kept: &Path) -> PathBuf {
    let mut name = kept.as_os_str().to_owned();
    name.push(".txt");
    name.into()
}

/// The paths of the preserved WALs, oldest first. If the WAL was missing, only the report exists.
fn preserved_wals(path: &Path) -> Vec<PathBuf> {
    let base = sibling(path, TORN_WAL);
    let (Some(folder), Some(begin)) = (base.parent(), base.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> = names
        .filter(|name| name.starts_with(begin))
        .map(|name| folder.join(name.strip_suffix(".txt").unwrap_or(&name)))
        .collect();
    // The names contain the time.
    found.sort();
    found.dedup();
    found
}

fn remove_old_reports(path: &Path) {
    let kept = preserved_wals(path);
    for old in &kept[..kept.len().saturating_sub(MAX_REPORTS)] {
        for file in [old.clone(), report_path(old)] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!(file = %file.display(), %error, "an old copy of a torn WAL cannot be removed");
                }
                _ => {}
            }
        }
    }
}
