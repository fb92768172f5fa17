//! The sessions of contexts, and the owners of sessions. They are kept here, since the agent runtime may know no owners.

use std::time::Duration;

use api::{SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Batch, StoreError};

use super::{Claim, MAX_RETRIES, Records, complete, from_json, keys, read, to_json};
use crate::{Error, ErrorKind};

/// How long a context that nobody uses keeps its session. Afterwards it begins another one.
const KEEP_CONTEXT: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The session of a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Binding {
    session: SessionId,
    until: Timestamp,
}

/// A reserved session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reservation {
    identity: String,
}

impl Records {
    /// The session of a context in a place; `None` names the place where contexts work by default.
    pub fn context_session(
        &self,
        identity: &str,
        context: &str,
        place: Option<&str>,
    ) -> Result<Option<SessionId>, StoreError> {
        let key = keys::context(identity, context, place);
        Ok(read(&self.inner.store, keys::CONTEXT, &key)?.map(|binding: Binding| binding.session))
    }

    /// Binds a context to a session, in a place. Inserting a task does the same.
    pub async fn bind_context(
        &self,
        identity: &str,
        context: &str,
        place: Option<&str>,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        let mut batch = self.batch(false);
        self.bind(&mut batch, identity, context, place, session)?;
        if !batch.is_empty() {
            self.inner.store.commit(batch).await?;
        }
        Ok(())
    }

    /// Adds the binding of a context to a batch, unless it is there and good for long.
    pub(super) fn bind(
        &self,
        batch: &mut Batch,
        identity: &str,
        context: &str,
        place: Option<&str>,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        let key = keys::context(identity, context, place);
        let keep = Timestamp::try_from(KEEP_CONTEXT.as_millis()).unwrap_or(Timestamp::MAX);
        let now = api::now();
        let bound: Option<Binding> = read(&self.inner.store, keys::CONTEXT, &key)?;
        if bound.is_none_or(|bound| bound.session != *session || bound.until < now.saturating_add(keep / 2)) {
            let binding = Binding { session: session.clone(), until: now.saturating_add(keep) };
            batch.record_until(keys::CONTEXT, &key, &to_json(&binding)?, None, binding.until);
        }
        Ok(())
    }

    /// Who owns a session.
    pub fn session_owner(&self, session: &SessionId) -> Result<Option<String>, StoreError> {
        read(&self.inner.store, keys::SESSION, session.as_str())
    }

    /// Who owns sessions, in their order.
    pub async fn session_owners(&self, sessions: Vec<SessionId>) -> Result<Vec<Option<String>>, StoreError> {
        let read = move |store: &store::Store| {
            sessions.iter().map(|session| read(store, keys::SESSION, session.as_str())).collect()
        };
        self.inner.store.long_read(read).await
    }

    /// Makes an identity the owner of a session. An error if somebody else owns it or has claimed it.
    pub async fn own_session(&self, identity: &str, session: &SessionId) -> Result<(), Error> {
        match self.try_own(identity, session).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(
                ErrorKind::SessionForbidden,
                format!("Session {session} belongs to somebody else; use one of your own"),
            )
            .with("session_id", session.as_str())),
            Err(error) => Err(Error::internal(error)),
        }
    }

    async fn try_own(&self, identity: &str, session: &SessionId) -> Result<bool, StoreError> {
        for _ in 0..MAX_RETRIES {
            if let Some(owner) = self.session_owner(session)? {
                return Ok(owner == identity);
            }
            let (claim, version) = self.claim(session)?;
            if claim.is_some_and(|claim| claim.identity != identity) {
                return Ok(false);
            }
            let mut batch = self.batch(false);
            batch.record(keys::SESSION, session.as_str(), Some(&identity.into()), Some(0));
            batch.record(keys::CLAIM, session.as_str(), None, Some(version));
            match self.inner.store.commit(batch).await {
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Overloaded("owners of one session"))
    }

    fn claim(&self, session: &SessionId) -> Result<(Option<Reservation>, u64), StoreError> {
        let Some(record) = self.inner.store.record(keys::CLAIM, session.as_str())? else { return Ok((None, 0)) };
        Ok((Some(from_json(keys::CLAIM, session.as_str(), record.value)?), record.version))
    }

    /// Forgets the owner of a session that was deleted.
    pub async fn forget_session(&self, session: &SessionId) -> Result<(), StoreError> {
        let mut batch = self.batch(false);
        batch.record(keys::SESSION, session.as_str(), None, None);
        batch.record(keys::CLAIM, session.as_str(), None, None);
        self.inner.store.commit(batch).await.map(drop)
    }

    /// Reserves a session without an owner for an identity, until it is owned, released, or the time is over.
    pub async fn claim_session(&self, identity: &str, session: &SessionId, ttl: Duration) -> Result<Claim, StoreError> {
        for _ in 0..MAX_RETRIES {
            if let Some(owner) = self.session_owner(session)? {
                return Ok(if owner == identity { Claim::Owned } else { Claim::Taken });
            }
            let (claim, version) = self.claim(session)?;
            if claim.is_some_and(|claim| claim.identity != identity) {
                return Ok(Claim::Taken);
            }
            let until = api::now().saturating_add(Timestamp::try_from(ttl.as_millis()).unwrap_or(Timestamp::MAX));
            let reservation = to_json(&Reservation { identity: identity.to_owned() })?;
            let mut batch = self.batch(false);
            // Deletes nothing; it fails if the session has an owner by now.
            batch.record(keys::SESSION, session.as_str(), None, Some(0));
            batch.record_until(keys::CLAIM, session.as_str(), &reservation, Some(version), until);
            match self.inner.store.commit(batch).await {
                Ok(_) => return Ok(Claim::Pending),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Overloaded("claims of one session"))
    }

    /// Gives up the claim of an identity.
    pub async fn release_session(&self, identity: &str, session: &SessionId) -> Result<(), StoreError> {
        let (records, identity, session) = (self.clone(), identity.to_owned(), session.clone());
        let release = async move {
            let (claim, version) = records.claim(&session)?;
            if claim.is_none_or(|claim| claim.identity != identity) {
                return Ok(());
            }
            let mut batch = records.batch(false);
            batch.record(keys::CLAIM, session.as_str(), None, Some(version));
            match records.inner.store.commit(batch).await {
                // Somebody has renewed it meanwhile.
                Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        };
        complete(release).await
    }
}
