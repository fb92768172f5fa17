//! Disk space: what uses how much.

use std::path::Path;

use engine::Engine;
use store::{DiskUsage, Store};

use super::{Finding, Level};
use crate::terminal::amounts::megabytes;
use crate::terminal::plural;
use crate::wiring::Invocation;

/// Unused space that is worth a warning, in bytes.
const NOTABLE: u64 = 64 << 20;

/// Measures the database, if it can be read, and the outputs of tools.
pub fn check(invocation: &Invocation) -> Vec<Finding> {
    let path = invocation.database_path();
    let mut findings = match path.exists().then(|| Store::disk_usage(&path)) {
        Some(Ok(sizes)) => database(&sizes),
        // Another check reports what is wrong with it.
        Some(Err(_)) | None => Vec::new(),
    };
    findings.push(outputs(&Engine::outputs(&invocation.dirs)));
    findings
}

fn database(sizes: &DiskUsage) -> Vec<Finding> {
    let number = |number: u64, noun: &str| plural(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let sessions = format!("{}, {}", number(sizes.sessions, "session"), megabytes(sizes.session_bytes));
    let log = format!("{}, {}", number(sizes.events, "event"), megabytes(sizes.event_bytes));
    let mut findings = vec![
        Finding::new("sessions", Level::Ok, sessions),
        Finding::new("event log", Level::Ok, log),
        Finding::new("WAL", Level::Ok, megabytes(sizes.wal)),
    ];
    let free = Finding::new("free pages", Level::Ok, megabytes(sizes.free));
    findings.push(match (sizes.can_shrink, sizes.free) {
        (true, _) | (false, ..NOTABLE) => free,
        (false, _) => Finding { level: Level::Warning, ..free }.advice(
            "an older version created the file, so it never shrinks: `trefoil gc` shrinks it, now and in the future",
        ),
    });
    if sizes.orphans > 0 {
        let left = number(sizes.orphans, "deleted session");
        let found = format!("{left} left {} behind", megabytes(sizes.orphan_bytes));
        findings.push(Finding::new("leftovers", Level::Warning, found).advice("`trefoil gc` removes it"));
    }
    findings
}

fn outputs(folder: &Path) -> Finding {
    let (mut files, mut bytes) = (0, 0);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => (files, bytes) = (files + 1, bytes + found.len()),
                Err(_) => {}
            }
        }
    }
    let found = format!("{} of long outputs, {}, in {}", plural(files, "file"), megabytes(bytes), folder.display());
    Finding::new("tool output", Level::Ok, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_that_can_be_freed_is_reported() {
        let mut sizes = DiskUsage { free: 1 << 30, sessions: 2, session_bytes: 3_000_000, ..DiskUsage::default() };
        let found = database(&sizes);
        assert_eq!(found[0].found, "2 sessions, 3.0 MB");
        assert_eq!((found[3].level, found.len()), (Level::Warning, 4));
        (sizes.can_shrink, sizes.orphans, sizes.orphan_bytes) = (true, 1, 500_000);
        let found = database(&sizes);
        assert_eq!(found[3].level, Level::Ok);
        assert_eq!(found[4].found, "1 deleted session left 0.5 MB behind");
    }

    #[test]
    fn outputs_are_counted_in_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ses_1")).unwrap();
        for name in ["tool_a", "ses_1/tool_b"] {
            std::fs::write(folder.path().join(name), vec![0; 50_000]).unwrap();
        }
        assert!(outputs(folder.path()).found.starts_with("2 files of long outputs, 0.1 MB"));
        assert!(outputs(&folder.path().join("none")).found.starts_with("0 files"));
    }
}
