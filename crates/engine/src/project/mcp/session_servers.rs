//! MCP servers that clients added to single sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ::mcp::Servers;
use api::{HostError, SessionId};

use crate::lock;

/// The maximum number of sessions with servers of their own.
const SESSIONS_WITH_SERVERS_MAX: usize = 256;

/// The servers of single sessions.
#[derive(Default)]
pub(crate) struct SessionServers {
    servers: Mutex<HashMap<SessionId, Arc<Servers>>>,
}

impl SessionServers {
    /// Ends the servers of a session.
    pub(crate) fn remove(&self, session: &SessionId) {
        // Ending them takes a moment: not under the lock.
        let removed = lock(&self.servers).remove(session);
        drop(removed);
    }

    /// Whether no session has any.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.servers).is_empty()
    }

    /// The servers of a session.
    pub(super) fn get(&self, session: &SessionId) -> Option<Arc<Servers>> {
        lock(&self.servers).get(session).cloned()
    }

    /// Gives a session these servers in place of its own. With `keep`, does nothing and returns false if it has some.
    pub(super) fn insert(&self, session: &SessionId, servers: &Arc<Servers>, keep: bool) -> Result<bool, HostError> {
        let before = {
            let mut all = lock(&self.servers);
            let known = all.contains_key(session);
            if keep && known {
                return Ok(false);
            }
            if all.len() >= SESSIONS_WITH_SERVERS_MAX && !known {
                let text = format!(
                    "{SESSIONS_WITH_SERVERS_MAX} sessions have MCP servers of their own; close one of them first"
                );
                return Err(HostError::Conflict(text));
            }
            all.insert(session.clone(), servers.clone())
        };
        drop(before);
        Ok(true)
    }
}
