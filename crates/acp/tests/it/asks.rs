//! Permissions and questions.

use std::sync::{Arc, Mutex};

use api::{
    CreateSession, Host as _, ListMessages, PermissionReply, PermissionReplyKind, PromptInput, PromptPart, Scope,
    SessionId,
};
use serde_json::{Value, json};
use testkit::TempProject;

use crate::rig::{Client, Lab, Reply, prompt, script, selected};

/// A project in which edits and commands need permission, as in an editor.
fn careful() -> Lab {
    Lab::with(json!({}))
}

fn bash(command: &str) -> String {
    script(json!([{"tools": [["bash", {"command": command}]]}, {"text": "after"}]))
}

/// The permission requests that the client received.
fn asked(client: &Client) -> Vec<Value> {
    let received = client.received();
    received
        .into_iter()
        .filter(|message| message["method"] == "session/request_permission")
        .map(|m| m["params"].clone())
        .collect()
}

fn last_status(client: &Client, id: &str) -> String {
    let updates = client.updates_of_kind(id, "tool_call_update");
    updates.last().unwrap()["status"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_and_commands_need_permission_in_an_editor() {
    let lab = careful();
    lab.project.write("a.txt", "alpha\nbeta\n");
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| selected("once"));
    client.prompt(&id, &bash("echo perm && ls")).await.unwrap();
    let steps = json!([
        {"tools": [["edit", {"filePath": "a.txt", "oldString": "alpha", "newString": "omega"}]]},
        {"tools": [["write", {"filePath": "b.txt", "content": "b\n"}]]},
        {"tools": [["read", {"filePath": "/etc/hostname"}]]},
        {"text": "done"},
    ]);
    client.prompt(&id, &script(steps)).await.unwrap();
    let asked = asked(&client);
    let calls: Vec<&Value> = asked.iter().map(|request| &request["toolCall"]).collect();
    assert_eq!((&calls[0]["title"], &calls[0]["kind"]), (&json!("echo perm && ls"), &json!("execute")));
    let options: Vec<&str> =
        asked[0]["options"].as_array().unwrap().iter().map(|o| o["kind"].as_str().unwrap()).collect();
    assert_eq!(options, ["allow_once", "allow_always", "reject_once"]);
    // The names say what `always` would allow, and where.
    let directory = lab.project.directory();
    for (request, want) in [
        (&asked[0], format!("Always allow `echo *`, `ls *` in {directory}")),
        (&asked[1], format!("Always allow every `edit` in {directory}")),
        (&asked[3], format!("Always allow `external_directory` for `/etc/*` in {directory}")),
    ] {
        assert_eq!(request["options"][1]["name"], want);
    }
    let path = lab.project.path();
    let diff =
        json!([{"type": "diff", "path": path.join("a.txt"), "oldText": "alpha\nbeta\n", "newText": "omega\nbeta\n"}]);
    assert_eq!((&calls[1]["kind"], &calls[1]["content"]), (&json!("edit"), &diff));
    assert_eq!(calls[2]["content"][0]["newText"], "b\n");
    assert_eq!((&calls[3]["title"], &calls[3]["locations"][1]["path"]), (&json!("/etc"), &json!("/etc")));
    assert_eq!(calls.len(), 4);
    // Every call was shown before the permission was asked.
    let received = client.received();
    for call in calls {
        let at = |kind: &str| {
            received.iter().position(|m| match kind {
                "shown" => {
                    m["params"]["update"]["sessionUpdate"] == "tool_call"
                        && m["params"]["update"]["toolCallId"] == call["toolCallId"]
                }
                _ => m["params"]["toolCall"]["toolCallId"] == call["toolCallId"],
            })
        };
        assert!(at("shown").unwrap() < at("asked").unwrap());
    }
    assert_eq!(lab.project.read("a.txt"), "omega\nbeta\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn always_settles_later_and_open_requests() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let (one, two) = (client.session(&lab).await, client.session(&lab).await);
    let first = Arc::new(Mutex::new(true));
    client.on_request(
        move |_, _| if std::mem::take(&mut *first.lock().unwrap()) { Reply::Never } else { selected("always") },
    );
    let waits = client.start_request("session/prompt", prompt(&one, &bash("echo one"))).await;
    client
        .wait_until("the first question", |received| {
            received.iter().any(|m| m["method"] == "session/request_permission")
        })
        .await;
    client.prompt(&two, &bash("echo two")).await.unwrap();
    assert_eq!(waits.await.unwrap()["stopReason"], "end_turn");
    // The request that the other answer settled is withdrawn.
    client.wait_until("the withdrawal", |received| received.iter().any(|m| m["method"] == "$/cancel_request")).await;
    client.prompt(&one, &bash("echo three")).await.unwrap();
    assert_eq!(asked(&client).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn always_is_not_offered_if_it_allows_no_more_than_once() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| selected("always"));
    client.prompt(&id, &bash("$PROGRAM > harm")).await.unwrap();
    let asked = asked(&client);
    let bash: Vec<&Value> = asked.iter().filter(|request| request["toolCall"]["kind"] == "execute").collect();
    let options: Vec<&Value> =
        bash[0]["options"].as_array().unwrap().iter().map(|option| &option["optionId"]).collect();
    assert_eq!(options, ["once", "reject"]);
    assert!(!lab.project.path().join("harm").exists(), "what was not offered is a no");
}

#[tokio::test(flavor = "multi_thread")]
async fn anything_but_a_yes_is_a_no() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let answers: [fn() -> Reply; 7] = [
        || selected("reject"),
        || selected("never offered"),
        || Reply::Result(json!({"outcome": {"outcome": "cancelled"}})),
        || Reply::Error(json!({"code": -32000, "message": "client refused"})),
        || Reply::Result(Value::Null),
        || Reply::Result(json!({"outcome": "selected", "optionId": "once"})),
        || Reply::Result(json!([1, 2])),
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        let id = client.session(&lab).await;
        client.on_request(move |_, _| answer());
        let ended = client.prompt(&id, &bash(&format!("touch harm-{n}"))).await.unwrap();
        assert_eq!(
            (ended["stopReason"].as_str(), last_status(&client, &id).as_str()),
            (Some("end_turn"), "failed"),
            "{n}"
        );
        assert!(!lab.project.path().join(format!("harm-{n}")).exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_of_two_answers_counts() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, params| {
        let _ = params;
        let line = |option: &str| json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "selected", "optionId": option}}});
        Reply::Raw(format!("{}\n{}", line("reject"), line("once")))
    });
    client.prompt(&id, &bash("touch harm")).await.unwrap();
    assert_eq!(last_status(&client, &id), "failed");
    assert!(!lab.project.path().join("harm").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_never_answered_can_be_cancelled() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| Reply::Never);
    let answer = client.start_request("session/prompt", prompt(&id, &bash("echo x"))).await;
    client
        .wait_until("the question", |received| received.iter().any(|m| m["method"] == "session/request_permission"))
        .await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    client.wait_until("the withdrawal", |received| received.iter().any(|m| m["method"] == "$/cancel_request")).await;
    client.on_request(|_, _| selected("once"));
    assert_eq!(client.prompt(&id, &bash("echo y")).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(last_status(&client, &id), "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_else_may_answer() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| Reply::Never);
    let answer = client.start_request("session/prompt", prompt(&id, &bash("echo x"))).await;
    client
        .wait_until("the question", |received| received.iter().any(|m| m["method"] == "session/request_permission"))
        .await;
    let scope = Scope::new(lab.cwd());
    let waiting = lab.engine.permissions(&scope).await.unwrap();
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&waiting[0].id, reply).await.unwrap();
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(last_status(&client, &id), "completed");
    client.wait_until("the withdrawal", |received| received.iter().any(|m| m["method"] == "$/cancel_request")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_asks_are_asked_again_when_a_client_opens_the_session() {
    let lab = careful();
    let first = lab.client(json!({})).await;
    let id = first.session(&lab).await;
    first.on_request(|_, _| Reply::Never);
    let _answer = first.start_request("session/prompt", prompt(&id, &bash("echo x"))).await;
    first
        .wait_until("the question", |received| received.iter().any(|m| m["method"] == "session/request_permission"))
        .await;
    first.disconnect().await;
    let second = lab.client(json!({})).await;
    second.on_request(|_, _| selected("once"));
    second.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    second.wait_for_update(&id, "the end of the call", |update| update["status"] == "completed").await;
    second.wait_for_text(&id, "after").await;
}

/// A host lists the asks of one place: OpenCode those of a directory, the engine those of a project.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_ask_of_a_subagent_elsewhere_is_found_where_it_works() {
    // What is in no repository is another project.
    let (lab, elsewhere) = (careful(), TempProject::without_git());
    let first = lab.client(json!({})).await;
    let id = first.session(&lab).await;
    first.disconnect().await;
    let scope = Scope::new(elsewhere.directory());
    let parent_id = Some(SessionId::parse(&id).unwrap());
    let input = CreateSession { title: Some("elsewhere".into()), parent_id, ..CreateSession::default() };
    let child = lab.engine.create_session(&scope, input).await.unwrap().id;
    let text = bash("echo child");
    let input = PromptInput { parts: vec![PromptPart::text(&text)], ..PromptInput::default() };
    lab.engine.prompt_async(&child, input).await.unwrap();
    let asks = async |scope: &Scope| lab.engine.permissions(scope).await.unwrap().len();
    testkit::eventually("the ask", async || asks(&scope).await == 1).await;
    assert_eq!(asks(&Scope::new(lab.cwd())).await, 0, "it is not listed where its parent works");
    let second = lab.client(json!({})).await;
    second.on_request(|_, _| selected("once"));
    second.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    testkit::eventually("the answer", async || {
        let messages = lab.engine.messages(&child, ListMessages::default()).await.unwrap().messages;
        let texts = messages.iter().flat_map(|message| &message.parts).filter_map(|part| part.as_text());
        texts.into_iter().any(|part| part.text == "after")
    })
    .await;
    assert_eq!(asked(&second).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_can_allow_everything_for_a_while() {
    let lab = careful();
    let client = lab.client(json!({"session": {"configOptions": {"boolean": {}}}})).await;
    let id = client.session(&lab).await;
    let set = |on: bool| json!({"sessionId": id, "configId": "approve", "type": "boolean", "value": on});
    let options = client.request("session/set_config_option", set(true)).await.unwrap()["configOptions"].clone();
    let approve = options.as_array().unwrap().iter().find(|option| option["id"] == "approve").unwrap();
    assert_eq!((&approve["type"], &approve["currentValue"]), (&json!("boolean"), &json!(true)));
    // The client would fail the test if it was asked.
    client.prompt(&id, &bash("echo x")).await.unwrap();
    assert_eq!(last_status(&client, &id), "completed");
    client.request("session/set_config_option", set(false)).await.unwrap();
    client.on_request(|_, _| selected("reject"));
    client.prompt(&id, &bash("echo x")).await.unwrap();
    assert_eq!(last_status(&client, &id), "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_mode_edits_nothing() {
    let lab = careful();
    lab.project.write("a.txt", "alpha\n");
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.request("session/set_mode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
    let edit =
        json!([{"tools": [["edit", {"filePath": "a.txt", "oldString": "alpha", "newString": "x"}]]}, {"text": "no"}]);
    client.prompt(&id, &script(edit)).await.unwrap();
    assert_eq!(lab.project.read("a.txt"), "alpha\n");
}

fn questions() -> String {
    let options = json!([{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]);
    let questions = json!([
        {"question": "Which color?", "header": "Color", "options": options},
        {"question": "Pick many", "header": "Many", "options": options, "multiple": true},
    ]);
    script(json!([{"tools": [["question", {"questions": questions}]]}, {"text": "ok"}]))
}

fn answers_of(client: &Client, id: &str) -> Value {
    client.updates_of_kind(id, "tool_call_update").last().unwrap()["rawOutput"]["metadata"]["answers"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_a_form_for_clients_with_forms() {
    let lab = careful();
    let client = lab.client(json!({"elicitation": {"form": {}}})).await;
    let id = client.session(&lab).await;
    client.on_request(|method, params| {
        assert_eq!((method, &params["mode"]), ("elicitation/create", &json!("form")));
        assert_eq!(params["requestedSchema"]["properties"]["question_00"]["oneOf"][1]["const"], "Blue");
        let content = json!({"question_00": "Blue", "question_01": ["Red", "Blue"], "question_01_other": "Green"});
        Reply::Result(json!({"action": "accept", "content": content}))
    });
    client.prompt(&id, &questions()).await.unwrap();
    assert_eq!(answers_of(&client, &id), json!([["Blue"], ["Red", "Blue", "Green"]]));
    client.on_request(|_, _| Reply::Result(json!({"action": "decline"})));
    client.prompt(&id, &questions()).await.unwrap();
    assert_eq!(last_status(&client, &id), "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_menus_for_other_clients() {
    let lab = careful();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let choices = Arc::new(Mutex::new(vec!["end", "1", "0"]));
    client.on_request(move |method, params| {
        assert_eq!(method, "session/request_permission");
        let next = choices.lock().unwrap().pop().unwrap();
        assert!(params["options"].as_array().unwrap().iter().any(|option| option["optionId"] == next), "{params}");
        selected(next)
    });
    client.prompt(&id, &questions()).await.unwrap();
    assert_eq!(answers_of(&client, &id), json!([["Red"], ["Blue"]]));
}
