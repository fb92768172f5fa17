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
        retry_transient(attempts, RETRY_DELAY, request).await
    }
}

/// Sends a request again as long as its failure may pass by itself: no other would become a success.
async fn retry_transient<T, F>(attempts: u32, delay: Duration, request: impl Fn() -> F) -> Result<T, HostError>
where
    F: Future<Output = Result<T, HostError>>,
{
    for _ in 1..attempts {
        match request().await {
            Err(error) if error.is_transient() => {
                tracing::info!(%error, "retrying a request to the server");
                tokio::time::sleep(delay).await;
            }
            result => return result,
        }
    }
    request().await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn attempts_at(error: &HostError) -> u32 {
        let made = AtomicU32::new(0);
        let request = || {
            made.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Err::<(), _>(error.clone()))
        };
        retry_transient(3, Duration::ZERO, request).await.unwrap_err();
        made.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn only_what_passes_by_itself_is_tried_again() {
        let text = || "why".to_owned();
        for (error, attempts) in [
            (HostError::Unavailable(text()), 3),
            (HostError::Late(text()), 3),
            (HostError::not_found("session", "ses_x"), 1),
            (HostError::NoModel { message: text(), advice: None }, 1),
            (HostError::Invalid(text()), 1),
            (HostError::Busy(api::SessionId::new()), 1),
            (HostError::Conflict(text()), 1),
            (HostError::Forbidden(text()), 1),
            (HostError::Unsupported("This"), 1),
            (HostError::Upstream { status: 500, message: text() }, 1),
            (HostError::Full(text()), 1),
            (HostError::Failed(text()), 1),
        ] {
            assert_eq!(attempts_at(&error).await, attempts, "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_success_ends_the_attempts() {
        let made = AtomicU32::new(0);
        let request = || {
            let first = made.fetch_add(1, Ordering::Relaxed) == 0;
            std::future::ready(if first { Err(HostError::Late("why".to_owned())) } else { Ok(7) })
        };
        assert_eq!(retry_transient(3, Duration::ZERO, request).await.unwrap(), 7);
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
