//! The editor's own files and terminals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::rig::{Lab, Reply, prompt, script};

type Buffers = Arc<Mutex<HashMap<String, String>>>;

/// An editor with these unsaved buffers; reading any other file is an error.
fn files(buffers: &Buffers) -> impl FnMut(&str, &Value) -> Reply + Send + 'static {
    let buffers = buffers.clone();
    move |method, params| {
        let path = params["path"].as_str().unwrap_or_default().to_owned();
        let mut buffers = buffers.lock().unwrap();
        match method {
            "fs/read_text_file" => match buffers.get(&path) {
                Some(text) => Reply::Result(json!({ "content": text })),
                None => Reply::Error(json!({"code": -32002, "message": "not open"})),
            },
            "fs/write_text_file" => {
                buffers.insert(path, params["content"].as_str().unwrap().to_owned());
                Reply::Result(Value::Null)
            }
            other => panic!("asked for {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_sees_unsaved_changes() {
    let lab = Lab::new();
    let path = lab.project.write("a.txt", "on disk\n").to_string_lossy().into_owned();
    lab.project.write("b.txt", "only on disk\n");
    let client = lab.client(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let buffers: Buffers = Arc::new(Mutex::new(HashMap::from([(path.clone(), "in the editor\n".to_owned())])));
    client.on_request(files(&buffers));
    let id = client.session(&lab).await;
    let steps = json!([
        {"tools": [["read", {"filePath": "a.txt"}]]},
        {"tools": [["read", {"filePath": "b.txt"}]]},
        {"tools": [["edit", {"filePath": "a.txt", "oldString": "editor", "newString": "EDITOR"}]]},
        {"text": "done"},
    ]);
    client.prompt(&id, &script(steps)).await.unwrap();
    let done: Vec<Value> =
        client.updates_of_kind(&id, "tool_call_update").into_iter().filter(|u| u["status"] == "completed").collect();
    assert_eq!(done[0]["content"][0]["content"]["text"], "in the editor");
    assert_eq!(done[1]["content"][0]["content"]["text"], "only on disk");
    let diff = &done[2]["content"][1];
    assert_eq!((&diff["oldText"], &diff["newText"]), (&json!("in the editor\n"), &json!("in the EDITOR\n")));
    assert_eq!(buffers.lock().unwrap()[&path], "in the EDITOR\n");
    // The editor decides when to save.
    assert_eq!(lab.project.read("a.txt"), "on disk\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_can_refuse_a_write() {
    let lab = Lab::new();
    let client = lab.client(json!({"fs": {"writeTextFile": true}})).await;
    client.on_request(|method, _| {
        assert_eq!(method, "fs/write_text_file");
        Reply::Error(json!({"code": -32603, "message": "the file is locked"}))
    });
    let id = client.session(&lab).await;
    client
        .prompt(&id, &script(json!([{"tools": [["write", {"filePath": "a.txt", "content": "x"}]]}, {"text": "no"}])))
        .await
        .unwrap();
    let last = client.updates_of_kind(&id, "tool_call_update").pop().unwrap();
    assert_eq!(last["status"], "failed");
    assert!(last["rawOutput"]["error"].as_str().unwrap().contains("the file is locked"));
    assert!(!lab.project.path().join("a.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_serves_what_the_editor_cannot() {
    let lab = Lab::new();
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().canonicalize().unwrap();
    lab.project.write("dot.bin", [0, 159, 146, 150]);
    // The client fails the test if it is asked for a binary file or for one outside its folders.
    let client = lab.client(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let params = json!({"cwd": lab.cwd(), "mcpServers": []});
    let id = client.request("session/new", params).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    client.on_request(|method, _| match method {
        "session/request_permission" => crate::rig::selected("once"),
        other => panic!("asked for {other}"),
    });
    let steps = json!([
        {"tools": [["read", {"filePath": "dot.bin"}]]},
        {"tools": [["write", {"filePath": path.join("x.txt"), "content": "x"}]]},
        {"text": "done"},
    ]);
    client.prompt(&id, &script(steps)).await.unwrap();
    assert_eq!(std::fs::read_to_string(path.join("x.txt")).unwrap(), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_too_large_for_an_editor_comes_from_the_disk() {
    let lab = Lab::new();
    let lines = format!("{}\n", "0123456789".repeat(100));
    lab.project.write("big.log", lines.repeat(65_000 + 3_000));
    let client = lab.client(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let id = client.session(&lab).await;
    client.on_request(|method, _| match method {
        "session/request_permission" => crate::rig::selected("once"),
        other => panic!("asked for {other}"),
    });
    let steps = json!([
        {"tools": [["read", {"filePath": "big.log", "offset": 60_000, "limit": 1}]]},
        {"tools": [["write", {"filePath": "big.log", "content": "small\n"}]]},
        {"text": "done"},
    ]);
    client.prompt(&id, &script(steps)).await.unwrap();
    let updates = client.updates_of_kind(&id, "tool_call_update");
    let done: Vec<&Value> = updates.iter().filter(|update| update["status"] == "completed").collect();
    assert!(done[0]["rawOutput"].to_string().contains("60000: 0123"), "{}", done[0]);
    assert_eq!(lab.project.read("big.log"), "small\n");
    // The old content is unknown, so the diff must not claim that there was no file.
    assert!(!done[1].to_string().contains("\"oldText\":null"), "{}", done[1]);
}

/// A client with terminals: logs each request, and prints `hi`.
fn terminals(log: &Arc<Mutex<Vec<String>>>, ends: bool) -> impl FnMut(&str, &Value) -> Reply + Send + 'static {
    let log = log.clone();
    move |method, params| {
        let id = params["terminalId"].as_str().unwrap_or_default().to_owned();
        log.lock().unwrap().push(format!("{method} {id}").trim_end().to_owned());
        match method {
            "terminal/create" => {
                assert!(params["args"][1].as_str().unwrap().contains("echo"), "{params}");
                assert!(params["cwd"].is_string() && params["outputByteLimit"].is_u64());
                Reply::Result(json!({"terminalId": "term-1"}))
            }
            "terminal/wait_for_exit" if ends => Reply::Result(json!({"exitCode": 3, "signal": null})),
            "terminal/wait_for_exit" => Reply::Never,
            "terminal/output" => Reply::Result(json!({"output": "\u{1b}[31mhi\u{1b}[0m\n", "truncated": false})),
            "terminal/kill" | "terminal/release" => Reply::Result(json!({})),
            other => panic!("asked for {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_the_editors_terminals() {
    let lab = Lab::new();
    let client = lab.client(json!({"terminal": true})).await;
    let log = Arc::new(Mutex::new(Vec::new()));
    client.on_request(terminals(&log, true));
    let id = client.session(&lab).await;
    client.prompt(&id, &script(json!([{"tools": [["bash", {"command": "echo hi"}]]}, {"text": "ran"}]))).await.unwrap();
    let updates = client.updates_of_kind(&id, "tool_call_update");
    let terminal = json!([{"type": "terminal", "terminalId": "term-1"}]);
    assert!(
        updates.iter().any(|update| update["status"] == "in_progress" && update["content"] == terminal),
        "{updates:#?}"
    );
    let last = updates.last().unwrap();
    assert_eq!((&last["status"], &last["content"]), (&json!("completed"), &terminal));
    let metadata = &last["rawOutput"]["metadata"];
    assert_eq!((&metadata["output"], &metadata["exit"]), (&json!("hi\n"), &json!(3)));
    let want =
        ["terminal/create", "terminal/wait_for_exit term-1", "terminal/output term-1", "terminal/release term-1"];
    assert_eq!(*log.lock().unwrap(), want);
    // Another client does not have that terminal.
    let other = lab.client(json!({})).await;
    other.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!(other.updates_of_kind(&id, "tool_call_update")[0]["content"][0]["content"]["text"], "hi\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_command_is_killed_and_its_terminal_released() {
    let lab = Lab::new();
    let client = lab.client(json!({"terminal": true})).await;
    let log = Arc::new(Mutex::new(Vec::new()));
    client.on_request(terminals(&log, false));
    let id = client.session(&lab).await;
    let steps = script(json!([{"tools": [["bash", {"command": "echo hi; sleep 60"}]]}, {"text": "x"}]));
    let answer = client.start_request("session/prompt", prompt(&id, &steps)).await;
    client.wait_for_update(&id, "the terminal", |update| update["content"][0]["type"] == "terminal").await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    let log = log.lock().unwrap();
    assert_eq!(log[2..], ["terminal/kill term-1", "terminal/output term-1", "terminal/release term-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_cannot_be_opened_fails_the_call() {
    let lab = Lab::new();
    let client = lab.client(json!({"terminal": true})).await;
    client.on_request(|_, _| Reply::Error(json!({"code": -32603, "message": "no more terminals"})));
    let id = client.session(&lab).await;
    client.prompt(&id, &script(json!([{"tools": [["bash", {"command": "echo hi"}]]}, {"text": "ran"}]))).await.unwrap();
    let last = client.updates_of_kind(&id, "tool_call_update").pop().unwrap();
    assert_eq!(last["status"], "failed");
    assert!(last["rawOutput"]["error"].as_str().unwrap().contains("no more terminals"));
}
