//! In front of an OpenCode server.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::process::{A2aProcess, TOKEN, message, script};
use crate::e2e::harness::Harness;
use crate::e2e::serve::ServeProcess;

fn before(harness: &Harness, url: &str, more: &[(&str, &str)]) -> A2aProcess {
    let env = [("A2A_BEARER_TOKEN", TOKEN), ("OPENCODE_BASE_URL", url), ("A2A_TASK_STORE_BACKEND", "memory")];
    A2aProcess::with(harness, &[], &[&env, more].concat())
}

#[test]
fn the_server_does_the_work_and_the_service_keeps_the_tasks() {
    let harness = Harness::new();
    let serving = ServeProcess::start(&harness, &["--password", "secret"]);
    let service = before(&harness, &serving.url, &[("OPENCODE_AUTH_PASSWORD", "secret")]);
    let told = script(&json!([{ "tools": [["bash", { "command": "echo there" }]] }, { "text": "Done." }]));
    let task = service.call("message/send", json!({ "message": message("m-1", &told) }));
    assert_eq!(task["status"]["state"], "completed", "{task:#}");
    assert!(task["artifacts"].to_string().contains("Done."), "{task:#}");
    let session = task["metadata"]["shared"]["session"]["id"].as_str().unwrap();
    assert!(harness.export(session).to_string().contains("there\\n"));
    service.end(Signal::TERM).expect(0);

    // Whoever has no password for the server is asked for credentials, and the task goes on once they are there.
    let wrong = before(&harness, &serving.url, &[("OPENCODE_AUTH_PASSWORD", "wrong")]);
    for (task, text) in asked(&wrong) {
        assert_eq!(task["status"]["state"], "auth-required", "{task:#}");
        assert_eq!(
            task["metadata"]["opencode"]["error"],
            json!({"type": "UPSTREAM_UNAUTHORIZED", "upstream_status": 401})
        );
        assert!(text.contains("401"), "{text}");
    }
}

#[test]
fn a_server_that_is_gone_is_named() {
    let harness = Harness::new();
    for (task, text) in asked(&before(&harness, "http://127.0.0.1:9", &[])) {
        assert_eq!(task["status"]["state"], "failed", "{task:#}");
        assert_eq!(task["metadata"]["opencode"]["error"], json!({"type": "UPSTREAM_UNREACHABLE"}));
        assert!(text.contains("http://127.0.0.1:9"), "{text}");
    }
}

/// What became of a message that was sent, and of one that was streamed, with the words of their status.
fn asked(service: &A2aProcess) -> [(Value, String); 2] {
    let sent = service.call("message/send", json!({ "message": message("m-1", "Hello") }));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/stream",
        "params": { "message": message("m-2", "Hello") } });
    let mut events = service.stream("POST", "/", &[], Some(&body));
    let said = events.wait_for("\"opencode\":{\"error\"");
    let id = said.lines().find_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok()).unwrap();
    let streamed = service.call("tasks/get", json!({ "id": id["result"]["taskId"] }));
    [sent, streamed].map(|task| {
        let text = task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
        (task, text)
    })
}
