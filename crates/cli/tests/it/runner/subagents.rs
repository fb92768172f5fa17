//! Subagents of the other agent: each is a session of ours, however the agent reports it.

use api::{EventBody, Host, PermissionReplyKind, SessionId, ToolState, TreeNode, TreeState};
use serde_json::{Value, json};

use super::fixture::{Fixture, asked, bash, error, output, pipe, run, script, tell, text, told};
use super::hostile::{END, after_the_handshake};

/// The steps of our own agent that delegates this, and then ends.
fn handing_on(steps: Value) -> String {
    let call = json!({"description": "Look closely", "prompt": script(steps), "subagent_type": "general"});
    script(json!([{"tools": [["task", call]]}, {"text": "Done."}]))
}

/// The sessions below one: the agent's, then those of its subagents.
async fn below(fixture: &Fixture, session: &SessionId) -> Vec<TreeNode> {
    fixture.engine.tree(session).await.unwrap().sessions.split_off(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_sessions_of_ours() {
    let fixture = Fixture::new(json!({}));
    let session = fixture.session().await;
    let steps = json!([{"reasoning": "hm", "tools": [bash("echo deep")]}, {"text": "Seen."}]);
    let task = fixture.delegate(&session, &handing_on(steps.clone())).await;
    assert!(output(&task).contains("Done."));
    let nodes = below(&fixture, &session).await;
    let shape: Vec<_> = nodes.iter().map(|node| (node.depth, node.state, node.own.tool_calls)).collect();
    assert_eq!(shape, [(1, TreeState::Idle, 1), (2, TreeState::Idle, 1)], "{nodes:#?}");
    assert!(nodes[1].title.starts_with("Look closely"), "{}", nodes[1].title);
    let messages = fixture.messages(&nodes[1].session_id).await;
    assert_eq!(text(&messages), "Seen.");
    let told = messages[0].parts.iter().find_map(api::Part::as_text).unwrap();
    assert_eq!(told.text, script(steps), "what it was told is known from the call");
    let calls = fixture.tools(&nodes[1].session_id).await;
    assert!(output(&calls[0]).contains("deep"), "{calls:#?}");
    // The call that waited for it links to it.
    let task = fixture.tools(&nodes[0].session_id).await.into_iter().find(|tool| tool.tool == "task").unwrap();
    let ToolState::Completed(done) = &task.state else { panic!("{task:#?}") };
    assert_eq!(done.metadata["sessionId"], nodes[1].session_id.as_str());
    // Another process sees the same.
    let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.args(["tree", session.as_str()]);
    let shown = String::from_utf8(run(command).await.stdout).unwrap();
    assert!(shown.contains("└─ ✓ other  Look closely") && shown.contains("3 sessions"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn they_ask_for_themselves() {
    let fixture = Fixture::new(json!({"permission": {"bash": "ask"}}));
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, &handing_on(json!([{"tools": [bash("touch asked.txt")]}, {"text": "Seen."}]))).await;
    let ask = asked(&mut events).await;
    let nodes = below(&fixture, &session).await;
    assert_eq!((&ask.session_id, nodes[1].state), (&nodes[1].session_id, TreeState::Asking), "{nodes:#?}");
    assert!(!fixture.project.path().join("asked.txt").exists());
    fixture.answer(&ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert!(fixture.project.path().join("asked.txt").exists());
    let asks = events.events().iter().filter(|event| matches!(event.body, EventBody::PermissionAsked(_))).count();
    assert_eq!(asks, 1, "what was allowed is not asked again for its terminal");
    assert!(below(&fixture, &session).await.iter().all(|node| node.state == TreeState::Idle));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_is_cancelled_and_the_others_go_on() {
    let fixture = Fixture::new(json!({}));
    pipe(&fixture, "pid");
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, &handing_on(json!([{"tools": [bash("echo $$ > pid; exec sleep 300")]}]))).await;
    let pid = told(&fixture, "pid");
    let nodes = below(&fixture, &session).await;
    let stopped = fixture.engine.cancel(&nodes[1].session_id).await.unwrap();
    assert_eq!(stopped.sessions, std::slice::from_ref(&nodes[1].session_id));
    events.wait_idle(&session).await;
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "its command is gone");
    let task = fixture.tools(&session).await.remove(0);
    assert!(output(&task).contains("Done."), "{}", output(&task));
    let states: Vec<_> = below(&fixture, &session).await.iter().map(|node| node.state).collect();
    assert_eq!(states, [TreeState::Idle, TreeState::Cancelled]);
}

fn update(session: &str, update: Value) -> String {
    let line =
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}});
    format!("echo '{line}'\n")
}

fn chunk(session: &str, text: &str) -> String {
    update(session, json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

fn announce(parent: &str, child: &str, state: &str) -> String {
    update(
        parent,
        json!({"sessionUpdate": "subagent_update", "sessionId": child, "title": child, "state": {"state": state}}),
    )
}

/// As OpenCode reports them.
fn child_update(status: &str, update: Value) -> String {
    let mut params = json!({"rootSessionId": "s", "parentSessionId": "s", "childSessionId": "c", "title": "Look",
        "type": "status", "status": status});
    if update.is_object() {
        params["update"] = update;
    }
    let line = json!({"jsonrpc": "2.0", "method": "opencode/session/child_update", "params": params});
    format!("echo '{line}'\n")
}

/// Runs an agent that does this; returns the state and the text of each session below ours.
async fn seen(then: &str) -> (Fixture, Vec<TreeNode>, Vec<String>) {
    let fixture = Fixture::with(json!({}), |_| after_the_handshake(&format!("{then}{END}")));
    let session = fixture.session().await;
    let task = fixture.delegate(&session, "go").await;
    assert!(output(&task).contains("</task_result>"));
    let nodes = below(&fixture, &session).await;
    let mut texts = Vec::new();
    for node in &nodes {
        texts.push(text(&fixture.messages(&node.session_id).await));
    }
    (fixture, nodes, texts)
}

fn states(nodes: &[TreeNode]) -> Vec<(u32, TreeState)> {
    nodes.iter().map(|node| (node.depth, node.state)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_updates_of_opencodes_own() {
    let says = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Looked."}});
    let cost =
        json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}});
    let then = child_update("created", Value::Null)
        + &child_update("running", says)
        + &child_update("running", cost)
        + &child_update("completed", Value::Null)
        + &chunk("s", "All.");
    let (_lab, nodes, texts) = seen(&then).await;
    assert_eq!(states(&nodes), [(1, TreeState::Idle), (2, TreeState::Idle)], "{nodes:#?}");
    assert_eq!(texts, ["All.", "Looked."]);
    assert_eq!((nodes[0].own.cost.0, nodes[1].own.cost.0, nodes[0].total.cost.0), (0.0, 0.5, 0.5));
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_call_alone() {
    let call = |status: &str, more: Value| {
        let mut call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": status, "title": "task",
            "rawInput": {"subagent_type": "general", "description": "Read it", "prompt": "Read all of it"}});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update("s", call)
    };
    let result = "<task id=\"c\" state=\"completed\"><task_result>It is short.</task_result></task>";
    let done = json!({"rawOutput": {"output": result, "metadata": {"sessionId": "c", "parentSessionId": "s"}}});
    let (fixture, nodes, texts) = seen(&(call("in_progress", json!({})) + &call("completed", done))).await;
    assert_eq!(states(&nodes), [(1, TreeState::Idle), (2, TreeState::Idle)], "{nodes:#?}");
    assert_eq!(texts, ["", "It is short."]);
    let told = fixture.messages(&nodes[1].session_id).await.remove(0);
    assert_eq!(told.parts[0].as_text().unwrap().text, "Read all of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_stopped_alone_says_so() {
    let then = announce("s", "c", "running") + &chunk("c", "Begun.") + "read go < go\n" + &announce("s", "c", "idle");
    let fixture = Fixture::with(json!({}), |_| after_the_handshake(&format!("{then}{END}")));
    pipe(&fixture, "go");
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, "go").await;
    events.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta == "Begun.")).await;
    let nodes = below(&fixture, &session).await;
    let refused = fixture.engine.cancel(&nodes[1].session_id).await.unwrap_err().to_string();
    assert!(refused.contains("cannot stop it alone"), "{refused}");
    tell(&fixture, "go", "now\n");
    events.wait_idle(&session).await;
    assert_eq!(states(&below(&fixture, &session).await), [(1, TreeState::Idle), (2, TreeState::Idle)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_about_them_hurts_nobody() {
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "x", "status": "in_progress"});
    let then = chunk("c", "too early ")
        + &announce("s", "s", "running")
        + &announce("nobody", "orphan", "running")
        + &announce("s", "c", "running")
        + &announce("c", "s", "running")
        + &announce("c", "d", "running")
        + &announce("d", "c", "idle")
        + &announce("s", "d", "running")
        + &chunk("c", "Fine.")
        + &update("d", call)
        + &announce("s", "c", "idle")
        + &update("s", json!({"sessionUpdate": "subagent_update", "sessionId": 7}))
        + &update("s", json!({"sessionUpdate": "subagent_update", "sessionId": "", "title": {}, "state": 5}))
        + &chunk("s", "All.");
    let (fixture, nodes, texts) = seen(&then).await;
    assert_eq!(texts, ["All.", "Fine.", ""], "{nodes:#?}");
    // The end of the last one was not reported.
    assert_eq!(states(&nodes), [(1, TreeState::Idle), (2, TreeState::Idle), (3, TreeState::Failed)]);
    assert!(error(&fixture.tools(&nodes[2].session_id).await[0]).contains("interrupted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_them_are_too_many() {
    let line = announce("s", "c%d", "running").replace("echo", "printf").replace("}'\n", "}\\n' $i $i");
    let then = format!("i=0; while [ $i -lt 3000 ]; do {line}; i=$((i+1)); done\n");
    let (_lab, nodes, _) = seen(&then).await;
    assert_eq!(nodes.len(), 1 + 64);
    assert!(nodes.iter().all(|node| !node.state.is_live()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_loaded_where_it_cannot_be_resumed() {
    let answer = |id: u32, result: Value| format!("echo '{}'\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
    let agent = format!(
        "echo x >> runs; read line\n{}read line\ncase \"$line\" in *session/load*'\"s\"'*) echo loaded >> loads\n{}{};; *) {};; esac\nread line\n{}{END}",
        answer(0, json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}})),
        chunk("s", "Answer 1."),
        answer(1, json!({})),
        answer(1, json!({"sessionId": "s"})),
        chunk("s", "Answer $n.").replace("echo '", "n=$(wc -l < runs); echo '").replace("$n", "'$n'"),
    );
    let fixture = Fixture::with(json!({}), |_| super::fixture::shell(&agent));
    let session = fixture.session().await;
    fixture.delegate(&session, "one").await;
    let child = fixture.child(&session).await;
    let again = json!({"description": "More", "prompt": "two", "subagent_type": "other", "task_id": child.id});
    let task = fixture.task(&session, again).await;
    assert!(output(&task).contains("Answer 2."), "{}", output(&task));
    assert_eq!(fixture.project.read("loads"), "loaded\n");
    assert_eq!(text(&fixture.messages(&child.id).await), "Answer 1.Answer 2.", "nothing is shown twice");
}
