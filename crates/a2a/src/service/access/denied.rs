//! Why a session cannot be used.

use api::{HostError, SessionId};

use crate::extension::failure::{self, Upstream};
use crate::{Error, ErrorKind};

/// Why a session cannot be used.
#[derive(Debug)]
pub(in crate::service) enum Denied {
    /// It belongs to somebody else, or the records failed.
    Refused(Error),
    /// The agent runtime failed, or does not know the session.
    Runtime(HostError),
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Denied {
    pub(super) fn is_about_session(&self) -> bool {
        match self {
            Self::Refused(error) => error.kind == ErrorKind::SessionForbidden,
            Self::Runtime(error) => matches!(error, HostError::NotFound { .. }),
        }
    }

    /// It as the error of a method. `asked` is the session that the caller named.
    pub(super) fn into_error(self, asked: &SessionId) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Runtime(HostError::NotFound { .. }) => failure::session_not_found(asked.as_str()),
            Self::Runtime(error) => Upstream { method: None, session: Some(asked) }.error(error),
        }
    }
}
