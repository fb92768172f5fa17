//! An OpenCode server whose turns, events and failures a test drives. What it answers has the shape of recordings.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, header};
use client::{Client, Options};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::soon;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The largest request that is read.
const MAX_REQUEST: usize = 1 << 20;

/// How an operation fails.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// With a status.
    Status(u16),
    /// With a web page.
    Page,
    /// There is no answer.
    Silence,
}

/// The server.
pub struct FakeOpenCode {
    address: SocketAddr,
    state: Arc<Shared>,
    prompts: mpsc::UnboundedReceiver<FakeTurn>,
    server: JoinHandle<()>,
}

struct Shared {
    state: Mutex<Inner>,
    prompts: mpsc::UnboundedSender<FakeTurn>,
}

#[derive(Default)]
struct Inner {
    has_global_events: bool,
    last_id: u64,
    /// What was asked for, as `METHOD /path`, ids written as `*`, with the body.
    requests: Vec<(String, Value)>,
    troubles: HashMap<String, Trouble>,
    sessions: HashMap<String, FakeSession>,
    /// The open asks: the kind, and what its event says.
    asks: Vec<(&'static str, Value)>,
    answers: HashMap<String, oneshot::Sender<()>>,
    listeners: Vec<(Option<String>, mpsc::UnboundedSender<String>)>,
}

struct FakeSession {
    info: Value,
    messages: Vec<Value>,
    is_running: bool,
}

/// A turn that waits for what the test does with it.
pub struct FakeTurn {
    shared: Arc<Shared>,
    session: String,
    /// The prompt, as it was sent.
    pub prompt: Value,
    answer: Option<oneshot::Sender<Value>>,
    info: Value,
    parts: Vec<Value>,
}

impl FakeOpenCode {
    /// Starts one with a stream of all events.
    pub async fn start() -> Self {
        Self::with(true).await
    }

    /// Starts one of a version that has a stream for each directory alone.
    pub async fn without_global_events() -> Self {
        Self::with(false).await
    }

    async fn with(has_global_events: bool) -> Self {
        let (sender, prompts) = mpsc::unbounded_channel();
        let state = Mutex::new(Inner { has_global_events, ..Inner::default() });
        let state = Arc::new(Shared { state, prompts: sender });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(state.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, prompts, server }
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        self.client_with(Options::default())
    }

    /// A client with limits of its own.
    pub fn client_with(&self, options: Options) -> Client {
        Client::new(&format!("http://{}", self.address), options).unwrap()
    }

    /// Makes an operation fail, named like `POST /session/*/message`.
    pub fn fail(&self, operation: &str, trouble: Trouble) {
        self.state.lock().troubles.insert(operation.to_owned(), trouble);
    }

    /// All operations work again.
    pub fn mend(&self) {
        self.state.lock().troubles.clear();
    }

    /// The bodies that were sent to an operation.
    pub fn sent(&self, operation: &str) -> Vec<Value> {
        let state = self.state.lock();
        state.requests.iter().filter(|(name, _)| name == operation).map(|(_, body)| body.clone()).collect()
    }

    /// The next prompt.
    pub async fn next_prompt(&mut self) -> FakeTurn {
        soon("a prompt", self.prompts.recv()).await.unwrap()
    }

    /// Whether no prompt waits.
    pub fn is_idle(&mut self) -> bool {
        self.prompts.try_recv().is_err()
    }

    /// Deletes a session, as another client of the server does.
    pub fn delete_session(&self, id: &str) {
        self.state.lock().sessions.remove(id);
    }

    /// Forgets an ask without an event.
    pub fn forget_ask(&self, id: &str) {
        self.state.lock().asks.retain(|(_, ask)| ask["id"] != id);
    }
}

impl Drop for FakeOpenCode {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn id(&mut self, prefix: &str) -> String {
        self.last_id += 1;
        format!("{prefix}_{:012x}AAAAAAAAAAAAAA", 0xf000_0000_0000_u64 + self.last_id)
    }

    fn tell(&mut self, directory: &str, kind: &str, properties: &Value) {
        let id = self.id("evt");
        let event = json!({"id": id, "type": kind, "properties": properties});
        self.listeners.retain(|(of, listener)| {
            let line = match of {
                None => json!({"directory": directory, "project": "prj_one", "payload": event}),
                Some(of) if of == directory => event.clone(),
                Some(_) => return !listener.is_closed(),
            };
            listener.send(format!("data: {line}\n\n")).is_ok()
        });
    }

    fn directory_of(&self, session: &str) -> String {
        let session = self.sessions.get(session).map(|session| &session.info["directory"]);
        session.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl FakeTurn {
    fn begin(shared: &Arc<Shared>, session: &str, prompt: Value, answer: Option<oneshot::Sender<Value>>) -> Self {
        let mut state = shared.lock();
        let user = prompt["messageID"].as_str().map_or_else(|| state.id("msg"), str::to_owned);
        let model = json!({"providerID": "fake", "modelID": "fake-1"});
        let user = json!({"id": user, "sessionID": session, "role": "user", "time": {"created": 1}, "agent": "build",
            "model": model});
        let directory = state.directory_of(session);
        let tokens = json!({"total": 42, "input": 30, "output": 12, "reasoning": 0, "cache": {"read": 0, "write": 0}});
        let info = json!({"id": state.id("msg"), "sessionID": session, "role": "assistant", "time": {"created": 2},
            "parentID": user["id"], "providerID": "fake", "modelID": "fake-1", "mode": "build", "agent": "build",
            "path": {"cwd": directory, "root": directory}, "cost": 0, "tokens": tokens});
        if let Some(session) = state.sessions.get_mut(session) {
            session.is_running = true;
            session.messages.push(json!({"info": user, "parts": []}));
        }
        let (session, parts) = (session.to_owned(), Vec::new());
        state.tell(&directory, "message.updated", &json!({"sessionID": session, "info": user}));
        state.tell(&directory, "message.updated", &json!({"sessionID": session, "info": info}));
        drop(state);
        Self { shared: shared.clone(), session, prompt, answer, info, parts }
    }

    fn tell(&self, kind: &str, properties: Value) {
        let mut state = self.shared.lock();
        let directory = state.directory_of(&self.session);
        state.tell(&directory, kind, &properties);
    }

    /// An empty text part, which no event has told of.
    pub fn part(&mut self) -> Value {
        let id = self.shared.lock().id("prt");
        let part = json!({"id": id, "sessionID": self.session, "messageID": self.info["id"], "type": "text", "text": "",
            "time": {"start": 3}});
        self.parts.push(part.clone());
        part
    }

    /// Tells of a part.
    pub fn show(&self, part: &Value) {
        self.tell("message.part.updated", json!({"sessionID": self.session, "part": part, "time": 3}));
    }

    /// Adds to a part of text.
    pub fn delta(&mut self, part: &Value, delta: &str) {
        for known in self.parts.iter_mut().filter(|known| known["id"] == part["id"]) {
            known["text"] = format!("{}{delta}", known["text"].as_str().unwrap_or_default()).into();
        }
        let properties = json!({"sessionID": self.session, "messageID": self.info["id"], "partID": part["id"],
            "field": "text", "delta": delta});
        self.tell("message.part.delta", properties);
    }

    /// Asks for a permission. Returns the id of the request, and what resolves once it is answered.
    pub fn ask_permission(&self) -> (String, oneshot::Receiver<()>) {
        self.ask(
            "permission",
            "per",
            json!({"permission": "bash", "patterns": ["ls"], "metadata": {}, "always": ["ls *"]}),
        )
    }

    /// Asks a question.
    pub fn ask_question(&self) -> (String, oneshot::Receiver<()>) {
        let options = json!([{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]);
        self.ask(
            "question",
            "que",
            json!({"questions": [{"question": "Which?", "header": "Colour", "options": options}]}),
        )
    }

    fn ask(&self, kind: &'static str, prefix: &str, mut details: Value) -> (String, oneshot::Receiver<()>) {
        let (answer, answered) = oneshot::channel();
        let mut state = self.shared.lock();
        let id = state.id(prefix);
        (details["id"], details["sessionID"]) = (json!(id), json!(self.session));
        state.asks.push((kind, details.clone()));
        state.answers.insert(id.clone(), answer);
        drop(state);
        self.tell(&format!("{kind}.asked"), details);
        (id, answered)
    }

    /// Ends it with a text that was told already, or not.
    pub fn finish(mut self, text: &str) {
        if self.parts.is_empty() {
            let mut part = self.part();
            part["text"] = text.into();
            self.parts = vec![part];
        }
        self.end();
    }

    /// Ends it with an error of the provider.
    pub fn fail(mut self, status: u16) {
        self.info["error"] = json!({"name": "APIError",
            "data": {"message": "The provider is down", "statusCode": status, "isRetryable": false}});
        self.end();
    }

    /// No event tells of the end: the one of OpenCode that says so is lost.
    fn end(&mut self) {
        self.info["time"]["completed"] = 4.into();
        self.info["finish"] = "stop".into();
        let message = json!({"info": self.info, "parts": self.parts});
        let mut state = self.shared.lock();
        state.asks.retain(|(_, ask)| ask["sessionID"] != json!(self.session));
        if let Some(session) = state.sessions.get_mut(&self.session) {
            session.is_running = false;
            session.messages.push(message.clone());
        }
        drop(state);
        if let Some(answer) = self.answer.take() {
            // The service may be gone.
            let _ = answer.send(message);
        }
    }
}

/// A path with its ids as `*`, and the ids.
fn pattern(path: &str) -> (String, Vec<String>) {
    let mut ids = Vec::new();
    let words = path.split('/').map(|word| {
        let is_id = ["ses_", "msg_", "per_", "que_"].iter().any(|prefix| word.starts_with(prefix));
        if is_id {
            ids.push(word.to_owned());
        }
        if is_id { "*" } else { word }
    });
    (words.collect::<Vec<_>>().join("/"), ids)
}

fn reply(status: u16, body: &Value) -> Response<Body> {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(body.to_string())).unwrap()
}

fn missing(what: &str) -> Response<Body> {
    reply(404, &json!({"name": "NotFoundError", "data": {"message": format!("{what} not found: x")}}))
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_REQUEST).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (path, ids) = pattern(head.uri.path());
    let operation = format!("{} {path}", head.method);
    let directory = head.headers.get("x-opencode-directory").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let trouble = {
        let mut state = shared.lock();
        state.requests.push((operation.clone(), body.clone()));
        state.troubles.get(&operation).copied()
    };
    match trouble {
        Some(Trouble::Status(status)) => {
            return reply(status, &json!({"name": "UpstreamError", "data": {"message": "no"}}));
        }
        Some(Trouble::Page) => {
            let page = Response::builder().header(header::CONTENT_TYPE, "text/html");
            return page.body(Body::from("<html></html>")).unwrap();
        }
        Some(Trouble::Silence) => std::future::pending().await,
        None => {}
    }
    let id = ids.first().map(String::as_str).unwrap_or_default();
    match operation.as_str() {
        "GET /global/event" if shared.lock().has_global_events => return events(&shared, None),
        "GET /event" => {
            let query = head.uri.query().unwrap_or_default();
            let directory = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "directory");
            return events(&shared, directory.map(|(_, directory)| directory.into_owned()));
        }
        "POST /session/*/message" | "POST /session/*/prompt_async" => {
            if !shared.lock().sessions.contains_key(id) {
                return missing("Session");
            }
            let (sender, answered) = oneshot::channel();
            let is_async = path.ends_with("async");
            // A server that runs a turn takes further prompts in.
            let turn = FakeTurn::begin(&shared, id, body, (!is_async).then_some(sender));
            let _ = shared.prompts.send(turn);
            return match is_async {
                true => Response::builder().status(StatusCode::NO_CONTENT).body(Body::empty()).unwrap(),
                false => answered.await.map_or_else(|_| reply(500, &json!({})), |message| reply(200, &message)),
            };
        }
        _ => {}
    }
    let mut state = shared.lock();
    match operation.as_str() {
        "POST /session" => {
            let id = state.id("ses");
            let info = json!({"id": id, "slug": "calm-river", "version": "1.18.19", "projectID": "prj_one",
                "directory": directory, "title": "New session - 1", "time": {"created": 1, "updated": 1}});
            let session = FakeSession { info: info.clone(), messages: Vec::new(), is_running: false };
            state.sessions.insert(id, session);
            reply(200, &info)
        }
        "GET /session/status" => {
            let running = state.sessions.iter().filter(|(_, session)| session.is_running);
            reply(200, &running.map(|(id, _)| (id.clone(), json!({"type": "busy"}))).collect())
        }
        "GET /session/*/children" => reply(200, &json!([])),
        "GET /session/*" => state.sessions.get(id).map_or_else(|| missing("Session"), |it| reply(200, &it.info)),
        "GET /session/*/message" => match state.sessions.get(id) {
            Some(session) => reply(200, &json!(session.messages)),
            None => missing("Session"),
        },
        "POST /session/*/abort" => reply(200, &json!(true)),
        "GET /permission" | "GET /question" => {
            let asks = state.asks.iter().filter(|(kind, _)| path.ends_with(kind)).map(|(_, ask)| ask);
            reply(200, &asks.cloned().collect())
        }
        "POST /permission/*/reply" | "POST /question/*/reply" | "POST /question/*/reject" => {
            let known = state.asks.iter().position(|(_, ask)| ask["id"] == id);
            let Some(known) = known else { return missing("Permission request") };
            state.asks.remove(known);
            if let Some(answer) = state.answers.remove(id) {
                let _ = answer.send(());
            }
            reply(200, &json!(true))
        }
        _ => missing("Path"),
    }
}

fn events(shared: &Shared, directory: Option<String>) -> Response<Body> {
    let (listener, lines) = mpsc::unbounded_channel();
    let connected = json!({"type": "server.connected", "properties": {}});
    let connected = if directory.is_none() { json!({"payload": connected}) } else { connected };
    let _ = listener.send(format!("data: {connected}\n\n"));
    shared.lock().listeners.push((directory, listener));
    let lines = futures::stream::unfold(lines, |mut lines| async { lines.recv().await.map(|line| (line, lines)) });
    let lines = lines.map(|line| Ok::<_, Infallible>(Bytes::from(line)));
    let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    response.body(Body::from_stream(lines)).unwrap()
}
