//! The errors of requests while the database refuses writes: they say why, and their status whether to retry.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::Rig;
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

/// A server whose store hardly waits for locks.
async fn rig(options: store::Options) -> Rig {
    let options = store::Options { busy_timeout: Duration::from_millis(50), ..options };
    Rig::on_store(json!({"model": "script/demo"}), options).await
}

fn database(rig: &Rig) -> PathBuf {
    rig.project.home().join(".local/share/trefoil/trefoil.db")
}

async fn session(rig: &Rig) -> String {
    let (status, session) = rig.send(Method::POST, "/session", Some(json!({}))).await;
    assert_eq!(status, 200, "{session}");
    format!("/session/{}", session["id"].as_str().unwrap())
}

fn parts(text: &str) -> Value {
    json!({"parts": [{"type": "text", "text": text}]})
}

/// Writes outside of a turn.
fn writes(session: &str) -> Vec<(Method, String, Value)> {
    vec![
        (Method::POST, "/session".to_owned(), json!({})),
        (Method::PATCH, session.to_owned(), json!({"title": "T"})),
        (Method::POST, format!("{session}/message"), parts("hello")),
        (Method::POST, format!("{session}/prompt_async"), parts("hello")),
        (Method::POST, format!("{session}/command"), json!({"command": "init", "arguments": ""})),
        (Method::POST, format!("{session}/shell"), json!({"agent": "build", "command": "true"})),
        (Method::POST, format!("{session}/fork"), json!({})),
        (Method::DELETE, session.to_owned(), Value::Null),
    ]
}

async fn assert_writes_are_refused(rig: &Rig, session: &str, why: &str) {
    for (method, path, body) in writes(session) {
        let (status, error) = rig.send(method.clone(), &path, Some(body)).await;
        assert_eq!((status, &error["_tag"]), (503, &json!("ServiceUnavailableError")), "{method} {path}: {error}");
        assert!(error["message"].as_str().unwrap().contains(why), "{method} {path}: {error}");
    }
    assert_eq!(rig.get(&format!("{session}/message")).await, json!([]), "nothing was stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_is_a_503() {
    let rig = rig(store::Options::default()).await;
    let session = session(&rig).await;
    let other = Connection::open(database(&rig)).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_writes_are_refused(&rig, &session, "locked").await;
    other.execute_batch("ROLLBACK").unwrap();
    let (status, answer) = rig.send(Method::POST, &format!("{session}/message"), Some(parts("hello"))).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_a_507() {
    let rig = rig(store::Options { max_pages: Some(400), ..store::Options::default() }).await;
    let session = session(&rig).await;
    let other = Connection::open(database(&rig)).unwrap();
    other.execute_batch("CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(2000000))").unwrap();
    let large = parts(&"x".repeat(100_000));
    for path in ["message", "prompt_async"] {
        let (status, error) = rig.send(Method::POST, &format!("{session}/{path}"), Some(large.clone())).await;
        assert_eq!((status, &error["_tag"]), (507, &json!("InsufficientStorageError")), "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains("full"), "{error}");
    }
    other.execute_batch("DROP TABLE filler").unwrap();
    let (status, answer) = rig.send(Method::POST, &format!("{session}/message"), Some(large)).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_database_is_unhealthy() {
    let rig = rig(store::Options::default()).await;
    let session = session(&rig).await;
    assert_eq!(rig.get("/global/health").await["healthy"], true);
    let (folder, away) = (database(&rig).parent().unwrap().to_owned(), rig.project.root().join("away"));
    std::fs::rename(&folder, &away).unwrap();
    for path in ["/global/health", "/api/health"] {
        let (status, health) = rig.send(Method::GET, path, None).await;
        assert_eq!((status, &health["healthy"]), (503, &json!(false)), "{health}");
        let reason = health["reason"].as_str().unwrap();
        assert!(reason.contains("moved, deleted or replaced") && reason.contains("trefoil.db"), "{health}");
        assert!(health["version"].is_string(), "{health}");
    }
    assert_writes_are_refused(&rig, &session, "moved, deleted or replaced").await;
    assert!(!folder.exists(), "nothing was created in its place");
    std::fs::rename(&away, &folder).unwrap();
    assert_eq!(rig.get("/global/health").await["healthy"], true);
    let (status, answer) = rig.send(Method::POST, &format!("{session}/message"), Some(parts("hello"))).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_shows_its_status_and_its_caller_gets_the_answer() {
    let rig = rig(store::Options::default()).await;
    let session = session(&rig).await;
    let mut events = rig.events("/event").await;
    let gate = rig.project.path().join("go");
    let command = format!("until [ -e {} ]; do sleep 0.02; done; echo outcome", gate.display());
    let script = json!([{"tools": [["bash", {"command": command}]]}, {"text": "The end."}]);
    let prompt = parts(&format!("SCRIPT: {script}"));
    let path = format!("{session}/message");
    let turn = rig.send(Method::POST, &path, Some(prompt));
    let fault = async {
        while events.wait_for("message.part.updated").await["properties"]["part"]["state"]["status"] != "running" {}
        let other = Connection::open(database(&rig)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        rig.project.write("go", "");
        let retry_status = loop {
            let status = events.wait_for("session.status").await["properties"]["status"].clone();
            if status["type"] == "retry" {
                break status;
            }
        };
        assert!(retry_status["message"].as_str().unwrap().contains("locked"), "{retry_status}");
        let statuses = rig.get("/session/status").await;
        assert_eq!(statuses[session.trim_start_matches("/session/")]["type"], "retry", "{statuses}");
        other.execute_batch("ROLLBACK").unwrap();
        events.wait_for("session.idle").await;
    };
    let ((status, answer), ()) = tokio::join!(turn, fault);
    assert_eq!((status, &answer["parts"][1]["text"]), (200, &json!("The end.")), "{answer}");
}

/// A turn that is given up because its end cannot be stored; returns its caller's response.
async fn abandoned_turn(patience: Duration) -> (u16, Value) {
    let rig = rig(store::Options { write_retry_timeout: patience, ..store::Options::default() }).await;
    let session = session(&rig).await;
    let mut events = rig.events("/event").await;
    let gate = rig.project.path().join("go");
    let script = json!([{"text": "Late.", "after": gate}]);
    let path = format!("{session}/message");
    let prompt = parts(&format!("SCRIPT: {script}"));
    let turn = rig.send(Method::POST, &path, Some(prompt));
    let fault = async {
        while events.wait_for("message.updated").await["properties"]["info"]["role"] != "assistant" {}
        let other = Connection::open(database(&rig)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        rig.project.write("go", "");
        events.wait_for("session.error").await;
        events.wait_for("session.idle").await;
        other
    };
    let (answer, _other) = tokio::join!(turn, fault);
    assert_eq!(rig.get("/session/status").await, json!({}));
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_given_up_early_is_a_503() {
    let (status, error) = abandoned_turn(Duration::from_millis(300)).await;
    assert_eq!((status, &error["_tag"]), (503, &json!("ServiceUnavailableError")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("locked"), "{error}");
}

/// Takes 12 s: the response must have begun by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_given_up_late_ends_with_its_error() {
    let (status, answer) = abandoned_turn(Duration::from_secs(11)).await;
    assert_eq!((status, &answer["_tag"]), (200, &json!("ServiceUnavailableError")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("locked"), "{answer}");
}
