//! Subagents: recorded order, limits, asks, abort as a barrier, restarts.

use crate::common::family::{
    answer, asked, asking, bash, blocking_command, children, error, is_alive, last, only_child, output, ready, start,
    task,
};
use crate::common::{Lab, prompt, script, text};
use api::{
    CommandInput, CreateSession, EventBody, Host, MessageError, Part, PermissionReplyKind, PromptInput, PromptPart,
    SessionStatus, ToolState,
};
use serde_json::{Value, json};

/// Replays a recorded scenario and compares the outline of every session.
async fn replay(scenario: &str, config: Value) {
    let recorded = testkit::recorded_events(scenario);
    let sessions = testkit::by_session(&recorded);
    let of_turns: Vec<_> = sessions.iter().filter(|(id, _)| !id.is_empty()).collect();
    let parent = &of_turns[0];
    let prompts = parent.1.iter().filter_map(|event| {
        let part = &event["properties"]["part"];
        let typed = part["type"] == "text" && part["time"].is_null() && part["synthetic"].is_null();
        let subtask = part["type"] == "subtask";
        (event["type"] == "message.part.updated" && (typed || subtask)).then(|| part.clone())
    });
    let lab = Lab::with(config);
    lab.project.write("hello.txt", "hello world\n");
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    for part in prompts {
        let mut text = part["text"].as_str().unwrap_or_default().to_owned();
        for name in ["proj-ask", "proj2", "proj"] {
            text = text.replace(&format!("/home/user/{name}"), &lab.project.directory());
        }
        // The recorded model has a special answer for these words.
        text = text.replace("\"kw:hello again\"", &json!(script(json!([{"text": "again"}]))).to_string());
        for ((recorded, _), ours) in of_turns[1..].iter().zip(children(&lab, &session).await) {
            text = text.replace(recorded, ours.id.as_str());
        }
        let part = if part["type"] == "subtask" {
            serde_json::from_value(json!({"type": "subtask", "prompt": part["prompt"],
                "description": part["description"], "agent": part["agent"]}))
            .unwrap()
        } else {
            PromptPart::text(text)
        };
        let input = PromptInput { parts: vec![part], ..PromptInput::default() };
        lab.engine.prompt_async(&session, input).await.unwrap();
        loop {
            let event = events
                .wait_for(|body| match body {
                    EventBody::PermissionAsked(_) => true,
                    EventBody::SessionIdle { session_id } => *session_id == session,
                    _ => false,
                })
                .await;
            let EventBody::PermissionAsked(ask) = &event.body else { break };
            assert_ne!(ask.session_id, session, "the child asks");
            answer(&lab, ask, PermissionReplyKind::Once).await;
        }
    }
    let ours: Vec<Value> = events.events().iter().map(|e| serde_json::to_value(&**e).unwrap()).collect();
    let ours: Vec<_> = testkit::by_session(&ours).into_iter().filter(|(id, _)| !id.is_empty()).collect();
    assert_eq!(ours.len(), of_turns.len());
    for ((_, ours), (_, recorded)) in ours.iter().zip(of_turns) {
        assert_eq!(testkit::outline(ours), testkit::outline(recorded), "{scenario}: ours, then as recorded");
    }
    lab.engine.shutdown().await;
}

#[tokio::test]
async fn general_is_as_recorded() {
    replay("06_task_general", json!({})).await;
}

#[tokio::test]
async fn two_parallel_tasks_are_as_recorded() {
    replay("06_task_explore_parallel", json!({})).await;
}

#[tokio::test]
async fn the_ask_of_a_child_is_as_recorded() {
    replay("15_permission_task_child", json!({"permission": {"bash": "ask"}})).await;
}

#[tokio::test]
async fn an_agent_without_a_rule_about_tasks_gets_none_as_recorded() {
    let agent = json!({"mode": "subagent", "description": "p"});
    replay("24_nested_task_depth2", json!({"subagent_depth": 2, "agent": {"plural": agent}})).await;
}

#[tokio::test]
async fn the_result_and_what_clients_see_of_the_child() {
    let lab = Lab::new();
    assert!(lab.engine.tools(&lab.scope, None).await.iter().any(|tool| tool.name() == "task"));
    lab.project.write("hello.txt", "hello\n");
    let session = lab.session().await;
    let steps =
        json!([{"tools": [["read", {"filePath": lab.project.path().join("hello.txt")}]]}, {"text": "It says hello"}]);
    let parent = json!([{"tools": [task("Read it", "explore", steps)]}, {"text": "Thanks"}]);
    assert_eq!(text(&lab.say(&session, &script(parent)).await), "Thanks");
    let child = only_child(&lab, &session).await;
    assert_eq!(child.title, "Read it (@explore subagent)");
    assert_eq!(child.agent.as_deref(), Some("explore"));
    let rules = json!([{"permission": "todowrite", "pattern": "*", "action": "deny"},
        {"permission": "task", "pattern": "*", "action": "deny"}]);
    assert_eq!(json!(child.permission), rules);
    let tools = lab.tools(&session).await;
    let id = &child.id;
    assert_eq!(
        output(&tools[0]),
        format!(
            "<task id=\"{id}\" state=\"completed\">\n<task_result>\nIt says hello\n</task_result>\n</task>\n\n\
             <task_metadata>\nsession_id: {id}\n</task_metadata>"
        )
    );
    let ToolState::Completed(done) = &tools[0].state else { unreachable!() };
    let read = &lab.tools(id).await[0];
    assert_eq!(
        json!(done.metadata),
        json!({"parentSessionId": session, "sessionId": id, "truncated": false,
            "model": {"providerID": "script", "modelID": "demo"},
            "summary": [{"id": read.head.id, "tool": "read", "state": {"status": "completed", "title": "hello.txt"}}]})
    );
}

#[tokio::test]
async fn a_call_shows_its_child_and_its_progress() {
    let lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{"tools": [bash("true")]}, {"text": "x"}]);
    start(&lab, &session, json!([{"tools": [task("Wait", "general", child)]}, {"text": "end"}])).await;
    let running = |body: &EventBody| {
        let EventBody::PartUpdated { part, .. } = body else { return None };
        let tool = part.as_tool().filter(|tool| tool.tool == "task")?;
        let ToolState::Running(running) = &tool.state else { return None };
        Some(json!([running.title, running.metadata]))
    };
    let first = running(&events.wait_for(|body| running(body).is_some()).await.body).unwrap();
    assert_eq!(first[0], "Wait");
    let child = only_child(&lab, &session).await;
    assert_eq!(first[1]["sessionId"], json!(child.id));
    let working = |body: &EventBody| running(body).is_some_and(|seen| seen[1]["summary"][0]["tool"] == "bash");
    let seen = running(&events.wait_for(working).await.body).unwrap();
    assert!(["pending", "running"].contains(&seen[1]["summary"][0]["state"]["status"].as_str().unwrap()), "{seen}");
    lab.engine.abort(&session).await.unwrap();
}

#[tokio::test]
async fn a_task_continues_by_its_id_only_in_its_own_session() {
    let lab = Lab::new();
    let session = lab.session().await;
    lab.say(&session, &script(json!([{"tools": [task("One", "general", json!([{"text": "1"}]))]}, {"text": "."}])))
        .await;
    let child = only_child(&lab, &session).await.id;
    for key in ["task_id", "session_id"] {
        let mut again = task("Two", "general", json!([{"text": "again"}]));
        again[1][key] = json!(child);
        lab.say(&session, &script(json!([{"tools": [again.clone()]}, {"text": "."}]))).await;
        let tools = lab.tools(&session).await;
        assert!(output(tools.last().unwrap()).contains("\nagain\n"), "{tools:#?}");
        assert_eq!(only_child(&lab, &session).await.id, child);
        let other = lab.session().await;
        lab.say(&other, &script(json!([{"tools": [again]}, {"text": "."}]))).await;
        let refused = &lab.tools(&other).await[0];
        assert!(error(refused).contains(&format!("no task {child} of this session")), "{refused:#?}");
    }
    assert_eq!(lab.messages(&child).await.len(), 6);
    lab.engine.delete_session(&child).await.unwrap();
    let mut gone = task("Three", "general", json!([]));
    gone[1]["task_id"] = json!(child);
    lab.say(&session, &script(json!([{"tools": [gone]}, {"text": "."}]))).await;
    assert!(error(lab.tools(&session).await.last().unwrap()).contains("deleted"));
}

#[tokio::test]
async fn unknown_agents_and_failing_children_are_errors_that_the_parent_can_read() {
    let lab = Lab::new();
    let session = lab.session().await;
    let failing = json!([{"http_error": 400, "error_body": {"error": {"message": "bad child"}}}]);
    let steps = json!([
        {"tools": [task("X", "nope", json!([])), task("Y", "build", json!([]))]},
        {"tools": [task("Z", "general", failing)]},
        {"text": "after"}
    ]);
    assert_eq!(text(&lab.say(&session, &script(steps)).await), "after");
    let tools = lab.tools(&session).await;
    assert_eq!(error(&tools[0]), "Unknown agent type: nope is not a valid agent type");
    assert_eq!(error(&tools[1]), "Unknown agent type: build is not a valid agent type");
    let child = only_child(&lab, &session).await.id;
    assert_eq!(error(&tools[2]), format!("Subagent failed (task_id: {child}): bad child"));
}

#[tokio::test]
async fn depth_and_number_are_limited() {
    let lead = json!({"mode": "subagent", "description": "l", "permission": {"task": "allow"}});
    let lab = Lab::with(json!({"subagent_depth": 2, "agent": {"lead": lead}}));
    let session = lab.session().await;
    let deepest = json!([{"tools": [task("L3", "general", json!([]))]}, {"text": "bottom"}]);
    let middle = json!([{"tools": [task("L2", "lead", deepest)]}, {"text": "middle"}]);
    lab.say(&session, &script(json!([{"tools": [task("L1", "lead", middle)]}, {"text": "top"}]))).await;
    let middle = only_child(&lab, &session).await;
    assert!(!json!(middle.permission).to_string().contains("\"task\""), "{middle:#?}");
    let bottom = only_child(&lab, &middle.id).await;
    let tools = lab.tools(&bottom.id).await;
    assert_eq!(tools[0].tool, "invalid", "{tools:#?}");
    assert!(output(&tools[0]).contains("unavailable tool 'task'"));
    assert!(output(&lab.tools(&middle.id).await[0]).contains("bottom"));
    // A session that a client created at that depth.
    let input = CreateSession { parent_id: Some(bottom.id.clone()), ..CreateSession::default() };
    let deep = lab.engine.create_session(&lab.scope, input).await.unwrap().id;
    let call = script(json!([{"tools": [task("L4", "general", json!([]))]}, {"text": "."}]));
    lab.say(&deep, &call).await;
    let limit = "Subagent depth limit reached (2). Increase \"subagent_depth\" to allow nested subagents.";
    assert_eq!(error(&lab.tools(&deep).await[0]), limit);
    for _ in 0..97 {
        let input = CreateSession { parent_id: Some(middle.id.clone()), ..CreateSession::default() };
        lab.engine.create_session(&lab.scope, input).await.unwrap();
    }
    lab.say(&session, &script(json!([{"tools": [task("too many", "general", json!([]))]}, {"text": "."}]))).await;
    let refused = lab.tools(&session).await.pop().unwrap();
    assert!(error(&refused).contains("have 100 subagents, which is the maximum"), "{refused:#?}");
}

#[tokio::test]
async fn endless_delegation_is_stopped_by_the_default_limits() {
    let lab = Lab::with(json!({"agent": {"general": {"permission": {"task": "allow"}}}}));
    let session = lab.session().await;
    // Vary the calls, because repeating the same call asks for permission.
    let three = |below: Value| {
        let calls = ["One", "Two", "Three"].map(|name| task(name, "general", below.clone()));
        json!([{"tools": calls}, {"text": "."}])
    };
    lab.say(&session, &script(three(three(three(json!([])))))).await;
    let tree = lab.engine.tree(&session).await.unwrap().sessions;
    assert_eq!(tree.len(), 4, "{tree:#?}");
    for child in &tree[1..] {
        let calls = lab.tools(&child.session_id).await;
        assert!(calls.len() == 3 && calls.iter().all(|call| output(call).contains("unavailable tool 'task'")));
    }
}

#[tokio::test]
async fn a_subagent_may_not_do_what_its_caller_may_not() {
    let writer = json!({"mode": "subagent", "description": "w"});
    let lab = Lab::with(json!({"agent": {"writer": writer}}));
    let session = lab.session().await;
    let write = json!([{"tools": [["write", {"filePath": "x.txt", "content": "x"}]]}, {"text": "end"}]);
    let steps = script(json!([{"tools": [task("Write", "writer", write)]}, {"text": "."}]));
    let input = PromptInput { agent: Some("plan".to_owned()), ..prompt(&steps) };
    lab.engine.prompt(&session, input).await.unwrap();
    let child = only_child(&lab, &session).await;
    assert_eq!(lab.tools(&child.id).await[0].tool, "invalid");
    assert!(!lab.project.path().join("x.txt").exists());
}

#[tokio::test]
async fn eight_subagents_work_concurrently_and_the_others_wait() {
    let lab = asking();
    let session = lab.session().await;
    let (mut events, mut births) = (lab.recorder().await, lab.recorder().await);
    let tasks: Vec<Value> = (0..10)
        .map(|n| task(&format!("T{n}"), "general", json!([{"tools": [bash(&format!("echo {n}"))]}, {"text": "done"}])))
        .collect();
    start(&lab, &session, json!([{"tools": tasks}, {"text": "all"}])).await;
    let mut asks = Vec::new();
    for _ in 0..8 {
        asks.push(asked(&mut events).await);
    }
    for _ in 0..10 {
        births.wait_for(|b| matches!(b, EventBody::SessionCreated { .. })).await;
    }
    let children = children(&lab, &session).await;
    assert_eq!(children.len(), 10);
    let mut idle = Vec::new();
    for child in &children {
        if lab.messages(&child.id).await.is_empty() {
            idle.push(&child.id);
        }
    }
    assert_eq!(idle.len(), 2, "two wait");
    assert_eq!(lab.engine.permissions(&lab.scope).await.unwrap().len(), 8);
    answer(&lab, &asks.pop().unwrap(), PermissionReplyKind::Once).await;
    let ninth = asked(&mut events).await;
    assert!(idle.contains(&&ninth.session_id));
    asks.push(ninth);
    for ask in asks {
        answer(&lab, &ask, PermissionReplyKind::Once).await;
    }
    answer(&lab, &asked(&mut events).await, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert!(lab.tools(&session).await.iter().all(|tool| output(tool).contains("\ndone\n")));
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "all");
}

#[tokio::test]
async fn a_rejected_ask_of_a_child_ends_the_child_and_the_parent_is_told() {
    let lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{"tools": [bash("echo x > x.txt")]}, {"text": "never"}]);
    start(&lab, &session, json!([{"tools": [task("Try", "general", child)]}, {"text": "told"}])).await;
    let ask = asked(&mut events).await;
    assert_eq!(ask.session_id, only_child(&lab, &session).await.id);
    answer(&lab, &ask, PermissionReplyKind::Reject).await;
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    assert!(output(&tools[0]).contains("The user rejected permission"), "{tools:#?}");
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "told");
    assert!(!lab.project.path().join("x.txt").exists());
}

#[tokio::test]
async fn an_abort_returns_once_nothing_in_the_tree_runs() {
    let lead = json!({"mode": "subagent", "description": "l", "permission": {"task": "allow"}});
    let lab = Lab::with(json!({"subagent_depth": 2, "agent": {"lead": lead}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let below = json!([{"tools": [blocking_command("deep")]}, {"text": "never"}]);
    let middle = json!([{"tools": [task("Below", "general", below)]}, {"text": "never"}]);
    let beside = json!([{"tools": [blocking_command("beside")]}, {"text": "never"}]);
    let tasks = json!([task("Middle", "lead", middle), task("Beside", "general", beside)]);
    start(&lab, &session, json!([{"tools": tasks}, {"text": "never"}])).await;
    ready(&mut events).await;
    ready(&mut events).await;
    assert!(is_alive(&lab, "deep") && is_alive(&lab, "beside"));
    assert!(lab.engine.abort(&session).await.unwrap());
    assert_eq!(lab.engine.running(), 0);
    assert_eq!(lab.engine.statuses(&lab.scope).await.unwrap().len(), 0);
    assert!(!is_alive(&lab, "deep") && !is_alive(&lab, "beside"));
    let mut sessions = vec![session.clone()];
    for child in children(&lab, &session).await {
        sessions.extend(children(&lab, &child.id).await.into_iter().map(|below| below.id));
        sessions.push(child.id);
    }
    assert_eq!(sessions.len(), 4);
    events.wait_idle(&session).await;
    for id in &sessions {
        assert!(matches!(last(&lab, id).await.error, Some(MessageError::MessageAbortedError(_))));
        let ends = events
            .events()
            .iter()
            .filter(|e| matches!(&e.body, EventBody::SessionIdle { session_id } if session_id == id))
            .count();
        assert_eq!(ends, 1);
    }
    let tools = lab.tools(&session).await;
    assert!(tools.iter().all(|tool| error(tool) == "Task cancelled"), "{tools:#?}");
    assert!(!lab.engine.abort(&session).await.unwrap(), "nothing is left to stop");
}

#[tokio::test]
async fn an_abort_from_another_process_waits_for_the_tree_too() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{"tools": [blocking_command("pid")]}, {"text": "never"}]);
    start(&lab, &session, json!([{"tools": [task("Stay", "general", child)]}, {"text": "never"}])).await;
    ready(&mut events).await;
    assert!(lab.second().abort(&session).await.unwrap());
    assert!(!is_alive(&lab, "pid"));
    assert_eq!(lab.engine.statuses(&lab.scope).await.unwrap().len(), 0);
    assert_eq!(error(&lab.tools(&session).await[0]), "Task cancelled");
}

#[tokio::test]
async fn aborting_one_child_leaves_its_siblings_and_parent_running() {
    let lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = |n: u32| json!([{"tools": [bash(&format!("echo {n}"))]}, {"text": "sibling done"}]);
    let tasks = json!([task("One", "general", steps(1)), task("Two", "general", steps(2))]);
    start(&lab, &session, json!([{"tools": tasks}, {"text": "went on"}])).await;
    let (one, two) = (asked(&mut events).await, asked(&mut events).await);
    assert!(lab.engine.abort(&one.session_id).await.unwrap());
    assert_eq!(lab.engine.statuses(&lab.scope).await.unwrap().get(&session), Some(&SessionStatus::Busy));
    answer(&lab, &two, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    let (stopped, done): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| matches!(tool.state, ToolState::Error(_)));
    assert_eq!((stopped.len(), done.len()), (1, 1), "{tools:#?}");
    assert_eq!(error(stopped[0]), "Task cancelled");
    assert!(output(done[0]).contains("sibling done"));
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "went on");
}

/// A call finds its child again both after a stop and after a crash.
#[tokio::test]
async fn an_interrupted_call_waits_for_the_same_child_and_gets_its_result_once() {
    let mut lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{"tools": [bash("echo ran >> effects")]}, {"text": "finished"}]);
    start(&lab, &session, json!([{"tools": [task("Work", "general", child)]}, {"text": "end"}])).await;
    let ask = asked(&mut events).await;
    for only in [Some(&session), None] {
        lab.restart().await;
        events = lab.recorder().await;
        // Whichever is recovered first, and even if only the parent is, the child works for it.
        assert!(lab.engine.recover(only).await.unwrap() >= 1);
        // The call shows again that it waits for its child.
        events.wait_for(|b| matches!(b, EventBody::PartUpdated { session_id, .. } if *session_id == session)).await;
    }
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert_eq!(lab.project.read("effects"), "ran\n");
    let child = only_child(&lab, &session).await.id;
    assert_eq!(child, ask.session_id);
    assert_eq!(lab.messages(&child).await.iter().filter(|m| m.info.as_user().is_some()).count(), 1);
    let tools = lab.tools(&session).await;
    assert_eq!(tools.len(), 1);
    assert!(output(&tools[0]).contains("\nfinished\n"), "{tools:#?}");
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "end");
}

#[tokio::test]
async fn deleting_a_parent_deletes_its_working_children() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{"tools": [blocking_command("pid")]}, {"text": "never"}]);
    start(&lab, &session, json!([{"tools": [task("Stay", "general", child)]}, {"text": "never"}])).await;
    ready(&mut events).await;
    let child = only_child(&lab, &session).await.id;
    lab.engine.delete_session(&session).await.unwrap();
    assert!(!is_alive(&lab, "pid"));
    assert_eq!(lab.engine.running(), 0);
    for id in [&session, &child] {
        assert!(lab.engine.session(id).await.is_err());
    }
}

#[tokio::test]
async fn deleting_a_working_child_ends_its_call() {
    let lab = asking();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{"tools": [bash("true")]}, {"text": "never"}]);
    start(&lab, &session, json!([{"tools": [task("Gone", "general", child)]}, {"text": "went on"}])).await;
    let ask = asked(&mut events).await;
    lab.engine.delete_session(&ask.session_id).await.unwrap();
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    assert!(matches!(&tools[0].state, ToolState::Error(_)), "{tools:#?}");
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "went on");
}

#[tokio::test]
async fn a_subtask_part_runs_without_asking_the_model() {
    let lab = Lab::with(json!({"permission": {"task": "deny"}}));
    let session = lab.session().await;
    let part = PromptPart::Subtask {
        id: None,
        prompt: script(json!([{"text": "sub done"}])),
        description: "Sub D".to_owned(),
        agent: "general".to_owned(),
        model: None,
        command: None,
    };
    let input = PromptInput { parts: vec![part], ..PromptInput::default() };
    let answer = lab.engine.prompt(&session, input).await.unwrap();
    assert!(!text(&answer).is_empty());
    let messages = lab.messages(&session).await;
    let [user, call, end] = &messages[..] else { panic!("{messages:#?}") };
    let call_info = call.info.as_assistant().unwrap();
    assert_eq!((call_info.agent.as_str(), call_info.finish.as_deref()), ("general", Some("tool-calls")));
    assert!(messages[1..].iter().all(|m| m.info.as_assistant().unwrap().parent_id == *user.info.id()));
    assert_eq!(end.info.as_assistant().unwrap().agent, "build");
    let [Part::Tool(tool)] = &call.parts[..] else { panic!("{call:#?}") };
    assert!(output(tool).contains("sub done"));
    assert_eq!(only_child(&lab, &session).await.title, "Sub D (@general subagent)");
}

#[tokio::test]
async fn a_command_for_a_subagent_runs_as_its_task_and_the_model_sums_up() {
    let template = script(json!([{"text": "did $ARGUMENTS"}]));
    let command = |extra: Value| {
        let mut command = json!({"template": template, "description": "Sub"});
        command.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        command
    };
    let lab = Lab::with(json!({"command": {
        "subby": command(json!({"agent": "general"})),
        "forced": command(json!({"subtask": true})),
    }}));
    for (name, agent) in [("subby", "general"), ("forced", "build")] {
        let session = lab.session().await;
        let input = CommandInput { command: name.to_owned(), arguments: "zz".to_owned(), ..CommandInput::default() };
        let answer = lab.engine.command(&session, input).await.unwrap();
        let messages = lab.messages(&session).await;
        let [user, call, follow_up, .., end] = &messages[..] else { panic!("{messages:#?}") };
        assert!(matches!(&user.parts[..], [Part::Subtask(task)] if task.command.as_deref() == Some(name)));
        assert_eq!(user.info.as_user().unwrap().agent, "build");
        assert!(output(call.parts[0].as_tool().unwrap()).contains("did zz"));
        assert!(matches!(&follow_up.parts[..], [Part::Text(text)] if text.synthetic == Some(true)));
        assert_eq!(end.info.as_assistant().unwrap().parent_id, *follow_up.info.id());
        assert_eq!(answer.info.id(), end.info.id());
        assert_eq!(only_child(&lab, &session).await.agent.as_deref(), Some(agent));
        assert!(lab.engine.waiting(&session).await.unwrap().is_empty());
    }
}
