//! Task links: durable rows that tie a call to the child session that works for it, by the call's part. A link is
//! created with the child and removed with the call's outcome, or for a background task with its report.

use api::{MessageId, PartId, PromptInput, SessionId};

use crate::batch::{Batch, Op};

/// Which child works on a call, and which of its prompts belongs to the call.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkedTask {
    /// The calling session.
    pub parent: SessionId,
    /// The session that works for it.
    pub child: SessionId,
    /// The id of the prompt the child works on. A prompt is accepted once per id.
    pub prompt: MessageId,
    /// A short description of the work.
    pub title: String,
    /// The prompt the child has yet to get. The commit that sends it removes it: while it is set, nothing of the child
    /// runs.
    pub input: Option<Box<PromptInput>>,
    /// Whether it was cancelled before it started.
    pub cancelled: bool,
    /// Whether the calling work is careful; then so is any work its report causes.
    pub careful: bool,
    /// Set if the caller does not wait.
    pub background: Option<Background>,
}

/// A task in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Background {
    /// Whether the caller's turn waits for it before ending.
    pub awaited: bool,
    /// The process that reports its end. If that process is dead, another one takes over.
    pub follower: Option<String>,
}

/// A task link as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskLink {
    /// The part of the call.
    pub part: PartId,
    /// The task.
    pub task: LinkedTask,
    /// Grows with every change. A call is linked once, so no version comes back.
    pub(crate) version: u64,
}

/// A change of a task link.
#[derive(Debug)]
pub(crate) enum TaskOp {
    /// A new link.
    Put { part: PartId, row: TaskRow },
    /// Replaces the link if it still has this version.
    Replace { part: PartId, version: u64, row: TaskRow },
    /// Removes the link if it still has this version; without one, whatever it has.
    Remove { part: PartId, version: Option<u64> },
}

/// A link's row. The prompt that waits is JSON.
#[derive(Debug)]
pub(crate) struct TaskRow {
    pub task: LinkedTask,
    pub input: Option<String>,
}

impl Batch {
    /// Links a call to its child. Does nothing if the calling session is gone.
    pub fn link_task(&mut self, part: &PartId, task: &LinkedTask) {
        if let Some(row) = self.task_row(task) {
            self.ops.push(Op::Task(Box::new(TaskOp::Put { part: part.clone(), row })));
        }
    }

    /// Replaces a link that was read before. The whole batch fails with
    /// [`StoreError::Changed`](crate::StoreError::Changed) if it was changed or removed.
    pub fn replace_task(&mut self, link: &TaskLink, task: &LinkedTask) {
        if let Some(row) = self.task_row(task) {
            let (part, version) = (link.part.clone(), link.version);
            self.ops.push(Op::Task(Box::new(TaskOp::Replace { part, version, row })));
        }
    }

    /// Removes a link that was read before. The whole batch fails with
    /// [`StoreError::Changed`](crate::StoreError::Changed) if it was changed or removed.
    pub fn remove_task(&mut self, link: &TaskLink) {
        let (part, version) = (link.part.clone(), Some(link.version));
        self.ops.push(Op::Task(Box::new(TaskOp::Remove { part, version })));
    }

    /// Removes the link of a call that ends, if it has one.
    pub fn end_task(&mut self, part: &PartId) {
        self.ops.push(Op::Task(Box::new(TaskOp::Remove { part: part.clone(), version: None })));
    }

    fn task_row(&mut self, task: &LinkedTask) -> Option<TaskRow> {
        let input = match &task.input {
            Some(input) => Some(self.json(input)?),
            None => None,
        };
        Some(TaskRow { task: LinkedTask { input: None, ..task.clone() }, input })
    }
}
