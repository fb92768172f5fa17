//! Tasks and their messages: inserting and reading them.

use store::{Store, StoreError};

use super::keys::{self, Stamp};
use super::open_tasks::OpenTask;
use super::{
    Inserted, KnownMessage, MAX_RETRIES, NewTask, OpenWork, Records, TaskContent, TaskRow, UnfinishedTask, complete,
    from_json, read, to_json,
};

/// How many tasks are read at a time at the start.
const PAGE: usize = 100;

/// The row of a task.
pub(super) fn row(store: &Store, task: &str) -> Result<Option<TaskRow>, StoreError> {
    let Some(record) = store.record(keys::TASK, task)? else { return Ok(None) };
    let mut row: TaskRow = from_json(keys::TASK, task, record.value)?;
    row.version = record.version;
    Ok(Some(row))
}

/// The messages of a task, and if it has ended, what it made.
pub(super) fn content(store: &Store, task: &str) -> Result<TaskContent, StoreError> {
    if let Some(content) = read(store, keys::CONTENT, task)? {
        return Ok(content);
    }
    if let Some(OpenWork { history, .. }) = read(store, keys::OPEN, task)? {
        return Ok(TaskContent { history, artifacts: Vec::new() });
    }
    // It may have ended between the two reads.
    Ok(read(store, keys::CONTENT, task)?.unwrap_or_default())
}

impl Records {
    /// Inserts a task, its message, the binding of its context to its session, if it has one, and its push configuration.
    /// On disk when this returns.
    pub async fn insert(&self, task: NewTask) -> Result<Inserted, StoreError> {
        let records = self.clone();
        complete(async move { records.insert_now(task).await }).await
    }

    async fn insert_now(&self, task: NewTask) -> Result<Inserted, StoreError> {
        let NewTask { mut row, work, push, place } = task;
        let key = keys::message(&row.identity, &row.message_id);
        let known = KnownMessage { task: row.id.clone(), fingerprint: row.fingerprint.clone() };
        row.accepted = self.inner.open.accept(Stamp::of(row.created));
        for _ in 0..MAX_RETRIES {
            let before = self.inner.store.record(keys::MESSAGE, &key)?;
            let version = before.as_ref().map_or(0, |record| record.version);
            if let Some(record) = before {
                let known: KnownMessage = from_json(keys::MESSAGE, &key, record.value)?;
                if self.inner.store.record(keys::TASK, &known.task)?.is_some() {
                    return Ok(Inserted::Known(known));
                }
            }
            let mut batch = self.batch(true);
            // First, because the versions come back in this order.
            batch.record(keys::TASK, &row.id, Some(&to_json(&row)?), Some(0));
            batch.record(keys::OPEN, &row.id, Some(&to_json(&work)?), None);
            batch.record(keys::MESSAGE, &key, Some(&to_json(&known)?), Some(version));
            if let Some(session) = &row.session_id {
                self.bind(&mut batch, &row.identity, &row.context_id, place.as_deref(), session)?;
            }
            if let Some(push) = &push {
                self.add_push(&mut batch, push, Some(0))?;
            }
            match self.inner.store.commit(batch).await {
                Ok(outcome) => {
                    row.version = outcome.versions.first().copied().unwrap_or(0);
                    self.inner.open.insert(&row.id, OpenTask::of(&row));
                    if push.is_some() {
                        self.inner.followed.add(&row.id);
                    }
                    return Ok(Inserted::New(Box::new(row)));
                }
                // The same message came twice at the same time.
                Err(StoreError::Conflict { namespace, .. }) if namespace == keys::MESSAGE => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Overloaded("writes of one message"))
    }

    /// The row of a task.
    pub fn row(&self, task: &str) -> Result<Option<TaskRow>, StoreError> {
        row(&self.inner.store, task)
    }

    /// The messages of a task, and if it has ended, what it made.
    pub async fn content(&self, task: &str) -> Result<TaskContent, StoreError> {
        let task = task.to_owned();
        self.inner.store.long_read(move |store| content(store, &task)).await
    }

    /// A message of an owner that was taken before. Forgotten with its task.
    pub fn message(&self, identity: &str, message_id: &str) -> Result<Option<KnownMessage>, StoreError> {
        let store = &self.inner.store;
        let known: Option<KnownMessage> = read(store, keys::MESSAGE, &keys::message(identity, message_id))?;
        let Some(known) = known else { return Ok(None) };
        Ok(store.record(keys::TASK, &known.task)?.map(|_| known))
    }

    /// Marks that the cancellation of a task was asked for. On disk when this returns; the row is not changed.
    pub async fn mark_canceled(&self, task: &str) -> Result<(), StoreError> {
        let (records, task) = (self.clone(), task.to_owned());
        let mark = async move {
            // Marked before it is written, so that the end of the task removes the mark whatever comes first.
            let Some(known) = records.inner.open.get(&task) else { return Ok(()) };
            records.inner.open.change(&task, |task| task.cancel_requested = true);
            if known.cancel_requested && records.inner.store.record(keys::CANCELED, &task)?.is_some() {
                return Ok(());
            }
            let mut batch = records.batch(true);
            batch.record(keys::CANCELED, &task, Some(&true.into()), None);
            records.inner.store.commit(batch).await?;
            if !records.inner.open.contains(&task) {
                let mut batch = records.batch(false);
                batch.record(keys::CANCELED, &task, None, None);
                records.inner.store.commit(batch).await?;
            }
            Ok(())
        };
        complete(mark).await
    }

    /// Whether the cancellation of a task that has not ended was asked for.
    pub fn is_cancel_requested(&self, task: &str) -> bool {
        self.inner.open.get(task).is_some_and(|task| task.cancel_requested)
    }

    /// The tasks that have not ended, in the order in which they were accepted.
    pub fn unfinished(&self) -> Vec<String> {
        self.inner.open.ids()
    }

    /// A task that has not ended, with all that is needed to go on.
    pub async fn load_unfinished(&self, task: &str) -> Result<Option<UnfinishedTask>, StoreError> {
        let id = task.to_owned();
        let read = move |store: &Store| Ok::<_, StoreError>((row(store, &id)?, read(store, keys::OPEN, &id)?));
        let (Some(mut row), Some(work)) = self.inner.store.long_read(read).await? else { return Ok(None) };
        let Some(open) = self.inner.open.get(task) else { return Ok(None) };
        row.last_seq = open.last_seq.max(row.last_seq);
        Ok(Some(UnfinishedTask { row, work, cancel_requested: open.cancel_requested }))
    }

    /// Reads which tasks have not ended.
    pub(super) async fn load_open(&self) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let read = move |store: &Store| {
                let range = (std::ops::Bound::Excluded(from.as_str()), std::ops::Bound::Unbounded);
                let page = store.records_page(keys::OPEN, range, PAGE, api::now())?;
                let last = page.records.last().map(|(key, _)| key.clone()).filter(|_| page.has_more);
                let mut tasks = Vec::new();
                for (id, _) in page.records {
                    let Some(row) = row(store, &id)? else { continue };
                    let cancel_requested = store.record(keys::CANCELED, &id)?.is_some();
                    tasks.push((OpenTask { cancel_requested, ..OpenTask::of(&row) }, id));
                }
                Ok::<_, StoreError>((tasks, last))
            };
            let (tasks, last) = self.inner.store.long_read(read).await?;
            for (mut task, id) in tasks {
                // Events alone are written without the row.
                task.last_seq = self.last_event(&id, task.last_seq).await?;
                self.inner.open.insert(&id, task);
            }
            let Some(last) = last else { return Ok(()) };
            after = last;
        }
    }
}
