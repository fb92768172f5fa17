//! The other end of a connection: sends requests, notifications and responses.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::error::Error;
use super::message;
use super::outbox::{AppendableMessage, Outbox};
use super::pending::{PendingRequests, Refusal};

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

struct PeerState {
    outbox: Outbox,
    pending: PendingRequests<oneshot::Sender<Result<Value, Error>>, ()>,
}

impl Default for PeerState {
    fn default() -> Self {
        Self { outbox: Outbox::default(), pending: PendingRequests::new(MAX_PENDING_REQUESTS, 0) }
    }
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
        let (sender, response) = oneshot::channel();
        let id = self.0.pending.add(sender).map_err(|refusal| match refusal {
            Refusal::Closed(()) => closed_error(),
            Refusal::Full(max) => Error::internal(format!("{max} requests already wait for a response")),
        })?;
        let _cancel_on_drop = CancelOnDrop { peer: self, id };
        self.0.outbox.push(message::request(id, method, params));
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
        self.0.outbox.send(message::notification(method, Some(params))).await;
    }

    /// Sends a state once there is room, in place of an older one with the same key that was not sent yet.
    pub async fn notify_latest(&self, key: String, method: &str, params: &impl Serialize) {
        self.0.outbox.replace(key, message::notification(method, Some(params))).await;
    }

    /// Sends text once there is room; it may be merged with text that was not sent yet.
    pub async fn notify_text(&self, message: AppendableMessage) {
        self.0.outbox.append(message).await;
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.0.pending.is_closed()
    }

    /// Closes the connection: waiting requests fail, and nothing is sent any more.
    pub(super) fn close(&self) {
        drop(self.0.pending.close(()));
        self.0.outbox.close();
    }

    /// Responds to a request.
    pub(super) fn respond(&self, id: &Value, result: Result<Value, Error>) {
        self.0.outbox.push(message::response(id, result));
    }

    /// Rejects a message that never reached the handler. Waits for room, which slows down a peer that sends only such
    /// messages.
    pub(super) async fn reject(&self, id: &Value, error: Error) {
        self.0.outbox.send(message::response(id, Err(error))).await;
    }

    /// Delivers a response. One that nobody waits for is ignored.
    pub(super) fn resolve(&self, id: &Value, result: Result<Value, Error>) {
        if let Some(waiting) = message::request_id(id).and_then(|id| self.0.pending.remove(id)) {
            let _ = waiting.send(result);
        }
    }
}

fn closed_error() -> Error {
    Error::internal("The other side hung up")
}

/// Cancels a request whose response nobody waits for any more.
struct CancelOnDrop<'a> {
    peer: &'a Peer,
    id: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.peer.0.pending.remove(self.id).is_some() {
            let params = json!({ "requestId": self.id });
            self.peer.0.outbox.push(message::notification("$/cancel_request", Some(&params)));
        }
    }
}
