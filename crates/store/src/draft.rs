//! A session that is written in several commits and becomes visible only when it is complete.
//!
//! Until then its messages belong to a session without a row, which no query finds. Its lease shows that a process is
//! writing it: a dead process's lease on a session without a row is a draft that a crash left behind.

use api::{EventBody, Session, SessionId};

use crate::Store;
use crate::batch::{Batch, Location};
use crate::error::StoreError;
use crate::lease::{AcquireOutcome, Lease};

/// A session being written. If it is neither [published](Self::publish) nor [discarded](Self::discard), it is removed
/// after the process ends.
#[derive(Debug)]
pub struct SessionDraft {
    store: Store,
    location: Location,
    session: SessionId,
    /// `None` until something is written.
    lease: Option<Lease>,
}

impl SessionDraft {
    /// Begins a session with an unused id.
    pub fn new(store: &Store, location: &Location, session: &SessionId) -> Self {
        Self { store: store.clone(), location: location.clone(), session: session.clone(), lease: None }
    }

    /// Creates an empty batch for [`add`](Self::add).
    pub fn new_batch(&self) -> Batch {
        Batch::new(&self.location)
    }

    /// Creates the final batch, which contains the session itself.
    pub fn final_batch(&self, session: &Session) -> Batch {
        let mut batch = self.new_batch().durable();
        if let Some(lease) = &self.lease {
            batch.release(lease);
        }
        batch.session(session);
        batch.event(EventBody::SessionCreated { session_id: session.id.clone(), info: Box::new(session.clone()) });
        batch
    }

    /// Writes messages and parts of the session, and nothing else. Not durable yet.
    pub async fn add(&mut self, piece: Batch) -> Result<(), StoreError> {
        let lease = match &self.lease {
            Some(lease) => lease,
            None => match self.store.acquire(&self.session).await? {
                AcquireOutcome::Acquired { lease, .. } => self.lease.insert(lease),
                AcquireOutcome::HeldElsewhere { .. } => {
                    return Err(StoreError::Stale { session: self.session.clone() });
                }
            },
        };
        self.store.commit(piece.fence(lease)).await.map(drop)
    }

    /// Commits the final batch durably, which makes the session visible.
    pub async fn publish(&mut self, last: Batch) -> Result<(), StoreError> {
        let last = match &self.lease {
            Some(lease) => last.fence(lease),
            None => last,
        };
        self.store.commit(last).await?;
        self.lease = None;
        Ok(())
    }

    /// Removes everything written so far.
    pub async fn discard(self) {
        if self.lease.is_some()
            && let Err(error) = self.store.discard_draft(&self.session).await
        {
            tracing::warn!(session = %self.session, %error, "an unpublished draft is left behind; the next start removes it");
        }
    }
}

impl Store {
    /// Removes the rows of a session that was never published.
    pub async fn discard_draft(&self, session: &SessionId) -> Result<(), StoreError> {
        let mut batch = Batch::new(&Location::new("", ""));
        batch.delete_session(session);
        self.commit(batch).await?;
        self.sweep(std::slice::from_ref(session)).await
    }
}
