//! Replaces the content of a file and keeps everything else about it: mode, owner, group, extended attributes with ACLs among
//! them, hard links. What is done is on the disk when it is called done.
//!
//! The new content is written beside the file and takes its name, so that a reader or a crash sees the old content or the new,
//! nothing between. Where a new file could not be like the old one, the old one is written in place instead.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::{open_file, open_parent};

/// The longest list of extended attributes and the longest value of one, as in the Linux kernel.
const MAX_ATTRIBUTES: usize = 64 << 10;

/// Opens a file, and only that: no link is followed, and no pipe waited for.
const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Replaces the whole content of a file; makes it and its folders if they are missing.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let (parent, name) = open_parent(path, true)?;
    let stat = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return beside(&parent, name, content, None),
        stat => check_writable(stat?)?,
    };
    // Other names of the file would keep the old content.
    if stat.st_nlink == 1
        && let Ok(old) = rustix::fs::openat(&parent, name, PLAIN | OFlags::RDONLY, Mode::empty())
    {
        match beside(&parent, name, content, Some(&File::from(old))) {
            // The new file could not be like the old one, or the folder is closed to us while the file is open.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
    }
    in_place(&parent, name, content, &stat)
}

fn check_writable(stat: Stat) -> io::Result<Stat> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
    }
    // A rename would replace it all the same, and root may write to anything; yet somebody meant it to stay as it is.
    if !Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "is read-only (no write permission is set)"));
    }
    Ok(stat)
}

/// Writes beside the file and renames.
fn beside(parent: &OwnedFd, name: &OsStr, content: &[u8], old: Option<&File>) -> io::Result<()> {
    let temporary = format!(".{}.tmp", api::tool_call_id());
    let flags = PLAIN | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
    let mut file = File::from(rustix::fs::openat(parent, &temporary, flags, mode)?);
    let written = file.write_all(content).and_then(|()| {
        // After the content: writing takes rights away that a program has by its file.
        old.map_or(Ok(()), |old| liken(&file, old)).map_err(|_| io::ErrorKind::PermissionDenied)?;
        sync(&file)?;
        Ok(rustix::fs::renameat(parent, &temporary, parent, name)?)
    });
    if let Err(error) = written {
        // The first error is the one to tell; what is left behind is only a hidden file.
        let _ = rustix::fs::unlinkat(parent, &temporary, AtFlags::empty());
        return Err(error);
    }
    sync_folder(parent)
}

/// Writes into the file itself. A crash can leave a part of the new content.
fn in_place(parent: &OwnedFd, name: &OsStr, content: &[u8], stat: &Stat) -> io::Result<()> {
    let mut file = File::from(rustix::fs::openat(parent, name, PLAIN | OFlags::WRONLY, Mode::empty())?);
    let length = content.len() as u64;
    reserve(&file, length)?;
    file.write_all(content)?;
    file.set_len(length)?;
    // Writing takes some bits of the mode away; only the owner may put them back.
    if rustix::fs::fstat(&file)?.st_mode != stat.st_mode {
        let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode));
    }
    sync(&file)
}

/// Makes sure that there is room before the old content is gone.
fn reserve(file: &File, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if length > 0 {
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        if let Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = rustix::fs::fallocate(file, flags, 0, length) {
            return Err(full.into());
        }
    }
    let _ = (file, length);
    Ok(())
}

/// Gives a file the owner, the group, the mode and the extended attributes of another. An error says that it cannot have them.
fn liken(file: &File, model: &File) -> io::Result<()> {
    let (wanted, now) = (rustix::fs::fstat(model)?, rustix::fs::fstat(file)?);
    if (wanted.st_uid, wanted.st_gid) != (now.st_uid, now.st_gid) {
        let (owner, group) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
        rustix::fs::fchown(file, Some(owner), Some(group))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.st_mode))?;
    let (wanted_attributes, now) = (attributes(model)?, attributes(file)?);
    // A new file inherits the default ACL of its folder.
    for name in now.keys().filter(|name| !wanted_attributes.contains_key(*name)) {
        rustix::fs::fremovexattr(file, name.as_c_str())?;
    }
    for (name, value) in wanted_attributes.iter().filter(|(name, value)| now.get(*name) != Some(value)) {
        rustix::fs::fsetxattr(file, name.as_c_str(), value, XattrFlags::empty())?;
    }
    // A mode that is not ours to give loses bits without an error.
    if rustix::fs::fstat(file)?.st_mode == wanted.st_mode {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The extended attributes of a file, as far as they can be read; none where the file system has none.
fn attributes(file: &File) -> io::Result<BTreeMap<CString, Vec<u8>>> {
    let mut buffer = vec![0; MAX_ATTRIBUTES];
    let length = match rustix::fs::flistxattr(file, buffer.as_mut_slice()) {
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        length => length?,
    };
    let names: Vec<CString> =
        buffer[..length].split(|byte| *byte == 0).filter_map(|name| CString::new(name).ok()).collect();
    let mut attributes = BTreeMap::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        match rustix::fs::fgetxattr(file, name.as_c_str(), buffer.as_mut_slice()) {
            Ok(length) => attributes.insert(name, buffer[..length].to_vec()),
            Err(Errno::NODATA | Errno::NOTSUP) => None,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(attributes)
}

/// Gives a file that another one moved to everything but the content, as far as that is allowed.
pub(super) fn inherit(from: &Path, to: &Path) -> io::Result<()> {
    let (model, file) = (open_file(from)?, open_file(to)?);
    if liken(&file, &model).is_err() {
        // The owner stays ours then, and the mode is the file's own.
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&model)?.st_mode);
        rustix::fs::fchmod(&file, mode & !(Mode::SUID | Mode::SGID))?;
    }
    sync(&file)
}

fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    tests::note_sync(file);
    file.sync_all()
}

/// Brings the names in a folder to the disk.
pub(super) fn sync_folder(folder: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::openat(folder, ".", flags, Mode::empty()).map_err(io::Error::from);
    match synced.and_then(|folder| sync(&File::from(folder))) {
        // A folder that may be changed but not listed; a file system that knows no such thing.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
