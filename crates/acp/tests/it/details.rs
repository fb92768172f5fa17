//! Details that editors rely on: required fields, nothing sent twice, nothing lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::rig::{Lab, Reply, prompt, script, selected};

/// Broken servers, each with a word that its error contains.
fn broken() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"name": "gone", "command": "/nonexistent/server", "args": [], "env": []}), "/nonexistent/server"),
        (json!({"name": "ends", "command": "false", "args": [], "env": []}), "ends"),
        (json!({"name": "silent", "command": "sh", "args": ["-c", "echo no JSON; exit 3"], "env": []}), "silent"),
        (json!({"name": "refuses", "type": "http", "url": "http://127.0.0.1:9/mcp", "headers": []}), "refuses"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_server_is_reported_once_the_client_knows_the_session() {
    let lab = Lab::new();
    let program = testkit::mcp_server(lab.project.path());
    let works = json!({"name": "works", "command": "python3", "args": [program, "polite"], "env": []});
    for (server, why) in broken() {
        let client = lab.client(json!({"session": {"notices": {}}})).await;
        let params = json!({"cwd": lab.cwd(), "mcpServers": [works.clone(), server.clone()]});
        let made = client.request("session/new", params).await.unwrap();
        let id = made["sessionId"].as_str().unwrap();
        client.wait_for_update(id, why, |update| update["sessionUpdate"] == "notice").await;
        let notices = client.updates_of_kind(id, "notice");
        assert_eq!(notices.len(), 1, "{notices:?}");
        let title = notices[0]["title"].as_str().unwrap();
        assert!(title.contains(server["name"].as_str().unwrap()) && title.contains(why), "{title}");
        assert_eq!(notices[0]["severity"], "error");
        // Nothing is sent about a session before its client knows it.
        let received = client.received();
        let answer = received.iter().position(|message| message["result"]["sessionId"] == id).unwrap();
        let first = received.iter().position(|message| message["params"]["sessionId"] == id).unwrap();
        assert!(answer < first, "{server}");
        assert_eq!(client.prompt(id, &script(json!([{"text": "done"}]))).await.unwrap()["stopReason"], "end_turn");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_has_a_status_and_a_kind() {
    let lab = Lab::new();
    lab.project.write("a.txt", "a\n");
    let client = lab.client(json!({})).await;
    let id = client.session_with_server(&lab).await;
    let todos = json!({"todos": [{"content": "T", "status": "pending", "priority": "low"}]});
    let calls = [
        ("read", json!({"filePath": "a.txt"}), "read"),
        ("bash", json!({"command": "true"}), "execute"),
        ("write", json!({"filePath": "b.txt", "content": "b"}), "edit"),
        ("grep", json!({"pattern": "a"}), "search"),
        ("todowrite", todos, "other"),
        ("s_echo", json!({"text": "x"}), "other"),
        ("nonsense", json!({}), "other"),
        (
            "task",
            json!({"description": "d", "prompt": script(json!([{"text": "x"}])), "subagent_type": "general"}),
            "think",
        ),
    ];
    let tools: Vec<Value> = calls.iter().map(|(tool, input, _)| json!([tool, input])).collect();
    client.prompt(&id, &script(json!([{ "tools": tools }, {"text": "done"}]))).await.unwrap();
    let shown = client.updates_of_kind(&id, "tool_call");
    let kinds: Vec<&str> = shown.iter().map(|call| call["kind"].as_str().unwrap_or("missing")).collect();
    assert_eq!(kinds, calls.each_ref().map(|(_, _, kind)| *kind));
    assert!(shown.iter().all(|call| call["status"] == "pending"), "{shown:?}");
    // The same holds for a replay.
    let again = lab.client(json!({})).await;
    again.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    let shown = again.updates_of_kind(&id, "tool_call");
    assert_eq!(shown.len(), calls.len());
    assert!(shown.iter().all(|call| call["status"].is_string() && call["kind"].is_string()), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_sent_once_per_step() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let mut wanted: Vec<u64> = Vec::new();
    for steps in 1..=3_u64 {
        let used = |step: u64| 100 * steps + step;
        let usage = |step: u64| json!({"prompt_tokens": used(step), "prompt_tokens_details": {"cached_tokens": 0}});
        let call = |step| json!({"tools": [["bash", {"command": format!("echo {step}")}]], "usage": usage(step)});
        let mut turn: Vec<Value> = (1..steps).map(call).collect();
        turn.push(json!({"text": "done", "usage": usage(steps)}));
        client.prompt(&id, &script(json!(turn))).await.unwrap();
        wanted.extend((1..=steps).map(used));
        // The same usage again belongs to another turn.
        client.prompt(&id, &script(json!([{"text": "done", "usage": usage(steps)}]))).await.unwrap();
        wanted.push(used(steps));
        let updates = client.updates_of_kind(&id, "usage_update");
        let told: Vec<u64> = updates.iter().map(|update| update["used"].as_u64().unwrap()).collect();
        assert_eq!(told, wanted);
    }
}

/// An editor that counts how often each file is read.
fn counting(reads: &Arc<Mutex<HashMap<String, usize>>>) -> impl FnMut(&str, &Value) -> Reply + Send + 'static {
    let reads = reads.clone();
    let mut texts: HashMap<String, String> = HashMap::new();
    move |method, params| {
        let path = params["path"].as_str().unwrap_or_default().to_owned();
        match method {
            "fs/read_text_file" => {
                let name = path.rsplit('/').next().unwrap().to_owned();
                *reads.lock().unwrap().entry(name).or_default() += 1;
                Reply::Result(json!({ "content": texts.get(&path).cloned().unwrap_or("one\ntwo\n".to_owned()) }))
            }
            "fs/write_text_file" => {
                texts.insert(path, params["content"].as_str().unwrap().to_owned());
                Reply::Result(Value::Null)
            }
            "session/request_permission" => selected("once"),
            other => panic!("asked for {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_reads_the_editors_file_once() {
    // The user may change the file while deciding, so it is read once more after a permission.
    for (permission, most) in [("allow", 1), ("ask", 2)] {
        let lab = Lab::with(json!({"permission": {"edit": permission}}));
        let files = ["a.txt", "b.txt", "c.txt"];
        files.iter().for_each(|file| drop(lab.project.write(file, "one\ntwo\n")));
        let client = lab.client(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
        let reads = Arc::default();
        client.on_request(counting(&reads));
        let id = client.session(&lab).await;
        let steps = json!([
            {"tools": [["write", {"filePath": "a.txt", "content": "new\n"}]]},
            {"tools": [["edit", {"filePath": "b.txt", "oldString": "two", "newString": "TWO"}]]},
            {"tools": [["read", {"filePath": "c.txt"}]]},
            {"text": "done"},
        ]);
        client.prompt(&id, &script(steps)).await.unwrap();
        let done = client
            .updates_of_kind(&id, "tool_call_update")
            .into_iter()
            .filter(|update| update["status"] == "completed");
        let texts: Vec<Value> = done.map(|update| update["content"][1].clone()).collect();
        assert_eq!((&texts[0]["oldText"], &texts[0]["newText"]), (&json!("one\ntwo\n"), &json!("new\n")));
        assert_eq!(texts[1]["newText"], "one\nTWO\n");
        let reads = reads.lock().unwrap();
        for file in files {
            let count = reads.get(file).copied().unwrap_or_default();
            assert!((1..=most).contains(&count), "{permission}: {file} was read {count} times");
        }
    }
}

/// Two calls of one step on the same file: each sees what the other wrote.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_do_not_lose_each_others_changes() {
    let lab = Lab::new();
    lab.project.write("a.txt", "one\ntwo\n");
    let client = lab.client(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let last = Arc::new(Mutex::new(String::new()));
    let (written, mut editor) = (last.clone(), counting(&Arc::default()));
    client.on_request(move |method, params| {
        if method == "fs/write_text_file" {
            *written.lock().unwrap() = params["content"].as_str().unwrap().to_owned();
        }
        editor(method, params)
    });
    let id = client.session(&lab).await;
    let edit = |old: &str| json!(["edit", {"filePath": "a.txt", "oldString": old, "newString": old.to_uppercase()}]);
    let steps = json!([{"tools": [edit("one"), edit("two")]}, {"text": "done"}]);
    client.prompt(&id, &script(steps)).await.unwrap();
    assert_eq!(*last.lock().unwrap(), "ONE\nTWO\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_replayed_as_they_were_given() {
    let lab = Lab::new();
    let first = lab.client(json!({})).await;
    let id = first.session(&lab).await;
    let resources = [
        json!({"uri": "file:///elsewhere/a.rs#L3", "text": "fn a() {}\n"}),
        json!({"uri": "https://example.org/page", "text": "über «»\n"}),
        json!({"uri": "file:///elsewhere/report.pdf", "mimeType": "application/pdf", "blob": "JVBERi0="}),
    ];
    let mut blocks = vec![json!({"type": "text", "text": script(json!([{"text": "Nice."}]))})];
    blocks.extend(resources.iter().map(|resource| json!({"type": "resource", "resource": resource})));
    first.request("session/prompt", json!({"sessionId": id, "prompt": blocks})).await.unwrap();
    let second = lab.client(json!({})).await;
    second.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    let chunks = second.updates_of_kind(&id, "user_message_chunk");
    let shown: Vec<&Value> =
        chunks.iter().map(|chunk| &chunk["content"]).filter(|block| block["type"] == "resource").collect();
    assert_eq!(shown.len(), resources.len(), "{chunks:?}");
    for (given, shown) in resources.iter().zip(shown) {
        for key in ["uri", "text", "blob"] {
            assert_eq!(shown["resource"].get(key), given.get(key), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_of_a_subagent_is_not_shown_as_its_answer() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let hold = lab.project.path().join("go");
    let told = script(json!([{"text": "Its own words.", "after": hold}]));
    let task = json!({"description": "Look", "prompt": told, "subagent_type": "general"});
    let answer = client
        .start_request("session/prompt", prompt(&id, &script(json!([{"tools": [["task", task]]}, {"text": "done"}]))))
        .await;
    client.wait_for_update(&id, "the task", |update| update["rawOutput"]["metadata"]["sessionId"].is_string()).await;
    lab.project.write("go", "");
    answer.await.unwrap();
    let updates = client.updates_of_kind(&id, "tool_call_update");
    let contents = updates.iter().filter_map(|update| update["content"][0]["content"]["text"].as_str());
    for text in contents {
        assert!(!text.contains("SCRIPT"), "{text}");
    }
}
