//! Limits of what a client does at a time. What is beyond a limit fails at once instead of waiting.

use std::sync::Arc;

use api::HostError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests and event streams of a client may be open at a time; 0, the default, means any number. A call
/// beyond a limit fails with [`HostError::Overloaded`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests, each until its response was read. A prompt that is waited for is one.
    pub requests: usize,
    /// Event streams, each until it is dropped.
    pub streams: usize,
}

/// A limit of something.
pub(crate) struct Limit {
    /// What is limited, for errors.
    what: &'static str,
    max: usize,
    /// `None` if any number may be open.
    free: Option<Arc<Semaphore>>,
}

/// Counts as one until it is dropped.
pub(crate) type Permit = Option<OwnedSemaphorePermit>;

impl Limit {
    pub fn new(what: &'static str, max: usize) -> Self {
        let free = (max > 0).then(|| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        Self { what, max, free }
    }

    /// Takes one of the free places. `server` is named in the error if there is none.
    pub fn enter(&self, server: &str) -> Result<Permit, HostError> {
        let Some(free) = &self.free else { return Ok(None) };
        free.clone().try_acquire_owned().map(Some).map_err(|_| {
            HostError::Overloaded(format!("{} {} to {server} are open already; try again later", self.max, self.what))
        })
    }
}
