//! Why a call of the contract fails.

use futures::future::BoxFuture;

use crate::SessionId;

/// The return type of the methods of [`Host`](crate::Host), [`CatalogHost`](crate::CatalogHost) and
/// [`WorkspaceHost`](crate::WorkspaceHost).
pub type HostFuture<'a, T> = BoxFuture<'a, Result<T, HostError>>;

/// Why a call was refused or failed. Faces map it to their own codes; the text is for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostError {
    /// It does not exist.
    #[error("{}{} not found: {id}{}", what.get(..1).unwrap_or_default().to_uppercase(), what.get(1..).unwrap_or_default(), hint(.known))]
    NotFound {
        /// What kind of thing, for example `session`.
        what: &'static str,
        /// The id that was given.
        id: String,
        /// What exists instead, where that helps.
        known: Vec<String>,
    },
    /// No model can be used, or not the one that was named.
    #[error("{message}{}", advice.as_deref().map(|advice| format!(". {advice}")).unwrap_or_default())]
    NoModel {
        /// What is missing.
        message: String,
        /// What to do about it.
        advice: Option<String>,
    },
    /// The input is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A turn is running.
    #[error("Session is busy: {0}")]
    Busy(SessionId),
    /// It was already answered, or contradicts the current state.
    #[error("{0}")]
    Conflict(String),
    /// The caller may not do it.
    #[error("{0}")]
    Forbidden(String),
    /// This host does not support it.
    #[error("{0} is not supported here")]
    Unsupported(&'static str),
    /// It cannot be done right now: another program has locked the database, the server is stopping or cannot be
    /// reached, or the connection broke. The same call may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// A time limit passed. It may have been done all the same.
    #[error("{0}")]
    Late(String),
    /// Too many calls are in progress. Nothing was sent; the same call may succeed later.
    #[error("{0}")]
    Overloaded(String),
    /// An upstream server refused it, and no other variant says as much as the status.
    #[error("{message}")]
    Upstream {
        /// The HTTP status of its response.
        status: u16,
        /// What happened.
        message: String,
    },
    /// The response of an upstream server cannot be used: it is not JSON, has another shape, or is too large.
    #[error("{0}")]
    Payload(String),
    /// The disk or the database is full.
    #[error("{0}")]
    Full(String),
    /// Something broke, and the same call would fail again.
    #[error("{0}")]
    Failed(String),
}

impl HostError {
    /// The reason that servers put into a bad request for [`NoModel`](Self::NoModel).
    pub const NO_MODEL: &'static str = "NoModel";

    /// A [`NotFound`](Self::NotFound) that suggests nothing.
    pub fn not_found(what: &'static str, id: impl Into<String>) -> Self {
        Self::NotFound { what, id: id.into(), known: Vec::new() }
    }

    /// Whether the same call may succeed later although nobody does anything about it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Late(_) | Self::Overloaded(_) => true,
            Self::Upstream { status, .. } => TRANSIENT_STATUSES.contains(status),
            _ => false,
        }
    }
}

/// Timed out, too many requests, and what proxies answer while a server cannot be reached.
const TRANSIENT_STATUSES: [u16; 5] = [408, 429, 502, 503, 504];

fn hint(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(". Known: {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_by_itself_is_transient() {
        let text = || "text".to_owned();
        for (error, transient) in [
            (HostError::not_found("session", "ses_x"), false),
            (HostError::NoModel { message: text(), advice: None }, false),
            (HostError::Invalid(text()), false),
            (HostError::Busy(SessionId::new()), false),
            (HostError::Conflict(text()), false),
            (HostError::Forbidden(text()), false),
            (HostError::Unsupported("This"), false),
            (HostError::Unavailable(text()), true),
            (HostError::Late(text()), true),
            (HostError::Overloaded(text()), true),
            (HostError::Upstream { status: 401, message: text() }, false),
            (HostError::Upstream { status: 429, message: text() }, true),
            (HostError::Upstream { status: 500, message: text() }, false),
            (HostError::Upstream { status: 503, message: text() }, true),
            (HostError::Payload(text()), false),
            (HostError::Full(text()), false),
            (HostError::Failed(text()), false),
        ] {
            assert_eq!(error.is_transient(), transient, "{error:?}");
        }
    }
}
