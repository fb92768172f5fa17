//! Messages: a user's prompts, and one assistant message per model step.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{numbers, shape::AnySchema, tagged};
use crate::{Extra, Json, MessageError, MessageId, Part, SessionId, Timestamp, Usd};

/// A message from the user or the assistant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "lowercase")]
#[schemars(!tag, untagged)]
#[expect(clippy::large_enum_variant, reason = "messages are held one at a time or boxed in events")]
pub enum Message {
    /// From the human, or generated on their behalf.
    User(UserMessage),
    /// From the model; one step.
    Assistant(AssistantMessage),
}

impl Message {
    /// Its id.
    pub fn id(&self) -> &MessageId {
        match self {
            Self::User(m) => &m.id,
            Self::Assistant(m) => &m.id,
        }
    }

    /// The session it belongs to.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::User(m) => &m.session_id,
            Self::Assistant(m) => &m.session_id,
        }
    }

    /// When it was created.
    pub fn created(&self) -> Timestamp {
        match self {
            Self::User(m) => m.time.created,
            Self::Assistant(m) => m.time.created,
        }
    }

    /// The assistant message, if it is one.
    pub fn as_assistant(&self) -> Option<&AssistantMessage> {
        match self {
            Self::Assistant(m) => Some(m),
            Self::User(_) => None,
        }
    }

    /// The user message, if it is one.
    pub fn as_user(&self) -> Option<&UserMessage> {
        match self {
            Self::User(m) => Some(m),
            Self::Assistant(_) => None,
        }
    }
}

/// A message with its parts, as the API lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MessageWithParts {
    /// The message.
    pub info: Message,
    /// Its parts, oldest first.
    pub parts: Vec<Part>,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("role", "user"))]
pub struct UserMessage {
    /// Its id.
    pub id: MessageId,
    /// Its session.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// When it was sent.
    pub time: UserTime,
    /// The required format of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<OutputFormat>,
    /// What the turn changed in the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<UserSummary>,
    /// The agent that answers.
    pub agent: String,
    /// The model that answers.
    pub model: ModelRef,
    /// An addition to the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Tools switched on or off for this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<IndexMap<String, bool>>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The time of a user message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct UserTime {
    /// When it was created.
    #[schemars(with = "f64", range(min = 0))]
    pub created: Timestamp,
}

/// What a turn changed in the files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct UserSummary {
    /// A headline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A short description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The changes, per file.
    pub diffs: Vec<FileDiff>,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SnapshotFileDiff", transform = numbers)]
pub struct FileDiff {
    /// Path, relative to the worktree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Lines added.
    pub additions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// What happened to the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<FileDiffStatus>,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum FileDiffStatus {
    /// It was added.
    Added,
    /// It was deleted.
    Deleted,
    /// It was modified.
    Modified,
}

/// Names a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ModelRef {
    /// The provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// The model variant, for example its reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl ModelRef {
    /// A model without a variant.
    pub fn new(provider_id: impl Into<String>, model_id: impl Into<String>) -> Self {
        Self { provider_id: provider_id.into(), model_id: model_id.into(), variant: None }
    }

    /// Parses `provider/model`; the model's name may contain slashes.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, model) = text.split_once('/')?;
        (!provider.is_empty() && !model.is_empty()).then(|| Self::new(provider, model))
    }
}

impl std::fmt::Display for ModelRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider_id, self.model_id)
    }
}

/// The required format of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    /// Free text.
    #[schemars(title = "OutputFormatText")]
    Text,
    /// JSON that satisfies a schema.
    #[schemars(title = "OutputFormatJsonSchema")]
    JsonSchema {
        /// The schema.
        #[schemars(with = "AnySchema")]
        schema: Json,
        /// How many times the model may retry.
        #[serde(rename = "retryCount", skip_serializing_if = "Option::is_none")]
        retry_count: Option<u32>,
    },
}

/// One model step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("role", "assistant"))]
pub struct AssistantMessage {
    /// Its id.
    pub id: MessageId,
    /// Its session.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The user message it answers.
    #[serde(rename = "parentID")]
    pub parent_id: MessageId,
    /// The agent's name again, for older clients.
    pub mode: String,
    /// The agent.
    pub agent: String,
    /// Where it works.
    pub path: AssistantPath,
    /// What the step cost.
    pub cost: Usd,
    /// What the step used.
    pub tokens: Tokens,
    /// The model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Its provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// When it started and ended.
    pub time: AssistantTime,
    /// Why the step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<MessageError>,
    /// Whether it is a compaction's summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<bool>,
    /// The answer to a `json_schema` prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured: Option<Json>,
    /// The model variant, for example its reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Why the model stopped: `stop`, `tool-calls`, `length`, `content-filter`, `unknown`, `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The directories of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AssistantPath {
    /// The session's directory.
    pub cwd: String,
    /// The worktree's root.
    pub root: String,
}

/// When a step started and ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AssistantTime {
    /// When it started.
    #[schemars(range(min = 0))]
    pub created: Timestamp,
    /// When it ended, successfully or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub completed: Option<Timestamp>,
}

/// Token counts of one step. `input` excludes cached tokens, `output` excludes reasoning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, transform = numbers)]
pub struct Tokens {
    /// The total that the provider reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Uncached input.
    pub input: u64,
    /// Visible output.
    pub output: u64,
    /// Hidden reasoning.
    pub reasoning: u64,
    /// Cached input, read and written.
    pub cache: TokensCache,
}

/// Tokens read from and written to the provider's cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, transform = numbers)]
pub struct TokensCache {
    /// Read.
    pub read: u64,
    /// Written.
    pub write: u64,
}
