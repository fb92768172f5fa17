//! Why a step did not end well, as clients read it (`{"name": …, "data": …}`).

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
    /// The provider refused or failed.
    #[serde(rename = "APIError")]
    #[schemars(title = "APIError")]
    ApiError(ApiErrorData),
    /// No valid key.
    #[schemars(title = "ProviderAuthError")]
    ProviderAuthError(ProviderAuthData),
    /// The conversation is too long for the model.
    #[schemars(title = "ContextOverflowError", with = "shape::Overflow")]
    ContextOverflowError(TextData),
    /// The provider's filter cut the answer.
    #[schemars(title = "ContentFilterError", with = "shape::Text")]
    ContentFilterError(TextData),
    /// The answer hit the output limit.
    #[schemars(title = "MessageOutputLengthError")]
    MessageOutputLengthError(NoData),
    /// Somebody stopped it.
    #[schemars(title = "MessageAbortedError", with = "shape::Text")]
    MessageAbortedError(TextData),
    /// The answer does not fit the asked schema.
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

    /// An `UnknownError` of a turn that has used all that it may.
    pub fn limit(bound: Bound, message: impl Into<String>) -> Self {
        Self::UnknownError(TextData { limit: Some(bound), ..TextData::new(message) })
    }

    /// A `MessageOutputLengthError` that says what was too long.
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

    /// What happened, in words.
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
    /// Whether another try may help.
    pub is_retryable: bool,
    /// The answer's headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_headers: Option<IndexMap<String, String>>,
    /// The answer's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<String>,
    /// More, for example the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<IndexMap<String, String>>,
}

/// No valid key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ProviderAuthData {
    /// The provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// An error that is a text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextData {
    /// What happened.
    pub message: String,
    /// What the provider answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<String>,
    /// Where the log has more.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What the turn has used up. Trefoil's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bound>,
}

impl TextData {
    /// Just a text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }
}

/// An error whose name says it all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct NoData {
    /// Whatever was there.
    #[serde(flatten)]
    pub data: JsonMap,
}

/// The answer does not fit the asked schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct StructuredOutputData {
    /// What does not fit.
    pub message: String,
    /// How often it was tried.
    pub retries: u32,
}
