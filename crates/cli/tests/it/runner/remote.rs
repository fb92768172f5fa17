//! Agents elsewhere, over the A2A protocol.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{EventBody, Host, PermissionReplyKind, ToolState, TreeState};
use serde_json::{Value, json};
use testkit::{A2A_TASK, A2aLine, A2aPeer, A2aRequest, event_stream, open_stream};

use super::fixture::{Fixture, asked, error, open, output, text};

/// An agent that asks this first, and goes on when it has an answer.
async fn asking(line: A2aLine, interrupt: fn() -> Value) -> A2aPeer {
    let (sender, response) = open_stream();
    let held = Mutex::new(Some(response));
    A2aPeer::of_line(line, move |line, request| {
        if let Some(response) = held.lock().unwrap().take() {
            let asks = line.status_update("input-required", "It asks.", json!({ "interrupt": interrupt() }));
            for item in [line.task_item("working", ""), asks] {
                sender.try_send(line.wrap(item)).unwrap();
            }
            return response;
        }
        for item in [line.text_update("It went on.", 3), line.status_update("completed", "", json!(null))] {
            sender.try_send(line.wrap(item)).unwrap();
        }
        assert!(request.operation().starts_with("a2a.interrupt."), "{request:?}");
        A2aLine::OLD.reply(json!({"ok": true}))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn its_work_is_a_session_of_ours() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |line, _| {
            let call = json!({"call_id": "c", "tool": "grep", "status": "completed", "title": "Looks", "input": {}, "output": "x"});
            let usage = json!({"usage": {"input_tokens": 100, "output_tokens": 20, "cost": 0.5}});
            event_stream(&line.events([
                line.task_item("working", ""),
                line.artifact_update("reasoning", line.text("thinking"), 1),
                line.text_update("Looking. ", 2),
                line.artifact_update("tool_call", line.data(call), 3),
                line.text_update("All done.", 4),
                line.status_update("completed", "", usage),
            ]))
        })
        .await;
        let fixture = Fixture::remote(json!({"agent": {"other": {"prompt": "Be brief."}}}), &agent.url());
        let session = fixture.session().await;
        let task = fixture.delegate(&session, "go").await;
        assert!(output(&task).contains("All done."), "{}", output(&task));
        let child = fixture.child(&session).await;
        let messages = fixture.messages(&child.id).await;
        let answer = messages[1].info.as_assistant().unwrap();
        assert_eq!((answer.provider_id.as_str(), answer.tokens.output, answer.cost.0), ("a2a", 20, 0.5), "{answer:#?}");
        assert_eq!(text(&messages), "Looking. All done.", "{line:?}");
        assert!(messages[1].parts.iter().any(|part| matches!(part, api::Part::Reasoning(r) if r.text == "thinking")));
        let tools = fixture.tools(&child.id).await;
        assert_eq!((tools[0].tool.as_str(), output(&tools[0])), ("grep", "x"));
        let tree = fixture.engine.tree(&session).await.unwrap();
        let node = tree.sessions.iter().find(|node| node.session_id == child.id).unwrap();
        assert_eq!((node.state, node.own.tool_calls, node.own.estimated_tokens), (TreeState::Idle, 1, 0));
        assert_eq!(tree.sessions[0].total.cost.0, 0.5);
        assert_eq!(agent.requests_like(A2aRequest::sends)[0].text(), "Be brief.go");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_permissions_are_judged_by_our_rules_then_by_a_human() {
    fn interrupt() -> Value {
        let details = json!({"permission": "bash", "patterns": ["touch x"]});
        json!({"request_id": "per_1", "type": "permission", "phase": "asked", "details": details})
    }
    for (action, reply, sent) in [
        ("allow", None, "once"),
        ("deny", None, "reject"),
        ("ask", Some(PermissionReplyKind::Once), "once"),
        ("ask", Some(PermissionReplyKind::Reject), "reject"),
    ] {
        let agent = asking(A2aLine::NEW, interrupt).await;
        let fixture = Fixture::remote(json!({"permission": {"bash": {"*": action}}}), &agent.url());
        let mut events = fixture.recorder().await;
        let session = fixture.session().await;
        fixture.begin(&session, "go").await;
        if let Some(reply) = reply {
            let ask = asked(&mut events).await;
            assert_eq!((ask.permission.as_str(), &ask.patterns[..]), ("bash", &["touch x".to_owned()][..]));
            assert_eq!(ask.metadata["subagent"]["rootID"], session.as_str());
            fixture.answer(&ask, reply).await;
        }
        let answer =
            agent.wait_for("the answer", |request| request.operation() == "a2a.interrupt.permission.reply").await;
        assert_eq!(answer.params()["reply"], sent, "{action}");
        events.wait_idle(&session).await;
        let child = fixture.child(&session).await;
        assert!(text(&fixture.messages(&child.id).await).ends_with("It went on."));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_questions_are_asked_here() {
    fn interrupt() -> Value {
        let questions =
            json!([{"header": "Colour", "question": "Which?", "options": [{"label": "red", "description": ""}]}]);
        json!({"request_id": "que_1", "type": "question", "phase": "asked", "details": {"questions": questions}})
    }
    for (answers, method) in [(Some(vec![vec!["red".to_owned()]]), "reply"), (None, "reject")] {
        let agent = asking(A2aLine::OLD, interrupt).await;
        let fixture = Fixture::remote(json!({}), &agent.url());
        let mut events = fixture.recorder().await;
        let session = fixture.session().await;
        fixture.begin(&session, "go").await;
        let event = events.wait_for(|body| matches!(body, EventBody::QuestionAsked(_))).await;
        let EventBody::QuestionAsked(ask) = &event.body else { unreachable!() };
        assert_eq!(ask.questions[0].question, "Which?");
        fixture.engine.reply_question(&ask.id, answers).await.unwrap();
        let method = format!("a2a.interrupt.question.{method}");
        agent.wait_for("the answer", |request| request.operation() == method).await;
        events.wait_idle(&session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_reaches_it_and_a_restart_does_not() {
    for parks in [false, true] {
        let (sender, response) = open_stream();
        let held = Mutex::new(Some(response));
        let resumed = AtomicBool::new(false);
        let agent = A2aPeer::of_line(A2aLine::NEW, move |line, request| {
            if let Some(response) = held.lock().unwrap().take() {
                sender.try_send(line.wrap(line.task_item("working", ""))).unwrap();
                sender.try_send(line.wrap(line.text_update("Begun. ", 1))).unwrap();
                return response;
            }
            if request.cancels() {
                return line.reply(line.task("canceled", ""));
            }
            assert!(request.subscribes() && !resumed.swap(true, Ordering::Relaxed), "{request:?}");
            event_stream(&line.events([
                line.task_item("working", "Begun. "),
                line.text_update("Went on.", 2),
                line.status_update("completed", "", json!(null)),
            ]))
        })
        .await;
        let fixture = Fixture::remote(json!({}), &agent.url());
        let mut events = fixture.recorder().await;
        let session = fixture.session().await;
        fixture.begin(&session, "go").await;
        events.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta.contains("Begun"))).await;
        if !parks {
            fixture.engine.abort(&session).await.unwrap();
            agent.wait_for("the cancellation", A2aRequest::cancels).await;
            continue;
        }
        fixture.engine.shutdown().await;
        assert!(agent.requests_like(A2aRequest::cancels).is_empty());
        let engine = open(&fixture.project);
        let fixture = Fixture { engine, ..fixture };
        let mut events = fixture.recorder().await;
        testkit::eventually("something goes on", async || fixture.engine.recover(None).await.unwrap() > 0).await;
        events.wait_idle(&session).await;
        let task = fixture.tools(&session).await.remove(0);
        assert!(output(&task).contains("Begun. Went on."), "{}", output(&task));
        assert_eq!(agent.requests_like(A2aRequest::sends).len(), 1, "a task is begun once");
        let followed = agent.requests_like(A2aRequest::subscribes).remove(0);
        assert_eq!(followed.params()["id"], A2A_TASK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_there_says_so() {
    let fixture = Fixture::remote(json!({}), "http://127.0.0.1:9/");
    let session = fixture.session().await;
    let task = fixture.delegate(&session, "go").await;
    assert!(error(&task).contains("127.0.0.1:9"), "{}", error(&task));
    assert!(matches!(task.state, ToolState::Error(_)));
}
