//! Replays a scenario: sends its requests in their order and overlap, each once the relevant events before it have
//! happened here too, and compares the results.

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
use super::shape::{ListComparison, compare, compare_events, compare_lines};
use super::{model, setup};
use crate::common::{Events, Rig};

/// The timeout after something never happened: the rest cannot be as recorded.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to check whether anything still happens.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After this many checks of an idle server, missing events will never come. Only a failing scenario waits for them.
const MAX_IDLE_CHECKS: usize = 20;
/// The headers that are compared.
const COMPARED_HEADERS: [&str; 13] = [
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
/// Headers of which only the presence is compared.
const PRESENCE_ONLY_HEADERS: [&str; 2] = ["link", "x-next-cursor"];
/// Paths below these are about sessions; their lists are ordered.
const ORDERED_PATHS: [&str; 3] = ["/session", "/permission", "/question"];
/// Marks the end of the event stream.
const STREAM_END: &str = "(end)";

/// The response to a request.
struct ReceivedResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

struct Player {
    recording: Arc<Recording>,
    rig: Rig,
    page: SocketAddr,
    /// Our ids and cursors by recorded ones.
    ids: BTreeMap<String, String>,
    /// Whether slow answers of the model continue.
    go_on: watch::Sender<bool>,
    events: watch::Receiver<Vec<Value>>,
    log: watch::Sender<Vec<Value>>,
    /// How long an event may take. Only what never happens takes that long.
    event_timeout: Duration,
    differences: BTreeSet<String>,
    /// The model, the web page and the subscription; they end with the player.
    tasks: JoinSet<()>,
}

/// The differences between a scenario and its recording.
pub async fn play(scenario: &str) -> BTreeSet<String> {
    let recording = Arc::new(Recording::load(scenario));
    let model = ModelServer::start().await;
    let project = setup::project(scenario, &recording, &model);
    let secret = |_| Password { username: "opencode".to_owned(), password: "pw".to_owned() };
    let guarded = scenario.ends_with("basic_auth").then_some(()).map(secret);
    let rig = Rig::with(project, guarded, &[("TREFOIL_ALLOW_PRIVATE_FETCH", "1")]).await;
    let (go_on, gate) = watch::channel(true);
    let (log, events) = watch::channel(Vec::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(model::serve(model, gate));
    let page = serve_page(&mut tasks).await;
    let mut player = Player {
        recording: recording.clone(),
        rig,
        page,
        ids: BTreeMap::new(),
        go_on,
        events,
        log,
        event_timeout: WAIT,
        differences: BTreeSet::new(),
        tasks,
    };
    let mut open: Vec<(&Exchange, JoinHandle<ReceivedResponse>)> = Vec::new();
    for (number, exchange) in recording.exchanges.iter().enumerate() {
        let (due, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|(before, _)| before.answered <= number);
        open = rest;
        player.finish(due).await;
        player.wait_for_milestones(exchange.seen).await;
        if exchange.request.is_subscription() {
            player.subscribe(exchange).await;
            continue;
        }
        if exchange.request.path.ends_with("/abort") {
            player.wait_for_model(exchange).await;
        }
        if sends_to_background(exchange) {
            // From its first word on: the subagent must not be faster than the session that sent it.
            player.go_on.send_replace(false);
        }
        let Some(sent) = player.send(exchange) else { continue };
        if exchange.answered == number + 1 {
            player.finish(vec![(exchange, sent)]).await;
            player.resubscribe(exchange).await;
        } else {
            player.go_on.send_replace(false);
            player.wait_until_stored(exchange, &sent).await;
            open.push((exchange, sent));
        }
    }
    player.finish(open).await;
    player.wait_for_milestones(recording.events.len()).await;
    player.compare_events().await;
    player.differences
}

/// Whether a prompt sends a subagent to the background.
fn sends_to_background(exchange: &Exchange) -> bool {
    let body = exchange.request.body.as_ref().map(Value::to_string).unwrap_or_default();
    body.contains(r#"\"background\": true"#)
}

/// The web page that the recordings fetch.
async fn serve_page(tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let html = "<html><body><h1>Title</h1><p>Some text</p></body></html>";
    let router = axum::Router::new().route("/page", get(move || async move { Html(html) }));
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

impl Player {
    fn report(&mut self, difference: impl Into<String>) {
        self.differences.insert(difference.into());
    }

    /// A recorded text with our ids and paths; fails with an id that never came here.
    fn translate(&self, text: &str, exchange: &Exchange) -> Result<String, String> {
        let mut text = text.replace(setup::RECORDED_HOST, &self.page.to_string());
        for (recorded, longer) in setup::LONGER_COMMANDS {
            text = text.replace(recorded, longer);
        }
        for directory in setup::RECORDED_DIRECTORIES {
            text = text.replace(directory, &self.rig.project.directory());
        }
        for (theirs, ours) in &self.ids {
            text = text.replace(theirs, ours);
        }
        let unknown = ids(&text).find(|id| !self.recording.is_made_up(id, exchange)).map(str::to_owned);
        unknown.map_or(Ok(text), Err)
    }

    /// Sends a request, if everything that it names exists here.
    fn send(&mut self, exchange: &Exchange) -> Option<JoinHandle<ReceivedResponse>> {
        let request = &exchange.request;
        let body = request.raw.clone().or_else(|| request.body.as_ref().map(Value::to_string));
        let path = self.translate(&request.path, exchange);
        let body = body.map(|body| self.translate(&body, exchange)).transpose();
        let (path, body) = match (path, body) {
            (Ok(path), Ok(body)) => (path, body),
            (Err(id), _) | (_, Err(id)) => {
                let kind = id.split('_').next().unwrap_or_default().to_owned();
                self.report(format!("{}: not sent, because its {kind} never came", request.operation()));
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
            ReceivedResponse { status, headers, body: response.bytes().await.unwrap().to_vec() }
        }))
    }

    /// Waits for responses, and compares them.
    async fn finish(&mut self, open: Vec<(&Exchange, JoinHandle<ReceivedResponse>)>) {
        for (exchange, sent) in open {
            // A background subagent is as slow as it was: the response does not wait for it.
            let background = self
                .recording
                .exchanges
                .iter()
                .any(|other| other.request.path.ends_with("/background") || sends_to_background(other));
            if !background {
                self.go_on.send_replace(true);
            }
            match sent.await {
                Ok(received) => self.compare_response(exchange, &received),
                Err(error) => self.report(format!("{}: no answer: {error}", exchange.request.operation())),
            }
            if exchange.request.is_prompt() {
                self.go_on.send_replace(true);
            }
        }
    }

    /// Waits until a prompt is stored that later requests overtake, so that they come after it here too.
    async fn wait_until_stored(&mut self, exchange: &Exchange, sent: &JoinHandle<ReceivedResponse>) {
        if !exchange.request.is_prompt() || sent.is_finished() {
            return;
        }
        let text = exchange.request.body.as_ref().and_then(|body| body["parts"][0]["text"].as_str());
        let text = self.translate(text.unwrap_or_default(), exchange).unwrap_or_default();
        let stored =
            |events: &Vec<Value>| events.iter().any(|event| event["properties"]["part"]["text"] == text.as_str());
        if tokio::time::timeout(self.event_timeout, self.events.wait_for(stored)).await.is_err() {
            self.report(format!("{}: the prompt was never stored", exchange.request.operation()));
            self.event_timeout = SHORT_TIMEOUT;
        }
    }

    /// Waits until the milestones of the recording's first events have happened as often here.
    async fn wait_for_milestones(&mut self, count: usize) {
        let mut wanted = milestones(&self.recording.events[..count]);
        wanted.retain(|line, _| !line.starts_with(setup::MISSING_TOOL));
        let missing = |events: &[Value]| {
            let ours = milestones(events);
            let lacks = |(line, count): &(&String, &usize)| ours.get(*line).is_none_or(|own| own < *count);
            wanted.iter().find(lacks).map(|(line, _)| line.clone())
        };
        let (began, mut idle_checks) = (Instant::now(), 0);
        loop {
            let waited = self.events.wait_for(|events| missing(events).is_none());
            if tokio::time::timeout(CHECK_INTERVAL, waited).await.is_ok() {
                return;
            }
            let line = missing(&self.events.borrow());
            let Some(line) = line else { return };
            // If nothing runs, nothing more can come, except for timed events and those on their way.
            let idle = !line.starts_with("server.") && self.rig.get("/session/status").await == json!({});
            idle_checks = if idle { idle_checks + 1 } else { 0 };
            if idle_checks == MAX_IDLE_CHECKS || began.elapsed() > self.event_timeout {
                self.event_timeout = SHORT_TIMEOUT;
                return self.report(format!("events: waited in vain for {line:?}"));
            }
        }
    }

    /// If a tool call runs, waits until the model has ended its answer: its usage is known then, whatever happens next.
    async fn wait_for_model(&mut self, exchange: &Exchange) {
        let Ok(path) = self.translate(&exchange.request.path, exchange) else { return };
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

    /// Subscribes again if our stream ended and the recorded one did not.
    async fn resubscribe(&mut self, exchange: &Exchange) {
        if self.recording.ended || exchange.request.path != "/instance/dispose" {
            return;
        }
        let ended = self.events.wait_for(|events| events.iter().any(|event| event["type"] == STREAM_END));
        let ended = tokio::time::timeout(self.event_timeout, ended).await.is_ok();
        let recording = self.recording.clone();
        if let Some(subscription) = recording.exchanges.iter().find(|e| e.request.is_subscription()).filter(|_| ended) {
            self.subscribe(subscription).await;
        }
    }

    async fn subscribe(&mut self, exchange: &Exchange) {
        let path = &exchange.request.path;
        let request = self.rig.http.get(format!("{}{path}", self.rig.url)).timeout(WAIT * 10);
        let response = request.header("x-opencode-directory", self.rig.project.directory()).send().await.unwrap();
        let received = ReceivedResponse {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: Vec::new(),
        };
        self.compare_response(exchange, &received);
        if received.status != 200 {
            return;
        }
        let (log, mut events) = (self.log.clone(), Events::new(response));
        self.tasks.spawn(async move {
            while let Some(event) = events.next().await {
                let event = event.get("payload").unwrap_or(&event).clone();
                log.send_modify(|events| events.push(event));
            }
            log.send_modify(|events| events.push(json!({"type": STREAM_END})));
        });
    }

    fn compare_response(&mut self, exchange: &Exchange, received: &ReceivedResponse) {
        let (operation, recorded) = (exchange.request.operation(), &exchange.response);
        if received.status != recorded.status {
            return self.report(format!("{operation}: {} instead of {}", received.status, recorded.status));
        }
        for name in COMPARED_HEADERS {
            let own = received.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            let value = |text: &str| text.split("; charset").next().unwrap_or_default().to_owned();
            match (recorded.headers.get(name), own) {
                (Some(theirs), Some(own)) if PRESENCE_ONLY_HEADERS.contains(&name) => {
                    self.ids.insert(theirs.clone(), own);
                }
                (Some(theirs), Some(own)) if value(theirs) != value(&own) => {
                    self.report(format!("{operation} header {name}: {own:?} instead of {theirs:?}"));
                }
                (Some(_), None) => self.report(format!("{operation} header {name}: missing")),
                (None, Some(_)) => self.report(format!("{operation} header {name}: extra")),
                _ => {}
            }
        }
        let Some(theirs) = &recorded.body else { return };
        let Ok(ours) = serde_json::from_slice::<Value>(&received.body) else {
            return self.report(format!("{operation}: no JSON"));
        };
        self.learn_ids(theirs, &ours);
        let ordered = ORDERED_PATHS.iter().any(|path| exchange.request.path.starts_with(path));
        let lists = if ordered { ListComparison::Ordered } else { ListComparison::Alike };
        self.differences.extend(compare(&format!("{operation} "), theirs, &ours, lists));
    }

    /// Notes which of our ids stand for recorded ones.
    fn learn_ids(&mut self, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => {
                theirs
                    .iter()
                    .filter_map(|(key, value)| Some((value, ours.get(key)?)))
                    .for_each(|(a, b)| self.learn_ids(a, b));
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                theirs.iter().zip(ours).for_each(|(theirs, ours)| self.learn_ids(theirs, ours));
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
        let ended = |events: &Vec<Value>| events.iter().any(|event| event["type"] == STREAM_END);
        if self.recording.ended {
            if tokio::time::timeout(self.event_timeout, self.events.wait_for(ended)).await.is_err() {
                self.report("events: the stream goes on");
            }
        } else {
            // The last event is our own marker, so nothing before it is missed.
            let (_, marker) = self.rig.send(Method::POST, "/session", Some(json!({"title": "marker"}))).await;
            let marked = |events: &Vec<Value>| {
                events.iter().any(|event| {
                    event["type"] == "session.created" && event["properties"]["info"]["id"] == marker["id"]
                })
            };
            if tokio::time::timeout(self.event_timeout, self.events.wait_for(marked)).await.is_err() {
                self.report("events: the stream is over");
            }
        }
        let ours: Vec<Value> =
            self.events.borrow().iter().filter(|event| event["type"] != STREAM_END).cloned().collect();
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
            self.report(format!("events: of {} sessions instead of {}", ours.len(), theirs.len()));
        }
        for (theirs, ours) in theirs.iter().zip(&ours) {
            self.differences.extend(compare_lines(theirs, ours));
        }
    }
}

/// The events that clients wait for, and how often they happened.
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
                // How often a text continues depends on timing; that it began does not.
                counts.insert(line, 1);
            }
        }
    }
    counts
}
