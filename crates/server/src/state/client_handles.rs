//! The engine's handles for clients: one for each name that clients give themselves in `user-agent`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use api::Caller;
use axum::http::{HeaderMap, HeaderValue, header};
use engine::Engine;

/// The most names whose handle is kept. Others get a new one with each request.
const MAX_HANDLES: usize = 32;
/// How much of a client's name is kept, in characters.
const MAX_NAME: usize = 200;

/// The handles of the clients that sent requests lately.
#[derive(Default)]
pub(crate) struct ClientHandles {
    handles: Mutex<VecDeque<(HeaderValue, Engine)>>,
}

impl ClientHandles {
    /// The handle of the client that sent these headers.
    pub fn of(&self, engine: &Engine, headers: &HeaderMap) -> Engine {
        let Some(agent) = headers.get(header::USER_AGENT) else { return engine.clone() };
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, handle)) = handles.iter().find(|(known, _)| known == agent) {
            return handle.clone();
        }
        let handle = engine.with_caller(Caller::owner(client_name(agent)));
        if handles.len() >= MAX_HANDLES {
            handles.pop_front();
        }
        handles.push_back((agent.clone(), handle.clone()));
        handle
    }
}

fn client_name(agent: &HeaderValue) -> String {
    String::from_utf8_lossy(agent.as_bytes()).chars().filter(|char| !char.is_control()).take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_plain() {
        let long = HeaderValue::from_str(&"x".repeat(MAX_NAME * 2)).unwrap();
        assert_eq!(client_name(&long).len(), MAX_NAME);
        let odd = HeaderValue::from_bytes(b"opencode/1\tlinux \xff").unwrap();
        assert_eq!(client_name(&odd), "opencode/1linux \u{fffd}");
    }
}
