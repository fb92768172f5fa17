//! What tools did and the client has not seen yet: files that they wrote, as an editor wants the whole file before and
//! after; and terminals, which must not go before they were shown.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::lock;

/// Changes that wait to be shown; beyond it the oldest are forgotten, and shown by their diffs.
const MAX_CHANGES: usize = 64;
/// Bytes of them all.
const MAX_BYTES: usize = 4 << 20;

/// A file before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The file, absolute.
    pub path: PathBuf,
    /// Its text before; nothing if there was no file.
    pub old: Option<String>,
    /// Its text now.
    pub new: String,
}

impl Change {
    fn len(&self) -> usize {
        self.new.len() + self.old.as_ref().map_or(0, String::len)
    }
}

/// Texts of files that calls have read a moment ago, for whoever shows what they are about to change. A handle: clones share
/// them.
#[derive(Debug, Clone, Default)]
pub struct Reads(Arc<Mutex<VecDeque<Read>>>);

/// A file and its text; nothing if there was no file.
type Read = (PathBuf, Option<String>);

impl Reads {
    /// A file was read; nothing if there is none.
    pub fn put(&self, path: &Path, text: Option<String>) {
        let mut kept = lock(&self.0);
        kept.retain(|(other, _)| other != path);
        kept.push_back((path.to_owned(), text));
        let bytes = |(_, text): &Read| text.as_ref().map_or(0, String::len);
        while kept.len() > MAX_CHANGES || kept.iter().map(bytes).sum::<usize>() > MAX_BYTES {
            kept.pop_front();
        }
    }

    /// What was read of a file last.
    pub fn take(&self, path: &Path) -> Option<Option<String>> {
        let mut kept = lock(&self.0);
        let at = kept.iter().position(|(other, _)| other == path)?;
        kept.remove(at).map(|(_, text)| text)
    }
}

/// How long a terminal is kept for a client that does not look.
const LOOK: Duration = Duration::from_secs(5);

/// The terminals of one session that the client was shown. A handle: clones share them.
#[derive(Debug, Clone, Default)]
pub struct Terminals(Arc<watch::Sender<HashSet<String>>>);

impl Terminals {
    /// The client was shown one.
    pub fn shown(&self, id: &str) {
        self.0.send_modify(|shown| {
            shown.insert(id.to_owned());
        });
    }

    /// Waits until the client was shown one; it need not be remembered then.
    pub async fn until_shown(&self, id: &str) {
        let mut shown = self.0.subscribe();
        let _ = tokio::time::timeout(LOOK, shown.wait_for(|shown| shown.contains(id))).await;
        self.0.send_modify(|shown| {
            shown.remove(id);
        });
    }
}

/// The changes of one session and its subagents. A handle: clones share them.
#[derive(Debug, Clone, Default)]
pub struct Changes(Arc<Mutex<VecDeque<Change>>>);

impl Changes {
    /// A file was written.
    pub fn put(&self, change: Change) {
        let mut kept = lock(&self.0);
        // A file that is written twice before it is shown was what it was at first.
        let old = kept.iter().position(|other| other.path == change.path).and_then(|at| kept.remove(at));
        kept.push_back(match old {
            Some(first) => Change { old: first.old, ..change },
            None => change,
        });
        while kept.len() > MAX_CHANGES || kept.iter().map(Change::len).sum::<usize>() > MAX_BYTES {
            kept.pop_front();
        }
    }

    /// What happened to a file since it was shown last.
    pub fn take(&self, path: &Path) -> Option<Change> {
        let mut kept = lock(&self.0);
        if kept.is_empty() {
            return None;
        }
        // Tools write to the place that a symbolic link leads to.
        let real = path.canonicalize().ok();
        let at = kept.iter().position(|change| change.path == path || Some(&change.path) == real.as_ref())?;
        kept.remove(at).map(|change| Change { path: path.to_owned(), ..change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, old: Option<&str>, new: &str) -> Change {
        Change { path: path.into(), old: old.map(str::to_owned), new: new.to_owned() }
    }

    #[test]
    fn changes_are_told_once_from_their_beginning() {
        let changes = Changes::default();
        changes.put(change("/a", None, "1"));
        changes.put(change("/b", Some("x"), "y"));
        changes.put(change("/a", Some("1"), "2"));
        assert_eq!(changes.take(Path::new("/a")), Some(change("/a", None, "2")));
        assert_eq!(changes.take(Path::new("/a")), None);
        assert_eq!(changes.take(Path::new("/b")), Some(change("/b", Some("x"), "y")));
    }

    #[test]
    fn what_nobody_takes_is_forgotten() {
        let changes = Changes::default();
        for n in 0..200 {
            changes.put(change(&format!("/{n}"), None, "x"));
        }
        assert_eq!(changes.take(Path::new("/0")), None);
        assert!(changes.take(Path::new("/199")).is_some());
        changes.put(change("/big", None, &"x".repeat(MAX_BYTES + 1)));
        assert_eq!(changes.take(Path::new("/big")), None);
    }
}
