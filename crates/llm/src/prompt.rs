//! What a model is asked, in no vendor's words.

use std::sync::Arc;

use api::{Json, JsonMap, Written};

/// One request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// System texts; the stable ones first, for the vendor's prompt cache.
    pub system: Vec<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<PromptMessage>,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// How to answer.
    pub settings: Settings,
}

/// How a model should answer, and what goes along with the request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// The longest answer, in tokens.
    pub max_output: Option<u64>,
    /// Vendor options, merged into the request's body.
    pub options: JsonMap,
    /// Further headers of this request; they win over the endpoint's.
    pub headers: Vec<(String, String)>,
    /// The user message that is answered; [`crate::Script`] rules may match it.
    pub message_id: Option<String>,
    /// The model's id; [`crate::Script`] rules may match it. Wires take theirs from the endpoint.
    pub model: Option<String>,
    /// Which step of the turn this is, from 0. Informative: `script` counts the messages itself.
    pub step: u32,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptMessage {
    /// What the human (or the engine in their place) says.
    User(Vec<Content>),
    /// What the model said.
    Assistant(Vec<AssistantContent>),
    /// What a tool call gave.
    Tool(ToolResult),
}

/// A piece of a user message, or an attachment of a tool result.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// A picture.
    Image {
        /// Its media type.
        mime: String,
        /// `data:` address with the bytes, or an `https:` one.
        data_url: String,
    },
    /// Another document, for example a PDF.
    File {
        /// Its media type.
        mime: String,
        /// Its name.
        filename: String,
        /// `data:` address with the bytes.
        data_url: String,
    },
}

/// A piece of what the model said.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantContent {
    /// Answer text.
    Text(String),
    /// Thinking.
    Reasoning {
        /// Its text.
        text: String,
        /// What the vendor wants back with it (signatures).
        metadata: Option<JsonMap>,
    },
    /// A call of a tool.
    ToolCall {
        /// Its id, unique within the message.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Json,
    },
}

/// What a tool call gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The text for the model.
    pub output: String,
    /// Whether it is an error.
    pub is_error: bool,
    /// Pictures and documents that belong to it.
    pub attachments: Vec<Content>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON schema of its arguments.
    pub schema: Written,
}
