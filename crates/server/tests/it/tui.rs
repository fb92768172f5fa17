//! The remote control of a terminal client.

use crate::common::Rig;
use reqwest::Method;
use serde_json::{Value, json};

async fn post(rig: &Rig, path: &str, body: Value) -> (u16, Value) {
    rig.send(Method::POST, path, Some(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_becomes_an_event() {
    let rig = Rig::new(json!({})).await;
    let session = post(&rig, "/session", json!({})).await.1["id"].clone();
    let mut events = rig.events("/event").await;
    let mut elsewhere = rig.events("/event?directory=/tmp").await;
    let command = |name: &str| ("tui.command.execute", json!({ "command": name }));
    let toast = json!({ "title": "t", "message": "m", "variant": "warning", "duration": 10 });
    for (path, body, (kind, properties)) in [
        ("/tui/append-prompt", json!({ "text": "hi" }), ("tui.prompt.append", json!({ "text": "hi" }))),
        ("/tui/open-help", Value::Null, command("help.show")),
        ("/tui/open-sessions", Value::Null, command("session.list")),
        ("/tui/open-themes", Value::Null, command("theme.switch")),
        ("/tui/open-models", Value::Null, command("model.list")),
        ("/tui/submit-prompt", Value::Null, command("prompt.submit")),
        ("/tui/clear-prompt", Value::Null, command("prompt.clear")),
        ("/tui/execute-command", json!({ "command": "messages_first" }), command("session.first")),
        ("/tui/execute-command", json!({ "command": "agent.cycle" }), command("agent.cycle")),
        ("/tui/show-toast", toast.clone(), ("tui.toast.show", toast)),
        (
            "/tui/publish",
            json!({ "type": "tui.toast.show", "properties": { "message": "m", "variant": "error" } }),
            ("tui.toast.show", json!({ "message": "m", "variant": "error", "duration": 5000 })),
        ),
        ("/tui/publish", json!({ "type": "tui.command.execute", "properties": { "command": "any" } }), command("any")),
        (
            "/tui/select-session",
            json!({ "sessionID": session }),
            ("tui.session.select", json!({ "sessionID": session })),
        ),
    ] {
        assert_eq!(post(&rig, path, body).await, (200, json!(true)), "{path}");
        let event = events.next().await.unwrap();
        assert_eq!((&event["type"], &event["properties"]), (&json!(kind), &properties), "{path}");
    }
    assert_eq!(post(&rig, "/tui/open-help?directory=/tmp", Value::Null).await.0, 200);
    assert_eq!(elsewhere.next().await.unwrap()["type"], "tui.command.execute", "each directory has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_poll_for_the_next_request() {
    let rig = Rig::new(json!({})).await;
    post(&rig, "/tui/append-prompt", json!({ "text": "hi" })).await;
    post(&rig, "/tui/open-help", Value::Null).await;
    assert_eq!(rig.get("/tui/control/next").await, json!({ "path": "/tui/append-prompt", "body": { "text": "hi" } }));
    assert_eq!(rig.get("/tui/control/next").await, json!({ "path": "/tui/open-help", "body": null }));
    let (next, sent) = tokio::join!(rig.get("/tui/control/next"), post(&rig, "/tui/clear-prompt", Value::Null));
    assert_eq!((next["path"].as_str(), sent.0), (Some("/tui/clear-prompt"), 200));
    assert_eq!(post(&rig, "/tui/control/response", json!({ "any": "thing" })).await, (200, json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_refused() {
    let rig = Rig::new(json!({})).await;
    for (path, body, status) in [
        ("/tui/append-prompt", json!({}), 400),
        ("/tui/execute-command", json!({ "command": 1 }), 400),
        ("/tui/show-toast", json!({ "message": "m", "variant": "loud" }), 400),
        ("/tui/show-toast", json!({ "message": "m", "variant": "info", "duration": 0 }), 400),
        ("/tui/publish", json!({ "type": "session.idle", "properties": { "sessionID": "ses_x" } }), 400),
        ("/tui/select-session", json!({ "sessionID": "nope" }), 400),
        ("/tui/select-session", json!({ "sessionID": "ses_nope" }), 404),
    ] {
        let (answered, error) = post(&rig, path, body.clone()).await;
        assert_eq!(answered, status, "{path} {body}: {error}");
    }
}
