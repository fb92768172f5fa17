//! Failures of the agent runtime as errors of a method.

use api::{HostError, SessionId};

use crate::{Error, ErrorKind};

/// What a failure is about.
#[derive(Default)]
pub(crate) struct Upstream<'a> {
    pub(crate) method: Option<&'a str>,
    pub(crate) session: Option<&'a SessionId>,
}

/// A session that does not exist.
pub(crate) fn session_not_found(id: &str) -> Error {
    Error::new(ErrorKind::SessionNotFound, "Session not found").with("session_id", id)
}

/// A failure of the agent runtime that belongs to no method of an extension.
pub(crate) fn upstream(error: HostError) -> Error {
    Upstream::default().error(error)
}

impl Upstream<'_> {
    /// The error of the method.
    pub(crate) fn error(&self, error: HostError) -> Error {
        let of = |kind, message: &str| {
            let error = Error::new(kind, message);
            let error = match self.method {
                Some(method) => error.with("method", method),
                None => error,
            };
            match self.session {
                Some(session) => error.with("session_id", session.as_str()),
                None => error,
            }
        };
        let refused = |status: u16, detail: String| {
            of(ErrorKind::UpstreamHttp, "The agent runtime refused the request")
                .with("upstream_status", status)
                .with("detail", detail)
        };
        let text = error.to_string();
        match error {
            HostError::NotFound { what: "session", id, .. } => session_not_found(&id),
            HostError::NotFound { .. } => refused(404, text),
            HostError::Invalid(_) | HostError::NoModel { .. } => refused(400, text),
            HostError::Forbidden(_) => refused(403, text),
            HostError::Busy(_) | HostError::Conflict(_) => refused(409, text),
            HostError::Upstream { status, .. } => refused(status, text),
            HostError::Full(_) => refused(507, text),
            HostError::Unsupported(what) => {
                of(ErrorKind::UnsupportedOperation, &format!("{what} is not supported by this agent runtime"))
            }
            HostError::Unavailable(_) | HostError::Overloaded(_) | HostError::Late(_) => {
                of(ErrorKind::UpstreamUnreachable, "The agent runtime cannot be reached").with("detail", text)
            }
            HostError::Payload(_) => {
                of(ErrorKind::UpstreamPayload, "The answer of the agent runtime is malformed").with("detail", text)
            }
            HostError::Failed(_) => {
                tracing::error!(method = self.method, error = text, "the agent runtime failed");
                Error::internal("The agent runtime failed; the log of the service says why")
            }
        }
    }
}
