//! What can go wrong inside the engine.

use api::HostError;
use store::StoreError;

/// What can go wrong inside the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused or failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A call was refused.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The engine shuts down; the turn goes on at the next start.
    #[error("the engine is shutting down; the turn continues at the next start")]
    Parked,
}

impl From<Error> for HostError {
    fn from(error: Error) -> Self {
        match error {
            Error::Host(error) => error,
            Error::Store(error) => HostError::Failed(error.to_string()),
            Error::Parked => HostError::Failed(error.to_string()),
        }
    }
}

/// A storage failure as a host error.
pub(crate) fn stored(error: StoreError) -> HostError {
    HostError::Failed(error.to_string())
}
