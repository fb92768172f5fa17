//! JSON-RPC errors.

use api::HostError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The error codes of JSON-RPC, and of the protocols on top of it.
pub mod code {
    /// Invalid JSON.
    pub const PARSE: i64 = -32700;
    /// Not a valid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Unknown method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Invalid parameters.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The request failed.
    pub const INTERNAL: i64 = -32603;
    /// The user must sign in first.
    pub const AUTH_REQUIRED: i64 = -32000;
    /// Resource not found.
    pub const NOT_FOUND: i64 = -32002;
    /// The requester cancelled the request.
    pub const CANCELLED: i64 = -32800;
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Error {
    /// One of [`code`].
    #[serde(default)]
    pub code: i64,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Error {
    /// An error with this code.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Invalid JSON.
    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(code::PARSE, message)
    }

    /// Not a valid request, or not valid now.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// Unknown method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("Method not found: {method}")).with(json!({ "method": method }))
    }

    /// Invalid parameters.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// The request failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, message)
    }

    /// The requester cancelled the request.
    pub fn cancelled() -> Self {
        Self::new(code::CANCELLED, "Request cancelled")
    }

    /// The error of a response. Some servers leave out parts of it, or send something else.
    pub fn from_response(error: Value) -> Self {
        let error: Option<Self> = serde_json::from_value(error).ok();
        let has_content = |error: &Self| error.code != 0 || !error.message.is_empty();
        error.filter(has_content).unwrap_or_else(|| Self::internal("The other side failed without a valid error"))
    }

    /// Adds data for programs.
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        let code = match &error {
            HostError::NotFound { .. } => code::NOT_FOUND,
            HostError::NoModel { .. } => code::AUTH_REQUIRED,
            HostError::Invalid(_) | HostError::Conflict(_) => code::INVALID_PARAMS,
            HostError::Busy(_) => code::INVALID_REQUEST,
            HostError::Unsupported(_) => code::METHOD_NOT_FOUND,
            HostError::Forbidden(_)
            | HostError::Unavailable(_)
            | HostError::Late(_)
            | HostError::Overloaded(_)
            | HostError::Upstream { .. }
            | HostError::Payload(_)
            | HostError::Full(_)
            | HostError::Failed(_) => code::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}
