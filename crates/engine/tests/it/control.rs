//! Steering, pausing and cancelling running sessions; requests that show their path and expire; invalid input.

use std::slice::from_ref;

use crate::common::family::{
    answer, ask, asked, asking, asks_then, bash, blocking_command, children, error, is_alive, lab_with_leads, last,
    only_child, output, place, ready, start, task,
};
use crate::common::{Lab, prompt, script, text};
use api::{EventBody, Host, HostError, MessageError, PermissionReplyKind, SessionId, SteerInput, ToolState, TreeState};
use serde_json::{Value, json};
use testkit::Recorder;

fn message(text: &str) -> SteerInput {
    SteerInput { text: Some(text.to_owned()), ..SteerInput::default() }
}

/// Enough time for anything to happen: a whole turn of another session.
async fn while_others_work(lab: &Lab) {
    lab.say(&lab.session().await, &script(json!([{"tools": [["glob", {"pattern": "*"}]]}, {"text": "x"}]))).await;
}

async fn steps(lab: &Lab, session: &SessionId) -> usize {
    lab.messages(session).await.iter().filter(|m| m.info.as_assistant().is_some()).count()
}

async fn state(lab: &Lab, session: &SessionId) -> TreeState {
    lab.engine.tree(session).await.unwrap().sessions[0].state
}

/// A parent whose only child waits for a reply.
async fn family(lab: &Lab, asks: &mut Recorder) -> (SessionId, api::PermissionRequest) {
    let session = lab.session().await;
    start(lab, &session, json!([{"tools": [task("Work", "general", asks_then("done"))]}, {"text": "end"}])).await;
    let ask = asked(asks).await;
    (session, ask)
}

#[tokio::test]
async fn a_message_reaches_a_running_turn_at_its_next_step() {
    let lab = asking();
    let second = lab.second();
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    for far in [false, true] {
        let engine = if far { &second } else { &lab.engine };
        let (session, ask) = family(&lab, &mut asks).await;
        let child = &ask.session_id;
        let steered = script(json!([{"text": "steered"}]));
        let id = engine.steer(child, message(&steered)).await.unwrap();
        let parts = vec![api::PromptPart::text(script(json!([{"text": "so is the parent"}])))];
        engine.steer(&session, SteerInput { parts, text: None }).await.unwrap();
        assert_eq!(steps(&lab, child).await, 1);
        answer(&lab, &ask, PermissionReplyKind::Once).await;
        events.wait_idle(&session).await;
        assert_eq!(last(&lab, child).await.parent_id, id);
        assert!(output(&lab.tools(&session).await[0]).contains("\nsteered\n"));
        assert_eq!(text(lab.messages(&session).await.last().unwrap()), "so is the parent");
        let idles = events.events().iter().filter(|e| crate::common::family::is_idle(child)(&e.body)).count();
        assert_eq!(idles, 1, "the message joined the turn");
    }
    second.shutdown().await;
}

#[tokio::test]
async fn a_session_without_a_turn_cannot_be_steered() {
    let lab = asking();
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let (session, ask) = family(&lab, &mut asks).await;
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let finished = lab.engine.steer(&ask.session_id, message("hi")).await;
    assert!(matches!(&finished, Err(HostError::Conflict(text)) if text.contains("send a prompt")), "{finished:?}");
    assert_eq!(steps(&lab, &ask.session_id).await, 2);
    let empty = lab.engine.steer(&session, SteerInput::default()).await;
    assert!(matches!(empty, Err(HostError::Invalid(_))));
    let unknown = SessionId::new();
    assert!(matches!(lab.engine.steer(&unknown, message("x")).await, Err(HostError::NotFound { .. })));
    assert!(matches!(lab.engine.pause(&unknown, true).await, Err(HostError::NotFound { .. })));
    assert!(matches!(lab.engine.cancel(&unknown).await, Err(HostError::NotFound { .. })));
    assert!(matches!(lab.engine.background(&unknown, true).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn a_paused_tree_stops_before_its_next_step_until_it_is_resumed() {
    let mut lab = asking();
    let mut asks = lab.recorder().await;
    let (session, ask) = family(&lab, &mut asks).await;
    let child = &ask.session_id;
    assert!(lab.engine.pause(&session, true).await.unwrap());
    assert!(!lab.engine.pause(&session, true).await.unwrap());
    assert_eq!(state(&lab, &session).await, TreeState::Paused);
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    while_others_work(&lab).await;
    assert_eq!(steps(&lab, child).await, 1);
    assert_eq!(state(&lab, child).await, TreeState::Paused);
    // A restart does not change that.
    lab.restart().await;
    lab.engine.recover(None).await.unwrap();
    while_others_work(&lab).await;
    assert_eq!(steps(&lab, child).await, 1);
    let mut events = lab.recorder().await;
    // Another process resumes it.
    let second = lab.second();
    assert!(second.pause(&session, false).await.unwrap());
    assert!(!second.pause(&session, false).await.unwrap());
    events.wait_idle(&session).await;
    assert_eq!(steps(&lab, child).await, 2);
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "end");
    let told = |body: &EventBody| matches!(body, EventBody::SessionTree { session_id, state: TreeState::Running, .. } if *session_id == session);
    assert!(place(&events, told).is_some());
    second.shutdown().await;
}

#[tokio::test]
async fn a_child_can_be_paused_alone_while_its_sibling_continues() {
    let lab = asking();
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let tasks = json!([task("A", "general", asks_then("a")), task("B", "general", asks_then("b"))]);
    start(&lab, &session, json!([{"tools": tasks}, {"text": "end"}])).await;
    let (one, two) = (asked(&mut asks).await, asked(&mut asks).await);
    assert!(lab.engine.pause(&one.session_id, true).await.unwrap());
    for ask in [&one, &two] {
        answer(&lab, ask, PermissionReplyKind::Once).await;
    }
    events.wait_idle(&two.session_id).await;
    while_others_work(&lab).await;
    assert_eq!((steps(&lab, &one.session_id).await, steps(&lab, &two.session_id).await), (1, 2));
    assert!(lab.engine.pause(&one.session_id, false).await.unwrap());
    events.wait_idle(&session).await;
    assert_eq!(steps(&lab, &one.session_id).await, 2);
}

#[tokio::test]
async fn a_paused_session_starts_no_child() {
    let lab = Lab::with(json!({"permission": {"task": "ask"}}));
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    start(&lab, &session, json!([{"tools": [task("T", "general", json!([{"text": "t"}]))]}, {"text": "end"}])).await;
    let ask = asked(&mut asks).await;
    lab.engine.pause(&session, true).await.unwrap();
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    while_others_work(&lab).await;
    assert!(children(&lab, &session).await.is_empty());
    lab.engine.pause(&session, false).await.unwrap();
    events.wait_idle(&session).await;
    assert_eq!(children(&lab, &session).await.len(), 1);
}

#[tokio::test]
async fn a_paused_tree_can_be_stopped_which_ends_the_pause() {
    let lab = asking();
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let (session, ask) = family(&lab, &mut asks).await;
    let child = ask.session_id.clone();
    lab.engine.pause(&child, true).await.unwrap();
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    while_others_work(&lab).await;
    assert_eq!(lab.engine.cancel(&child).await.unwrap().sessions, from_ref(&child));
    assert!(!lab.engine.pause(&child, false).await.unwrap());
    events.wait_idle(&session).await;
    assert_eq!(error(&lab.tools(&session).await[0]), "Task cancelled");
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "end");
    assert_eq!(state(&lab, &child).await, TreeState::Cancelled);
    let idle = lab.session().await;
    assert!(lab.engine.pause(&idle, true).await.unwrap());
    lab.engine.prompt_async(&idle, prompt(&script(json!([{"text": "held"}])))).await.unwrap();
    while_others_work(&lab).await;
    assert!(lab.engine.abort(&idle).await.unwrap());
    assert!(matches!(last(&lab, &idle).await.error, Some(MessageError::MessageAbortedError(_))));
    assert_eq!(text(&lab.say(&idle, &script(json!([{"text": "free"}]))).await), "free");
}

#[tokio::test]
async fn a_cancel_stops_a_subtree_and_nobody_else() {
    let lab = lab_with_leads();
    let second = lab.second();
    for far in [false, true] {
        let engine = if far { &second } else { &lab.engine };
        let session = lab.session().await;
        let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
        let below = json!([{"tools": [blocking_command("deep")]}, {"text": "never"}]);
        let lead = json!([{"tools": [task("Below", "general", below)]}, {"text": "never"}]);
        let tasks = json!([task("Lead", "lead", lead), task("Beside", "general", asks_then("beside"))]);
        start(&lab, &session, json!([{"tools": tasks}, {"text": "went on"}])).await;
        let both = [asked(&mut asks).await, asked(&mut asks).await];
        let beside = both.iter().find(|ask| ask.patterns == ["true"]).unwrap();
        let deep = both.iter().find(|ask| ask.patterns != ["true"]).unwrap();
        answer(&lab, deep, PermissionReplyKind::Once).await;
        ready(&mut events).await;
        let lead = lab.engine.session(&deep.session_id).await.unwrap().parent_id.unwrap();
        let stopped = engine.cancel(&lead).await.unwrap().sessions;
        assert_eq!(stopped, [lead.clone(), deep.session_id.clone()]);
        assert!(!is_alive(&lab, "deep"));
        assert!(engine.cancel(&lead).await.unwrap().sessions.is_empty(), "twice");
        for id in [&lead, &deep.session_id] {
            assert!(matches!(last(&lab, id).await.error, Some(MessageError::MessageAbortedError(_))));
        }
        answer(&lab, beside, PermissionReplyKind::Once).await;
        events.wait_idle(&session).await;
        let tools = lab.tools(&session).await;
        assert_eq!(error(tools.iter().find(|t| matches!(t.state, ToolState::Error(_))).unwrap()), "Task cancelled");
        assert!(tools.iter().any(|t| matches!(t.state, ToolState::Completed(_))));
        assert_eq!(text(lab.messages(&session).await.last().unwrap()), "went on");
    }
    second.shutdown().await;
}

#[tokio::test]
async fn an_ask_shows_the_path_to_its_subagent() {
    let lab = lab_with_leads();
    let session = lab.session().await;
    let (mut events, mut asks) = (lab.recorder().await, lab.recorder().await);
    let question = json!({"questions": [{"question": "Which?", "header": "h", "options": []}]});
    let below = json!([{"tools": [bash("true")]}, {"tools": [["question", question]]}, {"text": "below"}]);
    let lead = json!([{"tools": [task("Below", "lead", below)]}, {"text": "lead"}]);
    start(&lab, &session, json!([{"tools": [task("Lead", "lead", lead), bash("echo own")]}, {"text": "end"}])).await;
    let both = [asked(&mut asks).await, asked(&mut asks).await];
    let own = both.iter().find(|ask| ask.session_id == session).unwrap();
    let deep = both.iter().find(|ask| ask.session_id != session).unwrap();
    assert!(own.metadata.get("subagent").is_none(), "a root session is not a subagent");
    let lead = only_child(&lab, &session).await.id;
    let path = json!({"rootID": session, "path": [{"sessionID": session, "agent": "build"},
        {"sessionID": lead, "agent": "lead"}, {"sessionID": deep.session_id, "agent": "lead"}]});
    assert_eq!(deep.metadata["subagent"], path);
    for ancestor in [&session, &lead, &deep.session_id] {
        assert!(lab.engine.is_within(&deep.session_id, ancestor).unwrap());
    }
    assert!(!lab.engine.is_within(&lead, &deep.session_id).unwrap());
    assert!(!lab.engine.is_within(&deep.session_id, &lab.session().await).unwrap());
    answer(&lab, own, PermissionReplyKind::Once).await;
    answer(&lab, deep, PermissionReplyKind::Once).await;
    let event = events.wait_for(|b| matches!(b, EventBody::QuestionAsked(_))).await;
    let EventBody::QuestionAsked(question) = &event.body else { unreachable!() };
    assert_eq!(question.extra.get("subagent"), Some(&path));
    lab.engine.reply_question(&question.id, None).await.unwrap();
    events.wait_idle(&session).await;
}

fn ask_policy(timeout: u64, then: &str) -> Value {
    json!({"permission": ask(), "ask": {"timeout": timeout, "then": then}})
}

#[tokio::test]
async fn an_unanswered_request_is_decided_by_the_policy() {
    let steps = |file: &str| json!([{"tools": [bash(&format!("echo ran > {file}"))]}, {"text": "went on"}]);
    let lab = Lab::with(ask_policy(0, "reject"));
    let session = lab.session().await;
    let parent = json!([{"tools": [task("T", "general", steps("rejected"))]}, {"text": "end"}]);
    assert_eq!(text(&lab.say(&session, &script(parent)).await), "end");
    let child = only_child(&lab, &session).await.id;
    let refused = lab.tools(&child).await.remove(0);
    let why = error(&refused);
    assert!(why.contains("Nobody answered this request within 0 s") && why.contains("\"ask\""), "{why}");
    assert_eq!(text(lab.messages(&child).await.last().unwrap()), "went on");
    assert!(!lab.project.path().join("rejected").exists());
    let question = json!({"questions": [{"question": "Which?", "header": "h", "options": []}]});
    lab.say(&session, &script(json!([{"tools": [["question", question]]}, {"text": "decided"}]))).await;
    assert!(error(lab.tools(&session).await.last().unwrap()).contains("Nobody is here to answer"));
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "decided");
    assert!(lab.engine.permissions(&lab.scope).await.unwrap().is_empty());
    assert!(lab.engine.questions(&lab.scope).await.unwrap().is_empty());
    let lab = Lab::with(ask_policy(0, "allow"));
    lab.say(&lab.session().await, &script(steps("allowed"))).await;
    assert_eq!(lab.project.read("allowed"), "ran\n");
}

#[tokio::test]
async fn the_timeout_of_a_request_counts_from_when_it_was_made() {
    let mut lab = Lab::with(ask_policy(3600, "reject"));
    let mut asks = lab.recorder().await;
    let (session, ask) = family(&lab, &mut asks).await;
    while_others_work(&lab).await;
    assert_eq!(lab.engine.permissions(&lab.scope).await.unwrap().len(), 1, "it waits");
    lab.project.write_home(".config/opencode/opencode.json", ask_policy(0, "reject").to_string());
    lab.restart().await;
    let mut events = lab.recorder().await;
    lab.engine.recover(None).await.unwrap();
    let settled = |body: &EventBody| matches!(body, EventBody::PermissionReplied { request_id, reply: PermissionReplyKind::Reject, .. } if *request_id == ask.id);
    events.wait_for(settled).await;
    events.wait_idle(&session).await;
    let late =
        lab.engine.reply_permission(&ask.id, api::PermissionReply { reply: PermissionReplyKind::Once, message: None });
    assert!(matches!(late.await, Err(HostError::Conflict(_))));
}

#[tokio::test]
async fn a_child_cannot_continue_itself_or_an_ancestor() {
    let lab = lab_with_leads();
    let session = lab.session().await;
    let begin = json!([{"tools": [task("Lead", "lead", json!([{"tools": [task("Below", "lead", json!([]))]}, {"text": "1"}]))]}, {"text": "."}]);
    lab.say(&session, &script(begin)).await;
    let lead = only_child(&lab, &session).await.id;
    let below = only_child(&lab, &lead).await.id;
    let naming = |ids: &[&SessionId]| {
        let call = |id: &&SessionId| {
            let mut call = task("Again", "lead", json!([]));
            call[1]["task_id"] = json!(id);
            call
        };
        json!([{"tools": ids.iter().map(call).collect::<Vec<_>>()}, {"text": "tried"}])
    };
    // The lowest one is told to continue itself and every ancestor.
    let mut again = task("Deep", "lead", naming(&[&below, &lead, &session]));
    again[1]["task_id"] = json!(below);
    let mut middle = task("Lead", "lead", json!([{"tools": [again]}, {"text": "."}]));
    middle[1]["task_id"] = json!(lead);
    lab.say(&session, &script(json!([{"tools": [middle]}, {"text": "."}]))).await;
    let tools = lab.tools(&below).await;
    assert_eq!(tools.len(), 3, "{tools:#?}");
    for (tool, id) in tools.iter().zip([&below, &lead, &session]) {
        assert!(error(tool).contains(&format!("There is no task {id} of this session")), "{tool:#?}");
    }
    assert!(output(lab.tools(&lead).await.last().unwrap()).contains("\ntried\n"));
    assert_eq!(children(&lab, &below).await.len(), 0);
}

#[tokio::test]
async fn a_thousand_tasks_in_one_step_end() {
    let lab = Lab::with(json!({"subagents": {"descendants": 20}}));
    let session = lab.session().await;
    let tasks: Vec<Value> = (0..1000).map(|n| task(&format!("T{n}"), "general", json!([{"text": "done"}]))).collect();
    let end = lab.say(&session, &script(json!([{"tools": tasks}, {"text": "end"}]))).await;
    assert_eq!(text(&end), "end");
    let tools = lab.tools(&session).await;
    let failed =
        |why: &str| tools.iter().filter(|t| matches!(&t.state, ToolState::Error(e) if e.error.contains(why))).count();
    assert_eq!(tools.len(), 1000);
    assert_eq!(tools.iter().filter(|t| matches!(&t.state, ToolState::Completed(_))).count(), 20);
    assert_eq!(failed("have 20 subagents, which is the maximum"), 108);
    assert_eq!(failed("A step has at most 128 calls"), 872);
    assert_eq!(children(&lab, &session).await.len(), 20);
}
