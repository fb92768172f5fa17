//! Several changes of a task in one commit.

use std::sync::Arc;
use std::time::Duration;

use super::rows::{Interrupt, KnownMessage, OpenWork, PushRow, TaskContent, TaskRow};
use crate::event::NumberedEvent;

/// Changes of one task that are written together or not at all. [`Records::commit`](super::Records::commit) writes them.
#[derive(Debug, Default)]
pub struct Change {
    pub(super) task: String,
    pub(super) events: Vec<Arc<NumberedEvent>>,
    pub(super) row: Option<TaskRow>,
    pub(super) work: Option<OpenWork>,
    pub(super) content: Option<TaskContent>,
    pub(super) messages: Vec<(String, String, KnownMessage)>,
    pub(super) interrupts: Vec<(Interrupt, Duration)>,
    pub(super) resolved: Vec<String>,
    pub(super) push: Option<PushRow>,
    pub(super) durable: bool,
}

/// The outcome of a [`Change`].
#[derive(Debug, Clone, PartialEq)]
pub enum Committed {
    /// It is written. The row as it is now, if the change had one. The time of its status may be later than it was, so that
    /// tasks that end are ordered.
    Won(Option<Box<TaskRow>>),
    /// Nothing is written, since somebody else has changed or ended the task. The row as it is now; `None` if it is gone.
    Lost(Option<Box<TaskRow>>),
}

impl Change {
    /// No change yet of a task.
    pub fn of(task: &str) -> Self {
        Self { task: task.to_owned(), ..Self::default() }
    }

    /// Appends an event to the log of the task.
    pub fn event(&mut self, event: Arc<NumberedEvent>) -> &mut Self {
        self.events.push(event);
        self
    }

    /// Writes the row if it still has its version. For a task that has not ended.
    pub fn row(&mut self, row: TaskRow) -> &mut Self {
        self.row = Some(row);
        self
    }

    /// Writes the prompt and the messages. For a task that has not ended.
    pub fn work(&mut self, work: OpenWork) -> &mut Self {
        self.work = Some(work);
        self
    }

    /// Writes the row with its terminal state if it still has its version, and everything that the task said and made.
    pub fn end(&mut self, row: TaskRow, content: TaskContent) -> &mut Self {
        self.row = Some(row);
        self.content = Some(content);
        self
    }

    /// Remembers a message that continued the task.
    pub fn follow_up(&mut self, identity: &str, message_id: &str, fingerprint: &str) -> &mut Self {
        let known = KnownMessage { task: self.task.clone(), fingerprint: fingerprint.to_owned() };
        self.messages.push((identity.to_owned(), message_id.to_owned(), known));
        self
    }

    /// Opens an interrupt. When it has expired, it is remembered for another while.
    pub fn interrupt(&mut self, interrupt: Interrupt, tombstone: Duration) -> &mut Self {
        self.interrupts.push((interrupt, tombstone));
        self
    }

    /// Forgets an interrupt that was answered.
    pub fn resolve(&mut self, request_id: &str) -> &mut Self {
        self.resolved.push(request_id.to_owned());
        self
    }

    /// Stores a push configuration. Notifications begin with the events of this change.
    pub fn push(&mut self, push: PushRow) -> &mut Self {
        self.push = Some(push);
        self
    }

    /// Makes the commit return only once it is on disk.
    pub fn durable(&mut self) -> &mut Self {
        self.durable = true;
        self
    }
}
