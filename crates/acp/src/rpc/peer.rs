//! The other side of a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::error::Error;
use super::outbox::{Growing, Outbox};
use crate::lock;

/// Questions to the other side that may wait for their answers at once.
const MAX_ASKED: usize = 1024;

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub enum Waits {
    /// A program answers.
    For(Duration),
    /// A human answers: as long as it takes.
    Forever,
}

/// The other side. Cheap to clone.
#[derive(Clone, Default)]
pub struct Peer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    outbox: Outbox,
    next: AtomicU64,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    waiting: HashMap<u64, oneshot::Sender<Result<Value, Error>>>,
    closed: bool,
}

impl Peer {
    /// What waits to be written.
    pub(super) fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// Asks, and waits for the answer. If the future is dropped, or the time is over, the other side is told that the
    /// answer is no longer wanted.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        waits: Waits,
    ) -> Result<T, Error> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut asked = lock(&self.0.asked);
            if asked.closed {
                return Err(closed());
            }
            if asked.waiting.len() >= MAX_ASKED {
                return Err(Error::internal(format!("{MAX_ASKED} questions wait for an answer already")));
            }
            asked.waiting.insert(id, sender);
        }
        let _withdraw = Withdraw { peer: self, id };
        self.0.outbox.push(line(&Asking { id: Some(id), ..Asking::new(method, params) }));
        let answer = match waits {
            Waits::Forever => answer.await,
            Waits::For(time) => match tokio::time::timeout(time, answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    return Err(Error::internal(format!("{method} was not answered within {} s", time.as_secs())));
                }
            },
        };
        let answer = answer.unwrap_or_else(|_| Err(closed()))?;
        serde_json::from_value(answer)
            .map_err(|error| Error::invalid_params(format!("The answer to {method} is not understood: {error}")))
    }

    /// Tells, when there is room.
    pub async fn tell(&self, method: &str, params: &impl Serialize) {
        self.0.outbox.send(line(&Asking::new(method, params))).await;
    }

    /// Tells a state, when there is room; it takes the place of an older one with the same key that was not sent yet.
    pub async fn tell_latest(&self, key: String, method: &str, params: &impl Serialize) {
        self.0.outbox.replace(key, line(&Asking::new(method, params))).await;
    }

    /// Tells text that may join what was not sent yet, when there is room.
    pub async fn tell_text(&self, growing: Growing) {
        self.0.outbox.grow(growing).await;
    }

    /// Whether the other side hung up.
    pub fn is_closed(&self) -> bool {
        lock(&self.0.asked).closed
    }

    /// Nobody is asked or told any more; whoever waits for an answer gets an error.
    pub(super) fn close(&self) {
        let mut asked = lock(&self.0.asked);
        asked.closed = true;
        asked.waiting.clear();
        drop(asked);
        self.0.outbox.close();
    }

    /// Answers a request.
    pub(super) fn answer(&self, id: &Value, result: Result<Value, Error>) {
        self.0.outbox.push(answer(id, result));
    }

    /// Refuses what the reader could not hand on, when there is room: somebody who sends nothing but this is slowed down.
    pub(super) async fn refuse(&self, id: &Value, error: Error) {
        self.0.outbox.send(answer(id, Err(error))).await;
    }

    /// An answer came. One that nobody waits for (any more) means nothing.
    pub(super) fn resolve(&self, id: &Value, result: Result<Value, Error>) {
        let id = id.as_u64().or_else(|| id.as_str()?.parse().ok());
        if let Some(waiting) = id.and_then(|id| lock(&self.0.asked).waiting.remove(&id)) {
            let _ = waiting.send(result);
        }
    }
}

fn closed() -> Error {
    Error::internal("The other side hung up")
}

fn answer(id: &Value, result: Result<Value, Error>) -> Vec<u8> {
    match result {
        Ok(result) => line(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Err(error) => line(&json!({"jsonrpc": "2.0", "id": id, "error": error})),
    }
}

/// A question, or what is told: written as it is, because there may be thousands that hold whole files.
#[derive(Serialize)]
struct Asking<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a P,
}

impl<'a, P: Serialize> Asking<'a, P> {
    fn new(method: &'a str, params: &'a P) -> Self {
        Self { jsonrpc: "2.0", id: None, method, params }
    }
}

fn line(message: &impl Serialize) -> Vec<u8> {
    // Only keys that are no strings cannot be written, and there are none; an empty line would mean nothing.
    serde_json::to_vec(message).unwrap_or_default()
}

/// A question whose answer is not awaited any more.
struct Withdraw<'a> {
    peer: &'a Peer,
    id: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        if lock(&self.peer.0.asked).waiting.remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id });
            self.peer.0.outbox.push(line(&Asking::new("$/cancel_request", &params)));
        }
    }
}
