//! A task that has not ended, or ended a moment ago: what everybody but its runner may see of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};

use super::apply;
use crate::event::{NumberedEvent, TaskEvent};
use crate::model::{Message, Task, TaskState};
use crate::{Error, ErrorKind, Principal};

/// How many events are kept in memory for streams; older ones are read from the log.
const TAIL_EVENTS: usize = 512;
/// How many events may have been shown that are not in the log.
pub(super) const MAX_UNLOGGED: usize = 256;
/// How many events are handed to a stream at a time.
pub(super) const EVENT_PAGE: usize = 64;

/// What is known of a task's progress without reading its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published {
    /// The number of the last event.
    pub(super) seq: u64,
    /// The state of the task.
    pub(super) state: TaskState,
}

/// What others ask of the runner of a task.
pub(super) enum Command {
    /// Stop. The answer comes once the turn has stopped, or the time for that is over.
    Cancel(oneshot::Sender<()>),
    /// Take in another message of the client.
    Message(Box<FollowUp>, oneshot::Sender<Result<(), Error>>),
}

/// A message to a task that exists.
pub(super) struct FollowUp {
    /// Who sends it.
    pub(super) who: Principal,
    /// The message.
    pub(super) message: Message,
    /// Tells the same message sent again from another one with the same id.
    pub(super) fingerprint: String,
    /// Its text.
    pub(super) text: String,
    /// It as a prompt.
    pub(super) input: api::PromptInput,
    /// The trace that it belongs to.
    pub(super) traceparent: Option<String>,
}

/// An event that comes next, and the task with it. Nobody sees it yet.
pub(super) struct Draft {
    pub(super) event: Arc<NumberedEvent>,
    pub(super) task: Task,
}

/// A task and its newest events.
pub(super) struct LiveTask {
    pub(super) id: String,
    pub(super) context: String,
    /// The number of the last event that was in the log when the task was taken up again. Clients of the run before may
    /// have seen a few more, whose numbers now belong to other events.
    resumed_at: Option<u64>,
    view: Mutex<View>,
    published: watch::Sender<Published>,
    commands: mpsc::Sender<Command>,
}

struct View {
    task: Task,
    seq: u64,
    /// The newest events, without gaps, up to `seq`.
    tail: VecDeque<Arc<NumberedEvent>>,
    /// Everything up to here is in the log.
    logged: u64,
}

/// Events of the tail, or where to find them.
pub(super) enum Tail {
    /// They are here; empty if there are none yet.
    Here(Vec<Arc<NumberedEvent>>),
    /// They are in the log alone.
    InLog,
}

impl LiveTask {
    /// A task as it was stored, and what its runner listens to.
    pub(super) fn new(task: Task, seq: u64, resumed: bool) -> (Arc<Self>, mpsc::Receiver<Command>) {
        /// Commands beyond this wait to be sent.
        const COMMANDS: usize = 16;
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let published = watch::Sender::new(Published { seq, state: task.status.state });
        let (id, context) = (task.id.clone(), task.context_id.clone());
        let view = Mutex::new(View { task, seq, tail: VecDeque::new(), logged: seq });
        let resumed_at = resumed.then_some(seq);
        (Arc::new(Self { id, context, resumed_at, view, published, commands }), receiver)
    }

    /// Adds an event and shows it to everybody.
    pub(super) fn publish(&self, event: TaskEvent) -> Arc<NumberedEvent> {
        let (event, published) = {
            let mut view = self.view();
            view.seq += 1;
            let event = Arc::new(NumberedEvent { seq: view.seq, event });
            apply::apply(&mut view.task, &event.event);
            view.tail.push_back(event.clone());
            view.trim();
            (event, Published { seq: view.seq, state: view.task.status.state })
        };
        self.published.send_replace(published);
        event
    }

    /// Prepares an event that may be shown only once it is stored. Only the runner publishes, so it stays the next one.
    pub(super) fn draft(&self, event: TaskEvent) -> Draft {
        let view = self.view();
        let event = Arc::new(NumberedEvent { seq: view.seq + 1, event });
        let mut task = view.task.clone();
        apply::apply(&mut task, &event.event);
        Draft { event, task }
    }

    /// Shows an event that was prepared and is in the log.
    pub(super) fn show(&self, draft: Draft) {
        let published = {
            let mut view = self.view();
            view.seq = draft.event.seq;
            view.logged = view.seq;
            view.task = draft.task;
            view.tail.push_back(draft.event);
            view.trim();
            Published { seq: view.seq, state: view.task.status.state }
        };
        self.published.send_replace(published);
    }

    /// Whether a stream can go on after the event with this number.
    pub(super) fn can_resume(&self, after: u64) -> bool {
        let is_sure = self.resumed_at.is_none_or(|at| after <= at || after > at + MAX_UNLOGGED as u64);
        is_sure && after <= self.published.borrow().seq
    }

    /// Changes the task without an event, for example its history.
    pub(super) fn change(&self, change: impl FnOnce(&mut Task)) {
        change(&mut self.view().task);
    }

    /// Says that everything up to an event is in the log.
    pub(super) fn set_logged(&self, seq: u64) {
        let mut view = self.view();
        view.logged = view.logged.max(seq);
        view.trim();
    }

    /// The task as it is now, and the number of its last event.
    pub(super) fn snapshot(&self) -> (Task, u64) {
        let view = self.view();
        (view.task.clone(), view.seq)
    }

    /// What a look at the task gives, without a copy of it.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Task) -> T) -> T {
        look(&self.view().task)
    }

    /// Its state.
    pub(super) fn state(&self) -> TaskState {
        self.published.borrow().state
    }

    /// The events after a number, a page at a time.
    pub(super) fn events_after(&self, after: u64) -> Tail {
        let view = self.view();
        if after >= view.seq {
            return Tail::Here(Vec::new());
        }
        let Some(first) = view.tail.front().map(|event| event.seq) else { return Tail::InLog };
        if after + 1 < first {
            return Tail::InLog;
        }
        let skip = usize::try_from(after + 1 - first).unwrap_or(usize::MAX);
        Tail::Here(view.tail.iter().skip(skip).take(EVENT_PAGE).cloned().collect())
    }

    /// Notifies of progress.
    pub(super) fn progress(&self) -> watch::Receiver<Published> {
        self.published.subscribe()
    }

    /// Waits until the task has ended or waits for its client.
    pub(super) async fn settled(&self) {
        let is_settled = |now: &Published| now.state.is_terminal() || now.state.is_interrupted();
        // The sender is part of this task, and lives as long.
        let _ = self.progress().wait_for(is_settled).await;
    }

    /// Asks something of the runner.
    pub(super) async fn send(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| self.ended())
    }

    /// The error about a task that nobody runs any more.
    pub(super) fn ended(&self) -> Error {
        match self.state().is_terminal() {
            true => Error::new(ErrorKind::UnsupportedOperation, format!("Task {} has ended", self.id)),
            false => Error::new(ErrorKind::ShuttingDown, "The service stops; send the message again later"),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    /// Forgets events that streams can find in the log.
    fn trim(&mut self) {
        while self.tail.len() > TAIL_EVENTS && self.tail.front().is_some_and(|event| event.seq <= self.logged) {
            self.tail.pop_front();
        }
    }
}
