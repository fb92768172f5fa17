//! Sessions, messages and turns, where OpenCode's behaviour is not obvious from its document.

use crate::common::{Events, Rig};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::TempProject;

async fn rig() -> Rig {
    Rig::new(json!({"model": "script/demo", "permission": {"bash": {"*": "allow", "echo *": "ask"}}})).await
}

async fn session(rig: &Rig, body: Value) -> String {
    let (status, session) = rig.send(Method::POST, "/session", Some(body)).await;
    assert_eq!(status, 200, "{session}");
    format!("/session/{}", session["id"].as_str().unwrap())
}

async fn post(rig: &Rig, path: &str, body: Value) -> Value {
    let (status, answer) = rig.send(Method::POST, path, Some(body)).await;
    assert_eq!(status, 200, "POST {path}: {answer}");
    answer
}

fn script(steps: &Value) -> Value {
    json!([{"type": "text", "text": format!("SCRIPT: {steps}")}])
}

/// Starts a turn and waits for its request to the user.
async fn start_and_wait_for(rig: &Rig, session: &str, events: &mut Events, call: Value, kind: &str) -> Value {
    let parts = script(&json!([{"tools": [call]}, {"text": "The end."}]));
    let (status, error) =
        rig.send(Method::POST, &format!("{session}/prompt_async"), Some(json!({"parts": parts}))).await;
    assert_eq!(status, 204, "{error}");
    events.wait_for(kind).await["properties"].clone()
}

/// The state of a session's last tool call.
async fn last_tool_state(rig: &Rig, session: &str) -> Value {
    let messages = rig.get(&format!("{session}/message")).await;
    let mut parts = messages.as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    parts.rfind(|part| part["type"] == "tool").unwrap()["state"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rules_are_added_to_the_rules_of_a_session() {
    let rig = rig().await;
    let rule = |permission: &str| json!({"permission": permission, "pattern": "*", "action": "deny"});
    let session = session(&rig, json!({"title": "T", "permission": [rule("edit")]})).await;
    let mut events = rig.events("/event").await;
    let (_, same) = rig.send(Method::PATCH, &session, Some(json!({}))).await;
    let (_, changed) = rig.send(Method::PATCH, &session, Some(json!({"permission": [rule("bash")]}))).await;
    assert_eq!(changed["permission"], json!([rule("edit"), rule("bash")]));
    assert_eq!(same["title"], "T");
    let first = events.wait_for("session.updated").await;
    assert_eq!(first["properties"]["info"], changed, "an empty change causes no event");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_keeps_the_metadata() {
    let rig = rig().await;
    let session = session(&rig, json!({"metadata": {"tab": 3}})).await;
    assert_eq!(post(&rig, &format!("{session}/fork"), json!({})).await["metadata"], json!({"tab": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_take_whole_numbers_and_an_empty_cursor_is_none() {
    let rig = rig().await;
    let session = session(&rig, json!({})).await;
    for word in ["one", "two"] {
        let text = json!([{"type": "text", "text": word}]);
        post(&rig, &format!("{session}/message"), json!({"parts": text, "noReply": true})).await;
    }
    let page = rig.get(&format!("{session}/message?limit=1&before=")).await;
    assert_eq!(page[0]["parts"][0]["text"], "two");
    let (status, error) = rig.send(Method::GET, &format!("{session}/message?limit=1.5"), None).await;
    assert_eq!((status, &error["data"]["kind"]), (400, &json!("Query")));
    assert_eq!(rig.get("/experimental/session?limit=0").await, json!([]));
    assert_eq!(rig.get(&format!("{session}/message/")).await.as_array().unwrap().len(), 2, "a slash at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_missing_parts_succeeds_but_not_during_a_turn() {
    let rig = rig().await;
    let session = session(&rig, json!({})).await;
    let part = format!("{session}/message/msg_gone/part/prt_gone");
    assert_eq!(rig.send(Method::DELETE, &part, None).await, (200, json!(true)));
    let mut events = rig.events("/event").await;
    let call = json!(["bash", {"command": "echo hi"}]);
    start_and_wait_for(&rig, &session, &mut events, call, "permission.asked").await;
    let (status, error) = rig.send(Method::DELETE, &format!("{session}/message/msg_gone"), None).await;
    assert_eq!((status, &error["_tag"]), (409, &json!("SessionBusyError")));
    assert_eq!(rig.send(Method::POST, &format!("{session}/abort"), None).await.0, 200);
    let state = last_tool_state(&rig, &session).await;
    assert_eq!((&state["status"], &state["metadata"]), (&json!("error"), &json!({"interrupted": true})));
}

#[tokio::test(flavor = "multi_thread")]
async fn trailing_questions_may_stay_unanswered() {
    let rig = rig().await;
    let session = session(&rig, json!({})).await;
    let mut events = rig.events("/event").await;
    let option = json!([{"label": "A", "description": "a"}]);
    let questions: Vec<Value> =
        ["One?", "Two?"].iter().map(|text| json!({"question": text, "header": "H", "options": option})).collect();
    let call = json!(["question", {"questions": questions}]);
    let ask = start_and_wait_for(&rig, &session, &mut events, call, "question.asked").await;
    let path = format!("/question/{}/reply", ask["id"].as_str().unwrap());
    let (status, _) = rig.send(Method::POST, &path, Some(json!({"answers": [[], [], []]}))).await;
    assert_eq!(status, 400, "there are two questions");
    assert_eq!(post(&rig, &path, json!({"answers": [["A"]]})).await, json!(true));
    events.wait_for("session.idle").await;
    assert_eq!(last_tool_state(&rig, &session).await["metadata"]["answers"], json!([["A"], []]));
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_kept_as_they_were_sent() {
    let rig = rig().await;
    // The smallest possible picture.
    let picture =
        b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    let file = rig.project.path().join("dot.gif");
    std::fs::write(&file, picture).unwrap();
    let session = session(&rig, json!({})).await;
    let parts = json!([
        {"type": "text", "text": "look", "time": {"start": 1, "end": 2}},
        {"type": "file", "mime": "text/plain", "url": "data:text/plain,inline"},
        {"type": "file", "mime": "image/gif", "url": format!("file://{}", file.display())},
    ]);
    let sent = post(&rig, &format!("{session}/message"), json!({"parts": parts, "noReply": true})).await;
    assert_eq!(sent["parts"][0]["time"], json!({"start": 1, "end": 2}));
    let texts: Vec<&str> = sent["parts"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect();
    let called = |input: Value| format!("Called the Read tool with the following input: {input}");
    let (nameless, named) = (called(json!({})), called(json!({"filePath": file})));
    assert_eq!(texts, ["look", nameless.as_str(), "inline", named.as_str()]);
    assert_eq!(sent["parts"][5]["mime"], "image/gif");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_the_wrong_shape_ends_the_turn() {
    let rig = rig().await;
    let session = session(&rig, json!({})).await;
    let format = json!({"type": "json_schema", "schema": {"type": "object", "required": ["a"]}});
    let body = json!({"parts": script(&json!([{"text": "no"}])), "format": format});
    let answer = post(&rig, &format!("{session}/message"), body).await;
    assert_eq!(
        (&answer["info"]["error"]["name"], &answer["info"]["finish"]),
        (&json!("StructuredOutputError"), &json!("stop"))
    );
    assert_eq!(answer["parts"].as_array().unwrap().last().unwrap()["type"], "step-finish");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_line_needs_an_existing_agent() {
    let rig = rig().await;
    let session = session(&rig, json!({})).await;
    let body = json!({"agent": "nobody", "command": "true"});
    let (status, error) = rig.send(Method::POST, &format!("{session}/shell"), Some(body)).await;
    assert_eq!(status, 400, "{error}");
    assert_eq!(rig.get(&format!("{session}/message")).await, json!([]));
    let done = post(
        &rig,
        &format!("{session}/message"),
        json!({
            "parts": script(&json!([{"tools": [["bash", {"command": "true"}]]}, {"text": "ok"}]))
        }),
    )
    .await;
    assert_eq!(done["info"]["finish"], "stop");
    assert_eq!(last_tool_state(&rig, &session).await["metadata"]["output"], "(no output)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_line_streams_its_output() {
    let rig = rig().await;
    let gate = rig.project.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let session = session(&rig, json!({})).await;
    let mut events = rig.events("/event").await;
    let opened = async {
        loop {
            let event = events.wait_for("message.part.updated").await;
            let state = &event["properties"]["part"]["state"];
            if state["metadata"]["output"] == "one\n" {
                assert_eq!(state["status"], "running");
                break;
            }
        }
        tokio::task::spawn_blocking(move || std::fs::write(gate, "two\n").unwrap()).await.unwrap();
    };
    let path = format!("{session}/shell");
    let shell = post(&rig, &path, json!({"agent": "build", "command": "echo one; cat gate"}));
    let (done, ()) = tokio::join!(shell, opened);
    assert_eq!(done["parts"][0]["state"]["output"], "one\ntwo\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_names_the_folder_of_its_skill_and_the_model_of_its_task() {
    let project = TempProject::new();
    project.write_home(".config/opencode/opencode.json", json!({"model": "script/demo"}).to_string());
    let skill = "---\nname: demo\ndescription: D\n---\nDo it.\n";
    let folder = project.write_home(".config/opencode/skill/demo/SKILL.md", skill).parent().unwrap().to_owned();
    project.write_home(".config/opencode/skill/demo/more.txt", "more\n");
    project.write_home(".config/opencode/command/sub.md", "---\nsubtask: true\n---\nDo $ARGUMENTS\n");
    let rig = Rig::on(project).await;
    // The first part that a command sends.
    let run = async |command: &str| {
        let session = session(&rig, json!({})).await;
        post(&rig, &format!("{session}/command"), json!({"command": command, "arguments": "now"})).await;
        rig.get(&format!("{session}/message")).await[0]["parts"][0].clone()
    };
    let text = run("demo").await["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("Do it.") && text.contains(folder.to_str().unwrap()) && text.ends_with("now"), "{text}");
    assert_eq!(run("sub").await["model"], json!({"providerID": "script", "modelID": "demo"}));
    let session = session(&rig, json!({})).await;
    // No permission is needed, though the file lies outside the project.
    let parts = script(&json!([{"tools": [["read", {"filePath": folder.join("more.txt")}]]}, {"text": "ok"}]));
    post(&rig, &format!("{session}/message"), json!({"parts": parts})).await;
    assert_eq!(last_tool_state(&rig, &session).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_agents_md_initializes_the_project() {
    let rig = rig().await;
    assert!(rig.get("/project/current").await["time"].get("initialized").is_none());
    let session = session(&rig, json!({})).await;
    let body = json!({"modelID": "demo", "providerID": "script", "messageID": "msg_init"});
    assert_eq!(post(&rig, &format!("{session}/init"), body).await, json!(true));
    assert!(rig.get("/project/current").await["time"]["initialized"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_messages_do_not_depend_on_the_clock() {
    let rig = rig().await;
    let session = session(&rig, json!({})).await;
    let mut wanted = Vec::new();
    for (place, minutes) in [0, 5, -10, 3, -60].into_iter().enumerate() {
        api::shift_clock(minutes * 60_000);
        let mut body = json!({"parts": script(&json!([{"text": place.to_string()}]))});
        if place == 2 {
            body["messageID"] = json!("msg_zzzz");
        }
        let answer = post(&rig, &format!("{session}/message"), body).await;
        wanted.push(answer["info"]["id"].clone());
    }
    let answers = |page: &Value| -> Vec<Value> {
        let answers = page.as_array().unwrap().iter().filter(|message| message["info"]["role"] == "assistant");
        answers.map(|message| message["info"]["id"].clone()).collect()
    };
    assert_eq!(answers(&rig.get(&format!("{session}/message")).await), wanted);
    let (mut found, mut query) = (Vec::new(), "limit=3".to_owned());
    loop {
        let page = rig.http.get(format!("{}{session}/message?{query}", rig.url)).send().await.unwrap();
        let next = page.headers().get("x-next-cursor").map(|cursor| cursor.to_str().unwrap().to_owned());
        found.splice(0..0, answers(&page.json().await.unwrap()));
        match next {
            Some(cursor) => query = format!("limit=3&before={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, wanted);
    // Except for the one that the client chose, ids sort in order: official clients sort by id.
    let messages = rig.get(&format!("{session}/message")).await;
    let ids = messages.as_array().unwrap().iter().map(|message| message["info"]["id"].as_str().unwrap().to_owned());
    assert!(ids.filter(|id| id != "msg_zzzz").is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_permissions_are_listed_and_removed() {
    let rig = rig().await;
    const SAVED: &str = "/api/permission/saved";
    assert_eq!(rig.get(SAVED).await, json!({"data": []}));
    let session = session(&rig, json!({})).await;
    let mut events = rig.events("/event").await;
    let call = json!(["bash", {"command": "echo asked"}]);
    let asked = start_and_wait_for(&rig, &session, &mut events, call.clone(), "permission.asked").await;
    assert_eq!((&asked["always"], &asked["directory"]), (&json!(["echo *"]), &json!(rig.project.directory())));
    let reply = format!("/permission/{}/reply", asked["id"].as_str().unwrap());
    rig.send(Method::POST, &reply, Some(json!({"reply": "always"}))).await;
    events.wait_for("session.idle").await;
    let saved = rig.get(SAVED).await["data"].clone();
    let project = rig.get("/project/current").await["id"].clone();
    let id = saved[0]["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("psv_"));
    assert_eq!(
        saved,
        json!([{ "id": id, "projectID": project, "action": "bash", "resource": "echo *",
            "directory": rig.project.directory() }])
    );
    assert_eq!(rig.get(&format!("{SAVED}?projectID={}", project.as_str().unwrap())).await["data"], saved);
    assert_eq!(rig.get(&format!("{SAVED}?projectID=nope")).await, json!({"data": []}));
    // Removing succeeds if it is gone, whoever removed it.
    for id in [id.as_str(), &id, "nope", "psv_nope"] {
        assert_eq!(rig.send(Method::DELETE, &format!("{SAVED}/{id}"), None).await, (204, Value::Null));
    }
    assert_eq!(rig.get(SAVED).await, json!({"data": []}));
    let again = start_and_wait_for(&rig, &session, &mut events, call, "permission.asked").await;
    let reply = format!("/permission/{}/reply", again["id"].as_str().unwrap());
    rig.send(Method::POST, &reply, Some(json!({"reply": "reject"}))).await;
    events.wait_for("session.idle").await;
}
