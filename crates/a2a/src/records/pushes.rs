//! Push configurations, and how far their notifications have come. The queue of a configuration is the log of its task's
//! events: what was not sent comes after a number, so that nothing is written twice and nothing is lost over a restart.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::{Batch, Store, StoreError};
use tokio::sync::Notify;

use super::{Delivery, PushRow, Records, complete, from_json, keys, read, to_json};

/// The most push configurations of a task.
pub const MAX_PUSH_CONFIGS: usize = 32;
/// The most tasks with notifications to send.
const MAX_FOLLOWED: usize = 10_000;
/// How many deliveries are read at a time at the start.
const PAGE: usize = 256;

/// The tasks with push configurations that have something to send, or will have.
#[derive(Default)]
pub(super) struct Followed {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Default)]
struct State {
    tasks: HashSet<String>,
    woken: HashSet<String>,
}

impl Followed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, task: &str) {
        self.state().tasks.insert(task.to_owned());
        self.wake(task);
    }

    pub(super) fn remove(&self, task: &str) {
        let mut state = self.state();
        state.tasks.remove(task);
        state.woken.remove(task);
    }

    /// Says that a task has new events.
    pub(super) fn wake(&self, task: &str) {
        let mut state = self.state();
        if state.tasks.contains(task) && state.woken.insert(task.to_owned()) {
            self.woken.notify_one();
        }
    }
}

/// The outcome of storing a push configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutPush {
    /// It is stored.
    Stored,
    /// The task has as many as it may have.
    TooMany,
}

impl Records {
    /// Whether another task may get a push configuration.
    pub fn can_follow(&self) -> bool {
        self.inner.followed.state().tasks.len() < MAX_FOLLOWED
    }

    /// Creates or replaces a push configuration. Notifications begin with the next event; those of one that is replaced
    /// go on where they were.
    pub async fn put_push(&self, push: PushRow) -> Result<PutPush, StoreError> {
        let records = self.clone();
        let put = async move {
            let (task, id) = (&push.config.task_id, config_id(&push));
            let is_new = records.push_row(task, id)?.is_none();
            if is_new && records.push_rows(task, None, MAX_PUSH_CONFIGS)?.0.len() >= MAX_PUSH_CONFIGS {
                return Ok(PutPush::TooMany);
            }
            let mut batch = records.batch(false);
            let last_seq = records.inner.open.get(task).map(|task| task.last_seq);
            records.add_push(&mut batch, &push, last_seq)?;
            records.inner.store.commit(batch).await?;
            if last_seq.is_some() {
                records.inner.followed.add(task);
            }
            Ok(PutPush::Stored)
        };
        complete(put).await
    }

    /// Adds a configuration to a batch. `after` is the last event that its webhook does not get; `None` if the task has
    /// ended, so that none follows.
    pub(super) fn add_push(&self, batch: &mut Batch, push: &PushRow, after: Option<u64>) -> Result<(), StoreError> {
        let (task, id) = (&push.config.task_id, config_id(push));
        let key = keys::of_task(task, id);
        batch.record(keys::PUSH, &key, Some(&to_json(push)?), None);
        if let Some(sent) = after
            && self.delivery(task, id)?.is_none()
        {
            let delivery = Delivery { task: task.clone(), config: id.to_owned(), sent, ..Delivery::default() };
            batch.record(keys::DELIVERY, &key, Some(&to_json(&delivery)?), None);
        }
        Ok(())
    }

    /// A push configuration.
    pub fn push_row(&self, task: &str, id: &str) -> Result<Option<PushRow>, StoreError> {
        read(&self.inner.store, keys::PUSH, &keys::of_task(task, id))
    }

    /// The push configurations of a task after one, by id, and whether there are more.
    pub fn push_rows(&self, task: &str, after: Option<&str>, limit: usize) -> Result<(Vec<PushRow>, bool), StoreError> {
        let (first, end) = keys::all_of_task(task);
        let from = after.map_or(first, |id| keys::of_task(task, id));
        let range = (Bound::Excluded(from.as_str()), Bound::Excluded(end.as_str()));
        let page = self.inner.store.records_page(keys::PUSH, range, limit, api::now())?;
        let rows = page.records.into_iter().map(|(key, record)| from_json(keys::PUSH, &key, record.value));
        Ok((rows.collect::<Result<_, _>>()?, page.has_more))
    }

    /// Deletes a push configuration. Returns whether there was one.
    pub async fn delete_push(&self, task: &str, id: &str) -> Result<bool, StoreError> {
        let (records, task, id) = (self.clone(), task.to_owned(), id.to_owned());
        let delete = async move {
            let existed = records.push_row(&task, &id)?.is_some();
            let mut batch = records.batch(false);
            batch.record(keys::PUSH, &keys::of_task(&task, &id), None, None);
            batch.record(keys::DELIVERY, &keys::of_task(&task, &id), None, None);
            records.inner.store.commit(batch).await?;
            records.unfollow(&task)?;
            Ok(existed)
        };
        complete(delete).await
    }

    /// How far the notifications of a configuration have come; `None` if there is none to send any more.
    pub fn delivery(&self, task: &str, config: &str) -> Result<Option<Delivery>, StoreError> {
        let key = keys::of_task(task, config);
        let Some(record) = self.inner.store.record(keys::DELIVERY, &key)? else { return Ok(None) };
        let mut delivery: Delivery = from_json(keys::DELIVERY, &key, record.value)?;
        delivery.version = record.version;
        Ok(Some(delivery))
    }

    /// The deliveries of a task.
    pub fn deliveries(&self, task: &str) -> Result<Vec<Delivery>, StoreError> {
        let (first, end) = keys::all_of_task(task);
        let range = (Bound::Excluded(first.as_str()), Bound::Excluded(end.as_str()));
        let page = self.inner.store.records_page(keys::DELIVERY, range, MAX_PUSH_CONFIGS, api::now())?;
        let deliveries = page.records.into_iter().map(|(key, record)| {
            let delivery: Delivery = from_json(keys::DELIVERY, &key, record.value)?;
            Ok(Delivery { version: record.version, ..delivery })
        });
        deliveries.collect()
    }

    /// Stores how far notifications have come. Returns false if the configuration was deleted or replaced meanwhile.
    pub async fn set_delivery(&self, delivery: &mut Delivery) -> Result<bool, StoreError> {
        let key = keys::of_task(&delivery.task, &delivery.config);
        let mut batch = self.batch(false);
        batch.record(keys::DELIVERY, &key, Some(&to_json(delivery)?), Some(delivery.version));
        match self.inner.store.commit(batch).await {
            Ok(outcome) => {
                delivery.version = outcome.versions.first().copied().unwrap_or(0);
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The number of the last event of a task; `None` if it has ended.
    pub fn last_open_event(&self, task: &str) -> Option<u64> {
        self.inner.open.get(task).map(|task| task.last_seq)
    }

    /// Says that nothing more is to be sent to a configuration.
    pub async fn end_delivery(&self, delivery: &Delivery) -> Result<(), StoreError> {
        let (records, delivery) = (self.clone(), delivery.clone());
        let end = async move {
            let key = keys::of_task(&delivery.task, &delivery.config);
            let mut batch = records.batch(false);
            batch.record(keys::DELIVERY, &key, None, Some(delivery.version));
            match records.inner.store.commit(batch).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => records.unfollow(&delivery.task),
                Err(error) => Err(error),
            }
        };
        complete(end).await
    }

    /// Follows a task no more if nothing is to be sent about it.
    fn unfollow(&self, task: &str) -> Result<(), StoreError> {
        // Before the look: a configuration that is added meanwhile adds the task again.
        self.inner.followed.remove(task);
        if !self.deliveries(task)?.is_empty() {
            self.inner.followed.add(task);
        }
        Ok(())
    }

    /// Waits until tasks with push configurations have new events, and returns those tasks. For one caller. Cancel safe.
    pub async fn woken_tasks(&self) -> Vec<String> {
        let followed = &self.inner.followed;
        loop {
            let woken = std::mem::take(&mut followed.state().woken);
            if !woken.is_empty() {
                return woken.into_iter().collect();
            }
            followed.woken.notified().await;
        }
    }

    /// Reads which tasks have something to send.
    pub(super) async fn load_deliveries(&self) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let read = move |store: &Store| {
                let range = (Bound::Excluded(from.as_str()), Bound::Unbounded);
                store.records_page(keys::DELIVERY, range, PAGE, api::now())
            };
            let page = self.inner.store.long_read(read).await?;
            for (key, record) in page.records {
                let delivery: Delivery = from_json(keys::DELIVERY, &key, record.value)?;
                self.inner.followed.add(&delivery.task);
                after = key;
            }
            if !page.has_more {
                return Ok(());
            }
        }
    }
}

/// The id of a configuration; by default that of its task.
fn config_id(push: &PushRow) -> &str {
    push.config.id.as_deref().unwrap_or(&push.config.task_id)
}
