//! Events applied to the task that they are about.

use crate::event::TaskEvent;
use crate::model::Task;

/// Takes an event into the task.
pub(super) fn apply(task: &mut Task, event: &TaskEvent) {
    let _ = (task, event);
    unimplemented!()
}
