//! What a model is asked, independent of vendors.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use api::{Json, JsonMap, SerializedJson, json_size};
use serde_json::value::RawValue;

use crate::ChatDialect;

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
    /// Options of the configuration, in the AI SDK's names or a vendor's own; the wire translates them.
    pub options: JsonMap,
    /// Additional headers for this request; they take precedence over the endpoint's.
    pub headers: Vec<(String, String)>,
    /// The id of the user message being answered; [`crate::Script`] rules may match it.
    pub message_id: Option<String>,
    /// The id of the conversation, by which some vendors find their cache of it.
    pub session: Option<String>,
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

/// What a message's wire form depends on besides the message.
pub(crate) type WireForm = Arc<ChatDialect>;

#[derive(Debug)]
struct CachedMessageInner {
    message: PromptMessage,
    length: Length,
    /// The wire form that was asked for last, and the form it has.
    wire: Mutex<Option<(WireForm, Option<Arc<RawValue>>)>>,
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

    /// The wire form of the message, if it depends on nothing but the message and `form`; serialised on first use, and
    /// again when the conversation goes to a model of another form.
    pub(crate) fn wire(
        &self,
        form: &WireForm,
        write: impl FnOnce(&PromptMessage) -> Option<Box<RawValue>>,
    ) -> Option<Arc<RawValue>> {
        let mut kept = self.0.wire.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((known, text)) if Arc::ptr_eq(known, form) || known == form => text.clone(),
            _ => {
                let text = write(&self.0.message).map(Arc::from);
                *kept = Some((form.clone(), text.clone()));
                text
            }
        }
    }
}

impl From<PromptMessage> for CachedMessage {
    fn from(message: PromptMessage) -> Self {
        let length = message.length();
        Self(Arc::new(CachedMessageInner { message, length, wire: Mutex::default() }))
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
                    let (text, metadata) = match piece {
                        AssistantContent::Text { text, metadata } | AssistantContent::Reasoning { text, metadata } => {
                            (text.len(), metadata)
                        }
                        AssistantContent::ToolCall { name, input, metadata, .. } => {
                            (name.len() + json_size(input), metadata)
                        }
                        AssistantContent::VendorCall { name, input, output, metadata, .. } => {
                            (name.len() + json_size(input) + output.len(), metadata)
                        }
                    };
                    length.text += text + if metadata.is_empty() { 0 } else { json_size(metadata) };
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

/// A piece of an assistant message. `metadata` is what its vendor gave with it and wants back, by vendor; a wire takes
/// its own and ignores the rest.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantContent {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// The vendor's data.
        metadata: JsonMap,
    },
    /// Reasoning; its text is empty if it is encrypted.
    Reasoning {
        /// Its text.
        text: String,
        /// The vendor's data, for example a signature.
        metadata: JsonMap,
    },
    /// A tool call.
    ToolCall {
        /// Its id, unique within the message.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Json,
        /// The vendor's data.
        metadata: JsonMap,
    },
    /// A call that the vendor ran itself, with its result. It has no message with a result, and a wire that has no form
    /// for it leaves it out.
    VendorCall {
        /// Its id, unique within the message.
        id: String,
        /// The vendor's tool.
        name: String,
        /// The arguments.
        input: Json,
        /// The result, as people read it.
        output: String,
        /// Whether it failed.
        is_error: bool,
        /// The vendor's data, from which it goes back verbatim.
        metadata: JsonMap,
    },
}

impl AssistantContent {
    /// Text without data of a vendor.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), metadata: JsonMap::new() }
    }

    /// Whether it has data that only its vendor understands.
    pub fn has_vendor_data(&self) -> bool {
        match self {
            Self::Text { metadata, .. } | Self::Reasoning { metadata, .. } | Self::ToolCall { metadata, .. } => {
                !metadata.is_empty()
            }
            Self::VendorCall { .. } => true,
        }
    }

    /// The same for another vendor; `None` if nothing is left.
    pub fn without_vendor_data(&self) -> Option<Self> {
        let none = JsonMap::new;
        match self {
            Self::Text { text, .. } if !text.is_empty() => Some(Self::text(text.clone())),
            Self::Reasoning { text, .. } if !text.is_empty() => {
                Some(Self::Reasoning { text: text.clone(), metadata: none() })
            }
            Self::ToolCall { id, name, input, .. } => {
                Some(Self::ToolCall { id: id.clone(), name: name.clone(), input: input.clone(), metadata: none() })
            }
            Self::Text { .. } | Self::Reasoning { .. } | Self::VendorCall { .. } => None,
        }
    }
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
