//! Replaces the content of a file and keeps everything else: mode, owner, group, extended attributes including ACLs,
//! hard links. Everything is on disk before it returns.
//!
//! The new content goes to a temporary file that is renamed over the old one, so that a reader or a crash sees either
//! the old content or the new. If a new file could not get the attributes of the old one, the old one is written in
//! place.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::{open_file, open_parent};

/// The maximum size of an extended attribute list and of a value, as in the Linux kernel.
const MAX_ATTRIBUTES: usize = 64 << 10;

/// Flags to open exactly this file: follow no link, do not block on a pipe.
const EXACT_FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Replaces the content of a file; creates the file and its folders if they are missing.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let (parent, name) = open_parent(path, true)?;
    let stat = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return write_and_rename(&parent, name, content, None),
        stat => check_writable(stat?)?,
    };
    // With hard links, the file's other names would keep the old content.
    if stat.st_nlink == 1
        && let Ok(old) = rustix::fs::openat(&parent, name, EXACT_FILE | OFlags::RDONLY, Mode::empty())
    {
        match write_and_rename(&parent, name, content, Some(&File::from(old))) {
            // The new file could not get the old attributes, or the folder is not writable although the file is.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
    }
    write_in_place(&parent, name, content, &stat)
}

fn check_writable(stat: Stat) -> io::Result<Stat> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
    }
    // A rename would replace it anyway, and root may write to anything; but somebody wanted it to stay as it is.
    if !Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "is read-only (no write permission is set)"));
    }
    Ok(stat)
}

/// Writes a temporary file and renames it.
fn write_and_rename(parent: &OwnedFd, name: &OsStr, content: &[u8], old: Option<&File>) -> io::Result<()> {
    let temporary = format!(".{}.tmp", api::tool_call_id());
    let flags = EXACT_FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
    let mut file = File::from(rustix::fs::openat(parent, &temporary, flags, mode)?);
    let written = file.write_all(content).and_then(|()| {
        // After the content, because writing clears setuid bits and capabilities.
        old.map_or(Ok(()), |old| copy_attributes(&file, old)).map_err(|_| io::ErrorKind::PermissionDenied)?;
        sync(&file)?;
        Ok(rustix::fs::renameat(parent, &temporary, parent, name)?)
    });
    if let Err(error) = written {
        // Report the first error; at worst a hidden file is left behind.
        let _ = rustix::fs::unlinkat(parent, &temporary, AtFlags::empty());
        return Err(error);
    }
    sync_folder(parent)
}

/// Writes into the file itself. A crash can leave it partially written.
fn write_in_place(parent: &OwnedFd, name: &OsStr, content: &[u8], stat: &Stat) -> io::Result<()> {
    let mut file = File::from(rustix::fs::openat(parent, name, EXACT_FILE | OFlags::WRONLY, Mode::empty())?);
    let length = content.len() as u64;
    reserve(&file, length)?;
    file.write_all(content)?;
    file.set_len(length)?;
    // Writing clears some mode bits; only the owner may restore them.
    if rustix::fs::fstat(&file)?.st_mode != stat.st_mode {
        let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode));
    }
    sync(&file)
}

/// Reserves disk space before the old content is overwritten.
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

/// Copies owner, group, mode and extended attributes to a file. Fails if the file cannot have them.
fn copy_attributes(file: &File, model: &File) -> io::Result<()> {
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
    // A mode that we are not allowed to set loses bits without an error.
    if rustix::fs::fstat(file)?.st_mode == wanted.st_mode {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The readable extended attributes of a file; empty if the file system does not support them.
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

/// Copies everything but the content to the file that replaces another after a move, as far as permitted.
pub(super) fn copy_metadata(from: &Path, to: &Path) -> io::Result<()> {
    let (model, file) = (open_file(from)?, open_file(to)?);
    if copy_attributes(&file, &model).is_err() {
        // Keep ourselves as owner then, and copy only the mode.
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&model)?.st_mode);
        rustix::fs::fchmod(&file, mode & !(Mode::SUID | Mode::SGID))?;
    }
    sync(&file)
}

fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    tests::record_sync(file);
    file.sync_all()
}

/// Syncs the directory entries of a folder to disk.
pub(super) fn sync_folder(folder: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::openat(folder, ".", flags, Mode::empty()).map_err(io::Error::from);
    match synced.and_then(|folder| sync(&File::from(folder))) {
        // The folder may be writable but not readable, or the file system may not support it.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
