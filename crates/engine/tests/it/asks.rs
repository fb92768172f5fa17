//! Asks: answered once, from anywhere, even after a restart.

use std::sync::Arc;

use crate::common::{Lab, prompt, script};
use api::{
    EventBody, Host, HostError, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest, ToolState,
};
use serde_json::json;
use testkit::Recorder;

fn reply(reply: PermissionReplyKind) -> PermissionReply {
    PermissionReply { reply, message: None }
}

async fn asked(events: &mut Recorder) -> PermissionRequest {
    let event = events.wait_for(|b| matches!(b, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    (**ask).clone()
}

fn asking() -> Lab {
    Lab::with(json!({"permission": {"bash": {"*": "ask", "rm *": "deny"}}}))
}

#[tokio::test]
async fn an_ask_survives_a_restart_and_its_answer_lets_the_call_run_once() {
    let mut lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["bash", {"command": "echo once >> done.txt"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let ask = asked(&mut events).await;
    lab.restart().await;
    let open = lab.engine.permissions(&lab.scope).await.unwrap();
    assert_eq!(open.iter().map(|a| &a.id).collect::<Vec<_>>(), [&ask.id]);
    let mut events = lab.recorder().await;
    assert_eq!(lab.engine.recover(None).await.unwrap(), 1);
    lab.engine.reply_permission(&ask.id, reply(PermissionReplyKind::Once)).await.unwrap();
    events.wait_idle(&session).await;
    assert_eq!(lab.project.read("done.txt"), "once\n");
    let tools = lab.tools(&session).await;
    assert!(matches!(&tools[0].state, ToolState::Completed(_)), "{tools:?}");
    assert_eq!(crate::common::text(lab.messages(&session).await.last().unwrap()), "after");
}

#[tokio::test]
async fn a_reply_given_while_no_turn_runs_counts() {
    let mut lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["bash", {"command": "echo x > x.txt"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let ask = asked(&mut events).await;
    lab.restart().await;
    lab.engine.reply_permission(&ask.id, reply(PermissionReplyKind::Once)).await.unwrap();
    let mut events = lab.recorder().await;
    lab.engine.recover(Some(&session)).await.unwrap();
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    assert!(matches!(&tools[0].state, ToolState::Completed(_)), "{tools:?}");
    assert_eq!(lab.project.read("x.txt"), "x\n");
}

#[tokio::test]
async fn unknown_and_answered_asks_are_errors() {
    let lab = asking();
    let session = lab.session().await;
    let unknown = PermissionId::parse("per_nope").unwrap();
    let once = || reply(PermissionReplyKind::Once);
    assert!(matches!(lab.engine.reply_permission(&unknown, once()).await, Err(HostError::NotFound { .. })));
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["bash", {"command": "echo x"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let ask = asked(&mut events).await;
    lab.engine.reply_permission(&ask.id, once()).await.unwrap();
    assert!(matches!(lab.engine.reply_permission(&ask.id, once()).await, Err(HostError::Conflict(_))));
    events.wait_idle(&session).await;
}

#[tokio::test]
async fn an_approval_settles_equal_asks_of_the_project_and_lifts_no_denial() {
    let lab = asking();
    let (one, two) = (lab.session().await, lab.session().await);
    let mut events = lab.recorder().await;
    let steps = |command: &str| script(json!([{"tools": [["bash", {"command": command}]]}, {"text": "after"}]));
    lab.engine.prompt_async(&one, prompt(&steps("echo one"))).await.unwrap();
    let first = asked(&mut events).await;
    lab.engine.prompt_async(&two, prompt(&steps("echo two"))).await.unwrap();
    asked(&mut events).await;
    lab.engine.reply_permission(&first.id, reply(PermissionReplyKind::Always)).await.unwrap();
    events.wait_for(|b| matches!(b, EventBody::SessionIdle { .. })).await;
    events.wait_for(|b| matches!(b, EventBody::SessionIdle { .. })).await;
    assert!(lab.engine.permissions(&lab.scope).await.unwrap().is_empty());
    for session in [&one, &two] {
        assert!(matches!(&lab.tools(session).await[0].state, ToolState::Completed(_)));
    }
    // Another process sees it too.
    let second = lab.second();
    second.prompt(&two, prompt(&steps("echo three"))).await.unwrap();
    lab.say(&one, &steps("rm x")).await;
    let tools = lab.tools(&one).await;
    assert!(matches!(&tools[1].state, ToolState::Error(e) if e.error.contains("denies")), "{tools:?}");
    second.shutdown().await;
}

#[tokio::test]
async fn an_ask_can_be_answered_by_another_process() {
    let lab = asking();
    let session = lab.session().await;
    let second = lab.second();
    let mut there = Recorder::new(Arc::new(second.clone())).await;
    let steps = json!([{"tools": [["bash", {"command": "echo far"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let ask = asked(&mut there).await;
    second.reply_permission(&ask.id, reply(PermissionReplyKind::Once)).await.unwrap();
    there.wait_idle(&session).await;
    assert!(matches!(&lab.tools(&session).await[0].state, ToolState::Completed(_)));
    second.shutdown().await;
}

#[tokio::test]
async fn an_abort_settles_open_asks() {
    let lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["bash", {"command": "echo x"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    asked(&mut events).await;
    lab.engine.abort(&session).await.unwrap();
    events.wait_for(|b| matches!(b, EventBody::PermissionReplied { reply: PermissionReplyKind::Reject, .. })).await;
    assert!(lab.engine.permissions(&lab.scope).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_opaque_command_asks_if_rules_are_narrow() {
    let lab = Lab::with(json!({"permission": {"bash": {"*": "allow", "rm *": "deny"}}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["bash", {"command": "X=rm; $X important.txt"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let ask = asked(&mut events).await;
    lab.engine.reply_permission(&ask.id, reply(PermissionReplyKind::Reject)).await.unwrap();
    events.wait_idle(&session).await;
    let hidden = ["sh -c 'rm x'", "env rm x", "echo $(rm x)", "timeout 5 rm x", "true && rm x", "\"rm\" x"];
    for command in hidden {
        lab.say(&session, &script(json!([{"tools": [["bash", {"command": command}]]}, {"text": "after"}]))).await;
        let last = lab.tools(&session).await.pop().unwrap();
        assert!(matches!(&last.state, ToolState::Error(e) if e.error.contains("denies")), "{command}: {last:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_edit_or_a_read_of_its_file() {
    let lab = Lab::with(json!({"permission": {"edit": "deny", "read": {"secret.txt": "deny"}}}));
    lab.project.write("secret.txt", "s3cret\n");
    let session = lab.session().await;
    for command in ["echo hi > victim.txt", "true && echo hi >> victim.txt", "sort < secret.txt"] {
        lab.say(&session, &script(json!([{"tools": [["bash", {"command": command}]]}, {"text": "after"}]))).await;
        let last = lab.tools(&session).await.pop().unwrap();
        assert!(matches!(&last.state, ToolState::Error(e) if e.error.contains("denies")), "{command}: {last:?}");
    }
    assert!(!lab.project.path().join("victim.txt").exists());
    lab.say(&session, &script(json!([{"tools": [["bash", {"command": "echo hi > /dev/null"}]]}, {"text": "after"}])))
        .await;
    let last = lab.tools(&session).await.pop().unwrap();
    assert!(matches!(&last.state, ToolState::Completed(_)), "{last:?}");
}

#[tokio::test]
async fn nothing_is_revealed_about_a_file_outside_before_it_is_allowed() {
    let lab = Lab::new();
    let outside = lab.project.write_home("outside.txt", "known text\n");
    let session = lab.session().await;
    let guess = json!({"filePath": outside, "oldString": "a guess", "newString": "x"});
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["edit", guess]]}, {"text": "after"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let ask = asked(&mut events).await;
    assert_eq!(ask.permission, "external_directory");
    lab.engine.reply_permission(&ask.id, reply(PermissionReplyKind::Reject)).await.unwrap();
    events.wait_idle(&session).await;
}

#[tokio::test]
async fn a_permission_given_once_does_not_apply_to_a_later_call_with_the_same_id() {
    let lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    for _ in 0..2 {
        let steps = json!([{"tools": [["bash", {"command": "echo again"}]]}, {"text": "after"}]);
        lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
        let ask = asked(&mut events).await;
        lab.engine.reply_permission(&ask.id, reply(PermissionReplyKind::Once)).await.unwrap();
        events.wait_idle(&session).await;
    }
    let tools = lab.tools(&session).await;
    assert_ne!(tools[0].call_id, tools[1].call_id);
}
