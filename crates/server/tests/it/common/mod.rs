//! A server in this process, on a temporary project.
use std::collections::BTreeMap;
use std::sync::Arc;

use config::{Dirs, Inputs, Trust, TrustStore};
use engine::Engine;
use reqwest::Method;
use serde_json::Value;
use testkit::{TempProject, WAIT};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use trefoil_server::{Listen, Options, Password, Server};

/// A running server; it stops when this is dropped.
pub struct Rig {
    pub project: TempProject,
    pub url: String,
    pub http: reqwest::Client,
    pub store: store::Store,
    _stop: DropGuard,
}

impl Rig {
    /// A server whose user has this configuration.
    pub async fn new(config: Value) -> Self {
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        Self::on(project).await
    }

    /// A server on an existing project.
    pub async fn on(project: TempProject) -> Self {
        Self::guarded(project, None).await
    }

    /// A server with a password.
    pub async fn guarded(project: TempProject, password: Option<Password>) -> Self {
        Self::with(project, password, &[]).await
    }

    /// A server with more environment variables.
    pub async fn with(project: TempProject, password: Option<Password>, env: &[(&str, &str)]) -> Self {
        let engine = open(&project, env, store::Options::default());
        Self::serve(project, password, engine).await
    }

    /// A server with other store options.
    pub async fn on_store(config: Value, options: store::Options) -> Self {
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        let engine = open(&project, &[], options);
        Self::serve(project, None, engine).await
    }

    async fn serve(project: TempProject, password: Option<Password>, engine: Engine) -> Self {
        let options = Options {
            engine: engine.clone(),
            directory: project.path().to_owned(),
            listen: Listen::Tcp { host: "127.0.0.1".to_owned(), port: Some(0) },
            password,
            // OpenCode allows this origin by default, and the recordings use it.
            cors: vec!["http://localhost:3000".to_owned()],
            hosts: Vec::new(),
            version: "0.0.0".to_owned(),
        };
        let server = Server::bind(options).await.unwrap();
        let url = server.url().to_owned();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone(), None));
        // Another test of this process may have installed one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(WAIT).build().unwrap();
        Self { project, url, http, store: engine.store().clone(), _stop: stop.drop_guard() }
    }

    /// The status and body of a request. A body that is not JSON is null.
    pub async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap_or_else(|error| panic!("{path}: {error:?}"));
        let status = response.status().as_u16();
        let bytes = response.bytes().await.unwrap_or_else(|error| panic!("{path}: {error:?}"));
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// The body of a successful request.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// A stream of events, after its first one.
    pub async fn events(&self, path: &str) -> Events {
        // A test may follow events for longer than it waits for any one of them.
        let request = self.http.get(format!("{}{path}", self.url)).timeout(WAIT * 10);
        let mut events = Events::new(request.send().await.unwrap());
        events.next().await.expect("a first event");
        events
    }
}

/// A stream of events.
pub struct Events {
    response: reqwest::Response,
    rest: String,
    /// The types of the events so far.
    seen: Vec<String>,
    /// Since when the test has waited for an event other than a heartbeat.
    waiting_since: Option<Instant>,
    /// The id of the last event that has one.
    pub last: Option<String>,
    /// The turn of the last event, if it has one.
    pub turn: Option<String>,
}

impl Events {
    /// The stream in a response.
    pub fn new(response: reqwest::Response) -> Self {
        Self { response, rest: String::new(), seen: Vec::new(), waiting_since: None, last: None, turn: None }
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        let limit = *self.waiting_since.get_or_insert_with(Instant::now) + WAIT;
        loop {
            if let Some((frame, rest)) = self.rest.split_once("\n\n") {
                let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let (data, id) = (field("data: "), field("id: "));
                self.last = id.or(self.last.take());
                self.turn = field("turn: ");
                self.rest = rest.to_owned();
                match data {
                    Some(data) => {
                        let event: Value = serde_json::from_str(&data).unwrap();
                        let kind = event.get("payload").unwrap_or(&event)["type"].as_str().unwrap_or("-").to_owned();
                        if kind != "server.heartbeat" {
                            self.waiting_since = None;
                        }
                        self.seen.push(kind);
                        return Some(event);
                    }
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout_at(limit, self.response.chunk()).await;
            let chunk = chunk.unwrap_or_else(|_| panic!("no event within {WAIT:?}; seen: {}", self.seen.join(", ")));
            self.rest.push_str(std::str::from_utf8(&chunk.unwrap()?).unwrap());
        }
    }

    /// The next event of that type; skips others.
    pub async fn wait_for(&mut self, kind: &str) -> Value {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < WAIT, "no {kind} within {WAIT:?}; seen: {}", self.seen.join(", "));
            let Some(event) = self.next().await else {
                panic!("the stream ended before {kind}; seen: {}", self.seen.join(", "))
            };
            let payload = event.get("payload").unwrap_or(&event);
            if payload["type"] == kind {
                return event;
            }
        }
    }
}

fn open(project: &TempProject, more: &[(&str, &str)], options: store::Options) -> Engine {
    let mut env: BTreeMap<String, String> = project.env().into_iter().collect();
    env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let dirs = Dirs::from_env(&env, &project.home());
    let store = store::Store::open_with(&dirs.data.join("trefoil.db"), options).unwrap();
    let trust = Trust::Store(TrustStore::load(&dirs.trust_file()).unwrap());
    let inputs = Inputs { directory: project.path().to_owned(), home: project.home(), dirs, env, trust };
    let scripts = [("demo".to_owned(), Arc::new(llm::Script::demo()))].into_iter().collect();
    let options = engine::Options {
        store,
        llm: llm::Llm::new("trefoil/test"),
        exec: exec::Exec::direct(),
        inputs,
        scripts,
        question_tool: true,
        careful: false,
        runners: Default::default(),
        tools: Vec::new(),
        version: "0.0.0".to_owned(),
    };
    Engine::open(options).unwrap()
}
