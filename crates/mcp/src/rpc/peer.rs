//! What we wait for from a server, and what it wants from us: the same for every transport.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Json;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Message, beginning};
use crate::error::Error;
use crate::lock;

/// The most requests that wait for one server.
const PENDING_MAX: usize = 256;
/// Progress that nobody has looked at yet; more is dropped.
const PROGRESS_QUEUE: usize = 8;
/// The longest text of a server in an error or a progress line.
const TEXT_MAX: usize = 2_000;
const METHOD_NOT_FOUND: i64 = -32601;

/// The other end of a connection.
pub(crate) struct Peer {
    pending: Mutex<HashMap<u64, Waiter>>,
    next: AtomicU64,
    /// Why the connection is gone.
    closed: watch::Sender<Option<Error>>,
    /// How often the server said that its tools or prompts are others.
    pub(crate) changes: watch::Sender<u64>,
    /// The directory, as a `file:` address, for a server that asks for it.
    root: String,
}

struct Waiter {
    answer: oneshot::Sender<Result<Box<RawValue>, Error>>,
    progress: mpsc::Sender<String>,
}

/// A request that waits; it is forgotten when this is dropped.
pub(crate) struct Waiting<'a> {
    peer: &'a Peer,
    pub(crate) id: u64,
    pub(crate) answer: oneshot::Receiver<Result<Box<RawValue>, Error>>,
    pub(crate) progress: mpsc::Receiver<String>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.peer.pending).remove(&self.id);
    }
}

impl Peer {
    pub(crate) fn new(root: String) -> Self {
        Self {
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            closed: watch::Sender::new(None),
            changes: watch::Sender::new(0),
            root,
        }
    }

    /// Begins to wait for an answer.
    pub(crate) fn expect(&self) -> Result<Waiting<'_>, Error> {
        let (answer, receiver) = oneshot::channel();
        let (progress, updates) = mpsc::channel(PROGRESS_QUEUE);
        let mut pending = lock(&self.pending);
        if let Some(error) = self.closed.borrow().clone() {
            return Err(error);
        }
        if pending.len() >= PENDING_MAX {
            return Err(Error::Closed(format!("{PENDING_MAX} requests wait for the server already")));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        pending.insert(id, Waiter { answer, progress });
        Ok(Waiting { peer: self, id, answer: receiver, progress: updates })
    }

    /// Takes what the server sent. Gives what is to be sent back; `Err` if it was no message.
    pub(crate) fn receive(&self, text: &[u8]) -> Result<Option<Vec<u8>>, ()> {
        let message: Message = serde_json::from_slice(text).map_err(drop)?;
        match (message.method, message.id) {
            (Some(method), Some(id)) => Ok(Some(self.reply(&method, &id))),
            (Some(method), None) => {
                self.notified(&method, message.params.as_deref());
                Ok(None)
            }
            (None, Some(id)) => {
                // Some servers send our numbers back as texts.
                let id = id.as_u64().or_else(|| id.as_str()?.parse().ok()).ok_or(())?;
                let waiter = lock(&self.pending).remove(&id);
                let answer = match message.error {
                    Some(error) => {
                        Err(Error::Refused { code: error.code, message: beginning(&error.message, TEXT_MAX) })
                    }
                    None => Ok(message.result.unwrap_or_else(|| RawValue::NULL.to_owned())),
                };
                // An answer that nobody waits for any more came too late.
                let _ = waiter.map(|waiter| waiter.answer.send(answer));
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

    fn notified(&self, method: &str, params: Option<&RawValue>) {
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
                    && let Some(waiter) = lock(&self.pending).get(&progress.token)
                {
                    let text = beginning(&progress.message.unwrap_or_default(), TEXT_MAX);
                    // What is not looked at in time is not worth keeping.
                    let _ = waiter.progress.try_send(text);
                }
            }
            "notifications/message" => {
                let text = params.map(|params| beginning(params.get(), TEXT_MAX)).unwrap_or_default();
                tracing::debug!(text, "an MCP server logs");
            }
            _ => {}
        }
    }

    /// A message that was too large is gone, and with it whose answer it was.
    pub(crate) fn fail_all(&self, error: &Error) {
        for (_, waiter) in lock(&self.pending).drain() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }

    /// The connection is gone.
    pub(crate) fn close(&self, error: Error) {
        // Under the lock: nobody may begin to wait in between.
        let mut pending = lock(&self.pending);
        self.closed.send_if_modified(|closed| match closed {
            Some(_) => false,
            None => {
                *closed = Some(error.clone());
                true
            }
        });
        for (_, waiter) in pending.drain() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }

    /// Waits until the connection is gone.
    pub(crate) async fn closed(&self) -> Error {
        let mut closed = self.closed.subscribe();
        let why = closed.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or(Error::Forgotten)
    }
}
