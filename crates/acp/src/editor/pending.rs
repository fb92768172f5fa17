//! What tools did and the client has not been shown yet: written files, because editors want the whole file before and
//! after, and terminals, which must not be released before they were shown.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::lock;

/// Changes that may wait to be shown; beyond that the oldest are dropped, and the client is shown their diffs.
const MAX_CHANGES: usize = 64;
/// Their total bytes.
const MAX_CHANGED_BYTES: usize = 4 << 20;

/// A file before and after a change.
#[derive(Debug, Clone, PartialEq)]
pub struct FileChange {
    /// The absolute path.
    pub path: PathBuf,
    /// Its text before; `None` if there was no file.
    pub old: Option<String>,
    /// Its text now.
    pub new: String,
}

impl FileChange {
    fn len(&self) -> usize {
        self.new.len() + self.old.as_ref().map_or(0, String::len)
    }
}

/// Texts of files that tool calls have just read, for the permission request that shows what they are about to change.
/// Cheap to clone: clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecentReads(Arc<Mutex<VecDeque<ReadFile>>>);

/// A file and its text; `None` if there was no file.
type ReadFile = (PathBuf, Option<String>);

impl RecentReads {
    /// Remembers what was read; `None` if there is no file.
    pub fn put(&self, path: &Path, text: Option<String>) {
        let mut entries = lock(&self.0);
        entries.retain(|(other, _)| other != path);
        entries.push_back((path.to_owned(), text));
        let bytes = |(_, text): &ReadFile| text.as_ref().map_or(0, String::len);
        while entries.len() > MAX_CHANGES || entries.iter().map(bytes).sum::<usize>() > MAX_CHANGED_BYTES {
            entries.pop_front();
        }
    }

    /// Takes the text that was last read.
    pub fn take(&self, path: &Path) -> Option<Option<String>> {
        let mut entries = lock(&self.0);
        let at = entries.iter().position(|(other, _)| other == path)?;
        entries.remove(at).map(|(_, text)| text)
    }
}

/// How long a terminal is kept for a client that does not show it.
const SHOW_TIMEOUT: Duration = Duration::from_secs(5);

/// The terminals of one session that the client was shown. Cheap to clone: clones share them.
#[derive(Debug, Clone, Default)]
pub struct ShownTerminals(Arc<watch::Sender<HashSet<String>>>);

impl ShownTerminals {
    /// Marks a terminal as shown.
    pub fn mark_shown(&self, id: &str) {
        self.0.send_modify(|shown| {
            shown.insert(id.to_owned());
        });
    }

    /// Waits until a terminal was shown, then forgets it.
    pub async fn wait_until_shown(&self, id: &str) {
        let mut shown = self.0.subscribe();
        let _ = tokio::time::timeout(SHOW_TIMEOUT, shown.wait_for(|shown| shown.contains(id))).await;
        self.0.send_modify(|shown| {
            shown.remove(id);
        });
    }
}

/// The changes of one session and its subagents. Cheap to clone: clones share them.
#[derive(Debug, Clone, Default)]
pub struct PendingChanges(Arc<Mutex<VecDeque<FileChange>>>);

impl PendingChanges {
    /// Adds a written file.
    pub fn put(&self, change: FileChange) {
        let mut entries = lock(&self.0);
        // If a file is written twice before it is shown, the first old text counts.
        let old = entries.iter().position(|other| other.path == change.path).and_then(|at| entries.remove(at));
        entries.push_back(match old {
            Some(first) => FileChange { old: first.old, ..change },
            None => change,
        });
        while entries.len() > MAX_CHANGES || entries.iter().map(FileChange::len).sum::<usize>() > MAX_CHANGED_BYTES {
            entries.pop_front();
        }
    }

    /// Takes the change of a file since it was last shown.
    pub fn take(&self, path: &Path) -> Option<FileChange> {
        let mut entries = lock(&self.0);
        if entries.is_empty() {
            return None;
        }
        // Tools write to the target of a symbolic link.
        let real = path.canonicalize().ok();
        let at = entries.iter().position(|change| change.path == path || Some(&change.path) == real.as_ref())?;
        entries.remove(at).map(|change| FileChange { path: path.to_owned(), ..change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, old: Option<&str>, new: &str) -> FileChange {
        FileChange { path: path.into(), old: old.map(str::to_owned), new: new.to_owned() }
    }

    #[test]
    fn changes_are_taken_once_with_their_first_old_text() {
        let changes = PendingChanges::default();
        changes.put(change("/a", None, "1"));
        changes.put(change("/b", Some("x"), "y"));
        changes.put(change("/a", Some("1"), "2"));
        assert_eq!(changes.take(Path::new("/a")), Some(change("/a", None, "2")));
        assert_eq!(changes.take(Path::new("/a")), None);
        assert_eq!(changes.take(Path::new("/b")), Some(change("/b", Some("x"), "y")));
    }

    #[test]
    fn changes_that_nobody_takes_are_dropped() {
        let changes = PendingChanges::default();
        for n in 0..200 {
            changes.put(change(&format!("/{n}"), None, "x"));
        }
        assert_eq!(changes.take(Path::new("/0")), None);
        assert!(changes.take(Path::new("/199")).is_some());
        changes.put(change("/big", None, &"x".repeat(MAX_CHANGED_BYTES + 1)));
        assert_eq!(changes.take(Path::new("/big")), None);
    }
}
