//! The rows as the service sees them.

use api::{Json, JsonMap, MessageId, PromptInput, Scope, SessionId, Timestamp, TurnId};
use serde::{Deserialize, Serialize};

use crate::call::PushConfig;
use crate::model::{Artifact, Line, Message, TaskState, TaskStatus};

/// A prompt, as it is or was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkPrompt {
    /// The id of its message, chosen before it is sent.
    pub id: MessageId,
    /// The prompt without that id.
    pub input: PromptInput,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A task without its messages and artifacts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Its id.
    pub id: String,
    /// The context that it belongs to.
    pub context_id: String,
    /// Who owns it.
    pub identity: String,
    /// The credential that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The session that works on it. A task that was refused before it had one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The directory of that session, or where it was to be.
    pub directory: String,
    /// Its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The line of the request that began it.
    pub line: Line,
    /// Whether it was begun by a stream, so that its lanes are its artifacts.
    #[serde(default)]
    pub streamed: bool,
    /// Whether its client takes no structured data.
    #[serde(default)]
    pub text_only: bool,
    /// The id of the message that began it.
    pub message_id: String,
    /// Tells the same message sent again from another one with the same id.
    pub fingerprint: String,
    /// The turn, once its name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Its status.
    pub status: TaskStatus,
    /// Data of extensions.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
    /// The number of its last event in the log.
    #[serde(default)]
    pub last_seq: u64,
    /// When it was accepted.
    pub created: Timestamp,
    /// When the row was last written.
    pub changed: Timestamp,
    /// Orders tasks as they were accepted. [`Records::insert`](super::Records::insert) sets it.
    #[serde(default)]
    pub accepted: u64,
    /// The version of the row as it was read or written; 0 before it is inserted.
    #[serde(skip)]
    pub version: u64,
}

impl TaskRow {
    /// Its state.
    pub fn state(&self) -> TaskState {
        self.status.state
    }

    /// The place where its session works.
    pub fn scope(&self) -> Scope {
        Scope { directory: self.directory.clone(), workspace: self.workspace.clone() }
    }
}

/// The messages and artifacts of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskContent {
    /// Its messages, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// What it made. Empty until it has ended: before that, its events say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// What there is of a task besides its row before it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenWork {
    /// The prompt that goes out, or has gone out.
    pub prompt: WorkPrompt,
    /// The session that the first message names. It counts until the task has a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_session: Option<SessionId>,
    /// The messages, oldest first.
    pub history: Vec<Message>,
    /// A message whose answer may have been given already, although the message is not among the others yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answering: Option<Answering>,
}

/// A message that answers a request, while the answer is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answering {
    /// The id of the permission request or question.
    pub request_id: String,
    /// The message.
    pub message: Message,
    /// Tells the same message sent again from another one with the same id.
    pub fingerprint: String,
}

/// A task to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its row.
    pub row: TaskRow,
    /// Its prompt and messages.
    pub work: OpenWork,
    /// Where to send notifications about it.
    pub push: Option<PushRow>,
    /// The place, if the context has a session in each place; see [`Records::context_session`](super::Records::context_session).
    pub place: Option<String>,
}

/// The outcome of inserting a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// It is stored, and on disk.
    New(Box<TaskRow>),
    /// The owner has sent a message with this id before.
    Known(KnownMessage),
}

/// A message that was taken before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownMessage {
    /// The task that it began or continued.
    pub task: String,
    /// Tells the same message from another one with the same id.
    pub fingerprint: String,
}

/// A task that had not ended when the service stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedTask {
    /// Its row.
    pub row: TaskRow,
    /// Its prompt and messages.
    pub work: OpenWork,
    /// Whether its cancellation was asked for.
    pub cancel_requested: bool,
}

/// What an interrupt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptKind {
    /// A permission.
    Permission,
    /// Answers to questions.
    Question,
}

/// A request of a task that its client has to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// The id of the permission request or question.
    pub request_id: String,
    /// The session that asks.
    pub session_id: SessionId,
    /// What it asks for.
    pub kind: InterruptKind,
    /// Who may answer.
    pub identity: String,
    /// The credential that began the task.
    pub credential: Option<String>,
    /// The task.
    pub task_id: String,
    /// Its context.
    pub context_id: String,
    /// What is asked, as `metadata.shared.interrupt.details` shows it.
    pub details: Json,
    /// Until when it can be answered.
    pub expires_at: Timestamp,
}

/// A push configuration of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PushRow {
    /// The configuration. Its task and id are set.
    pub config: PushConfig,
    /// The line that its notifications are written in.
    pub line: Line,
    /// Who owns the task.
    pub identity: String,
}

/// How far the notifications of a push configuration have come. The log of the task's events is their queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The task.
    pub task: String,
    /// The push configuration.
    pub config: String,
    /// The number of the last event that the webhook has.
    pub sent: u64,
    /// How often the next one was tried.
    #[serde(default)]
    pub attempts: u32,
    /// When to try it again.
    #[serde(default)]
    pub next: Timestamp,
    /// The version of the row as it was read or written.
    #[serde(skip)]
    pub version: u64,
}

/// The outcome of claiming a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The identity owns it already.
    Owned,
    /// It has no owner, and is reserved for the identity for a while.
    Pending,
    /// It belongs to, or is reserved for, somebody else.
    Taken,
}

/// Rows of a page of tasks, the most recently changed first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowPage {
    /// The rows.
    pub rows: Vec<TaskRow>,
    /// The cursor of the next page; empty if there is none.
    pub next: String,
    /// The number of tasks that a full page has.
    pub page_size: u32,
    /// The number of tasks in all pages.
    pub total: u64,
}
