//! A model server that answers as the test says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::call::Silent;
use crate::{Call, Reply, Request, WAIT};

/// Calls that may wait for the test; more are refused with status 503.
const CALLS: usize = 256;

/// An OpenAI-compatible model on a port of its own. A request gets the next enqueued [`Reply`]; while there is none, it
/// waits for the test to take it with [`next_call`](Self::next_call).
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    calls: mpsc::Receiver<Call>,
    server: JoinHandle<()>,
}

struct Shared {
    calls: mpsc::Sender<Call>,
    replies: Mutex<VecDeque<Reply>>,
    title: Mutex<Option<String>>,
    /// The status and body of `GET /models`.
    models: Mutex<(StatusCode, Value)>,
    requests: Mutex<Vec<Request>>,
    silent: Silent,
}

impl ModelServer {
    /// Starts the server.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (sender, calls) = mpsc::channel(CALLS);
        let shared = Arc::new(Shared {
            calls: sender,
            replies: Mutex::default(),
            title: Mutex::default(),
            models: Mutex::new((StatusCode::OK, list(&["test-model"]))),
            requests: Mutex::default(),
            silent: Silent::default(),
        });
        let router = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("the test server runs") });
        Self { address, shared, calls, server }
    }

    /// What goes into `baseURL`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A configuration file that makes this server's `test/test-model` the model for everything.
    pub fn config(&self) -> Value {
        json!({
            "model": "test/test-model",
            "small_model": "test/test-model",
            "provider": {"test": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Test",
                "options": {"baseURL": self.base_url(), "apiKey": "test-key"},
                "models": {"test-model": {"name": "Test Model", "limit": {"context": 100_000, "output": 8_192}}},
            }},
        })
    }

    /// Answers a coming request without the test taking part; several are used in order.
    pub fn enqueue(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
    }

    /// From now on every request without tools (titles, summaries) gets this text, and is not seen by the test.
    pub fn answer_titles(&self, title: &str) {
        *self.shared.title.lock().unwrap() = Some(title.to_owned());
    }

    /// From now on these are the models that the server lists.
    pub fn list_models(&self, ids: &[&str]) {
        self.answer_models(200, list(ids));
    }

    /// From now on who asks for its models gets this.
    pub fn answer_models(&self, status: u16, body: Value) {
        let status = StatusCode::from_u16(status).expect("a status of HTTP");
        *self.shared.models.lock().unwrap() = (status, body);
    }

    /// The next request that no enqueued reply answers.
    pub async fn next_call(&mut self) -> Call {
        match timeout(WAIT, self.calls.recv()).await {
            Ok(call) => call.expect("the server lives as long as its handle"),
            Err(_) => panic!("no model request came within {WAIT:?}; there were {} before", self.requests().len()),
        }
    }

    /// The same, however long it takes.
    pub async fn any_call(&mut self) -> Call {
        self.calls.recv().await.expect("the server lives as long as its handle")
    }

    /// Whether a request waits for [`next_call`](Self::next_call).
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// Every request so far, except for those of titles.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.server.abort();
        self.shared.silent.lock().unwrap().clear();
    }
}

fn list(ids: &[&str]) -> Value {
    json!({"object": "list", "data": ids.iter().map(|id| json!({"id": id, "object": "model"})).collect::<Vec<_>>()})
}

async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let (status, body) = shared.models.lock().unwrap().clone();
    (status, Json(body)).into_response()
}

async fn chat(State(shared): State<Arc<Shared>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let request = Request { body, headers };
    let title = shared.title.lock().unwrap().clone().filter(|_| request.tools().is_empty());
    let reply = match title {
        Some(title) => Some(Reply::text(title)),
        None => {
            shared.requests.lock().unwrap().push(request.clone());
            shared.replies.lock().unwrap().pop_front()
        }
    };
    let (call, response) = Call::new(request, shared.silent.clone());
    match reply {
        Some(reply) => drop(tokio::spawn(reply.play(call))),
        None if shared.calls.try_send(call).is_err() => {
            return (StatusCode::SERVICE_UNAVAILABLE, "the test takes no calls").into_response();
        }
        None => {}
    }
    let unanswered = || (StatusCode::INTERNAL_SERVER_ERROR, "the test dropped the call").into_response();
    response.await.unwrap_or_else(|_| unanswered())
}

#[cfg(test)]
mod tests;
