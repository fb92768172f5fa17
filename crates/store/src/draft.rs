//! A session that is written piece by piece, and that nobody sees before it is whole.
//!
//! Until then its messages belong to a session without a row, which no query finds. Its lease tells that somebody is at it: a
//! lease of a dead process on a session that is not there is what a crash left of such work.

use api::{EventBody, Session, SessionId};

use crate::Store;
use crate::batch::{Batch, Location};
use crate::error::StoreError;
use crate::sqlite::lease::{AcquireOutcome, Lease};
use crate::sqlite::row;

/// A session that is being written. One that is neither [published](Self::publish) nor [discarded](Self::discard) is
/// removed after the process has ended.
#[derive(Debug)]
pub struct SessionDraft {
    store: Store,
    location: Location,
    session: SessionId,
    /// There is none before something is written.
    lease: Option<Lease>,
}

impl SessionDraft {
    /// Begins a session under an id that nobody uses.
    pub fn new(store: &Store, location: &Location, session: &SessionId) -> Self {
        Self { store: store.clone(), location: location.clone(), session: session.clone(), lease: None }
    }

    /// An empty piece of it.
    pub fn new_batch(&self) -> Batch {
        Batch::new(&self.location)
    }

    /// The last piece of it, with the session itself.
    pub fn final_batch(&self, session: &Session) -> Batch {
        let mut batch = self.new_batch().durable();
        if let Some(lease) = &self.lease {
            batch.release(lease);
        }
        batch.session(session);
        batch.event(EventBody::SessionCreated { session_id: session.id.clone(), info: Box::new(session.clone()) });
        batch
    }

    /// Writes a piece: messages and parts of the session, and nothing else. It is not durable yet.
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

    /// Writes the last piece, durably: now everybody sees the session.
    pub async fn publish(&mut self, last: Batch) -> Result<(), StoreError> {
        let last = match &self.lease {
            Some(lease) => last.fence(lease),
            None => last,
        };
        self.store.commit(last).await?;
        self.lease = None;
        Ok(())
    }

    /// Removes what was written.
    pub async fn discard(self) {
        if self.lease.is_some()
            && let Err(error) = self.store.discard_draft(&self.session).await
        {
            tracing::warn!(session = %self.session, %error, "half a session is left; the next start removes it");
        }
    }
}

impl Store {
    /// Sessions that processes which are dead now began to write, and did not come to publish.
    pub fn abandoned_drafts(&self) -> Result<Vec<SessionId>, StoreError> {
        let dead = self.dead_owners()?;
        let drafts = self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT session, owner FROM lease WHERE NOT EXISTS (SELECT 1 FROM session WHERE id = lease.session)",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<Vec<(String, String)>, _>>()?)
        })?;
        drafts.into_iter().filter(|(_, owner)| dead.contains(owner)).map(|(id, _)| row::id("lease", &id)).collect()
    }

    /// Removes what is left of a session that was never published.
    pub async fn discard_draft(&self, session: &SessionId) -> Result<(), StoreError> {
        let mut batch = Batch::new(&Location::new("", ""));
        batch.delete_session(session);
        self.commit(batch).await?;
        self.sweep(std::slice::from_ref(session)).await
    }
}
