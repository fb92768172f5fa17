//! Questions to the human: permissions and the `question` tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Extra, JsonMap, MessageId, PermissionId, QuestionId, SessionId};

/// The tool call that asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QuestionTool")]
pub struct ToolRef {
    /// Its message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// Its call.
    #[serde(rename = "callID")]
    pub call_id: String,
}

/// May the agent do this?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PermissionRequest {
    /// Its id.
    pub id: PermissionId,
    /// The session that asks.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The permission, for example `edit`.
    pub permission: String,
    /// What for: commands, paths.
    pub patterns: Vec<String>,
    /// What a client shows: a diff, a command.
    pub metadata: JsonMap,
    /// The patterns that an answer `always` allows.
    pub always: Vec<String>,
    /// The tool call that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolRef>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How a permission was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PermissionReplyKind {
    /// This time.
    Once,
    /// From now on, in this project.
    Always,
    /// No.
    Reject,
}

/// An answer to a permission request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PermissionReply {
    /// The answer.
    pub reply: PermissionReplyKind,
    /// With `reject`: what the agent should do instead; the turn then goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Questions that the agent asks with its `question` tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionRequest {
    /// Its id.
    pub id: QuestionId,
    /// The session that asks.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The questions.
    pub questions: Vec<Question>,
    /// The tool call that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolRef>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QuestionInfo")]
pub struct Question {
    /// The question.
    pub question: String,
    /// In a word or two.
    pub header: String,
    /// What can be chosen.
    pub options: Vec<QuestionOption>,
    /// Whether several can be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiple: Option<bool>,
    /// Whether a free answer is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<bool>,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionOption {
    /// The choice.
    pub label: String,
    /// What it means.
    pub description: String,
}
