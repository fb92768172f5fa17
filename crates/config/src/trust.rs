//! Which files in repositories the user trusts, each with the content that they saw.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, Access, Durability};

pub(crate) mod guard;

/// The largest trust file that is read.
pub const MAX_TRUST_BYTES: u64 = 4 << 20;
/// The number of contents remembered per file: switching branches must not ask again each time.
pub const MAX_CONTENTS: usize = 16;

/// Whose configuration takes full effect.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Everybody's, for automation in throw-away environments.
    All,
    /// The user's own, and what they trusted.
    Store(TrustStore),
}

impl Trust {
    /// Whether this content of this file takes full effect.
    pub fn covers(&self, path: &Path, hash: &str) -> bool {
        match self {
            Self::All => true,
            Self::Store(store) => store.is_trusted(path, hash),
        }
    }

    /// Reloads what was trusted or revoked since. If it cannot be read now, the known state stays.
    #[must_use]
    pub fn reloaded(&self) -> Self {
        match self {
            Self::Store(store) => Self::Store(TrustStore::load(&store.path).unwrap_or_else(|_| store.clone())),
            Self::All => Self::All,
        }
    }

    /// The file it is stored in, if any.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::All => None,
            Self::Store(store) => Some(&store.path),
        }
    }

    /// Trusts this content of this file from now on.
    pub(crate) fn remember(&self, path: &Path, hash: &str) -> Result<(), TrustError> {
        let Self::Store(store) = self else { return Ok(()) };
        let mut store = TrustStore::load(&store.path)?;
        store.trust(path, hash);
        store.save()
    }
}

/// Why the trusted files are unknown.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It cannot be read.
    #[error("the list of trusted files cannot be read: {0}")]
    Read(String),
    /// It is not a file that we wrote.
    #[error("{path} is damaged ({message}); remove it, and trust your projects again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// It cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The trusted files, stored in `trust.json` (mode 0600).
#[derive(Debug, Clone, Default)]
pub struct TrustStore {
    path: PathBuf,
    files: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct TrustFile {
    version: u32,
    files: BTreeMap<String, Vec<String>>,
}

impl TrustStore {
    /// Reads the store at `path`; a missing file is an empty store.
    pub fn load(path: &Path) -> Result<Self, TrustError> {
        let text = files::read(path, MAX_TRUST_BYTES).map_err(|problem| TrustError::Read(problem.to_string()))?;
        let damaged = |message: String| TrustError::Damaged { path: path.to_owned(), message };
        let files = match text {
            None => BTreeMap::new(),
            Some(text) => {
                let saved: TrustFile = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
                if saved.version != 1 {
                    return Err(damaged(format!("its version is {}, not 1", saved.version)));
                }
                saved.files
            }
        };
        Ok(Self { path: path.to_owned(), files })
    }

    /// A store that trusts nothing, for use when [`load`](Self::load) failed.
    pub fn empty(path: &Path) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new() }
    }

    /// Whether the file was trusted with exactly this content.
    pub fn is_trusted(&self, path: &Path, hash: &str) -> bool {
        self.files.get(&key(path)).is_some_and(|hashes| hashes.iter().any(|known| known == hash))
    }

    /// Trusts the file with this content. Others see it once it is saved.
    pub fn trust(&mut self, path: &Path, hash: &str) {
        let hashes = self.files.entry(key(path)).or_default();
        hashes.retain(|known| known != hash);
        hashes.push(hash.to_owned());
        let surplus = hashes.len().saturating_sub(MAX_CONTENTS);
        hashes.drain(..surplus);
    }

    /// Revokes trust in the file, or every file below the folder; returns the number of files.
    pub fn revoke(&mut self, path: &Path) -> usize {
        let before = self.files.len();
        self.files.retain(|file, _| !Path::new(file).starts_with(path));
        before - self.files.len()
    }

    /// The trusted files with their trusted contents.
    pub fn list(&self) -> impl Iterator<Item = (&Path, &[String])> {
        self.files.iter().map(|(path, hashes)| (Path::new(path), hashes.as_slice()))
    }

    /// Saves the store atomically.
    pub fn save(&self) -> Result<(), TrustError> {
        let failed = |source| TrustError::Write { path: self.path.clone(), source };
        let saved = TrustFile { version: 1, files: self.files.clone() };
        let text = serde_json::to_vec_pretty(&saved).map_err(|error| failed(error.into()))?;
        files::replace(&self.path, &text, Access::Owner, Durability::Synced).map_err(failed)
    }
}

fn key(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The hash that identifies trusted content: SHA-256.
pub fn content_hash(content: &[u8]) -> String {
    api::sha256_hex(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn trust_is_saved_listed_and_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/trust.json");
        let mut store = TrustStore::load(&path).unwrap();
        store.trust(Path::new("/r/a/opencode.json"), "1");
        store.trust(Path::new("/r/b.md"), "2");
        store.save().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut store = TrustStore::load(&path).unwrap();
        assert!(store.is_trusted(Path::new("/r/b.md"), "2"));
        assert!(!store.is_trusted(Path::new("/r/b.md"), "1"));
        assert_eq!(store.list().count(), 2);
        assert_eq!(store.revoke(Path::new("/r/a")), 1);
        assert_eq!(store.revoke(Path::new("/r/a")), 0);
        assert_eq!(store.list().next().unwrap().0, Path::new("/r/b.md"));
    }

    #[test]
    fn damage_is_an_error_and_trusts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.json");
        for text in ["{", "[]", "{\"version\":2,\"files\":{}}"] {
            std::fs::write(&path, text).unwrap();
            let error = TrustStore::load(&path).unwrap_err();
            assert!(matches!(error, TrustError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn contents_per_file_are_bounded_and_the_oldest_is_dropped() {
        let mut store = TrustStore::default();
        for n in 0..=MAX_CONTENTS {
            store.trust(Path::new("/f"), &n.to_string());
        }
        assert!(!store.is_trusted(Path::new("/f"), "0"));
        assert!(store.is_trusted(Path::new("/f"), "1"));
    }

    proptest! {
        #[test]
        fn other_content_is_not_trusted(content in any::<Vec<u8>>(), other in any::<Vec<u8>>()) {
            let mut store = TrustStore::default();
            store.trust(Path::new("/f"), &content_hash(&content));
            prop_assert!(store.is_trusted(Path::new("/f"), &content_hash(&content)));
            prop_assert!(!store.is_trusted(Path::new("/g"), &content_hash(&content)));
            prop_assert_eq!(store.is_trusted(Path::new("/f"), &content_hash(&other)), content == other);
        }
    }
}
