//! Event streams: their framing, how they resume, and how they end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::common::{Events, Rig};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::WAIT;

async fn session(rig: &Rig, title: &str) -> String {
    let (status, session) = rig.send(Method::POST, "/session", Some(json!({"title": title}))).await;
    assert_eq!(status, 200, "{session}");
    session["id"].as_str().unwrap().to_owned()
}

async fn rename(rig: &Rig, session: &str, title: &str) {
    let (status, body) = rig.send(Method::PATCH, &format!("/session/{session}"), Some(json!({"title": title}))).await;
    assert_eq!(status, 200, "{body}");
}

/// The raw text of a stream up to and including the frame that contains `wanted`.
async fn text_until(response: &mut reqwest::Response, wanted: &str) -> String {
    let mut text = String::new();
    let limit = tokio::time::Instant::now() + WAIT;
    loop {
        if let Some(at) = text.find(wanted)
            && let Some(end) = text[at..].find("\n\n")
        {
            text.truncate(at + end + 2);
            return text;
        }
        let chunk = tokio::time::timeout_at(limit, response.chunk()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("{wanted} did not come within {WAIT:?}: {text}")).unwrap();
        text.push_str(std::str::from_utf8(&chunk.unwrap_or_else(|| panic!("{wanted} never came: {text}"))).unwrap());
    }
}

/// The cursors of the frames in a text.
fn cursors(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("id: ")).collect()
}

async fn get(rig: &Rig, path: &str, last: Option<&str>) -> reqwest::Response {
    let mut request = rig.http.get(format!("{}{path}", rig.url));
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    request.send().await.unwrap()
}

#[tokio::test]
async fn frames_are_as_recorded_and_durable_ones_have_a_cursor() {
    let rig = Rig::new(json!({})).await;
    let mut response = get(&rig, "/event", None).await;
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/event-stream");
    assert_eq!(header("cache-control"), "no-cache, no-transform");
    assert_eq!(header("x-accel-buffering"), "no");
    assert_eq!(header("x-content-type-options"), "nosniff");
    let first = text_until(&mut response, "server.connected").await;
    assert!(first.starts_with("data: {\"id\":\"evt_"), "{first}");
    assert!(first.ends_with("\"type\":\"server.connected\",\"properties\":{}}\n\n"), "{first}");
    session(&rig, "a").await;
    let created = text_until(&mut response, "session.created").await;
    let lines: Vec<&str> = created.lines().collect();
    assert!(lines[0].starts_with("data: {") && lines[1].starts_with("id: "), "{created}");
    assert_eq!(lines.len(), 3, "a line of data, one with the cursor, an empty one: {created}");
}

#[tokio::test]
async fn a_resumed_stream_has_no_gaps_and_no_repeats() {
    let rig = Rig::new(json!({})).await;
    let mut response = get(&rig, "/event", None).await;
    let id = session(&rig, "first").await;
    let seen = text_until(&mut response, "session.created").await;
    let last = cursors(&seen).last().unwrap().to_string();
    drop(response);
    for title in ["second", "third", "fourth"] {
        rename(&rig, &id, title).await;
    }
    let titles = |text: &str| -> Vec<String> {
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let updated = events.filter(|event| event["type"] != "server.connected");
        updated.map(|event| event["properties"]["info"]["title"].as_str().unwrap().to_owned()).collect()
    };
    let by_header = text_until(&mut get(&rig, "/event", Some(&last)).await, "fourth").await;
    assert_eq!(titles(&by_header), ["second", "third", "fourth"]);
    let by_query = text_until(&mut get(&rig, &format!("/event?after={last}"), None).await, "fourth").await;
    assert_eq!(titles(&by_query), ["second", "third", "fourth"]);
    // From the middle of what was missed.
    let middle = cursors(&by_header)[1].to_string();
    let rest = text_until(&mut get(&rig, "/event", Some(&middle)).await, "fourth").await;
    assert_eq!(titles(&rest), ["fourth"]);
}

#[tokio::test]
async fn an_unknown_cursor_causes_a_resync() {
    let rig = Rig::new(json!({})).await;
    let id = session(&rig, "first").await;
    for unknown in ["nonsense", "1-evt_ffffffffffffAAAAAAAAAAAAAA", "999999999-evt_000000000000AAAAAAAAAAAAAA"] {
        let mut events = Events::new(get(&rig, "/event", Some(unknown)).await);
        assert_eq!(events.next().await.unwrap()["type"], "server.connected", "{unknown}");
        let resync = events.next().await.unwrap();
        assert_eq!(resync["type"], "server.resync", "{unknown}");
        assert!(resync["properties"]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{resync}");
        let disposed = events.next().await.unwrap();
        assert_eq!(disposed["type"], "server.instance.disposed", "{unknown}");
        assert_eq!(disposed["properties"]["directory"], rig.project.directory());
        rename(&rig, &id, unknown).await;
        let updated = events.wait_for("session.updated").await;
        assert_eq!(updated["properties"]["info"]["title"], unknown, "events continue");
    }
}

#[tokio::test]
async fn a_directory_gets_its_own_events_and_the_global_stream_gets_all() {
    let rig = Rig::new(json!({})).await;
    let other = rig.project.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut here = rig.events("/event").await;
    let mut all = rig.events("/global/event").await;
    let path = format!("/session?directory={}", other.display());
    let (_, made) = rig.send(Method::POST, &path, Some(json!({"title": "there"}))).await;
    let own = session(&rig, "here").await;
    let first = here.wait_for("session.created").await;
    assert_eq!(first["properties"]["sessionID"], own.as_str(), "events of the other directory are not sent");
    let event = all.wait_for("session.created").await;
    assert_eq!(event["payload"]["properties"]["sessionID"], made["id"]);
    assert_eq!(event["directory"], other.to_str().unwrap());
    assert_eq!(event["project"], made["projectID"]);
    let sync = all.next().await.unwrap();
    let body = &sync["payload"]["syncEvent"];
    assert_eq!(sync["payload"]["type"], "sync");
    assert_eq!((&body["id"], &body["type"]), (&event["payload"]["id"], &json!("session.created.1")));
    assert_eq!(body["aggregateID"], made["id"]);
    assert_eq!(body["data"], event["payload"]["properties"]);
}

#[tokio::test]
async fn a_stream_sends_heartbeats() {
    let rig = Rig::new(json!({})).await;
    let mut events = rig.events("/event").await;
    let beat = events.wait_for("server.heartbeat").await;
    assert_eq!(beat["properties"], json!({}));
}

#[tokio::test]
async fn disposing_a_directory_ends_its_stream_but_not_the_global_one() {
    let rig = Rig::new(json!({})).await;
    let mut events = rig.events("/event").await;
    let mut all = rig.events("/global/event").await;
    assert_eq!(rig.send(Method::POST, "/instance/dispose", None).await, (200, json!(true)));
    let disposed = events.wait_for("server.instance.disposed").await;
    assert_eq!(disposed["properties"]["directory"], rig.project.directory());
    assert!(events.next().await.is_none(), "the stream ends as planned");
    all.wait_for("server.instance.disposed").await;
    let id = session(&rig, "later").await;
    assert_eq!(all.wait_for("session.created").await["payload"]["properties"]["sessionID"], id.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_subscriber_is_disconnected_with_an_error_and_delays_nobody() {
    let rig = Rig::new(json!({"model": "script/demo"})).await;
    let address = rig.url.strip_prefix("http://").unwrap().to_owned();
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(format!("GET /event HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
    slow.set_read_timeout(Some(WAIT)).unwrap();
    let mut first = [0; 16];
    slow.read_exact(&mut first).unwrap();
    // More than the sockets and the queue can hold.
    let id = session(&rig, "long").await;
    let prompt = json!({"parts": [{"type": "text", "text": r#"SCRIPT: [{"chunks": 60000}]"#}]});
    let (status, answer) = rig.send(Method::POST, &format!("/session/{id}/message"), Some(prompt)).await;
    assert_eq!(status, 200);
    assert!(answer["parts"].to_string().contains("w59999"), "the turn ended");
    let read = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        let end = slow.read_to_end(&mut all);
        (end.is_err(), all.ends_with(b"0\r\n\r\n"), all.len())
    });
    let (_reset, clean, bytes) = read.await.unwrap();
    assert!(!clean, "clients do not reconnect after a clean end");
    assert!(bytes < 60_000 * 150, "it was disconnected before it had everything: {bytes} bytes");
}
