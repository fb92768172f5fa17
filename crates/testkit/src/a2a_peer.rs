//! An agent of the A2A protocol that answers as the test says, in any line and over any transport. It spells its answers by
//! itself, so that it is an oracle for our own reader.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::eventually;

/// The largest request that is read.
const MAX_REQUEST: usize = 16 << 20;
/// The events of a stream that may wait to be sent.
const MAX_EVENTS: usize = 256;

/// The id of every task of such an agent.
pub const A2A_TASK: &str = "task-1";
/// The id of every context of such an agent.
pub const A2A_CONTEXT: &str = "context-1";

/// A request to such an agent.
#[derive(Debug, Clone)]
pub struct A2aRequest {
    /// The method of HTTP.
    pub method: Method,
    /// The path, with the query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null if there is none.
    pub body: Value,
}

impl A2aRequest {
    /// The method of JSON-RPC, or the path.
    pub fn operation(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.path)
    }

    /// The parameters of JSON-RPC, or the body.
    pub fn params(&self) -> &Value {
        if self.body["jsonrpc"].is_string() { &self.body["params"] } else { &self.body }
    }

    /// The text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The text of the message that it sends.
    pub fn text(&self) -> String {
        let message = &self.params()["message"];
        let parts = message["parts"].as_array().or_else(|| message["content"].as_array()).into_iter().flatten();
        parts.filter_map(|part| part["text"].as_str()).collect()
    }

    /// Whether it sends a message.
    pub fn sends(&self) -> bool {
        ["message/send", "message/stream", "SendMessage", "SendStreamingMessage"].contains(&self.operation())
            || self.path.contains("/message:")
    }

    /// Whether it asks for the rest of a stream.
    pub fn subscribes(&self) -> bool {
        ["tasks/resubscribe", "SubscribeToTask"].contains(&self.operation()) || self.path.ends_with(":subscribe")
    }

    /// Whether it reads the task.
    pub fn gets(&self) -> bool {
        let is_rest = self.method == Method::GET && self.path.contains("/tasks/") && !self.subscribes();
        ["tasks/get", "GetTask"].contains(&self.operation()) || is_rest
    }

    /// Whether it cancels the task.
    pub fn cancels(&self) -> bool {
        ["tasks/cancel", "CancelTask"].contains(&self.operation()) || self.path.ends_with(":cancel")
    }

    /// Whether it fetches a card.
    pub fn is_for_card(&self) -> bool {
        self.path.contains("/.well-known/")
    }
}

type Handler = dyn Fn(&A2aRequest) -> Response<Body> + Send + Sync;

/// An agent on a port of its own.
pub struct A2aPeer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<A2aRequest>>>,
    server: JoinHandle<()>,
}

impl A2aPeer {
    /// Starts an agent with a handler for all its requests.
    pub async fn start(handler: impl Fn(&A2aRequest) -> Response<Body> + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let requests: Arc<Mutex<Vec<A2aRequest>>> = Arc::default();
        let (seen, handler): (_, Arc<Handler>) = (requests.clone(), Arc::new(handler));
        let answer = move |request: Request<Body>| {
            let (seen, handler) = (seen.clone(), handler.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = axum::body::to_bytes(body, MAX_REQUEST).await.unwrap_or_default();
                let request = A2aRequest {
                    method: head.method,
                    path: head.uri.to_string(),
                    headers: head.headers,
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                };
                seen.lock().unwrap().push(request.clone());
                handler(&request)
            }
        };
        let router = Router::new().fallback(answer);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("the test server runs") });
        Self { address, requests, server }
    }

    /// Starts an agent of one line and transport. The handler gets all requests but those for the card.
    pub async fn of_line(
        line: A2aLine,
        handler: impl Fn(A2aLine, &A2aRequest) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |request| match request.is_for_card() {
            true => {
                let host = request.header("host").unwrap_or_default();
                json_response(200, &line.card(&format!("http://{host}")))
            }
            false => handler(line, request),
        })
        .await
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<A2aRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests so far that are like this.
    pub fn requests_like(&self, is: impl Fn(&A2aRequest) -> bool) -> Vec<A2aRequest> {
        self.requests().into_iter().filter(|request| is(request)).collect()
    }

    /// Waits for a request.
    pub async fn wait_for(&self, what: &str, is: impl Fn(&A2aRequest) -> bool) -> A2aRequest {
        eventually(what, async || self.requests().iter().any(&is)).await;
        self.requests_like(is).remove(0)
    }
}

impl Drop for A2aPeer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A response with JSON.
pub fn json_response(status: u16, body: &Value) -> Response<Body> {
    response(status, "application/json", body.to_string())
}

fn response(status: u16, kind: &str, body: impl Into<Body>) -> Response<Body> {
    let status = StatusCode::from_u16(status).expect("a status of HTTP");
    Response::builder().status(status).header(header::CONTENT_TYPE, kind).body(body.into()).expect("a response")
}

/// An event stream with these events, which ends after them.
pub fn event_stream(events: &[Value]) -> Response<Body> {
    let text: String = events.iter().map(frame).collect();
    response(200, "text/event-stream", text)
}

/// An event stream whose connection breaks off after these events.
pub fn broken_stream(events: &[Value]) -> Response<Body> {
    let frames: Vec<std::io::Result<Bytes>> = events.iter().map(|event| Ok(frame(event).into())).collect();
    let cut = futures::stream::once(async {
        // The server writes what it has when the body has nothing for a moment, and drops it when the body fails.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut"))
    });
    let frames = futures::stream::iter(frames);
    response(200, "text/event-stream", Body::from_stream(frames.chain(cut)))
}

/// An event stream that the test writes. It ends when the sender is dropped.
pub fn open_stream() -> (mpsc::Sender<Value>, Response<Body>) {
    let (sender, receiver) = mpsc::channel(MAX_EVENTS);
    let frames = futures::stream::unfold(receiver, async |mut receiver: mpsc::Receiver<Value>| {
        let event = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Bytes::from(frame(&event))), receiver))
    });
    (sender, response(200, "text/event-stream", Body::from_stream(frames)))
}

fn frame(event: &Value) -> String {
    format!("data: {event}\n\n")
}

/// A line of the protocol over a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct A2aLine {
    /// Whether it is 1.0, and not 0.3.
    pub is_new: bool,
    /// Whether it is HTTP+JSON, and not JSON-RPC.
    pub is_rest: bool,
}

impl A2aLine {
    /// All four.
    pub const ALL: [Self; 4] = [
        Self { is_new: false, is_rest: false },
        Self { is_new: false, is_rest: true },
        Self { is_new: true, is_rest: false },
        Self { is_new: true, is_rest: true },
    ];
    /// 0.3 over JSON-RPC.
    pub const OLD: Self = Self::ALL[0];
    /// 1.0 over JSON-RPC.
    pub const NEW: Self = Self::ALL[2];

    /// A card of an agent that streams and has the extension for interrupts.
    pub fn card(self, url: &str) -> Value {
        let transport = if self.is_rest { "HTTP+JSON" } else { "JSONRPC" };
        let extension = json!({"uri": "urn:opencode-a2a:extension:interactive-interrupt:v1", "description": "asks"});
        let mut card = json!({
            "name": "peer", "description": "A peer of a test.", "version": "1.2.3",
            "capabilities": {"streaming": true, "extensions": [extension]},
            "skills": [{"id": "s", "name": "Skill", "description": "It answers.", "tags": []}],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        });
        if self.is_new {
            card["supportedInterfaces"] = json!([{"url": url, "protocolBinding": transport, "protocolVersion": "1.0"}]);
            // Methods of extensions need JSON-RPC.
            if self.is_rest {
                let rpc = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
                card["supportedInterfaces"].as_array_mut().expect("a list").push(rpc);
            }
        } else {
            card["url"] = url.into();
            card["protocolVersion"] = "0.3.0".into();
            card["preferredTransport"] = transport.into();
            card["additionalInterfaces"] = json!([{"url": url, "transport": "JSONRPC"}]);
        }
        card
    }

    /// The name of a state, for example of `input-required`.
    pub fn state(self, name: &str) -> String {
        match (self.is_new, self.is_rest, name) {
            (false, false, name) => name.to_owned(),
            (false, true, "canceled") => "TASK_STATE_CANCELLED".to_owned(),
            (_, _, name) => format!("TASK_STATE_{}", name.to_uppercase().replace('-', "_")),
        }
    }

    /// A part with text.
    pub fn text(self, text: &str) -> Value {
        if self.is_new || self.is_rest { json!({"text": text}) } else { json!({"kind": "text", "text": text}) }
    }

    /// A part with data.
    pub fn data(self, data: Value) -> Value {
        match (self.is_new, self.is_rest) {
            (true, _) => json!({"data": data}),
            (false, true) => json!({"data": {"data": data}}),
            (false, false) => json!({"kind": "data", "data": data}),
        }
    }

    /// A message of the agent.
    pub fn message(self, text: &str) -> Value {
        let mut message = json!({"messageId": "m-1", "taskId": A2A_TASK, "contextId": A2A_CONTEXT});
        let parts = json!([self.text(text)]);
        if self.is_new || self.is_rest {
            message["role"] = "ROLE_AGENT".into();
        } else {
            message["role"] = "agent".into();
            message["kind"] = "message".into();
        }
        message[if self.is_rest && !self.is_new { "content" } else { "parts" }] = parts;
        message
    }

    fn status(self, state: &str, text: &str) -> Value {
        let mut status = json!({"state": self.state(state)});
        if !text.is_empty() {
            status["message"] = self.message(text);
        }
        status
    }

    /// A task with one artifact, if there is text.
    pub fn task(self, state: &str, text: &str) -> Value {
        let mut task = json!({"id": A2A_TASK, "contextId": A2A_CONTEXT, "status": self.status(state, "")});
        if !text.is_empty() {
            let id = if self.is_new { format!("{A2A_TASK}:stream:text") } else { format!("{A2A_TASK}:stream") };
            task["artifacts"] = json!([{"artifactId": id, "parts": [self.text(text)]}]);
        }
        if !self.is_new && !self.is_rest {
            task["kind"] = "task".into();
        }
        task
    }

    /// An item of a stream, or the reply to a message.
    pub fn item(self, kind: &str, value: Value) -> Value {
        if !self.is_new && !self.is_rest { value } else { json!({ kind: value }) }
    }

    /// A task as the item of a stream, or as the reply to a message.
    pub fn task_item(self, state: &str, text: &str) -> Value {
        self.item("task", self.task(state, text))
    }

    /// A status update with words of the agent and `metadata.shared`.
    pub fn status_update(self, state: &str, text: &str, shared: Value) -> Value {
        let mut update = json!({"taskId": A2A_TASK, "contextId": A2A_CONTEXT, "status": self.status(state, text)});
        if !shared.is_null() {
            update["metadata"] = json!({ "shared": shared });
        }
        if !self.is_new {
            update["final"] = ["completed", "failed", "canceled", "rejected"].contains(&state).into();
        }
        if !self.is_new && !self.is_rest {
            update["kind"] = "status-update".into();
        }
        self.item("statusUpdate", update)
    }

    /// More of the text lane (`text`), the reasoning lane (`reasoning`), or a tool call. Numbered from 1, or 0 for none.
    pub fn artifact_update(self, block: &str, part: Value, seq: u64) -> Value {
        let id = match (self.is_new, block) {
            (true, "tool_call") => format!("{A2A_TASK}:stream:tool:p"),
            (true, block) => format!("{A2A_TASK}:stream:{block}"),
            (false, _) => format!("{A2A_TASK}:stream"),
        };
        let mut stream = json!({"block_type": block, "source": "stream"});
        if seq > 0 {
            stream["sequence"] = seq.into();
        }
        let mut update = json!({
            "taskId": A2A_TASK, "contextId": A2A_CONTEXT, "append": true,
            "artifact": {"artifactId": id, "parts": [part], "metadata": {"shared": {"stream": stream}}},
        });
        if !self.is_new && !self.is_rest {
            update["kind"] = "artifact-update".into();
        }
        self.item("artifactUpdate", update)
    }

    /// More text.
    pub fn text_update(self, text: &str, seq: u64) -> Value {
        self.artifact_update("text", self.text(text), seq)
    }

    /// The envelope of an item or a reply, where the transport has one.
    pub fn wrap(self, result: Value) -> Value {
        if self.is_rest { result } else { json!({"jsonrpc": "2.0", "id": 1, "result": result}) }
    }

    /// A response with a reply.
    pub fn reply(self, result: Value) -> Response<Body> {
        json_response(200, &self.wrap(result))
    }

    /// A response with an error of the protocol.
    pub fn error(self, code: i64, status: u16, reason: &str, message: &str) -> Response<Body> {
        let info = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}]);
        match (self.is_new, self.is_rest) {
            (true, true) => {
                json_response(status, &json!({"error": {"code": status, "message": message, "details": info}}))
            }
            (true, false) => {
                let error = json!({"code": code, "message": message, "data": info});
                json_response(200, &json!({"jsonrpc": "2.0", "id": 1, "error": error}))
            }
            (false, true) => json_response(status, &json!({ "message": message })),
            (false, false) => {
                json_response(200, &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}))
            }
        }
    }

    /// The items of a stream in their envelopes.
    pub fn events(self, items: impl IntoIterator<Item = Value>) -> Vec<Value> {
        items.into_iter().map(|item| self.wrap(item)).collect()
    }
}
