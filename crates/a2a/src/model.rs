//! Tasks, messages and artifacts: what both lines of the protocol have in common. Rows are stored in this form; `wire` turns
//! it into the spelling of each line.

use std::fmt;

use api::{Json, JsonMap, Timestamp};
use serde::{Deserialize, Serialize};

use crate::event::Lane;

/// A line of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Line {
    /// 0.3, which a request without a version speaks by default.
    #[serde(rename = "0.3")]
    V03,
    /// 1.0.
    #[serde(rename = "1.0")]
    V10,
}

impl Line {
    /// Both lines, the older first.
    pub const ALL: [Self; 2] = [Self::V03, Self::V10];

    /// Its version, `Major.Minor`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V03 => "0.3",
            Self::V10 => "1.0",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// It was accepted, and waits for earlier tasks of its context.
    Submitted,
    /// It is running.
    Working,
    /// It waits for the client to answer a request.
    InputRequired,
    /// It waits for the client to provide credentials.
    AuthRequired,
    /// It ended with an answer.
    Completed,
    /// It was cancelled.
    Canceled,
    /// It ended with an error.
    Failed,
    /// The agent declined it.
    Rejected,
}

impl TaskState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Canceled,
        Self::Failed,
        Self::Rejected,
    ];

    /// Whether a task in this state never changes again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled | Self::Failed | Self::Rejected)
    }

    /// Whether a task in this state waits for its client.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The client.
    User,
    /// The agent.
    Agent,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Text.
    Text(String),
    /// The bytes of a file, in base64.
    Raw(String),
    /// The address of a file.
    Url(String),
    /// Structured data.
    Data(Json),
}

/// A part of a message or an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Its content.
    pub content: Content,
    /// The name of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Data of extensions.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
}

impl Part {
    /// A part without a name, a media type or metadata.
    pub fn new(content: Content) -> Self {
        Self { content, filename: None, media_type: None, metadata: JsonMap::new() }
    }

    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// Structured data.
    pub fn data(data: Json) -> Self {
        Self::new(Content::Data(data))
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its id, chosen by whoever wrote it.
    pub message_id: String,
    /// Who wrote it.
    pub role: Role,
    /// Its content.
    pub parts: Vec<Part>,
    /// The context that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// The task that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Further tasks that it refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<String>,
    /// The extensions that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Data of extensions.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
}

impl Message {
    /// A message of the agent about a task.
    pub fn of_agent(message_id: impl Into<String>, task: &Task, parts: Vec<Part>) -> Self {
        Self {
            message_id: message_id.into(),
            role: Role::Agent,
            parts,
            context_id: Some(task.context_id.clone()),
            task_id: Some(task.id.clone()),
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: JsonMap::new(),
        }
    }
}

/// Which artifact it is. The lines name the artifacts of a stream differently.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactId {
    /// What a turn writes, by its lane. In 0.3 all lanes share one artifact.
    Lane(Lane),
    /// Another artifact, by its id.
    Named(String),
}

/// What a task made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Its id.
    pub id: ArtifactId,
    /// Its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its content.
    pub parts: Vec<Part>,
    /// The extensions that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Data of extensions.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
}

/// The status of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// Its state.
    pub state: TaskState,
    /// What the agent says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// When it changed.
    pub timestamp: Timestamp,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its id.
    pub id: String,
    /// The context that it belongs to.
    pub context_id: String,
    /// Its status.
    pub status: TaskStatus,
    /// What it made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Its messages, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// Data of extensions: `shared` (session, usage, interrupt, …) and `opencode` (errors).
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
}
