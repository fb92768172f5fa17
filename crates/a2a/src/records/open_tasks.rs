//! The tasks that have not ended, in memory: few, and the only ones that change. Ended tasks are in the store's index.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::keys::Stamp;
use super::rows::TaskRow;
use crate::model::TaskState;

/// What lists and writers need to know of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenTask {
    pub(super) identity: String,
    pub(super) context: String,
    pub(super) state: TaskState,
    pub(super) stamp: Stamp,
    pub(super) accepted: u64,
    /// The number of the last event in the log.
    pub(super) last_seq: u64,
    pub(super) cancel_requested: bool,
}

impl OpenTask {
    pub(super) fn of(row: &TaskRow) -> Self {
        Self {
            identity: row.identity.clone(),
            context: row.context_id.clone(),
            state: row.state(),
            stamp: Stamp::of(row.status.timestamp),
            accepted: row.accepted,
            last_seq: row.last_seq,
            cancel_requested: false,
        }
    }
}

/// The tasks that have not ended.
#[derive(Default)]
pub(super) struct OpenTasks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: HashMap<String, OpenTask>,
    owners: HashMap<String, BTreeMap<u64, String>>,
    last_accepted: u64,
}

impl OpenTasks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number greater than all before it.
    pub(super) fn accept(&self, now: Stamp) -> u64 {
        let mut state = self.state();
        state.last_accepted = now.0.max(state.last_accepted + 1);
        state.last_accepted
    }

    pub(super) fn insert(&self, id: &str, task: OpenTask) {
        let mut state = self.state();
        state.last_accepted = state.last_accepted.max(task.accepted);
        state.owners.entry(task.identity.clone()).or_default().insert(task.accepted, id.to_owned());
        state.tasks.insert(id.to_owned(), task);
    }

    pub(super) fn get(&self, id: &str) -> Option<OpenTask> {
        self.state().tasks.get(id).cloned()
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.state().tasks.contains_key(id)
    }

    /// Changes what is known of a task, if it has not ended.
    pub(super) fn change(&self, id: &str, change: impl FnOnce(&mut OpenTask)) {
        if let Some(task) = self.state().tasks.get_mut(id) {
            change(task);
        }
    }

    pub(super) fn remove(&self, id: &str) {
        let mut state = self.state();
        let Some(task) = state.tasks.remove(id) else { return };
        if let Some(owned) = state.owners.get_mut(&task.identity) {
            owned.remove(&task.accepted);
            if owned.is_empty() {
                state.owners.remove(&task.identity);
            }
        }
    }

    /// Their ids, in the order in which they were accepted.
    pub(super) fn ids(&self) -> Vec<String> {
        let state = self.state();
        let mut ids: Vec<_> = state.tasks.iter().map(|(id, task)| (task.accepted, id.clone())).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// The ids of an owner's tasks that pass a filter, with their stamps.
    pub(super) fn of_owner(&self, identity: &str, filter: impl Fn(&OpenTask) -> bool) -> Vec<(Stamp, String)> {
        let state = self.state();
        let owned = state.owners.get(identity).into_iter().flat_map(BTreeMap::values);
        let found = owned.filter_map(|id| Some((state.tasks.get(id)?, id)));
        found.filter(|(task, _)| filter(task)).map(|(task, id)| (task.stamp, id.clone())).collect()
    }
}
