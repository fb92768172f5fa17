//! Clients that make mistakes, and malicious clients.

use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{eventually, soon};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::rig::{Lab, UNTIL_GO, prompt, script};

#[tokio::test(flavor = "multi_thread")]
async fn every_line_gets_the_right_response() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let code = |answer: &Value| (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap_or_default());
    for (line, want) in [
        (b"this is not json".as_slice(), (Value::Null, -32700)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"initialize\"", (Value::Null, -32700)),
        (b"\xff\xfe{}", (Value::Null, -32700)),
        (b"5", (Value::Null, -32600)),
        (b"null", (Value::Null, -32600)),
        (b"[]", (Value::Null, -32600)),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":902,\"method\":\"session/list\",\"params\":{}}]", (Value::Null, -32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}", (Value::Null, -32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"nope/method\",\"params\":{}}", (json!(2), -32601)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"str\",\"method\":\"_vendor/x\"}", (json!("str"), -32601)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":-4,\"method\":\"session/prompt\"}", (json!(-4), -32602)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"nope\"}", (Value::Null, -32601)),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/set_mode\",\"params\":{\"sessionId\":\"ses_x\"}}",
            (json!(7), -32002),
        ),
    ] {
        let answer = client.response_to(line).await;
        assert_eq!(code(&answer), want, "{}", String::from_utf8_lossy(line));
    }
    // None of these gets a response.
    for line in ["", "   ", "{\"jsonrpc\":\"2.0\",\"id\":903,\"result\":{}}", "{\"method\":\"nope/notification\"}"] {
        client.raw(line).await;
    }
    let listed =
        client.response_to("{\"id\":901,\"method\":\"session/list\",\"params\":{\"cwd\":\"/nonexistent\"}}").await;
    assert_eq!(listed["result"]["sessions"], json!([]));
    let long = format!("{{\"id\":1,\"method\":\"{}\"}}", "x".repeat(trefoil_acp::rpc::MAX_LINE));
    assert_eq!(code(&client.response_to(long).await), (Value::Null, -32700));
    client.session(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_continues_after_its_client_disconnects() {
    let lab = Lab::new();
    let mut client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let steps = script(json!([{"text": "one ", "tools": [["bash", {"command": UNTIL_GO}]]}, {"text": "two"}]));
    let _answer = client.start_request("session/prompt", prompt(&id, &steps)).await;
    client.wait_for_update(&id, "the turn", |update| update["sessionUpdate"] == "agent_message_chunk").await;
    client.disconnect().await;
    client.wait_for_end().await;
    let other = lab.client(json!({})).await;
    other.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    lab.project.write("go", "");
    other.wait_for_text(&id, "one two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_costs_no_memory_and_loses_nothing() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.wait_for_update(&id, "the commands", |update| update["sessionUpdate"] == "available_commands_update").await;
    let stalled = client.stall().await;
    let count = 20_000;
    let answer = client.start_request("session/prompt", prompt(&id, &script(json!([{"chunks": count}])))).await;
    // The turn ends whether the client reads or not. It has too many events to follow on a busy machine.
    let session = api::SessionId::parse(&id).unwrap();
    let ended = async || {
        let last = api::ListMessages { limit: Some(1), before: None };
        let last = api::Host::messages(&lab.engine, &session, last).await.unwrap().messages.pop();
        last.is_some_and(|last| last.info.as_assistant().is_some_and(|answer| answer.time.completed.is_some()))
    };
    eventually("the end of the turn", ended).await;
    drop(stalled);
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    let want: String = (0..count).map(|n| format!("w{n} ")).collect();
    assert_eq!(client.text(&id), want);
    // Deltas were joined into fewer messages.
    assert!(client.updates_of_kind(&id, "agent_message_chunk").len() < count / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_client_that_barely_reads_are_handled() {
    let lab = Lab::new();
    let (read, mut write) = tokio::io::split(lab.pipe());
    let mut read = BufReader::with_capacity(1, read);
    let mut say = async |id: u64, method: &str, params: Value| {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    };
    let scope = api::Scope::new(lab.cwd());
    let id = api::Host::create_session(&lab.engine, &scope, api::CreateSession::default()).await.unwrap().id;
    say(1, "initialize", json!({ "protocolVersion": 1 })).await;
    say(2, "session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await;
    let mut line = String::new();
    while !line.contains("\"id\":2") {
        line.clear();
        soon("the answer to session/resume", read.read_line(&mut line)).await.unwrap();
    }
    // From here on it is so slow that most is never read; requests are handled nevertheless.
    let reader = tokio::spawn(async move {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
        while read.read_u8().await.is_ok() {
            pace.tick().await;
        }
    });
    let mut events = api::Host::watch(&lab.engine, api::WatchScope::Session(id.clone()), None).await.unwrap();
    let mut until = async |what: &str, fits: fn(&api::EventBody) -> bool| {
        let next = async {
            loop {
                let Some(api::WatchItem::Frame(frame)) = events.next().await else { panic!("no more events") };
                if frame.event().is_some_and(|event| fits(&event.body)) {
                    return;
                }
            }
        };
        soon(what, next).await;
    };
    // Hours of words: more than any reader gets through.
    let endless = script(json!([{"chunks": 1_000_000, "chunk_delay_ms": 5}]));
    say(3, "session/prompt", prompt(id.as_str(), &endless)).await;
    until("the first word", |body| matches!(body, api::EventBody::PartDelta { .. })).await;
    say(4, "session/close", json!({ "sessionId": id })).await;
    until("the end of the turn", |body| matches!(body, api::EventBody::SessionIdle { .. })).await;
    assert!(!reader.is_finished());
    reader.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_call_stays_below_the_message_limit() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    // The rig fails if a line reaches one megabyte.
    let steps = json!([
        {"tools": [["write", {"filePath": "big.txt", "content": "\u{1}line\n".repeat(300_000)}]]},
        {"tools": [["bash", {"command": "head -c 3000000 /dev/zero | tr '\\0' 'x'"}]]},
        {"text": "y".repeat(2_000_000), "size": 500_000},
    ]);
    client.prompt(&id, &script(steps)).await.unwrap();
    assert_eq!(client.text(&id).len(), 2_000_000);
    let other = lab.client(json!({})).await;
    other.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!(other.text(&id).len(), 2_000_000);
}

/// Valid messages, mutated: cut, doubled, with bytes flipped and fields swapped.
fn mutate(random: &mut fastrand::Rng, seeds: &[String]) -> Vec<u8> {
    let mut line = seeds[random.usize(..seeds.len())].clone().into_bytes();
    for _ in 0..random.usize(1..6) {
        if line.is_empty() {
            break;
        }
        let at = random.usize(..line.len());
        match random.u8(..7) {
            0 => line[at] = random.u8(..),
            1 => line.truncate(at),
            2 => line.insert(at, random.u8(..)),
            3 => drop(line.drain(at..(at + random.usize(..20)).min(line.len()))),
            4 => {
                let other = seeds[random.usize(..seeds.len())].as_bytes();
                line.extend_from_slice(&other[random.usize(..other.len())..]);
            }
            5 => {
                let text = String::from_utf8_lossy(&line).into_owned();
                let values = ["null", "-1", "1e400", "[]", "{}", "\"\"", "true", "99999999999999999999"];
                let value = values[random.usize(..values.len())];
                line = text.replacen("\"x\"", value, 1).into_bytes();
            }
            _ => line[at] = b"{}[]\",:0"[random.usize(..8)],
        }
    }
    line.retain(|byte| *byte != b'\n');
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_random_lines_neither_crash_nor_hang_it() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let request = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": params}).to_string()
    };
    let seeds = [
        request("session/set_mode", json!({"sessionId": id, "modeId": "plan", "a": "x"})),
        request("session/set_config_option", json!({"sessionId": id, "configId": "mode", "value": "build", "a": "x"})),
        request("session/status", json!({"sessionId": id, "a": "x"})),
        request("session/resume", json!({"sessionId": "x", "cwd": lab.cwd(), "mcpServers": [{"name": "x"}]})),
        request("session/prompt", json!({"sessionId": "x", "prompt": [{"type": "text", "text": "x"}]})),
        request("authenticate", json!({"methodId": "x"})),
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "x"}}).to_string(),
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "x"}}).to_string(),
        json!({"jsonrpc": "2.0", "id": "x", "result": {"outcome": {"outcome": "selected", "optionId": "x"}}})
            .to_string(),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "x"}}).to_string(),
        request("initialize", json!({"protocolVersion": 1, "clientCapabilities": {"_meta": "x"}})),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..100_000 {
        client.raw(mutate(&mut random, &seeds)).await;
        // Detect a hang early, not at the end.
        if number % 10_000 == 0 {
            assert!(client.request("session/list", json!({"cwd": "/nonexistent"})).await.is_ok());
        }
    }
    let made = client.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    assert_eq!(client.prompt(id, &script(json!([{"text": "alive"}]))).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.text(id), "alive");
}
