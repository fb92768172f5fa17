//! One writer per file: two edits of the same file in one step must both survive.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// Locks by path. Cheap to clone; clones share the locks.
#[derive(Clone, Default)]
pub(crate) struct FileLocks(Arc<Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>>);

impl FileLocks {
    /// Locks a file.
    pub async fn lock(&self, path: &Path) -> OwnedMutexGuard<()> {
        self.entry(path).lock_owned().await
    }

    /// Locks several files, always in the same order, so that two callers cannot deadlock.
    pub async fn lock_all(&self, paths: impl IntoIterator<Item = PathBuf>) -> Vec<OwnedMutexGuard<()>> {
        let mut paths: Vec<PathBuf> = paths.into_iter().collect();
        paths.sort();
        paths.dedup();
        let mut guards = Vec::with_capacity(paths.len());
        for path in paths {
            guards.push(self.lock(&path).await);
        }
        guards
    }

    fn entry(&self, path: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = map.get(path).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        map.insert(path.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
