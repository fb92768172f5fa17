//! Hostile agents.

use api::{EventBody, PermissionReplyKind};
use serde_json::{Value, json};

use super::fixture::{Fixture, asked, error, output, pipe, run, shell, tell};

pub const END: &str = r#"echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'; read -r line"#;

/// Answers the handshake, opens a session, and then does that.
pub fn after_the_handshake(then: &str) -> Value {
    let answer = |id: u32, result: Value| {
        format!("read line; echo '{}'\n", json!({"jsonrpc": "2.0", "id": id, "result": result}))
    };
    let initialize = answer(0, json!({"protocolVersion": 1, "agentCapabilities": {}}));
    let session = answer(1, json!({"sessionId": "s"}));
    shell(&format!("{initialize}{session}read prompt\n{then}"))
}

fn update(update: Value) -> String {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}).to_string()
}

fn chunk(text: &str) -> String {
    update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

async fn failure(acp: Value) -> String {
    let fixture = Fixture::with(json!({}), |_| acp);
    let session = fixture.session().await;
    let task = fixture.delegate(&session, "go").await;
    let child = fixture.child(&session).await;
    let answer = fixture.messages(&child.id).await.pop().unwrap();
    assert!(answer.info.as_assistant().unwrap().error.is_some(), "{answer:#?}");
    assert!(answer.parts.iter().filter_map(api::Part::as_tool).all(|tool| tool.state.is_done()), "{answer:#?}");
    error(&task).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_there() {
    let said = failure(json!({"command": ["/nonexistent/agent"]})).await;
    assert!(said.contains("/nonexistent/agent did not start"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_dies_at_once() {
    let said = failure(shell("echo 'no licence found' >&2; exit 3")).await;
    assert!(said.contains("hung up") && said.contains("it wrote: no licence found"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_never_answers() {
    let mut acp = shell("exec sleep 300");
    acp["start"] = json!(1);
    let said = failure(acp).await;
    assert!(said.contains("within 1 s"), "{said}");
    let mut acp = after_the_handshake("exec sleep 300");
    acp["silence"] = json!(1);
    let said = failure(acp).await;
    assert!(said.contains("it said nothing for 1 s"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_dies_in_mid_turn() {
    let call = update(json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "work", "kind": "execute",
        "status": "in_progress", "rawInput": {"command": "work"}}));
    let then = format!("echo '{}'; echo '{call}'; echo 'out of memory' >&2; exit 9", chunk("Begun"));
    let said = failure(after_the_handshake(&then)).await;
    assert!(said.contains("it wrote: out of memory"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_garbage() {
    let then = r#"echo '{{{'; printf '\377\376\n'; echo '[]'; echo '{"jsonrpc":"2.0","method":"session/update","params":7}'
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":5}}}'
        echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"because"}}'; exec sleep 300"#;
    let said = failure(after_the_handshake(then)).await;
    assert!(said.contains("has no known stopReason"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_floods() {
    let piece = chunk(&"x".repeat(60_000));
    let said = failure(after_the_handshake(&format!("exec yes '{piece}'"))).await;
    assert!(said.contains("more than 4 MB of text"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_reaches_out_of_its_folder() {
    let ask = |id: u32, method: &str, params: Value| {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        format!("echo '{line}'; read -r answer; echo \"$answer\" >&2\n")
    };
    let then = ask(7, "fs/read_text_file", json!({"sessionId": "s", "path": "/etc/passwd"}))
        + &ask(8, "terminal/create", json!({"sessionId": "s", "command": "true", "cwd": "/"}))
        + "exit 1";
    let said = failure(after_the_handshake(&then)).await;
    assert_eq!(said.matches("is outside").count(), 2, "{said}");
    assert!(!said.contains("root:"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_stop() {
    let fixture = Fixture::with(json!({}), |_| {
        after_the_handshake(&format!("echo '{}'; trap '' TERM; while :; do sleep 300; done", chunk("Begun")))
    });
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, "go").await;
    events.wait_for(|body| matches!(body, api::EventBody::PartDelta { delta, .. } if delta == "Begun")).await;
    let child = fixture.child(&session).await;
    api::Host::cancel(&fixture.engine, &session).await.unwrap();
    let answer = fixture.messages(&child.id).await.pop().unwrap();
    let error = answer.info.as_assistant().unwrap().error.clone();
    assert!(matches!(error, Some(api::MessageError::MessageAbortedError(_))), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_asks_and_does_not_want_to_know() {
    let ask = json!({"jsonrpc": "2.0", "id": 9, "method": "session/request_permission", "params": {"sessionId": "s",
        "toolCall": {"toolCallId": "1", "kind": "execute", "title": "Run it", "rawInput": {"command": "true"}},
        "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]}});
    let withdraw = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 9}});
    let then = format!("echo '{ask}'; read go < go; echo '{withdraw}'; read -r answer; {END}");
    let fixture = Fixture::with(json!({"permission": {"bash": "ask"}}), |_| after_the_handshake(&then));
    pipe(&fixture, "go");
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, "go").await;
    let ask = asked(&mut events).await;
    assert_eq!(ask.patterns, ["true"]);
    tell(&fixture, "go", "now\n");
    events
        .wait_for(|body| matches!(body, EventBody::PermissionReplied { request_id, .. } if *request_id == ask.id))
        .await;
    events.wait_idle(&session).await;
    let task = fixture.tools(&session).await.remove(0);
    assert!(output(&task).contains("ended without an answer"), "{}", output(&task));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_writes_without_a_call_and_is_asked_about() {
    let fixture = Fixture::with(json!({"permission": {"edit": "ask"}}), |project| {
        let path = project.path().join("made.txt");
        let write = json!({"jsonrpc": "2.0", "id": 9, "method": "fs/write_text_file",
            "params": {"sessionId": "s", "path": path, "content": "made"}});
        after_the_handshake(&format!("echo '{write}'; read -r answer; {END}"))
    });
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, "go").await;
    let ask = asked(&mut events).await;
    assert_eq!((ask.permission.as_str(), &ask.patterns[..]), ("edit", &["made.txt".to_owned()][..]));
    assert!(!fixture.project.path().join("made.txt").exists());
    fixture.answer(&ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert_eq!(fixture.project.read("made.txt"), "made");
    let calls = fixture.tools(&fixture.child(&session).await.id).await;
    assert_eq!((calls[0].tool.as_str(), calls[0].state.status()), ("write", "completed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_terminals_would_really_run_is_asked_about() {
    let variable = |name: &str| json!([{"name": name, "value": "x"}]);
    let cases = [
        json!({"command": "git", "args": ["status"], "env": variable("GIT_CONFIG_COUNT")}),
        json!({"command": "git", "args": ["status"], "env": variable("PATH")}),
        json!({"command": "git", "args": ["status"], "env": variable("LD_PRELOAD")}),
        json!({"command": "git status && true", "env": variable("BASH_ENV")}),
        json!({"command": "git status; touch other"}),
        json!({"command": "bash", "args": ["-c", "touch other"]}),
        json!({"command": "sh", "args": ["-c", "git status; touch other"]}),
    ];
    let allowed = json!({"command": "git", "args": ["status"]});
    let terminal = |id: usize, mut params: Value| {
        params["sessionId"] = json!("s");
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "terminal/create", "params": params});
        format!("echo '{line}'; read -r answer\n")
    };
    let mut then = terminal(100, allowed);
    then.extend(cases.iter().enumerate().map(|(id, case)| terminal(id + 10, case.clone())));
    let rules = json!({"permission": {"bash": {"*": "ask", "git status *": "allow"}}});
    let fixture = Fixture::with(rules, |_| after_the_handshake(&format!("{then}{END}")));
    let mut events = fixture.recorder().await;
    let session = fixture.session().await;
    fixture.begin(&session, "go").await;
    for case in &cases {
        let ask = asked(&mut events).await;
        assert_eq!(ask.permission, "bash", "{case}: {ask:?}");
        fixture.answer(&ask, PermissionReplyKind::Reject).await;
    }
    events.wait_idle(&session).await;
    assert!(!fixture.project.path().join("other").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_starts_itself() {
    let said = failure(shell("echo \"below $ACP_AGENT_DEPTH\" >&2; exit 3")).await;
    assert!(said.contains("it wrote: below 1"), "{said}");
    let fixture = Fixture::with(json!({}), |_| shell("touch started; exit 3"));
    let call = json!({"description": "Do it", "prompt": "go", "subagent_type": "other"});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "told"}]});
    let script = fixture.project.write_home("script.json", steps.to_string());
    let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.env("ACP_AGENT_DEPTH", "8").args(["run", "--script"]).arg(script).arg("go");
    let ran = run(command).await;
    assert!(ran.status.success(), "{ran:?}");
    assert!(!fixture.project.path().join("started").exists(), "{ran:?}");
}
