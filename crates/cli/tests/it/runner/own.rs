//! Our own agent as the other program.

use api::{Host, PermissionReplyKind, ToolState, TreeState};
use serde_json::json;

use super::fixture::{Fixture, asked, bash, error, output, pipe, run, script, text, told};

#[tokio::test(flavor = "multi_thread")]
async fn its_work_is_a_session_of_ours() {
    let fixture = Fixture::new(json!({}));
    let session = fixture.session().await;
    let path = fixture.project.path().join("made.txt");
    let steps = json!([
        {"reasoning": "thinking", "text": "Writing. ", "tools": [["write", {"filePath": path, "content": "from it\n"}]]},
        {"tools": [["todowrite", {"todos": [{"content": "one", "status": "pending", "priority": "high"}]}]]},
        {"tools": [bash("echo heard")], "usage": {"prompt_tokens": 100, "completion_tokens": 20}},
        {"text": "All done."},
    ]);
    let task = fixture.delegate(&session, &script(steps)).await;
    assert!(output(&task).contains("All done."), "{}", output(&task));
    assert_eq!(fixture.project.read("made.txt"), "from it\n");

    let child = fixture.child(&session).await;
    assert_eq!((child.agent.as_deref(), child.parent_id.as_ref()), (Some("other"), Some(&session)));
    let messages = fixture.messages(&child.id).await;
    assert_eq!(messages.len(), 2, "{messages:#?}");
    let answer = messages[1].info.as_assistant().unwrap();
    assert_eq!((answer.finish.as_deref(), answer.provider_id.as_str()), (Some("stop"), "acp"));
    assert!(answer.tokens.output > 0 && answer.time.completed.is_some(), "{answer:#?}");
    assert!(text(&messages).contains("Writing. ") && text(&messages).ends_with("All done."));
    assert!(messages[1].parts.iter().any(|part| matches!(part, api::Part::Reasoning(r) if r.text == "thinking")));
    let tools = fixture.tools(&child.id).await;
    let names: Vec<_> = tools.iter().map(|tool| (tool.tool.as_str(), tool.state.status())).collect();
    assert_eq!(names, [("write", "completed"), ("todowrite", "completed"), ("bash", "completed")]);
    assert!(output(&tools[2]).contains("heard"), "{:#?}", tools[2]);
    let ToolState::Completed(wrote) = &tools[0].state else { unreachable!() };
    assert!(wrote.metadata["diff"].as_str().unwrap().contains("+from it"), "{wrote:#?}");
    let todos = fixture.engine.todo(&child.id).await.unwrap();
    assert_eq!(todos.len(), 1);

    let tree = fixture.engine.tree(&session).await.unwrap();
    let node = tree.sessions.iter().find(|node| node.session_id == child.id).unwrap();
    assert_eq!((node.state, node.own.steps, node.own.tool_calls, node.own.files), (TreeState::Idle, 1, 3, 1));
    assert_eq!(node.own.estimated_tokens, 0, "it counts its tokens: {node:#?}");
    assert!(tree.sessions[0].total.tokens.output >= node.own.tokens.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_permissions_are_judged_by_our_rules_then_by_a_human() {
    let fixture = Fixture::new(json!({"permission": {"bash": {"*": "ask", "rm *": "deny", "echo free*": "allow"}}}));
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    let steps = json!([
        {"tools": [bash("echo free > free.txt")]}, {"tools": [bash("touch asked.txt")]}, {"tools": [bash("touch no.txt")]},
    ]);
    fixture.begin(&session, &script(steps)).await;
    let ask = asked(&mut events).await;
    let child = fixture.child(&session).await;
    assert_eq!(
        (&ask.session_id, ask.permission.as_str(), &ask.patterns[..]),
        (&child.id, "bash", &["touch asked.txt".to_owned()][..])
    );
    assert_eq!(ask.metadata["subagent"]["rootID"], session.as_str());
    assert!(fixture.project.path().join("free.txt").exists() && !fixture.project.path().join("asked.txt").exists());
    let tree = fixture.engine.tree(&session).await.unwrap();
    assert_eq!(tree.sessions[0].asks.len(), 1, "the root knows of it");
    fixture.answer(&ask, PermissionReplyKind::Once).await;
    let second = asked(&mut events).await;
    assert_eq!(second.patterns, ["touch no.txt"], "what was allowed is not asked again for its terminal");
    fixture.answer(&second, PermissionReplyKind::Reject).await;
    events.wait_idle(&session).await;
    assert!(fixture.project.path().join("asked.txt").exists() && !fixture.project.path().join("no.txt").exists());
    let tools = fixture.tools(&child.id).await;
    let states: Vec<_> = tools.iter().map(|tool| tool.state.status()).collect();
    assert_eq!(states, ["completed", "completed", "error"], "{tools:#?}");
    fixture.project.write("kept.txt", "");
    fixture.delegate(&session, &script(json!([{"tools": [bash("rm kept.txt")]}]))).await;
    assert!(fixture.project.path().join("kept.txt").exists(), "a rule denies it, and nobody is asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_task_goes_on_in_the_same_session_of_the_agent() {
    let fixture = Fixture::new(json!({}));
    let session = fixture.session().await;
    fixture.delegate(&session, &script(json!([{"text": "First."}]))).await;
    let child = fixture.child(&session).await;
    let again = json!({"description": "More", "prompt": script(json!([{"text": "Second."}])), "subagent_type": "other",
        "task_id": child.id});
    let task = fixture.task(&session, again).await;
    assert!(output(&task).contains("Second."), "{}", output(&task));
    assert_eq!(fixture.child(&session).await.id, child.id);
    assert_eq!(text(&fixture.messages(&child.id).await), "First.Second.", "nothing is shown twice");
    let home = fixture.project.root().join("other/data");
    let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.env("XDG_DATA_HOME", home).args(["session", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&run(command).await.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_it_with_all_that_it_started() {
    let fixture = Fixture::new(json!({}));
    pipe(&fixture, "pid");
    let session = fixture.session().await;
    fixture.begin(&session, &script(json!([{"tools": [bash("echo $$ > pid; exec sleep 300")]}]))).await;
    let pid = told(&fixture, "pid");
    let child = fixture.child(&session).await;
    fixture.engine.cancel(&session).await.unwrap();
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "its command is gone when cancel returns");
    let tree = fixture.engine.tree(&session).await.unwrap();
    let node = tree.sessions.iter().find(|node| node.session_id == child.id).unwrap();
    assert_eq!(node.state, TreeState::Cancelled);
    let task = fixture.tools(&session).await.remove(0);
    assert_eq!(error(&task), "Task cancelled");
    let left = fixture.tools(&child.id).await.remove(0);
    assert!(left.state.is_done(), "{left:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_the_running_turn_reaches_it() {
    let fixture = Fixture::new(json!({"permission": {"bash": "ask"}}));
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, &script(json!([{"tools": [bash("true")]}, {"text": "Old end."}]))).await;
    let ask = asked(&mut events).await;
    let child = fixture.child(&session).await;
    let steer = api::SteerInput { text: Some(script(json!([{"text": "New end."}]))), ..api::SteerInput::default() };
    fixture.engine.steer(&child.id, steer).await.unwrap();
    let joined = |body: &api::EventBody| {
        matches!(body, api::EventBody::MessageUpdated { info, .. }
            if info.session_id() == &child.id && info.as_assistant().is_some_and(|a| a.time.completed.is_none()))
    };
    // The answering message is created once the agent has accepted it.
    let messages = fixture.messages(&child.id).await;
    if messages.iter().filter(|m| m.info.as_assistant().is_some()).count() < 2 {
        events.wait_for(joined).await;
    }
    fixture.answer(&ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let task = fixture.tools(&session).await.remove(0);
    assert!(output(&task).contains("New end.") && !output(&task).contains("Old end."), "{}", output(&task));
    let messages = fixture.messages(&child.id).await;
    let roles: Vec<_> = messages.iter().map(|m| m.info.as_assistant().is_some()).collect();
    assert_eq!(roles, [false, true, false, true], "{messages:#?}");
    assert_eq!(messages[3].info.as_assistant().unwrap().parent_id, *messages[2].info.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn its_own_subagents_are_seen_in_their_call() {
    let fixture = Fixture::new(json!({}));
    let session = fixture.session().await;
    let inner = script(json!([{"tools": [bash("echo deep")]}, {"text": "Seen."}]));
    let call = json!({"description": "Look closely", "prompt": inner, "subagent_type": "general"});
    let task = fixture.delegate(&session, &script(json!([{"tools": [["task", call]]}, {"text": "Done."}]))).await;
    assert!(output(&task).contains("Done."));
    let tools = fixture.tools(&fixture.child(&session).await.id).await;
    let task = tools.iter().find(|tool| tool.tool == "task").unwrap();
    assert_eq!(tools.iter().filter(|tool| tool.tool == "task").count(), 1, "{tools:#?}");
    let ToolState::Completed(done) = &task.state else { panic!("{task:#?}") };
    let summary = done.metadata["summary"].as_array().unwrap();
    assert!(
        summary.iter().any(|entry| entry["tool"] == "bash" && entry["state"]["status"] == "completed"),
        "{done:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_stops_it() {
    let fixture = Fixture::new(json!({}));
    let session = fixture.session().await;
    let call = json!({"description": "Do it", "prompt": script(json!([{"tools": [bash("sleep 300")]}])),
        "subagent_type": "other", "budget": {"seconds": 5}});
    let task = fixture.task(&session, call).await;
    assert!(error(&task).contains("(5 s) is used up"), "{}", error(&task));
}
