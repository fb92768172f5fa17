//! The events of tasks. Those of one commit are one record, which is named by the number of its last event.

use std::ops::Bound;
use std::sync::Arc;

use store::{Batch, RecordPage, Store, StoreError};

use super::{Records, from_json, keys, to_json};
use crate::event::NumberedEvent;

/// The most events in a record, so that what is read for a page is bounded.
const CHUNK: usize = 64;
/// How many records are read at a time.
const PAGE: usize = 32;

/// Adds events to a batch. A number is never written twice.
pub(super) fn append(batch: &mut Batch, task: &str, events: &[Arc<NumberedEvent>]) -> Result<(), StoreError> {
    for chunk in events.chunks(CHUNK) {
        let Some(last) = chunk.last() else { continue };
        let events: Vec<&NumberedEvent> = chunk.iter().map(AsRef::as_ref).collect();
        batch.record(keys::EVENT, &keys::event(task, last.seq), Some(&to_json(&events)?), Some(0));
    }
    Ok(())
}

/// A page of the records with events after a number.
pub(super) fn page(store: &Store, task: &str, after: u64, limit: usize) -> Result<RecordPage, StoreError> {
    let (from, (_, end)) = (keys::event(task, after), keys::all_of_task(task));
    let range = (Bound::Excluded(from.as_str()), Bound::Excluded(end.as_str()));
    store.records_page(keys::EVENT, range, limit, api::now())
}

/// The events after a number.
fn read(store: &Store, task: &str, mut after: u64, limit: usize) -> Result<Vec<NumberedEvent>, StoreError> {
    let mut events: Vec<NumberedEvent> = Vec::new();
    while events.len() < limit {
        let page = page(store, task, after, PAGE.min(limit - events.len()))?;
        let first = after;
        for (key, record) in page.records {
            after = keys::parse_event(&key).unwrap_or(after);
            let chunk: Vec<NumberedEvent> = from_json(keys::EVENT, &key, record.value)?;
            events.extend(chunk.into_iter().filter(|event| event.seq > first));
        }
        if !page.has_more {
            break;
        }
    }
    events.truncate(limit);
    Ok(events)
}

impl Records {
    /// The events of a task after a number, oldest first. Those of an ended task are kept for an hour.
    pub async fn events(&self, task: &str, after: u64, limit: usize) -> Result<Vec<NumberedEvent>, StoreError> {
        let task = task.to_owned();
        self.inner.store.long_read(move |store| read(store, &task, after, limit)).await
    }

    /// The number of the last event of a task in the log, at least `known`.
    pub(super) async fn last_event(&self, task: &str, known: u64) -> Result<u64, StoreError> {
        let task = task.to_owned();
        let mut last = known;
        loop {
            let task = task.clone();
            let page = self.inner.store.long_read(move |store| page(store, &task, last, PAGE)).await?;
            last = page.records.last().and_then(|(key, _)| keys::parse_event(key)).unwrap_or(last);
            if !page.has_more {
                return Ok(last);
            }
        }
    }
}
