//! Smaller services: tools, MCP, what OpenCode backs with hosted services, the log, metrics, traces.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::common::Rig;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{ModelServer, Reply, TempProject};
use trefoil_server::Password;

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_listed_per_model() {
    let rig = Rig::new(json!({})).await;
    let ids = rig.get("/experimental/tool/ids").await;
    for id in ["bash", "read", "edit", "write", "apply_patch", "glob", "grep", "todowrite", "webfetch"] {
        assert!(ids.as_array().unwrap().contains(&json!(id)), "{id} is not in {ids}");
    }
    let names = |tools: &Value| -> Vec<String> {
        tools.as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
    };
    let tools = rig.get("/experimental/tool?provider=anyone&model=some-model").await;
    assert!(names(&tools).contains(&"edit".into()) && !names(&tools).contains(&"apply_patch".into()), "{tools}");
    for tool in tools.as_array().unwrap() {
        assert!(tool["description"].as_str().is_some_and(|text| !text.is_empty()), "{tool}");
        assert_eq!(tool["parameters"]["type"], "object", "{tool}");
    }
    let patching = rig.get("/experimental/tool?provider=openai&model=gpt-5").await;
    assert!(names(&patching).contains(&"apply_patch".into()) && !names(&patching).contains(&"edit".into()));
    let (status, error) = rig.send(Method::GET, "/experimental/tool?provider=x", None).await;
    assert_eq!((status, &error["data"]["message"]), (400, &json!("Missing key\n  at [\"model\"]")));
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_servers_are_connected_and_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let command = json!(["python3", testkit::mcp_server(folder.path())]);
    let config = json!({ "mcp": {
        "on": { "type": "local", "command": command },
        "gone": { "type": "local", "command": ["false"] },
        "off": { "type": "remote", "url": "http://127.0.0.1:1", "enabled": false },
    } });
    let rig = Rig::new(config).await;
    let status = rig.get("/mcp").await;
    assert_eq!(status["on"], json!({ "status": "connected" }));
    assert_eq!(status["off"], json!({ "status": "disabled" }));
    assert_eq!(status["gone"]["status"], "failed");
    assert!(status["gone"]["error"].as_str().unwrap().contains("exit code 1"), "{status}");
    let memo = json!({ "name": "memo", "uri": "memo://1", "mimeType": "text/plain", "client": "on" });
    assert_eq!(rig.get("/experimental/resource").await, json!({ "on:memo://1": memo }));
    let commands = rig.get("/command").await;
    let greet = commands.as_array().unwrap().iter().find(|command| command["name"] == "on:greet").unwrap();
    assert_eq!((&greet["source"], &greet["hints"]), (&json!("mcp"), &json!(["$1", "$2"])));
    for (method, path) in [
        (Method::POST, "connect"),
        (Method::POST, "disconnect"),
        (Method::POST, "auth"),
        (Method::DELETE, "auth"),
        (Method::POST, "auth/authenticate"),
        (Method::POST, "auth/callback"),
    ] {
        let body = (path == "auth/callback").then(|| json!({ "code": "x" }));
        let (status, error) = rig.send(method, &format!("/mcp/nobody/{path}"), body).await;
        let wanted =
            json!({ "_tag": "McpServerNotFoundError", "name": "nobody", "message": "MCP server not found: nobody" });
        assert_eq!((status, error), (404, wanted), "{path}");
    }
    for path in ["auth", "auth/authenticate"] {
        let (status, error) = rig.send(Method::POST, &format!("/mcp/on/{path}"), None).await;
        assert_eq!((status, error), (400, json!({ "error": "MCP server on does not support OAuth" })), "{path}");
    }
    assert_eq!(rig.send(Method::DELETE, "/mcp/off/auth", None).await, (200, json!({ "success": true })));
    let begun = rig.send(Method::POST, "/mcp/off/auth", None).await;
    assert!(begun.0 == 400 && begun.1["error"].as_str().unwrap().contains("reached"), "{begun:?}");
    assert_eq!(rig.send(Method::POST, "/mcp/on/disconnect", None).await, (200, json!(true)));
    assert_eq!(rig.get("/mcp").await["on"], json!({ "status": "disabled" }));
    assert_eq!(rig.send(Method::POST, "/mcp/on/connect", None).await, (200, json!(true)));
    let add = json!({ "name": "x", "config": { "type": "local", "command": command } });
    let (status, all) = rig.send(Method::POST, "/mcp", Some(add)).await;
    assert_eq!(
        (status, &all["x"], &all["on"]["status"]),
        (200, &json!({ "status": "connected" }), &json!("connected"))
    );
    assert_eq!(rig.get("/lsp").await, json!([]));
    assert_eq!(rig.get("/formatter").await, json!([]));
    assert_eq!(rig.get("/experimental/capabilities").await, json!({ "backgroundSubagents": true }));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosted_services_are_refused() {
    let rig = Rig::new(json!({})).await;
    let (_, session) = rig.send(Method::POST, "/session", Some(json!({}))).await;
    let share = format!("/session/{}/share", session["id"].as_str().unwrap());
    let (status, error) = rig.send(Method::POST, &share, None).await;
    assert_eq!((status, &error["name"]), (400, &json!("BadRequest")));
    assert_eq!(rig.send(Method::DELETE, &share, None).await, (200, session), "it is not shared, as requested");
    for method in [Method::POST, Method::DELETE] {
        let (status, error) = rig.send(method, "/session/ses_nobody/share", None).await;
        assert_eq!((status, &error["name"]), (404, &json!("NotFoundError")));
    }
    assert!(rig.get(&share.replace("/share", "")).await.get("share").is_none());
    let (status, answer) = rig.send(Method::POST, "/global/upgrade", Some(json!({ "target": "9.9.9" }))).await;
    assert_eq!((status, &answer["success"]), (400, &json!(false)));
    let account = json!({ "consoleManagedProviders": [], "switchableOrgCount": 0 });
    assert_eq!(rig.get("/experimental/console").await, account);
    assert_eq!(rig.get("/experimental/console/orgs").await, json!({ "orgs": [] }));
    let switch = json!({ "accountID": "a", "orgID": "o" });
    assert_eq!(rig.send(Method::POST, "/experimental/console/switch", Some(switch)).await.0, 400);
}

/// The log output.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_requests_and_client_lines_but_no_secrets() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let password = Password { username: "opencode".into(), password: "secret-word".into() };
    let rig = Rig::guarded(TempProject::new(), Some(password)).await;
    let token = "b3BlbmNvZGU6c2VjcmV0LXdvcmQ=";
    let line = json!({ "service": "editor", "level": "warn", "message": "two\nlines\u{1b}[2J", "extra": { "a": 1 } });
    let request = rig.http.post(format!("{}/log?auth_token={token}", rig.url)).json(&line);
    let response = request.header("x-request-id", "my-request").send().await.unwrap();
    assert_eq!(response.json::<Value>().await.unwrap(), json!(true));
    let request = rig.http.get(format!("{}/global/health", rig.url)).basic_auth("opencode", Some("secret-word"));
    assert_eq!(request.send().await.unwrap().status(), 200);
    let text = log.text();
    let find = |wanted: &str| text.lines().find(|line| line.contains(wanted)).unwrap_or_else(|| panic!("{text}"));
    let line_of_client = find(" client: ");
    for part in ["WARN", "two lines", "service=\"editor\"", r#"extra="{\"a\":1}""#] {
        assert!(line_of_client.contains(part), "{line_of_client}");
    }
    let access = find("id=\"my-request\"");
    for part in ["access:", "method=POST", "path=\"/log\"", "operation=\"app.log\"", "status=200", "micros="] {
        assert!(access.contains(part), "{access}");
    }
    find("operation=\"global.health\"");
    for secret in ["secret-word", token, "auth_token"] {
        assert!(!text.contains(secret), "{text}");
    }
    let wrong = json!({ "service": "x", "level": "loud", "message": "m" });
    let request = rig.http.post(format!("{}/log?auth_token={token}", rig.url)).json(&wrong);
    assert_eq!(request.send().await.unwrap().status(), 400);
}

/// The samples of `/metrics` by name and labels. Each must belong to a metric that was introduced before.
async fn metrics(rig: &Rig) -> BTreeMap<String, f64> {
    let response = rig.http.get(format!("{}/metrics", rig.url)).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            let words: Vec<&str> = head.split(' ').collect();
            if words[0] == "TYPE" {
                assert!(kinds.insert(words[1].to_owned(), words[2].to_owned()).is_none(), "{line} occurs twice");
            } else {
                assert_eq!(words[0], "HELP", "{line}");
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let plain = name.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| plain.strip_suffix(end));
        let known = kinds.contains_key(plain) || family.is_some_and(|name| kinds[name] == "histogram");
        assert!(known, "{line} was not introduced");
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line} occurs twice");
    }
    samples
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_counted_and_traces_continue_in_model_calls() {
    let model = ModelServer::start().await;
    model.answer_titles("A title");
    let usage =
        json!({ "prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": { "cached_tokens": 200 } });
    model.enqueue(Reply::text("Hello").usage(usage));
    let mut config = model.config();
    config["provider"]["test"]["models"]["test-model"]["cost"] = json!({ "input": 1, "output": 10 });
    let rig = Rig::new(config).await;
    let _subscriber = rig.events("/event").await;
    let (_, session) = rig.send(Method::POST, "/session", Some(json!({}))).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let prompt = format!("{}/session/{}/message", rig.url, session["id"].as_str().unwrap());
    let body = json!({ "parts": [{ "type": "text", "text": "hi" }] });
    let request = rig.http.post(prompt).header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    assert_eq!(request.json(&body).send().await.unwrap().status(), 200);
    let sent = model.requests()[0].header("traceparent").to_owned();
    assert!(sent.starts_with(&format!("00-{trace}-")) && sent.ends_with("-01"), "{sent}");
    assert!(!sent.contains("00f067aa0ba902b7"), "a span of its own: {sent}");
    rig.send(Method::GET, "/session/ses_nobody", None).await;
    rig.send(Method::GET, "/no/such/path", None).await;

    let samples = metrics(&rig).await;
    for (name, value) in [
        (r#"trefoil_turns_ended_total{outcome="completed"}"#, 1.0),
        (r#"trefoil_turns_ended_total{outcome="failed"}"#, 0.0),
        ("trefoil_turns_started_total", 1.0),
        ("trefoil_turns_running", 0.0),
        (r#"trefoil_requests_total{operation="session.create",status="2xx"}"#, 1.0),
        (r#"trefoil_requests_total{operation="session.get",status="4xx"}"#, 1.0),
        (r#"trefoil_requests_total{operation="",status="4xx"}"#, 1.0),
        (r#"trefoil_request_seconds_count{operation="session.prompt"}"#, 1.0),
        (r#"trefoil_request_seconds_bucket{operation="session.prompt",le="+Inf"}"#, 1.0),
        (r#"trefoil_tokens_total{kind="input"}"#, 800.0),
        (r#"trefoil_tokens_total{kind="output"}"#, 10.0),
        (r#"trefoil_tokens_total{kind="cache_read"}"#, 200.0),
        ("trefoil_cost_dollars_total", 0.0009),
        ("trefoil_subscribers", 1.0),
        ("trefoil_terminals", 0.0),
        ("trefoil_live_queue", 0.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
    }
    for name in [
        r#"trefoil_request_seconds_sum{operation="session.prompt"}"#,
        "trefoil_connections",
        "trefoil_events_delivered_total",
        "trefoil_uptime_seconds",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        assert!(samples.get(name).is_some_and(|value| *value > 0.0), "{name} in {samples:#?}");
    }
    for name in ["trefoil_store_queue", "process_cpu_seconds_total"] {
        assert!(samples.get(name).is_some_and(|value| *value >= 0.0), "{name} in {samples:#?}");
    }
}
