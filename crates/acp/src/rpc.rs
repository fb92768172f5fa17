//! JSON-RPC 2.0 between two equal sides: either may ask, tell and answer. Nothing in here knows ACP.
//!
//! A connection has three parts that never wait for each other: [`run`] reads, a task writes what is in the
//! [`Outbox`](outbox::Outbox), and every request is answered on a task of its own. So a notification always gets through,
//! however long a request takes and however slowly the other side reads.

mod error;
mod message;
mod outbox;
mod peer;
mod stream;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::{Error, code};
pub use outbox::Growing;
pub use peer::{Peer, Waits};
pub use stream::{ByteSink, ByteSource, MAX_LINE, Received, Sink, Source};

use crate::lock;
use message::{Incoming, parse};

/// Requests of the other side that are answered at once; a further one is refused.
const MAX_REQUESTS: usize = 256;
/// How long what is left may take to be written at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// What answers the other side. Both methods are called by the reader, one message after the other, and must not wait:
/// what takes time belongs into the future.
pub trait Handler: Send + Sync + 'static {
    /// Takes a request. The future runs on a task of its own; what it is about to change (a turn that a following
    /// notification may cancel) is noted before it is returned.
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()>;
    /// Takes a notification.
    fn notification(self: &Arc<Self>, method: &str, params: Value);
    /// What is answered to requests that are on their way when this side stops.
    fn stopping(&self) -> Error {
        Error::internal("This side is stopping")
    }
}

/// A request of the other side. It is answered exactly once: one that is dropped is answered with an error.
pub struct Request {
    /// What is wanted.
    pub method: String,
    /// With what.
    pub params: Value,
    /// Cancelled by `$/cancel_request`.
    pub cancel: CancellationToken,
    answer: Answer,
}

impl Request {
    /// Answers it. What is sent afterwards comes after the answer.
    pub fn reply(self, result: Result<Value, Error>) {
        self.answer.give(result);
    }
}

/// What is still to be said to a request.
struct Answer {
    id: Value,
    peer: Peer,
    running: Arc<Running>,
    given: bool,
}

impl Answer {
    fn give(mut self, result: Result<Value, Error>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<Value, Error>) {
        self.given = true;
        if self.running.remove(&self.id) {
            self.peer.answer(&self.id, result);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.given {
            self.send(Err(Error::internal("The request broke down; the log says why")));
        }
    }
}

/// The requests that are being answered.
struct Running {
    /// Nothing once all of them were answered, because this side stops.
    tokens: Mutex<Option<HashMap<String, CancellationToken>>>,
}

impl Running {
    /// Notes a request; false if there are too many.
    fn add(&self, id: &Value, cancel: &CancellationToken) -> bool {
        let mut tokens = lock(&self.tokens);
        let Some(tokens) = tokens.as_mut().filter(|tokens| tokens.len() < MAX_REQUESTS) else { return false };
        tokens.insert(key(id), cancel.clone());
        true
    }

    /// How one that is being answered is told that the answer is no longer wanted.
    fn token(&self, id: &Value) -> Option<CancellationToken> {
        lock(&self.tokens).as_ref()?.get(&key(id)).cloned()
    }

    /// Forgets one that is answered now; false if it was answered when this side stopped.
    fn remove(&self, id: &Value) -> bool {
        let mut tokens = lock(&self.tokens);
        tokens.as_mut().map(|tokens| tokens.remove(&key(id))).is_some()
    }

    /// Forgets all; gives their ids.
    fn end(&self) -> Vec<Value> {
        let left = lock(&self.tokens).take().unwrap_or_default();
        left.keys().filter_map(|id| serde_json::from_str(id).ok()).collect()
    }
}

/// An id as a key: `1` and `"1"` are different ids.
fn key(id: &Value) -> String {
    id.to_string()
}

/// Speaks with the other side until it hangs up, its pipe breaks, or `stop` is cancelled. What waits for an answer of the
/// other side fails then, and what was queued is still written, if the other side reads it soon.
pub async fn run<H: Handler>(
    mut source: impl Source,
    sink: impl Sink + 'static,
    peer: Peer,
    handler: Arc<H>,
    stop: CancellationToken,
) {
    let mut writer = tokio::spawn(outbox::write(peer.outbox().clone(), sink));
    let running = Arc::new(Running { tokens: Mutex::new(Some(HashMap::new())) });
    let tasks = TaskTracker::new();
    loop {
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => {
                // Their tasks may not come to an answer any more.
                running.end().iter().for_each(|id| peer.answer(id, Err(handler.stopping())));
                break;
            }
            _ = &mut writer => break,
            received = source.next() => received,
        };
        match received {
            Received::Line(line) => take(&line, &peer, &handler, &running, &tasks).await,
            Received::TooLong => peer.refuse(&Value::Null, Error::parse("The message is too long")).await,
            Received::End => break,
        }
    }
    peer.close();
    if !writer.is_finished() && tokio::time::timeout(FLUSH, &mut writer).await.is_err() {
        writer.abort();
    }
}

async fn take<H: Handler>(line: &[u8], peer: &Peer, handler: &Arc<H>, running: &Arc<Running>, tasks: &TaskTracker) {
    match parse(line) {
        Incoming::Nothing => {}
        Incoming::Broken(id, error) => peer.refuse(&id, error).await,
        Incoming::Answer(id, result) => peer.resolve(&id, result),
        Incoming::Notification(method, params) if method == "$/cancel_request" => {
            if let Some(token) = params.get("requestId").and_then(|id| running.token(id)) {
                token.cancel();
            }
        }
        Incoming::Notification(method, params) => {
            // A handler that breaks down must not take the connection with it.
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| handler.notification(&method, params)));
            if told.is_err() {
                tracing::error!(method, "a notification broke its handler down");
            }
        }
        Incoming::Request(id, method, params) => {
            let cancel = CancellationToken::new();
            if !running.add(&id, &cancel) {
                let why = format!("At most {MAX_REQUESTS} requests are answered at once; wait for some of them");
                return peer.refuse(&id, Error::internal(why)).await;
            }
            let answer = Answer { id, peer: peer.clone(), running: running.clone(), given: false };
            let request = Request { method, params, cancel, answer };
            let made = std::panic::catch_unwind(AssertUnwindSafe(|| handler.request(request)));
            if let Ok(work) = made {
                // The answer that is dropped on the way says that it broke down.
                tasks.spawn(AssertUnwindSafe(work).catch_unwind().map(drop));
            }
        }
    }
}

#[cfg(test)]
mod tests;
