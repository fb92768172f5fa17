//! The other end of a connection: sends requests, notifications and responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::error::Error;
use super::outbox::{AppendableMessage, Outbox};
use crate::lock;

/// Our requests that may wait for a response at the same time.
const MAX_PENDING_REQUESTS: usize = 1024;

/// How long to wait for a response.
#[derive(Debug, Clone, Copy)]
pub enum Timeout {
    /// For a program.
    After(Duration),
    /// For a person: as long as it takes.
    Never,
}

/// The other end. Cheap to clone.
#[derive(Clone, Default)]
pub struct Peer(Arc<PeerState>);

#[derive(Default)]
struct PeerState {
    outbox: Outbox,
    next_id: AtomicU64,
    pending: Mutex<PendingRequests>,
}

#[derive(Default)]
struct PendingRequests {
    waiting: HashMap<u64, oneshot::Sender<Result<Value, Error>>>,
    closed: bool,
}

impl Peer {
    /// The queue of outgoing messages.
    pub(super) fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// Sends a request and waits for the response. If the future is dropped or the time is over, the request is
    /// cancelled.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        timeout: Timeout,
    ) -> Result<T, Error> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        {
            let mut pending = lock(&self.0.pending);
            if pending.closed {
                return Err(closed_error());
            }
            if pending.waiting.len() >= MAX_PENDING_REQUESTS {
                return Err(Error::internal(format!("{MAX_PENDING_REQUESTS} requests already wait for a response")));
            }
            pending.waiting.insert(id, sender);
        }
        let _cancel_on_drop = CancelOnDrop { peer: self, id };
        self.0.outbox.push(to_line(&OutgoingMessage { id: Some(id), ..OutgoingMessage::new(method, params) }));
        let response = match timeout {
            Timeout::Never => response.await,
            Timeout::After(time) => match tokio::time::timeout(time, response).await {
                Ok(response) => response,
                Err(_) => {
                    return Err(Error::internal(format!("{method} was not answered within {} s", time.as_secs())));
                }
            },
        };
        let response = response.unwrap_or_else(|_| Err(closed_error()))?;
        serde_json::from_value(response)
            .map_err(|error| Error::invalid_params(format!("The answer to {method} is not understood: {error}")))
    }

    /// Sends a notification once there is room.
    pub async fn notify(&self, method: &str, params: &impl Serialize) {
        self.0.outbox.send(to_line(&OutgoingMessage::new(method, params))).await;
    }

    /// Sends a state once there is room, in place of an older one with the same key that was not sent yet.
    pub async fn notify_latest(&self, key: String, method: &str, params: &impl Serialize) {
        self.0.outbox.replace(key, to_line(&OutgoingMessage::new(method, params))).await;
    }

    /// Sends text once there is room; it may be merged with text that was not sent yet.
    pub async fn notify_text(&self, message: AppendableMessage) {
        self.0.outbox.append(message).await;
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.0.pending).closed
    }

    /// Closes the connection: waiting requests fail, and nothing is sent any more.
    pub(super) fn close(&self) {
        let mut pending = lock(&self.0.pending);
        pending.closed = true;
        pending.waiting.clear();
        drop(pending);
        self.0.outbox.close();
    }

    /// Responds to a request.
    pub(super) fn respond(&self, id: &Value, result: Result<Value, Error>) {
        self.0.outbox.push(response_line(id, result));
    }

    /// Rejects a message that never reached the handler. Waits for room, which slows down a peer that sends only such
    /// messages.
    pub(super) async fn reject(&self, id: &Value, error: Error) {
        self.0.outbox.send(response_line(id, Err(error))).await;
    }

    /// Delivers a response. One that nobody waits for is ignored.
    pub(super) fn resolve(&self, id: &Value, result: Result<Value, Error>) {
        let id = id.as_u64().or_else(|| id.as_str()?.parse().ok());
        if let Some(waiting) = id.and_then(|id| lock(&self.0.pending).waiting.remove(&id)) {
            let _ = waiting.send(result);
        }
    }
}

fn closed_error() -> Error {
    Error::internal("The other side hung up")
}

fn response_line(id: &Value, result: Result<Value, Error>) -> Vec<u8> {
    match result {
        Ok(result) => to_line(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Err(error) => to_line(&json!({"jsonrpc": "2.0", "id": id, "error": error})),
    }
}

/// A request or a notification, serialised directly: thousands may hold whole files.
#[derive(Serialize)]
struct OutgoingMessage<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

impl<'a, P: Serialize> OutgoingMessage<'a, P> {
    fn new(method: &'a str, params: &'a P) -> Self {
        Self { jsonrpc: "2.0", id: None, method, params }
    }
}

fn to_line(message: &impl Serialize) -> Vec<u8> {
    // Only non-string keys could fail, and there are none. An empty line means nothing to the peer.
    serde_json::to_vec(message).unwrap_or_default()
}

/// Cancels a request whose response nobody waits for any more.
struct CancelOnDrop<'a> {
    peer: &'a Peer,
    id: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if lock(&self.peer.0.pending).waiting.remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id });
            self.peer.0.outbox.push(to_line(&OutgoingMessage::new("$/cancel_request", &params)));
        }
    }
}
