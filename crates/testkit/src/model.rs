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

use crate::model_call::SilentStreams;
use crate::{ModelCall, Reply, Request, WAIT};

/// The number of calls that may wait for the test; more are refused with status 503.
const MAX_WAITING_CALLS: usize = 256;

/// An OpenAI-compatible model on its own port. A request gets the next enqueued [`Reply`]; if there is none, it waits
/// until the test takes it with [`next_call`](Self::next_call).
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    calls: mpsc::Receiver<ModelCall>,
    server: JoinHandle<()>,
}

struct Shared {
    calls: mpsc::Sender<ModelCall>,
    replies: Mutex<VecDeque<Reply>>,
    title: Mutex<Option<String>>,
    /// The status and body of `GET /models`.
    models: Mutex<(StatusCode, Value)>,
    requests: Mutex<Vec<Request>>,
    silent: SilentStreams,
}

impl ModelServer {
    /// Starts the server.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (sender, calls) = mpsc::channel(MAX_WAITING_CALLS);
        let shared = Arc::new(Shared {
            calls: sender,
            replies: Mutex::default(),
            title: Mutex::default(),
            models: Mutex::new((StatusCode::OK, list(&["test-model"]))),
            requests: Mutex::default(),
            silent: SilentStreams::default(),
        });
        let router = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("the test server runs") });
        Self { address, shared, calls, server }
    }

    /// The value for `baseURL`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A configuration that uses this server's `test/test-model` for everything.
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

    /// Answers a future request without the test's involvement; several replies are used in order.
    pub fn enqueue(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
    }

    /// From now on, answers every request without tools (titles, summaries) with this text, invisibly to the test.
    pub fn answer_titles(&self, title: &str) {
        *self.shared.title.lock().unwrap() = Some(title.to_owned());
    }

    /// Sets the models that the server lists.
    pub fn list_models(&self, ids: &[&str]) {
        self.answer_models(200, list(ids));
    }

    /// Sets the response to requests for its models.
    pub fn answer_models(&self, status: u16, body: Value) {
        let status = StatusCode::from_u16(status).expect("a status of HTTP");
        *self.shared.models.lock().unwrap() = (status, body);
    }

    /// The next request that no enqueued reply answers.
    pub async fn next_call(&mut self) -> ModelCall {
        match timeout(WAIT, self.calls.recv()).await {
            Ok(call) => call.expect("the server lives as long as its handle"),
            Err(_) => panic!("no model request came within {WAIT:?}; there were {} before", self.requests().len()),
        }
    }

    /// Likewise, without a timeout.
    pub async fn any_call(&mut self) -> ModelCall {
        self.calls.recv().await.expect("the server lives as long as its handle")
    }

    /// Whether no request is waiting for [`next_call`](Self::next_call).
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// All requests so far, except for those for titles.
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
    let (call, response) = ModelCall::new(request, shared.silent.clone());
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
