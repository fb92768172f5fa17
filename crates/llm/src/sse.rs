//! The event streams of model servers: their limit, and the error for a response that is not one.

use web::EventTooLarge;

use crate::LlmError;
use crate::error::bounded;

/// The maximum size of an event, in bytes. A stream that exceeds it is broken or hostile.
pub const MAX_EVENT: usize = 8 * 1024 * 1024;

impl From<EventTooLarge> for LlmError {
    fn from(EventTooLarge { limit }: EventTooLarge) -> Self {
        Self::retryable(format!(
            "The model's server sent a single event of more than {limit} bytes; the stream was closed"
        ))
    }
}

/// The error for a response without any event.
pub fn not_a_stream(stray: &str) -> LlmError {
    if crate::classify::is_html(stray) {
        return LlmError::invalid(
            "The server answered with a web page instead of a model's stream; check the provider's baseURL (it usually ends in /v1)",
        );
    }
    if let Ok(json) = serde_json::from_str::<api::Json>(stray)
        && json.is_object()
    {
        return crate::classify::stream_error(&json);
    }
    if stray.is_empty() {
        return LlmError::retryable("The model's server closed the connection before it answered anything");
    }
    LlmError::retryable(format!("The server's answer is not a model's stream: {}", bounded(stray.to_owned(), 300)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_are_not_streams_are_explained() {
        use crate::ErrorClass;
        assert_eq!(not_a_stream("<!DOCTYPE html>\n").class, ErrorClass::Invalid);
        assert_eq!(not_a_stream("").class, ErrorClass::Retryable);
        let error = not_a_stream(r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#);
        assert_eq!((error.class, error.message.as_str()), (ErrorClass::ContextOverflow, "too long"));
        assert!(not_a_stream("hm").message.ends_with("hm"));
    }
}
