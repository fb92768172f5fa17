//! What a model is asked, independent of vendors.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use api::{Json, JsonMap, SerializedJson, json_size};
use serde_json::value::RawValue;

/// One request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// System texts; stable ones first, for the vendor's prompt cache.
    pub system: Vec<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<CachedMessage>,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// How to answer.
    pub settings: Settings,
}

/// How a model should answer, and what is sent along with the request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// The maximum length of the answer, in tokens.
    pub max_output: Option<u64>,
    /// Vendor options, merged into the request body.
    pub options: JsonMap,
    /// Additional headers for this request; they take precedence over the endpoint's.
    pub headers: Vec<(String, String)>,
    /// The id of the user message being answered; [`crate::Script`] rules may match it.
    pub message_id: Option<String>,
    /// The model's id; [`crate::Script`] rules may match it. Real wires take theirs from the endpoint.
    pub model: Option<String>,
    /// The step of the turn, from 0. Informational: `script` counts the messages itself.
    pub step: u32,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptMessage {
    /// From the human, or the engine on their behalf.
    User(Vec<Content>),
    /// From the model.
    Assistant(Vec<AssistantContent>),
    /// The result of a tool call.
    Tool(ToolResult),
}

/// A message that is sent again with every request. Cheap to clone: its length and wire form are computed once for all
/// clones.
#[derive(Debug, Clone)]
pub struct CachedMessage(Arc<CachedMessageInner>);

#[derive(Debug)]
struct CachedMessageInner {
    message: PromptMessage,
    length: Length,
    wire: OnceLock<Option<Box<RawValue>>>,
}

/// The length of what a model reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Length {
    /// The size of texts, arguments and files in bytes.
    pub text: usize,
    /// The number of images.
    pub pictures: usize,
    /// The size of the images in bytes.
    pub picture_bytes: usize,
}

impl std::ops::AddAssign for Length {
    fn add_assign(&mut self, other: Self) {
        self.text += other.text;
        self.pictures += other.pictures;
        self.picture_bytes += other.picture_bytes;
    }
}

impl CachedMessage {
    /// Its length.
    pub fn length(&self) -> Length {
        self.0.length
    }

    /// The wire form of the message, if it depends on nothing but the message; serialised on first use.
    pub(crate) fn wire(&self, write: impl FnOnce(&PromptMessage) -> Option<Box<RawValue>>) -> Option<&RawValue> {
        self.0.wire.get_or_init(|| write(&self.0.message)).as_deref()
    }
}

impl From<PromptMessage> for CachedMessage {
    fn from(message: PromptMessage) -> Self {
        let length = message.length();
        Self(Arc::new(CachedMessageInner { message, length, wire: OnceLock::new() }))
    }
}

impl Deref for CachedMessage {
    type Target = PromptMessage;

    fn deref(&self) -> &PromptMessage {
        &self.0.message
    }
}

impl PartialEq for CachedMessage {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PromptMessage {
    fn length(&self) -> Length {
        let mut length = Length::default();
        match self {
            Self::User(content) => content.iter().for_each(|content| length += content.length()),
            Self::Assistant(content) => {
                for piece in content {
                    length.text += match piece {
                        AssistantContent::Text(text) | AssistantContent::Reasoning { text, .. } => text.len(),
                        AssistantContent::ToolCall { name, input, .. } => name.len() + json_size(input),
                    };
                }
            }
            Self::Tool(result) => {
                length.text += result.output.len();
                result.attachments.iter().for_each(|content| length += content.length());
            }
        }
        length
    }
}

impl Content {
    fn length(&self) -> Length {
        match self {
            Self::Text(text) => Length { text: text.len(), ..Length::default() },
            Self::Image { data_url, .. } => Length { text: 0, pictures: 1, picture_bytes: data_url.len() },
            Self::File { data_url, .. } => Length { text: data_url.len(), ..Length::default() },
        }
    }
}

/// A piece of a user message, or an attachment of a tool result.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// An image.
    Image {
        /// Its media type.
        mime: String,
        /// Its name, if it has one.
        filename: Option<String>,
        /// A `data:` URL with the bytes, or an `https:` URL.
        data_url: String,
    },
    /// Another document, for example a PDF.
    File {
        /// Its media type.
        mime: String,
        /// Its name.
        filename: String,
        /// A `data:` URL with the bytes.
        data_url: String,
    },
}

/// A piece of an assistant message.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantContent {
    /// Text.
    Text(String),
    /// Reasoning.
    Reasoning {
        /// Its text.
        text: String,
        /// What the vendor wants back with it (signatures).
        metadata: Option<JsonMap>,
    },
    /// A tool call.
    ToolCall {
        /// Its id, unique within the message.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Json,
    },
}

/// The result of a tool call.
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
    /// Images and documents that belong to it.
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
    pub schema: SerializedJson,
}
