//! Walks folders filled by others: bounded, in a fixed order, without running in circles.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum depth of a search.
pub(crate) const MAX_DEPTH: usize = 12;
/// The maximum number of entries that a search visits.
pub(crate) const MAX_ENTRIES: usize = 20_000;

/// Folders with other people's code, or without text.
const SKIPPED: &[&str] = &[".git", "node_modules", "target"];

/// Returns the files below `folder` that `accept` takes, sorted within each folder. Symbolic links are followed once.
/// `enter` is called for each folder before it is read, and for each dangling link.
pub(crate) fn files(
    folder: &Path,
    mut enter: impl FnMut(&Path),
    mut accept: impl FnMut(&Path) -> bool,
) -> Vec<PathBuf> {
    let mut walk =
        Walk { enter: &mut enter, accept: &mut accept, found: Vec::new(), left: MAX_ENTRIES, linked: HashSet::new() };
    walk.folder(folder, 0);
    walk.found
}

struct Walk<'a> {
    enter: &'a mut dyn FnMut(&Path),
    accept: &'a mut dyn FnMut(&Path) -> bool,
    found: Vec<PathBuf>,
    left: usize,
    /// The targets of links to folders: a second link to the same target is not followed, so that loops end.
    linked: HashSet<PathBuf>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) {
        (self.enter)(folder);
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut entries: Vec<_> = entries.flatten().take(self.left).collect();
        self.left -= entries.len();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Ok(mut kind) = entry.file_type() else { continue };
            let is_link = kind.is_symlink();
            if is_link {
                match fs::metadata(&path) {
                    Ok(metadata) => kind = metadata.file_type(),
                    // Loops and dangling links are skipped here; reading such a file by name reports it. A file may
                    // appear at the target later.
                    Err(_) => {
                        (self.enter)(&path);
                        continue;
                    }
                }
            }
            if kind.is_dir() {
                let skipped = entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name));
                let again = is_link && fs::canonicalize(&path).map_or(true, |real| !self.linked.insert(real));
                if depth < MAX_DEPTH && !skipped && !again {
                    self.folder(&path, depth + 1);
                }
            } else if (self.accept)(&path) {
                self.found.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn loops_end_and_order_is_fixed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["b/c", "a", "node_modules"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["b/c/2.md", "b/1.md", "a/3.md", "z.md", "node_modules/no.md", "b/x.txt"] {
            fs::write(at(file), "").unwrap();
        }
        symlink(dir.path(), at("b/up")).unwrap();
        symlink(at("l2"), at("l1")).unwrap();
        symlink(at("l1"), at("l2")).unwrap();
        let found = files(dir.path(), |_| {}, |path| path.extension().is_some_and(|e| e == "md"));
        let found: Vec<_> = found.iter().map(|path| path.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(&found[..3], ["a/3.md", "b/1.md", "b/c/2.md"]);
        assert_eq!(found.last(), Some(&"z.md"));
        assert!(found.len() <= 8, "{found:?}");
        assert_eq!(files(&at("none"), |_| {}, |_| true), Vec::<PathBuf>::new());
    }

    #[test]
    fn depth_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", MAX_DEPTH + 3).collect();
        fs::create_dir_all(dir.path().join(&deep)).unwrap();
        fs::write(dir.path().join(&deep).join("x"), "").unwrap();
        assert!(files(dir.path(), |_| {}, |_| true).is_empty());
    }
}
