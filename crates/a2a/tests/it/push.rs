//! Push configurations and their notifications, through the service.

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use trefoil_a2a::{Error, ErrorKind, Line, PushConfig, Reply, TaskState};

use crate::common::*;

/// A webhook on this machine: its URL and what it gets.
async fn webhook() -> (String, mpsc::UnboundedReceiver<(HeaderMap, Value)>) {
    let (sender, got) = mpsc::unbounded_channel();
    let take = move |headers: HeaderMap, body: Bytes| async move {
        sender.send((headers, serde_json::from_slice(&body).unwrap())).unwrap();
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(take);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, got)
}

async fn next(got: &mut mpsc::UnboundedReceiver<(HeaderMap, Value)>) -> (HeaderMap, Value) {
    tokio::time::timeout(testkit::WAIT, got.recv()).await.unwrap().unwrap()
}

fn config(task: &str, id: Option<&str>, url: &str) -> PushConfig {
    let id = id.map(str::to_owned);
    PushConfig { task_id: task.to_owned(), id, url: url.to_owned(), ..PushConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_of_a_message_gets_everything_that_its_stream_says() {
    let lab = Lab::with(json!({}), |settings| settings.push_allow_private_hosts = true).await;
    let (url, mut got) = webhook().await;
    let mut request = play("m1", json!([{"text": "Hello there"}]));
    request.options.push = Some(PushConfig { token: Some("secret".to_owned()), ..config("", None, &url) });
    // As a client of 1.0.
    let stream = lab.service.stream(&alice(), Line::V10, request).await.unwrap();
    let id = stream.task_id().to_owned();
    let events = events(&collect(stream).await);
    let mut last = Value::Null;
    for number in 1..=events.last().unwrap().0 {
        let (headers, body) = next(&mut got).await;
        assert_eq!(headers["x-a2a-notification-token"], "secret");
        let (_, update) = body.as_object().unwrap().iter().next().unwrap();
        assert_eq!(update["taskId"], id);
        // Not all events say their number.
        if let Some(sequence) = update["metadata"]["shared"]["stream"].get("sequence") {
            assert_eq!(sequence, number);
        }
        last = update["status"]["state"].clone();
    }
    assert_eq!(last, "TASK_STATE_COMPLETED");
    let stored = lab.service.get_push(&alice(), &id, None).await.unwrap();
    assert_eq!((stored.id, stored.url), (Some(id), url));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_0_3_gets_the_task_at_its_end() {
    let lab = Lab::with(json!({}), |settings| settings.push_allow_private_hosts = true).await;
    let (url, mut got) = webhook().await;
    let mut request = play("m1", json!([{"text": "Hello there"}]));
    request.options.push = Some(config("", Some("mine"), &url));
    let Reply::Sent(task) = lab.service.send(&alice(), Line::V03, request).await.unwrap() else { panic!("no task") };
    let last = loop {
        let (_, body) = next(&mut got).await;
        assert_eq!((&body["kind"], &body["id"]), (&json!("task"), &json!(task.id)));
        if body["status"]["state"] == "completed" {
            break body;
        }
    };
    assert_eq!(last["artifacts"][0]["parts"][0]["text"], "Hello there", "{last:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_are_kept_per_task_and_seen_by_its_owner_alone() {
    let lab = Lab::with(json!({}), |settings| settings.push_allow_private_hosts = true).await;
    let task = lab.send(play("m1", json!([{"text": "Hello"}]))).await.unwrap().id;
    let service = &lab.service;
    let put = async |id| service.put_push(&alice(), Line::V10, config(&task, id, "http://127.0.0.1:9/")).await;
    assert_eq!(put(None).await.unwrap().id.as_deref(), Some(task.as_str()));
    for id in ["a", "b", "c"] {
        put(Some(id)).await.unwrap();
    }
    put(Some("b")).await.unwrap();
    let ids = |configs: Vec<PushConfig>| configs.into_iter().filter_map(|config| config.id).collect::<Vec<_>>();
    let (first, token) = service.list_push(&alice(), &task, Some(3), None).await.unwrap();
    let (rest, end) = service.list_push(&alice(), &task, Some(3), Some(&token)).await.unwrap();
    let mut all = ids(first);
    assert_eq!((all.len(), end.as_str()), (3, ""));
    all.extend(ids(rest));
    let mut expected = vec!["a", "b", "c", task.as_str()];
    expected.sort_unstable();
    assert_eq!(all, expected);
    let kind = |result: Result<(), Error>| result.unwrap_err().kind;
    let bob = bob();
    let foreign = [
        kind(service.get_push(&bob, &task, Some("a")).await.map(drop)),
        kind(service.list_push(&bob, &task, None, None).await.map(drop)),
        kind(service.delete_push(&bob, &task, Some("a")).await),
        kind(service.put_push(&bob, Line::V03, config(&task, None, "http://127.0.0.1:9/")).await.map(drop)),
        kind(service.get_push(&alice(), "missing", None).await.map(drop)),
    ];
    assert_eq!(foreign, [ErrorKind::TaskNotFound; 5]);
    service.delete_push(&alice(), &task, Some("a")).await.unwrap();
    service.delete_push(&alice(), &task, Some("a")).await.unwrap();
    assert_eq!(kind(service.get_push(&alice(), &task, Some("a")).await.map(drop)), ErrorKind::TaskNotFound);
    assert!(service.get_push(&alice(), &task, Some("b")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_refused_where_they_are_private_or_switched_off() {
    let lab = Lab::new().await;
    let mut request = play("m1", json!([{"text": "Hello"}]));
    request.options.push = Some(config("", None, "http://127.0.0.1:9/"));
    let error = lab.send(request).await.unwrap_err();
    assert_eq!((error.kind, &error.fields["field"]), (ErrorKind::InvalidParams, &json!("url")));
    let task = lab.send(play("m2", json!([{"text": "Hello"}]))).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let lab = Lab::with(json!({}), |settings| settings.push = false).await;
    let error = lab.service.get_push(&alice(), &task.id, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::PushNotSupported);
    let mut request = play("m3", json!([{"text": "Hello"}]));
    request.options.push = Some(config("", None, "https://example.org/"));
    assert_eq!(lab.send(request).await.unwrap_err().kind, ErrorKind::PushNotSupported);
}
