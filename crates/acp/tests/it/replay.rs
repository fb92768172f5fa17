//! Replays conversations recorded with `opencode acp`. Accepted differences are in `recorded/differences.txt`, each
//! with a reason; a line there that no longer applies fails the test as well.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::TempProject;

use crate::rig::{Client, Lab, PendingRequest, Reply, open_with, selected};

/// Conversations that belong together: later ones continue the sessions of earlier ones.
const GROUPS: [&[&str]; 21] = [
    &["01_initialize"],
    &["02_session_new"],
    &["03_prompt_text_reasoning"],
    &["04_tools"],
    &["05_todowrite_plan"],
    &["06_permission_always"],
    &["06_permission_cancelled"],
    &["06_permission_error"],
    &["06_permission_no_fs_cap"],
    &["06_permission_once"],
    &["06_permission_reject"],
    &["07_task_child_permission"],
    &["07_task_subagent"],
    &["08_cancel"],
    &["09_load_replay_prepare", "09_load_replay", "10_list_resume_fork_close"],
    &["11_set_mode_model_config"],
    &["12_slash_commands"],
    &["13_prompt_blocks"],
    &["14_errors"],
    &["15_question_tool"],
    &["16_concurrent_prompts"],
];

/// Updates ignored on both sides: their time and number vary, and other tests cover them.
const LEFT_OUT: [&str; 3] = ["usage_update", "available_commands_update", "session_info_update"];

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn recorded(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A project like the recorded one, with a model that gives the same answers.
fn lab(asks: bool) -> Lab {
    let project = TempProject::new();
    let config = if asks { json!({}) } else { json!({"permission": {"edit": "allow", "bash": "allow"}}) };
    project.write_home(".config/opencode/opencode.json", config.to_string());
    for (path, text) in [
        ("hello.txt", "hello world\n"),
        ("acp_edit.txt", "alpha\nbeta\n"),
        ("acp.txt", "alpha\n"),
        (".opencode/command/greet.md", "---\ndescription: d\n---\nkw:hello greet $ARGUMENTS\n"),
    ] {
        project.write(path, text);
    }
    let rules = json!({"rules": [
        {"when": {"text": "kw:hello"}, "steps": [{"text": "Hello from fake LLM"}]},
        {"when": {"text": "kw:reason"}, "steps": [{"reasoning": "Let me think about it. ", "text": "Reasoned answer."}]},
        {"when": {"text": "kw:slow"}, "steps": [{"chunks": 5, "hold": project.path().join("never")}]},
    ], "default": [{"text": "done"}]});
    let script = Arc::new(llm::Script::parse(&rules.to_string()).unwrap());
    let engine = open_with(&project, ["file", "small"].map(|name| (name.to_owned(), script.clone())));
    Lab { project, engine }
}

/// Translates a recorded message: other ids, paths and models.
fn translate(message: &Value, lab: &Lab, sessions: &HashMap<String, String>) -> Value {
    let mut text = message.to_string();
    for (theirs, ours) in sessions {
        text = text.replace(theirs, ours);
    }
    text = text.replace("/project", &lab.cwd()).replace("fake/fake-model", "script/file");
    serde_json::from_str(&text.replace("fake/fake-small", "script/small")).unwrap()
}

/// Summarises a message without what depends on timing and naming.
fn outline(message: &Value, out: &mut Vec<String>) {
    let update = &message["params"]["update"];
    let line = match (message["method"].as_str(), message.get("id")) {
        (Some("session/update"), _) => {
            let kind = update["sessionUpdate"].as_str().unwrap();
            if LEFT_OUT.contains(&kind) {
                return;
            }
            let status = update["status"].as_str().filter(|_| kind == "tool_call_update").unwrap_or_default();
            if status == "in_progress" {
                return;
            }
            let content = update["content"]["type"].as_str().filter(|kind| *kind != "text").unwrap_or_default();
            let tool = update["kind"].as_str().filter(|_| kind == "tool_call").unwrap_or_default();
            let tool = if tool == "other" { "" } else { tool };
            format!("{kind} {status}{content}{tool}").trim_end().to_owned()
        }
        (Some("$/cancel_request" | "fs/read_text_file"), _) => return,
        (Some(method), _) => format!("{method} {}", message["params"]["toolCall"]["kind"].as_str().unwrap_or_default())
            .trim_end()
            .to_owned(),
        (None, Some(id)) => match message["error"]["code"].as_i64() {
            Some(code) => format!("{id} error {code}"),
            None => {
                let result = &message["result"];
                let reason = result["stopReason"].as_str().unwrap_or_default();
                let options = result["configOptions"].as_array().map(|_| "options").unwrap_or_default();
                format!("{id} result {reason}{options}").trim_end().to_owned()
            }
        },
        (None, None) => return,
    };
    // How a text is split depends on timing, and so does how often a running call reports progress.
    if out.last() != Some(&line) {
        out.push(line);
    }
}

/// Calls of one step proceed in any order, and so do the responses to concurrent requests.
fn settled(name: &str, mut lines: Vec<String>) -> Vec<String> {
    let call = |line: &String| line.starts_with("tool_call") || line == "plan";
    let answer = |line: &String| line.starts_with(|c: char| c.is_ascii_digit()) || line.starts_with("null");
    for run in lines.chunk_by_mut(|one, next| (call(one) && call(next)) || (answer(one) && answer(next))) {
        run.sort();
    }
    if ["14_errors", "16_concurrent_prompts"].contains(&name) {
        lines.sort();
    }
    lines.dedup();
    lines
}

/// The recorded client's responses, by method.
fn recorded_answers(entries: &[Value]) -> BTreeMap<String, VecDeque<Value>> {
    let mut answers: BTreeMap<String, VecDeque<Value>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let (Some(method), id) = (entry["agent"]["method"].as_str(), &entry["agent"]["id"]) else { continue };
        let is_answer = |later: &&Value| later["client"]["method"].is_null() && &later["client"]["id"] == id;
        if let Some(answer) = entries[at..].iter().find(is_answer).filter(|_| !id.is_null()) {
            answers.entry(method.to_owned()).or_default().push_back(answer["client"].clone());
        }
    }
    answers
}

/// In this recording the client was not asked, and everything hung until it cancelled. Now it is asked, and does not
/// answer.
const HUNG: &str = "07_task_child_permission";

fn answer(client: &Client, name: &str, entries: &[Value]) {
    let silent = name == HUNG;
    let answers = Arc::new(Mutex::new(recorded_answers(entries)));
    client.on_request(move |method, params| match method {
        "fs/read_text_file" => match std::fs::read_to_string(params["path"].as_str().unwrap()) {
            Ok(content) => Reply::Result(json!({ "content": content })),
            Err(error) => Reply::Error(json!({"code": -32002, "message": error.to_string()})),
        },
        "fs/write_text_file" => {
            std::fs::write(params["path"].as_str().unwrap(), params["content"].as_str().unwrap()).unwrap();
            Reply::Result(json!({}))
        }
        _ => match answers.lock().unwrap().get_mut(method).and_then(VecDeque::pop_front) {
            Some(answer) if answer["error"].is_object() => Reply::Error(answer["error"].clone()),
            Some(answer) => Reply::Result(answer["result"].clone()),
            None if silent => Reply::Never,
            None => selected(params["options"][0]["optionId"].as_str().unwrap()),
        },
    });
}

/// Plays one conversation; returns what was recorded and what happened now.
async fn play(name: &str, lab: &Lab, sessions: &mut HashMap<String, String>) -> (Vec<String>, Vec<String>) {
    let entries = recorded(name);
    let client = lab.uninitialized_client();
    answer(&client, name, &entries);
    let mut waiting = HashMap::new();
    let mut before: Option<(String, String)> = None;
    let mut theirs = Vec::new();
    for entry in &entries {
        if let Some(received) = entry.get("agent") {
            outline(received, &mut theirs);
            let update = &received["params"]["update"];
            if let Some(kind) = update["sessionUpdate"].as_str().filter(|kind| !LEFT_OUT.contains(kind)) {
                before = Some((kind.to_owned(), update["status"].as_str().unwrap_or_default().to_owned()));
            }
            if received["method"].is_null()
                && let Some(answer) = waiting.remove(&received["id"].to_string())
            {
                let answer: PendingRequest = answer;
                if let (Some(theirs), Ok(ours)) = (received["result"]["sessionId"].as_str(), answer.await) {
                    sessions.insert(theirs.to_owned(), ours["sessionId"].as_str().unwrap().to_owned());
                }
            }
            continue;
        }
        let mut message = translate(&entry["client"], lab, sessions);
        if let Some(line) = message["__raw__"].as_str() {
            client.raw(line).await;
            continue;
        }
        match (message["method"].as_str().map(str::to_owned), message.get("id").cloned()) {
            (Some(method), Some(id)) => {
                if let Some(can) = message["params"]["clientCapabilities"].as_object_mut() {
                    // OpenCode does not use offered terminals; we would.
                    can.remove("terminal");
                }
                before = None;
                let answer = client.start_request_as(id.clone(), &method, message["params"].take()).await;
                waiting.insert(id.to_string(), answer);
            }
            (Some(method), None) => {
                // Wait for the update that preceded it in the recording.
                if let Some((kind, status)) = before.take().filter(|_| !waiting.is_empty()) {
                    let fits = |update: &Value| {
                        update["sessionUpdate"] == *kind && (status.is_empty() || update["status"] == *status)
                    };
                    client
                        .wait_until("what was recorded", |received| {
                            received.iter().any(|m| fits(&m["params"]["update"]))
                        })
                        .await;
                }
                if name == HUNG {
                    let asked = |message: &Value| message["method"] == "session/request_permission";
                    client.wait_until("the question", |received| received.iter().any(asked)).await;
                }
                client.notify(&method, message["params"].take()).await;
            }
            (None, _) => {}
        }
    }
    let mut ours = Vec::new();
    client.received().iter().for_each(|message| outline(message, &mut ours));
    (settled(name, theirs), settled(name, ours))
}

/// The lines to remove (`-`) and to insert (`+`) to get from one list to the other.
fn changes(before: &[String], after: &[String]) -> Vec<String> {
    let [before, after] = [before, after].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    let diff = similar::TextDiff::from_slices(&before, &after);
    let changes = diff.iter_all_changes().filter_map(|change| match change.tag() {
        similar::ChangeTag::Equal => None,
        similar::ChangeTag::Delete => Some(format!("- {}", change.value())),
        similar::ChangeTag::Insert => Some(format!("+ {}", change.value())),
    });
    changes.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_conversations_replay_as_recorded() {
    let mut found: Vec<String> = Vec::new();
    for group in GROUPS {
        let asks = group[0].contains("permission");
        let (lab, mut sessions) = (lab(asks), HashMap::new());
        for name in group {
            let (theirs, ours) = play(name, &lab, &mut sessions).await;
            found.extend(changes(&theirs, &ours).into_iter().map(|change| format!("{name} {change}")));
        }
    }
    let text = std::fs::read_to_string(folder().join("differences.txt")).unwrap_or_default();
    let accepted = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut accepted: Vec<String> = accepted.map(|line| line.split("  # ").next().unwrap().trim().to_owned()).collect();
    accepted.sort();
    found.sort();
    let news = changes(&accepted, &found);
    assert!(news.is_empty(), "what differs is not what differences.txt says:\n{}", news.join("\n"));
}
