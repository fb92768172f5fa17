//! What binds a call of the `task` tool to the child that works for it: a durable record, by the call's part. It is made
//! with the child and goes with the call's outcome; that of a task in the background goes when its report is delivered.

use api::{MessageId, PartId, PromptInput, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Batch, Record, Store, StoreError};

/// Where the bonds of calls are that wait for their child.
const WAITING: &str = "task";
/// Where those are whose child works in the background. Apart, because every turn looks here before it ends.
const BACKGROUND: &str = "background";

/// Which child works on a call, and which of its prompts is the call's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LinkedTask {
    /// The session that calls.
    pub(crate) session: SessionId,
    pub(crate) child: SessionId,
    /// The id of the prompt that the child works on. A prompt is accepted once per id.
    pub(crate) prompt: MessageId,
    /// The work in short.
    #[serde(default)]
    pub(crate) title: String,
    /// What the child is still to be sent. It goes in the commit that sends it: while it is here nothing of the child runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Box<PromptInput>>,
    /// It was cancelled before it began.
    #[serde(default)]
    pub(crate) cancelled: bool,
    /// Whether the work that called is careful; then so is what its result leads to.
    #[serde(default)]
    pub(crate) careful: bool,
    /// Set if the caller goes on without waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) background: Option<Background>,
}

/// A task in the background.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Background {
    /// Whether the caller's turn does not end before.
    pub(crate) awaited: bool,
    /// The process that reports its end. If it is dead, somebody else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follower: Option<String>,
}

/// A bond as it is stored at this moment.
#[derive(Debug, Clone)]
pub(crate) struct TaskLink {
    /// The call's part.
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

    /// The bond of a call.
    pub(crate) fn of_call(store: &Store, part: &PartId) -> Result<Option<Self>, StoreError> {
        for namespace in [WAITING, BACKGROUND] {
            if let Some(record) = store.record(namespace, part.as_str())? {
                return Ok(Self::new(namespace, part.as_str(), record));
            }
        }
        Ok(None)
    }

    /// The bonds of calls that wait for their child.
    pub(crate) fn waiting(store: &Store) -> Result<Vec<Self>, StoreError> {
        Self::all(store, WAITING)
    }

    /// The bonds of tasks in the background.
    pub(crate) fn background(store: &Store) -> Result<Vec<Self>, StoreError> {
        Self::all(store, BACKGROUND)
    }

    fn all(store: &Store, namespace: &str) -> Result<Vec<Self>, StoreError> {
        let records = store.records(namespace)?;
        Ok(records.into_iter().filter_map(|(key, record)| Self::new(namespace, &key, record)).collect())
    }

    /// Writes another one in its place; the batch fails if it was changed or is gone.
    pub(crate) fn replace(&self, batch: &mut Batch, task: &LinkedTask) {
        let (from, to) = (namespace_of(&self.task), namespace_of(task));
        if from == to {
            batch.record(to, self.part.as_str(), Some(&json!(task)), Some(self.version));
        } else {
            self.remove(batch);
            store(batch, &self.part, task);
        }
    }

    /// Removes it; the batch fails if it was changed or is gone.
    pub(crate) fn remove(&self, batch: &mut Batch) {
        batch.record(namespace_of(&self.task), self.part.as_str(), None, Some(self.version));
    }
}

/// Binds a call.
pub(crate) fn store(batch: &mut Batch, part: &PartId, task: &LinkedTask) {
    batch.record(namespace_of(task), part.as_str(), Some(&json!(task)), None);
}

/// Unbinds a call that ends, whatever became of its bond meanwhile.
pub(crate) fn remove(batch: &mut Batch, part: &PartId) {
    for namespace in [WAITING, BACKGROUND] {
        batch.record(namespace, part.as_str(), None, None);
    }
}

fn namespace_of(task: &LinkedTask) -> &'static str {
    if task.background.is_some() { BACKGROUND } else { WAITING }
}
