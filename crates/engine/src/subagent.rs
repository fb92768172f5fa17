//! Sessions that work for another session. `task` describes the tool to the model, `delegate` runs a call of it in a
//! child session, and [`store::TaskLink`] is the durable row that ties the two together. Nothing in this room calls a model:
//! a child is an ordinary session with a turn of its own.

pub(crate) mod background;
pub(crate) mod control;
pub(crate) mod delegate;
pub(crate) mod subtask;
pub(crate) mod task;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use api::{PartId, SessionId};
use tokio::sync::{MutexGuard, Semaphore};

use crate::lock;

/// What this process keeps of its subagents.
#[derive(Default)]
pub(crate) struct Subagents {
    /// Held while a subagent is counted and created, so that parallel calls cannot exceed the limit.
    spawning: tokio::sync::Mutex<()>,
    /// The background tasks this process follows, by the part id of their call.
    followed: Mutex<HashSet<PartId>>,
    /// Limits how many children of a session work concurrently.
    slots: Mutex<HashMap<SessionId, Weak<Semaphore>>>,
}

impl Subagents {
    /// Waits until nobody else in this process counts or creates subagents.
    pub(crate) async fn lock_spawning(&self) -> MutexGuard<'_, ()> {
        self.spawning.lock().await
    }

    /// The semaphore that limits how many children of a session work concurrently, in the background or not.
    pub(crate) fn slots(&self, session: &SessionId, max_concurrent: usize) -> Arc<Semaphore> {
        let mut slots = lock(&self.slots);
        if let Some(known) = slots.get(session).and_then(Weak::upgrade) {
            return known;
        }
        slots.retain(|_, slots| slots.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(max_concurrent));
        slots.insert(session.clone(), Arc::downgrade(&semaphore));
        semaphore
    }

    /// Records that a background task is followed. Returns false if it already was.
    fn begin_following(&self, part: &PartId) -> bool {
        lock(&self.followed).insert(part.clone())
    }

    /// Whether a background task is followed here.
    pub(crate) fn is_following(&self, part: &PartId) -> bool {
        lock(&self.followed).contains(part)
    }

    fn end_following(&self, part: &PartId) {
        lock(&self.followed).remove(part);
    }
}
