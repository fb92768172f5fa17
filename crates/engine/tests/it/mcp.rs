//! MCP servers in sessions.

use crate::common::{Lab, script, text};
use api::{
    CatalogHost, CommandInput, CommandSource, EventBody, Host, McpConfig, Part, PermissionReply, PermissionReplyKind,
    PromptInput, PromptPart, SessionId, ToolState,
};
use indexmap::IndexMap;
use serde_json::{Value, json};
use testkit::soon;

/// A lab with the test server as `s`, and additional configuration.
fn lab(kind: &str, mut config: Value) -> Lab {
    // It runs in the directory.
    config["mcp"]["s"] = json!({ "type": "local", "command": ["python3", "mcp_test_server.py", kind] });
    let lab = Lab::with(config);
    testkit::mcp_server(lab.project.path());
    lab
}

/// The outcomes of a prompt's calls: the output or the error of each.
async fn play(lab: &Lab, session: &SessionId, steps: Value) -> Vec<Result<String, String>> {
    let before = lab.tools(session).await.len();
    lab.say(session, &script(steps)).await;
    let outcome = |state| match state {
        ToolState::Completed(done) => Ok(done.output),
        ToolState::Error(error) => Err(error.error),
        other => panic!("no outcome: {other:?}"),
    };
    lab.tools(session).await.into_iter().skip(before).map(|tool| outcome(tool.state)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_called_by_their_names() {
    let lab = lab("noisy", json!({}));
    let session = lab.session().await;
    let steps = json!([
        {"tools": [["s_echo", {"text": "hi"}], ["s_picture", {}], ["s_fail", {}], ["s_structured", {}], ["nothing", {}]]},
        {"text": "done"},
    ]);
    let outcomes = play(&lab, &session, steps).await;
    assert_eq!(outcomes[0], Ok("echo: hi".to_owned()));
    assert_eq!(outcomes[1], Ok("look\n\na memo\n\nmore: memo://2".to_owned()));
    assert_eq!(outcomes[2], Err("it went wrong".to_owned()));
    assert_eq!(outcomes[3], Ok("{\"answer\": 42}".to_owned()));
    let known = outcomes[4].as_ref().unwrap();
    assert!(known.contains("s_echo") && known.contains("read_mcp_resource") && known.contains("bash"), "{known}");
    let tools = lab.tools(&session).await;
    let ToolState::Completed(echo) = &tools[0].state else { panic!("{tools:?}") };
    assert_eq!((echo.title.as_str(), json!(echo.metadata)), ("", json!({"truncated": false})));
    let ToolState::Completed(picture) = &tools[1].state else { panic!("{tools:?}") };
    let attached = picture.attachments.as_ref().unwrap();
    assert!(matches!(&attached[..], [Part::File(file)] if file.mime == "image/png" && file.url.starts_with("data:")));
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_apply_to_tool_names() {
    let lab = lab("polite", json!({ "permission": { "s_echo": "ask", "s_die": "deny" } }));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["s_echo", {"text": "hi"}], ["s_die", {}]]}, {"text": "done"}]);
    lab.engine.prompt_async(&session, crate::common::prompt(&script(steps))).await.unwrap();
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    assert_eq!(
        (ask.permission.as_str(), &ask.patterns[..], &ask.always[..]),
        ("s_echo", &["*".to_owned()][..], &["*".to_owned()][..])
    );
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    assert!(matches!(&tools[0].state, ToolState::Completed(done) if done.output == "echo: hi"), "{tools:?}");
    // A tool that is denied outright is not offered.
    assert_eq!(tools[1].tool, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_appear_mid_turn_are_used_in_the_next_step() {
    let lab = lab("polite", json!({}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["s_grow", {}]]}, {"tools": [["s_grown", {}]]}, {"text": "done"}]);
    let outcomes = play(&lab, &session, steps).await;
    assert_eq!(outcomes[1], Ok("so it has".to_owned()));
    events.wait_for(|body| matches!(body, EventBody::McpToolsChanged { server } if server == "s")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_server_affects_only_itself() {
    let lab = lab("polite", json!({ "mcp": { "gone": { "type": "local", "command": ["false"] } } }));
    let session = lab.session().await;
    let steps = json!([
        {"tools": [["s_huge", {}]]},
        {"tools": [["s_huge", {"bytes": 1_000_000}]]},
        {"tools": [["s_die", {}]]},
        {"tools": [["s_echo", {}], ["bash", {"command": "echo fine"}]]},
        {"text": "done"},
    ]);
    let outcomes = play(&lab, &session, steps).await;
    assert!(outcomes[0].as_ref().unwrap_err().contains("larger than 16 MB"), "{:?}", outcomes[0]);
    let long = outcomes[1].as_ref().unwrap();
    assert!(long.len() < 60_000 && long.contains("1000000 bytes"), "{}", long.len());
    let died = outcomes[2].as_ref().unwrap_err();
    assert!(died.contains("exit code 3") && died.contains("I cannot go on"), "{died}");
    assert!(outcomes[3].as_ref().unwrap().contains("unavailable tool 's_echo'"), "{:?}", outcomes[3]);
    assert_eq!(outcomes[4].as_ref().unwrap().trim(), "fine");
    let status = lab.engine.mcp(&lab.scope).await.unwrap();
    assert!(serde_json::to_string(&status["s"]).unwrap().contains("exit code 3"));
    lab.engine.mcp_connect(&lab.scope, "s").await.unwrap();
    let outcomes = play(&lab, &session, json!([{"tools": [["s_echo", {"text": 1}]]}, {"text": "done"}])).await;
    assert_eq!(outcomes, [Ok("echo: 1".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_does_not_wait_for_a_server() {
    let lab = lab("polite", json!({}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["s_slow", {}]]}, {"text": "never"}]);
    lab.engine.prompt_async(&session, crate::common::prompt(&script(steps))).await.unwrap();
    let running = |body: &EventBody| matches!(body, EventBody::PartUpdated { part, .. } if part.as_tool().is_some_and(|tool| tool.state.status() == "running"));
    events.wait_for(running).await;
    assert!(soon("the end of the turn", lab.engine.abort(&session)).await.unwrap());
    let tools = lab.tools(&session).await;
    assert!(matches!(&tools[0].state, ToolState::Error(error) if error.error.contains("aborted")), "{tools:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_commands_and_nothing_in_them_is_executed() {
    let lab = lab("polite", json!({}));
    let session = lab.session().await;
    let commands = lab.engine.commands(&lab.scope).await.unwrap();
    let greet = commands.iter().find(|command| command.name == "s:greet").unwrap();
    assert_eq!((greet.source, &greet.hints[..]), (Some(CommandSource::Mcp), &["$1".to_owned(), "$2".to_owned()][..]));
    let arguments = "Ann \"very kind\" !`touch ran` @README.md".to_owned();
    let input = CommandInput { command: "s:greet".to_owned(), arguments, ..CommandInput::default() };
    soon("the command's answer", lab.engine.command(&session, input)).await.unwrap();
    let messages = lab.messages(&session).await;
    assert_eq!(text(&messages[0]), "Greet Ann in a very kind !`touch ran` @README.md way");
    assert_eq!(messages[0].parts.len(), 1);
    assert!(!lab.project.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_read() {
    let lab = lab("polite", json!({ "permission": { "read": { "*": "allow", "mcp:s:memo://secret": "deny" } } }));
    let session = lab.session().await;
    let steps = json!([
        {"tools": [
            ["list_mcp_resources", {}],
            ["list_mcp_resource_templates", {"server": "s"}],
            ["read_mcp_resource", {"server": "s", "uri": "memo://7"}],
            ["read_mcp_resource", {"server": "s", "uri": "memo://secret"}],
            ["read_mcp_resource", {"server": "nobody", "uri": "memo://7"}],
        ]},
        {"text": "done"},
    ]);
    let outcomes = play(&lab, &session, steps).await;
    assert!(outcomes[0].as_ref().unwrap().contains("\"memo://1\""), "{outcomes:?}");
    assert!(outcomes[1].as_ref().unwrap().contains("\"memo://{n}\""), "{outcomes:?}");
    assert_eq!(outcomes[2], Ok("the memo memo://7".to_owned()));
    assert!(outcomes[3].as_ref().unwrap_err().contains("denies"), "{outcomes:?}");
    assert!(outcomes[4].as_ref().unwrap_err().contains("\"nobody\" has no resources"), "{outcomes:?}");
    let source = json!({ "type": "resource", "clientName": "s", "uri": "memo://1", "text": {"value": "@memo", "start": 0, "end": 5} });
    let file = PromptPart::File {
        id: None,
        mime: "text/plain".to_owned(),
        filename: Some("memo".to_owned()),
        url: "memo://1".to_owned(),
        source: Some(source),
    };
    let input = PromptInput { parts: vec![PromptPart::text("look"), file], no_reply: true, ..PromptInput::default() };
    let stored = lab.engine.prompt(&session, input).await.unwrap();
    assert_eq!(text(&stored), "lookReading MCP resource: memo (memo://1)the memo memo://1");
}

/// The test server, for a single session.
fn own(lab: &Lab) -> IndexMap<String, McpConfig> {
    let command = json!({ "type": "local", "command": ["python3", testkit::mcp_server(&lab.project.home())] });
    IndexMap::from([("own".to_owned(), serde_json::from_value(command).unwrap())])
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_a_session_can_be_restored_after_a_restart() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    lab.engine.session_servers(&session, own(&lab)).await.unwrap();
    let steps = json!([{"tools": [["own_pids", {}]]}, {"text": "done"}]);
    let server = async |lab: &Lab| {
        let outcome = play(lab, &session, steps.clone()).await.remove(0).unwrap();
        outcome.split(' ').next().unwrap().to_owned()
    };
    let first = server(&lab).await;
    lab.engine.restore_servers(&session, own(&lab)).await.unwrap();
    assert_eq!(server(&lab).await, first, "existing servers stay");
    lab.restart().await;
    let gone = play(&lab, &session, steps.clone()).await;
    assert!(gone[0].as_ref().unwrap().contains("unavailable tool"), "{gone:?}");
    lab.engine.restore_servers(&session, own(&lab)).await.unwrap();
    assert_ne!(server(&lab).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_a_session_end_with_it() {
    let lab = Lab::new();
    let (session, other) = (lab.session().await, lab.session().await);
    lab.engine.session_servers(&session, own(&lab)).await.unwrap();
    let steps = json!([{"tools": [["own_pids", {}]]}, {"text": "done"}]);
    let outcomes = play(&lab, &session, steps.clone()).await;
    let pids: Vec<u32> = outcomes[0].as_ref().unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(play(&lab, &other, steps.clone()).await[0].as_ref().unwrap().contains("unavailable tool"));
    // A subagent uses its parent's servers.
    let child = api::CreateSession { parent_id: Some(session.clone()), ..api::CreateSession::default() };
    let child = lab.engine.create_session(&lab.scope, child).await.unwrap().id;
    assert!(play(&lab, &child, json!([{"tools": [["own_echo", {"text": "x"}]]}, {"text": "done"}])).await[0].is_ok());
    assert!(lab.engine.mcp(&lab.scope).await.unwrap().is_empty());
    lab.engine.session_servers(&session, IndexMap::new()).await.unwrap();
    assert!(play(&lab, &session, steps).await[0].as_ref().unwrap().contains("unavailable tool"));
    lab.engine.shutdown().await;
    assert!(!std::path::Path::new(&format!("/proc/{}", pids[0])).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_for_its_permission_runs_after_a_restart() {
    let mut lab = lab("polite", json!({ "permission": { "s_echo": "ask" } }));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["s_echo", {"text": "hi"}]]}, {"text": "done"}]);
    lab.engine.prompt_async(&session, crate::common::prompt(&script(steps))).await.unwrap();
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    lab.restart().await;
    let mut events = lab.recorder().await;
    assert_eq!(lab.engine.recover(None).await.unwrap(), 1);
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    assert!(
        matches!(&tools[..], [tool] if matches!(&tool.state, ToolState::Completed(done) if done.output == "echo: hi")),
        "{tools:?}"
    );
}
