//! Replays a scenario: sends its requests in their order and overlap, each once what mattered before it has happened here too,
//! and compares what comes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::response::Html;
use axum::routing::get;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{ModelServer, WAIT};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use trefoil_server::Password;

use super::exchange::{Exchange, Recording, ids};
use super::shape::{Lists, compare, compare_events, compare_lines};
use super::{model, stage};
use crate::common::{Events, Rig};

/// The patience after something never happened: the rest cannot be as recorded.
const LITTLE_PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether anything still happens.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks at an idle server, and what did not come never will. Only a scenario that fails waits for them.
const QUIET: usize = 20;
/// The headers that matter.
const HEADERS: [&str; 13] = [
    "content-type",
    "vary",
    "link",
    "x-next-cursor",
    "cache-control",
    "x-accel-buffering",
    "x-content-type-options",
    "www-authenticate",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-max-age",
    "access-control-expose-headers",
];
/// Headers of which only their presence is compared.
const OWN_VALUES: [&str; 2] = ["link", "x-next-cursor"];
/// Paths below these are about sessions, whose lists have an order.
const SESSIONS: [&str; 3] = ["/session", "/permission", "/question"];
/// Stands for the end of the stream of events.
const END: &str = "(end)";

/// What came for a request.
struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

struct Player {
    recording: Arc<Recording>,
    rig: Rig,
    page: SocketAddr,
    /// Recorded ids and cursors, and ours in their place.
    ids: BTreeMap<String, String>,
    /// Whether slow answers of the model go on.
    go_on: watch::Sender<bool>,
    events: watch::Receiver<Vec<Value>>,
    log: watch::Sender<Vec<Value>>,
    /// How long something may take to happen; only what never happens takes as long.
    patience: Duration,
    differences: BTreeSet<String>,
    /// The model, the web page and the subscription; they end with the player.
    tasks: JoinSet<()>,
}

/// The differences of a scenario from its recording.
pub async fn play(scenario: &str) -> BTreeSet<String> {
    let recording = Arc::new(Recording::load(scenario));
    let model = ModelServer::start().await;
    let project = stage::project(scenario, &recording, &model);
    let secret = |_| Password { username: "opencode".to_owned(), password: "pw".to_owned() };
    let guarded = scenario.ends_with("basic_auth").then_some(()).map(secret);
    let rig = Rig::with(project, guarded, &[("TREFOIL_ALLOW_PRIVATE_FETCH", "1")]).await;
    let (go_on, gate) = watch::channel(true);
    let (log, events) = watch::channel(Vec::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(model::serve(model, gate));
    let page = page(&mut tasks).await;
    let mut player = Player {
        recording: recording.clone(),
        rig,
        page,
        ids: BTreeMap::new(),
        go_on,
        events,
        log,
        patience: WAIT,
        differences: BTreeSet::new(),
        tasks,
    };
    let mut open: Vec<(&Exchange, JoinHandle<Got>)> = Vec::new();
    for (number, exchange) in recording.exchanges.iter().enumerate() {
        let (due, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|(before, _)| before.answered <= number);
        open = rest;
        player.finish(due).await;
        player.happened(exchange.seen).await;
        if exchange.request.subscribes() {
            player.subscribe(exchange).await;
            continue;
        }
        if exchange.request.path.ends_with("/abort") {
            player.spoken(exchange).await;
        }
        if sends_to_background(exchange) {
            // From its first word on: it must not be faster than whoever sent it.
            player.go_on.send_replace(false);
        }
        let Some(sent) = player.send(exchange) else { continue };
        if exchange.answered == number + 1 {
            player.finish(vec![(exchange, sent)]).await;
            player.resubscribe(exchange).await;
        } else {
            player.go_on.send_replace(false);
            player.accepted(exchange, &sent).await;
            open.push((exchange, sent));
        }
    }
    player.finish(open).await;
    player.happened(recording.events.len()).await;
    player.compare_events().await;
    player.differences
}

/// Whether a prompt has a subagent work in the background.
fn sends_to_background(exchange: &Exchange) -> bool {
    let body = exchange.request.body.as_ref().map(Value::to_string).unwrap_or_default();
    body.contains(r#"\"background\": true"#)
}

/// The web page that the recordings fetch.
async fn page(tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let html = "<html><body><h1>Title</h1><p>Some text</p></body></html>";
    let router = axum::Router::new().route("/page", get(move || async move { Html(html) }));
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

impl Player {
    fn differ(&mut self, difference: impl Into<String>) {
        self.differences.insert(difference.into());
    }

    /// A recorded text with our ids and places in it; ids that never came here are named instead.
    fn ours(&self, text: &str, exchange: &Exchange) -> Result<String, String> {
        let mut text = text.replace(stage::MODEL, &self.page.to_string());
        for (recorded, longer) in stage::SHORT_LIVED {
            text = text.replace(recorded, longer);
        }
        for directory in stage::DIRECTORIES {
            text = text.replace(directory, &self.rig.project.directory());
        }
        for (theirs, ours) in &self.ids {
            text = text.replace(theirs, ours);
        }
        let unknown = ids(&text).find(|id| !self.recording.invented(id, exchange)).map(str::to_owned);
        unknown.map_or(Ok(text), Err)
    }

    /// Sends a request, if everything that it names exists here.
    fn send(&mut self, exchange: &Exchange) -> Option<JoinHandle<Got>> {
        let request = &exchange.request;
        let body = request.raw.clone().or_else(|| request.body.as_ref().map(Value::to_string));
        let path = self.ours(&request.path, exchange);
        let body = body.map(|body| self.ours(&body, exchange)).transpose();
        let (path, body) = match (path, body) {
            (Ok(path), Ok(body)) => (path, body),
            (Err(id), _) | (_, Err(id)) => {
                let kind = id.split('_').next().unwrap_or_default().to_owned();
                self.differ(format!("{}: not sent, because its {kind} never came", request.place()));
                return None;
            }
        };
        let method: Method = request.method.parse().unwrap();
        let mut builder = self.rig.http.request(method, format!("{}{path}", self.rig.url));
        builder = builder.header("x-opencode-directory", self.rig.project.directory());
        if let Some(body) = body {
            if !request.headers.contains_key("content-type") {
                builder = builder.header("content-type", "application/json");
            }
            builder = builder.body(body);
        }
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        Some(tokio::spawn(async move {
            let response = builder.send().await.unwrap();
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Got { status, headers, body: response.bytes().await.unwrap().to_vec() }
        }))
    }

    /// Waits for answers, and compares them.
    async fn finish(&mut self, open: Vec<(&Exchange, JoinHandle<Got>)>) {
        for (exchange, sent) in open {
            // A subagent that was sent to the background is as slow as it was: the answer does not wait for it.
            let background = self
                .recording
                .exchanges
                .iter()
                .any(|other| other.request.path.ends_with("/background") || sends_to_background(other));
            if !background {
                self.go_on.send_replace(true);
            }
            match sent.await {
                Ok(got) => self.compare_answer(exchange, &got),
                Err(error) => self.differ(format!("{}: no answer: {error}", exchange.request.place())),
            }
            if exchange.request.is_prompt() {
                self.go_on.send_replace(true);
            }
        }
    }

    /// Waits until a prompt that others overtake is stored, so that they come after it here too.
    async fn accepted(&mut self, exchange: &Exchange, sent: &JoinHandle<Got>) {
        if !exchange.request.is_prompt() || sent.is_finished() {
            return;
        }
        let text = exchange.request.body.as_ref().and_then(|body| body["parts"][0]["text"].as_str());
        let text = self.ours(text.unwrap_or_default(), exchange).unwrap_or_default();
        let stored =
            |events: &Vec<Value>| events.iter().any(|event| event["properties"]["part"]["text"] == text.as_str());
        if tokio::time::timeout(self.patience, self.events.wait_for(stored)).await.is_err() {
            self.differ(format!("{}: the prompt was never stored", exchange.request.place()));
            self.patience = LITTLE_PATIENCE;
        }
    }

    /// Waits until what clients wait for has happened as often as in the recording's first events.
    async fn happened(&mut self, count: usize) {
        let mut wanted = milestones(&self.recording.events[..count]);
        wanted.retain(|line, _| !line.starts_with(stage::NOT_HERE));
        let missing = |events: &[Value]| {
            let ours = milestones(events);
            let lacks = |(line, count): &(&String, &usize)| ours.get(*line).is_none_or(|own| own < *count);
            wanted.iter().find(lacks).map(|(line, _)| line.clone())
        };
        let (began, mut quiet) = (Instant::now(), 0);
        loop {
            let waited = self.events.wait_for(|events| missing(events).is_none());
            if tokio::time::timeout(LOOK, waited).await.is_ok() {
                return;
            }
            let line = missing(&self.events.borrow());
            let Some(line) = line else { return };
            // Nothing can come any more if nothing runs, except for what comes by the clock and what is on its way.
            let idle = !line.starts_with("server.") && self.rig.get("/session/status").await == json!({});
            quiet = if idle { quiet + 1 } else { 0 };
            if quiet == QUIET || began.elapsed() > self.patience {
                self.patience = LITTLE_PATIENCE;
                return self.differ(format!("events: waited in vain for {line:?}"));
            }
        }
    }

    /// Waits until the model has ended its answer, if a call of it runs: what it used is known then, whatever happens next.
    async fn spoken(&mut self, exchange: &Exchange) {
        let Ok(path) = self.ours(&exchange.request.path, exchange) else { return };
        let session = path.trim_end_matches("/abort");
        let of = |event: &Value| session.ends_with(event["properties"]["sessionID"].as_str().unwrap_or("-"));
        let events: Vec<Value> = self.events.borrow().iter().filter(|event| of(event)).cloned().collect();
        let part = events.iter().rfind(|event| event["type"] == "message.part.updated");
        if part.is_none_or(|event| event["properties"]["part"]["state"]["status"] != "running") {
            return;
        }
        let answers = events.iter().filter(|event| event["properties"]["info"]["role"] == "assistant");
        let answers = answers.map(|event| event["properties"]["info"]["id"].to_string()).collect::<BTreeSet<_>>().len();
        let counted = async {
            let path = format!("{session}/tree");
            while self.rig.get(&path).await["sessions"][0]["own"]["steps"].as_u64() < Some(answers as u64) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        testkit::soon("the end of the model's answer", counted).await;
    }

    /// Subscribes again where our stream ended, and the recorded one did not.
    async fn resubscribe(&mut self, exchange: &Exchange) {
        if self.recording.ended || exchange.request.path != "/instance/dispose" {
            return;
        }
        let ended = self.events.wait_for(|events| events.iter().any(|event| event["type"] == END));
        let ended = tokio::time::timeout(self.patience, ended).await.is_ok();
        let recording = self.recording.clone();
        if let Some(subscription) = recording.exchanges.iter().find(|e| e.request.subscribes()).filter(|_| ended) {
            self.subscribe(subscription).await;
        }
    }

    async fn subscribe(&mut self, exchange: &Exchange) {
        let path = &exchange.request.path;
        let request = self.rig.http.get(format!("{}{path}", self.rig.url)).timeout(WAIT * 10);
        let response = request.header("x-opencode-directory", self.rig.project.directory()).send().await.unwrap();
        let got = Got { status: response.status().as_u16(), headers: response.headers().clone(), body: Vec::new() };
        self.compare_answer(exchange, &got);
        if got.status != 200 {
            return;
        }
        let (log, mut events) = (self.log.clone(), Events::new(response));
        self.tasks.spawn(async move {
            while let Some(event) = events.next().await {
                let event = event.get("payload").unwrap_or(&event).clone();
                log.send_modify(|events| events.push(event));
            }
            log.send_modify(|events| events.push(json!({"type": END})));
        });
    }

    fn compare_answer(&mut self, exchange: &Exchange, got: &Got) {
        let (place, answer) = (exchange.request.place(), &exchange.answer);
        if got.status != answer.status {
            return self.differ(format!("{place}: {} instead of {}", got.status, answer.status));
        }
        for name in HEADERS {
            let own = got.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            let value = |text: &str| text.split("; charset").next().unwrap_or_default().to_owned();
            match (answer.headers.get(name), own) {
                (Some(theirs), Some(own)) if OWN_VALUES.contains(&name) => {
                    self.ids.insert(theirs.clone(), own);
                }
                (Some(theirs), Some(own)) if value(theirs) != value(&own) => {
                    self.differ(format!("{place} header {name}: {own:?} instead of {theirs:?}"));
                }
                (Some(_), None) => self.differ(format!("{place} header {name}: missing")),
                (None, Some(_)) => self.differ(format!("{place} header {name}: extra")),
                _ => {}
            }
        }
        let Some(theirs) = &answer.body else { return };
        let Ok(ours) = serde_json::from_slice::<Value>(&got.body) else {
            return self.differ(format!("{place}: no JSON"));
        };
        self.learn(theirs, &ours);
        let ordered = SESSIONS.iter().any(|path| exchange.request.path.starts_with(path));
        let lists = if ordered { Lists::Ordered } else { Lists::Alike };
        self.differences.extend(compare(&format!("{place} "), theirs, &ours, lists));
    }

    /// Notes which of our ids stand for recorded ones.
    fn learn(&mut self, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => {
                theirs
                    .iter()
                    .filter_map(|(key, value)| Some((value, ours.get(key)?)))
                    .for_each(|(a, b)| self.learn(a, b));
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                theirs.iter().zip(ours).for_each(|(theirs, ours)| self.learn(theirs, ours));
            }
            (Value::String(theirs), Value::String(ours))
                if ids(theirs).next() == Some(theirs) && theirs.get(..4) == ours.get(..4) =>
            {
                self.ids.entry(theirs.clone()).or_insert_with(|| ours.clone());
            }
            _ => {}
        }
    }

    async fn compare_events(&mut self) {
        if self.events.borrow().is_empty() {
            // Nobody subscribed, or could.
            return;
        }
        let ended = |events: &Vec<Value>| events.iter().any(|event| event["type"] == END);
        if self.recording.ended {
            if tokio::time::timeout(self.patience, self.events.wait_for(ended)).await.is_err() {
                self.differ("events: the stream goes on");
            }
        } else {
            // The last event is ours, so nothing is missed that came before it.
            let (_, marker) = self.rig.send(Method::POST, "/session", Some(json!({"title": "marker"}))).await;
            let marked = |events: &Vec<Value>| {
                events.iter().any(|event| {
                    event["type"] == "session.created" && event["properties"]["info"]["id"] == marker["id"]
                })
            };
            if tokio::time::timeout(self.patience, self.events.wait_for(marked)).await.is_err() {
                self.differ("events: the stream is over");
            }
        }
        let ours: Vec<Value> = self.events.borrow().iter().filter(|event| event["type"] != END).cloned().collect();
        let theirs = self.recording.events.clone();
        self.differences.extend(compare_events(&theirs, &ours));
        let outlines = |events: &[Value]| -> Vec<Vec<String>> {
            testkit::by_session(events).iter().map(|(_, events)| testkit::outline(events)).collect()
        };
        let (theirs, mut ours) = (outlines(&theirs), outlines(&ours));
        // The marker's own session has no steps.
        ours.retain(|lines| !lines.is_empty());
        let theirs: Vec<_> = theirs.into_iter().filter(|lines| !lines.is_empty()).collect();
        if theirs.len() != ours.len() {
            self.differ(format!("events: of {} sessions instead of {}", ours.len(), theirs.len()));
        }
        for (theirs, ours) in theirs.iter().zip(&ours) {
            self.differences.extend(compare_lines(theirs, ours));
        }
    }
}

/// What clients wait for, and how often it happened.
fn milestones(events: &[Value]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    let beats = events.iter().filter(|event| event["type"] == "server.heartbeat").count();
    counts.insert("server.heartbeat".to_owned(), beats);
    for (_, events) in testkit::by_session(events) {
        for line in testkit::outline(&events) {
            let waited = line.starts_with("status ")
                || line.starts_with("pty.")
                || line.starts_with("server.")
                || line.ends_with(".asked")
                || line.ends_with(" running");
            if waited {
                *counts.entry(line).or_default() += 1;
            } else if line == "delta" {
                // How often a text goes on is a matter of time; that it began is not.
                counts.insert(line, 1);
            }
        }
    }
    counts
}
