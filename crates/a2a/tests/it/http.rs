//! The endpoint: what a request meets between its head and its response.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use testkit::soon;
use tokio_util::sync::CancellationToken;
use transport::mount::Mount as _;
use trefoil_a2a::card::CardInput;
use trefoil_a2a::{Credentials, Endpoint, EndpointOptions, Extensions, Scheme, Settings};

use crate::common::*;

const REGISTRY: &str = r#"[{"scheme": "bearer", "token": "alice-token", "principal": "alice"},
    {"scheme": "bearer", "token": "bob-token", "principal": "bob"}]"#;
const ALICE: (&str, &str) = ("authorization", "Bearer alice-token");
const BOB: (&str, &str) = ("authorization", "Bearer bob-token");
const EXTENSIONS: (&str, &str) = ("a2a-extensions", "urn:opencode-a2a:extension:stream-hints:v1");

/// An endpoint on a service, without sockets.
struct Http {
    lab: Lab,
    endpoint: Arc<Endpoint>,
}

impl Http {
    async fn new() -> Self {
        Self::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |_| {}).await
    }

    async fn with(credentials: Credentials, change: fn(&mut Settings)) -> Self {
        let lab = Lab::with(json!({}), change).await;
        let mut settings = Settings::default();
        change(&mut settings);
        let card = CardInput::new(&settings, "http://agent.example", &[Scheme::Bearer], lab.project.path(), "0.0.0");
        let endpoint = Endpoint::new(EndpointOptions {
            service: lab.service.clone(),
            extensions: Extensions::new(lab.service.clone()),
            credentials,
            settings,
            card,
            signing_key: None,
            hosts: vec!["agent.example".to_owned()],
            closing: CancellationToken::new(),
        });
        Self { lab, endpoint: Arc::new(endpoint.unwrap()) }
    }

    /// Sends a request with any body.
    async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:8000");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).unwrap();
        soon("the response", self.endpoint.clone().respond(request)).await
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        self.request("GET", path, headers, Body::empty()).await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Body> {
        let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
        self.request("POST", path, &headers, Body::from(body.to_string())).await
    }
}

async fn text(response: Response<Body>) -> String {
    let bytes = soon("the body", axum::body::to_bytes(response.into_body(), 64 << 20)).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The body as JSON, if the status is the expected one.
#[track_caller]
fn expect(response: Response<Body>, status: u16) -> impl Future<Output = Value> {
    assert_eq!(response.status().as_u16(), status, "{:?}", response.headers());
    async { serde_json::from_str(&text(response).await).unwrap() }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

/// A message of 1.0 that plays these steps.
fn message(id: &str, steps: &Value) -> Value {
    let parts = json!([{ "text": format!("SCRIPT: {steps}") }]);
    json!({ "message": { "messageId": id, "role": "ROLE_USER", "parts": parts } })
}

/// A body of which nothing ever comes.
fn never() -> Body {
    Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_come_before_paths_methods_versions_and_bodies() {
    let http = Http::new().await;
    for (method, path, version) in [
        ("POST", "/", ""),
        ("POST", "/message:send", ""),
        ("GET", "/nope", ""),
        ("PUT", "/tasks", ""),
        ("POST", "/", "9"),
    ] {
        for authorization in ["Bearer nobody", "Basic x", ""] {
            let headers =
                [("authorization", authorization), ("a2a-version", version), ("content-length", "99999999999")];
            let response = http.request(method, path, &headers, never()).await;
            assert_eq!(header(response.headers(), "www-authenticate"), Some("Bearer"), "{method} {path}");
            assert!(response.headers().contains_key("traceparent"));
            assert_eq!(expect(response, 401).await, json!({ "error": "Unauthorized" }));
        }
    }
    assert_eq!(expect(http.get("/nope", &[ALICE]).await, 404).await, json!({ "detail": "Not Found" }));
    let wrong = http.get("/message:send", &[ALICE]).await;
    assert_eq!(header(wrong.headers(), "allow"), Some("POST"));
    assert_eq!(expect(wrong, 405).await, json!({ "detail": "Method Not Allowed" }));
    let get = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get" });
    let version = http.post("/", &[ALICE, ("a2a-version", "9.0")], &get).await;
    assert_eq!(expect(version, 200).await["error"]["data"]["type"], "VERSION_NOT_SUPPORTED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_bounded_and_json() {
    let http =
        Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| settings.max_request_body = 1000).await;
    let large = message("m-1", &json!([{ "text": "x".repeat(1000) }])).to_string();
    for (path, announced) in
        [("/message:send", true), ("/message:send", false), ("/", true), ("/v1/message:send", true)]
    {
        let length = large.len().to_string();
        let mut headers = vec![ALICE];
        headers.extend(announced.then_some(("content-length", length.as_str())));
        let pieces: Vec<Result<String, Infallible>> =
            large.chars().collect::<Vec<_>>().chunks(100).map(|piece| Ok(piece.iter().collect())).collect();
        let body = if announced { never() } else { Body::from_stream(stream::iter(pieces)) };
        let refused = expect(http.request("POST", path, &headers, body).await, 413).await;
        match path {
            "/message:send" => {
                assert_eq!(refused["error"]["details"][0]["reason"], "REQUEST_BODY_TOO_LARGE", "{refused:#}")
            }
            _ => assert_eq!(refused, json!({ "error": "Request body too large", "max_bytes": 1000 })),
        }
    }
    let form = [ALICE, ("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(http.request("POST", "/message:send", &form, Body::from("a=b")).await.status(), 415);
    for kind in ["application/a2a+json", "Application/JSON; charset=utf-8"] {
        let body = Body::from("{}");
        assert_eq!(http.request("POST", "/message:send", &[ALICE, ("content-type", kind)], body).await.status(), 400);
    }
    let broken = Body::from_stream(stream::iter([Err::<Vec<u8>, _>(std::io::Error::other("cut off"))]));
    assert_eq!(http.request("POST", "/message:send", &[ALICE], broken).await.status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_gets_no_body() {
    let http = Http::new().await;
    let told = json!([{ "text": "Hello" }]);
    for (method, params, version) in [
        ("opencode.sessions.list", json!({}), "0.3"),
        ("opencode.sessions.get", json!({ "session_id": "nope" }), "0.3"),
        ("SendMessage", message("m-1", &told), "1.0"),
        ("SendStreamingMessage", message("m-2", &told), "1.0"),
        ("no.such.method", json!({}), "0.3"),
    ] {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let response = http.post("/", &[ALICE], &body).await;
        assert_eq!(response.status(), StatusCode::NO_CONTENT, "{method}");
        if method != "no.such.method" {
            assert_eq!(header(response.headers(), "a2a-version"), Some(version), "{method}");
        }
        assert_eq!(text(response).await, "", "{method}");
    }
    let listed = expect(http.get("/tasks", &[ALICE]).await, 200).await;
    assert_eq!(listed["totalSize"], 2, "both messages became tasks: {listed:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_say_what_was_agreed_on() {
    let http = Http::new().await;
    let traceparent = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let sent = http
        .post("/message:send", &[ALICE, EXTENSIONS, traceparent], &message("m-1", &json!([{ "text": "Hi" }])))
        .await;
    assert_eq!(header(sent.headers(), "a2a-version"), Some("1.0"));
    assert_eq!(header(sent.headers(), "a2a-extensions"), Some(EXTENSIONS.1));
    assert_eq!(header(sent.headers(), "content-type"), Some("application/a2a+json"));
    assert!(header(sent.headers(), "traceparent").unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    let id = expect(sent, 200).await["task"]["id"].as_str().unwrap().to_owned();
    let missing = http.get("/tasks/nope", &[ALICE, EXTENSIONS]).await;
    assert_eq!(header(missing.headers(), "a2a-version"), Some("1.0"));
    assert_eq!(header(missing.headers(), "a2a-extensions"), None, "only a success names extensions");
    assert_eq!(missing.status(), 404);
    // An error of JSON-RPC is a success of HTTP.
    let body = json!({ "jsonrpc": "2.0", "id": "x", "method": "GetTask", "params": { "id": "nope" } });
    let missing = http.post("/", &[ALICE, EXTENSIONS], &body).await;
    assert_eq!(header(missing.headers(), "a2a-extensions"), Some(EXTENSIONS.1));
    assert_eq!(expect(missing, 200).await["id"], "x");
    let plain = http.get(&format!("/acme/tasks/{id}"), &[ALICE, ("accept", "application/json")]).await;
    assert_eq!(header(plain.headers(), "content-type"), Some("application/json"));
    assert_eq!(expect(plain, 200).await["id"], id);
    assert_eq!(http.get(&format!("/tasks/{id}"), &[BOB]).await.status(), 404, "it is not bob's");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_responses_are_compressed_and_metrics_are_served() {
    let http =
        Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| settings.gzip_minimum = 100).await;
    let gzip = ("accept-encoding", "gzip");
    expect(http.post("/message:send", &[ALICE], &message("m-1", &json!([{ "text": "Hi" }]))).await, 200).await;
    let listed = http.get("/tasks?includeArtifacts=true", &[ALICE, gzip]).await;
    assert_eq!(header(listed.headers(), "content-encoding"), Some("gzip"));
    let listed = http.get("/tasks", &[ALICE]).await;
    assert_eq!(
        (header(listed.headers(), "content-encoding"), header(listed.headers(), "vary")),
        (None, Some("Accept-Encoding"))
    );
    let events = http.post("/message:stream", &[ALICE, gzip], &message("m-2", &json!([{ "text": "Hi" }]))).await;
    assert_eq!(header(events.headers(), "content-encoding"), None, "events are not held back");
    assert!(text(events).await.contains("TASK_STATE_COMPLETED"));
    let metrics = text(http.get("/metrics", &[ALICE]).await).await;
    for line in ["a2a_http_requests_total{status=\"2xx\"} 4", "a2a_http_streams 0", "a2a_stream_requests_total 1"] {
        assert!(metrics.contains(&format!("{line}\n")), "{line} is not in\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_an_identity_are_limited() {
    let http = Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| settings.max_streams = 1).await;
    let held = |id: &str| message(id, &json!([{ "text": "Hm", "hold": http.lab.gate("gate") }]));
    let first = http.post("/message:stream", &[ALICE], &held("m-1")).await;
    assert_eq!(first.status(), 200);
    let second = http.post("/message:stream", &[ALICE], &held("m-2")).await;
    assert_eq!((second.status().as_u16(), header(second.headers(), "retry-after")), (429, Some("1")));
    let other = http.post("/message:stream", &[BOB], &held("m-3")).await;
    assert_eq!(other.status(), 200, "each identity has places of its own");
    drop(first);
    let third = http.post("/message:stream", &[ALICE], &held("m-4")).await;
    assert_eq!(third.status(), 200);
    let listed = expect(http.get("/tasks", &[ALICE]).await, 200).await;
    assert_eq!(listed["totalSize"], 2, "a refused stream begins no task: {listed:#}");
    http.lab.open(&http.lab.gate("gate"));
    for stream in [other, third] {
        assert!(text(stream).await.contains("TASK_STATE_COMPLETED"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_too_long_or_silent_ends_with_an_error() {
    let http =
        Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| settings.stream_max_bytes = 2000).await;
    let long = message("m-1", &json!([{ "chunks": 200 }]));
    let events = text(http.post("/message:stream", &[ALICE], &long).await).await;
    assert!(events.contains("event: error\ndata: {") && events.contains("more than 2000 bytes"), "{events}");
    assert!(!events.contains("TASK_STATE_COMPLETED"), "{events}");

    let idle = Duration::from_millis(50);
    let http = Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| {
        settings.stream_idle_timeout = Duration::from_millis(50)
    })
    .await;
    let held = message("m-1", &json!([{ "text": "Hm", "hold": http.lab.gate("gate") }]));
    let began = std::time::Instant::now();
    let events = text(http.post("/message:stream", &[ALICE], &held).await).await;
    assert!(events.contains("event: error\ndata: {") && events.contains("Nothing happened"), "{events}");
    assert!(began.elapsed() >= idle);
    http.lab.open(&http.lab.gate("gate"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_are_limited_per_identity() {
    let http = Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| {
        settings.rate_limit = true;
        settings.rate_limit_requests = 2;
    })
    .await;
    for _ in 0..2 {
        assert_eq!(http.get("/health", &[ALICE]).await.status(), 200);
    }
    let refused = http.get("/health", &[ALICE]).await;
    let seconds: u64 = header(refused.headers(), "retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(expect(refused, 429).await, json!({ "error": "Too many requests" }));
    assert_eq!(http.get("/health", &[BOB]).await.status(), 200);
    assert_eq!(http.get("/health", &[("authorization", "Bearer nobody")]).await.status(), 401);
    assert_eq!(http.get("/.well-known/agent-card.json", &[]).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_are_refused() {
    let http = Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| {
        settings.allowed_origins = vec!["https://good.example".to_owned()];
    })
    .await;
    let refused = http.get("/health", &[ALICE, ("origin", "https://evil.example")]).await;
    assert_eq!(header(refused.headers(), "access-control-allow-origin"), None);
    assert_eq!(refused.status(), 403);
    let good = ("origin", "https://good.example");
    let allowed = http.get("/health", &[ALICE, good]).await;
    assert_eq!(header(allowed.headers(), "access-control-allow-origin"), Some("https://good.example"));
    assert!(header(allowed.headers(), "access-control-expose-headers").unwrap().contains("A2A-Extensions"));
    let preflight =
        [good, ("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")];
    let preflight = http.request("OPTIONS", "/message:send", &preflight, Body::empty()).await;
    assert_eq!(preflight.status(), 204, "browsers send no credentials with it");
    assert_eq!(header(preflight.headers(), "access-control-allow-headers"), Some("authorization"));
    assert_eq!(http.request("OPTIONS", "/", &[ALICE], Body::empty()).await.status(), 405);

    let open = Http::with(Credentials::none(), |_| {}).await;
    assert_eq!(open.get("/health", &[]).await.status(), 200);
    assert_eq!(open.get("/health", &[("host", "agent.example:8000")]).await.status(), 200);
    assert_eq!(open.get("/health", &[("host", "rebound.example")]).await.status(), 403, "it may be a page's own name");
    let named = Http::with(Credentials::new(None, Some(REGISTRY)).unwrap(), |settings| {
        settings.allowed_hosts = vec!["good.example".to_owned()];
    })
    .await;
    assert_eq!(named.get("/health", &[ALICE, ("host", "good.example")]).await.status(), 200);
    assert_eq!(named.get("/health", &[ALICE, ("host", "other.example")]).await.status(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_changes_nothing() {
    let http = Http::new().await;
    let steps = json!([{ "text": "Hm", "hold": http.lab.gate("gate") }]);
    let body = Body::from(message("m-1", &steps).to_string());
    let request = Request::builder().method("POST").uri("/message:send").header(ALICE.0, ALICE.1).body(body).unwrap();
    let mut waiting = Box::pin(http.endpoint.clone().respond(request));
    assert!(waiting.as_mut().now_or_never().is_none(), "it waits for the answer");
    drop(waiting);
    // The same message again finds the task that the first one began, or begins it.
    http.lab.open(&http.lab.gate("gate"));
    let task = expect(http.post("/message:send", &[ALICE], &message("m-1", &steps)).await, 200).await;
    assert_eq!(task["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    assert_eq!(expect(http.get("/tasks", &[ALICE]).await, 200).await["totalSize"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_works_by_get_and_post() {
    let http = Http::new().await;
    let steps = json!([{ "text": "Hm", "hold": http.lab.gate("gate") }]);
    let mut body = message("m-1", &steps);
    body["configuration"] = json!({ "returnImmediately": true });
    let task = expect(http.post("/message:send", &[ALICE], &body).await, 200).await;
    let path = format!("/tasks/{}:subscribe", task["task"]["id"].as_str().unwrap());
    let mut open = Vec::new();
    for (method, path) in
        [("GET", path.clone()), ("POST", path.clone()), ("GET", format!("/v1{path}")), ("POST", format!("/acme{path}"))]
    {
        let stream = http.request(method, &path, &[ALICE], Body::empty()).await;
        assert_eq!(
            header(stream.headers(), "content-type"),
            Some("text/event-stream; charset=utf-8"),
            "{method} {path}"
        );
        let mut body = stream.into_body().into_data_stream();
        let begin = soon("the beginning", body.next()).await.unwrap().unwrap();
        assert!(begin.starts_with(b":\n\n"), "{begin:?}");
        open.push(body);
    }
    assert_eq!(http.request("HEAD", &path, &[ALICE], Body::empty()).await.status(), 405);
    assert_eq!(http.request("GET", &path, &[BOB], Body::empty()).await.status(), 404);
    http.lab.open(&http.lab.gate("gate"));
    for body in open {
        let rest: Vec<_> = soon("the end", body.map(Result::unwrap).collect()).await;
        assert!(String::from_utf8(rest.concat()).unwrap().contains("TASK_STATE_COMPLETED"));
    }
    assert_eq!(http.request("GET", &path, &[ALICE], Body::empty()).await.status(), 400, "it has ended");
    let old = text(http.request("GET", &format!("/v1{path}"), &[ALICE], Body::empty()).await).await;
    assert!(old.contains("TASK_STATE_COMPLETED") && old.matches("data:").count() == 1, "one snapshot: {old}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_service_is_below_its_prefix() {
    let http = Http::new().await;
    for (path, takes) in [
        ("/a2a", true),
        ("/a2a/tasks", true),
        ("/.well-known/agent-card.json", true),
        ("/.well-known/agent.json", true),
        ("/a2ab", false),
        ("/session", false),
        ("/", false),
    ] {
        assert_eq!(http.endpoint.takes(path), takes, "{path}");
    }
    let mounted = |path: &str, token: &str| {
        let request = Request::builder().uri(path).header("authorization", token).body(Body::empty()).unwrap();
        respond_mounted(http.endpoint.clone(), request)
    };
    assert_eq!(mounted("/a2a/health", ALICE.1).await.status(), 200);
    assert_eq!(mounted("/a2a/health", "").await.status(), 401);
    assert_eq!(mounted("/.well-known/agent-card.json", "").await.status(), 200);
    assert_eq!(mounted("/a2a/.well-known/agent-card.json", "").await.status(), 200);
}

async fn respond_mounted(endpoint: Arc<Endpoint>, request: Request<Body>) -> Response<Body> {
    soon("the response", transport::mount::Mount::respond(endpoint, request)).await
}
