//! A model request that the test answers piece by piece.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::WAIT;

/// The number of chunks that may be queued for a slow client before the test waits.
const MAX_QUEUED_CHUNKS: usize = 1024;

/// A request from a client.
#[derive(Debug, Clone)]
pub struct Request {
    /// The JSON body.
    pub body: Value,
    /// The headers.
    pub headers: HeaderMap,
}

impl Request {
    /// The messages.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The names of the offered tools.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }

    /// The text of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The text of the last message with a role; empty if there is none.
    pub fn last_text(&self, role: &str) -> String {
        let last = self.messages().iter().rev().find(|message| message["role"] == role);
        match last.map(|message| &message["content"]) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            _ => String::new(),
        }
    }
}

type Chunk = Result<Bytes, std::io::Error>;
/// Streams that are kept open silently.
pub(crate) type SilentStreams = Arc<Mutex<Vec<mpsc::Sender<Chunk>>>>;

/// A model request that waits for its answer. Chunks reach the client immediately; dropping the call cuts off the
/// answer.
pub struct ModelCall {
    /// The client's request.
    pub request: Request,
    head: Option<oneshot::Sender<Response>>,
    body: Option<mpsc::Sender<Chunk>>,
    silent: SilentStreams,
    usage: Option<Value>,
    tools: usize,
}

impl ModelCall {
    pub(crate) fn new(request: Request, silent: SilentStreams) -> (Self, oneshot::Receiver<Response>) {
        let (head, response) = oneshot::channel();
        (Self { request, head: Some(head), body: None, silent, usage: None, tools: 0 }, response)
    }

    /// Streams text.
    pub async fn text(&mut self, text: impl Into<String>) {
        self.delta(json!({"content": text.into()})).await;
    }

    /// Streams reasoning.
    pub async fn reasoning(&mut self, text: impl Into<String>) {
        self.delta(json!({"reasoning_content": text.into()})).await;
    }

    /// Streams a tool call, its arguments in pieces.
    pub async fn tool(&mut self, id: &str, name: &str, arguments: Value) {
        self.tool_text(id, name, &arguments.to_string()).await;
    }

    /// Streams a tool call whose arguments need not be JSON.
    pub async fn tool_text(&mut self, id: &str, name: &str, arguments: &str) {
        let index = self.tools;
        self.tools += 1;
        let start = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        self.delta(json!({"tool_calls": [start]})).await;
        let letters: Vec<char> = arguments.chars().collect();
        for piece in letters.chunks(letters.len().div_ceil(3).max(1)) {
            let piece: String = piece.iter().collect();
            self.delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})).await;
        }
    }

    /// Sets the usage that [`finish`](Self::finish) will report, in wire format (`prompt_tokens`, `completion_tokens`
    /// …).
    pub fn usage(&mut self, usage: Value) {
        self.usage = Some(usage);
    }

    /// Ends the answer: `stop`, `tool_calls`, `length` … The whole end is sent in one piece, so that nothing happens in
    /// between.
    pub async fn finish(mut self, reason: &str) {
        let mut end = self.chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]), None);
        if let Some(usage) = self.usage.take() {
            end += &self.chunk(json!([]), Some(usage));
        }
        self.raw(end + "data: [DONE]\n\n").await;
    }

    /// Answers with an HTTP error instead of a stream.
    pub fn error(mut self, status: u16, body: Value, headers: &[(&str, &str)]) {
        let head = self.head.take().expect("an error is only possible before the first chunk");
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(status).expect("an HTTP status");
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header name");
            response.headers_mut().insert(name, value.parse().expect("a header value"));
        }
        // The client may be gone; the test will notice.
        let _ = head.send(response);
    }

    /// Breaks the connection without a proper end.
    pub async fn drop_connection(mut self) {
        let cut = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "cut by the test");
        let _ = self.body().send(Err(cut)).await;
    }

    /// Sends raw bytes.
    pub async fn raw(&mut self, bytes: impl Into<Bytes>) {
        let sent = timeout(WAIT, self.body().send(Ok(bytes.into()))).await;
        // An error means that the client hung up, which is fine (abort, timeout).
        let _ = sent.expect("the client reads the stream");
    }

    /// Sends nothing more, but keeps the connection open until the server is dropped.
    pub fn silence(mut self) {
        let sender = self.body().clone();
        self.silent.lock().unwrap().push(sender);
    }

    /// Waits until the client hangs up.
    pub async fn closed(&mut self) {
        let body = self.body().clone();
        timeout(WAIT, body.closed()).await.expect("the client hangs up");
    }

    async fn delta(&mut self, delta: Value) {
        let chunk = self.chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), None);
        self.raw(chunk).await;
    }

    fn chunk(&self, choices: Value, usage: Option<Value>) -> String {
        let model = self.request.body["model"].clone();
        let mut chunk = json!({"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": choices});
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        format!("data: {chunk}\n\n")
    }

    /// The stream; the first use sends the response headers.
    fn body(&mut self) -> &mpsc::Sender<Chunk> {
        if let Some(head) = self.head.take() {
            let (sender, mut receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
            let mut cut = None;
            let stream = futures::stream::poll_fn(move |context| {
                if let Some(error) = cut.take() {
                    return Poll::Ready(Some(Err(error)));
                }
                match receiver.poll_recv(context) {
                    // The server flushes when it has to wait, so that what was sent before the cut arrives.
                    Poll::Ready(Some(Err(error))) => {
                        cut = Some(error);
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                    other => other,
                }
            });
            let mut response = Response::new(Body::from_stream(stream));
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
            let _ = head.send(response);
            self.body = Some(sender);
        }
        self.body.as_ref().expect("a call that was answered with an error is consumed")
    }
}
