//! Task links: durable records that tie a call of the `task` tool to the child that works for it, by the call's part
//! id. A link is created with the child and removed with the call's outcome, or for a background task with its report.

use api::{MessageId, PartId, PromptInput, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Batch, Record, Store, StoreError};

/// The record namespace of calls that wait for their child.
const WAITING: &str = "task";
/// The record namespace of background tasks. Separate, because every turn reads it before it ends.
const BACKGROUND: &str = "background";

/// Which child works on a call, and which of its prompts belongs to the call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LinkedTask {
    /// The calling session.
    pub(crate) session: SessionId,
    pub(crate) child: SessionId,
    /// The id of the prompt the child works on. A prompt is accepted once per id.
    pub(crate) prompt: MessageId,
    /// A short description of the work.
    #[serde(default)]
    pub(crate) title: String,
    /// The prompt the child has yet to get. The commit that sends it removes it: while it is set, nothing of the child
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Box<PromptInput>>,
    /// Whether it was cancelled before it started.
    #[serde(default)]
    pub(crate) cancelled: bool,
    /// Whether the calling work is careful; then so is any work its report causes.
    #[serde(default)]
    pub(crate) careful: bool,
    /// Set if the caller does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) background: Option<Background>,
}

/// A task in the background.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Background {
    /// Whether the caller's turn waits for it before ending.
    pub(crate) awaited: bool,
    /// The process that reports its end. If that process is dead, another one takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follower: Option<String>,
}

/// A task link as currently stored.
#[derive(Debug, Clone)]
pub(crate) struct TaskLink {
    /// The part id of the call.
    pub(crate) part: PartId,
    pub(crate) task: LinkedTask,
    version: u64,
}

impl TaskLink {
    fn new(namespace: &str, key: &str, record: Record) -> Option<Self> {
        let task: LinkedTask = serde_json::from_value(record.value).ok()?;
        debug_assert_eq!(namespace, namespace_of(&task));
        Some(Self { part: PartId::parse(key).ok()?, task, version: record.version })
    }

    /// The link of a call.
    pub(crate) fn of_call(store: &Store, part: &PartId) -> Result<Option<Self>, StoreError> {
        for namespace in [WAITING, BACKGROUND] {
            if let Some(record) = store.record(namespace, part.as_str())? {
                return Ok(Self::new(namespace, part.as_str(), record));
            }
        }
        Ok(None)
    }

    /// The links of calls that wait for their child.
    pub(crate) fn waiting(store: &Store) -> Result<Vec<Self>, StoreError> {
        Self::all(store, WAITING)
    }

    /// The links of background tasks.
    pub(crate) fn background(store: &Store) -> Result<Vec<Self>, StoreError> {
        Self::all(store, BACKGROUND)
    }

    fn all(store: &Store, namespace: &str) -> Result<Vec<Self>, StoreError> {
        let records = store.records(namespace)?;
        Ok(records.into_iter().filter_map(|(key, record)| Self::new(namespace, &key, record)).collect())
    }

    /// Replaces the link. The batch fails if the link was changed or removed.
    pub(crate) fn replace(&self, batch: &mut Batch, task: &LinkedTask) {
        let (from, to) = (namespace_of(&self.task), namespace_of(task));
        if from == to {
            batch.record(to, self.part.as_str(), Some(&json!(task)), Some(self.version));
        } else {
            self.remove(batch);
            store(batch, &self.part, task);
        }
    }

    /// Removes the link. The batch fails if the link was changed or removed.
    pub(crate) fn remove(&self, batch: &mut Batch) {
        batch.record(namespace_of(&self.task), self.part.as_str(), None, Some(self.version));
    }
}

/// Stores the link of a call.
pub(crate) fn store(batch: &mut Batch, part: &PartId, task: &LinkedTask) {
    batch.record(namespace_of(task), part.as_str(), Some(&json!(task)), None);
}

/// Removes the link of a call that ends, whatever its current version.
pub(crate) fn remove(batch: &mut Batch, part: &PartId) {
    for namespace in [WAITING, BACKGROUND] {
        batch.record(namespace, part.as_str(), None, None);
    }
}

fn namespace_of(task: &LinkedTask) -> &'static str {
    if task.background.is_some() { BACKGROUND } else { WAITING }
}
