//! Requests that Schemathesis generates from our own description of the API: valid, invalid and nonsense. None of them may break the
//! server, and every answer must match the description.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{TestServer, finish, succeeded};

/// Each takes about a minute, and much longer on a busy machine.
const LONGEST: Duration = Duration::from_secs(1200);

#[test]
fn three_thousand_generated_requests_that_read_break_nothing() {
    generated(&["--include-method", "GET"], 3_000);
}

#[test]
fn seven_thousand_generated_requests_that_change_something_break_nothing() {
    generated(&["--exclude-method", "GET"], 7_000);
}

/// Sends at least `enough` requests to the operations that `selection` leaves.
fn generated(selection: &[&str], enough: u64) {
    let served = TestServer::start();
    let program = peer::schemathesis(&testkit::target_folder());
    let program = program.unwrap_or_else(|error| panic!("Schemathesis is needed here: {error}"));
    let mut generator = served.project.command(program);
    generator.current_dir(served.project.root()).env("SCHEMATHESIS_HOOKS", peer::sources().join("hooks.py"));
    generator.env("TREFOIL_KNOWN", known(&served).to_string()).env("TREFOIL_DIRECTORY", served.project.directory());
    generator.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUTF8", "1");
    generator.arg("--config-file").arg(peer::sources().join("schemathesis.toml"));
    generator.args(["run", &format!("{}/doc", served.url)]).args(selection);
    succeeded(&finish(generator, LONGEST));

    let answered = requests(&served);
    assert!(answered >= enough, "only {answered} requests were made");
    assert_eq!(served.send("GET", "/global/health", None).0, 200);
}

/// Something of each kind that a path can name.
fn known(served: &TestServer) -> Value {
    let session = created(served, "/session", json!({"title": "Known"}));
    let prompt = json!({"parts": [{"type": "text", "text": "Hello"}]});
    let (status, answer) = served.send("POST", &format!("/session/{session}/message"), Some(&prompt));
    assert_eq!(status, 200, "{answer}");
    let (_, project) = served.send("GET", "/project/current", None);
    json!({
        "sessionID": session,
        "messageID": answer["info"]["id"],
        "partID": answer["parts"][0]["id"],
        "ptyID": created(served, "/pty", json!({"command": "/bin/sh"})),
        "projectID": project["id"],
        "providerID": "script",
        "integrationID": "script",
    })
}

fn created(served: &TestServer, path: &str, body: Value) -> String {
    let (status, answer) = served.send("POST", path, Some(&body));
    assert_eq!(status, 200, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// How many requests the server has answered.
fn requests(served: &TestServer) -> u64 {
    let (status, metrics) = served.raw("GET", "/metrics", &[], None);
    assert_eq!(status, 200, "{metrics}");
    let counters = metrics.lines().filter(|line| line.starts_with("trefoil_requests_total{"));
    counters.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
