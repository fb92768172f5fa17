//! Tasks: from a message to an end.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use testkit::soon;
use trefoil_a2a::service::{EventStream, StreamItem};
use trefoil_a2a::{ArtifactId, ErrorKind, Lane, Line, Reply, TaskEvent, TaskState};

use crate::common::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_by_a_completed_task() {
    let lab = Lab::new().await;
    let task = lab.send(play("m1", json!([{"text": "Hello there"}]))).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{task:#?}");
    assert_eq!(text_of(&task), "Hello there");
    assert_eq!(status_text(&task), "Hello there");
    assert_eq!(task.history.len(), 1);
    assert!(task.metadata["shared"]["usage"]["total_tokens"].is_u64(), "{:?}", task.metadata);
    assert!(task.metadata["shared"]["session"]["id"].as_str().unwrap().starts_with("ses_"));
    assert_eq!(lab.get(&task.id).await, task);
    // To everybody else it does not exist.
    let error = lab.service.get(&bob(), &task.id, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TaskNotFound);
    let error = lab.service.cancel(&bob(), &task.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TaskNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_the_turn_in_numbered_events() {
    let lab = Lab::new().await;
    lab.project.write("a.txt", "content");
    let steps = json!([
        {"reasoning": "thinking", "text": "Looking. ", "tools": [["read", {"filePath": "a.txt"}]]},
        {"text": "Found it."},
    ]);
    let stream = lab.stream(play("m1", steps)).await;
    let id = stream.task_id().to_owned();
    let items = collect(stream).await;
    let events = events(&items);
    assert_eq!(events.len(), items.len(), "0.3 begins with an event");
    let numbers: Vec<u64> = events.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events[0].1.state(), Some(TaskState::Working));
    let (_, last) = events.last().unwrap();
    assert_eq!(last.state(), Some(TaskState::Completed));
    let TaskEvent::Status { metadata, .. } = last else { panic!("{last:?}") };
    assert!(metadata["shared"]["usage"]["input_tokens"].is_u64());
    let progress = |kind: &str| {
        let is = |event: &TaskEvent| {
            matches!(event, TaskEvent::Status { metadata, .. } if metadata.get("shared")
                .is_some_and(|shared| shared["progress"]["type"] == kind))
        };
        events.iter().filter(|(_, event)| is(event)).count()
    };
    assert_eq!((progress("step-start"), progress("step-finish")), (2, 2));
    let task = lab.get(&id).await;
    let lane = |wanted: &dyn Fn(&Lane) -> bool| {
        task.artifacts.iter().find(|it| matches!(&it.id, ArtifactId::Lane(lane) if wanted(lane))).unwrap()
    };
    // The texts of two messages are two parts.
    assert_eq!(lane(&|lane| *lane == Lane::Text).parts.len(), 2);
    assert_eq!(lane(&|lane| *lane == Lane::Reasoning).parts.len(), 1);
    let tool = serde_json::to_value(&lane(&|lane| matches!(lane, Lane::Tool(_))).parts[0]).unwrap();
    assert_eq!(tool["content"]["data"]["status"], "completed", "{tool}");

    // Whoever comes later gets the same events.
    let resumed = lab.service.subscribe(&alice(), &id, Some(3)).await.unwrap();
    let resumed = collect(resumed).await;
    assert_eq!(self::events(&resumed), events[3..].to_vec());
    let ended = lab.service.subscribe(&alice(), &id, None).await.unwrap();
    assert!(ended.is_over());
    assert!(matches!(collect(ended).await.as_slice(), [StreamItem::Snapshot(ended)] if **ended == task));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_streams_of_a_task_get_the_same_events() {
    let lab = Lab::new().await;
    let gate = lab.gate("go");
    let first = lab.stream(play("m1", json!([{"chunks": 40, "hold": gate}]))).await;
    let id = first.task_id().to_owned();
    let late = soon("a stream of 1.0", lab.service.subscribe(&alice(), &id, None)).await.unwrap();
    let from = late.snapshot_seq().unwrap();
    lab.open(&gate);
    let (first, late) = tokio::join!(collect(first), collect(late));
    assert!(matches!(late[0], StreamItem::Snapshot(_)));
    let first = events(&first);
    assert_eq!(events(&late), first[usize::try_from(from).unwrap()..].to_vec());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_message_is_one_task() {
    let lab = Lab::new().await;
    let request = || play("same", json!([{"text": "once"}]));
    let (one, two, three) = tokio::join!(lab.send(request()), lab.send(request()), lab.send(request()));
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    assert_eq!((&one.id, &one.id), (&two.id, &three.id));
    assert_eq!(lab.send(request()).await.unwrap(), one);
    let sessions = lab.service.host().sessions(&api::Scope::new(lab.project.directory()), Default::default()).await;
    assert_eq!(sessions.unwrap().len(), 1);
    let error = lab.send(play("same", json!([{"text": "other"}]))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidParams);
    // Somebody else's message with that id is another one.
    let other = lab.service.send(&bob(), Line::V10, request()).await.unwrap();
    assert!(matches!(other, Reply::Sent(task) if task.id != one.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_context_queue_and_can_be_cancelled_alone() {
    let lab = Lab::new().await;
    let gate = lab.gate("go");
    let first = lab.begin(play("m1", json!([{"text": "one", "hold": gate}]))).await;
    let context = first.context_id.clone();
    let second = lab.begin(in_context(play("m2", json!([{"text": "two"}])), &context)).await;
    let third = lab.begin(in_context(play("m3", json!([{"text": "three"}])), &context)).await;
    assert_eq!(second.status.state, TaskState::Submitted);
    assert_eq!(second.metadata["shared"]["session"]["id"], first.metadata["shared"]["session"]["id"]);
    let second = lab.service.cancel(&alice(), &second.id).await.unwrap();
    assert_eq!(second.status.state, TaskState::Canceled);
    assert_eq!(lab.get(&first.id).await.status.state, TaskState::Working);
    assert_eq!(lab.get(&third.id).await.status.state, TaskState::Submitted);
    lab.open(&gate);
    for (task, text) in [(&first, "one"), (&third, "three")] {
        let task = lab.until(&task.id, "its end", |task| task.status.state.is_terminal()).await;
        assert_eq!((task.status.state, text_of(&task).as_str()), (TaskState::Completed, text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_working_task_steers_it() {
    let lab = Lab::new().await;
    let gate = lab.gate("go");
    let steps = json!([
        {"text": "one ", "hold": gate, "tools": [["bash", {"command": "true", "description": "nothing"}]]},
        {"text": "two"},
    ]);
    let stream = lab.stream(play("m1", steps)).await;
    let task = lab.get(stream.task_id()).await;
    let mut stream = stream;
    // Once it has begun to write, its turn runs.
    until_text(&mut stream).await;
    let mut follow_up = to_task(say("m2", "and be quick"), &task);
    follow_up.options.return_immediately = true;
    let steered = lab.send(follow_up.clone()).await.unwrap();
    assert_eq!(steered.id, task.id);
    assert_eq!(steered.history.len(), 2);
    // The same message again is no other one.
    assert_eq!(lab.send(follow_up).await.unwrap().history.len(), 2);
    lab.open(&gate);
    drop(collect(stream).await);
    let task = lab.get(&task.id).await;
    assert_eq!(task.status.state, TaskState::Completed);
    let session = api::SessionId::parse(task.metadata["shared"]["session"]["id"].as_str().unwrap()).unwrap();
    let messages = lab.service.host().messages(&session, Default::default()).await.unwrap().messages;
    assert_eq!(messages.iter().filter(|message| message.info.as_user().is_some()).count(), 2);
    for line in Line::ALL {
        let again = to_task(say("m3", "more"), &task);
        let error = lab.service.send(&alice(), line, again).await.unwrap_err();
        let kind = if line == Line::V03 { ErrorKind::InvalidParams } else { ErrorKind::UnsupportedOperation };
        assert_eq!(error.kind, kind);
    }
}

async fn until_text(stream: &mut EventStream) {
    while let Some(item) = soon("the first text", stream.next()).await {
        if let StreamItem::Event(event) = item.unwrap()
            && matches!(event.event, TaskEvent::Artifact { .. })
        {
            return;
        }
    }
    panic!("the stream ended without a text");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_is_answered_by_plain_text() {
    let config = json!({"permission": {"bash": "ask"}});
    let lab = Lab::with(config, |_| {}).await;
    let steps = json!([
        {"tools": [["bash", {"command": "echo hi > done.txt", "description": "write"}]]},
        {"text": "finished"},
    ]);
    let task = lab.send(play("m1", steps)).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired, "{task:#?}");
    let interrupt = &task.metadata["shared"]["interrupt"];
    assert_eq!((&interrupt["phase"], &interrupt["type"]), (&json!("asked"), &json!("permission")), "{interrupt}");
    assert!(status_text(&task).contains("once"), "{}", status_text(&task));
    // Other words allow nothing.
    let still = lab.send(to_task(say("m2", "sure, whatever you like"), &task)).await.unwrap();
    assert_eq!(still.status.state, TaskState::InputRequired);
    assert!(!lab.project.path().join("done.txt").exists());
    let done = lab.send(to_task(say("m3", "once"), &task)).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed, "{done:#?}");
    assert_eq!(text_of(&done), "finished");
    assert!(done.metadata["shared"].get("interrupt").is_none());
    assert!(lab.project.path().join("done.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_survives_a_restart_and_is_answered_by_a_label() {
    let lab = Lab::new().await;
    let question = json!({"questions": [{
        "question": "Which colour?", "header": "Colour",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    }]});
    let task = lab.send(play("m1", json!([{"tools": [["question", question]]}, {"text": "painted"}]))).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired, "{task:#?}");
    let lab = lab.restart().await;
    assert_eq!(lab.get(&task.id).await.status, task.status);
    let done = lab.send(to_task(say("m2", "Blue"), &task)).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed, "{done:#?}");
    assert_eq!(text_of(&done), "painted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_is_stopped_once_and_for_all() {
    let lab = Lab::new().await;
    let gate = lab.gate("never");
    let stream = lab.stream(play("m1", json!([{"text": "one", "hold": gate}]))).await;
    let id = stream.task_id().to_owned();
    let task = lab.service.cancel(&alice(), &id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    let items = collect(stream).await;
    assert_eq!(events(&items).last().unwrap().1.state(), Some(TaskState::Canceled));
    assert_eq!(lab.service.cancel(&alice(), &id).await.unwrap(), task);
    let lab = lab.restart().await;
    assert_eq!(lab.get(&id).await, task);
    let done = lab.send(play("m2", json!([{"text": "done"}]))).await.unwrap();
    let error = lab.service.cancel(&alice(), &done.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TaskNotCancelable);
    let error = lab.service.cancel(&alice(), "nope").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TaskNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_task_that_completes_gives_one_end() {
    const ROUNDS: usize = 100;
    let lab = Lab::new().await;
    let (mut canceled, mut completed) = (0, 0);
    for round in 0..ROUNDS {
        let stream = lab.stream(play(&format!("m{round}"), json!([{"text": "x"}]))).await;
        let id = stream.task_id().to_owned();
        let wait = Duration::from_micros(fastrand::u64(..20_000));
        let cancel = async {
            // Not a wait for something: it makes the race come out both ways.
            tokio::time::sleep(wait).await;
            lab.service.cancel(&alice(), &id).await
        };
        let (cancel, items) = tokio::join!(cancel, collect(stream));
        let ends: Vec<TaskState> =
            events(&items).iter().filter_map(|(_, event)| event.state()).filter(|state| state.is_terminal()).collect();
        let task = lab.get(&id).await;
        assert_eq!(ends, [task.status.state]);
        match cancel {
            Ok(cancelled) => {
                assert_eq!(cancelled.status.state, TaskState::Canceled);
                canceled += 1;
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::TaskNotCancelable);
                assert_eq!(task.status.state, TaskState::Completed);
                completed += 1;
            }
        }
    }
    assert_eq!(canceled + completed, ROUNDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_goes_on_after_a_restart() {
    let lab = Lab::new().await;
    let gate = lab.gate("go");
    let steps = json!([{"text": "one ", "tools": [["bash", {"command": "true", "description": "nothing"}]]},
        {"text": "two", "after": gate}]);
    let mut stream = lab.stream(play("m1", steps)).await;
    let id = stream.task_id().to_owned();
    until_text(&mut stream).await;
    let request = play("m2", json!([{"text": "x", "after": gate}]));
    let other = lab.begin(request.clone()).await;
    let service = lab.service.clone();
    let waiting = tokio::spawn(async move { service.send(&alice(), Line::V10, request).await });
    lab.until(&id, "the second step", |task| {
        let tool_is_done = |part: &trefoil_a2a::Part| {
            matches!(&part.content, trefoil_a2a::Content::Data(data) if data["status"] == "completed")
        };
        task.artifacts.iter().flat_map(|artifact| &artifact.parts).any(tool_is_done)
    })
    .await;
    let stopped = lab.stop().await;
    // Streams and calls that wait are told.
    let mut last = None;
    while let Some(item) = soon("the end of the stream", stream.next()).await {
        last = Some(item);
    }
    assert_eq!(last.unwrap().unwrap_err().kind, ErrorKind::ShuttingDown);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind, ErrorKind::ShuttingDown);
    drop(stream);
    let lab = stopped.start().await;
    assert!(!lab.get(&id).await.status.state.is_terminal());
    lab.open(&gate);
    let task = lab.until(&id, "its end", |task| task.status.state.is_terminal()).await;
    assert_eq!((task.status.state, text_of(&task).as_str()), (TaskState::Completed, "one two"));
    let other = lab.until(&other.id, "its end", |task| task.status.state.is_terminal()).await;
    assert_eq!((other.status.state, text_of(&other).as_str()), (TaskState::Completed, "x"));
    // The log has no gap over the restart.
    let events = events(&collect(lab.service.subscribe(&alice(), &id, Some(0)).await.unwrap()).await);
    let numbers: Vec<u64> = events.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.iter().filter(|(_, event)| event.state().is_some_and(TaskState::is_terminal)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_abandoned_change_nothing() {
    const STREAMS: usize = 100;
    let lab = Lab::new().await;
    let gate = lab.gate("go");
    let task = lab.begin(play("m1", json!([{"text": "one ", "hold": gate}, {"text": "two"}]))).await;
    for _ in 0..STREAMS {
        let mut stream = lab.service.subscribe(&alice(), &task.id, None).await.unwrap();
        drop(stream.next().await);
    }
    let open = lab.service.metrics().samples().into_iter().find(|it| it.name == "a2a_stream_active").unwrap().value;
    assert!(open.abs() < f64::EPSILON, "{open}");
    lab.open(&gate);
    let task = lab.until(&task.id, "its end", |task| task.status.state.is_terminal()).await;
    assert_eq!(text_of(&task), "one ");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_model_fail_the_task_or_ask_for_credentials() {
    let lab = Lab::new().await;
    for (status, kind) in
        [(400, "UPSTREAM_BAD_REQUEST"), (403, "UPSTREAM_PERMISSION_DENIED"), (404, "UPSTREAM_RESOURCE_NOT_FOUND")]
    {
        let task = lab.send(play(&format!("m{status}"), json!([{"http_error": status}]))).await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed, "{task:#?}");
        assert_eq!(task.metadata["opencode"]["error"], json!({"type": kind, "upstream_status": status}));
        assert!(!status_text(&task).is_empty());
    }
    let items = collect(lab.stream(play("stream", json!([{"http_error": 400}]))).await).await;
    let events = events(&items);
    let [.., (_, TaskEvent::Artifact { id: ArtifactId::Named(id), last_chunk: true, .. }), (_, end)] =
        events.as_slice()
    else {
        panic!("{events:#?}")
    };
    assert!(id.ends_with(":error"));
    assert_eq!(end.state(), Some(TaskState::Failed));

    let task = lab.send(play("auth", json!([{"http_error": 401}]))).await.unwrap();
    assert_eq!(task.status.state, TaskState::AuthRequired, "{task:#?}");
    let retried = to_task(play("retry", json!([{"text": "welcome"}])), &task);
    let task = lab.send(retried).await.unwrap();
    assert_eq!((task.status.state, text_of(&task).as_str()), (TaskState::Completed, "welcome"));
    assert_eq!(task.history.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_before_anything_runs() {
    let lab = Lab::new().await;
    let refused = async |change: &dyn Fn(&mut trefoil_a2a::SendRequest)| {
        let mut request = say("m1", "hello");
        change(&mut request);
        lab.send(request).await.unwrap_err().kind
    };
    let modes = |modes: &[&str]| modes.iter().map(|mode| (*mode).to_owned()).collect::<Vec<_>>();
    let kind = refused(&|request| request.options.accepted_output_modes = modes(&["application/json"])).await;
    assert_eq!(kind, ErrorKind::UnsupportedOperation);
    assert_eq!(refused(&|request| request.message.task_id = Some("nope".to_owned())).await, ErrorKind::TaskNotFound);
    let kind = refused(&|request| request.message.reference_task_ids = vec!["nope".to_owned()]).await;
    assert_eq!(kind, ErrorKind::TaskNotFound);
    let kind = refused(&|request| {
        request.metadata.insert("shared".to_owned(), json!({"model": {"providerID": "script"}}));
    })
    .await;
    assert_eq!(kind, ErrorKind::InvalidParams);
    assert_eq!(refused(&|request| request.message.message_id.clear()).await, ErrorKind::InvalidParams);
    let sessions = lab.service.host().sessions(&api::Scope::new(lab.project.directory()), Default::default()).await;
    assert!(sessions.unwrap().is_empty());

    // A session of somebody else fails the task.
    let task = lab.send(play("mine", json!([{"text": "ok"}]))).await.unwrap();
    let mut steal = say("steal", "hello");
    steal.metadata.insert("shared".to_owned(), json!({"session": task.metadata["shared"]["session"]}));
    let Reply::Sent(failed) = lab.service.send(&bob(), Line::V03, steal.clone()).await.unwrap() else { panic!() };
    assert_eq!(failed.status.state, TaskState::Failed);
    steal.message.parts = play("x", json!([{"text": "again"}])).message.parts;
    steal.message.message_id = "continue".to_owned();
    let again = lab.send(steal).await.unwrap();
    assert_eq!(again.metadata["shared"]["session"]["id"], task.metadata["shared"]["session"]["id"]);
    assert_ne!(again.context_id, task.context_id);
    // The context of a task that exists.
    let gate = lab.gate("go");
    let open = lab.begin(play("open", json!([{"text": "x", "hold": gate}]))).await;
    let wrong = in_context(to_task(say("wrong", "x"), &open), "another");
    assert_eq!(lab.send(wrong).await.unwrap_err().kind, ErrorKind::InvalidParams);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_and_histories_cut() {
    let lab = Lab::new().await;
    let one = lab.send(play("m1", json!([{"text": "one"}]))).await.unwrap();
    let gate = lab.gate("go");
    let two = lab.begin(play("m2", json!([{"text": "two", "hold": gate}]))).await;
    let page = lab.service.list(&alice(), Default::default()).await.unwrap();
    let ids: Vec<&str> = page.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, [two.id.as_str(), one.id.as_str()]);
    assert_eq!(page.total_size, 2);
    assert!(page.tasks.iter().all(|task| task.history.is_empty() && task.artifacts.is_empty()));
    let request = trefoil_a2a::ListRequest {
        state: Some(TaskState::Completed),
        history_length: Some(5),
        include_artifacts: true,
        ..Default::default()
    };
    assert_eq!(lab.service.list(&alice(), request).await.unwrap().tasks, std::slice::from_ref(&one));
    assert!(lab.service.list(&bob(), Default::default()).await.unwrap().tasks.is_empty());
    assert!(lab.service.get(&alice(), &one.id, Some(0)).await.unwrap().history.is_empty());
    let mut request = play("m3", json!([{"text": "three"}]));
    request.options.history_length = Some(0);
    assert!(lab.send(request).await.unwrap().history.is_empty());
    lab.open(&gate);
}

#[tokio::test(flavor = "multi_thread")]
async fn kits_drive_the_scripted_agent_by_message_id() {
    let lab = Lab::scripted().await;
    let task = lab.send(say("tck-artifact-data-1", "hi")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts.len(), 1);
    let task = lab.send(say("tck-reject-task-1", "hi")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Rejected);
    let message = lab.service.send(&alice(), Line::V10, say("tck-message-response-1", "hi")).await.unwrap();
    assert!(matches!(message, Reply::Message(_)));
    let items = collect(lab.stream(say("tck-stream-artifact-chunked-1", "hi")).await).await;
    assert_eq!(items.len(), 4, "{items:?}");
    let open = lab.send(say("tck-input-required-1", "hi")).await.unwrap();
    assert_eq!(open.status.state, TaskState::InputRequired);
    let lab = lab.restart().await;
    let done = lab.send(to_task(say("next", "more"), &open)).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
    let long = lab.stream(say("test-resubscribe-message-id-1", "hi")).await;
    let again = lab.service.subscribe(&alice(), long.task_id(), None).await.unwrap();
    let task = lab.service.cancel(&alice(), long.task_id()).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(events(&collect(long).await).last(), events(&collect(again).await).last());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_holds_over_a_crash() {
    let lab = Lab::new().await;
    let gate = lab.gate("go");
    let working = lab.begin(play("m1", json!([{"text": "one", "hold": gate}]))).await;
    let context = working.context_id.clone();
    let waiting = lab.begin(in_context(play("m2", json!([{"text": "two"}])), &context)).await;
    lab.until(&working.id, "the turn", |task| !task.artifacts.is_empty()).await;
    // The mark is there, and nobody was told: as if the process had died right then.
    for task in [&working, &waiting] {
        lab.service.records().mark_canceled(&task.id).await.unwrap();
    }
    let lab = lab.restart().await;
    for task in [&working, &waiting] {
        let task = lab.until(&task.id, "its end", |task| task.status.state.is_terminal()).await;
        assert_eq!(task.status.state, TaskState::Canceled);
    }
    let session = api::SessionId::parse(working.metadata["shared"]["session"]["id"].as_str().unwrap()).unwrap();
    assert!(lab.service.host().waiting(&session).await.unwrap().is_empty());
    let next = lab.send(in_context(play("m3", json!([{"text": "three"}])), &context)).await.unwrap();
    assert_eq!((next.status.state, text_of(&next).as_str()), (TaskState::Completed, "three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subagent_asks_the_client_of_the_root_task() {
    let config = json!({"permission": {"bash": "ask"}});
    let lab = Lab::with(config, |_| {}).await;
    let inner = json!([
        {"text": "private", "tools": [["bash", {"command": "echo hi > child.txt", "description": "write"}]]},
        {"text": "done"},
    ]);
    let call = json!({"description": "write", "prompt": format!("SCRIPT: {inner}"), "subagent_type": "general"});
    let stream = lab.stream(play("m1", json!([{"tools": [["task", call]]}, {"text": "finished"}]))).await;
    let id = stream.task_id().to_owned();
    let task = lab.until(&id, "the request", |task| task.status.state == TaskState::InputRequired).await;
    lab.send(to_task(say("m2", "once"), &task)).await.unwrap();
    let items = collect(stream).await;
    let task = lab.get(&id).await;
    assert_eq!((task.status.state, text_of(&task).as_str()), (TaskState::Completed, "finished"), "{task:#?}");
    let phases: Vec<String> = events(&items)
        .iter()
        .filter_map(|(_, event)| match event {
            TaskEvent::Status { metadata, .. } => {
                metadata.get("shared")?["interrupt"]["phase"].as_str().map(str::to_owned)
            }
            _ => None,
        })
        .collect();
    assert_eq!(phases, ["asked", "resolved"]);
    assert!(lab.project.path().join("child.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_another_face_deletes_ends_its_tasks() {
    let lab = Lab::with(json!({"permission": {"bash": "ask"}}), |_| {}).await;
    let never = lab.gate("never");
    let ask = json!([{"tools": [["bash", {"command": "true", "description": "nothing"}]]}, {"text": "x"}]);
    let done = lab.send(play("m1", json!([{"text": "done"}]))).await.unwrap();
    let working = lab.begin(play("m2", json!([{"text": "one", "hold": never}]))).await;
    lab.until(&working.id, "the turn", |task| !task.artifacts.is_empty()).await;
    let waiting = lab.begin(in_context(play("m3", json!([{"text": "two"}])), &working.context_id)).await;
    let asking = lab.send(play("m4", ask)).await.unwrap();
    assert_eq!(asking.status.state, TaskState::InputRequired);
    for task in [&done, &working, &asking] {
        let session = task.metadata["shared"]["session"]["id"].as_str().unwrap();
        lab.service.host().delete_session(&api::SessionId::parse(session).unwrap()).await.unwrap();
    }
    assert_eq!(lab.get(&done.id).await, done);
    for task in [&working, &waiting, &asking] {
        let ended = lab.until(&task.id, "its end", |task| task.status.state.is_terminal()).await;
        assert!(matches!(ended.status.state, TaskState::Failed | TaskState::Canceled), "{ended:#?}");
        let again = lab.service.cancel(&alice(), &task.id).await;
        match ended.status.state {
            TaskState::Canceled => assert_eq!(again.unwrap(), ended),
            _ => assert_eq!(again.unwrap_err().kind, ErrorKind::TaskNotCancelable),
        }
        let error = lab.send(to_task(say("more", "more"), task)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::UnsupportedOperation);
    }
    let next = lab.send(in_context(play("m5", json!([{"text": "anew"}])), &working.context_id)).await.unwrap();
    assert_eq!((next.status.state, text_of(&next).as_str()), (TaskState::Completed, "anew"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_stream_says_why_in_the_status_as_well() {
    let lab = Lab::new().await;
    let mut request = say("m1", "hello");
    request.metadata.insert("opencode".to_owned(), json!({"directory": "/etc"}));
    let sent = lab.send(request.clone()).await.unwrap();
    request.message.message_id = "m2".to_owned();
    let stream = lab.stream(request).await;
    let id = stream.task_id().to_owned();
    let items = collect(stream).await;
    assert!(matches!(events(&items).as_slice(), [_, (_, TaskEvent::Artifact { .. }), _]), "{items:#?}");
    let page = lab.service.list(&alice(), Default::default()).await.unwrap();
    let listed = page.tasks.iter().find(|task| task.id == id).unwrap();
    for task in [&lab.get(&id).await, listed, &sent] {
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(status_text(task), status_text(&sent));
        assert!(!task.metadata.contains_key("shared"), "it has no session: {task:#?}");
    }
    assert!(status_text(&sent).contains("/etc"), "{}", status_text(&sent));
}
