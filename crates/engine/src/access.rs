//! Who may do what. Every call with a session id passes [`Engine::check`].

use std::collections::HashMap;
use std::sync::Arc;

use api::{Caller, HostError, SessionId, WatchItem};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::error::store_error;
use crate::{Engine, Inner};

/// The most sessions of which a watch remembers whether its caller sees them.
const REMEMBERED_SESSIONS_MAX: usize = 1024;

/// What a caller needs for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Read; everybody may.
    Read,
    /// Create, change and delete sessions, send prompts, and control turns.
    Work,
    /// Answer permission requests and questions.
    Answer,
    /// Change configuration, credentials and MCP servers.
    Configure,
}

/// Fails unless the caller has a right.
pub(crate) fn require(caller: &Caller, right: Right) -> Result<(), HostError> {
    let may = &caller.capabilities;
    let (allowed, what) = match right {
        Right::Read => (true, "read"),
        Right::Work => (may.work, "change sessions or send prompts"),
        Right::Answer => (may.answer, "answer requests"),
        Right::Configure => (may.configure, "change the configuration"),
    };
    if allowed { Ok(()) } else { Err(HostError::Forbidden(format!("This caller may not {what}"))) }
}

impl Engine {
    /// A handle for someone else. It shares everything with this one but the caller.
    #[must_use]
    pub fn with_caller(&self, caller: Caller) -> Self {
        Self { inner: self.inner.clone(), caller: Arc::new(caller) }
    }

    /// Fails unless the caller has a right.
    pub(crate) fn require(&self, right: Right) -> Result<(), HostError> {
        require(&self.caller, right)
    }

    /// Fails unless the caller has a right, and the session is one that it sees.
    pub(crate) fn check(&self, id: &SessionId, right: Right) -> Result<(), HostError> {
        self.require(right)?;
        self.inner.may_access(&self.caller, id)
    }

    /// Whose sessions the caller's lists show; `None` if all of them. Lists filter in the store, so that a page is full
    /// whenever there is more.
    pub(crate) fn listed_owner(&self) -> Option<String> {
        self.caller.identity.clone()
    }

    /// Keeps the events of sessions that the caller sees, and those of no session.
    pub(crate) fn only_accessible_events(
        &self,
        events: BoxStream<'static, WatchItem>,
    ) -> BoxStream<'static, WatchItem> {
        let Some(identity) = self.caller.identity.clone() else { return events };
        let mut filter = EventFilter { inner: self.inner.clone(), identity, remembered: HashMap::new() };
        events.filter(move |item| std::future::ready(filter.admits(item))).boxed()
    }
}

/// Decides which events a caller with an identity sees.
///
/// A stored event says who owns its session, also when the session is gone; until a sweep removes its content, a late
/// reader gets it like everybody else. Two kinds of events do not say it, and for them the session's row is read: those
/// that are not stored, such as growing text, and those that versions before schema 13 stored. So of a session that was
/// deleted since, events of such a version are missing; its deletion is not.
struct EventFilter {
    inner: Arc<Inner>,
    identity: String,
    /// Whether the caller sees a session. Thousands of events may be about the same one, and growing text of a session
    /// goes on for a moment after it is deleted, when its row says nothing any more.
    remembered: HashMap<SessionId, bool>,
}

impl EventFilter {
    fn admits(&mut self, item: &WatchItem) -> bool {
        let WatchItem::Frame(frame) = item else { return true };
        let Some(session) = &frame.session else { return true };
        let known = self.remembered.get(session).copied();
        let admitted = match (&frame.owner, known) {
            (Some(owner), _) => **owner == *self.identity,
            (None, Some(known)) => return known,
            (None, None) => match self.inner.store.session_owner(session) {
                Ok(owner) => owner.as_ref() == Some(&self.identity),
                Err(error) => {
                    tracing::warn!(%error, %session, "an event is left out, because the owner of its session is unknown");
                    return false;
                }
            },
        };
        if known != Some(admitted) {
            if self.remembered.len() >= REMEMBERED_SESSIONS_MAX {
                self.remembered.clear();
            }
            self.remembered.insert(session.clone(), admitted);
        }
        admitted
    }
}

impl Inner {
    /// Fails unless the session is one that the caller sees. To everybody but the owner of the machine, the sessions of
    /// others do not exist.
    pub(crate) fn may_access(&self, caller: &Caller, id: &SessionId) -> Result<(), HostError> {
        let Some(identity) = &caller.identity else { return Ok(()) };
        let owner = self.store.session_owner(id).map_err(store_error)?;
        if owner.as_ref() == Some(identity) { Ok(()) } else { Err(HostError::not_found("session", id.as_str())) }
    }
}

#[cfg(test)]
mod tests {
    use api::CallerCapabilities;

    use super::*;

    #[test]
    fn a_missing_capability_forbids_its_calls_alone() {
        let all = CallerCapabilities::default();
        let nothing: &[Right] = &[];
        for (capabilities, forbidden) in [
            (all, nothing),
            (CallerCapabilities { work: false, ..all }, &[Right::Work]),
            (CallerCapabilities { answer: false, ..all }, &[Right::Answer]),
            (CallerCapabilities { configure: false, ..all }, &[Right::Configure]),
        ] {
            let caller = Caller { capabilities, ..Caller::default() };
            for right in [Right::Read, Right::Work, Right::Answer, Right::Configure] {
                let refused = matches!(require(&caller, right), Err(HostError::Forbidden(_)));
                assert_eq!(refused, forbidden.contains(&right), "{capabilities:?} {right:?}");
            }
        }
    }
}
