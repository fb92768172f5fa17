//! What requests ask for, and what comes back, in one vocabulary for both lines and both transports.

use api::{Json, JsonMap, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::{Message, Task, TaskState};

/// The options of a message that is sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SendOptions {
    /// The media types that the client takes; empty means all.
    pub accepted_output_modes: Vec<String>,
    /// The most messages of the history in the reply; all by default.
    pub history_length: Option<u32>,
    /// Whether the reply comes at once, and not when the task has ended or waits for its client.
    pub return_immediately: bool,
    /// Where to send notifications about the task.
    pub push: Option<PushConfig>,
}

/// A message that is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SendRequest {
    /// The message.
    pub message: Message,
    /// How to answer.
    pub options: SendOptions,
    /// Data of extensions.
    pub metadata: JsonMap,
    /// The W3C trace context of the request.
    pub traceparent: Option<String>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListRequest {
    /// Only those of this context.
    pub context_id: Option<String>,
    /// Only those in this state.
    pub state: Option<TaskState>,
    /// Only those whose status changed at or after this time.
    pub changed_since: Option<Timestamp>,
    /// The most tasks in a page: 1 to 100, 50 by default.
    pub page_size: Option<u32>,
    /// The cursor of a page.
    pub page_token: Option<String>,
    /// The most messages of each history; none by default.
    pub history_length: Option<u32>,
    /// Whether artifacts are included.
    pub include_artifacts: bool,
}

/// A page of tasks, the most recently changed first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The cursor of the next page; empty if there is none.
    pub next_page_token: String,
    /// The number of tasks that a full page has.
    pub page_size: u32,
    /// The number of tasks in all pages.
    pub total_size: u64,
}

/// How a webhook wants to be authenticated to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PushAuthentication {
    /// The schemes, for example `Bearer`. 1.0 has exactly one.
    pub schemes: Vec<String>,
    /// The credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// Where to send notifications about a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfig {
    /// The task. Empty in a message that creates it.
    #[serde(default)]
    pub task_id: String,
    /// Its id; the task's id by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The webhook.
    pub url: String,
    /// A value that the webhook gets with each notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How to authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<PushAuthentication>,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Send a message and return the task.
    Send(Box<SendRequest>),
    /// Send a message and stream the task's events.
    Stream(Box<SendRequest>),
    /// Return a task.
    Get {
        /// The task.
        id: String,
        /// The most messages of its history; all by default.
        history_length: Option<u32>,
    },
    /// List tasks.
    List(ListRequest),
    /// Cancel a task.
    Cancel {
        /// The task.
        id: String,
    },
    /// Stream the events of a task that has not ended.
    Subscribe {
        /// The task.
        id: String,
        /// The number of the last event that the client has.
        after: Option<u64>,
    },
    /// Create or replace a push configuration.
    PutPush(PushConfig),
    /// Return a push configuration.
    GetPush {
        /// The task.
        task: String,
        /// The configuration; the task's id by default.
        id: Option<String>,
    },
    /// List the push configurations of a task.
    ListPush {
        /// The task.
        task: String,
        /// The most configurations in a page.
        page_size: Option<u32>,
        /// The cursor of a page.
        page_token: Option<String>,
    },
    /// Delete a push configuration.
    DeletePush {
        /// The task.
        task: String,
        /// The configuration; the task's id by default.
        id: Option<String>,
    },
    /// Return the extended card.
    ExtendedCard,
    /// Call a method of an extension.
    Extension {
        /// The method, for example `opencode.sessions.list`.
        method: String,
        /// Its parameters.
        params: JsonMap,
    },
}

/// The reply to a call that is no stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A task, as the reply to a message.
    Sent(Box<Task>),
    /// A message, as the reply to a message.
    Message(Box<Message>),
    /// A task.
    Task(Box<Task>),
    /// Tasks.
    Tasks(TaskPage),
    /// A push configuration.
    Push(PushConfig),
    /// Push configurations, and the cursor of the next page.
    Pushes(Vec<PushConfig>, String),
    /// Nothing.
    Deleted,
    /// A document: the extended card, or the result of an extension's method.
    Json(Json),
}
