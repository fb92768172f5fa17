//! W3C trace context.

use axum::http::{HeaderMap, HeaderValue};

/// The trace that a request belongs to: the client's, or a new one if it names none or a malformed one.
#[derive(Debug, Clone)]
pub struct TraceContext {}

impl TraceContext {
    /// The trace of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        let _ = headers;
        unimplemented!()
    }

    /// The value of `traceparent`, as a header.
    pub fn header(&self) -> HeaderValue {
        unimplemented!()
    }

    /// The value of `traceparent`, as text.
    pub fn header_text(&self) -> String {
        unimplemented!()
    }

    /// The id of the trace.
    pub fn trace_id(&self) -> &str {
        unimplemented!()
    }
}
