//! Errors of model requests.

use std::time::Duration;

use api::{ApiErrorData, MessageError, ProviderAuthData, TextData};
use indexmap::IndexMap;

use crate::bound::MAX_ANSWER;

/// The maximum size of an error response that is kept, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// The maximum length of an error message, in bytes.
pub const MAX_MESSAGE: usize = 4 * 1024;

/// A failed request. Contains no secrets: keys are removed from everything that the server echoed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct LlmError {
    /// How to react.
    pub class: ErrorClass,
    /// What happened; in the vendor's own words if there are any.
    pub message: String,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The response headers.
    pub headers: Box<IndexMap<String, String>>,
    /// The response body, bounded.
    pub body: Option<String>,
    /// The requested URL, without credentials and query.
    pub url: Option<String>,
    /// When the server wants us to retry.
    pub retry_after: Option<Duration>,
}

/// How to react to a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Retry later: overload, rate limit, network, broken stream.
    Retryable,
    /// The key is missing, invalid or not authorised.
    Auth,
    /// The conversation is too long for the model.
    ContextOverflow,
    /// The vendor refused the content.
    ContentFilter,
    /// The request is invalid; a retry does not help.
    Invalid,
    /// The answer was too long; another attempt would cost as much again.
    TooLong,
}

impl LlmError {
    /// An error without a response.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: bounded(message.into(), MAX_MESSAGE),
            status: None,
            headers: Box::default(),
            body: None,
            url: None,
            retry_after: None,
        }
    }

    /// A transient error.
    pub(crate) fn retryable(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Retryable, message)
    }

    /// A permanent error.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Invalid, message)
    }

    /// The error for an answer that is too long.
    pub(crate) fn too_long() -> Self {
        let most = MAX_ANSWER >> 20;
        Self::new(
            ErrorClass::TooLong,
            format!(
                "The model wrote more than {most} MB in one answer, so the stream was closed. What it wrote until then \
                 is kept; ask for a shorter answer, or for one in parts"
            ),
        )
    }

    /// Adds the requested URL.
    pub(crate) fn at(mut self, url: &str) -> Self {
        self.url.get_or_insert_with(|| url.to_owned());
        self
    }

    /// Converts it to a message's error. A refused key is an `APIError` if there is an HTTP response to show, as in
    /// OpenCode; `ProviderAuthError` is for a key that is known to be missing before anything is sent.
    pub fn into_message_error(self, provider_id: &str) -> MessageError {
        match self.class {
            ErrorClass::ContextOverflow => MessageError::ContextOverflowError(self.into_text()),
            ErrorClass::ContentFilter => MessageError::ContentFilterError(self.into_text()),
            ErrorClass::TooLong => MessageError::output_length(self.message),
            ErrorClass::Auth if self.status.is_none() => MessageError::ProviderAuthError(ProviderAuthData {
                provider_id: provider_id.to_owned(),
                message: self.message,
            }),
            class => MessageError::ApiError(ApiErrorData {
                message: self.message,
                status_code: self.status,
                is_retryable: class == ErrorClass::Retryable,
                response_headers: self.status.is_some().then_some(*self.headers),
                response_body: self.body,
                metadata: self.url.map(|url| IndexMap::from([("url".to_owned(), url)])),
            }),
        }
    }

    fn into_text(self) -> TextData {
        TextData { response_body: self.body, ..TextData::new(self.message) }
    }
}

/// Truncates a text at a character boundary, and marks that.
pub(crate) fn bounded(mut text: String, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(class: ErrorClass, status: Option<u16>) -> LlmError {
        let mut error = LlmError::new(class, "no").at("http://h/v1");
        error.status = status;
        error.body = Some("{}".into());
        error
    }

    #[test]
    fn message_errors_match_the_recordings() {
        let json = |error: LlmError| serde_json::to_value(error.into_message_error("acme")).unwrap();
        assert_eq!(
            json(error(ErrorClass::Auth, Some(401))),
            serde_json::json!({"name": "APIError", "data": {"message": "no", "statusCode": 401, "isRetryable": false,
                "responseHeaders": {}, "responseBody": "{}", "metadata": {"url": "http://h/v1"}}})
        );
        assert_eq!(json(error(ErrorClass::Retryable, None))["data"]["isRetryable"], true);
        assert_eq!(
            json(error(ErrorClass::Auth, None)),
            serde_json::json!({"name": "ProviderAuthError", "data": {"providerID": "acme", "message": "no"}})
        );
        assert_eq!(
            json(error(ErrorClass::ContextOverflow, Some(400))),
            serde_json::json!({"name": "ContextOverflowError", "data": {"message": "no", "responseBody": "{}"}})
        );
        assert_eq!(json(error(ErrorClass::ContentFilter, Some(400)))["name"], "ContentFilterError");
        assert_eq!(
            json(error(ErrorClass::TooLong, None)),
            serde_json::json!({"name": "MessageOutputLengthError", "data": {"message": "no"}})
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded("short".into(), 5), "short");
        assert_eq!(bounded("ééééé".into(), 8), "éé…");
        assert!(LlmError::invalid("x".repeat(1 << 20)).message.len() <= MAX_MESSAGE);
    }
}
