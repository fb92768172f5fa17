//! What the database says about tasks and their sessions when nobody uses it.

use std::path::Path;

use a2a::records::{Records, TaskRow};
use a2a::{Credentials, ListRequest, NumberedEvent, TaskState};
use api::MessageWithParts;
use store::{AskFilter, SessionQuery, Store};

use super::fixture::Lab;
use crate::crash::fixture::{block_on, copy};
use crate::e2e::a2a::process::TOKEN;

/// More events than any task of these tests has.
const MANY: usize = 10_000;

/// A task as it is stored.
pub struct StoredTask {
    pub row: TaskRow,
    pub events: Vec<NumberedEvent>,
    /// Whether its cancellation was asked for, and its end is not stored.
    pub is_marked: bool,
}

/// A session as it is stored.
pub struct StoredSession {
    pub id: api::SessionId,
    pub messages: Vec<MessageWithParts>,
    /// Whether a turn of it has not ended.
    pub is_busy: bool,
}

/// All that is stored.
pub struct Stored {
    pub tasks: Vec<StoredTask>,
    pub sessions: Vec<StoredSession>,
    /// Permission requests that nobody has answered.
    pub asks: usize,
}

impl Stored {
    /// Reads a copy: opening the database itself would clean up what a crash left.
    pub fn read(lab: &Lab) -> Self {
        let view = lab.harness.project.root().join("view");
        copy(&lab.data(), &view);
        let path = view.join("trefoil.db");
        let store = Store::open(&path).unwrap();
        let tasks = block_on(tasks(store.clone(), &path));
        let sessions = store.sessions(&SessionQuery::default()).unwrap().into_iter().map(|session| StoredSession {
            messages: store.messages(&session.id, None, None).unwrap().messages,
            is_busy: !store.inbox(&session.id).unwrap().is_empty()
                || store.lease_holder(&session.id).unwrap().is_some(),
            id: session.id,
        });
        Self { tasks, sessions: sessions.collect(), asks: store.permissions(&AskFilter::default()).unwrap().len() }
    }

    /// The task with an id.
    pub fn task(&self, id: &str) -> &StoredTask {
        self.tasks.iter().find(|task| task.row.id == id).unwrap_or_else(|| panic!("there is no task {id}"))
    }

    /// Checks what holds when all tasks have ended: each once, with all events, and its prompt was sent once.
    pub fn check_settled(&self, tasks: usize) {
        assert_eq!(self.tasks.len(), tasks, "each message is one task");
        for task in &self.tasks {
            task.check_ended();
        }
        let prompts = self.sessions.iter().flat_map(|session| &session.messages);
        let prompts = prompts.filter(|message| message.info.as_user().is_some()).count();
        let unsent = self.tasks.iter().filter(|task| task.row.state() == TaskState::Canceled).count();
        assert!((tasks - unsent..=tasks).contains(&prompts), "{prompts} prompts of {tasks} tasks");
        assert!(self.sessions.iter().all(|session| !session.is_busy), "a turn has not ended");
        assert_eq!(self.asks, 0, "something is asked although all tasks have ended");
    }
}

impl StoredTask {
    fn check_ended(&self) {
        let Self { row, events, .. } = self;
        assert!(row.state().is_terminal(), "{row:#?}");
        assert!(!self.is_marked, "the mark of a cancellation is left: {row:#?}");
        let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert_eq!(numbers, (1..=row.last_seq).collect::<Vec<_>>(), "the numbers of events have gaps");
        let ends = |event: &&NumberedEvent| event.event.state().is_some_and(TaskState::is_terminal);
        let ended: Vec<_> = events.iter().filter(ends).map(|event| (event.seq, event.event.state())).collect();
        assert_eq!(ended, [(row.last_seq, Some(row.state()))], "it ends once, with its last event");
    }
}

async fn tasks(store: Store, path: &Path) -> Vec<StoredTask> {
    let records = Records::open(store, path).await.unwrap();
    let credentials = Credentials::new(Some(TOKEN), None).unwrap();
    let owner = credentials.authenticate(Some(&format!("Bearer {TOKEN}"))).unwrap().identity;
    let all = ListRequest { page_size: Some(100), ..ListRequest::default() };
    let mut tasks = Vec::new();
    for row in records.list(&owner, &all).await.unwrap().rows {
        let events = records.events(&row.id, 0, MANY).await.unwrap();
        tasks.push(StoredTask { events, is_marked: records.is_cancel_requested(&row.id), row });
    }
    tasks
}

/// The text of a message.
pub fn text_of(message: &MessageWithParts) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        api::Part::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}
