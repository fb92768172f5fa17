//! Retries of writes that the database refuses for a transient reason: another program has locked it, the disk is full,
//! its folder was moved. A turn retries and says so in its status, because what its model said and its tools did is not
//! stored anywhere else yet. Calls from outside a turn do not retry; they return the error.

use std::sync::Arc;
use std::time::Duration;

use api::{EventBody, HostError, SessionId, SessionStatus};
use store::{Batch, CommitOutcome, Location, StoreError};
use tokio::time::Instant;

use crate::Inner;

/// The pause after the first failed attempt; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause, and so the most time a turn loses once the database works again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long a write is retried during shutdown; a little less than the shutdown waits for its turns.
const SHUTDOWN_RETRY_TIME: Duration = Duration::from_secs(8);

/// An error that may be gone at the next attempt.
pub(crate) trait Transient {
    /// The reason, if the error is transient.
    fn transient_reason(&self) -> Option<String>;
}

impl Transient for StoreError {
    fn transient_reason(&self) -> Option<String> {
        self.is_transient().then(|| self.to_string())
    }
}

impl Transient for HostError {
    fn transient_reason(&self) -> Option<String> {
        match self {
            Self::Unavailable(why) | Self::Full(why) => Some(why.clone()),
            _ => None,
        }
    }
}

/// The retries of one write.
pub(crate) struct WriteRetry<'a> {
    inner: &'a Inner,
    /// The session whose status shows the wait.
    session: Option<(&'a Location, &'a SessionId)>,
    began: Instant,
    attempts: u32,
    given_up: bool,
}

impl Inner {
    /// Retries for one write. The status of `session` shows the wait.
    pub(crate) fn write_retry<'a>(&'a self, session: Option<(&'a Location, &'a SessionId)>) -> WriteRetry<'a> {
        WriteRetry { inner: self, session, began: Instant::now(), attempts: 0, given_up: false }
    }

    /// Commits a batch, with retries.
    pub(crate) async fn commit_with_retry(
        &self,
        session: Option<(&Location, &SessionId)>,
        batch: Batch,
    ) -> Result<CommitOutcome, StoreError> {
        let (batch, mut retry) = (Arc::new(batch), self.write_retry(session));
        loop {
            let result = self.store.commit(batch.clone()).await;
            if !retry.should_retry(&result).await {
                return result;
            }
        }
    }
}

impl WriteRetry<'_> {
    /// Waits before the next attempt. Returns false if there is none: the write succeeded, failed for good, or was
    /// retried for too long.
    pub(crate) async fn should_retry<T>(&mut self, result: &Result<T, impl Transient>) -> bool {
        let Some(reason) = result.as_ref().err().and_then(Transient::transient_reason) else { return false };
        let most =
            if self.inner.turns.is_parking() { SHUTDOWN_RETRY_TIME } else { self.inner.store.write_retry_timeout() };
        if self.began.elapsed() >= most {
            self.given_up = true;
            let session = self.session.map(|(_, id)| id);
            tracing::error!(?session, attempts = self.attempts, reason, "giving up a write");
            return false;
        }
        if self.attempts == 0 {
            tracing::warn!(session = ?self.session.map(|(_, id)| id), reason, "a write is waiting for the database");
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.attempts.min(8)).min(LONGEST_PAUSE);
        self.attempts += 1;
        if let Some((place, session)) = self.session {
            let next = api::now().saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
            let status = SessionStatus::Retry { attempt: self.attempts, message: reason, action: None, next };
            self.inner.store.publish_transient(place, EventBody::SessionStatus { session_id: session.clone(), status });
        }
        tokio::time::sleep(pause).await;
        true
    }
}

impl Drop for WriteRetry<'_> {
    fn drop(&mut self) {
        // After giving up, the end of the turn publishes the status.
        if let Some((_, session)) = self.session.filter(|_| self.attempts > 0 && !self.given_up) {
            self.inner.store.restore_status(session);
        }
    }
}
