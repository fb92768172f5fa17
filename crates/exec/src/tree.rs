//! The process tree: found in /proc, signalled by group.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};

/// A process as listed in `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessEntry {
    pid: i32,
    parent: i32,
    group: i32,
}

/// Sends a signal to every process below `root`, but not to `root` itself.
///
/// Signals whole groups: the kernel does that atomically, so a group that forks constantly cannot escape. No unrelated
/// process is in them, since a process can only join a group of its own session, and our sessions start below `root`.
pub(crate) fn signal_below(root: Pid, signal: Signal) {
    let own = getpgrp();
    let mut groups = HashSet::new();
    for entry in descendants(root.as_raw_nonzero().get()) {
        match Pid::from_raw(entry.group) {
            Some(group) if group != own && group != Pid::INIT => {
                if groups.insert(entry.group) {
                    // A group may be gone by now, which is fine; our caller's limit catches one of another user.
                    let _ = kill_process_group(group, signal);
                }
            }
            _ => {
                if let Some(pid) = Pid::from_raw(entry.pid) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// Whether a process is stopped, by a signal or a debugger. False if it does not exist, or the system does not say.
pub fn is_stopped(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok();
    stat.is_some_and(|stat| matches!(state(&stat), Some(b'T' | b't')))
}

/// Whether this process was started with SIGHUP ignored, as by `nohup`: then it should outlive its terminal.
pub fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is that of signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The state letter after the name.
fn state(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    stat.get(name_end + 1..)?.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// All processes below one. The kernel lists the children of each; if it was built without that, we examine all
/// processes of the machine, which takes milliseconds.
fn descendants(root: i32) -> Vec<ProcessEntry> {
    match children(root) {
        Some(children) => walk(children),
        None => filter_descendants(root, &list()),
    }
}

/// The children of a process; `None` if it is gone, or the kernel does not list them. A process that exits while we
/// read may hide another: callers that need all must look again.
fn children(pid: i32) -> Option<Vec<i32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).peekable();
    lists.peek()?;
    let pids = |list: String| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>();
    Some(lists.flat_map(pids).collect())
}

/// These processes and all below them.
fn walk(mut next: Vec<i32>) -> Vec<ProcessEntry> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    while let Some(pid) = next.pop() {
        // A pid may be reused meanwhile, so that even a cycle is possible.
        if seen.insert(pid) {
            found.extend(fs::read(format!("/proc/{pid}/stat")).ok().and_then(|stat| parse(&stat)));
            next.extend(children(pid).unwrap_or_default());
        }
    }
    found
}

/// All visible processes, except for those that exit while we read.
fn list() -> Vec<ProcessEntry> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    dir.flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| parse(&fs::read(entry.path().join("stat")).ok()?))
        .collect()
}

/// `pid (name) state parent group …`; the name may contain anything, so fields are counted from the last parenthesis.
fn parse(stat: &[u8]) -> Option<ProcessEntry> {
    let name_start = stat.iter().position(|&b| b == b'(')?;
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    let pid = std::str::from_utf8(&stat[..name_start]).ok()?.trim().parse().ok()?;
    let mut fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?.split_ascii_whitespace().skip(1);
    Some(ProcessEntry { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// The processes in a list that are below `root`.
fn filter_descendants(root: i32, all: &[ProcessEntry]) -> Vec<ProcessEntry> {
    let mut children: HashMap<i32, Vec<ProcessEntry>> = HashMap::new();
    for entry in all {
        children.entry(entry.parent).or_default().push(*entry);
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    // Each list is removed once, so this terminates even if the snapshot contained a cycle.
    while let Some(pid) = next.pop() {
        for entry in children.remove(&pid).unwrap_or_default() {
            next.push(entry.pid);
            found.push(entry);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_anything() {
        let want = ProcessEntry { pid: 12, parent: 3, group: 9 };
        assert_eq!(parse(b"12 (a) b) (c) S 3 9 9 0 -1"), Some(want));
        assert_eq!(parse(b"12 (\xff\n) R 3 9"), Some(want));
        for broken in [&b""[..], b"12", b"12 (x", b"12 )x( S 1 1", b"x (y) S 1 1", b"12 (y) S 1", b")("] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn states() {
        assert_eq!(state(b"12 (a) b) (c) T 3 9 9 0 -1"), Some(b'T'));
        assert_eq!(state(b"12 (x"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_stopped(own) && !is_stopped(-1));
    }

    #[test]
    fn grandchildren_are_included_and_others_are_not() {
        let entry = |pid, parent| ProcessEntry { pid, parent, group: pid };
        let all = [entry(1, 0), entry(5, 1), entry(9, 7), entry(7, 5), entry(8, 1), entry(20, 21), entry(21, 20)];
        let mut pids: Vec<i32> = filter_descendants(5, &all).iter().map(|e| e.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [7, 9]);
        assert_eq!(filter_descendants(20, &all).len(), 2);
        assert!(filter_descendants(99, &all).is_empty());
    }

    #[test]
    fn we_are_below_our_parent() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(filter_descendants(parent, &list()).iter().any(|e| e.pid == own));
        assert!(descendants(parent).iter().any(|e| e.pid == own));
    }
}
