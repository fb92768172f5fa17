//! Prompts, commands and everything else that a caller sends into a session.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::part::{AgentSource, PartTime};
use crate::schema::shape;
use crate::{FileSource, JsonMap, MessageId, ModelRef, OutputFormat, PartId};

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum PromptPart {
    /// Text.
    #[schemars(title = "TextPartInput")]
    Text {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// The text.
        text: String,
        /// Added for the model, not written by the human.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        synthetic: Option<bool>,
        /// Shown to the human, not sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignored: Option<bool>,
        /// When it was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<PartTime>,
        /// Data that the client wants back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<JsonMap>,
    },
    /// A file, a directory or an image.
    #[schemars(title = "FilePartInput")]
    File {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// Its media type.
        mime: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
        /// `file:` or `data:`.
        url: String,
        /// Where it was mentioned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<shape::FilePartSource>")]
        source: Option<FileSource>,
    },
    /// An agent mentioned in the prompt.
    #[schemars(title = "AgentPartInput")]
    Agent {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// The agent.
        name: String,
        /// Where it was mentioned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<AgentSource>,
    },
    /// A task for a subagent.
    #[schemars(title = "SubtaskPartInput")]
    Subtask {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// What it should do.
        prompt: String,
        /// A short description of the task.
        description: String,
        /// The agent that should do it.
        agent: String,
        /// The model to use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelRef>,
        /// The command it comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
}

impl PromptPart {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { id: None, text: text.into(), synthetic: None, ignored: None, time: None, metadata: None }
    }
}

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptInput {
    /// Its content.
    pub parts: Vec<PromptPart>,
    /// The message's id, if the client chose one; the same id sent twice is accepted once.
    #[serde(rename = "messageID")]
    pub message_id: Option<MessageId>,
    /// The model, if not the session's.
    pub model: Option<ModelRef>,
    /// The agent, if not the session's.
    pub agent: Option<String>,
    /// Store the prompt without running a turn.
    #[serde(rename = "noReply")]
    pub no_reply: bool,
    /// Tools switched on or off for this turn.
    pub tools: Option<IndexMap<String, bool>>,
    /// An addition to the system prompt.
    pub system: Option<String>,
    /// The model variant, for example its reasoning effort.
    pub variant: Option<String>,
    /// The required format of the answer.
    pub format: Option<OutputFormat>,
    /// The W3C trace context of the prompt, propagated to the model calls; that of its [`Caller`](crate::Caller) without
    /// one.
    #[serde(skip)]
    pub traceparent: Option<String>,
}

/// The agent and model for a call that is not a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptTarget {
    /// The agent.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<ModelRef>,
    /// The model variant, for example its reasoning effort.
    pub variant: Option<String>,
    /// The message's id, if the client chose one.
    pub message_id: Option<MessageId>,
}

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandInput {
    /// Its name, without the slash.
    pub command: String,
    /// The text after the name.
    pub arguments: String,
    /// Agent and model, if not the command's own.
    pub target: PromptTarget,
    /// Files sent along.
    pub parts: Vec<PromptPart>,
}

/// A shell command that the human runs in the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShellInput {
    /// The command line.
    pub command: String,
    /// Agent and model of the resulting message.
    pub target: PromptTarget,
}

/// The input of `summarize`.
#[derive(Debug, Clone, PartialEq)]
pub struct SummarizeInput {
    /// The model.
    pub model: ModelRef,
    /// Whether the turn continues afterwards.
    pub auto: bool,
}
