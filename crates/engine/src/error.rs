//! Errors inside the engine.

use api::HostError;
use store::{DatabaseErrorKind, StoreError};

/// An error inside the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed or refused.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The request was refused.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The engine is shutting down; the turn resumes at the next start.
    #[error("Trefoil is stopping. The prompt is kept, and its turn goes on at the next start")]
    Parked,
}

impl From<Error> for HostError {
    fn from(error: Error) -> Self {
        match error {
            Error::Host(error) => error,
            Error::Store(error) => store_error(error),
            Error::Parked => HostError::Unavailable(error.to_string()),
        }
    }
}

/// Converts a store error into a host error that separates what the caller can fix from what broke.
pub(crate) fn store_error(error: StoreError) -> HostError {
    match &error {
        StoreError::NoSession { id } => HostError::not_found("session", id.as_str()),
        StoreError::NoMessage { id } => HostError::not_found("message", id.as_str()),
        StoreError::Exists { .. }
        | StoreError::NotOpen { .. }
        | StoreError::Conflict { .. }
        | StoreError::Changed { .. } => HostError::Conflict(error.to_string()),
        StoreError::Invalid(_) => HostError::Invalid(error.to_string()),
        StoreError::Database { kind: DatabaseErrorKind::Full, .. } => HostError::Full(error.to_string()),
        StoreError::Overloaded(_) => HostError::Unavailable(error.to_string()),
        error if error.is_transient() => HostError::Unavailable(error.to_string()),
        _ => HostError::Failed(error.to_string()),
    }
}
