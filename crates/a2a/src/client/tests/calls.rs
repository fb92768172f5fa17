//! Calls and their errors, in both lines and over both transports.

use serde_json::json;
use testkit::{A2A_CONTEXT, A2A_TASK};

use super::*;
use crate::error::ErrorKind;
use crate::model::TaskState;

/// Streams an answer, and answers all else with the task.
fn ordinary(line: A2aLine, request: &A2aRequest) -> axum::response::Response {
    if request.operation() == "message/stream"
        || request.operation() == "SendStreamingMessage"
        || request.path.ends_with("/message:stream")
        || request.subscribes()
    {
        let usage = json!({"usage": {"input_tokens": 3, "cost": 0.5}});
        return event_stream(&line.events([
            line.task_item("working", ""),
            line.artifact_update("reasoning", line.text("hm"), 1),
            line.text_update("he", 2),
            line.text_update("he", 3),
            line.text_update("ho", 4),
            line.status_update("completed", "", usage),
        ]));
    }
    let state = if request.cancels() { "canceled" } else { "completed" };
    let task = if request.sends() { line.task_item(state, "heheho") } else { line.task(state, "heheho") };
    line.reply(task)
}

#[tokio::test]
async fn all_operations_work_in_both_lines_over_both_transports() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, ordinary).await;
        let peer = peer(&agent.url());
        let card = peer.get_agent_card().await.unwrap();
        assert_eq!((card.name.as_str(), card.streaming), ("peer", true));
        let answer = peer.send(hello()).await.unwrap();
        assert_eq!(answer.view.text(), "heheho", "{line:?}");
        assert_eq!(answer.view.state(), Some(TaskState::Completed));
        assert_eq!((answer.view.task_id(), answer.view.context_id()), (Some(A2A_TASK), Some(A2A_CONTEXT)));
        assert_eq!(answer.view.usage().unwrap()["cost"], 0.5);
        let mut stream = peer.send_message(hello()).await.unwrap();
        let mut events = 0;
        while let Some(event) = stream.next().await {
            event.unwrap();
            events += 1;
        }
        assert_eq!(events, 6, "{line:?}");
        assert_eq!(peer.get_task(A2A_TASK, Some(0)).await.unwrap().status.state, TaskState::Completed);
        assert_eq!(peer.cancel_task(A2A_TASK).await.unwrap().status.state, TaskState::Canceled);
        let mut stream = peer.resubscribe_task(A2A_TASK, Some(7)).await.unwrap();
        assert!(matches!(stream.next().await, Some(Ok(StreamItem::Task(_)))));
        let subscription = agent.requests_like(A2aRequest::subscribes).remove(0);
        assert_eq!(subscription.header("last-event-id"), Some("7"));
        let expected = match (line.is_new, line.is_rest) {
            (false, false) => ["message/stream", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"]
                .map(str::to_owned),
            (true, false) => {
                ["SendStreamingMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"]
                    .map(str::to_owned)
            }
            (new, true) => {
                let prefix = if new { "" } else { "/v1" };
                [
                    "message:stream",
                    "message:stream",
                    "tasks/task-1?historyLength=0",
                    "tasks/task-1:cancel",
                    "tasks/task-1:subscribe",
                ]
                .map(|path| format!("{prefix}/{path}"))
            }
        };
        assert_eq!(operations(&agent), expected);
        let sent = agent.requests_like(A2aRequest::sends).remove(0);
        assert_eq!(sent.text(), "hello", "{line:?}");
        assert_eq!(sent.header("a2a-version"), Some(if line.is_new { "1.0" } else { "0.3" }));
        assert!(sent.header("a2a-extensions").unwrap().contains("interactive-interrupt"));
        assert_eq!(sent.header("authorization"), None);
    }
}

#[tokio::test]
async fn an_agent_that_does_not_stream_is_asked_plainly() {
    for (line, refuses) in A2aLine::ALL.into_iter().flat_map(|line| [(line, false), (line, true)]) {
        // Its card does not say so, or the method is missing all the same.
        let agent = A2aPeer::start(move |request| {
            if request.is_for_card() {
                let mut card = line.card(&format!("http://{}", request.header("host").unwrap()));
                card["capabilities"]["streaming"] = refuses.into();
                return json_response(200, &card);
            }
            match request.operation() {
                "message/stream" | "SendStreamingMessage" => line.error(-32601, 200, "METHOD_NOT_SUPPORTED", "no"),
                path if path.ends_with(":stream") => json_response(404, &json!({"detail": "Not Found"})),
                _ => line.reply(line.item("message", line.message("an answer"))),
            }
        })
        .await;
        let answer = peer(&agent.url()).send(hello()).await.unwrap();
        assert_eq!((answer.view.text().as_str(), answer.view.task_id()), ("an answer", Some(A2A_TASK)), "{line:?}");
        assert_eq!(answer.view.state(), Some(TaskState::Completed));
        assert_eq!(operations(&agent).len(), if refuses { 2 } else { 1 });
    }
}

#[tokio::test]
async fn errors_of_both_lines_are_told_apart() {
    for (line, code, status, reason, kind) in [
        (A2aLine::OLD, -32001, 200, "", ErrorKind::TaskNotFound),
        (A2aLine::OLD, -32602, 200, "", ErrorKind::InvalidParams),
        (A2aLine::NEW, -32001, 200, "TASK_NOT_FOUND", ErrorKind::TaskNotFound),
        (A2aLine::NEW, -32009, 200, "VERSION_NOT_SUPPORTED", ErrorKind::VersionNotSupported),
        (A2aLine::NEW, -32006, 200, "SESSION_FORBIDDEN", ErrorKind::SessionForbidden),
        // REST of 0.3 has words alone, but a service that lacks the path has others.
        (A2aLine::ALL[1], 0, 404, "", ErrorKind::TaskNotFound),
        (A2aLine::ALL[3], 0, 404, "TASK_NOT_FOUND", ErrorKind::TaskNotFound),
        (A2aLine::ALL[3], 0, 429, "", ErrorKind::TooManyRequests),
    ] {
        let agent = A2aPeer::of_line(line, move |line, _| line.error(code, status, reason, "the reason")).await;
        let error = peer(&agent.url()).get_task("x", None).await.unwrap_err();
        let ClientError::Peer { error: said, .. } = &error else { panic!("{line:?} {code} {status}: {error:?}") };
        assert_eq!(said.kind, kind, "{line:?} {code} {status}");
        assert!(error.to_string().contains("the reason"), "{error}");
    }
    let agent = A2aPeer::of_line(A2aLine::NEW, |_, _| json_response(401, &json!({"error": "Unauthorized"}))).await;
    let error = peer(&agent.url()).get_task("x", None).await.unwrap_err();
    assert!(matches!(error, ClientError::Unauthorized { sent: false, .. }), "{error:?}");
    assert!(error.to_string().contains("A2A_CLIENT_BEARER_TOKEN"), "{error}");
}

#[tokio::test]
async fn an_error_in_a_stream_ends_it() {
    for line in [A2aLine::OLD, A2aLine::NEW] {
        let agent = A2aPeer::of_line(line, |line, _| {
            let error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "out of paper"}});
            event_stream(&[line.wrap(line.task_item("working", "")), error])
        })
        .await;
        let error = peer(&agent.url()).send(hello()).await.unwrap_err();
        assert!(error.to_string().contains("out of paper"), "{error}");
        let answer = peer(&agent.url()).get_task("x", None).await;
        assert!(matches!(answer, Err(ClientError::Malformed { .. })), "a stream is no answer to that: {answer:?}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_refused() {
    for body in
        ["", "null", "[]", "{}", "<html>", r#"{"jsonrpc":"2.0","id":1,"result":5}"#, r#"{"result":{"kind":"other"}}"#]
    {
        let agent = A2aPeer::of_line(A2aLine::OLD, move |_, _| {
            let mut response = json_response(200, &json!(null));
            *response.body_mut() = body.into();
            response
        })
        .await;
        let error = peer(&agent.url()).send(hello()).await.unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{body}: {error:?}");
    }
}

#[tokio::test]
async fn an_interrupt_is_answered_by_the_extension_where_there_is_one() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |_, _| A2aLine::OLD.reply(json!({"ok": true, "request_id": "per_1"}))).await;
        let peer = peer(&agent.url());
        let reply = InterruptReply::Permission { allow: false, message: Some("not now".to_owned()) };
        assert!(peer.reply_interrupt("per_1", reply).await.unwrap(), "{line:?}");
        assert!(peer.reply_interrupt("que_1", InterruptReply::Answers(vec![vec!["a".into()]])).await.unwrap());
        assert!(peer.reply_interrupt("que_1", InterruptReply::Dismissed).await.unwrap());
        let methods = ["permission.reply", "question.reply", "question.reject"];
        assert_eq!(operations(&agent), methods.map(|method| format!("a2a.interrupt.{method}")));
        let first = agent.requests_like(|request| !request.is_for_card()).remove(0);
        assert_eq!(*first.params(), json!({"request_id": "per_1", "reply": "reject", "message": "not now"}));
    }
    let without = A2aPeer::start(|request| {
        let mut card = A2aLine::NEW.card(&format!("http://{}", request.header("host").unwrap()));
        card["capabilities"]["extensions"] = json!([]);
        json_response(200, &card)
    })
    .await;
    let reply = InterruptReply::Permission { allow: true, message: None };
    assert!(!peer(&without.url()).reply_interrupt("per_1", reply).await.unwrap());
}
