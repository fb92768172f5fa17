//! A folder that stays open while it is searched.
//!
//! A walk works with names, and a name can lead elsewhere a moment later. What is opened here is below the folder and
//! not behind a symbolic link at that moment, so its name identifies the file, and rules about the name apply.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};

use crate::files::disk;

/// An open folder.
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder whose path has no symbolic links; a link that appeared since is an error.
    pub fn open(path: &Path) -> io::Result<Self> {
        disk::open_folder(path).map(Self)
    }

    /// Opens a regular file below it for reading.
    pub fn file(&self, relative: &Path) -> io::Result<File> {
        // Without NONBLOCK, opening a named pipe would block until a writer appears.
        let file = File::from(open_beneath(&self.0, relative, OFlags::RDONLY | OFlags::NONBLOCK)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
        }
    }

    /// Whether it contains a regular file of that name.
    pub fn has(&self, relative: &Path) -> bool {
        let found = open_beneath(&self.0, relative, PATH).map(File::from).and_then(|file| file.metadata());
        found.is_ok_and(|metadata| metadata.is_file())
    }
}

/// The modification time of a file, for sorting results.
pub(crate) fn modified(file: &File) -> SystemTime {
    file.metadata().ok().and_then(|metadata| metadata.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(target_os = "linux")]
const PATH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PATH: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// Opens an entry below a folder, following no symbolic link.
fn open_beneath(folder: &OwnedFd, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        use rustix::io::Errno;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(folder, relative, flags, Mode::empty(), resolve) {
            // Older kernels do not have it, and some sandboxes forbid it.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(opened?),
        }
    }
    open_by_components(folder, relative, flags)
}

fn open_by_components(folder: &OwnedFd, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut steps = relative.components().peekable();
    while let Some(step) = steps.next() {
        let Component::Normal(name) = step else { return Err(io::ErrorKind::InvalidInput.into()) };
        let from = at.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
        let flags = if steps.peek().is_some() { disk::DIRECTORY } else { flags };
        at = Some(rustix::fs::openat(from, name, flags, Mode::empty())?);
    }
    at.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_real_entries_below_the_folder_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("in/sub")).unwrap();
        std::fs::create_dir(root.join("out")).unwrap();
        for name in ["in/a", "in/sub/b", "out/secret"] {
            std::fs::write(root.join(name), name).unwrap();
        }
        symlink(root.join("out"), root.join("in/link")).unwrap();
        symlink("sub", root.join("in/near")).unwrap();
        symlink(root.join("out/secret"), root.join("in/leak")).unwrap();
        symlink("a", root.join("in/alias")).unwrap();
        symlink(root.join("in"), root.join("door")).unwrap();
        let folder = Folder::open(&root.join("in")).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        for (name, there) in [
            ("a", true),
            ("sub/b", true),
            ("sub", false),
            ("none", false),
            ("link/secret", false),
            ("near/b", false),
            ("leak", false),
            ("alias", false),
            ("../out/secret", false),
            ("sub/../../out/secret", false),
        ] {
            let path = Path::new(name);
            assert_eq!(folder.has(path), there, "{name}");
            assert_eq!(folder.file(path).is_ok(), there, "{name}");
            let slowly = open_by_components(&folder.0, path, flags).map(File::from);
            assert_eq!(slowly.is_ok_and(|file| file.metadata().unwrap().is_file()), there, "{name}");
        }
        let mut text = String::new();
        folder.file(Path::new("sub/b")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "in/sub/b");
        assert!(Folder::open(&root.join("door")).is_err(), "a link is not a folder");
        assert!(Folder::open(&root.join("in/a")).is_err());
        // It stays the same folder when its name leads elsewhere.
        std::fs::rename(root.join("in"), root.join("moved")).unwrap();
        symlink(root.join("out"), root.join("in")).unwrap();
        assert!(folder.has(Path::new("a")) && !folder.has(Path::new("secret")));
    }
}
