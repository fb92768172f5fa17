//! The server's end of a connection, for every transport: our pending requests, and the server's requests to us.

use api::Json;
use rpc::{PendingRequests, RawMessage, Refusal, code};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Error;
use crate::truncated;

/// The largest message that is read, in bytes.
pub const MESSAGE_MAX: usize = 16 << 20;
/// The most pending requests to one server.
const PENDING_MAX: usize = 256;
/// Unread progress messages of a request; more are dropped.
const PROGRESS_QUEUE: usize = 8;
/// The longest text of a server in an error or a progress message.
const TEXT_MAX: usize = 2_000;

/// The server's end of a connection.
pub(crate) struct Peer {
    pending: PendingRequests<PendingRequest, Error>,
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
        self.peer.pending.remove(self.id);
    }
}

impl Peer {
    pub(crate) fn new(root: String) -> Self {
        Self {
            pending: PendingRequests::new(PENDING_MAX, 1),
            closed: watch::Sender::new(None),
            changes: watch::Sender::new(0),
            root,
        }
    }

    /// Registers a request.
    pub(crate) fn register(&self) -> Result<RequestHandle<'_>, Error> {
        let (sender, response) = oneshot::channel();
        let (progress, updates) = mpsc::channel(PROGRESS_QUEUE);
        let request = PendingRequest { response: sender, progress };
        let id = self.pending.add(request).map_err(|refusal| match refusal {
            Refusal::Closed(error) => error,
            Refusal::Full(max) => Error::Closed(format!("{max} requests already wait for the server")),
        })?;
        Ok(RequestHandle { peer: self, id, response, progress: updates })
    }

    /// Handles a message. Returns the reply to send, if any; `Err` if it is not a message.
    pub(crate) fn receive(&self, text: &[u8]) -> Result<Option<Vec<u8>>, ()> {
        let message: RawMessage<Box<RawValue>> = RawMessage::parse(text).map_err(drop)?;
        match (message.method, message.id.filter(|id| !id.is_null())) {
            (Some(Json::String(method)), Some(id)) => Ok(Some(rpc::response(&id, self.answer(&method)))),
            (Some(Json::String(method)), None) => {
                self.handle_notification(&method, message.params.as_deref());
                Ok(None)
            }
            (None | Some(Json::Null), Some(id)) => {
                let request = self.pending.remove(rpc::request_id(&id).ok_or(())?);
                let response = match message.error.filter(|error| !error.is_null()) {
                    Some(error) => {
                        let error = rpc::Error::from_response(error);
                        Err(Error::Refused { code: error.code, message: truncated(&error.message, TEXT_MAX) })
                    }
                    None => Ok(message.result.unwrap_or_else(|| RawValue::NULL.to_owned())),
                };
                // The response may come too late for its request.
                let _ = request.map(|request| request.response.send(response));
                Ok(None)
            }
            _ => Err(()),
        }
    }

    /// Answers a request of the server.
    fn answer(&self, method: &str) -> Result<Json, rpc::Error> {
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => Ok(json!({ "roots": [{ "uri": self.root }] })),
            _ => Err(rpc::Error::new(code::METHOD_NOT_FOUND, "Method not found")),
        }
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
                if let Some(progress) = progress {
                    let text = truncated(&progress.message.unwrap_or_default(), TEXT_MAX);
                    // Progress that is not read in time is not worth keeping.
                    self.pending.read(progress.token, |request| request.progress.try_send(text).ok());
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
        for request in self.pending.take_all() {
            let _ = request.response.send(Err(error.clone()));
        }
    }

    /// Ends the connection; pending requests fail.
    pub(crate) fn close(&self, error: Error) {
        let pending = self.pending.close(error.clone());
        self.closed.send_if_modified(|closed| match closed {
            Some(_) => false,
            None => {
                *closed = Some(error.clone());
                true
            }
        });
        for request in pending {
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
