//! Requests that wait for a response.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::lock;

/// The requests of a connection that wait for a response. `T` is what a request keeps until then, and `C` says why the
/// connection was closed.
pub struct PendingRequests<T, C> {
    state: Mutex<State<T, C>>,
    max: usize,
}

struct State<T, C> {
    waiting: HashMap<u64, T>,
    next_id: u64,
    closed: Option<C>,
}

/// Why a request cannot be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal<C> {
    /// The connection is closed, for this reason.
    Closed(C),
    /// This many requests wait already.
    Full(usize),
}

impl<T, C: Clone> PendingRequests<T, C> {
    /// Room for `max` requests, with ids from `first_id` on.
    pub fn new(max: usize, first_id: u64) -> Self {
        Self { state: Mutex::new(State { waiting: HashMap::new(), next_id: first_id, closed: None }), max }
    }

    /// Adds a request and returns its id.
    pub fn add(&self, request: T) -> Result<u64, Refusal<C>> {
        let mut state = lock(&self.state);
        if let Some(why) = &state.closed {
            return Err(Refusal::Closed(why.clone()));
        }
        if state.waiting.len() >= self.max {
            return Err(Refusal::Full(self.max));
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.insert(id, request);
        Ok(id)
    }

    /// Removes a request, to answer it or because nobody waits for its response any more.
    pub fn remove(&self, id: u64) -> Option<T> {
        lock(&self.state).waiting.remove(&id)
    }

    /// Reads a request that stays.
    pub fn read<R>(&self, id: u64, read: impl FnOnce(&T) -> R) -> Option<R> {
        lock(&self.state).waiting.get(&id).map(read)
    }

    /// Removes all requests.
    pub fn take_all(&self) -> Vec<T> {
        lock(&self.state).waiting.drain().map(|(_, request)| request).collect()
    }

    /// Refuses further requests, and removes those that wait. The first reason counts.
    pub fn close(&self, why: C) -> Vec<T> {
        let mut state = lock(&self.state);
        state.closed.get_or_insert(why);
        state.waiting.drain().map(|(_, request)| request).collect()
    }

    /// Whether further requests are refused.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_bounded_and_answered_once() {
        let pending: PendingRequests<&str, ()> = PendingRequests::new(2, 1);
        assert_eq!((pending.add("a"), pending.add("b")), (Ok(1), Ok(2)));
        assert_eq!(pending.add("c"), Err(Refusal::Full(2)));
        assert_eq!(pending.read(2, |request| request.len()), Some(1));
        assert_eq!((pending.remove(1), pending.remove(1)), (Some("a"), None));
        assert_eq!(pending.add("c"), Ok(3), "an id is not used again");
        let mut left = pending.take_all();
        left.sort_unstable();
        assert_eq!(left, ["b", "c"]);
        assert_eq!((pending.read(2, |_| ()), pending.is_closed()), (None, false));
    }

    #[test]
    fn a_closed_connection_takes_no_requests_and_keeps_the_first_reason() {
        let pending = PendingRequests::new(2, 0);
        assert_eq!(pending.add("a"), Ok(0));
        assert_eq!((pending.close("first"), pending.close("second")), (vec!["a"], Vec::new()));
        assert!(pending.is_closed());
        assert_eq!(pending.add("b"), Err(Refusal::Closed("first")));
    }
}
