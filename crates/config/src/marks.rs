//! What configuration was read from, as it was then: to tell, without reading it again, whether it is something else now.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most files and folders that are remembered; a change of those beyond it is not noticed.
pub const MAX_MARKS: usize = 10_000;

/// The files and folders that were looked at, those that were not there included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<PathBuf, Option<Mark>>);

/// What changes when a file is written or replaced, or when something is put into a folder or taken out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    modified: (i64, i64),
    inode: u64,
    size: u64,
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { modified, inode: metadata.ino(), size: metadata.size() })
    }
}

impl Marks {
    /// Remembers a file or folder. Before it is read: what changes meanwhile is a change.
    pub(crate) fn note(&mut self, path: &Path) {
        if self.0.len() < MAX_MARKS && !self.0.contains_key(path) {
            self.0.insert(path.to_owned(), Mark::of(path));
        }
    }

    /// The same files and folders as they are now.
    #[must_use]
    pub fn now(&self) -> Self {
        Self(self.0.keys().map(|path| (path.clone(), Mark::of(path))).collect())
    }

    /// Whether one of them is something else now.
    pub fn are_old(&self) -> bool {
        self.0.iter().any(|(path, mark)| Mark::of(path) != *mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_made_written_replaced_and_removed_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "one").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let mut marks = Marks::default();
        for name in ["file", "folder", "none"] {
            marks.note(&at(name));
        }
        assert!(!marks.are_old());
        let changes: [(&str, &dyn Fn()); 5] = [
            ("written", &|| fs::write(at("file"), "other").unwrap()),
            ("replaced", &|| {
                fs::write(at("new"), "third").unwrap();
                fs::rename(at("new"), at("file")).unwrap();
            }),
            ("put in", &|| fs::write(at("folder/x"), "").unwrap()),
            ("made", &|| fs::write(at("none"), "").unwrap()),
            ("removed", &|| fs::remove_file(at("file")).unwrap()),
        ];
        for (what, change) in changes {
            change();
            assert!(marks.are_old(), "{what}");
            marks = marks.now();
            assert!(!marks.are_old(), "{what}");
        }
    }

    #[test]
    fn not_everything_is_remembered() {
        let mut marks = Marks::default();
        for n in 0..MAX_MARKS + 10 {
            marks.note(&PathBuf::from(format!("/none/{n}")));
        }
        assert_eq!(marks.0.len(), MAX_MARKS);
    }
}
