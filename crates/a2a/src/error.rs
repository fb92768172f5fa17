//! Why a call fails. `wire` gives each kind the code, status and shape of its line.

use api::{Json, JsonMap};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    // JSON-RPC.
    /// The body is no JSON.
    Parse,
    /// The body is no request.
    InvalidRequest,
    /// There is no such method. Fields: `method`, `supported_methods`, `protocol_version`.
    MethodNotFound,
    /// A method that the configuration disables. Fields as for [`MethodNotFound`](Self::MethodNotFound).
    MethodDisabled,
    /// A parameter is missing or wrong. Fields: `type`, `field` or `fields`, …
    InvalidParams,
    /// A fault of ours.
    Internal,

    // A2A.
    /// There is no such task, or it belongs to somebody else.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// Push notifications are switched off.
    PushNotSupported,
    /// The operation is not supported in this state or configuration.
    UnsupportedOperation,
    /// A media type or kind of part is not supported.
    ContentTypeNotSupported,
    /// The agent's answer is malformed.
    InvalidAgentResponse,
    /// There is no extended card.
    ExtendedCardNotConfigured,
    /// The client must support an extension.
    ExtensionSupportRequired,
    /// The version is malformed or unknown. Fields: `requested_version`, `supported_protocol_versions`,
    /// `default_protocol_version`.
    VersionNotSupported,

    // Extensions.
    /// There is no such session. Fields: `session_id`.
    SessionNotFound,
    /// The session belongs to somebody else. Fields: `session_id`.
    SessionForbidden,
    /// The agent runtime cannot be reached, or too many requests to it are open.
    UpstreamUnreachable,
    /// The agent runtime refused. Fields: `upstream_status`, …
    UpstreamHttp,
    /// The agent runtime's answer is malformed.
    UpstreamPayload,
    /// There is no such interrupt, or it belongs to somebody else. Fields: `request_id`.
    InterruptNotFound,
    /// The interrupt has expired. Fields: `request_id`.
    InterruptExpired,
    /// The interrupt is of the other type. Fields: `request_id`, `expected_interrupt_type`, `actual_interrupt_type`.
    InterruptTypeMismatch,
    /// The credential lacks a capability. Fields: `method`, `capability`, `credential_id`.
    AuthorizationForbidden,
    /// The method's extension was not requested. Fields: `method`, `required_extensions`.
    ExtensionNegotiationRequired,

    // HTTP.
    /// There are no valid credentials.
    Unauthorized,
    /// The host name or the origin may not call.
    Forbidden,
    /// There is no such path.
    PathNotFound,
    /// The path exists, but not with this method. Fields: `allowed`.
    HttpMethodNotAllowed,
    /// The body is too large. Fields: `max_bytes`, `actual_size`.
    BodyTooLarge,
    /// The body's media type is not JSON.
    MediaTypeNotSupported,
    /// Too many requests or streams. Fields: `retry_after`.
    TooManyRequests,
    /// The service stops.
    ShuttingDown,
}

/// An error, before it is given the shape of a line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// What happened, to what, and what to do next.
    pub message: String,
    /// Facts for programs, in snake case.
    pub fields: JsonMap,
}

impl Error {
    /// An error without fields.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), fields: JsonMap::new() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Json>) -> Self {
        self.fields.insert(field.to_owned(), value.into());
        self
    }

    /// A parameter that is missing or wrong.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidParams, message).with("type", "INVALID_FIELD").with("field", field)
    }

    /// A task that does not exist for the caller.
    pub fn task_not_found(id: &str) -> Self {
        Self::new(ErrorKind::TaskNotFound, format!("Task {id} not found"))
    }

    /// A fault of ours.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::Internal, message.to_string())
    }
}
