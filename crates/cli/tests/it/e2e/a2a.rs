//! `trefoil a2a` and `serve --a2a` as processes.

mod faces;
mod hostile;
mod load;
pub mod process;
mod startup;
mod upstream;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::until;

use super::harness::{Harness, Reader, spawn};
use super::serve::ServeProcess;
use process::{A2aProcess, TOKEN, message, new_message, script, send};

const TERMINAL: [&str; 4] = ["completed", "canceled", "failed", "rejected"];

#[test]
fn cards_are_public_and_everything_else_needs_credentials() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let answer = send(&service.url, "GET", path, &[], None);
        let etag = answer.header("etag").unwrap().to_owned();
        let card = answer.expect(200);
        assert_eq!((&card["protocolVersion"], &card["url"]), (&json!("0.3"), &json!(service.url)), "{card:#}");
        assert_eq!(card["supportedInterfaces"][0]["url"], service.url);
        let again = send(&service.url, "GET", path, &[("if-none-match", &etag)], None);
        assert_eq!((again.status, again.body.as_str()), (304, ""));
        let head = send(&service.url, "HEAD", path, &[], None);
        assert_eq!((head.status, head.body.as_str(), head.header("etag")), (200, "", Some(&*etag)));
    }
    let empty = json!({});
    for (method, path, body) in [
        ("GET", "/health", None),
        ("GET", "/metrics", None),
        ("GET", "/openapi.json", None),
        ("GET", "/agent/authenticatedExtendedCard", None),
        ("GET", "/extendedAgentCard", None),
        ("POST", "/", Some(&empty)),
        ("POST", "/message:send", Some(&empty)),
        ("GET", "/v1/tasks", None),
        ("GET", "/no/such/path", None),
    ] {
        for authorization in ["", "Bearer wrong", "Basic b3BlbmNvZGU6c2VjcmV0"] {
            let answer = send(&service.url, method, path, &[("authorization", authorization)], body);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
            assert_eq!(answer.expect(401), json!({ "error": "Unauthorized" }), "{method} {path}");
        }
    }
    assert_eq!(service.send("GET", "/health", &[], None).expect(200)["status"], "ok");
    let metrics = service.send("GET", "/metrics", &[], None).expect(200);
    assert!(metrics.as_str().unwrap().contains("a2a_stream_active 0"), "{metrics}");
    assert_eq!(service.send("GET", "/no/such/path", &[], None).expect(404), json!({ "detail": "Not Found" }));
    let wrong_method = service.send("GET", "/v1/message:send", &[], None);
    assert_eq!((wrong_method.status, wrong_method.header("allow")), (405, Some("POST")));
    let compressed = service.send("GET", "/extendedAgentCard", &[("accept-encoding", "gzip")], None);
    assert_eq!((compressed.status, compressed.header("content-encoding")), (200, Some("gzip")));
}

#[test]
fn a_message_becomes_a_task_in_both_lines() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let told = script(&json!([{ "text": "The answer." }]));
    let task = service.call("message/send", json!({ "message": message("m-1", &told) }));
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{task:#}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "The answer.");
    assert_eq!(service.call("tasks/get", json!({ "id": task["id"] }))["status"]["state"], "completed");
    let again = service.call("message/send", json!({ "message": message("m-1", &told) }));
    assert_eq!(again["id"], task["id"], "the same message is the same task");

    let body = json!({ "message": new_message("m-2", &told) });
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = service.send("POST", "/message:send", &[("traceparent", traceparent)], Some(&body));
    assert_eq!(sent.header("content-type"), Some("application/a2a+json"));
    assert!(sent.header("traceparent").unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    let new = sent.expect(200)["task"].take();
    assert_eq!(new["status"]["state"], "TASK_STATE_COMPLETED", "{new:#}");
    let id = new["id"].as_str().unwrap();
    for path in [format!("/tasks/{id}"), format!("/any-tenant/tasks/{id}")] {
        assert_eq!(service.send("GET", &path, &[], None).expect(200)["id"], id);
    }
    let listed = service.call("ListTasks", json!({}));
    let ids: Vec<&Value> = listed["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
    assert_eq!(ids, [&new["id"], &task["id"]], "the most recently changed first");
    let missing = service.send("GET", "/tasks/nope", &[], None).expect(404);
    assert_eq!(missing["error"]["details"][0]["reason"], "TASK_NOT_FOUND", "{missing:#}");
}

#[test]
fn a_stream_has_numbered_events_and_can_be_resumed() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let gate = harness.project.path().join("gate");
    let told = script(&json!([{ "text": "First. ", "tools": [["bash", { "command": "true" }]] },
        { "after": gate, "text": "Second." }]));
    let body = json!({ "message": new_message("m-1", &told) });
    let mut events = service.stream("POST", "/message:stream", &[], Some(&body));
    let begin = events.wait_for("\"text\":\"First");
    assert!(begin.contains("text/event-stream") && begin.contains("\nid: "), "{begin}");
    let task: Value = begin.lines().find_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).unwrap();
    let id = task["task"]["id"].as_str().unwrap().to_owned();
    // Somebody else follows from the first event on.
    let mut late = service.stream("GET", &format!("/tasks/{id}:subscribe"), &[("last-event-id", "1")], None);
    late.wait_for("\"text\":\"First");
    harness.project.write("gate", "");
    for stream in [&mut events, &mut late] {
        stream.wait_for("\"text\":\"Second");
        stream.wait_for("TASK_STATE_COMPLETED");
    }
    events.rest();
    late.rest();
    let over = service.send("POST", &format!("/tasks/{id}:subscribe"), &[], None).expect(400);
    assert_eq!(over["error"]["details"][0]["reason"], "UNSUPPORTED_OPERATION", "{over:#}");
}

#[test]
fn a_running_task_is_cancelled() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let never = harness.project.path().join("never");
    let told = script(&json!([{ "text": "Hm ", "hold": never }]));
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "message/stream",
        "params": { "message": message("m-1", &told) } });
    let mut events = service.stream("POST", "/", &[], Some(&body));
    let begin = events.wait_for("\"text\":\"Hm");
    let event: Value = begin.lines().find_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).unwrap();
    let result = &event["result"];
    let id = result["id"].as_str().or(result["taskId"].as_str()).unwrap().to_owned();
    for _ in 0..2 {
        let task = service.call("tasks/cancel", json!({ "id": id }));
        assert_eq!(task["status"]["state"], "canceled");
    }
    events.wait_for("\"final\":true");
    events.rest();
}

#[test]
fn tasks_survive_a_kill() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let done =
        service.call("message/send", json!({ "message": message("m-1", &script(&json!([{ "text": "Done." }]))) }));
    let gate = harness.project.path().join("gate");
    let told = script(&json!([{ "after": gate, "text": "It goes on." }]));
    let configuration = json!({ "blocking": false });
    let running =
        service.call("message/send", json!({ "message": message("m-2", &told), "configuration": configuration }));
    assert!(!TERMINAL.contains(&running["status"]["state"].as_str().unwrap()), "{running:#}");
    service.end(Signal::KILL);

    let service = A2aProcess::start(&harness, &[]);
    let get = |task: &Value| service.call("tasks/get", json!({ "id": task["id"] }));
    assert_eq!(get(&done), done);
    assert!(!TERMINAL.contains(&get(&running)["status"]["state"].as_str().unwrap()));
    harness.project.write("gate", "");
    until("the task ends", || TERMINAL.contains(&get(&running)["status"]["state"].as_str().unwrap()));
    let ended = get(&running);
    assert_eq!(ended["status"]["state"], "completed", "{ended:#}");
    assert!(ended["artifacts"].to_string().contains("It goes on."), "{ended:#}");
}

/// A service of `serve --a2a`.
fn both(harness: &Harness, args: &[&str]) -> ServeProcess {
    let mut all = vec!["serve", "--a2a", "--port", "0"];
    all.extend(args);
    let mut command = harness.command(&all);
    command.env("A2A_BEARER_TOKEN", TOKEN);
    ServeProcess::of(spawn(command))
}

#[test]
fn one_session_is_live_on_opencode_and_a2a() {
    let harness = Harness::new();
    let serving = both(&harness, &[]);
    let bearer = format!("Bearer {TOKEN}");
    let authorized = [("authorization", bearer.as_str())];
    // Its card is where clients look for it, and names the service's own place.
    let card = send(&serving.url, "GET", "/.well-known/agent-card.json", &[], None).expect(200);
    let base = format!("{}/a2a", serving.url);
    assert_eq!(card["url"], base);
    assert_eq!(send(&base, "GET", "/.well-known/agent-card.json", &[], None).expect(200), card);
    assert_eq!(send(&base, "GET", "/health", &[], None).status, 401);

    let mut opencode = events(&serving.url);
    let session = send(&serving.url, "POST", "/session", &[], Some(&json!({}))).expect(200)["id"].take();
    let path = format!("/session/{}/message", session.as_str().unwrap());
    let ask = |text: &str| json!({ "parts": [{ "type": "text", "text": script(&json!([{ "text": text }])) }] });
    send(&serving.url, "POST", &path, &[], Some(&ask("From OpenCode."))).expect(200);
    opencode.wait_for("From OpenCode.");

    let body = json!({ "message": new_message("m-1", &script(&json!([{ "text": "From A2A." }]))),
        "metadata": { "shared": { "session": { "id": session } } } });
    let task = send(&base, "POST", "/message:send", &authorized, Some(&body)).expect(200)["task"].take();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    opencode.wait_for("From A2A.");
    let messages = send(&serving.url, "GET", &path, &[], None).expect(200).to_string();
    assert!(messages.contains("From OpenCode.") && messages.contains("From A2A."), "{messages}");
    serving.end(Signal::TERM).expect(0);
}

#[test]
fn each_face_has_credentials_of_its_own() {
    let harness = Harness::new();
    let serving = both(&harness, &["--password", "secret"]);
    let bearer = format!("Bearer {TOKEN}");
    let (opencode, a2a) = (("authorization", "Basic b3BlbmNvZGU6c2VjcmV0"), ("authorization", bearer.as_str()));
    let status = |path: &str, headers: &[(&str, &str)]| send(&serving.url, "GET", path, headers, None).status;
    assert_eq!(status("/session", &[opencode]), 200);
    assert_eq!(status("/session", &[a2a]), 401);
    assert_eq!(status("/a2a/health", &[a2a]), 200);
    assert_eq!(status("/a2a/health", &[opencode]), 401);
    assert_eq!(status("/a2a/.well-known/agent-card.json", &[]), 200);
    assert_eq!(status("/.well-known/agent-card.json", &[]), 200);
}

/// The event stream of OpenCode's API.
fn events(url: &str) -> Reader {
    use std::io::Write as _;

    let address = url.strip_prefix("http://").unwrap().to_owned();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    write!(stream, "GET /global/event HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut events = Reader::new(move || stream);
    events.wait_for("server.connected");
    events
}
