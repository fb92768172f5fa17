//! Errors of a step, as clients read them (`{"name": …, "data": …}`).

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::shape;
use crate::{Bound, JsonMap};

/// The error of a message or of a `session.error` event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", content = "data")]
#[schemars(inline)]
pub enum MessageError {
    /// The provider refused the request or failed.
    #[serde(rename = "APIError")]
    #[schemars(title = "APIError")]
    ApiError(ApiErrorData),
    /// The API key is missing or invalid.
    #[schemars(title = "ProviderAuthError")]
    ProviderAuthError(ProviderAuthData),
    /// The conversation is too long for the model.
    #[schemars(title = "ContextOverflowError", with = "shape::Overflow")]
    ContextOverflowError(TextData),
    /// The provider's content filter cut off the answer.
    #[schemars(title = "ContentFilterError", with = "shape::Text")]
    ContentFilterError(TextData),
    /// The answer reached the output limit.
    #[schemars(title = "MessageOutputLengthError")]
    MessageOutputLengthError(NoData),
    /// The turn was stopped.
    #[schemars(title = "MessageAbortedError", with = "shape::Text")]
    MessageAbortedError(TextData),
    /// The answer does not match the requested schema.
    #[schemars(title = "StructuredOutputError")]
    StructuredOutputError(StructuredOutputData),
    /// Anything else.
    #[schemars(title = "UnknownError", with = "shape::Unknown")]
    UnknownError(TextData),
}

impl MessageError {
    /// An `UnknownError`.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::UnknownError(TextData::new(message))
    }

    /// An `UnknownError` of a turn that reached one of its limits.
    pub fn limit(bound: Bound, message: impl Into<String>) -> Self {
        Self::UnknownError(TextData { limit: Some(bound), ..TextData::new(message) })
    }

    /// A `MessageOutputLengthError` that names what was too long.
    pub fn output_length(message: impl Into<String>) -> Self {
        let message = crate::Json::String(message.into());
        Self::MessageOutputLengthError(NoData { data: JsonMap::from_iter([("message".to_owned(), message)]) })
    }

    /// A `MessageAbortedError`.
    pub fn aborted() -> Self {
        Self::MessageAbortedError(TextData::new("Aborted"))
    }

    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ApiError(_) => "APIError",
            Self::ProviderAuthError(_) => "ProviderAuthError",
            Self::ContextOverflowError(_) => "ContextOverflowError",
            Self::ContentFilterError(_) => "ContentFilterError",
            Self::MessageOutputLengthError(_) => "MessageOutputLengthError",
            Self::MessageAbortedError(_) => "MessageAbortedError",
            Self::StructuredOutputError(_) => "StructuredOutputError",
            Self::UnknownError(_) => "UnknownError",
        }
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        match self {
            Self::ApiError(d) => &d.message,
            Self::ProviderAuthError(d) => &d.message,
            Self::ContextOverflowError(d)
            | Self::ContentFilterError(d)
            | Self::MessageAbortedError(d)
            | Self::UnknownError(d) => &d.message,
            Self::StructuredOutputError(d) => &d.message,
            Self::MessageOutputLengthError(d) => {
                let message = d.data.get("message").and_then(crate::Json::as_str);
                message.unwrap_or("The answer reached the output limit of the model")
            }
        }
    }
}

/// A failure of a model's API.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ApiErrorData {
    /// What the provider said.
    pub message: String,
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u32>")]
    pub status_code: Option<u16>,
    /// Whether a retry may help.
    pub is_retryable: bool,
    /// The response headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_headers: Option<IndexMap<String, String>>,
    /// The response body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<String>,
    /// Further data, for example the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<IndexMap<String, String>>,
}

/// The API key is missing or invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ProviderAuthData {
    /// The provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// What is wrong and how to fix it.
    pub message: String,
}

/// An error that has only a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextData {
    /// What happened.
    pub message: String,
    /// The provider's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<String>,
    /// A reference into the log.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The limit that the turn reached. A Trefoil extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bound>,
}

impl TextData {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }
}

/// An error that usually has no data beside its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct NoData {
    /// Any data that came with it.
    #[serde(flatten)]
    pub data: JsonMap,
}

/// The answer does not match the requested schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct StructuredOutputData {
    /// How it fails to match.
    pub message: String,
    /// How many attempts were made.
    pub retries: u32,
}
