//! The service in front of a real OpenCode server: turns without names, prompts that are sent once, events of others.

use std::sync::Arc;
use std::time::Duration;

use api::{AgentRuntime, SessionId};
use client::{Client, Options};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{ModelServer, OpenCode, Reply as ModelReply, TempProject, soon};
use trefoil_a2a::service::{Service, StreamItem};
use trefoil_a2a::{Extensions, Line, Reply, SendRequest, Task, TaskEvent, TaskState};

use crate::common::*;

/// How long the server may take for its first response.
const START: Duration = Duration::from_secs(60);

/// OpenCode, its model, and a client of it.
struct Server {
    // Dropped in this order: the server before the directory in which it works.
    _server: OpenCode,
    model: ModelServer,
    project: TempProject,
    host: Arc<dyn AgentRuntime>,
}

impl Server {
    async fn start(more: &[(&str, Value)]) -> Self {
        let (project, model) = (TempProject::new(), ModelServer::start().await);
        let mut config = model.config();
        config["enabled_providers"] = json!(["test"]);
        config["share"] = "disabled".into();
        for (key, value) in more {
            config[*key] = value.clone();
        }
        model.answer_titles("A title");
        let server = OpenCode::start(&project, &config);
        let client = Client::new(&server.url(), Options::default()).unwrap();
        client.wait_until_ready(START).await.unwrap();
        Self { _server: server, model, project, host: Arc::new(client) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_run_on_opencode() {
    let Server { _server, mut model, project, host } = Server::start(&[]).await;
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

async fn begin(service: &Service, mut request: SendRequest) -> Task {
    request.options.return_immediately = true;
    match soon("the task", service.send(&alice(), Line::V10, request)).await.unwrap() {
        Reply::Sent(task) => *task,
        other => panic!("not a task: {other:?}"),
    }
}

async fn until_state(service: &Service, id: &str, state: TaskState) -> Task {
    let mut events = service.subscribe(&alice(), id, None).await.unwrap();
    loop {
        let task = service.get(&alice(), id, None).await.unwrap();
        if task.status.state == state {
            return task;
        }
        soon("the state", events.next()).await.unwrap_or_else(|| panic!("not {state:?}: {task:#?}")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_restarts_and_further_messages_work_on_opencode() {
    let asks = [("permission", json!({"bash": "ask"}))];
    let Server { _server, mut model, project, host } = Server::start(&asks).await;
    let service = service_on(&project, host.clone()).await;
    let bash = |file: &str| json!({"command": format!("touch {file}"), "description": "makes a file"});

    // One permission is given by text, the next one by method.
    let task = begin(&service, say("m1", "two files")).await;
    let mut call = soon("the first call", model.next_call()).await;
    call.tool("call_1", "bash", bash("one")).await;
    call.finish("tool_calls").await;
    until_state(&service, &task.id, TaskState::InputRequired).await;
    begin(&service, to_task(say("m2", "once"), &task)).await;
    let mut call = soon("the second call", model.next_call()).await;
    assert!(project.path().join("one").exists());
    call.tool("call_2", "bash", bash("two")).await;
    call.finish("tool_calls").await;
    let asking = until_state(&service, &task.id, TaskState::InputRequired).await;
    let request = &asking.metadata["shared"]["interrupt"]["request_id"];
    let params = json!({"request_id": request, "reply": "once"}).as_object().unwrap().clone();
    let extensions = Extensions::new(service.clone());
    extensions.call(&alice(), Line::V10, "a2a.interrupt.permission.reply", &params).await.unwrap();

    // A message to the working task joins its turn.
    let mut call = soon("the third call", model.next_call()).await;
    assert!(project.path().join("two").exists());
    begin(&service, to_task(say("m3", "say it in French"), &task)).await;
    call.text("There are two. ").await;

    // The service is restarted meanwhile. The prompt is not sent again, and the task ends with its turn.
    soon("the end of the service", service.shutdown()).await;
    drop((extensions, service));
    let service = service_on(&project, host.clone()).await;
    assert!(!service.get(&alice(), &task.id, None).await.unwrap().status.state.is_terminal());
    call.finish("stop").await;
    let mut call = soon("the call for the message that joined", model.next_call()).await;
    assert!(call.request.last_text("user").contains("French"));
    call.text("Il y en a deux.").await;
    call.finish("stop").await;
    let done = until_state(&service, &task.id, TaskState::Completed).await;
    assert!(text_of(&done).contains("Il y en a deux."), "{done:#?}");
    let session = SessionId::parse(done.metadata["shared"]["session"]["id"].as_str().unwrap()).unwrap();
    let messages = host.messages(&session, Default::default()).await.unwrap().messages;
    assert_eq!(messages.iter().filter(|message| message.info.as_user().is_some()).count(), 2, "{messages:#?}");
    soon("the end of the service", service.shutdown()).await;
}
