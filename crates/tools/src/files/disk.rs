//! Files on the local disk, accessed without following a symbolic link that the caller did not resolve.
//!
//! [`resolve`] follows links once and returns a path without any; the functions here then open that path component by
//! component (`O_NOFOLLOW`), so a link that appears later is an error, not an escape.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use api::{Content, Environment, EnvironmentError};
use futures::future::BoxFuture;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

mod replace;

use replace::{sync_folder, write};

/// The largest file that is read into memory.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// How many symbolic links a path may go through, as in the Linux kernel.
const MAX_LINKS: usize = 40;

#[cfg(target_os = "linux")]
pub(crate) const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The local disk. Paths must be absolute and free of symbolic links (see [`resolve`]).
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalEnvironment;

impl Environment for LocalEnvironment {
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>> {
        Box::pin(blocking(path, |path| match open(path)? {
            Content::Whole(content) => Ok(content),
            Content::Large { .. } => {
                let bound = MAX_FILE_BYTES / 1024 / 1024;
                Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {bound} MB")))
            }
        }))
    }

    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Content, EnvironmentError>> {
        Box::pin(blocking(path, open))
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>> {
        let content = content.to_vec();
        Box::pin(blocking(path, move |path| write(path, &content)))
    }
}

/// Deletes a file. Editors do not support this, so it is not part of [`Environment`].
pub(crate) async fn delete(path: &Path) -> Result<(), EnvironmentError> {
    blocking(path, |path| {
        let (parent, name) = open_parent(path, false)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
        sync_folder(&parent)
    })
    .await
}

/// Recreates a symbolic link that was deleted.
pub(crate) async fn link(path: &Path, target: PathBuf) -> Result<(), EnvironmentError> {
    blocking(path, move |path| {
        let (parent, name) = open_parent(path, true)?;
        rustix::fs::symlinkat(&target, &parent, name)?;
        sync_folder(&parent)
    })
    .await
}

/// Copies mode, owner and attributes from a file to the one that replaces it after a move.
pub(crate) async fn copy_metadata(from: &Path, to: &Path) -> Result<(), EnvironmentError> {
    let from = from.to_owned();
    blocking(to, move |to| replace::copy_metadata(&from, to)).await
}

async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, EnvironmentError> {
    let owned = path.to_owned();
    let result = tokio::task::spawn_blocking(move || work(&owned)).await;
    result
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|source| EnvironmentError::Io { path: path.to_owned(), source })
}

/// Resolves all symbolic links in an absolute path. Components that do not exist are kept, even behind a dangling link.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    resolve_from(PathBuf::from("/"), path)
}

/// Likewise, for a path below a folder that is resolved already.
pub fn resolve_from(mut place: PathBuf, path: &Path) -> io::Result<PathBuf> {
    let mut pending: Vec<OsString> = path.components().rev().map(|c| c.as_os_str().to_owned()).collect();
    let mut links = 0;
    // Nothing exists below what does not.
    let mut missing = false;
    while let Some(name) = pending.pop() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                place.pop();
                missing = false;
                continue;
            }
            _ => continue,
        }
        place.push(&name);
        if missing {
            continue;
        }
        match std::fs::symlink_metadata(&place) {
            Ok(found) if found.is_symlink() => {}
            Ok(_) => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                missing = true;
                continue;
            }
            Err(error) => return Err(error),
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::other("too many symbolic links (a loop?)"));
        }
        let target = std::fs::read_link(&place)?;
        place.pop();
        if target.is_absolute() {
            place = PathBuf::from("/");
        }
        pending.extend(target.components().rev().map(|c| c.as_os_str().to_owned()));
    }
    Ok(place)
}

/// Opens the folder of a file component by component, following no link, and returns the file's name in it.
fn open_parent(path: &Path, create: bool) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut folder = rustix::fs::open("/", DIRECTORY, Mode::empty())?;
    for component in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(step) = component else { continue };
        folder = match rustix::fs::openat(&folder, step, DIRECTORY, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOENT) if create => {
                match rustix::fs::mkdirat(&folder, step, Mode::from_raw_mode(0o777)) {
                    Ok(()) => sync_folder(&folder)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                rustix::fs::openat(&folder, step, DIRECTORY, Mode::empty())?
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok((folder, name))
}

/// Opens a folder component by component, following no link.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    open_folder_with(path, DIRECTORY)
}

fn open_folder_with(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    if path.parent().is_none() {
        return Ok(rustix::fs::open("/", flags, Mode::empty())?);
    }
    let (parent, name) = open_parent(path, false)?;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}

/// Opens a regular file for reading, component by component, following no link.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let (parent, name) = open_parent(path, false)?;
    // Without NONBLOCK, opening a named pipe would block until a writer appears.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&parent, name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
    }
    Ok(file)
}

/// Opens a folder for listing, component by component, following no link.
pub(crate) fn open_entries(path: &Path) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Dir::new(open_folder_with(path, flags)?)?)
}

fn open(path: &Path) -> io::Result<Content> {
    let file = open_file(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > MAX_FILE_BYTES {
        return Ok(Content::Large { size: metadata.len(), reader: Box::new(file) });
    }
    let mut content = Vec::with_capacity(metadata.len() as usize);
    // It may be longer than its metadata says: it grows, or the kernel generates it.
    (&file).take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let size = file.metadata()?.len().max(content.len() as u64);
        return Ok(Content::Large { size, reader: Box::new(io::Cursor::new(content).chain(file)) });
    }
    Ok(Content::Whole(content))
}

#[cfg(test)]
mod tests;
