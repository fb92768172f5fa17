//! JSON-RPC 2.0, for every protocol that is built on it. Nothing here knows which one that is.
//!
//! Messages, errors, lines and [`PendingRequests`] serve any connection. [`run`] is a whole connection between two equal
//! peers, which both send requests, notifications and responses. Its three parts never wait for each other: [`run`]
//! reads, one task writes the [`Outbox`](outbox::Outbox), and each request runs on its own task. A notification always
//! gets through, however long a request takes and however slowly the peer reads.

mod error;
mod line;
mod message;
mod outbox;
mod peer;
mod pending;
mod stream;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::{Error, code};
pub use line::{Line, LineSplitter};
pub use message::{RawMessage, notification, request, request_id, response};
pub use outbox::AppendableMessage;
pub use peer::{Peer, Timeout};
pub use pending::{PendingRequests, Refusal};
pub use stream::{ByteSink, ByteSource, MAX_LINE, Received, Sink, Source};

use message::{Incoming, parse};

/// Incoming requests that may run at the same time; further ones are rejected.
const MAX_ACTIVE_REQUESTS: usize = 256;
/// How long writing the remaining messages may take when the connection ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Handles incoming messages. The reader calls both methods, one message after the other, so they must not block: slow
/// work belongs in the returned future.
pub trait Handler: Send + Sync + 'static {
    /// Handles a request. The future runs on its own task; state that a later notification refers to (a turn that it
    /// may cancel) must be registered before this returns.
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()>;
    /// Handles a notification.
    fn notification(self: &Arc<Self>, method: &str, params: Value);
    /// The error sent to requests that are still running when this side shuts down.
    fn shutdown_error(&self) -> Error {
        Error::internal("This side is stopping")
    }
}

/// An incoming request. It gets exactly one response: dropping it sends an error.
pub struct Request {
    /// The method.
    pub method: String,
    /// Its parameters.
    pub params: Value,
    /// Cancelled by `$/cancel_request`.
    pub cancel: CancellationToken,
    response: PendingResponse,
}

impl Request {
    /// Sends the response. Messages sent afterwards arrive after it.
    pub fn reply(self, result: Result<Value, Error>) {
        self.response.finish(result);
    }
}

/// The response a request still owes; sends an error if it is dropped.
struct PendingResponse {
    id: Value,
    peer: Peer,
    active: Arc<ActiveRequests>,
    sent: bool,
}

impl PendingResponse {
    fn finish(mut self, result: Result<Value, Error>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<Value, Error>) {
        self.sent = true;
        if self.active.remove(&self.id) {
            self.peer.respond(&self.id, result);
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if !self.sent {
            self.send(Err(Error::internal("The request failed unexpectedly; the log says why")));
        }
    }
}

/// The requests that are running, each with the token that cancels it.
struct ActiveRequests {
    /// `None` once this side has shut down and answered all of them.
    tokens: Mutex<Option<HashMap<String, CancellationToken>>>,
}

impl ActiveRequests {
    /// Registers a request; false if there are too many.
    fn add(&self, id: &Value, cancel: &CancellationToken) -> bool {
        let mut tokens = lock(&self.tokens);
        let Some(tokens) = tokens.as_mut().filter(|tokens| tokens.len() < MAX_ACTIVE_REQUESTS) else { return false };
        tokens.insert(id_key(id), cancel.clone());
        true
    }

    /// The token that cancels a running request.
    fn token(&self, id: &Value) -> Option<CancellationToken> {
        lock(&self.tokens).as_ref()?.get(&id_key(id)).cloned()
    }

    /// Removes a request that is about to be answered; false if shutdown has answered it already.
    fn remove(&self, id: &Value) -> bool {
        let mut tokens = lock(&self.tokens);
        tokens.as_mut().map(|tokens| tokens.remove(&id_key(id))).is_some()
    }

    /// Removes all requests and returns their ids.
    fn take_all(&self) -> Vec<Value> {
        let left = lock(&self.tokens).take().unwrap_or_default();
        left.keys().filter_map(|id| serde_json::from_str(id).ok()).collect()
    }
}

/// An id as a map key: `1` and `"1"` are different ids.
fn id_key(id: &Value) -> String {
    id.to_string()
}

/// Runs a connection until the peer disconnects, its pipe breaks, or `stop` is cancelled. Requests that wait for a
/// response fail then; queued messages are still written if the peer reads them soon.
pub async fn run<H: Handler>(
    mut source: impl Source,
    sink: impl Sink + 'static,
    peer: Peer,
    handler: Arc<H>,
    stop: CancellationToken,
) {
    let mut writer = tokio::spawn(outbox::write(peer.outbox().clone(), sink));
    let active = Arc::new(ActiveRequests { tokens: Mutex::new(Some(HashMap::new())) });
    let tasks = TaskTracker::new();
    loop {
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => {
                // Their tasks may never get to respond.
                active.take_all().iter().for_each(|id| peer.respond(id, Err(handler.shutdown_error())));
                break;
            }
            _ = &mut writer => break,
            received = source.next() => received,
        };
        match received {
            Received::Line(line) => dispatch(&line, &peer, &handler, &active, &tasks).await,
            Received::TooLong => peer.reject(&Value::Null, Error::parse("The message is too long")).await,
            Received::End => break,
        }
    }
    peer.close();
    if !writer.is_finished() && tokio::time::timeout(FLUSH_TIMEOUT, &mut writer).await.is_err() {
        writer.abort();
    }
}

async fn dispatch<H: Handler>(
    line: &[u8],
    peer: &Peer,
    handler: &Arc<H>,
    active: &Arc<ActiveRequests>,
    tasks: &TaskTracker,
) {
    match parse(line) {
        Incoming::Empty => {}
        Incoming::Invalid(id, error) => peer.reject(&id, error).await,
        Incoming::Response(id, result) => peer.resolve(&id, result),
        Incoming::Notification(method, params) if method == "$/cancel_request" => {
            if let Some(token) = params.get("requestId").and_then(|id| active.token(id)) {
                token.cancel();
            }
        }
        Incoming::Notification(method, params) => {
            // A panicking handler must not take the connection down.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| handler.notification(&method, params)));
            if outcome.is_err() {
                tracing::error!(method, "the handler of a notification panicked");
            }
        }
        Incoming::Request(id, method, params) => {
            let cancel = CancellationToken::new();
            if !active.add(&id, &cancel) {
                let why = format!("At most {MAX_ACTIVE_REQUESTS} requests are answered at once; wait for some of them");
                return peer.reject(&id, Error::internal(why)).await;
            }
            let response = PendingResponse { id, peer: peer.clone(), active: active.clone(), sent: false };
            let request = Request { method, params, cancel, response };
            let started = std::panic::catch_unwind(AssertUnwindSafe(|| handler.request(request)));
            if let Ok(work) = started {
                // If the work panics, dropping the request sends the error.
                tasks.spawn(AssertUnwindSafe(work).catch_unwind().map(drop));
            }
        }
    }
}

/// Ignores poisoning: everything behind these locks is plain data, valid even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
