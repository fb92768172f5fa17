//! Why a request was refused.

use api::HostError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The codes of JSON-RPC and of ACP.
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters make no sense.
    pub const INVALID_PARAMS: i64 = -32602;
    /// It was tried and failed.
    pub const INTERNAL: i64 = -32603;
    /// The human must sign in first.
    pub const AUTH_REQUIRED: i64 = -32000;
    /// There is no such thing.
    pub const NOT_FOUND: i64 = -32002;
    /// The asking side no longer wants it.
    pub const CANCELLED: i64 = -32800;
}

/// An error as it goes over the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Error {
    /// What kind.
    pub code: i64,
    /// In words.
    pub message: String,
    /// More.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Error {
    /// An error of any kind.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Not JSON.
    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(code::PARSE, message)
    }

    /// Not a request, or not now.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// No such method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("Method not found: {method}")).with(json!({ "method": method }))
    }

    /// The parameters make no sense.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// It was tried and failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, message)
    }

    /// The asking side no longer wants it.
    pub fn cancelled() -> Self {
        Self::new(code::CANCELLED, "Request cancelled")
    }

    /// Adds facts for programs.
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
            HostError::Unavailable(_) | HostError::Full(_) | HostError::Failed(_) => code::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}
