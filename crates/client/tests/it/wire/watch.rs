//! Event streams: decoding, skipped events, and broken connections.

use std::time::Duration;

use super::fake::{Fake, Kind, PendingRequest, Writer};
use api::{
    Cursor, EventBody, Frame, Host, PermissionId, PermissionReply, PermissionReplyKind, SessionId, WatchItem,
    WatchScope,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use tokio::time::timeout;
use trefoil_client::{Client, Timeouts};

type Items = BoxStream<'static, WatchItem>;

async fn watch(fake: &mut Fake, scope: WatchScope, after: Option<Cursor>) -> (Items, Writer) {
    watch_with(fake.client(), fake, scope, after).await
}

async fn watch_with(client: Client, fake: &mut Fake, scope: WatchScope, after: Option<Cursor>) -> (Items, Writer) {
    let opened = tokio::spawn(async move { client.watch(scope, after).await });
    let writer = fake.next().await.events().await;
    (opened.await.unwrap().unwrap(), writer)
}

async fn next(items: &mut Items) -> WatchItem {
    timeout(testkit::WAIT, items.next()).await.expect("an item comes").expect("a watch does not end")
}

async fn frame(items: &mut Items) -> Frame {
    match next(items).await {
        WatchItem::Frame(frame) => frame,
        other => panic!("not a frame: {other:?}"),
    }
}

async fn resync(items: &mut Items) -> String {
    match next(items).await {
        WatchItem::Resync(reason) => reason,
        other => panic!("no resync: {other:?}"),
    }
}

/// The request of the next connection. Polls the items meanwhile, as a consumer does.
async fn reconnected(fake: &mut Fake, items: &mut Items) -> PendingRequest {
    tokio::select! {
        item = next(items) => panic!("an item before the connection: {item:?}"),
        request = fake.next() => request,
    }
}

/// Expects the event for a resumed connection: nothing is missing, but the server may be another process.
async fn resumed(items: &mut Items) {
    let frame = frame(items).await;
    assert!(matches!(frame.event().unwrap().body, EventBody::ServerConnected {}), "{frame:?}");
}

fn edited(file: &str) -> Value {
    json!({"id": "evt_2", "type": "file.edited", "properties": {"file": file}})
}

fn idle(session: &str) -> Value {
    json!({"id": "evt_2", "type": "session.idle", "properties": {"sessionID": session}})
}

fn file(frame: &Frame) -> String {
    match &frame.event().unwrap().body {
        EventBody::FileEdited { file } => file.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn recorded_events_come_through() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let directory = "/a b/ü&c";
    let opened = tokio::spawn(async move { client.watch(WatchScope::Directory(directory.to_owned()), None).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /event?directory=%2Fa+b%2F%C3%BC%26c");
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    let writer = request.begin("text/event-stream");
    let recorded: Vec<Value> = testkit::recorded_events("03_prompt_text");
    let text: String = recorded.iter().map(|event| format!("data: {event}\n\n")).collect();
    // In chunks that end anywhere.
    let pieces: Vec<Vec<u8>> = text.as_bytes().chunks(997).map(<[u8]>::to_vec).collect();
    let written = tokio::spawn(async move {
        for piece in pieces {
            writer.write(piece).await;
        }
        writer
    });
    let mut items = opened.await.unwrap().unwrap();
    let wanted: Vec<&Value> = recorded
        .iter()
        .filter(|event| !matches!(event["type"].as_str(), Some("server.connected" | "server.heartbeat")))
        .collect();
    for event in wanted {
        let frame = frame(&mut items).await;
        assert_eq!(&serde_json::from_slice::<Value>(frame.json()).unwrap(), event);
        assert_eq!((&*frame.directory, frame.cursor.as_ref()), (directory, None));
        assert_eq!(frame.session.as_ref().map(SessionId::as_str), event["properties"]["sessionID"].as_str());
    }
    drop(written.await.unwrap());
}

#[tokio::test]
async fn a_global_stream_is_unpacked_and_sync_copies_are_skipped() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let (mut items, writer) = watch(&mut fake, WatchScope::All, None).await;
    let sync = json!({"type": "sync", "syncEvent": {"id": "evt_2", "type": "session.idle.1", "seq": 1, "data": {}}});
    for payload in [edited("one"), sync, json!({"id": "evt_3", "type": "server.heartbeat", "properties": {}})] {
        writer.event(None, &payload).await;
    }
    writer.write(": a comment\n\ndata: not even JSON\n\n").await;
    writer.event(None, &edited("two")).await;
    let one = frame(&mut items).await;
    assert_eq!((&*one.directory, &*one.project, file(&one).as_str()), ("/p", "prj", "one"));
    assert_eq!(file(&frame(&mut items).await), "two");
    // A consumer ends the stream by dropping it.
    drop(items);
    writer.closed().await;
}

#[tokio::test]
async fn events_tell_the_directories_of_sessions_and_requests() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let (mut items, writer) = watch_with(client.clone(), &mut fake, WatchScope::All, None).await;
    let info = json!({"id": "ses_new", "slug": "a", "projectID": "prj", "directory": "/w", "title": "t",
        "version": "1", "time": {"created": 1, "updated": 1}});
    let asked = json!({"id": "per_a", "sessionID": "ses_new", "permission": "bash", "patterns": ["ls"],
        "always": [], "metadata": {}});
    for payload in [
        json!({"id": "evt_2", "type": "session.created", "properties": {"sessionID": "ses_new", "info": info}}),
        json!({"id": "evt_3", "type": "permission.asked", "properties": asked}),
    ] {
        writer.event(None, &payload).await;
        frame(&mut items).await;
    }
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.todo(&SessionId::parse("ses_new").unwrap()).await }
    });
    let request = fake.next().await;
    let directory = request.header("x-opencode-directory");
    assert_eq!((request.line().as_str(), directory), ("GET /session/ses_new/todo", Some("/w")));
    request.json(200, &json!([]));
    call.await.unwrap().unwrap();
    let call = tokio::spawn(async move {
        let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
        client.reply_permission(&PermissionId::parse("per_a").unwrap(), reply).await
    });
    let request = fake.next().await;
    let directory = request.header("x-opencode-directory");
    assert_eq!((request.line().as_str(), directory), ("POST /permission/per_a/reply", Some("/p")));
    request.json(200, &json!(true));
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_session_gets_its_own_events_only() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let (mut items, writer) = watch(&mut fake, WatchScope::Session(SessionId::parse("ses_a").unwrap()), None).await;
    for payload in [idle("ses_b"), edited("x"), idle("ses_a")] {
        writer.event(None, &payload).await;
    }
    assert_eq!(frame(&mut items).await.session.unwrap().as_str(), "ses_a");
}

#[tokio::test]
async fn trefoil_resumes_after_the_last_event() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let (mut items, writer) = watch(&mut fake, WatchScope::All, None).await;
    writer.event(Some("7-evt_7"), &edited("one")).await;
    assert_eq!(frame(&mut items).await.cursor.unwrap().to_string(), "7-evt_7");
    // A delta has no cursor.
    writer.event(None, &edited("two")).await;
    assert_eq!(frame(&mut items).await.cursor, None);
    writer.cut().await;
    let again = reconnected(&mut fake, &mut items).await;
    assert_eq!(again.header("last-event-id"), Some("7-evt_7"));
    let writer = again.events().await;
    writer.event(Some("8-evt_8"), &edited("three")).await;
    resumed(&mut items).await;
    assert_eq!(file(&frame(&mut items).await), "three");
}

#[tokio::test]
async fn trefoil_reports_when_it_cannot_resume() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let after: Cursor = "3-evt_3".parse().unwrap();
    let client = fake.client();
    let opened = tokio::spawn(async move { client.watch(WatchScope::All, Some(after)).await });
    let request = fake.next().await;
    assert_eq!(request.header("last-event-id"), Some("3-evt_3"));
    let writer = request.events().await;
    let mut items = opened.await.unwrap().unwrap();
    let reason = "the log was pruned";
    writer.event(None, &json!({"id": "evt_1", "type": "server.resync", "properties": {"reason": reason}})).await;
    let disposed = json!({"id": "evt_1", "type": "server.instance.disposed", "properties": {"directory": "/p"}});
    writer.event(None, &disposed).await;
    writer.event(Some("9-evt_9"), &edited("one")).await;
    writer.event(None, &disposed).await;
    assert_eq!(resync(&mut items).await, reason);
    assert_eq!(file(&frame(&mut items).await), "one");
    // Only the one that belongs to the resync is skipped.
    assert!(matches!(frame(&mut items).await.event().unwrap().body, EventBody::InstanceDisposed { .. }));
}

#[tokio::test]
async fn without_a_cursor_a_new_connection_is_a_gap() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let (mut items, writer) = watch(&mut fake, WatchScope::All, Some("3-evt_3".parse().unwrap())).await;
    assert!(resync(&mut items).await.contains("does not keep past events"));
    writer.event(None, &edited("one")).await;
    assert_eq!(file(&frame(&mut items).await), "one");
    drop(writer);
    // A failed attempt is followed by another.
    reconnected(&mut fake, &mut items).await.json(500, &json!({}));
    let again = reconnected(&mut fake, &mut items).await;
    assert_eq!(again.header("last-event-id"), None);
    let writer = again.events().await;
    assert!(resync(&mut items).await.contains("events may be missing"));
    writer.event(None, &edited("two")).await;
    assert_eq!(file(&frame(&mut items).await), "two");
}

#[tokio::test]
async fn a_silent_stream_is_reconnected() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let timeouts = Timeouts { stream_silence: Duration::from_secs(3), ..Timeouts::default() };
    let (mut items, writer) = watch_with(fake.client_with(timeouts), &mut fake, WatchScope::All, None).await;
    writer.event(Some("7-evt_7"), &edited("one")).await;
    frame(&mut items).await;
    let again = reconnected(&mut fake, &mut items).await;
    writer.closed().await;
    again.events().await.event(Some("8-evt_8"), &edited("two")).await;
    resumed(&mut items).await;
    assert_eq!(file(&frame(&mut items).await), "two");
}

#[tokio::test]
async fn an_endless_event_is_not_requested_again() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let (mut items, writer) = watch(&mut fake, WatchScope::All, None).await;
    writer.event(Some("7-evt_7"), &edited("one")).await;
    frame(&mut items).await;
    let endless = tokio::spawn(async move {
        let block = vec![b'x'; 1 << 20];
        writer.write("data: ").await;
        while writer.0.send(Ok(block.clone().into())).await.is_ok() {}
    });
    let again = reconnected(&mut fake, &mut items).await;
    endless.await.unwrap();
    // With the cursor, the same event would come again.
    assert_eq!(again.header("last-event-id"), None);
    let _writer = again.events().await;
    resync(&mut items).await;
}

#[tokio::test]
async fn the_first_connection_must_work() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let opened = tokio::spawn(async move { client.watch(WatchScope::All, None).await.err().unwrap().to_string() });
    fake.next().await.respond(200, "text/html", "<html>");
    let error = opened.await.unwrap();
    assert!(error.contains("instead of an event stream") && error.contains("/global/event"), "{error}");
}

#[tokio::test]
async fn listeners_receive_events_of_a_server() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let opened = tokio::spawn(async move { client.events(WatchScope::All).await });
    let writer = fake.next().await.events().await;
    let events = opened.await.unwrap().unwrap();
    let (once, mut edits) = (events.once("session.idle"), events.on("file.edited"));
    for payload in [edited("one"), idle("ses_a"), edited("two")] {
        writer.event(None, &payload).await;
    }
    assert_eq!(once.await.unwrap().body.session_id().unwrap().as_str(), "ses_a");
    assert_eq!(file(&frame(&mut edits).await), "one");
    assert_eq!(file(&frame(&mut edits).await), "two");
    drop((events, edits));
    writer.closed().await;
}
