//! Claims of sessions that have no owner yet. The records decide them; what is here tells who holds one, and gives it up only
//! when nobody uses it any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{SessionId, Timestamp};

use crate::Error;
use crate::records::Records;
use crate::service::store_error;

/// From how many claims on those that are over are forgotten.
const PRUNE_FROM: usize = 256;

/// The claims of this run. Each belongs to a request in progress, or is over after its time.
#[derive(Default)]
pub(super) struct Claims {
    pending: Mutex<HashMap<SessionId, Pending>>,
}

struct Pending {
    identity: String,
    /// How many requests use it.
    users: usize,
    until: Timestamp,
}

/// The right to use a session. One of a session without an owner is a claim, which the first success confirms. A claim that
/// is neither confirmed nor released ends after its time.
#[must_use]
pub struct SessionGrant {
    claim: Option<Claimed>,
}

struct Claimed {
    claims: Arc<Claims>,
    records: Records,
    identity: String,
    session: SessionId,
}

impl Claims {
    /// Begins to use a claim that the records have granted.
    pub(super) fn begin(
        self: &Arc<Self>,
        records: &Records,
        identity: &str,
        session: &SessionId,
        ttl: Duration,
    ) -> SessionGrant {
        let now = api::now();
        let until = now.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        let mut pending = self.pending();
        if pending.len() >= PRUNE_FROM {
            pending.retain(|_, claim| claim.until > now);
        }
        match pending.get_mut(session) {
            Some(claim) if claim.identity == identity => {
                claim.users += 1;
                claim.until = until;
            }
            _ => drop(pending.insert(session.clone(), Pending { identity: identity.to_owned(), users: 1, until })),
        }
        let (claims, records) = (self.clone(), records.clone());
        let claim = Claimed { claims, records, identity: identity.to_owned(), session: session.clone() };
        SessionGrant { claim: Some(claim) }
    }

    /// Who has claimed a session.
    pub(super) fn holder(&self, session: &SessionId) -> Option<String> {
        let now = api::now();
        self.pending().get(session).filter(|claim| claim.until > now).map(|claim| claim.identity.clone())
    }

    /// Stops using a claim. Returns whether it was the last use.
    fn end(&self, identity: &str, session: &SessionId) -> bool {
        let mut pending = self.pending();
        let Some(claim) = pending.get_mut(session).filter(|claim| claim.identity == identity) else { return false };
        claim.users = claim.users.saturating_sub(1);
        let is_last = claim.users == 0;
        if is_last {
            pending.remove(session);
        }
        is_last
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<SessionId, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionGrant {
    /// The right of an owner, or to read.
    pub(super) fn of_owner() -> Self {
        Self { claim: None }
    }

    /// Makes the caller the owner, since what the claim was for has succeeded.
    pub async fn confirm(self) -> Result<(), Error> {
        let Some(Claimed { claims, records, identity, session }) = self.claim else { return Ok(()) };
        let owned = records.own_session(&identity, &session).await;
        claims.end(&identity, &session);
        owned
    }

    /// Gives the claim up, since what it was for has failed.
    pub async fn release(self) -> Result<(), Error> {
        let Some(Claimed { claims, records, identity, session }) = self.claim else { return Ok(()) };
        if claims.end(&identity, &session) {
            records.release_session(&identity, &session).await.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }
}
