//! Why a model did not answer.

use std::time::Duration;

use api::{ApiErrorData, MessageError, ProviderAuthData, TextData};
use indexmap::IndexMap;

use crate::bound::MAX_ANSWER;

/// The most that is kept of an answer that is an error, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// The longest message of an error, in bytes.
pub const MAX_MESSAGE: usize = 4 * 1024;

/// A failed request. Holds no secret: keys are cut out of everything that the server echoed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct LlmError {
    /// What to do about it.
    pub class: ErrorClass,
    /// What happened; the vendor's own words where there are any.
    pub message: String,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The answer's headers.
    pub headers: Box<IndexMap<String, String>>,
    /// The answer's body, bounded.
    pub body: Option<String>,
    /// What was asked, without credentials and query.
    pub url: Option<String>,
    /// When the server wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// What to do about a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Ask again later: overload, rate limit, network, broken stream.
    Retryable,
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// The conversation is too long for the model.
    ContextOverflow,
    /// The vendor refuses the content.
    ContentFilter,
    /// The request is wrong; asking again does not help.
    Invalid,
    /// The answer became longer than is taken; another try would be paid for once more.
    TooLong,
}

impl LlmError {
    /// An error without an answer of the server.
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

    /// An error that may pass.
    pub(crate) fn retryable(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Retryable, message)
    }

    /// An error that will not pass.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Invalid, message)
    }

    /// The error of an answer without end.
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

    /// The same, with the address that was asked.
    pub(crate) fn at(mut self, url: &str) -> Self {
        self.url.get_or_insert_with(|| url.to_owned());
        self
    }

    /// As a message's error. A refused key is an `APIError` while there is an HTTP answer to show, as OpenCode has it;
    /// `ProviderAuthError` is for a key that is known to be missing before anything was sent.
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

/// Cuts a text at a character's boundary, and says so.
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
    fn message_errors_have_the_recorded_shapes() {
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
