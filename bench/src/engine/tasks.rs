//! Tasks of A2A as a service would have left them.

use std::path::Path;

use a2a::records::{Change, Committed, Inserted, NewTask, OpenWork, Records, TaskContent, TaskRow, WorkPrompt};
use a2a::{Line, Message, Part, Role, TaskState, TaskStatus};
use anyhow::{Context as _, Result, bail};
use api::{JsonMap, MessageId, PromptInput, PromptPart, Scope, SessionId};
use futures::StreamExt as _;
use serde_json::{Value, json};
use store::Store;

use crate::table::a2a::IDENTITY;

/// How many tasks are written at the same time, so that they share the disk's time.
const AT_ONCE: usize = 256;
/// Every task of this number is in a context of its own.
const TASKS_PER_CONTEXT: usize = 10;

/// Writes many tasks that have ended.
pub async fn fill(store: &Store, database: &Path, scope: &Scope, tasks: usize) -> Result<Value> {
    let records = Records::open(store.clone(), database).await?;
    let mut written =
        futures::stream::iter((0..tasks).map(|number| write(&records, scope, number))).buffer_unordered(AT_ONCE);
    while let Some(done) = written.next().await {
        done?;
    }
    Ok(json!({}))
}

async fn write(records: &Records, scope: &Scope, number: usize) -> Result<()> {
    let (id, context) = (format!("task-{number:08}"), format!("context-{}", number / TASKS_PER_CONTEXT));
    let message = message(&id, &context, Role::User, format!("Repair the parser, part {number}"));
    let input = PromptInput { parts: vec![PromptPart::text("Repair the parser")], ..PromptInput::default() };
    let work = OpenWork {
        prompt: WorkPrompt { id: MessageId::new(), input, traceparent: None },
        history: vec![message.clone()],
        answering: None,
        wanted_session: None,
    };
    let new = NewTask { row: row(&id, &context, scope), work, push: None, place: None };
    let Inserted::New(mut row) = records.insert(new).await? else { bail!("{id} is there already") };
    row.status.state = TaskState::Completed;
    let said = self::message(&id, &context, Role::Agent, "It is repaired.".to_owned());
    let content = TaskContent { history: vec![message, said], artifacts: Vec::new() };
    let mut change = Change::of(&id);
    change.end(*row, content);
    match records.commit(change).await? {
        Committed::Won(_) => Ok(()),
        Committed::Lost(_) => None.with_context(|| format!("{id} has ended already")),
    }
}

fn message(task: &str, context: &str, role: Role, text: String) -> Message {
    Message {
        message_id: format!("{task}-message"),
        role,
        parts: vec![Part::text(text)],
        context_id: Some(context.to_owned()),
        task_id: Some(task.to_owned()),
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: JsonMap::new(),
    }
}

fn row(id: &str, context: &str, scope: &Scope) -> TaskRow {
    let now = api::now();
    TaskRow {
        id: id.to_owned(),
        context_id: context.to_owned(),
        identity: IDENTITY.to_owned(),
        credential: None,
        session_id: Some(SessionId::new()),
        directory: scope.directory.clone(),
        workspace: None,
        line: Line::V10,
        streamed: false,
        text_only: false,
        message_id: format!("{id}-message"),
        fingerprint: id.to_owned(),
        turn: None,
        status: TaskStatus { state: TaskState::Working, message: None, timestamp: now },
        metadata: JsonMap::new(),
        last_seq: 0,
        created: now,
        changed: now,
        accepted: 0,
        version: 0,
    }
}
