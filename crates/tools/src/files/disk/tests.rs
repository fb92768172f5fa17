use super::*;
use rustix::fs::FileType;
use std::os::unix::fs::{PermissionsExt, symlink};

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match open(path)? {
        Content::Whole(content) => Ok(content),
        Content::Large { size, .. } => panic!("{size} bytes are in memory"),
    }
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    (dir, real)
}

#[test]
fn links_are_followed_once_and_to_the_end() {
    let (_guard, dir) = temp();
    std::fs::create_dir(dir.join("a")).unwrap();
    symlink(dir.join("a"), dir.join("link")).unwrap();
    symlink("../nowhere/x", dir.join("a/dangling")).unwrap();
    assert_eq!(resolve(&dir.join("link/new.txt")).unwrap(), dir.join("a/new.txt"));
    assert_eq!(resolve(&dir.join("link/dangling/y")).unwrap(), dir.join("nowhere/x/y"));
    assert_eq!(resolve(Path::new("/../..")).unwrap(), Path::new("/"));
}

#[test]
fn a_loop_of_links_is_an_error() {
    let (_guard, dir) = temp();
    symlink(dir.join("b"), dir.join("a")).unwrap();
    symlink(dir.join("a"), dir.join("b")).unwrap();
    assert!(resolve(&dir.join("a/x")).unwrap_err().to_string().contains("too many symbolic links"));
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let (_guard, dir) = temp();
    std::fs::create_dir(dir.join("outside")).unwrap();
    std::fs::write(dir.join("outside/secret"), "s").unwrap();
    symlink(dir.join("outside"), dir.join("folder")).unwrap();
    symlink(dir.join("outside/secret"), dir.join("file")).unwrap();
    symlink(dir.join("outside/made"), dir.join("dangling")).unwrap();
    for name in ["folder/secret", "folder/made", "file", "dangling"] {
        assert!(read(&dir.join(name)).is_err(), "{name}");
        assert!(write(&dir.join(name), b"x").is_err(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("outside/secret")).unwrap(), "s");
    assert!(!dir.join("outside/made").exists());
}

#[test]
fn parent_folders_are_created() {
    let (_guard, dir) = temp();
    write(&dir.join("a/b/c.txt"), b"x").unwrap();
    assert_eq!(read(&dir.join("a/b/c.txt")).unwrap(), b"x");
    let error = write(&dir.join("a/b/c.txt/d"), b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn non_regular_files_are_refused() {
    let (_guard, dir) = temp();
    let fifo = dir.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(read(&fifo).unwrap_err().to_string().contains("not a regular file"));
    assert!(write(&fifo, b"x").unwrap_err().to_string().contains("not a regular file"));
    assert_eq!(read(&dir).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(write(&dir, b"x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(read(Path::new("/")).unwrap_err().kind(), io::ErrorKind::IsADirectory);
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let (_guard, dir) = temp();
    let file = dir.join("locked");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(write(&file, b"new").unwrap_err().to_string().contains("read-only"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
}

#[tokio::test]
async fn a_large_file_is_not_read_into_memory() {
    let (_guard, dir) = temp();
    let big = dir.join("big");
    File::create(&big).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    assert!(LocalEnvironment.read(&big).await.unwrap_err().to_string().contains("larger than 64 MB"));
    let Content::Large { size, mut reader } = LocalEnvironment.open(&big).await.unwrap() else {
        panic!("it is in memory")
    };
    assert_eq!(size, MAX_FILE_BYTES + 1);
    assert_eq!(reader.read(&mut [0; 100]).unwrap(), 100);
}

#[tokio::test]
async fn deleting_a_link_keeps_its_target() {
    let (_guard, dir) = temp();
    std::fs::write(dir.join("target"), "x").unwrap();
    symlink(dir.join("target"), dir.join("link")).unwrap();
    delete(&dir.join("link")).await.unwrap();
    assert!(dir.join("target").exists() && !dir.join("link").exists());
}
