//! Who owns the sessions that are written to. Each event is logged with the owner of its session, so that readers of the
//! log need not look for it; a turn logs many events, so the writer remembers what it found.

use std::collections::HashMap;
use std::sync::Arc;

use api::SessionId;
use rusqlite::Connection;

use crate::error::StoreError;
use crate::sqlite::read;

/// The most sessions whose owner is remembered.
const REMEMBERED_MAX: usize = 1024;

/// The owners of sessions that exist. A session keeps the owner that it gets in the batch that creates it.
#[derive(Debug, Default)]
pub(crate) struct SessionOwners(HashMap<SessionId, Option<Arc<str>>>);

impl SessionOwners {
    /// The owner of a session; `None` for the owner of the machine, and if it does not exist.
    pub(crate) fn of(&mut self, conn: &Connection, session: &SessionId) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(owner) = self.0.get(session) {
            return Ok(owner.clone());
        }
        // One that does not exist yet may get an owner.
        let Some(owner) = read::session_owner(conn, session)? else { return Ok(None) };
        let owner: Option<Arc<str>> = owner.map(Arc::from);
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(session.clone(), owner.clone());
        Ok(owner)
    }

    /// Looks again when the session is written to the next time.
    pub(crate) fn forget(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    /// Forgets everything: some of it may have been read in a transaction that was rolled back.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
