//! Tests on a real database.

mod lists;
mod others;
mod tasks;

use std::path::PathBuf;
use std::sync::Arc;

use api::{JsonMap, MessageId, PromptInput, PromptPart, SessionId, Timestamp};
use store::Store;

use super::lock::TemporaryDirectory;
use super::*;
use crate::event::{NumberedEvent, TaskEvent};
use crate::model::{Content, Line, Message, Part, Role, TaskState, TaskStatus};

/// A database that can be opened again.
struct Database {
    path: PathBuf,
    _directory: TemporaryDirectory,
}

impl Database {
    fn new() -> Self {
        let directory = TemporaryDirectory::create(&std::env::temp_dir()).unwrap();
        Self { path: directory.database().with_file_name("test.db"), _directory: directory }
    }

    async fn open(&self) -> Records {
        Records::open(Store::open(&self.path).unwrap(), &self.path).await.unwrap()
    }
}

async fn temporary() -> Records {
    Records::open_temporary(&std::env::temp_dir()).await.unwrap()
}

fn status(state: TaskState, timestamp: Timestamp) -> TaskStatus {
    TaskStatus { state, message: None, timestamp }
}

fn message(id: &str) -> Message {
    Message {
        message_id: id.to_owned(),
        role: Role::User,
        parts: vec![Part::new(Content::Text("hello".to_owned()))],
        context_id: None,
        task_id: None,
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: JsonMap::new(),
    }
}

fn new_task(identity: &str, id: &str, context: &str) -> NewTask {
    let message_id = format!("m-{id}");
    NewTask {
        row: TaskRow {
            id: id.to_owned(),
            context_id: context.to_owned(),
            identity: identity.to_owned(),
            credential: None,
            session_id: Some(SessionId::new()),
            directory: "/work".to_owned(),
            workspace: None,
            line: Line::V10,
            streamed: true,
            text_only: false,
            message_id: message_id.clone(),
            fingerprint: "print".to_owned(),
            turn: None,
            status: status(TaskState::Submitted, 1_000),
            metadata: JsonMap::new(),
            last_seq: 0,
            created: 1_000,
            changed: 1_000,
            accepted: 0,
            version: 0,
        },
        work: OpenWork { prompt: prompt(), wanted_session: None, history: vec![message(&message_id)], answering: None },
        push: None,
        place: None,
    }
}

fn prompt() -> WorkPrompt {
    let input = PromptInput { parts: vec![PromptPart::text("hello")], ..PromptInput::default() };
    WorkPrompt { id: MessageId::new(), input, traceparent: Some("00-1-2-01".to_owned()) }
}

async fn insert(records: &Records, task: NewTask) -> TaskRow {
    match records.insert(task).await.unwrap() {
        Inserted::New(row) => *row,
        Inserted::Known(known) => panic!("{known:?}"),
    }
}

fn event(seq: u64, state: TaskState) -> Arc<NumberedEvent> {
    let status = status(state, 1_000);
    Arc::new(NumberedEvent { seq, event: TaskEvent::Status { status, metadata: JsonMap::new(), mark: None } })
}

/// Ends a task at a time.
async fn end(records: &Records, mut row: TaskRow, state: TaskState, time: Timestamp) -> TaskRow {
    row.status = status(state, time);
    let mut change = Change::of(&row.id);
    change.event(event(row.last_seq + 1, state)).end(row, TaskContent::default());
    won(records.commit(change).await.unwrap())
}

fn won(committed: Committed) -> TaskRow {
    match committed {
        Committed::Won(Some(row)) => *row,
        other => panic!("{other:?}"),
    }
}
