//! Retries requests to a server that is unreachable for a while.

use std::future::Future;
use std::time::Duration;

use api::HostError;

use crate::agent::Agent;

/// How often a request is tried.
const MAX_ATTEMPTS: u32 = 30;
/// The pause between attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);

impl Agent {
    /// Calls the host, and again for a while if a server cannot be reached. Only for requests that are idempotent or
    /// carry an id that makes them so.
    pub async fn retry<T, F>(&self, request: impl Fn() -> F) -> Result<T, HostError>
    where
        F: Future<Output = Result<T, HostError>>,
    {
        let attempts = if self.is_local() || !self.host().features().cursor { 1 } else { MAX_ATTEMPTS };
        for _ in 1..attempts {
            match request().await {
                Err(HostError::Failed(why) | HostError::Unavailable(why)) => {
                    tracing::info!(why, "retrying a request to the server");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                result => return result,
            }
        }
        request().await
    }
}
