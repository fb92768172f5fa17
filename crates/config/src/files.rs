//! Reads files written by others: bounded, and prepared for anything that may be at a path.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::problem::Problem;

pub(crate) mod stamps;
pub(crate) mod walk;

/// The largest configuration file, and the largest file that `{file:…}` inserts.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// The largest agent, command or skill in markdown.
pub const MAX_MARKDOWN_BYTES: u64 = 1 << 18;

/// Reads a text file. `None` if it does not exist; otherwise an error that says why it cannot be read.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<String>, Problem> {
    let bad = |message: String| Problem::error(message).in_file(path);
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // A parent that is a file is the same as no file.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(bad("this symbolic link leads nowhere; remove it".to_owned())),
                Err(_) => Ok(None),
            };
        }
        Err(error) => return Err(bad(format!("cannot be read: {error}"))),
    };
    // Reading a pipe would block forever; a device may never end.
    if !metadata.is_file() {
        return Err(bad("is not a regular file; it is left out".to_owned()));
    }
    if metadata.len() > most {
        return Err(bad(format!("is larger than {most} bytes ({}); it is left out", metadata.len())));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| bad(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > most {
        return Err(bad(format!("is larger than {most} bytes; it is left out")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let mut problem = bad("is not valid UTF-8 here; save it as UTF-8".to_owned());
            problem.line = u32::try_from(line).ok();
            Err(problem)
        }
    }
}

/// The resolved path if it is outside `root`, or cannot be resolved.
pub(crate) fn outside(path: &Path, root: &Path) -> Option<PathBuf> {
    let Ok(real) = fs::canonicalize(path) else { return Some(path.to_owned()) };
    let inside = real.starts_with(root) || fs::canonicalize(root).is_ok_and(|root| real.starts_with(root));
    (!inside).then_some(real)
}

/// Resolves a path as written in a configuration: `~/` is the home directory, otherwise relative to `base`.
pub(crate) fn resolve(written: &str, base: &Path, home: &Path) -> PathBuf {
    let path = match written.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => base.join(written),
    };
    // Removes `.` components, because paths are compared as text.
    path.components().collect()
}

/// What a system crash may do to a file that was just replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Nothing.
    Synced,
    /// Lose it: it can be recreated, and start-up should not wait for the disk.
    Cache,
}

/// Who may read a replaced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner.
    Owner,
    /// Everybody, subject to the umask.
    Everybody,
    /// The same as before.
    Same(fs::Permissions),
}

/// Replaces a file atomically.
pub(crate) fn replace(path: &Path, content: &[u8], access: Access, durability: Durability) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let folder = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.subsec_nanos());
    // Neither two processes nor two threads may use the same temporary file.
    let temporary = folder.join(format!(".{name}.{}.{nanos}.tmp", std::process::id()));
    let write = || {
        let mode = if access == Access::Everybody { 0o644 } else { 0o600 };
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        if let Access::Same(permissions) = access {
            file.set_permissions(permissions)?;
        }
        if durability == Durability::Synced {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // Best effort: the returned error matters more than a leftover file.
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn anything_at_a_path_is_text_or_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("good"), "text").unwrap();
        assert_eq!(read(&at("good"), 10).unwrap().as_deref(), Some("text"));
        assert_eq!(read(&at("none"), 10).unwrap(), None);
        assert_eq!(read(&at("good/below"), 10).unwrap(), None);
        fs::create_dir(at("folder")).unwrap();
        assert!(read(&at("folder"), 10).unwrap_err().message.contains("regular"));
        fs::write(at("big"), "12345678901").unwrap();
        assert!(read(&at("big"), 10).unwrap_err().message.contains("larger than 10"));
        fs::write(at("bytes"), b"a\nb\xff").unwrap();
        assert_eq!(read(&at("bytes"), 10).unwrap_err().line, Some(2));
        symlink(at("loop2"), at("loop1")).unwrap();
        symlink(at("loop1"), at("loop2")).unwrap();
        assert!(read(&at("loop1"), 10).unwrap_err().message.contains("cannot be read"));
        symlink(at("gone"), at("dangling")).unwrap();
        assert!(read(&at("dangling"), 10).unwrap_err().message.contains("leads nowhere"));
    }

    #[test]
    fn links_out_of_the_root_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(root.join("own"), "o").unwrap();
        symlink(dir.path().join("secret"), root.join("out")).unwrap();
        symlink(root.join("own"), root.join("in")).unwrap();
        assert_eq!(outside(&root.join("own"), &root), None);
        assert_eq!(outside(&root.join("in"), &root), None);
        assert!(outside(&root.join("out"), &root).unwrap().ends_with("secret"));
        assert!(outside(&root.join("../secret"), &root).is_some());
    }

    #[test]
    fn replacing_is_private_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.json");
        replace(&path, b"1", Access::Owner, Durability::Cache).unwrap();
        replace(&path, b"2", Access::Owner, Durability::Synced).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let same = fs::Permissions::from_mode(0o640);
        replace(&path, b"3", Access::Same(same), Durability::Cache).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
    }
}
