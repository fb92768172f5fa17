//! Turns as objects over HTTP.

use crate::common::{Events, Rig};
use reqwest::Method;
use serde_json::{Value, json};

async fn rig() -> Rig {
    Rig::new(json!({"model": "script/demo", "permission": {"bash": "ask"}})).await
}

async fn session(rig: &Rig) -> String {
    let (status, session) = rig.send(Method::POST, "/session", Some(json!({}))).await;
    assert_eq!(status, 200, "{session}");
    session["id"].as_str().unwrap().to_owned()
}

/// Submits a script; returns its turn.
async fn submit(rig: &Rig, session: &str, steps: Value, delivery: &str) -> String {
    let body = json!({"parts": [{"type": "text", "text": format!("SCRIPT: {steps}")}], "delivery": delivery});
    let (status, submitted) = rig.send(Method::POST, &format!("/session/{session}/turn"), Some(body)).await;
    assert_eq!(status, 200, "{submitted}");
    submitted["turnID"].as_str().unwrap().to_owned()
}

/// A turn that waits for a permission, which is the last event of the stream so far.
async fn held(rig: &Rig, events: &mut Events, session: &str) -> (String, Value) {
    let steps = json!([{"tools": [["bash", {"command": "true"}]]}, {"text": "held"}]);
    let turn = submit(rig, session, steps, "join").await;
    (turn, events.wait_for("permission.asked").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_queued_listed_waited_for_and_cancelled_one_by_one() {
    let rig = rig().await;
    let session = session(&rig).await;
    let mut events = rig.events("/event").await;
    let (running, ask) = held(&rig, &mut events, &session).await;
    let kept = submit(&rig, &session, json!([{"text": "kept"}]), "queue").await;
    let gone = submit(&rig, &session, json!([{"text": "gone"}]), "queue").await;
    let of = |turn: &str| format!("/session/{session}/turn/{turn}");
    let waiting = rig.get(&of(&running)).await;
    assert_eq!((&waiting["state"], &waiting["asks"][0]["id"]), (&json!("waiting"), &ask["properties"]["id"]));
    let (status, cancelled) = rig.send(Method::POST, &format!("{}/cancel", of(&gone)), None).await;
    assert_eq!((status, &cancelled["state"]), (200, &json!("cancelled")));
    let page = rig.get(&format!("/session/{session}/turn?ended=false&limit=1")).await;
    assert_eq!((&page["turns"][0]["id"], &page["older"]), (&json!(kept), &json!(kept)));
    let page = rig.get(&format!("/session/{session}/turn?current=true")).await;
    assert_eq!((&page["turns"][0]["id"], page["turns"].as_array().map(Vec::len)), (&json!(running), Some(1)));
    let page = rig.get(&format!("/session/{session}/turn?before={kept}")).await;
    assert_eq!((&page["turns"][0]["id"], &page["older"]), (&json!(running), &Value::Null));
    let reply = format!("/session/{session}/permissions/{}", ask["properties"]["id"].as_str().unwrap());
    assert_eq!(rig.send(Method::POST, &reply, Some(json!({"response": "once"}))).await.0, 200);
    for turn in [&running, &kept] {
        let (status, ended) = rig.send(Method::POST, &format!("{}/wait", of(turn)), None).await;
        assert_eq!((status, &ended["state"]), (200, &json!("done")), "{ended}");
        let answer = rig.get(&format!("/session/{session}/message/{}", ended["answer"].as_str().unwrap())).await;
        assert_eq!(answer["info"]["role"], "assistant");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_turn_carry_its_id_as_a_field_of_the_stream() {
    let rig = rig().await;
    let session = session(&rig).await;
    for path in ["/event", "/global/event", &format!("/session/{session}/tree/event")] {
        let mut events = rig.events(path).await;
        let turn = submit(&rig, &session, json!([{"text": "a text"}]), "join").await;
        let delta = events.wait_for("message.part.delta").await;
        assert_eq!(events.turn.as_ref(), Some(&turn), "{path}: {delta}");
        events.wait_for("session.idle").await;
        assert_eq!(events.turn.as_ref(), Some(&turn), "{path}");
        // What no turn does has none.
        let title = Some(json!({"title": path}));
        assert_eq!(rig.send(Method::PATCH, &format!("/session/{session}"), title).await.0, 200);
        while !events.wait_for("session.updated").await.to_string().contains(path) {}
        assert_eq!(events.turn, None, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_turn_is_refused() {
    let rig = rig().await;
    let (session, other) = (session(&rig).await, session(&rig).await);
    let turn = submit(&rig, &session, json!([{"text": "x"}]), "queue").await;
    let unknown = format!("{}-99", turn.rsplit_once('-').unwrap().0);
    for (path, wanted) in [
        (format!("/session/{session}/turn/{unknown}"), 404),
        (format!("/session/{other}/turn/{turn}"), 404),
        (format!("/session/{session}/turn/trn_1"), 400),
        (format!("/session/{session}/turn?limit=-1"), 400),
        (format!("/session/{session}/turn?before=x"), 400),
        (format!("/session/{other}/turn?before={turn}"), 400),
    ] {
        let (status, error) = rig.send(Method::GET, &path, None).await;
        assert_eq!(status, wanted, "{path}: {error}");
    }
    let body = json!({"parts": [], "delivery": "later"});
    let (status, error) = rig.send(Method::POST, &format!("/session/{session}/turn"), Some(body)).await;
    assert!(status == 400 && error.to_string().contains("later"), "{error}");
}
