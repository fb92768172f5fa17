//! The view of the files that each session has: the disk, or what a client bound the session to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use api::{Environment, SessionId};

use crate::{Inner, lock};

/// The sessions that see files in another way than from the disk.
#[derive(Default)]
pub(crate) struct Environments {
    state: Mutex<Bindings>,
}

#[derive(Default)]
struct Bindings {
    bound: HashMap<SessionId, Binding>,
    /// The number of the last binding.
    last: u64,
}

struct Binding {
    environment: Arc<dyn Environment>,
    /// Tells it from earlier and later bindings of the same session.
    number: u64,
    /// Whether it was made for a subagent, and ends with its work.
    is_shared: bool,
}

impl Bindings {
    fn insert(&mut self, session: &SessionId, environment: Arc<dyn Environment>, is_shared: bool) -> u64 {
        self.last += 1;
        self.bound.insert(session.clone(), Binding { environment, number: self.last, is_shared });
        self.last
    }
}

impl Environments {
    /// Binds a session; `None` unbinds it.
    pub(crate) fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        let mut state = lock(&self.state);
        match environment {
            Some(environment) => {
                state.insert(session, environment, false);
            }
            None => {
                state.bound.remove(session);
            }
        }
    }

    /// What a session is bound to.
    fn get(&self, session: &SessionId) -> Option<Arc<dyn Environment>> {
        lock(&self.state).bound.get(session).map(|binding| binding.environment.clone())
    }

    /// The view of the files that a session has.
    pub(crate) fn of(&self, session: &SessionId) -> Arc<dyn Environment> {
        self.get(session).unwrap_or_else(|| Arc::new(tools::LocalEnvironment))
    }

    /// Binds the session `with` to what `from` is bound to, until the guard is dropped. Returns `None` if there is
    /// nothing to share, or if a client has bound `with` itself.
    fn share(self: &Arc<Self>, from: &SessionId, with: &SessionId) -> Option<SharedEnvironment> {
        let mut state = lock(&self.state);
        if state.bound.get(with).is_some_and(|binding| !binding.is_shared) {
            return None;
        }
        let environment = state.bound.get(from)?.environment.clone();
        let number = state.insert(with, environment, true);
        Some(SharedEnvironment { environments: self.clone(), session: with.clone(), number })
    }
}

/// Guard for a session that sees files as another session does.
pub(crate) struct SharedEnvironment {
    environments: Arc<Environments>,
    session: SessionId,
    number: u64,
}

impl Drop for SharedEnvironment {
    fn drop(&mut self) {
        let mut state = lock(&self.environments.state);
        // The session may have been bound again meanwhile.
        if state.bound.get(&self.session).is_some_and(|binding| binding.number == self.number) {
            state.bound.remove(&self.session);
        }
    }
}

impl Inner {
    /// Lets the session `with` see files as `from` does until the guard is dropped. Returns `None` for a session with
    /// its own worktree, which sees the files there.
    pub(crate) fn share_environment(&self, from: &SessionId, with: &SessionId) -> Option<SharedEnvironment> {
        if !matches!(self.isolated_worktree(with), Ok(None)) {
            return None;
        }
        self.environments.share(from, with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sessions, the first one bound.
    fn family() -> (Arc<Environments>, SessionId, SessionId) {
        let (environments, parent, child) = (Arc::new(Environments::default()), SessionId::new(), SessionId::new());
        environments.bind(&parent, Some(Arc::new(tools::LocalEnvironment)));
        (environments, parent, child)
    }

    fn same(environments: &Environments, one: &SessionId, other: &SessionId) -> bool {
        match (environments.get(one), environments.get(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            _ => false,
        }
    }

    #[test]
    fn a_share_ends_with_its_guard() {
        let (environments, parent, child) = family();
        let shared = environments.share(&parent, &child).unwrap();
        assert!(same(&environments, &parent, &child));
        drop(shared);
        assert!(environments.get(&child).is_none() && environments.get(&parent).is_some());
        assert!(environments.share(&child, &parent).is_none(), "there is nothing to share");
    }

    #[test]
    fn a_later_binding_survives_the_end_of_a_share() {
        let (environments, parent, child) = family();
        let shared = environments.share(&parent, &child).unwrap();
        environments.bind(&child, Some(Arc::new(tools::LocalEnvironment)));
        drop(shared);
        assert!(environments.get(&child).is_some() && !same(&environments, &parent, &child));
        // The client's own binding is not replaced either.
        assert!(environments.share(&parent, &child).is_none());
        assert!(environments.get(&child).is_some());
    }

    #[test]
    fn of_two_shares_the_later_one_counts() {
        let (environments, parent, child) = family();
        let first = environments.share(&parent, &child).unwrap();
        let second = environments.share(&parent, &child).unwrap();
        drop(first);
        assert!(same(&environments, &parent, &child));
        drop(second);
        assert!(environments.get(&child).is_none());
    }
}
