//! The events of a task's stream, in one vocabulary for both lines.

use api::JsonMap;
use serde::{Deserialize, Serialize};

use crate::model::{Message, Part, TaskState, TaskStatus};

/// The kind of a block of a stream, as `metadata.shared.stream.block_type` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Text of the answer.
    Text,
    /// Reasoning.
    Reasoning,
    /// The state of a tool call.
    ToolCall,
}

/// The artifact of a stream that an event adds to. In 1.0 each lane is an artifact of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// The answer.
    Text,
    /// Reasoning.
    Reasoning,
    /// One tool call, by the id of its part.
    Tool(String),
}

impl Lane {
    /// The kind of its blocks.
    pub fn block(&self) -> Block {
        match self {
            Self::Text => Block::Text,
            Self::Reasoning => Block::Reasoning,
            Self::Tool(_) => Block::ToolCall,
        }
    }
}

/// What `metadata.shared.stream` says about an event besides its number, block and event id, which are derived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamMark {
    /// The message of the agent runtime that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Where it comes from: `stream`, `tool_part_update`, `status`, `interrupt` or `progress`.
    pub source: String,
    /// The role of the message, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// An event of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaskEvent {
    /// The task's status changed, or it made progress.
    Status {
        /// The status.
        status: TaskStatus,
        /// Data of extensions beside `shared.stream`: session, usage, progress, interrupt.
        #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
        metadata: JsonMap,
        /// Where it comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<StreamMark>,
    },
    /// More of an artifact.
    Artifact {
        /// Which artifact.
        id: crate::model::ArtifactId,
        /// The name of the artifact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// What is added, or the whole content where `append` is false.
        parts: Vec<Part>,
        /// Whether an earlier event has begun this artifact.
        append: bool,
        /// Whether an earlier event has begun any lane of this task: the artifact of 0.3.
        append_any: bool,
        /// Whether nothing follows for this artifact.
        #[serde(default)]
        last_chunk: bool,
        /// Data of extensions beside `shared.stream`.
        #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
        metadata: JsonMap,
        /// Where it comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<StreamMark>,
    },
    /// A message instead of a task; the only event of its stream.
    Message(Message),
}

impl TaskEvent {
    /// The state that it reports.
    pub fn state(&self) -> Option<TaskState> {
        match self {
            Self::Status { status, .. } => Some(status.state),
            Self::Artifact { .. } | Self::Message(_) => None,
        }
    }

    /// Whether the stream ends with it.
    pub fn is_last(&self) -> bool {
        self.state().is_some_and(TaskState::is_terminal) || matches!(self, Self::Message(_))
    }
}

/// An event with its number in its task's stream, counted from 1 without gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumberedEvent {
    /// Its number.
    pub seq: u64,
    /// The event.
    pub event: TaskEvent,
}
