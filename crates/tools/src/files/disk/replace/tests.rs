use super::*;
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

thread_local! {
    /// Every synced path, with the files in its folder at that time.
    static SYNCED: RefCell<Vec<(PathBuf, Vec<String>)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn record_sync(file: &File) {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    let folder = if path.is_dir() { &path } else { path.parent().unwrap() };
    let mut names = names(folder);
    names.sort();
    SYNCED.with_borrow_mut(|synced| synced.push((path, names)));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    (dir, real)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn modes_are_kept() {
    let (_guard, dir) = temp();
    let file = dir.join("file");
    write(&file, b"1").unwrap();
    for wanted in [0o600, 0o640, 0o664, 0o755, 0o750, 0o220, 0o777, 0o2755, 0o4711, 0o1644] {
        set_mode(&file, wanted);
        write(&file, format!("{wanted}").as_bytes()).unwrap();
        assert_eq!(mode(&file), wanted, "{wanted:o}");
        assert_eq!(names(&dir), ["file"], "{wanted:o}");
    }
}

#[test]
fn owner_and_group_are_kept() {
    let (_guard, dir) = temp();
    let root = rustix::process::geteuid().is_root();
    let groups = rustix::process::getgroups().unwrap();
    // An unprivileged user can only give away a file to one of their groups.
    let other = if root { Some(4321) } else { groups.first().map(|group| group.as_raw()) };
    for (name, owner, group) in [("both", root.then_some(1234), other), ("group", None, other)] {
        let file = dir.join(name);
        write(&file, b"1").unwrap();
        std::os::unix::fs::chown(&file, owner, group).unwrap();
        set_mode(&file, 0o664);
        let before = file.metadata().unwrap();
        write(&file, b"22").unwrap();
        let after = file.metadata().unwrap();
        assert_eq!((after.uid(), after.gid(), after.mode()), (before.uid(), before.gid(), before.mode()), "{name}");
        assert_eq!(std::fs::read(&file).unwrap(), b"22");
    }
}

/// An ACL as the kernel stores it: owner, one user, group, mask and others.
fn acl(user: u32) -> Vec<u8> {
    let entry =
        |tag: u16, rights: u16, id: u32| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [entry(1, 6, none), entry(2, 6, user), entry(4, 4, none), entry(16, 6, none), entry(32, 0, none)];
    [&2u32.to_le_bytes()[..], &entries.concat()].concat()
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn attributes_of(path: &Path) -> BTreeMap<CString, Vec<u8>> {
    attributes(&File::open(path).unwrap()).unwrap()
}

#[test]
fn extended_attributes_and_acls_are_kept() {
    let (_guard, dir) = temp();
    let (file, plain) = (dir.join("file"), dir.join("plain"));
    write(&file, b"1").unwrap();
    write(&plain, b"1").unwrap();
    set_attribute(&file, "user.origin", b"somewhere");
    set_attribute(&file, "user.empty", b"");
    set_attribute(&file, ACCESS, &acl(1234));
    // New files in this folder would inherit an ACL.
    set_attribute(&dir, DEFAULT, &acl(999));
    for path in [&file, &plain] {
        let (before, mode_before) = (attributes_of(path), mode(path));
        write(path, b"22").unwrap();
        assert_eq!((attributes_of(path), mode(path)), (before, mode_before), "{}", path.display());
    }
    assert_eq!(attributes_of(&file).len(), 3);
    assert!(attributes_of(&plain).is_empty());
    let new = dir.join("new");
    write(&new, b"1").unwrap();
    assert!(!attributes_of(&new).is_empty(), "a new file inherits");
}

#[test]
fn hard_links_get_the_new_content_too() {
    let (_guard, dir) = temp();
    let (file, twin) = (dir.join("file"), dir.join("twin"));
    write(&file, b"a longer text").unwrap();
    std::fs::hard_link(&file, &twin).unwrap();
    set_mode(&file, 0o4755);
    write(&file, b"short").unwrap();
    assert_eq!(std::fs::read(&twin).unwrap(), b"short");
    assert_eq!((file.metadata().unwrap().ino(), mode(&file)), (twin.metadata().unwrap().ino(), 0o4755));
    write(&file, b"").unwrap();
    assert_eq!(std::fs::read(&twin).unwrap(), b"");
    assert_eq!(names(&dir).len(), 2);
}

#[test]
fn content_and_name_are_synced_before_it_returns() {
    let (_guard, dir) = temp();
    let synced = |work: &dyn Fn()| {
        SYNCED.take();
        work();
        SYNCED.take()
    };
    let file = dir.join("a/b/file");
    for content in ["new", "changed"] {
        let done = synced(&|| write(&file, content.as_bytes()).unwrap());
        let place = |path: &Path| done.iter().position(|(synced, _)| synced == path);
        let content_at = done.iter().position(|(path, _)| path.extension().is_some_and(|end| end == "tmp")).unwrap();
        let folder_at = place(&dir.join("a/b")).unwrap();
        assert!(content_at < folder_at, "{done:?}");
        assert_eq!(done[folder_at].1, ["file"], "the folder has the name by then");
        if content == "new" {
            assert!(place(&dir).unwrap() < content_at && place(&dir.join("a")).unwrap() < content_at, "{done:?}");
        }
    }
    std::fs::hard_link(&file, dir.join("twin")).unwrap();
    let done = synced(&|| write(&file, b"in place").unwrap());
    assert_eq!(done.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&file]);
}

#[test]
fn a_moved_file_keeps_its_metadata() {
    let (_guard, dir) = temp();
    let (from, to) = (dir.join("from"), dir.join("to"));
    for path in [&from, &to] {
        write(path, b"1").unwrap();
    }
    set_mode(&from, 0o751);
    set_attribute(&from, "user.origin", b"somewhere");
    copy_metadata(&from, &to).unwrap();
    assert_eq!((mode(&to), attributes_of(&to)), (0o751, attributes_of(&from)));
}
