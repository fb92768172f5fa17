//! Messages with the same id, and first messages of the same context, are taken one after another.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use tokio::sync::{Mutex, MutexGuard};

use crate::Principal;

/// The locks of messages and contexts.
pub(in crate::service) struct Locks {
    messages: Vec<Mutex<()>>,
    contexts: Vec<Mutex<()>>,
}

impl Default for Locks {
    fn default() -> Self {
        /// Two that differ rarely wait for each other.
        const LOCKS: usize = 64;
        let locks = || (0..LOCKS).map(|_| Mutex::new(())).collect();
        Self { messages: locks(), contexts: locks() }
    }
}

impl Locks {
    /// Waits for other messages of the caller with the same id.
    pub(super) async fn message(&self, who: &Principal, id: &str) -> Option<MutexGuard<'_, ()>> {
        lock(&self.messages, who, id).await
    }

    /// Waits for other messages of the caller that need a session for the same context.
    pub(in crate::service) async fn context(&self, who: &Principal, id: Option<&str>) -> Option<MutexGuard<'_, ()>> {
        match id {
            Some(id) => lock(&self.contexts, who, id).await,
            None => None,
        }
    }
}

async fn lock<'a>(locks: &'a [Mutex<()>], who: &Principal, id: &str) -> Option<MutexGuard<'a, ()>> {
    let mut hasher = DefaultHasher::new();
    (who.identity.as_str(), id).hash(&mut hasher);
    let index = usize::try_from(hasher.finish()).unwrap_or_default() % locks.len().max(1);
    match locks.get(index) {
        Some(lock) => Some(lock.lock().await),
        None => None,
    }
}
