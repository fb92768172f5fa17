//! Files and directories that a message names, read so that nobody can exchange them meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use url::Url;

use crate::service::scope::resolve;

/// The most entries of a directory that are listed.
const MAX_ENTRIES: usize = 1000;

/// Why a file is not read. It completes a sentence that begins with its address.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("is outside of the directories that messages may name")]
    Outside,
    #[error("does not exist")]
    Missing,
    #[error("is neither a file nor a directory")]
    Special,
    #[error("is larger than {0} bytes")]
    TooLarge(usize),
    #[error("could not be read: {0}")]
    Failed(io::ErrorKind),
}

impl From<io::Error> for DiskError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            // The last part of the path has become a link.
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Self::Outside,
            kind => Self::Failed(kind),
        }
    }
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The content of a file.
    File(Vec<u8>),
    /// The names in a directory, one on each line.
    Directory(String),
}

/// Reads what a resolved path leads to. Fails if the path has come to lead elsewhere meanwhile.
pub(super) fn read(path: &Path, max_bytes: usize) -> Result<Found, DiskError> {
    // Opening a pipe would wait for somebody who writes into it.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let opened = file.metadata()?;
    // A link above the file may have been put there after the path was resolved: what is open must be what the path names
    // when it is resolved again.
    let named = fs::symlink_metadata(path)?;
    let is_same = (opened.dev(), opened.ino()) == (named.dev(), named.ino());
    if !is_same || resolve(path).as_deref() != Some(path) {
        return Err(DiskError::Outside);
    }
    if opened.is_dir() {
        return list(&file, path).map(Found::Directory);
    }
    if !opened.is_file() {
        return Err(DiskError::Special);
    }
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes { Err(DiskError::TooLarge(max_bytes)) } else { Ok(Found::File(bytes)) }
}

/// The names in an open directory, sorted; those of directories end with a slash.
fn list(directory: &File, path: &Path) -> Result<String, DiskError> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory).map_err(io::Error::from)? {
        let entry = entry.map_err(io::Error::from)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let slash = if entry.file_type() == rustix::fs::FileType::Directory { "/" } else { "" };
        names.push(format!("{name}{slash}"));
        if names.len() > MAX_ENTRIES {
            break;
        }
    }
    let is_cut = names.len() > MAX_ENTRIES;
    names.truncate(MAX_ENTRIES);
    names.sort_unstable();
    let mut text = format!("The directory {} contains:\n{}\n", path.display(), names.join("\n"));
    if is_cut {
        text.push_str("and more.\n");
    }
    Ok(text)
}

/// The lines that a `file:` address selects with `?start=` and `?end=`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    start: usize,
    end: Option<usize>,
}

impl Lines {
    pub(super) fn of(url: &Url) -> Option<Self> {
        let number = |name: &str| url.query_pairs().find(|(key, _)| key == name).and_then(|(_, it)| it.parse().ok());
        number("start").map(|start| Self { start: usize::max(start, 1), end: number("end") })
    }

    /// These lines of a text.
    pub(super) fn cut(self, bytes: Vec<u8>) -> Vec<u8> {
        let end = self.end.unwrap_or(usize::MAX).max(self.start);
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines.skip(self.start - 1).take(end - self.start + 1).flatten().copied().collect()
    }
}
