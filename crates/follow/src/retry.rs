//! Sends requests again to a host that cannot be reached for a while, for example because it restarts.

use std::future::Future;
use std::time::Duration;

use api::{Host, HostError};

/// How long to put up with a host that cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    attempts: u32,
    delay: Duration,
}

impl Patience {
    /// One attempt: for the engine of this process, and for hosts that would run the same prompt twice.
    pub const NONE: Self = Self { attempts: 1, delay: Duration::ZERO };
    /// As long as a server takes to restart.
    pub const RESTART: Self = Self { attempts: 30, delay: Duration::from_millis(500) };

    /// For a server: [`RESTART`](Self::RESTART) if it recognises what it was sent before.
    pub fn of(host: &dyn Host) -> Self {
        if host.features().cursor { Self::RESTART } else { Self::NONE }
    }

    /// Sends a request, and again as long as its failure may pass by itself: no other would become a success. Only for
    /// requests that are idempotent, or carry an id that makes them so.
    pub async fn retry<T, F>(self, request: impl Fn() -> F) -> Result<T, HostError>
    where
        F: Future<Output = Result<T, HostError>>,
    {
        for _ in 1..self.attempts {
            match request().await {
                Err(error) if error.is_transient() => {
                    tracing::info!(%error, "retrying a request to the server");
                    tokio::time::sleep(self.delay).await;
                }
                result => return result,
            }
        }
        request().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const THREE: Patience = Patience { attempts: 3, delay: Duration::ZERO };

    async fn attempts_at(error: &HostError) -> u32 {
        let made = AtomicU32::new(0);
        let request = || {
            made.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Err::<(), _>(error.clone()))
        };
        THREE.retry(request).await.unwrap_err();
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
            (HostError::Overloaded(text()), 3),
            (HostError::Upstream { status: 500, message: text() }, 1),
            (HostError::Upstream { status: 503, message: text() }, 3),
            (HostError::Payload(text()), 1),
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
        assert_eq!(THREE.retry(request).await.unwrap(), 7);
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
