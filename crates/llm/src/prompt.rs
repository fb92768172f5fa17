//! What a model is asked, in no vendor's words.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use api::{Json, JsonMap, Written, json_size};
use serde_json::value::RawValue;

/// One request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// System texts; the stable ones first, for the vendor's prompt cache.
    pub system: Vec<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<Said>,
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

/// A message of a conversation that is sent again with every request. Cheap to clone: how long it is and what it looks like
/// on the wire is found out once, for all clones together.
#[derive(Debug, Clone)]
pub struct Said(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    message: PromptMessage,
    length: Length,
    wire: OnceLock<Option<Box<RawValue>>>,
}

/// How long something is that a model reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Length {
    /// The bytes of its texts, arguments and files.
    pub text: usize,
    /// How many pictures it has.
    pub pictures: usize,
    /// The bytes of the pictures.
    pub picture_bytes: usize,
}

impl std::ops::AddAssign for Length {
    fn add_assign(&mut self, other: Self) {
        self.text += other.text;
        self.pictures += other.pictures;
        self.picture_bytes += other.picture_bytes;
    }
}

impl Said {
    /// How long it is.
    pub fn length(&self) -> Length {
        self.0.length
    }

    /// The message as a wire has it, if that depends on nothing but the message; written at the first call.
    pub(crate) fn wire(&self, write: impl FnOnce(&PromptMessage) -> Option<Box<RawValue>>) -> Option<&RawValue> {
        self.0.wire.get_or_init(|| write(&self.0.message)).as_deref()
    }
}

impl From<PromptMessage> for Said {
    fn from(message: PromptMessage) -> Self {
        let length = message.length();
        Self(Arc::new(Shared { message, length, wire: OnceLock::new() }))
    }
}

impl Deref for Said {
    type Target = PromptMessage;

    fn deref(&self) -> &PromptMessage {
        &self.0.message
    }
}

impl PartialEq for Said {
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
    /// A picture.
    Image {
        /// Its media type.
        mime: String,
        /// Its name, if it has one.
        filename: Option<String>,
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
