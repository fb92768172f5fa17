//! How a turn ended, and what a task says about an error.

use api::{HostError, Json, MessageError, MessageWithParts};
use serde_json::json;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::service) enum Outcome {
    /// With an answer.
    Completed,
    /// It was stopped.
    Canceled,
    /// The agent declined it.
    Rejected(String),
    /// With an error.
    Failed(Failure),
}

/// An error of the agent runtime or of a model.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::service) struct Failure {
    kind: &'static str,
    status: Option<u16>,
    message: String,
}

const UNAUTHORIZED: &str = "UPSTREAM_UNAUTHORIZED";
const EXECUTION: &str = "UPSTREAM_EXECUTION_ERROR";

impl Outcome {
    /// How an answer ended.
    pub(in crate::service) fn of_answer(answer: &MessageWithParts) -> Self {
        match answer.info.as_assistant().and_then(|answer| answer.error.as_ref()) {
            Some(error) => Self::of_message_error(error),
            None => Self::Completed,
        }
    }

    /// What the error of an answer means.
    pub(in crate::service) fn of_message_error(error: &MessageError) -> Self {
        let message = error.message();
        let failure = match error {
            MessageError::MessageAbortedError(_) => return Self::Canceled,
            MessageError::ApiError(data) => match data.status_code {
                Some(status) => Failure::of_status(status, message),
                None => Failure::new(EXECUTION, None, message),
            },
            MessageError::ProviderAuthError(_) => Failure::of_status(401, message),
            _ => Failure::new(EXECUTION, None, message),
        };
        Self::Failed(failure)
    }

    /// What an error of a call to the agent runtime means.
    pub(in crate::service) fn of_host_error(error: &HostError) -> Self {
        Self::Failed(Failure::of_host_error(error))
    }
}

impl Failure {
    fn new(kind: &'static str, status: Option<u16>, message: &str) -> Self {
        Self { kind, status, message: message.to_owned() }
    }

    /// What an error of a call to the agent runtime means.
    pub(in crate::service) fn of_host_error(error: &HostError) -> Self {
        let message = error.to_string();
        match error {
            HostError::Upstream { status, .. } => Self::of_status(*status, &message),
            HostError::NotFound { .. } => Self::of_status(404, &message),
            HostError::Invalid(_) => Self::of_status(400, &message),
            // The message says what to do; no other words help.
            HostError::NoModel { .. } => Self::new("UPSTREAM_BAD_REQUEST", None, &message),
            HostError::Forbidden(_) => Self::of_status(403, &message),
            HostError::Conflict(_) => Self::of_status(409, &message),
            HostError::Late(_) => Self::new("UPSTREAM_TIMEOUT", None, &message),
            HostError::Overloaded(_) | HostError::Busy(_) => Self::new("UPSTREAM_BACKPRESSURE", None, &message),
            HostError::Payload(_) => Self::new("UPSTREAM_PAYLOAD_ERROR", None, &message),
            HostError::Unavailable(_) => Self::new("UPSTREAM_UNREACHABLE", None, &message),
            HostError::Unsupported(_) | HostError::Full(_) | HostError::Failed(_) => {
                Self::new(EXECUTION, None, &message)
            }
        }
    }

    fn of_status(status: u16, message: &str) -> Self {
        let kind = match status {
            400 => "UPSTREAM_BAD_REQUEST",
            401 => UNAUTHORIZED,
            403 => "UPSTREAM_PERMISSION_DENIED",
            404 => "UPSTREAM_RESOURCE_NOT_FOUND",
            408 | 504 => "UPSTREAM_TIMEOUT",
            429 => "UPSTREAM_QUOTA_EXCEEDED",
            402..=499 => "UPSTREAM_CLIENT_ERROR",
            _ => "UPSTREAM_SERVER_ERROR",
        };
        Self::new(kind, Some(status), message)
    }

    /// Whether credentials would help.
    pub(in crate::service) fn needs_credentials(&self) -> bool {
        self.kind == UNAUTHORIZED
    }

    /// The text for people.
    pub(in crate::service) fn text(&self) -> String {
        let what = match self.kind {
            "UPSTREAM_BAD_REQUEST" if self.status.is_none() => return self.message.clone(),
            UNAUTHORIZED => "Credentials are missing or were not accepted",
            "UPSTREAM_TIMEOUT" => "There was no answer in time",
            "UPSTREAM_BACKPRESSURE" => "Too much is running already; send the message again later",
            "UPSTREAM_UNREACHABLE" => "The agent runtime cannot be reached",
            "UPSTREAM_QUOTA_EXCEEDED" => "A quota is exceeded",
            "UPSTREAM_BAD_REQUEST" => "The request was refused as invalid",
            "UPSTREAM_PAYLOAD_ERROR" => "The answer of the agent runtime cannot be read",
            _ => "The turn failed",
        };
        let status = self.status.map(|status| format!(" (status {status})")).unwrap_or_default();
        match self.message.is_empty() {
            true => format!("{what}{status}."),
            false => format!("{what}{status}: {}", self.message),
        }
    }

    /// `metadata.opencode.error`.
    pub(in crate::service) fn metadata(&self) -> Json {
        match self.status {
            Some(status) => json!({"type": self.kind, "upstream_status": status}),
            None => json!({"type": self.kind}),
        }
    }
}
