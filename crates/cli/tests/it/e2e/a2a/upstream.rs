//! In front of an OpenCode server.

use rustix::process::Signal;
use serde_json::json;

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

    let wrong = before(&harness, &serving.url, &[("OPENCODE_AUTH_PASSWORD", "wrong")]);
    let answer = ask(&wrong);
    assert!(answer.contains("401") && !answer.contains("\"completed\""), "{answer}");
}

#[test]
fn a_server_that_is_gone_is_named() {
    let harness = Harness::new();
    let answer = ask(&before(&harness, "http://127.0.0.1:9", &[]));
    assert!(answer.contains("UPSTREAM_UNREACHABLE") && answer.contains("http://127.0.0.1:9"), "{answer}");
}

/// The answer to a message, whatever it is.
fn ask(service: &A2aProcess) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": { "message": message("m-1", "Hello") } });
    service.send("POST", "/", &[], Some(&body)).expect(200).to_string()
}
