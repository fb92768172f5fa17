//! Subagents over HTTP: the tree, its events, and operations on it.

use crate::common::{Events, Rig};
use reqwest::Method;
use serde_json::{Value, json};

/// A server whose agents ask before they run commands.
async fn rig() -> Rig {
    Rig::new(json!({"model": "script/demo", "permission": {"bash": {"*": "allow", "echo *": "ask"}}})).await
}

async fn session(rig: &Rig, body: Value) -> String {
    let (status, session) = rig.send(Method::POST, "/session", Some(body)).await;
    assert_eq!(status, 200, "{session}");
    session["id"].as_str().unwrap().to_owned()
}

fn script(steps: &Value) -> String {
    format!("SCRIPT: {steps}")
}

fn task(description: &str, steps: &Value, more: Value) -> Value {
    let mut input = json!({"description": description, "prompt": script(steps), "subagent_type": "general"});
    for (key, value) in more.as_object().unwrap() {
        input[key] = value.clone();
    }
    json!(["task", input])
}

/// A call that needs a permission, and so holds its session until the test answers.
fn gated_call(word: &str) -> Value {
    json!({"tools": [["bash", {"command": format!("echo {word}")}]]})
}

async fn prompt(rig: &Rig, session: &str, steps: Value) {
    let body = json!({"parts": [{"type": "text", "text": script(&steps)}]});
    let (status, error) = rig.send(Method::POST, &format!("/session/{session}/prompt_async"), Some(body)).await;
    assert_eq!(status, 204, "{error}");
}

async fn post(rig: &Rig, session: &str, verb: &str, body: Option<Value>) -> (u16, Value) {
    rig.send(Method::POST, &format!("/session/{session}/{verb}"), body).await
}

async fn allow(rig: &Rig, through: &str, ask: &Value) {
    let path = format!("/session/{through}/permissions/{}", ask["properties"]["id"].as_str().unwrap());
    assert_eq!(rig.send(Method::POST, &path, Some(json!({"response": "once"}))).await, (200, json!(true)));
}

async fn wait_for_idle(events: &mut Events, session: &str) {
    while events.wait_for("session.idle").await["properties"]["sessionID"] != session {}
}

/// A root with a subagent that needs a permission: the root, the subagent, the request.
async fn root_with_child(rig: &Rig, events: &mut Events) -> (String, String, Value) {
    let root = session(rig, json!({"title": "Root"})).await;
    let child = task("Look", &json!([gated_call("deep"), {"text": "Seen."}]), json!({}));
    prompt(rig, &root, json!([{"tools": [child]}, {"text": "The end."}])).await;
    let ask = events.wait_for("permission.asked").await;
    let child = ask["properties"]["sessionID"].as_str().unwrap().to_owned();
    (root, child, ask)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_shows_states_and_requests_are_answered_from_above() {
    let rig = rig().await;
    let mut events = rig.events("/event").await;
    let (root, child, ask) = root_with_child(&rig, &mut events).await;
    let tree = rig.get(&format!("/session/{root}/tree")).await;
    let [top, below] = tree["sessions"].as_array().unwrap().as_slice() else { panic!("{tree}") };
    assert_eq!((&top["sessionID"], &top["state"], &top["depth"]), (&json!(root), &json!("running"), &json!(0)));
    assert_eq!(top["tool"]["tool"], "task");
    assert_eq!((&below["sessionID"], &below["parentID"]), (&json!(child), &json!(root)));
    assert_eq!((&below["agent"], &below["state"]), (&json!("general"), &json!("asking")));
    assert_eq!((&top["asks"][0]["id"], &top["asks"][0]["sessionID"]), (&ask["properties"]["id"], &json!(child)));
    assert!(tree["cursor"].as_str().is_some(), "{tree}");
    assert_eq!(rig.get(&format!("/session/{child}/tree")).await["sessions"].as_array().unwrap().len(), 1);

    // An unrelated session cannot answer; one above can.
    let stranger = session(&rig, json!({})).await;
    let id = ask["properties"]["id"].as_str().unwrap();
    let reply = Some(json!({"response": "once"}));
    let (status, error) = rig.send(Method::POST, &format!("/session/{stranger}/permissions/{id}"), reply).await;
    assert_eq!((status, &error["_tag"]), (404, &json!("PermissionNotFoundError")));
    allow(&rig, &root, &ask).await;
    wait_for_idle(&mut events, &root).await;
    let tree = rig.get(&format!("/session/{root}/tree")).await;
    assert!(tree["sessions"].as_array().unwrap().iter().all(|node| node["state"] == "idle"), "{tree}");
    let top = &tree["sessions"][0];
    assert_eq!((&top["own"]["steps"], &top["total"]["steps"]), (&json!(2), &json!(4)));
    assert_eq!(top["total"]["toolCalls"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subtree_has_a_stream_of_its_own() {
    let rig = rig().await;
    let mut events = rig.events("/event").await;
    let (root, child, ask) = root_with_child(&rig, &mut events).await;
    let response = rig.http.get(format!("{}/session/{root}/tree/event", rig.url)).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut own = Events::new(response);
    assert_eq!(own.next().await.unwrap()["type"], "server.connected");
    let cursor = rig.get(&format!("/session/{root}/tree")).await["cursor"].as_str().unwrap().to_owned();
    // Events of another session, a child created later, and one that is created and deleted.
    let stranger = session(&rig, json!({"title": "Elsewhere"})).await;
    let born = session(&rig, json!({"parentID": child, "title": "Born"})).await;
    let short = session(&rig, json!({"parentID": root, "title": "Short"})).await;
    assert_eq!(rig.send(Method::DELETE, &format!("/session/{short}"), None).await.0, 200);
    assert_eq!(post(&rig, &stranger, "message", Some(json!({"parts": [], "noReply": true}))).await.0, 200);
    allow(&rig, &root, &ask).await;
    let mut seen: Vec<(String, String)> = Vec::new();
    let until_idle = async |stream: &mut Events, seen: &mut Vec<(String, String)>| loop {
        let event = stream.next().await.unwrap();
        let session = event["properties"]["sessionID"].as_str().unwrap_or_default().to_owned();
        let kind = event["type"].as_str().unwrap().to_owned();
        if kind.starts_with("server.") || kind == "message.part.delta" {
            continue;
        }
        let end = kind == "session.idle" && session == root;
        // The events of the subagent's tool call may come before or after the cursor.
        if seen.is_empty() && session != born {
            continue;
        }
        seen.push((kind, session));
        if end {
            return;
        }
    };
    until_idle(&mut own, &mut seen).await;
    let of = |kind: &str, session: &str| seen.contains(&(kind.to_owned(), session.to_owned()));
    assert!(seen.iter().all(|(_, session)| *session != stranger), "{seen:?}");
    assert!(of("session.created", &born) && of("session.created", &short) && of("session.deleted", &short), "{seen:?}");
    assert!(of("permission.replied", &child) && of("session.idle", &child), "{seen:?}");
    // Resumed from the same cursor, either way, it sends the same events again; of a deleted session only its deletion.
    seen.retain(|(kind, session)| *session != short || kind == "session.deleted");
    for header in [true, false] {
        let path = format!("{}/session/{root}/tree/event", rig.url);
        let request = match header {
            true => rig.http.get(path).header("last-event-id", &cursor),
            false => rig.http.get(format!("{path}?after={cursor}")),
        };
        let mut again = Vec::new();
        until_idle(&mut Events::new(request.send().await.unwrap()), &mut again).await;
        assert_eq!(again, seen);
    }
    let mut lost = Events::new(
        rig.http.get(format!("{}/session/{root}/tree/event?after=nonsense", rig.url)).send().await.unwrap(),
    );
    assert_eq!(lost.next().await.unwrap()["type"], "server.connected");
    assert_eq!(lost.next().await.unwrap()["type"], "server.resync");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_stream_reports_sessions_deleted_meanwhile() {
    let rig = rig().await;
    let root = session(&rig, json!({})).await;
    let child = session(&rig, json!({"parentID": root})).await;
    let grandchild = session(&rig, json!({"parentID": child})).await;
    let cursor = rig.get(&format!("/session/{root}/tree")).await["cursor"].as_str().unwrap().to_owned();
    // Their other events are deleted with them, but not the deletion itself.
    for id in [&grandchild, &child] {
        let renamed = rig.send(Method::PATCH, &format!("/session/{id}"), Some(json!({"title": "renamed"}))).await;
        assert_eq!(renamed.0, 200);
    }
    assert_eq!(rig.send(Method::DELETE, &format!("/session/{child}"), None).await.0, 200);
    let mut events = rig.events(&format!("/session/{root}/tree/event?after={cursor}")).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let event = events.next().await.unwrap();
        told.push((
            event["type"].as_str().unwrap().to_owned(),
            event["properties"]["sessionID"].as_str().unwrap().to_owned(),
        ));
    }
    let want = [("session.deleted", &grandchild), ("session.deleted", &child)];
    assert_eq!(told, want.map(|(kind, id)| (kind.to_owned(), id.clone())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_a_running_subagent() {
    let rig = rig().await;
    let mut events = rig.events("/event").await;
    let (root, child, ask) = root_with_child(&rig, &mut events).await;
    let (status, sent) = post(&rig, &child, "steer", Some(json!({"text": script(&json!([{"text": "Left."}]))}))).await;
    assert_eq!(status, 200, "{sent}");
    let message = sent["messageID"].as_str().unwrap();
    allow(&rig, &child, &ask).await;
    wait_for_idle(&mut events, &root).await;
    // The next step answers it, in the same turn: the parent gets that answer.
    let messages = rig.get(&format!("/session/{child}/message")).await;
    let ids: Vec<&str> = messages.as_array().unwrap().iter().map(|m| m["info"]["id"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().position(|id| *id == message), Some(ids.len() - 2), "{messages}");
    let report = rig.get(&format!("/session/{root}/message")).await.to_string();
    assert!(report.contains("Left.") && !report.contains("\nSeen."), "{report}");
    let (status, error) = post(&rig, &child, "steer", Some(json!({"text": "Too late."}))).await;
    assert_eq!((status, &error["_tag"]), (409, &json!("ConflictError")), "{error}");
    for wrong in [json!({}), json!({"parts": []})] {
        let (status, error) = post(&rig, &child, "steer", Some(wrong)).await;
        assert_eq!((status, &error["name"]), (400, &json!("BadRequest")), "{error}");
    }
    let (status, error) = post(&rig, &child, "steer", Some(json!({"text": 5}))).await;
    assert!(status == 400 && error["data"]["message"].as_str().unwrap().contains("at [\"text\"]"), "{error}");
    let (status, error) = post(&rig, &child, "steer", Some(json!({"txt": "x"}))).await;
    assert!(status == 400 && error.to_string().contains("txt"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_paused_and_resumed() {
    let rig = rig().await;
    let mut events = rig.events("/event").await;
    let (root, child, ask) = root_with_child(&rig, &mut events).await;
    assert_eq!(post(&rig, &root, "pause", None).await, (200, json!(true)));
    let told = events.wait_for("session.tree").await;
    assert_eq!((&told["properties"]["sessionID"], &told["properties"]["state"]), (&json!(root), &json!("paused")));
    assert_eq!(post(&rig, &root, "pause", None).await, (200, json!(false)));
    allow(&rig, &root, &ask).await;
    // The call ends, the step after it waits.
    let ended = |event: &Value| {
        let part = &event["properties"]["part"];
        part["sessionID"] == *child && part["state"]["status"] == "completed"
    };
    while !ended(&events.wait_for("message.part.updated").await) {}
    assert_eq!(post(&rig, &root, "resume", None).await, (200, json!(true)));
    assert_eq!(post(&rig, &root, "resume", None).await, (200, json!(false)));
    wait_for_idle(&mut events, &root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_one_subtree_and_returns_its_sessions() {
    let rig = rig().await;
    let mut events = rig.events("/event").await;
    let root = session(&rig, json!({})).await;
    let tasks = [
        task("Stopped", &json!([gated_call("one")]), json!({})),
        task("Lives", &json!([gated_call("two"), {"text": "Alive."}]), json!({})),
    ];
    prompt(&rig, &root, json!([{"tools": tasks}, {"text": "The end."}])).await;
    let mut asks = [events.wait_for("permission.asked").await, events.wait_for("permission.asked").await];
    asks.sort_by_key(|ask| !ask["properties"]["patterns"].to_string().contains("one"));
    let [stopped, lives] = asks.each_ref().map(|ask| ask["properties"]["sessionID"].as_str().unwrap());
    assert_eq!(post(&rig, stopped, "cancel", None).await, (200, json!({"sessions": [stopped]})));
    assert_eq!(post(&rig, stopped, "cancel", None).await, (200, json!({"sessions": []})));
    let states = rig.get(&format!("/session/{root}/tree")).await;
    let state = |id: &str| {
        let nodes = states["sessions"].as_array().unwrap();
        nodes.iter().find(|node| node["sessionID"] == *id).unwrap()["state"].clone()
    };
    assert_eq!((state(stopped), state(lives)), (json!("cancelled"), json!("asking")));
    allow(&rig, &root, &asks[1]).await;
    wait_for_idle(&mut events, &root).await;
    let messages = rig.get(&format!("/session/{root}/message")).await;
    assert!(messages.to_string().contains("The end."), "the parent continues: {messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_blocks_a_tree_until_it_is_raised() {
    let rig = Rig::new(json!({"model": "script/demo"})).await;
    let mut events = rig.events("/event").await;
    let root = session(&rig, json!({})).await;
    let (status, state) = post(&rig, &root, "budget", Some(json!({"steps": 2}))).await;
    assert_eq!((status, &state["limit"], &state["spent"]["steps"]), (200, &json!({"steps": 2}), &json!(0)), "{state}");
    let child = task("Count", &json!([{"text": "One."}]), json!({}));
    prompt(&rig, &root, json!([{"tools": [child]}, {"text": "The end."}])).await;
    let told = loop {
        let event = events.wait_for("session.tree").await;
        if event["properties"]["state"] == "blocked" {
            break event["properties"].clone();
        }
    };
    assert_eq!((&told["blocked"]["bound"], &told["blocked"]["sessionID"]), (&json!("steps"), &json!(root)));
    let tree = rig.get(&format!("/session/{root}/tree")).await;
    let waits = tree["sessions"].as_array().unwrap().iter().find(|node| node["state"] == "blocked").unwrap();
    assert_eq!(waits["blocked"], told["blocked"]);
    assert_eq!(tree["sessions"][0]["budget"]["limit"], json!({"steps": 2}));
    assert_eq!(post(&rig, &root, "budget", Some(json!({"steps": 9}))).await.0, 200);
    wait_for_idle(&mut events, &root).await;
    let (status, lifted) = post(&rig, &root, "budget", Some(json!({}))).await;
    assert_eq!((status, &lifted["limit"]), (200, &json!({})), "{lifted}");
    for wrong in [json!({"steps": 0}), json!({"cost": -1}), json!({"step": 1}), json!({"tokens": "many"}), json!([])] {
        let (status, error) = post(&rig, &root, "budget", Some(wrong.clone())).await;
        assert_eq!((status, &error["name"]), (400, &json!("BadRequest")), "{wrong}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subagents_move_to_the_background_and_back() {
    let rig = rig().await;
    let mut events = rig.events("/event").await;
    assert_eq!(rig.get("/experimental/capabilities").await, json!({"backgroundSubagents": true}));
    let quiet = session(&rig, json!({})).await;
    let move_to =
        async |id: &str, verb: &str| rig.send(Method::POST, &format!("/experimental/session/{id}/{verb}"), None).await;
    assert_eq!(move_to(&quiet, "background").await, (200, json!(false)));
    assert_eq!(move_to(&quiet, "foreground").await, (200, json!(false)));
    let (root, child, ask) = root_with_child(&rig, &mut events).await;
    assert_eq!(move_to(&root, "background").await, (200, json!(true)));
    wait_for_idle(&mut events, &root).await;
    let tree = rig.get(&format!("/session/{root}/tree")).await;
    let node = &tree["sessions"][1];
    assert_eq!(
        (&node["sessionID"], &node["background"], &node["state"]),
        (&json!(child), &json!(true), &json!("asking"))
    );
    assert_eq!(move_to(&root, "foreground").await, (200, json!(true)));
    allow(&rig, &root, &ask).await;
    wait_for_idle(&mut events, &root).await;
    let messages = rig.get(&format!("/session/{root}/message")).await.to_string();
    assert!(messages.contains("Seen."), "its report is in: {messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_session_is_a_404() {
    let rig = rig().await;
    let none = "ses_000000000000aaaaaaaaaaaaaa";
    for (method, path, body) in [
        (Method::GET, "/session/{}/tree", None),
        (Method::GET, "/session/{}/tree/event", None),
        (Method::POST, "/session/{}/steer", Some(json!({"text": "x"}))),
        (Method::POST, "/session/{}/pause", None),
        (Method::POST, "/session/{}/resume", None),
        (Method::POST, "/session/{}/cancel", None),
        (Method::POST, "/session/{}/budget", Some(json!({"steps": 1}))),
        (Method::POST, "/experimental/session/{}/background", None),
        (Method::POST, "/experimental/session/{}/foreground", None),
        (Method::GET, "/session/{}/worktree", None),
        (Method::POST, "/session/{}/worktree", None),
        (Method::DELETE, "/session/{}/worktree", None),
    ] {
        let (status, error) = rig.send(method.clone(), &path.replace("{}", none), body.clone()).await;
        assert_eq!((status, &error["name"]), (404, &json!("NotFoundError")), "{method} {path}: {error}");
        assert!(error["data"]["message"].as_str().unwrap().contains(none), "{method} {path}: {error}");
        let (status, error) = rig.send(method.clone(), &path.replace("{}", "nonsense"), body).await;
        assert_eq!((status, &error["data"]["kind"]), (400, &json!("Params")), "{method} {path}: {error}");
    }
}
