//! What configuration was read from, as it was then: to tell, without reading it again, whether it is something else now.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most files and folders that are remembered; a change of those beyond it is not noticed.
pub const MAX_MARKS: usize = 10_000;

/// The files and folders that were looked at, those that were not there included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<PathBuf, Option<Mark>>);

/// How long two writes can have the same time, which many file systems take from the last tick of a clock.
const TICK: Duration = Duration::from_millis(12);

/// What changes when a file is written or replaced, or when something is put into a folder or taken out of it. Programs can
/// set the time of a file's content as they like, but not that of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    modified: (i64, i64),
    changed: (i64, i64),
    place: (u64, u64),
    size: u64,
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            place: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
        })
    }

    /// How long ago it changed; nothing if that is to come, or cannot be said.
    fn age(&self) -> Option<Duration> {
        let (seconds, nanos) = (u64::try_from(self.changed.0).ok()?, u32::try_from(self.changed.1).ok()?);
        SystemTime::now().duration_since(UNIX_EPOCH + Duration::new(seconds, nanos)).ok()
    }
}

impl Marks {
    /// Remembers a file or folder. Before it is read: what changes meanwhile is a change.
    pub(crate) fn note(&mut self, path: &Path) {
        if self.0.len() >= MAX_MARKS || self.0.contains_key(path) {
            return;
        }
        let mut mark = Mark::of(path);
        // What was written just now can be written again without looking any different.
        if let Some(left) = mark.and_then(|mark| TICK.checked_sub(mark.age()?)).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
            mark = Mark::of(path);
        }
        self.0.insert(path.to_owned(), mark);
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same files and folders as they are now.
    #[must_use]
    pub fn now(&self) -> Self {
        Self(self.0.keys().map(|path| (path.clone(), Mark::of(path))).collect())
    }

    /// Whether one of them is something else now.
    pub fn are_old(&self) -> bool {
        // What is in a folder comes right behind it, and is not there as long as the folder is not.
        let mut missing: Option<&Path> = None;
        self.0.iter().any(|(path, mark)| {
            if mark.is_none() && missing.is_some_and(|folder| path.starts_with(folder)) {
                return false;
            }
            missing = mark.is_none().then_some(path.as_path());
            Mark::of(path) != *mark
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_is_made_written_replaced_and_removed_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "one").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let mut marks = Marks::default();
        for name in ["file", "folder", "none", "later/file", "later", "later/deep/file", "later-on", "folder/none"] {
            marks.note(&at(name));
        }
        assert!(!marks.are_old());
        let changes: [(&str, &dyn Fn()); 9] = [
            ("written", &|| fs::write(at("file"), "other").unwrap()),
            ("replaced", &|| {
                fs::write(at("new"), "third").unwrap();
                fs::rename(at("new"), at("file")).unwrap();
            }),
            ("put in", &|| fs::write(at("folder/x"), "").unwrap()),
            ("made", &|| fs::write(at("none"), "").unwrap()),
            ("made beside a folder that is missing", &|| fs::write(at("later-on"), "").unwrap()),
            ("made with its folder", &|| {
                fs::create_dir_all(at("later/deep")).unwrap();
                fs::write(at("later/deep/file"), "").unwrap();
            }),
            ("made in a folder that was made", &|| fs::write(at("later/file"), "").unwrap()),
            ("made in a folder that was there", &|| fs::write(at("folder/none"), "").unwrap()),
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
    fn nothing_hides_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "allow").unwrap();
        fs::write(at("other"), "deny!").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("later"), at("dangling")).unwrap();
        fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("folder")).unwrap();
        let modified = fs::metadata(at("file")).unwrap().modified().unwrap();
        let same_time = |name: &str| {
            fs::File::options().write(true).open(at(name)).unwrap().set_modified(modified).unwrap();
        };
        let mut marks = Marks::default();
        for name in ["file", "link", "dangling", "folder"] {
            marks.note(&at(name));
        }
        let changes: [(&str, &dyn Fn()); 7] = [
            ("written at once, as long as before", &|| fs::write(at("file"), "deny!").unwrap()),
            ("written, with its old time", &|| {
                fs::write(at("file"), "allow").unwrap();
                same_time("file");
            }),
            ("replaced, with its old time", &|| {
                fs::write(at("new"), "ask!!").unwrap();
                same_time("new");
                fs::rename(at("new"), at("file")).unwrap();
            }),
            ("led elsewhere", &|| {
                same_time("other");
                symlink(at("other"), at("new")).unwrap();
                fs::rename(at("new"), at("link")).unwrap();
            }),
            ("made where a link leads", &|| fs::write(at("later"), "").unwrap()),
            ("put into a linked folder", &|| fs::write(at("real/x"), "").unwrap()),
            ("closed", &|| fs::set_permissions(at("file"), fs::Permissions::from_mode(0o200)).unwrap()),
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
