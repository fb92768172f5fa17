//! The service in front of an OpenCode server: its failures, and what goes on without its help.

use std::sync::Arc;
use std::time::Duration;

use api::{JsonMap, SessionId};
use client::{Client, Limits, Options, Timeouts};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{TempProject, soon};
use trefoil_a2a::service::{EventStream, Service, StreamItem};
use trefoil_a2a::{
    ArtifactId, Content, ErrorKind, Extensions, Line, Part, Reply, SendRequest, Settings, Task, TaskEvent, TaskState,
};

use crate::common::*;
use crate::fake::{FakeOpenCode, Trouble};

const PROMPT: &str = "POST /session/*/message";

/// A client that gives up soon.
fn impatient(server: &FakeOpenCode) -> Client {
    let limit = Duration::from_millis(300);
    let timeouts = Timeouts { call: limit, turn: Some(limit), ..Timeouts::default() };
    server.client_with(Options { timeouts, ..Options::default() })
}

async fn send(service: &Service, request: SendRequest) -> Task {
    match soon("the answer", service.send(&alice(), Line::V03, request)).await.unwrap() {
        Reply::Sent(task) => *task,
        other => panic!("not a task: {other:?}"),
    }
}

async fn begin(service: &Service, mut request: SendRequest) -> Task {
    request.options.return_immediately = true;
    send(service, request).await
}

async fn until(service: &Service, id: &str, what: &str, is: impl Fn(&Task) -> bool) -> Task {
    let mut events = service.subscribe(&alice(), id, None).await.unwrap();
    loop {
        let task = service.get(&alice(), id, None).await.unwrap();
        if is(&task) {
            return task;
        }
        soon(what, events.next())
            .await
            .unwrap_or_else(|| panic!("the stream ended without {what}: {task:#?}"))
            .unwrap();
    }
}

async fn until_state(service: &Service, id: &str, state: TaskState) -> Task {
    until(service, id, "the state", |task| task.status.state == state).await
}

async fn until_ended(service: &Service, id: &str) -> Task {
    until(service, id, "the end", |task| task.status.state.is_terminal()).await
}

fn session_of(task: &Task) -> String {
    task.metadata["shared"]["session"]["id"].as_str().unwrap().to_owned()
}

/// What was streamed of an answer.
fn streamed(items: &[StreamItem]) -> String {
    let text = |part: &Part| match &part.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    };
    let of = |event: TaskEvent| match event {
        TaskEvent::Artifact { id: ArtifactId::Lane(_), parts, .. } => parts.iter().filter_map(text).collect(),
        _ => String::new(),
    };
    events(items).into_iter().map(|(_, event)| of(event)).collect()
}

/// Events until the task is in a state.
async fn read_until(stream: &mut EventStream, state: TaskState) -> Vec<StreamItem> {
    let mut items = Vec::new();
    loop {
        let item = soon("an event", stream.next()).await.unwrap().unwrap();
        let is_it = matches!(&item, StreamItem::Event(event) if event.event.state() == Some(state));
        items.push(item);
        if is_it {
            return items;
        }
    }
}

/// Sends a message, and another one as a stream. Both have to end alike.
async fn fails(service: &Service, name: &str, context: Option<&str>, kind: &str, status: Option<u16>) {
    let request = |manner: &str| {
        let request = say(&format!("{name}-{manner}"), "hello");
        context.map_or(request.clone(), |context| in_context(request, context))
    };
    let mut error = json!({"type": kind});
    if let Some(status) = status {
        error["upstream_status"] = status.into();
    }
    let state = if status == Some(401) { TaskState::AuthRequired } else { TaskState::Failed };
    let task = send(service, request("sent")).await;
    assert_eq!((task.status.state, &task.metadata["opencode"]["error"]), (state, &error), "{name} {task:#?}");
    assert!(!status_text(&task).is_empty(), "{name}");
    assert_eq!(service.get(&alice(), &task.id, None).await.unwrap(), task, "{name}");

    let mut stream = service.stream(&alice(), Line::V03, request("streamed")).await.unwrap();
    let items = read_until(&mut stream, state).await;
    let Some((_, TaskEvent::Status { status, metadata, .. })) = events(&items).pop() else {
        panic!("{name} {items:#?}")
    };
    assert_eq!(metadata["opencode"]["error"], error, "{name}");
    let streamed = service.get(&alice(), stream.task_id(), None).await.unwrap();
    assert_eq!(streamed.status, status, "{name}");
    assert!(!status_text(&streamed).is_empty(), "{name}");
    if state == TaskState::Failed {
        // As recorded, a stream has the words as an artifact, too.
        let [artifact] = streamed.artifacts.as_slice() else { panic!("{name} {streamed:#?}") };
        assert_eq!(text_of(&streamed), status_text(&streamed), "{name}");
        assert!(matches!(&artifact.id, ArtifactId::Named(id) if id.ends_with(":error")), "{name}");
        assert!(soon("the end of the stream", stream.next()).await.is_none(), "{name}");
    } else {
        service.cancel(&alice(), stream.task_id()).await.unwrap();
        service.cancel(&alice(), &task.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_of_the_server_becomes_a_task() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(impatient(&server))).await;
    let first = begin(&service, say("first", "hello")).await;
    server.next_prompt().await.finish("hi");
    until_ended(&service, &first.id).await;
    let known = Some(first.context_id.as_str());
    // Its session cannot be created, or not be read; its prompt is refused.
    for (operation, context) in [("POST /session", None), ("GET /session/*", known), (PROMPT, None)] {
        for (trouble, kind, status) in [
            (Trouble::Status(400), "UPSTREAM_BAD_REQUEST", Some(400)),
            (Trouble::Status(401), "UPSTREAM_UNAUTHORIZED", Some(401)),
            (Trouble::Status(403), "UPSTREAM_PERMISSION_DENIED", Some(403)),
            (Trouble::Status(404), "UPSTREAM_RESOURCE_NOT_FOUND", Some(404)),
            (Trouble::Status(418), "UPSTREAM_CLIENT_ERROR", Some(418)),
            (Trouble::Status(429), "UPSTREAM_QUOTA_EXCEEDED", Some(429)),
            (Trouble::Status(500), "UPSTREAM_SERVER_ERROR", Some(500)),
            (Trouble::Page, "UPSTREAM_PAYLOAD_ERROR", None),
            (Trouble::Silence, "UPSTREAM_TIMEOUT", None),
        ] {
            if context.is_some() && status == Some(404) {
                // The session of the context was deleted: the context gets another one.
                continue;
            }
            server.fail(operation, trouble);
            fails(&service, &format!("{operation} {trouble:?}"), context, kind, status).await;
            server.mend();
        }
    }
    // The provider of the model.
    let task = begin(&service, say("provider", "hello")).await;
    server.next_prompt().await.fail(503);
    let task = until_ended(&service, &task.id).await;
    assert_eq!(task.metadata["opencode"]["error"], json!({"type": "UPSTREAM_SERVER_ERROR", "upstream_status": 503}));
    // A session that the message names and that is not there.
    let mut request = say("unknown", "hello");
    request.metadata.insert("shared".to_owned(), json!({"session": {"id": SessionId::new()}}));
    let task = send(&service, request).await;
    let error = json!({"type": "UPSTREAM_RESOURCE_NOT_FOUND", "upstream_status": 404});
    assert_eq!((task.status.state, &task.metadata["opencode"]["error"]), (TaskState::Failed, &error), "{task:#?}");
    assert!(!task.metadata.contains_key("shared"), "it has no session: {task:#?}");
    drop(server);
    fails(&service, "gone", None, "UPSTREAM_UNREACHABLE", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_cannot_be_had_fail_the_task_before_its_prompt() {
    let (project, server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(impatient(&server))).await;
    server.fail("GET /global/event", Trouble::Status(500));
    fails(&service, "events", None, "UPSTREAM_SERVER_ERROR", Some(500)).await;
    assert!(server.sent(PROMPT).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_limit_of_requests_fails_at_once() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let limits = Limits { requests: 1, ..Limits::default() };
    let client = server.client_with(Options { limits, ..Options::default() });
    let service = service_on(&project, Arc::new(client)).await;
    let first = begin(&service, say("first", "hello")).await;
    let turn = server.next_prompt().await;
    fails(&service, "limit", None, "UPSTREAM_BACKPRESSURE", None).await;
    turn.finish("done");
    assert_eq!(text_of(&until_ended(&service, &first.id).await), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_limit_of_streams_fails_at_once() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let settings = Settings { upstream_max_streams: 1, ..Settings::default() };
    let service = service_with(&project, Arc::new(server.client()), &settings).await;
    let first = service.stream(&alice(), Line::V03, say("m1", "hello")).await.unwrap();
    let turn = server.next_prompt().await;
    let second = service.stream(&alice(), Line::V03, say("m2", "hello")).await.unwrap();
    let id = second.task_id().to_owned();
    collect(second).await;
    let failed = service.get(&alice(), &id, None).await.unwrap();
    let error = json!({"type": "UPSTREAM_BACKPRESSURE"});
    assert_eq!((failed.status.state, &failed.metadata["opencode"]["error"]), (TaskState::Failed, &error));
    // Who only follows a task is refused.
    let refused = service.subscribe(&alice(), first.task_id(), None).await.err().unwrap();
    assert_eq!(refused.kind, ErrorKind::UpstreamUnreachable);
    turn.finish("done");
    collect(first).await;
    let third = service.stream(&alice(), Line::V03, say("m3", "hello")).await.unwrap();
    server.next_prompt().await.finish("done");
    assert_eq!(streamed(&collect(third).await), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_a_session_gets_one_once_there_are_credentials() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    server.fail("POST /session", Trouble::Status(401));
    let task = send(&service, say("m1", "hello")).await;
    assert_eq!(task.status.state, TaskState::AuthRequired);
    // Still not.
    let again = send(&service, to_task(say("m2", "now?"), &task)).await;
    assert_eq!(again.status.state, TaskState::AuthRequired);
    service.shutdown().await;
    drop(service);
    let service = service_on(&project, Arc::new(server.client())).await;
    assert_eq!(service.get(&alice(), &task.id, None).await.unwrap().status, again.status, "after a restart");
    server.mend();
    begin(&service, to_task(say("m3", "and now"), &task)).await;
    let turn = server.next_prompt().await;
    let texts: Vec<&Value> = turn.prompt["parts"].as_array().unwrap().iter().map(|part| &part["text"]).collect();
    assert_eq!(texts, ["hello", "now?", "and now"]);
    turn.finish("welcome");
    let done = until_ended(&service, &task.id).await;
    assert_eq!((done.status.state, text_of(&done).as_str()), (TaskState::Completed, "welcome"), "{done:#?}");
    // Its context goes on in the same session.
    let next = begin(&service, in_context(say("m4", "more"), &task.context_id)).await;
    server.next_prompt().await.finish("more");
    assert_eq!(session_of(&until_ended(&service, &next.id).await), session_of(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_goes_on_where_its_first_message_was_refused() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let mut request = in_context(say("m1", "hello"), "ctx");
    request.metadata.insert("opencode".to_owned(), json!({"directory": "/etc"}));
    assert_eq!(send(&service, request).await.status.state, TaskState::Failed);
    let mut sessions = Vec::new();
    for id in ["m2", "m3"] {
        let task = begin(&service, in_context(say(id, "hello"), "ctx")).await;
        server.next_prompt().await.finish("hi");
        sessions.push(session_of(&until_ended(&service, &task.id).await));
    }
    assert_eq!(sessions[0], sessions[1]);
    assert_eq!(server.sent("POST /session").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_sends_no_prompt_twice() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let one = begin(&service, say("m1", "hello")).await;
    let first = server.next_prompt().await;
    let two = begin(&service, say("m2", "hello")).await;
    let second = server.next_prompt().await;
    service.shutdown().await;
    drop(service);
    // One ends while nobody listens, the other one later.
    first.finish("one");
    let service = service_on(&project, Arc::new(server.client())).await;
    let done = until_ended(&service, &one.id).await;
    assert_eq!((done.status.state, text_of(&done).as_str()), (TaskState::Completed, "one"), "{done:#?}");
    assert_eq!(service.get(&alice(), &two.id, None).await.unwrap().status.state, TaskState::Working);
    second.finish("two");
    let done = until_ended(&service, &two.id).await;
    assert_eq!((done.status.state, text_of(&done).as_str()), (TaskState::Completed, "two"), "{done:#?}");
    assert_eq!(server.sent(PROMPT).len(), 2);
    assert!(server.is_idle());
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_are_answered_by_text_and_by_method() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let extensions = Extensions::new(service.clone());
    let task = begin(&service, say("m1", "hello")).await;
    let turn = server.next_prompt().await;
    let (_, answered) = turn.ask_permission();
    until_state(&service, &task.id, TaskState::InputRequired).await;
    begin(&service, to_task(say("m2", "once"), &task)).await;
    soon("the answer", answered).await.unwrap();
    let (request, answered) = turn.ask_question();
    until_state(&service, &task.id, TaskState::InputRequired).await;
    let params = json!({"request_id": request, "answers": [["Blue"]]});
    reply(&extensions, "a2a.interrupt.question.reply", &params).await.unwrap();
    soon("the answer", answered).await.unwrap();
    turn.finish("painted");
    let done = until_ended(&service, &task.id).await;
    assert_eq!((done.status.state, text_of(&done).as_str()), (TaskState::Completed, "painted"));
    let replies = (server.sent("POST /permission/*/reply"), server.sent("POST /question/*/reply"));
    assert_eq!(replies, (vec![json!({"reply": "once"})], vec![json!({"answers": [["Blue"]]})]));
}

async fn reply(extensions: &Extensions, method: &str, params: &Value) -> Result<Value, trefoil_a2a::Error> {
    let params: JsonMap = params.as_object().unwrap().clone();
    soon(method, extensions.call(&alice(), Line::V03, method, &params)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_server_has_forgotten_is_discarded() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let extensions = Extensions::new(service.clone());
    let task = begin(&service, say("m1", "hello")).await;
    let turn = server.next_prompt().await;
    let (request, _) = turn.ask_permission();
    until_state(&service, &task.id, TaskState::InputRequired).await;
    let listed = async || reply(&extensions, "opencode.permissions.list", &json!({})).await.unwrap()["items"].clone();
    assert_eq!(listed().await[0]["request_id"], request);
    server.forget_ask(&request);
    for _ in 0..2 {
        let params = json!({"request_id": request, "reply": "once"});
        let error = reply(&extensions, "a2a.interrupt.permission.reply", &params).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InterruptNotFound);
    }
    assert_eq!(listed().await, json!([]));
    assert_eq!(server.sent("POST /permission/*/reply").len(), 1, "what is discarded is not sent again");
    turn.finish("done");
    assert_eq!(until_ended(&service, &task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_request_is_still_answered_by_text() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let settings = Settings { interrupt_ttl: Duration::ZERO, ..Settings::default() };
    let service = service_with(&project, Arc::new(server.client()), &settings).await;
    let task = begin(&service, say("m1", "hello")).await;
    let turn = server.next_prompt().await;
    let (request, answered) = turn.ask_permission();
    until_state(&service, &task.id, TaskState::InputRequired).await;
    let params = json!({"request_id": request, "reply": "once"});
    let expired = reply(&Extensions::new(service.clone()), "a2a.interrupt.permission.reply", &params).await;
    assert_eq!(expired.unwrap_err().kind, ErrorKind::InterruptExpired);
    service.shutdown().await;
    drop(service);
    let service = service_with(&project, Arc::new(server.client()), &settings).await;
    begin(&service, to_task(say("m2", "once"), &task)).await;
    soon("the answer", answered).await.unwrap();
    turn.finish("done");
    assert_eq!(until_ended(&service, &task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_nobody_answers_is_declined_in_the_end() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let (interrupt_ttl, interrupt_tombstone_ttl) = (Duration::from_millis(50), Duration::from_millis(50));
    let settings = Settings { interrupt_ttl, interrupt_tombstone_ttl, ..Settings::default() };
    let service = service_with(&project, Arc::new(server.client()), &settings).await;
    let stream = service.stream(&alice(), Line::V03, say("m1", "hello")).await.unwrap();
    let turn = server.next_prompt().await;
    let (request, permission) = turn.ask_permission();
    soon("the refusal", permission).await.unwrap();
    let (_, question) = turn.ask_question();
    soon("the refusal", question).await.unwrap();
    turn.finish("without");
    let phases: Vec<String> = events(&collect(stream).await)
        .iter()
        .filter_map(|(_, event)| match event {
            TaskEvent::Status { metadata, .. } => metadata.get("shared")?.get("interrupt").cloned(),
            _ => None,
        })
        .map(|interrupt| format!("{} {}", interrupt["phase"], interrupt["resolution"]))
        .collect();
    assert_eq!(phases, [r#""asked" null"#, r#""resolved" "rejected""#, r#""asked" null"#, r#""resolved" "rejected""#]);
    assert_eq!(server.sent("POST /permission/*/reply"), [json!({"reply": "reject"})]);
    assert_eq!(server.sent("POST /question/*/reject").len(), 1);
    let params = json!({"request_id": request, "reply": "once"});
    let late = reply(&Extensions::new(service.clone()), "a2a.interrupt.permission.reply", &params).await;
    assert_eq!(late.unwrap_err().kind, ErrorKind::InterruptNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_time_ended_while_nobody_ran_is_asked_anew() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let settings = Settings { interrupt_ttl: Duration::ZERO, ..Settings::default() };
    let service = service_with(&project, Arc::new(server.client()), &settings).await;
    let task = begin(&service, say("m1", "hello")).await;
    let turn = server.next_prompt().await;
    let (request, answered) = turn.ask_permission();
    until_state(&service, &task.id, TaskState::InputRequired).await;
    service.shutdown().await;
    // As the store does with rows whose time is over.
    let mut change = trefoil_a2a::records::Change::of(&task.id);
    change.resolve(&request);
    service.records().commit(change).await.unwrap();
    drop(service);
    let service = service_on(&project, Arc::new(server.client())).await;
    let extensions = Extensions::new(service.clone());
    let is_listed = async || {
        let items = reply(&extensions, "opencode.permissions.list", &json!({})).await.unwrap();
        items["items"][0]["request_id"] == request
    };
    testkit::eventually("the request", is_listed).await;
    begin(&service, to_task(say("m2", "always"), &task)).await;
    soon("the answer", answered).await.unwrap();
    turn.finish("done");
    assert_eq!(until_ended(&service, &task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_working_task_joins_its_session() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let task = begin(&service, say("m1", "hello")).await;
    let turn = server.next_prompt().await;
    let steered = begin(&service, to_task(say("m2", "be quick"), &task)).await;
    assert_eq!((&steered.id, steered.history.len()), (&task.id, 2));
    let joined = server.next_prompt().await;
    assert_eq!(joined.prompt["parts"][0]["text"], "be quick");
    assert_eq!((server.sent(PROMPT).len(), server.sent("POST /session/*/prompt_async").len()), (1, 1));
    turn.finish("quickly");
    assert_eq!(text_of(&until_ended(&service, &task.id).await), "quickly");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_told_once_and_in_order_whatever_comes_first() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let stream = service.stream(&alice(), Line::V03, say("m1", "hello")).await.unwrap();
    let mut turn = server.next_prompt().await;
    let part = turn.part();
    turn.delta(&part, "one ");
    turn.delta(&part, "two ");
    turn.show(&part);
    turn.delta(&part, "three");
    // No event tells of the end.
    turn.finish("");
    let items = collect(stream).await;
    assert_eq!(streamed(&items), "one two three", "{items:#?}");
    assert_eq!(events(&items).last().unwrap().1.state(), Some(TaskState::Completed));
    assert_eq!(server.sent("GET /global/event").len(), 1);
    // Nothing but the answer tells of a turn that is fast.
    let stream = service.stream(&alice(), Line::V03, say("m2", "hello")).await.unwrap();
    server.next_prompt().await.finish("all at once");
    assert_eq!(streamed(&collect(stream).await), "all at once");
    assert_eq!(server.sent("GET /global/event").len(), 1, "all streams share one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_stream_of_all_events_has_one_for_each_directory() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::without_global_events().await);
    std::fs::create_dir(project.path().join("sub")).unwrap();
    let service = service_on(&project, Arc::new(server.client())).await;
    for (round, directory) in [None, Some("sub"), None, Some("sub")].into_iter().enumerate() {
        let mut request = say(&format!("m{round}"), "hello");
        if let Some(directory) = directory {
            request.metadata.insert("opencode".to_owned(), json!({"directory": directory}));
        }
        let mut stream = service.stream(&alice(), Line::V03, request).await.unwrap();
        let mut turn = server.next_prompt().await;
        let part = turn.part();
        turn.show(&part);
        turn.delta(&part, "live");
        // The events arrive before there is an answer.
        loop {
            let item = soon("the text", stream.next()).await.unwrap().unwrap();
            if streamed(std::slice::from_ref(&item)) == "live" {
                break;
            }
        }
        turn.finish("");
        collect(stream).await;
    }
    assert_eq!(server.sent("GET /event").len(), 2);
    assert_eq!(server.sent("GET /global/event").len(), 1, "what is not there is not asked for again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_somebody_deletes_hangs_nothing() {
    let (project, mut server) = (TempProject::new(), FakeOpenCode::start().await);
    let service = service_on(&project, Arc::new(server.client())).await;
    let done = begin(&service, say("m0", "hello")).await;
    server.next_prompt().await.finish("done");
    let done = until_ended(&service, &done.id).await;
    let task = begin(&service, say("m1", "hello")).await;
    let _turn = server.next_prompt().await;
    let waiting = begin(&service, in_context(say("m2", "later"), &task.context_id)).await;
    for task in [&done, &task] {
        server.delete_session(&session_of(task));
    }
    assert_eq!(service.get(&alice(), &done.id, None).await.unwrap(), done);
    assert_eq!(service.get(&alice(), &task.id, None).await.unwrap().status.state, TaskState::Working);
    let who = alice();
    let steer = service.send(&who, Line::V10, to_task(say("m3", "more"), &task));
    let error = soon("the error", steer).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SessionNotFound, "{error:?}");
    let canceled = soon("the cancellation", service.cancel(&alice(), &task.id)).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    // The one that waited has no session to run in.
    let failed = until_ended(&service, &waiting.id).await;
    let error = json!({"type": "UPSTREAM_RESOURCE_NOT_FOUND", "upstream_status": 404});
    assert_eq!((failed.status.state, &failed.metadata["opencode"]["error"]), (TaskState::Failed, &error));
    // The contexts go on, in new sessions.
    for before in [&done, &task] {
        let next = begin(&service, in_context(say(&format!("next-{}", before.id), "go on"), &before.context_id)).await;
        server.next_prompt().await.finish("here");
        let next = until_ended(&service, &next.id).await;
        assert_eq!(next.status.state, TaskState::Completed, "{next:#?}");
        assert_ne!(session_of(&next), session_of(before));
    }
}
