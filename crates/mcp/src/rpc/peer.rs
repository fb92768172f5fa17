//! The server's end of a connection, for every transport: our pending requests, and the server's requests to us.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Json;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Message, truncated};
use crate::error::Error;
use crate::lock;

/// The most pending requests to one server.
const PENDING_MAX: usize = 256;
/// Unread progress messages of a request; more are dropped.
const PROGRESS_QUEUE: usize = 8;
/// The longest text of a server in an error or a progress message.
const TEXT_MAX: usize = 2_000;
const METHOD_NOT_FOUND: i64 = -32601;

/// The server's end of a connection.
pub(crate) struct Peer {
    pending: Mutex<HashMap<u64, PendingRequest>>,
    next_id: AtomicU64,
    /// Why the connection has ended.
    closed: watch::Sender<Option<Error>>,
    /// How often the server announced changed tools or prompts.
    pub(crate) changes: watch::Sender<u64>,
    /// The directory as a `file:` URI, for `roots/list`.
    root: String,
}

struct PendingRequest {
    response: oneshot::Sender<Result<Box<RawValue>, Error>>,
    progress: mpsc::Sender<String>,
}

/// A pending request, removed on drop.
pub(crate) struct RequestHandle<'a> {
    peer: &'a Peer,
    pub(crate) id: u64,
    pub(crate) response: oneshot::Receiver<Result<Box<RawValue>, Error>>,
    pub(crate) progress: mpsc::Receiver<String>,
}

impl Drop for RequestHandle<'_> {
    fn drop(&mut self) {
        lock(&self.peer.pending).remove(&self.id);
    }
}

impl Peer {
    pub(crate) fn new(root: String) -> Self {
        Self {
            pending: Mutex::default(),
            next_id: AtomicU64::new(1),
            closed: watch::Sender::new(None),
            changes: watch::Sender::new(0),
            root,
        }
    }

    /// Registers a request.
    pub(crate) fn register(&self) -> Result<RequestHandle<'_>, Error> {
        let (sender, response) = oneshot::channel();
        let (progress, updates) = mpsc::channel(PROGRESS_QUEUE);
        let mut pending = lock(&self.pending);
        if let Some(error) = self.closed.borrow().clone() {
            return Err(error);
        }
        if pending.len() >= PENDING_MAX {
            return Err(Error::Closed(format!("{PENDING_MAX} requests already wait for the server")));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        pending.insert(id, PendingRequest { response: sender, progress });
        Ok(RequestHandle { peer: self, id, response, progress: updates })
    }

    /// Handles a message. Returns the reply to send, if any; `Err` if it is not a message.
    pub(crate) fn receive(&self, text: &[u8]) -> Result<Option<Vec<u8>>, ()> {
        let message: Message = serde_json::from_slice(text).map_err(drop)?;
        match (message.method, message.id) {
            (Some(method), Some(id)) => Ok(Some(self.reply(&method, &id))),
            (Some(method), None) => {
                self.handle_notification(&method, message.params.as_deref());
                Ok(None)
            }
            (None, Some(id)) => {
                // Some servers send numeric ids back as strings.
                let id = id.as_u64().or_else(|| id.as_str()?.parse().ok()).ok_or(())?;
                let request = lock(&self.pending).remove(&id);
                let response = match message.error {
                    Some(error) => {
                        Err(Error::Refused { code: error.code, message: truncated(&error.message, TEXT_MAX) })
                    }
                    None => Ok(message.result.unwrap_or_else(|| RawValue::NULL.to_owned())),
                };
                // The response may come too late for its request.
                let _ = request.map(|request| request.response.send(response));
                Ok(None)
            }
            (None, None) => Err(()),
        }
    }

    fn reply(&self, method: &str, id: &Json) -> Vec<u8> {
        let reply = match method {
            "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            "roots/list" => json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [{ "uri": self.root }] } }),
            _ => {
                let error = json!({ "code": METHOD_NOT_FOUND, "message": "Method not found" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        reply.to_string().into_bytes()
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Progress {
            #[serde(rename = "progressToken")]
            token: u64,
            message: Option<String>,
        }
        match method {
            "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                self.changes.send_modify(|changes| *changes += 1);
            }
            "notifications/progress" => {
                let progress = params.and_then(|params| serde_json::from_str::<Progress>(params.get()).ok());
                if let Some(progress) = progress
                    && let Some(request) = lock(&self.pending).get(&progress.token)
                {
                    let text = truncated(&progress.message.unwrap_or_default(), TEXT_MAX);
                    // Progress that is not read in time is not worth keeping.
                    let _ = request.progress.try_send(text);
                }
            }
            "notifications/message" => {
                let text = params.map(|params| truncated(params.get(), TEXT_MAX)).unwrap_or_default();
                tracing::debug!(text, "an MCP server logs");
            }
            _ => {}
        }
    }

    /// Fails all requests: a dropped oversized message may have been the response to any of them.
    pub(crate) fn fail_all(&self, error: &Error) {
        for (_, request) in lock(&self.pending).drain() {
            let _ = request.response.send(Err(error.clone()));
        }
    }

    /// Ends the connection; pending requests fail.
    pub(crate) fn close(&self, error: Error) {
        // Under the lock, so that no request is registered in between.
        let mut pending = lock(&self.pending);
        self.closed.send_if_modified(|closed| match closed {
            Some(_) => false,
            None => {
                *closed = Some(error.clone());
                true
            }
        });
        for (_, request) in pending.drain() {
            let _ = request.response.send(Err(error.clone()));
        }
    }

    /// Waits until the connection has ended, and returns why.
    pub(crate) async fn closed(&self) -> Error {
        let mut closed = self.closed.subscribe();
        let why = closed.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or(Error::SessionLost)
    }
}
