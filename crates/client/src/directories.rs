//! The directories of sessions and asks. OpenCode works on a session in the directory that a request names, so a client
//! that has only an id must know which one that is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use api::{EventBody, Session, SessionId};

/// The most sessions that a client remembers.
const MAX_SESSIONS: usize = 10_000;
/// The most asks that a client remembers.
const MAX_ASKS: usize = 1_000;

/// The directories of what a client has seen, in responses and in events.
#[derive(Default)]
pub(crate) struct Directories {
    sessions: Mutex<BoundedMap<MAX_SESSIONS>>,
    asks: Mutex<BoundedMap<MAX_ASKS>>,
}

impl Directories {
    pub fn of_session(&self, id: &SessionId) -> Option<String> {
        lock(&self.sessions).get(id.as_str())
    }

    pub fn of_ask(&self, id: &str) -> Option<String> {
        lock(&self.asks).get(id)
    }

    pub fn remember_session(&self, session: &Session) {
        lock(&self.sessions).insert(session.id.as_str(), &session.directory);
    }

    pub fn remember_sessions(&self, sessions: &[Session]) {
        let mut known = lock(&self.sessions);
        for session in sessions {
            known.insert(session.id.as_str(), &session.directory);
        }
    }

    pub fn remember_ask(&self, id: &str, directory: &str) {
        lock(&self.asks).insert(id, directory);
    }

    /// Remembers what an event in a directory tells.
    pub fn observe(&self, body: &EventBody, directory: &str) {
        match body {
            EventBody::SessionCreated { info, .. } | EventBody::SessionUpdated { info, .. } => {
                self.remember_session(info);
            }
            EventBody::PermissionAsked(ask) => self.remember_ask(ask.id.as_str(), directory),
            EventBody::QuestionAsked(ask) => self.remember_ask(ask.id.as_str(), directory),
            _ => {}
        }
    }
}

/// A map from ids to directories that forgets its oldest entry when it is full.
#[derive(Default)]
struct BoundedMap<const MAX: usize> {
    entries: HashMap<String, String>,
    /// The ids in the order of their arrival.
    order: VecDeque<String>,
}

impl<const MAX: usize> BoundedMap<MAX> {
    fn get(&self, id: &str) -> Option<String> {
        self.entries.get(id).cloned()
    }

    fn insert(&mut self, id: &str, directory: &str) {
        if directory.is_empty() {
            return;
        }
        if let Some(known) = self.entries.get_mut(id) {
            if known != directory {
                directory.clone_into(known);
            }
            return;
        }
        if self.entries.len() >= MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.entries.insert(id.to_owned(), directory.to_owned());
        self.order.push_back(id.to_owned());
    }
}

/// Locks even if a holder panicked: what is behind it is a plain map.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_goes_first_and_the_newest_directory_counts() {
        let mut map = BoundedMap::<2>::default();
        map.insert("a", "/1");
        map.insert("b", "/1");
        map.insert("a", "/2");
        assert_eq!(map.get("a").as_deref(), Some("/2"));
        map.insert("c", "/1");
        assert_eq!((map.get("a"), map.get("b").is_some(), map.get("c").is_some()), (None, true, true));
        map.insert("d", "");
        assert_eq!((map.get("d"), map.entries.len(), map.order.len()), (None, 2, 2));
    }
}
