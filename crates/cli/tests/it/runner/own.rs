//! With our own agent as the other one.

use api::{Host, PermissionReplyKind, ToolState, TreeState};
use serde_json::json;

use super::lab::{Lab, asked, bash, error, output, pipe, run, script, text, told};

#[tokio::test(flavor = "multi_thread")]
async fn its_work_is_a_session_of_ours() {
    let lab = Lab::new(json!({}));
    let session = lab.session().await;
    let path = lab.project.path().join("made.txt");
    let steps = json!([
        {"reasoning": "thinking", "text": "Writing. ", "tools": [["write", {"filePath": path, "content": "from it\n"}]]},
        {"tools": [["todowrite", {"todos": [{"content": "one", "status": "pending", "priority": "high"}]}]]},
        {"tools": [bash("echo heard")], "usage": {"prompt_tokens": 100, "completion_tokens": 20}},
        {"text": "All done."},
    ]);
    let task = lab.delegate(&session, &script(steps)).await;
    assert!(output(&task).contains("All done."), "{}", output(&task));
    assert_eq!(lab.project.read("made.txt"), "from it\n");

    let child = lab.child(&session).await;
    assert_eq!((child.agent.as_deref(), child.parent_id.as_ref()), (Some("other"), Some(&session)));
    let messages = lab.messages(&child.id).await;
    assert_eq!(messages.len(), 2, "{messages:#?}");
    let answer = messages[1].info.as_assistant().unwrap();
    assert_eq!((answer.finish.as_deref(), answer.provider_id.as_str()), (Some("stop"), "acp"));
    assert!(answer.tokens.output > 0 && answer.time.completed.is_some(), "{answer:#?}");
    assert!(text(&messages).contains("Writing. ") && text(&messages).ends_with("All done."));
    assert!(messages[1].parts.iter().any(|part| matches!(part, api::Part::Reasoning(r) if r.text == "thinking")));
    let tools = lab.tools(&child.id).await;
    let names: Vec<_> = tools.iter().map(|tool| (tool.tool.as_str(), tool.state.status())).collect();
    assert_eq!(names, [("write", "completed"), ("todowrite", "completed"), ("bash", "completed")]);
    assert!(output(&tools[2]).contains("heard"), "{:#?}", tools[2]);
    let ToolState::Completed(wrote) = &tools[0].state else { unreachable!() };
    assert!(wrote.metadata["diff"].as_str().unwrap().contains("+from it"), "{wrote:#?}");
    let todos = lab.engine.todo(&lab.scope, &child.id).await.unwrap();
    assert_eq!(todos.len(), 1);

    let tree = lab.engine.tree(&lab.scope, &session).await.unwrap();
    let node = tree.sessions.iter().find(|node| node.session_id == child.id).unwrap();
    assert_eq!((node.state, node.own.steps, node.own.tool_calls, node.own.files), (TreeState::Idle, 1, 3, 1));
    assert_eq!(node.own.estimated_tokens, 0, "it counts its tokens: {node:#?}");
    assert!(tree.sessions[0].total.tokens.output >= node.own.tokens.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_permissions_are_judged_by_our_rules_then_by_a_human() {
    let lab = Lab::new(json!({"permission": {"bash": {"*": "ask", "rm *": "deny", "echo free*": "allow"}}}));
    let mut events = lab.recorder().await;
    let session = lab.session().await;
    let steps = json!([
        {"tools": [bash("echo free > free.txt")]}, {"tools": [bash("touch asked.txt")]}, {"tools": [bash("touch no.txt")]},
    ]);
    lab.begin(&session, &script(steps)).await;
    let ask = asked(&mut events).await;
    let child = lab.child(&session).await;
    assert_eq!(
        (&ask.session_id, ask.permission.as_str(), &ask.patterns[..]),
        (&child.id, "bash", &["touch asked.txt".to_owned()][..])
    );
    assert_eq!(ask.metadata["subagent"]["rootID"], session.as_str());
    assert!(lab.project.path().join("free.txt").exists() && !lab.project.path().join("asked.txt").exists());
    let tree = lab.engine.tree(&lab.scope, &session).await.unwrap();
    assert_eq!(tree.sessions[0].asks.len(), 1, "the root knows of it");
    lab.answer(&ask, PermissionReplyKind::Once).await;
    let second = asked(&mut events).await;
    assert_eq!(second.patterns, ["touch no.txt"], "what was allowed is not asked again for its terminal");
    lab.answer(&second, PermissionReplyKind::Reject).await;
    events.wait_idle(&session).await;
    assert!(lab.project.path().join("asked.txt").exists() && !lab.project.path().join("no.txt").exists());
    let tools = lab.tools(&child.id).await;
    let states: Vec<_> = tools.iter().map(|tool| tool.state.status()).collect();
    assert_eq!(states, ["completed", "completed", "error"], "{tools:#?}");
    lab.project.write("kept.txt", "");
    lab.delegate(&session, &script(json!([{"tools": [bash("rm kept.txt")]}]))).await;
    assert!(lab.project.path().join("kept.txt").exists(), "a rule denies it, and nobody is asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_task_goes_on_in_the_same_session_of_the_agent() {
    let lab = Lab::new(json!({}));
    let session = lab.session().await;
    lab.delegate(&session, &script(json!([{"text": "First."}]))).await;
    let child = lab.child(&session).await;
    let again = json!({"description": "More", "prompt": script(json!([{"text": "Second."}])), "subagent_type": "other",
        "task_id": child.id});
    let task = lab.task(&session, again).await;
    assert!(output(&task).contains("Second."), "{}", output(&task));
    assert_eq!(lab.child(&session).await.id, child.id);
    assert_eq!(text(&lab.messages(&child.id).await), "First.Second.", "nothing is shown twice");
    let home = lab.project.root().join("other/data");
    let mut command = lab.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.env("XDG_DATA_HOME", home).args(["session", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&run(command).await.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_it_with_all_that_it_started() {
    let lab = Lab::new(json!({}));
    pipe(&lab, "pid");
    let session = lab.session().await;
    lab.begin(&session, &script(json!([{"tools": [bash("echo $$ > pid; exec sleep 300")]}]))).await;
    let pid = told(&lab, "pid");
    let child = lab.child(&session).await;
    lab.engine.cancel(&lab.scope, &session).await.unwrap();
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "its command is gone when cancel returns");
    let tree = lab.engine.tree(&lab.scope, &session).await.unwrap();
    let node = tree.sessions.iter().find(|node| node.session_id == child.id).unwrap();
    assert_eq!(node.state, TreeState::Cancelled);
    let task = lab.tools(&session).await.remove(0);
    assert_eq!(error(&task), "Task cancelled");
    let left = lab.tools(&child.id).await.remove(0);
    assert!(left.state.is_done(), "{left:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_the_running_turn_reaches_it() {
    let lab = Lab::new(json!({"permission": {"bash": "ask"}}));
    let mut events = lab.recorder().await;
    let session = lab.session().await;
    lab.begin(&session, &script(json!([{"tools": [bash("true")]}, {"text": "Old end."}]))).await;
    let ask = asked(&mut events).await;
    let child = lab.child(&session).await;
    let steer = api::SteerInput { text: Some(script(json!([{"text": "New end."}]))), ..api::SteerInput::default() };
    lab.engine.steer(&lab.scope, &child.id, steer).await.unwrap();
    let joined = |body: &api::EventBody| {
        matches!(body, api::EventBody::MessageUpdated { info, .. }
            if info.session_id() == &child.id && info.as_assistant().is_some_and(|a| a.time.completed.is_none()))
    };
    // The message that answers it is opened once the agent has taken it in.
    let messages = lab.messages(&child.id).await;
    if messages.iter().filter(|m| m.info.as_assistant().is_some()).count() < 2 {
        events.wait_for(joined).await;
    }
    lab.answer(&ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let task = lab.tools(&session).await.remove(0);
    assert!(output(&task).contains("New end.") && !output(&task).contains("Old end."), "{}", output(&task));
    let messages = lab.messages(&child.id).await;
    let roles: Vec<_> = messages.iter().map(|m| m.info.as_assistant().is_some()).collect();
    assert_eq!(roles, [false, true, false, true], "{messages:#?}");
    assert_eq!(messages[3].info.as_assistant().unwrap().parent_id, *messages[2].info.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn its_own_subagents_are_seen_in_their_call() {
    let lab = Lab::new(json!({}));
    let session = lab.session().await;
    let inner = script(json!([{"tools": [bash("echo deep")]}, {"text": "Seen."}]));
    let call = json!({"description": "Look closely", "prompt": inner, "subagent_type": "general"});
    let task = lab.delegate(&session, &script(json!([{"tools": [["task", call]]}, {"text": "Done."}]))).await;
    assert!(output(&task).contains("Done."));
    let tools = lab.tools(&lab.child(&session).await.id).await;
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
    let lab = Lab::new(json!({}));
    let session = lab.session().await;
    let call = json!({"description": "Do it", "prompt": script(json!([{"tools": [bash("sleep 300")]}])),
        "subagent_type": "other", "budget": {"seconds": 5}});
    let task = lab.task(&session, call).await;
    assert!(error(&task).contains("(5 s) is used up"), "{}", error(&task));
}
