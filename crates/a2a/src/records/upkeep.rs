//! What is too old, or too much, is deleted: a bounded amount at a time, the oldest first.

use std::ops::Bound;
use std::time::Duration;

use api::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Batch, Store, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::keys::{self, Stamp};
use super::{Records, complete, from_json, list, log, read, tasks, to_json, write};
use crate::model::Role;

/// How long an ended task is kept.
pub const KEEP_TASKS: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many ended tasks are kept.
pub const MAX_TASKS: u64 = 100_000;
/// How long the events of an ended task are kept, so that streams can be resumed and notifications sent.
pub const KEEP_EVENTS: Duration = Duration::from_secs(60 * 60);
/// How often to look for what is too old.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);
/// The most records with events that are deleted at a time.
const MAX_CHUNKS: usize = 256;

/// What is known of all ended tasks together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Totals {
    /// How many there are.
    pub(super) count: u64,
    /// The newest one.
    pub(super) stamp: Stamp,
    /// The key of the last one whose events are deleted.
    pub(super) swept: String,
}

impl Totals {
    pub(super) fn load(store: &Store) -> Result<Self, StoreError> {
        Ok(read(store, keys::META, keys::TOTALS)?.unwrap_or_default())
    }

    /// These with another task.
    pub(super) fn with(&self, stamp: Stamp) -> Self {
        Self { count: self.count + 1, stamp, swept: self.swept.clone() }
    }
}

/// The oldest ended task after a key.
fn first_after(store: &Store, key: &str) -> Result<Option<(String, Stamp, String)>, StoreError> {
    let range = (Bound::Excluded(key), Bound::Unbounded);
    let page = store.records_page(keys::ENDED, range, 1, api::now())?;
    Ok(page.records.into_iter().next().and_then(|(key, _)| {
        let (stamp, task) = keys::parse_ended(&key)?;
        let task = task.to_owned();
        Some((key, stamp, task))
    }))
}

/// Deletes events of a task. Returns whether there are more.
fn delete_events(store: &Store, batch: &mut Batch, task: &str) -> Result<bool, StoreError> {
    let page = log::page(store, task, 0, MAX_CHUNKS)?;
    for (key, _) in &page.records {
        batch.record(keys::EVENT, key, None, None);
    }
    Ok(page.has_more)
}

fn before(now: Timestamp, age: Duration) -> Stamp {
    Stamp::of(now.saturating_sub(Timestamp::try_from(age.as_millis()).unwrap_or(Timestamp::MAX)))
}

impl Records {
    /// Deletes what is too old or too much every now and then, until the service closes. Once per service.
    pub fn start_upkeep(&self, tracker: &TaskTracker, closing: &CancellationToken) {
        let (records, closing) = (self.clone(), closing.clone());
        tracker.spawn(async move {
            let upkeep = async {
                loop {
                    match records.upkeep(api::now()).await {
                        Ok(true) => tokio::task::yield_now().await,
                        Ok(false) => tokio::time::sleep(UPKEEP_INTERVAL).await,
                        Err(error) => {
                            tracing::warn!(%error, "old tasks are not deleted yet");
                            tokio::time::sleep(UPKEEP_INTERVAL).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = closing.cancelled() => {}
                () = upkeep => {}
            }
        });
    }

    /// Deletes what is too old or too much, a bounded amount at a time. Returns whether there is more to do.
    pub async fn upkeep(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.upkeep_to(now, MAX_TASKS).await
    }

    pub(super) async fn upkeep_to(&self, now: Timestamp, max_tasks: u64) -> Result<bool, StoreError> {
        let records = self.clone();
        complete(async move { Ok(records.sweep(now).await? || records.delete_oldest(now, max_tasks).await?) }).await
    }

    /// Deletes events of the oldest ended task that still has some.
    async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        let mut totals = self.inner.totals.write().await;
        let store = &self.inner.store;
        let Some((key, stamp, task)) = first_after(store, &totals.swept)? else { return Ok(false) };
        if stamp >= before(now, KEEP_EVENTS) {
            return Ok(false);
        }
        let mut batch = self.batch(false);
        let has_more = delete_events(store, &mut batch, &task)?;
        let mut swept = totals.clone();
        if !has_more {
            swept.swept = key;
            batch.record(keys::META, keys::TOTALS, Some(&to_json(&swept)?), None);
        }
        store.commit(batch).await?;
        *totals = swept;
        Ok(true)
    }

    /// Deletes the oldest task if it is too old or one too many.
    async fn delete_oldest(&self, now: Timestamp, max_tasks: u64) -> Result<bool, StoreError> {
        let mut totals = self.inner.totals.write().await;
        let store = &self.inner.store;
        let Some((key, stamp, task)) = first_after(store, "")? else { return Ok(false) };
        if stamp >= before(now, KEEP_TASKS) && totals.count <= max_tasks {
            return Ok(false);
        }
        let mut batch = self.batch(false);
        if delete_events(store, &mut batch, &task)? {
            store.commit(batch).await?;
            return Ok(true);
        }
        batch.record(keys::ENDED, &key, None, None);
        self.delete_task(&mut batch, stamp, &task)?;
        let mut left = totals.clone();
        left.count = left.count.saturating_sub(1);
        if left.swept < key {
            left.swept = key;
        }
        batch.record(keys::META, keys::TOTALS, Some(&to_json(&left)?), None);
        store.commit(batch).await?;
        *totals = left;
        self.inner.followed.remove(&task);
        Ok(true)
    }

    fn delete_task(&self, batch: &mut Batch, stamp: Stamp, task: &str) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let Some(row) = tasks::row(store, task)? else { return Ok(()) };
        let content = tasks::content(store, task)?;
        let from_client = content.history.iter().filter(|message| message.role == Role::User);
        let ids = from_client.map(|message| message.message_id.as_str()).chain([row.message_id.as_str()]);
        for id in ids {
            let key = keys::message(&row.identity, id);
            let known: Option<super::KnownMessage> = read(store, keys::MESSAGE, &key)?;
            if known.is_some_and(|known| known.task == task) {
                batch.record(keys::MESSAGE, &key, None, None);
            }
        }
        for lane in write::lanes(&row.identity, &row.context_id, row.state()) {
            let key = lane.key(stamp, task);
            let Some(record) = store.record(keys::INDEX, &key)? else { continue };
            let number: u64 = from_json(keys::INDEX, &key, record.value)?;
            batch.record(keys::INDEX, &key, None, None);
            // A lane without tasks begins again at one.
            let left = (list::last_number(store, &lane)? != number).then(|| number.into());
            batch.record(keys::DELETED, lane.name(), left.as_ref(), None);
        }
        for push in self.push_rows(task, None, super::pushes::MAX_PUSH_CONFIGS)?.0 {
            let id = push.config.id.as_deref().unwrap_or(task);
            batch.record(keys::PUSH, &keys::of_task(task, id), None, None);
            batch.record(keys::DELIVERY, &keys::of_task(task, id), None, None);
        }
        batch.record(keys::CONTENT, task, None, None);
        batch.record(keys::TASK, task, None, None);
        Ok(())
    }
}
