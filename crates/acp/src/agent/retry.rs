//! A server that cannot be reached for a while.

use std::future::Future;
use std::time::Duration;

use api::HostError;

use crate::agent::Agent;

/// How often something is asked of a server again.
const TRIES: u32 = 30;
/// The pause between.
const PAUSE: Duration = Duration::from_millis(500);

impl Agent {
    /// Asks the host; a server that cannot be reached is asked again for a while. Only for what may be done twice, or has
    /// an id by which it is done once.
    pub async fn reach<T, F>(&self, ask: impl Fn() -> F) -> Result<T, HostError>
    where
        F: Future<Output = Result<T, HostError>>,
    {
        let tries = if self.is_local() || !self.host().features().cursor { 1 } else { TRIES };
        for _ in 1..tries {
            match ask().await {
                Err(HostError::Failed(why) | HostError::Unavailable(why)) => {
                    tracing::info!(why, "the server is asked again");
                    tokio::time::sleep(PAUSE).await;
                }
                result => return result,
            }
        }
        ask().await
    }
}
