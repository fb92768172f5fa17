//! Who may do what. Every call with a session id passes [`Engine::check`].

use std::collections::HashSet;
use std::sync::Arc;

use api::{Caller, HostError, SessionId, WatchItem};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::error::store_error;
use crate::{Engine, Inner};

/// The most sessions whose owner a watch remembers.
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

    /// Keeps the items of sessions that the caller sees.
    pub(crate) fn only_accessible<T>(
        &self,
        items: Vec<T>,
        session: impl Fn(&T) -> &SessionId,
    ) -> Result<Vec<T>, HostError> {
        if self.caller.identity.is_none() {
            return Ok(items);
        }
        let mut kept = Vec::new();
        for item in items {
            match self.inner.may_access(&self.caller, session(&item)) {
                Ok(()) => kept.push(item),
                Err(HostError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// Keeps the events of sessions that the caller sees, and those of no session.
    pub(crate) fn only_accessible_events(
        &self,
        events: BoxStream<'static, WatchItem>,
    ) -> BoxStream<'static, WatchItem> {
        if self.caller.identity.is_none() {
            return events;
        }
        let (inner, caller) = (self.inner.clone(), self.caller.clone());
        // Whoever reads late finds no row of a session that was deleted since. Its deletion names its owner.
        let mut known = HashSet::new();
        let mut keep = move |item: &WatchItem| {
            let WatchItem::Frame(frame) = item else { return true };
            let Some(session) = &frame.session else { return true };
            if known.contains(session)
                || (frame.owner.is_some() && frame.owner.as_deref() == caller.identity.as_deref())
            {
                return true;
            }
            let accessible = inner.may_access(&caller, session).is_ok();
            if accessible {
                if known.len() >= REMEMBERED_SESSIONS_MAX {
                    known.clear();
                }
                known.insert(session.clone());
            }
            accessible
        };
        events.filter(move |item| std::future::ready(keep(item))).boxed()
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
