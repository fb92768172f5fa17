//! Stamps of the files that configuration was read from, to detect changes without reading them again.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The maximum number of files and folders; changes to further ones are not noticed.
pub const MAX_FILE_STAMPS: usize = 10_000;

/// The stamps of all files and folders that were examined, including missing ones.
#[derive(Debug, Clone, Default)]
pub struct FileStamps(BTreeMap<PathBuf, Entry>);

#[derive(Debug, Clone)]
struct Entry {
    /// `None` if there is no such file.
    stamp: Option<FileStamp>,
    /// How to tell that it is still missing. Most files that configuration may be in are missing, in the same few folders.
    absence: Option<Absence>,
}

/// A file is missing as long as the nearest folder above it that exists has this stamp.
#[derive(Debug, Clone)]
struct Absence {
    folder: Arc<Path>,
    stamp: FileStamp,
}

impl Absence {
    /// How to tell that a file is still missing; `None` if it exists, or if its folder changed so recently that another
    /// change may not show.
    fn of(path: &Path) -> Option<Self> {
        let mut missing = path;
        let (folder, stamp) = loop {
            let folder = missing.parent()?;
            match FileStamp::of(folder) {
                Some(stamp) => break (folder, stamp),
                None => missing = folder,
            }
        };
        // Looked at after its folder's stamp was taken. A dangling link exists: its target may appear in another folder.
        let is_missing = missing.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let is_settled = stamp.age().is_some_and(|age| age > TICK);
        (is_missing && is_settled).then(|| Self { folder: folder.into(), stamp })
    }
}

/// How long two writes can have the same timestamp, which many file systems take from a coarse clock.
const TICK: Duration = Duration::from_millis(12);

/// What changes when a file is written or replaced, or an entry is added to or removed from a folder. Programs can set
/// the modification time of a file, but not the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: (i64, i64),
    changed: (i64, i64),
    inode: (u64, u64),
    size: u64,
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
        })
    }

    /// How long ago it changed; `None` if that is in the future or unknown.
    fn age(&self) -> Option<Duration> {
        let (seconds, nanos) = (u64::try_from(self.changed.0).ok()?, u32::try_from(self.changed.1).ok()?);
        SystemTime::now().duration_since(UNIX_EPOCH + Duration::new(seconds, nanos)).ok()
    }
}

impl FileStamps {
    /// Records a file or folder. Call it before reading: changes made meanwhile then count as changes.
    pub(crate) fn record(&mut self, path: &Path) {
        if self.0.len() >= MAX_FILE_STAMPS || self.0.contains_key(path) {
            return;
        }
        let mut stamp = FileStamp::of(path);
        // A file that was just written could be written again without a visible difference.
        if let Some(left) = stamp.and_then(|stamp| TICK.checked_sub(stamp.age()?)).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
            stamp = FileStamp::of(path);
        }
        self.0.insert(path.to_owned(), Entry { stamp, absence: None });
    }

    /// The number of stamps.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The current stamps of the same files and folders.
    #[must_use]
    pub fn now(&self) -> Self {
        let entry = |path: &PathBuf| (path.clone(), Entry { stamp: FileStamp::of(path), absence: None });
        Self(self.0.keys().map(entry).collect())
    }

    /// Whether any of them has changed since.
    pub fn have_changed(&mut self) -> bool {
        // The contents of a folder follow it in the map, and cannot exist while the folder does not.
        let mut missing: Option<&Path> = None;
        let mut folders: Vec<(Arc<Path>, Option<FileStamp>)> = Vec::new();
        for (path, Entry { stamp, absence }) in &mut self.0 {
            if stamp.is_some() {
                missing = None;
                if FileStamp::of(path) != *stamp {
                    return true;
                }
                continue;
            }
            if missing.is_some_and(|folder| is_below(path, folder)) {
                continue;
            }
            missing = Some(path);
            let known = absence.as_ref().is_some_and(|Absence { folder, stamp }| {
                let same = |(known, _): &&(Arc<Path>, _)| known.as_os_str() == folder.as_os_str();
                let now = folders.iter().find(same).map(|(_, now)| *now).unwrap_or_else(|| {
                    let now = FileStamp::of(folder);
                    folders.push((folder.clone(), now));
                    now
                });
                now == Some(*stamp)
            });
            if known {
                continue;
            }
            if FileStamp::of(path).is_some() {
                return true;
            }
            *absence = Absence::of(path);
        }
        false
    }
}

/// Whether a path is in a folder. Compares bytes: this runs for every file before every prompt, and paths are slow to
/// compare.
fn is_below(path: &Path, folder: &Path) -> bool {
    let rest = path.as_os_str().as_encoded_bytes().strip_prefix(folder.as_os_str().as_encoded_bytes());
    rest.is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn creation_writes_replacement_and_removal_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "one").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let mut stamps = FileStamps::default();
        for name in ["file", "folder", "none", "later/file", "later", "later/deep/file", "later-on", "folder/none"] {
            stamps.record(&at(name));
        }
        assert!(!stamps.have_changed());
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
            assert!(stamps.have_changed(), "{what}");
            stamps = stamps.now();
            assert!(!stamps.have_changed(), "{what}");
        }
    }

    #[test]
    fn files_that_appear_in_an_unchanged_folder_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("there/deep")).unwrap();
        symlink(at("elsewhere"), at("dangling")).unwrap();
        symlink(at("there"), at("linked")).unwrap();
        let appear: [(&str, &dyn Fn()); 7] = [
            ("file", &|| fs::write(at("file"), "").unwrap()),
            ("there/file", &|| fs::write(at("there/file"), "").unwrap()),
            ("there/deep/x/y", &|| {
                fs::create_dir(at("there/deep/x")).unwrap();
                fs::write(at("there/deep/x/y"), "").unwrap();
            }),
            ("linked/other", &|| fs::write(at("there/other"), "").unwrap()),
            ("dangling", &|| fs::create_dir(at("elsewhere")).unwrap()),
            ("dangling/file", &|| fs::write(at("elsewhere/file"), "").unwrap()),
            ("new/file", &|| {
                fs::create_dir(at("old")).unwrap();
                fs::write(at("old/file"), "").unwrap();
                fs::rename(at("old"), at("new")).unwrap();
            }),
        ];
        let began = std::time::Instant::now();
        for (name, make) in &appear {
            let mut stamps = FileStamps::default();
            appear.iter().for_each(|(name, _)| stamps.record(&at(name)));
            assert!(!stamps.have_changed());
            // Until the clock of the file system has moved on. There is no shortcut past a link that leads nowhere.
            while *name != "dangling" && stamps.0[&at(name)].absence.is_none() {
                assert!(!stamps.have_changed(), "before {name}");
                assert!(began.elapsed() < Duration::from_secs(60), "{name}: {stamps:?}");
            }
            assert!(!stamps.have_changed(), "before {name}");
            make();
            assert!(stamps.have_changed(), "{name}");
        }
    }

    #[test]
    fn no_change_goes_unnoticed() {
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
        let mut stamps = FileStamps::default();
        for name in ["file", "link", "dangling", "folder"] {
            stamps.record(&at(name));
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
            assert!(stamps.have_changed(), "{what}");
            stamps = stamps.now();
            assert!(!stamps.have_changed(), "{what}");
        }
    }

    #[test]
    fn the_number_of_stamps_is_bounded() {
        let mut stamps = FileStamps::default();
        for n in 0..MAX_FILE_STAMPS + 10 {
            stamps.record(&PathBuf::from(format!("/none/{n}")));
        }
        assert_eq!(stamps.len(), MAX_FILE_STAMPS);
    }
}
