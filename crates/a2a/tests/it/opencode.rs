//! The service in front of a real OpenCode server: turns without names, prompts that are sent once, events of others.

use std::sync::Arc;
use std::time::Duration;

use api::AgentRuntime;
use client::{Client, Options};
use futures::StreamExt as _;
use serde_json::json;
use testkit::{ModelServer, OpenCode, Reply as ModelReply, TempProject, soon};
use trefoil_a2a::service::StreamItem;
use trefoil_a2a::{Line, Reply, TaskEvent, TaskState};

use crate::common::*;

/// How long the server may take for its first response.
const START: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn tasks_run_on_opencode() {
    let (project, mut model) = (TempProject::new(), ModelServer::start().await);
    let mut config = model.config();
    config["enabled_providers"] = json!(["test"]);
    config["share"] = "disabled".into();
    model.answer_titles("A title");
    let server = OpenCode::start(&project, &config);
    let client = Client::new(&server.url(), Options::default()).unwrap();
    client.wait_until_ready(START).await.unwrap();
    let host: Arc<dyn AgentRuntime> = Arc::new(client);
    let service = service_on(&project, host.clone()).await;

    // One that is answered.
    model.enqueue(ModelReply::text("Hello from OpenCode"));
    let sent = soon("the answer", service.send(&alice(), Line::V03, say("m1", "hello"))).await.unwrap();
    let Reply::Sent(task) = sent else { panic!("{sent:?}") };
    assert_eq!(
        (task.status.state, text_of(&task).as_str()),
        (TaskState::Completed, "Hello from OpenCode"),
        "{task:#?}"
    );
    assert!(task.metadata["shared"]["usage"].is_object());

    // One that streams, in the same session.
    model.enqueue(ModelReply::text("one ").and_text("two"));
    let stream = service.stream(&alice(), Line::V03, in_context(say("m2", "more"), &task.context_id)).await.unwrap();
    let id = stream.task_id().to_owned();
    let items = collect(stream).await;
    let streamed: String = events(&items)
        .iter()
        .filter_map(|(_, event)| match event {
            TaskEvent::Artifact { parts, .. } => Some(serde_json::to_value(&parts[0].content).unwrap()),
            _ => None,
        })
        .map(|content| content["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(streamed, "one two");
    let second = service.get(&alice(), &id, None).await.unwrap();
    assert_eq!(second.status.state, TaskState::Completed, "{second:#?}");
    assert_eq!(second.metadata["shared"]["session"]["id"], task.metadata["shared"]["session"]["id"]);

    // One that is cancelled while the model writes.
    let mut stream = service.stream(&alice(), Line::V03, say("m3", "long")).await.unwrap();
    let mut call = soon("the call of the model", model.next_call()).await;
    call.text("partial").await;
    while let Some(item) = soon("the text", stream.next()).await {
        if matches!(item.unwrap(), StreamItem::Event(event) if matches!(event.event, TaskEvent::Artifact { .. })) {
            break;
        }
    }
    let cancelled = soon("the cancellation", service.cancel(&alice(), stream.task_id())).await.unwrap();
    assert_eq!(cancelled.status.state, TaskState::Canceled);
    soon("the end of the call", call.closed()).await;
    let items = collect(stream).await;
    assert_eq!(events(&items).last().unwrap().1.state(), Some(TaskState::Canceled));
    soon("the end of the service", service.shutdown()).await;
}
