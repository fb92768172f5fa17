//! Background tasks: each report arrives once, at a caller that is idle, busy, waiting or gone.

use std::slice::from_ref;

use crate::common::family::{
    answer, ask, asked, asking, asks_then, background, bash, blocking_command, children, error, is_alive, is_idle,
    lab_with_leads, only_child, output, place, ready, reports, start, task,
};
use crate::common::{Lab, script, text};
use api::{EventBody, Host, PermissionReplyKind, SessionId, SessionStatus, ToolState};
use serde_json::json;
use testkit::Recorder;

/// A session whose subagent works in the background until its ask is answered.
async fn launch(lab: &Lab) -> (SessionId, SessionId) {
    let session = lab.session().await;
    let steps = json!([{"tools": [background("Job", asks_then("it is done"))]}, {"text": "launched"}]);
    assert_eq!(text(&lab.say(&session, &script(steps)).await), "launched");
    let child = only_child(lab, &session).await.id;
    (session, child)
}

/// Waits until a session has received a report.
async fn wait_for_report(events: &mut Recorder, session: &SessionId) {
    let report = |body: &EventBody| {
        let EventBody::PartUpdated { session_id, part, .. } = body else { return false };
        let text = part.as_text().filter(|text| text.synthetic == Some(true));
        session_id == session && text.is_some_and(|text| text.text.starts_with("<task "))
    };
    events.wait_for(report).await;
}

async fn is_busy(lab: &Lab, session: &SessionId) -> bool {
    lab.engine.statuses(&lab.scope).await.unwrap().contains_key(session)
}

#[tokio::test]
async fn the_call_returns_at_once_and_the_report_wakes_its_idle_caller() {
    let lab = asking();
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let (session, child) = launch(&lab).await;
    assert!(!is_busy(&lab, &session).await);
    let call = lab.tools(&session).await.remove(0);
    let ToolState::Completed(done) = &call.state else { panic!("{call:#?}") };
    let begin = format!(
        "<task id=\"{child}\" state=\"running\">\n<summary>Background task started</summary>\n<task_result>\nThe subagent"
    );
    assert!(done.output.starts_with(&begin), "{}", done.output);
    let end = format!("\n</task_result>\n</task>\n\n<task_metadata>\nsession_id: {child}\n</task_metadata>");
    assert!(done.output.ends_with(&end), "{}", done.output);
    assert_eq!(
        json!(done.metadata),
        json!({"parentSessionId": session, "sessionId": child, "model": {"providerID": "script", "modelID": "demo"},
            "summary": [], "background": true, "jobId": child, "truncated": false})
    );
    assert!(lab.engine.tree(&child).await.unwrap().sessions[0].background);
    events.wait_idle(&session).await;
    answer(&lab, &asked(&mut asks).await, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let report = format!(
        "<task id=\"{child}\" state=\"completed\">\n<summary>Background task completed: Job</summary>\n<task_result>\nit is \
         done\n</task_result>\n</task>"
    );
    assert_eq!(reports(&lab, &session).await, [report]);
    let messages = lab.messages(&session).await;
    let told = messages.iter().rfind(|m| m.info.as_user().is_some()).unwrap();
    assert_eq!(told.info.as_user().unwrap().agent, "build");
    assert_eq!(messages.last().unwrap().info.as_assistant().unwrap().parent_id, *told.info.id());
    assert!(!lab.engine.tree(&child).await.unwrap().sessions[0].background);
}

#[tokio::test]
async fn a_busy_caller_takes_the_report_in_at_its_next_step() {
    let lab = asking();
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let job = background("Quick", json!([{"text": "quick result"}]));
    start(&lab, &session, json!([{"tools": [job, bash("echo held")]}, {"text": "never said"}])).await;
    let own = asked(&mut asks).await;
    assert_eq!(own.session_id, session);
    wait_for_report(&mut events, &session).await;
    answer(&lab, &own, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let idles = events.events().iter().filter(|e| is_idle(&session)(&e.body)).count();
    assert_eq!(idles, 1, "it is one turn");
    let messages = lab.messages(&session).await;
    let report = messages.iter().rfind(|m| m.info.as_user().is_some()).unwrap().info.id().clone();
    let steps: Vec<_> = messages.iter().filter_map(|m| m.info.as_assistant()).collect();
    assert!(steps[1..].iter().all(|step| step.parent_id == report), "{messages:#?}");
    assert_eq!(reports(&lab, &session).await.len(), 1);
}

#[tokio::test]
async fn failures_and_cancels_are_reported_too() {
    let lab = asking();
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let session = lab.session().await;
    let failing = json!([{"http_error": 400, "error_body": {"error": {"message": "bad child"}}}]);
    lab.say(&session, &script(json!([{"tools": [background("Fail", failing)]}, {"text": "."}]))).await;
    events.wait_idle(&session).await;
    if reports(&lab, &session).await.is_empty() {
        events.wait_idle(&session).await;
    }
    let child = only_child(&lab, &session).await.id;
    let failed = format!(
        "<task id=\"{child}\" state=\"error\">\n<summary>Background task failed: Fail</summary>\n<task_error>\nbad \
         child\n</task_error>\n</task>"
    );
    assert_eq!(reports(&lab, &session).await, [failed]);
    let (session, child) = launch(&lab).await;
    asked(&mut asks).await;
    assert_eq!(lab.engine.cancel(&child).await.unwrap().sessions, from_ref(&child));
    assert!(lab.engine.cancel(&child).await.unwrap().sessions.is_empty());
    wait_for_report(&mut events, &session).await;
    let told = reports(&lab, &session).await;
    assert_eq!(told.len(), 1);
    let begin =
        format!("<task id=\"{child}\" state=\"cancelled\">\n<summary>Background task cancelled: Job</summary>\n");
    assert!(told[0].starts_with(&begin), "{told:?}");
}

#[tokio::test]
async fn several_tasks_survive_restarts_and_each_is_reported_once() {
    let mut lab = asking();
    let session = lab.session().await;
    let mut asks = lab.recorder().await;
    let job = |n: u32| {
        background(&format!("J{n}"), json!([{"tools": [bash(&format!("echo {n} >> done"))]}, {"text": n.to_string()}]))
    };
    lab.say(&session, &script(json!([{"tools": [job(1), job(2), job(3)]}, {"text": "launched"}]))).await;
    let waiting = [asked(&mut asks).await, asked(&mut asks).await, asked(&mut asks).await];
    for only in [Some(&session), None] {
        lab.restart().await;
        lab.engine.recover(only).await.unwrap();
    }
    let mut events = lab.recorder().await;
    for ask in &waiting {
        answer(&lab, ask, PermissionReplyKind::Once).await;
    }
    for _ in &waiting {
        wait_for_report(&mut events, &session).await;
    }
    events.wait_idle(&session).await;
    lab.restart().await;
    lab.engine.recover(None).await.unwrap();
    let mut told = reports(&lab, &session).await;
    told.sort_by_key(|report| report.split("task completed: ").nth(1).map(str::to_owned));
    assert_eq!(told.len(), 3, "{told:#?}");
    for (n, report) in told.iter().enumerate() {
        let result = format!("Background task completed: J{0}</summary>\n<task_result>\n{0}\n", n + 1);
        assert!(report.contains(&result), "{told:#?}");
    }
    let mut effects: Vec<_> = lab.project.read("done").lines().map(str::to_owned).collect();
    effects.sort();
    assert_eq!(effects, ["1", "2", "3"]);
    assert_eq!(children(&lab, &session).await.len(), 3);
}

#[tokio::test]
async fn stopping_a_caller_stops_its_tasks_without_waking_it() {
    let lab = Lab::new();
    let mut events = lab.recorder().await;
    for idle in [true, false] {
        let session = lab.session().await;
        let job = background("Stay", json!([{"tools": [blocking_command("pid")]}, {"text": "never"}]));
        let mut steps = json!([{"tools": [job]}, {"text": "launched"}]);
        if !idle {
            steps[1] = json!({"tools": [blocking_command("own")]});
        }
        start(&lab, &session, steps).await;
        ready(&mut events).await;
        if idle {
            if place(&events, is_idle(&session)).is_none() {
                events.wait_idle(&session).await;
            }
        } else {
            ready(&mut events).await;
        }
        let child = only_child(&lab, &session).await.id;
        let stopped = lab.engine.cancel(&session).await.unwrap().sessions;
        let mut expected = vec![child.clone()];
        if !idle {
            expected.insert(0, session.clone());
        }
        assert_eq!(stopped, expected);
        assert!(!is_alive(&lab, "pid"));
        assert_eq!(lab.engine.running(), 0);
        // Still so after a whole turn of another session.
        lab.say(&lab.session().await, &script(json!([{"text": "x"}]))).await;
        assert!(!is_busy(&lab, &session).await && !is_busy(&lab, &child).await);
        let told = reports(&lab, &session).await;
        assert!(told.len() == 1 && told[0].contains("state=\"cancelled\""), "{told:?}");
        assert!(lab.engine.waiting(&session).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn deleting_a_caller_stops_its_tasks() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let job = background("Stay", json!([{"tools": [blocking_command("pid")]}, {"text": "never"}]));
    start(&lab, &session, json!([{"tools": [job]}, {"tools": [blocking_command("own")]}, {"text": "never"}])).await;
    ready(&mut events).await;
    ready(&mut events).await;
    let child = only_child(&lab, &session).await.id;
    lab.engine.delete_session(&session).await.unwrap();
    assert!(!is_alive(&lab, "pid") && !is_alive(&lab, "own"));
    assert_eq!(lab.engine.running(), 0);
    for gone in [&session, &child] {
        assert!(lab.engine.session(gone).await.is_err());
    }
    assert_eq!(lab.engine.recover(None).await.unwrap(), 0);
}

#[tokio::test]
async fn a_running_task_moves_to_the_background() {
    let lab = asking();
    let second = lab.second();
    for (by_child, far) in [(false, false), (true, false), (false, true)] {
        let session = lab.session().await;
        let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
        let steps = json!([{"tools": [task("Slow", "general", asks_then("slow result"))]}, {"text": "went on"}]);
        start(&lab, &session, steps).await;
        let ask = asked(&mut asks).await;
        let child = only_child(&lab, &session).await.id;
        let engine = if far { &second } else { &lab.engine };
        let id = if by_child { &child } else { &session };
        assert!(engine.background(id, true).await.unwrap());
        events.wait_idle(&session).await;
        assert_eq!(text(lab.messages(&session).await.last().unwrap()), "went on");
        let call = lab.tools(&session).await.remove(0);
        assert!(output(&call).contains("state=\"running\""), "{call:#?}");
        assert!(!engine.background(id, true).await.unwrap(), "it waits for none");
        answer(&lab, &ask, PermissionReplyKind::Once).await;
        events.wait_idle(&session).await;
        let told = reports(&lab, &session).await;
        assert!(told.len() == 1 && told[0].contains("\nslow result\n"), "{told:?}");
    }
    second.shutdown().await;
}

#[tokio::test]
async fn a_turn_told_to_wait_for_its_tasks_does_not_end_before_them() {
    let lab = asking();
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let job = background("Job", asks_then("job result"));
    start(&lab, &session, json!([{"tools": [job, bash("echo own")]}, {"text": "said"}])).await;
    let both = [asked(&mut asks).await, asked(&mut asks).await];
    let own = both.iter().find(|ask| ask.session_id == session).unwrap();
    let job = both.iter().find(|ask| ask.session_id != session).unwrap();
    assert!(lab.engine.background(&session, false).await.unwrap());
    assert!(!lab.engine.background(&session, false).await.unwrap(), "it waits already");
    answer(&lab, own, PermissionReplyKind::Once).await;
    let said = |body: &EventBody| {
        let EventBody::PartUpdated { session_id, part, .. } = body else { return false };
        *session_id == session && part.as_text().is_some_and(|text| text.text == "said")
    };
    events.wait_for(said).await;
    // Enough time for it to end.
    lab.say(&lab.session().await, &script(json!([{"text": "x"}]))).await;
    assert!(is_busy(&lab, &session).await);
    answer(&lab, job, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert!(place(&events, is_idle(&job.session_id)) < place(&events, is_idle(&session)));
    assert_eq!(reports(&lab, &session).await.len(), 1);
}

#[tokio::test]
async fn an_idle_session_can_be_told_to_wait_for_its_tasks_and_to_stop_waiting() {
    let lab = asking();
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let (session, _) = launch(&lab).await;
    events.wait_idle(&session).await;
    let ask = asked(&mut asks).await;
    assert!(lab.engine.background(&session, false).await.unwrap());
    let busy = |body: &EventBody| matches!(body, EventBody::SessionStatus { session_id, status: SessionStatus::Busy } if *session_id == session);
    events.wait_for(busy).await;
    assert!(lab.engine.background(&session, true).await.unwrap());
    events.wait_idle(&session).await;
    assert!(lab.engine.background(&session, false).await.unwrap());
    events.wait_for(busy).await;
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert!(place(&events, is_idle(&ask.session_id)).is_some());
    assert_eq!(reports(&lab, &session).await.len(), 1);
}

#[tokio::test]
async fn a_subagent_ends_only_after_its_own_tasks() {
    let lab = lab_with_leads();
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let lead = json!([{"tools": [background("Below", asks_then("from below"))]}, {"text": "too early"}]);
    start(&lab, &session, json!([{"tools": [task("Lead", "lead", lead)]}, {"text": "end"}])).await;
    let ask = asked(&mut asks).await;
    let middle = only_child(&lab, &session).await.id;
    lab.say(&lab.session().await, &script(json!([{"text": "x"}]))).await;
    assert!(is_busy(&lab, &middle).await);
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert_eq!(reports(&lab, &middle).await.len(), 1);
    assert!(!output(&lab.tools(&session).await[0]).contains("too early"));
}

#[tokio::test]
async fn the_concurrency_limit_applies_to_the_background_and_a_waiting_task_can_be_cancelled() {
    let lab = Lab::with(json!({"permission": ask(), "subagents": {"max_concurrent": 1}}));
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let tools = json!([background("One", asks_then("one")), background("Two", asks_then("two"))]);
    lab.say(&session, &script(json!([{"tools": tools}, {"text": "launched"}]))).await;
    let ask = asked(&mut asks).await;
    let children = children(&lab, &session).await;
    let waiting = children.iter().find(|child| child.id != ask.session_id).unwrap().id.clone();
    assert!(lab.messages(&waiting).await.is_empty());
    assert_eq!(lab.engine.cancel(&waiting).await.unwrap().sessions, from_ref(&waiting));
    assert!(lab.engine.cancel(&waiting).await.unwrap().sessions.is_empty());
    wait_for_report(&mut events, &session).await;
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    wait_for_report(&mut events, &session).await;
    events.wait_idle(&session).await;
    let told = reports(&lab, &session).await;
    assert!(told[0].contains("state=\"cancelled\"") && told[1].contains("state=\"completed\""), "{told:?}");
    assert!(lab.messages(&waiting).await.is_empty(), "it never began");
}

#[tokio::test]
async fn a_call_waiting_for_a_slot_can_be_cancelled_or_moved() {
    let lab = Lab::with(json!({"permission": ask(), "subagents": {"max_concurrent": 1}}));
    let session = lab.session().await;
    let (mut events, mut asks, mut births) = (lab.recorder().await, lab.recorder().await, lab.recorder().await);
    let tasks: Vec<_> = ["a", "b", "c"].map(|name| task(name, "general", asks_then(name))).into();
    start(&lab, &session, json!([{"tools": tasks}, {"text": "end"}])).await;
    let ask = asked(&mut asks).await;
    for _ in 0..3 {
        births.wait_for(|b| matches!(b, EventBody::SessionCreated { .. })).await;
    }
    let mut waiting = children(&lab, &session).await;
    waiting.retain(|child| child.id != ask.session_id);
    let (cancelled, moved) = (&waiting[0].id, &waiting[1].id);
    assert_eq!(lab.engine.cancel(cancelled).await.unwrap().sessions, from_ref(cancelled));
    assert!(lab.engine.background(moved, true).await.unwrap());
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    let later = asked(&mut asks).await;
    assert_eq!(later.session_id, *moved);
    events.wait_idle(&session).await;
    let calls = lab.tools(&session).await;
    let of = |id: &SessionId| calls.iter().find(|call| json!(call.state).to_string().contains(id.as_str())).unwrap();
    assert_eq!(error(of(cancelled)), "Task cancelled");
    assert!(output(of(moved)).contains("state=\"running\""));
    assert!(output(of(&ask.session_id)).contains("state=\"completed\""));
    answer(&lab, &later, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert_eq!(reports(&lab, &session).await.len(), 1);
}

#[tokio::test]
async fn background_tasks_can_be_disabled() {
    let lab = Lab::with(json!({"subagents": {"background": false}}));
    let session = lab.session().await;
    lab.say(&session, &script(json!([{"tools": [background("J", json!([]))]}, {"text": "."}]))).await;
    assert!(error(&lab.tools(&session).await[0]).contains("disabled"));
    assert!(children(&lab, &session).await.is_empty());
}
