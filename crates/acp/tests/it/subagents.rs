//! Subagents, for clients that show them and for those that do not.

use serde_json::{Value, json};

use crate::rig::{Lab, Reply, prompt, script, selected};

fn task(child: Value) -> String {
    let input = json!({"description": "Look around", "prompt": script(child), "subagent_type": "general"});
    script(json!([{"text": "Delegating. ", "tools": [["task", input]]}, {"text": "Parent done"}]))
}

fn child_of(received: &[Value]) -> Option<String> {
    let update = received.iter().find(|m| m["params"]["update"]["sessionUpdate"] == "subagent_update")?;
    Some(update["params"]["update"]["sessionId"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capable_client_sees_them_as_sessions() {
    let lab = Lab::new();
    lab.project.write("hello.txt", "hello world\n");
    let client = lab.client(json!({"subagents": {}})).await;
    let id = client.session(&lab).await;
    let work =
        json!([{"text": "Reading. ", "tools": [["read", {"filePath": "hello.txt"}]]}, {"text": "Subagent answer"}]);
    assert_eq!(client.prompt(&id, &task(work)).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.text(&id), "Delegating. Parent done");
    let received = client.received();
    let child = child_of(&received).unwrap();
    // It is announced on its parent before any of its updates.
    let announced = received.iter().position(|m| m["params"]["update"]["sessionUpdate"] == "subagent_update").unwrap();
    let traffic = received.iter().position(|m| m["params"]["sessionId"] == *child).unwrap();
    assert!(received[announced]["params"]["sessionId"] == *id && announced < traffic);
    let announcement = &received[announced]["params"]["update"];
    assert_eq!(announcement["title"], "Look around (@general subagent)");
    assert_eq!(announcement["cwd"], lab.cwd());
    assert!(announcement["capabilities"]["cancel"].is_object());
    assert_eq!(client.text(&child), "Reading. Subagent answer");
    assert_eq!(client.updates_of_kind(&child, "tool_call")[0]["name"], "read");
    let states: Vec<Value> = client
        .updates_of_kind(&id, "subagent_update")
        .iter()
        .map(|update| update["state"]["state"].clone())
        .filter(|s| !s.is_null())
        .collect();
    assert_eq!((states.first(), states.last()), (Some(&json!("running")), Some(&json!("idle"))));
    // A client that loads the session later sees the same.
    let other = lab.client(json!({"subagents": {}})).await;
    other.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!((other.text(&id), other.text(&child)), (client.text(&id), client.text(&child)));
    assert_eq!(other.updates_of_kind(&id, "subagent_update").last().unwrap()["state"]["state"], "idle");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_announcement_says_whether_one_can_be_cancelled_alone() {
    let lab = Lab::new();
    let client = lab.client(json!({"subagents": {}})).await;
    let id = client.session(&lab).await;
    for cancel in [false, true] {
        // As the engine creates those of other agents.
        let metadata = json!({"elsewhere": {"cancel": cancel}}).as_object().cloned();
        let parent_id = Some(api::SessionId::parse(&id).unwrap());
        let input = api::CreateSession { parent_id, metadata, ..api::CreateSession::default() };
        let made = api::Host::create_session(&lab.engine, &api::Scope::new(lab.cwd()), input).await.unwrap();
        let told = |received: &[Value]| received.iter().any(|m| m["params"]["update"]["sessionId"] == made.id.as_str());
        client.wait_until("its announcement", told).await;
        let announced = client.updates_of_kind(&id, "subagent_update").pop().unwrap();
        assert_eq!(announced["capabilities"]["cancel"].is_object(), cancel, "{announced}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn their_questions_reach_the_editor() {
    let lab = Lab::with(json!({}));
    let client = lab.client(json!({"subagents": {}})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| selected("once"));
    let work = json!([{"tools": [["bash", {"command": "echo child"}]]}, {"text": "child done"}]);
    client.prompt(&id, &task(work)).await.unwrap();
    let received = client.received();
    let child = child_of(&received).unwrap();
    let asked = received.iter().find(|m| m["method"] == "session/request_permission").unwrap();
    assert_eq!(asked["params"]["sessionId"], json!(child));
    let states: Vec<Value> =
        client.updates_of_kind(&id, "subagent_update").iter().map(|u| u["state"]["state"].clone()).collect();
    assert!(states.contains(&json!("requires_action")), "{states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_them_can_be_cancelled_alone() {
    let lab = Lab::new();
    let client = lab.client(json!({"subagents": {}})).await;
    let id = client.session(&lab).await;
    let work = json!([{"text": "At work", "hold": lab.project.path().join("never")}]);
    let answer = client.start_request("session/prompt", prompt(&id, &task(work))).await;
    client
        .wait_until("the subagent's text", |received| {
            child_of(received).is_some_and(|child| {
                received.iter().any(|m| {
                    m["params"]["sessionId"] == *child
                        && m["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
                })
            })
        })
        .await;
    let child = child_of(&client.received()).unwrap();
    client.notify("session/cancel", json!({"sessionId": child})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    assert!(client.text(&id).contains("Parent done"));
    let last = client.updates_of_kind(&id, "subagent_update").pop().unwrap();
    assert_eq!((&last["state"]["state"], &last["state"]["stopReason"]), (&json!("idle"), &json!("cancelled")));
}

#[tokio::test(flavor = "multi_thread")]
async fn for_other_clients_the_task_call_shows_their_progress() {
    let lab = Lab::new();
    lab.project.write("hello.txt", "hello world\n");
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let gate = |name: &str| lab.project.path().join(name);
    let work = json!([
        {"text": "Reading. ", "hold": gate("read"), "tools": [["read", {"filePath": "hello.txt"}]]},
        {"text": "Subagent answer", "after": gate("answer")},
    ]);
    let answer = client.start_request("session/prompt", prompt(&id, &task(work))).await;
    for (shown, next) in [("Reading", "read"), ("● read  hello.txt", "answer")] {
        let shows = |update: &Value| {
            let text = update["content"][0]["content"]["text"].as_str();
            update["status"] == "in_progress" && text.is_some_and(|text| text.contains(shown))
        };
        client.wait_for_update(&id, shown, shows).await;
        lab.project.write(next, "");
    }
    answer.await.unwrap();
    // Nothing is sent for the child's session, and the parent's is complete.
    assert!(client.received().iter().all(|m| m["params"]["sessionId"].is_null() || m["params"]["sessionId"] == *id));
    assert_eq!(client.text(&id), "Delegating. Parent done");
    let updates = client.updates_of_kind(&id, "tool_call_update");
    let progress: Vec<&Value> = updates.iter().filter(|update| update["status"] == "in_progress").collect();
    assert!(progress.iter().all(|update| update["kind"] == "think"));
    let texts: Vec<&str> =
        progress.iter().filter_map(|update| update["content"][0]["content"]["text"].as_str()).collect();
    assert!(texts.iter().any(|text| text.contains("Reading")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("● read  hello.txt")), "{texts:?}");
    let running = progress.iter().find(|update| update["rawOutput"]["metadata"]["sessionId"].is_string()).unwrap();
    let done = updates.last().unwrap();
    assert_eq!(done["rawInput"]["subagent_type"], "general");
    let metadata = &done["rawOutput"]["metadata"];
    assert_eq!(metadata["sessionId"], running["rawOutput"]["metadata"]["sessionId"]);
    assert_eq!((&metadata["summary"][0]["tool"], &metadata["parentSessionId"]), (&json!("read"), &json!(id)));
    assert!(done["rawOutput"]["output"].as_str().unwrap().contains("<task_metadata>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn for_other_clients_their_questions_are_asked_on_the_root_session() {
    let lab = Lab::with(json!({}));
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| selected("once"));
    let work = json!([{"tools": [["bash", {"command": "echo child"}]]}, {"text": "child done"}]);
    client.prompt(&id, &task(work)).await.unwrap();
    let received = client.received();
    let asked = &received.iter().find(|m| m["method"] == "session/request_permission").unwrap()["params"];
    assert_eq!((&asked["sessionId"], &asked["toolCall"]["title"]), (&json!(id), &json!("general: echo child")));
    // Both the call and its end are shown there.
    let of = |update: &&Value| update["toolCallId"] == asked["toolCall"]["toolCallId"];
    let updates = client.updates(&id);
    let shown: Vec<&Value> = updates.iter().filter(of).collect();
    assert_eq!(shown[0]["sessionUpdate"], "tool_call");
    assert_eq!(shown.last().unwrap()["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_ends_a_question_that_nobody_answers() {
    let lab = Lab::with(json!({}));
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.on_request(|_, _| Reply::Never);
    let work = json!([{"tools": [["bash", {"command": "echo child"}]]}, {"text": "child done"}]);
    let answer = client.start_request("session/prompt", prompt(&id, &task(work))).await;
    client
        .wait_until("the question", |received| received.iter().any(|m| m["method"] == "session/request_permission"))
        .await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
}
