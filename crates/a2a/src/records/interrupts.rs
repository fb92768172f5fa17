//! Interrupts, in memory and on disk: clients find and answer them after a restart too.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Batch, Store, StoreError};

use super::{Interrupt, InterruptKind, Records, from_json, keys, to_json};

/// The most interrupts. Beyond them, those are forgotten that expire first.
const MAX_INTERRUPTS: usize = 4096;
/// How many are read at a time at the start.
const PAGE: usize = 256;

/// An interrupt, and how long it is remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredInterrupt {
    interrupt: Interrupt,
    /// When it is forgotten. Between its expiry and this, an answer is told that it comes too late.
    until: Timestamp,
}

impl StoredInterrupt {
    fn new(interrupt: Interrupt, tombstone: Duration) -> Self {
        let tombstone = Timestamp::try_from(tombstone.as_millis()).unwrap_or(Timestamp::MAX);
        Self { until: interrupt.expires_at.saturating_add(tombstone), interrupt }
    }
}

/// The interrupts that were not answered, by the id of the request.
#[derive(Default)]
pub(super) struct OpenInterrupts {
    interrupts: Mutex<HashMap<String, StoredInterrupt>>,
}

impl OpenInterrupts {
    fn state(&self) -> MutexGuard<'_, HashMap<String, StoredInterrupt>> {
        self.interrupts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, interrupt: Interrupt, tombstone: Duration) {
        self.insert_stored(StoredInterrupt::new(interrupt, tombstone));
    }

    fn insert_stored(&self, stored: StoredInterrupt) {
        let mut state = self.state();
        state.insert(stored.interrupt.request_id.clone(), stored);
        if state.len() > MAX_INTERRUPTS {
            let now = api::now();
            state.retain(|_, stored| stored.until > now);
        }
        if state.len() > MAX_INTERRUPTS {
            let first = state.values().min_by_key(|stored| stored.interrupt.expires_at);
            if let Some(id) = first.map(|stored| stored.interrupt.request_id.clone()) {
                state.remove(&id);
            }
        }
    }

    pub(super) fn remove(&self, request_id: &str) {
        self.state().remove(request_id);
    }

    fn find(&self, filter: impl Fn(&StoredInterrupt) -> bool) -> Vec<Interrupt> {
        let state = self.state();
        let found = state.values().filter(|stored| filter(stored));
        let mut found: Vec<Interrupt> = found.map(|stored| stored.interrupt.clone()).collect();
        found.sort_by(|a, b| (a.expires_at, &a.request_id).cmp(&(b.expires_at, &b.request_id)));
        found
    }
}

impl Records {
    /// An interrupt that is open, or expired a short while ago: compare [`Interrupt::expires_at`].
    pub fn interrupt(&self, request_id: &str, now: Timestamp) -> Option<Interrupt> {
        let stored = self.inner.interrupts.state().get(request_id).cloned();
        stored.filter(|stored| stored.until > now).map(|stored| stored.interrupt)
    }

    /// The interrupts that an identity can answer, oldest first.
    pub fn interrupts(&self, identity: &str, kind: InterruptKind, now: Timestamp) -> Vec<Interrupt> {
        self.inner.interrupts.find(|StoredInterrupt { interrupt, .. }| {
            interrupt.expires_at > now && interrupt.identity == identity && interrupt.kind == kind
        })
    }

    /// The interrupts of a task that are open, or expired a short while ago, oldest first.
    pub fn task_interrupts(&self, task: &str, now: Timestamp) -> Vec<Interrupt> {
        self.inner.interrupts.find(|stored| stored.until > now && stored.interrupt.task_id == task)
    }

    pub(super) fn add_interrupt(
        &self,
        batch: &mut Batch,
        interrupt: &Interrupt,
        tombstone: Duration,
    ) -> Result<(), StoreError> {
        let stored = StoredInterrupt::new(interrupt.clone(), tombstone);
        let (key, value) = (&interrupt.request_id, to_json(&stored)?);
        batch.record_until(keys::INTERRUPT, key, &value, None, stored.until);
        Ok(())
    }

    /// Reads the interrupts of an earlier run.
    pub(super) async fn load_interrupts(&self) -> Result<(), StoreError> {
        let mut after = String::new();
        for _ in 0..MAX_INTERRUPTS.div_ceil(PAGE) {
            let from = after.clone();
            let read = move |store: &Store| {
                let range = (Bound::Excluded(from.as_str()), Bound::Unbounded);
                store.records_page(keys::INTERRUPT, range, PAGE, api::now())
            };
            let page = self.inner.store.long_read(read).await?;
            for (key, record) in page.records {
                self.inner.interrupts.insert_stored(from_json(keys::INTERRUPT, &key, record.value)?);
                after = key;
            }
            if !page.has_more {
                break;
            }
        }
        Ok(())
    }
}
