//! Configuration that is edited while it is in use.

use crate::common::{Lab, script, text};
use api::{CommandInput, EventBody, Host, McpStatus, PromptTarget, SessionId, ToolState, WatchScope};
use serde_json::{Value, json};
use testkit::Recorder;

const GLOBAL: &str = ".config/opencode/opencode.json";

async fn follow(lab: &Lab) -> Recorder {
    Recorder::scoped(lab.host(), WatchScope::Directory(lab.scope.directory.clone())).await
}

async fn read_again(events: &mut Recorder) {
    events.wait_for(|body| matches!(body, EventBody::CatalogUpdated {})).await;
}

/// What is said about an edit that does not count.
async fn refused(events: &mut Recorder) -> String {
    let about = |body: &EventBody| matches!(body, EventBody::SessionError { session_id: None, .. });
    let event = events.wait_for(about).await;
    let EventBody::SessionError { error: Some(error), .. } = &event.body else { panic!("{event:?}") };
    error.message().to_owned()
}

async fn names(lab: &Lab) -> Vec<String> {
    lab.engine.commands(&lab.scope).await.unwrap().into_iter().map(|command| command.name).collect()
}

async fn run(lab: &Lab, session: &SessionId, command: &str) -> Result<String, api::HostError> {
    let (command, arguments) = (command.to_owned(), String::new());
    let input = CommandInput { command, arguments, target: PromptTarget::default(), parts: Vec::new() };
    lab.engine.command(&lab.scope, session, input).await.map(|answer| text(&answer))
}

fn says(words: &str) -> String {
    script(json!([{ "text": words }]))
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_directory_hears_of_edits() {
    let lab = Lab::new();
    let session = lab.session().await;
    assert!(!names(&lab).await.contains(&"go".to_owned()));
    let mut events = follow(&lab).await;
    // A folder that was not there, then a file in a folder that was, then the configuration of the user.
    lab.project.write(".opencode/command/go.md", says("one"));
    read_again(&mut events).await;
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "one");
    lab.project.write(".opencode/command/go.md", says("another"));
    read_again(&mut events).await;
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "another");
    lab.project.write_home(".claude/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies\n---\nTidy up.\n");
    read_again(&mut events).await;
    lab.project.write_home(GLOBAL, json!({"command": {"own": {"template": "{file:./own.md}"}}}).to_string());
    lab.project.write_home(".config/opencode/own.md", says("mine"));
    read_again(&mut events).await;
    let known = names(&lab).await;
    assert!(["go", "tidy", "own"].iter().all(|name| known.contains(&(*name).to_owned())), "{known:?}");
    std::fs::remove_file(lab.project.path().join(".opencode/command/go.md")).unwrap();
    read_again(&mut events).await;
    assert!(run(&lab, &session, "go").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_those_of_now_even_if_nobody_follows() {
    let lab = Lab::new();
    let session = lab.session().await;
    names(&lab).await;
    lab.project.write(".opencode/command/go.md", says("one"));
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "one");
    lab.project.write(".opencode/command/stay.md", says("two"));
    assert!(names(&lab).await.contains(&"stay".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_breaks_something_changes_nothing_and_is_told() {
    let lab = Lab::with(json!({"command": {"old": {"template": says("old")}}}));
    lab.project.write(".opencode/command/go.md", says("one"));
    let session = lab.session().await;
    names(&lab).await;
    let mut events = follow(&lab).await;
    lab.project.write_home(GLOBAL, "{\"command\": ");
    let told = refused(&mut events).await;
    assert!(told.contains("stays as it was") && told.contains("opencode.json:1"), "{told}");
    assert!(!told.contains("are asked for"), "what is in effect is not tightened: {told}");
    assert_eq!(run(&lab, &session, "old").await.unwrap(), "old");
    lab.project.write(".opencode/command/go.md", "---\nagent: [\n---\nbroken\n");
    let told = refused(&mut events).await;
    assert!(told.contains("go.md"), "{told}");
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "one");
    // Mended, all of it counts.
    lab.project.write(".opencode/command/go.md", says("three"));
    lab.project.write_home(GLOBAL, json!({"command": {"new": {"template": says("new")}}}).to_string());
    read_again(&mut events).await;
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "three");
    assert_eq!(run(&lab, &session, "new").await.unwrap(), "new");
    assert!(run(&lab, &session, "old").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_not_disturbed() {
    let server = json!({ "type": "local", "command": ["python3", "mcp_test_server.py", "polite"] });
    let config = |more: Value| {
        let mut config = json!({ "mcp": { "s": server } });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config.to_string()
    };
    let lab = Lab::with(json!({ "mcp": { "s": server } }));
    testkit::mcp_server(lab.project.path());
    let session = lab.session().await;
    assert_eq!(lab.engine.mcp(&lab.scope).await.unwrap()["s"], McpStatus::Connected);
    let mut events = follow(&lab).await;
    // A turn that waits for its command while the configuration is read again.
    let waits = json!([
        {"tools": [["s_pids", {}], ["bash", {"command": "until [ -e go ]; do sleep 0.02; done; echo went"}]]},
        {"tools": [["s_pids", {}]]},
        {"text": "done"},
    ]);
    lab.engine.prompt_async(&lab.scope, &session, crate::common::prompt(&script(waits))).await.unwrap();
    lab.project.write_home(GLOBAL, config(json!({"command": {"new": {"template": says("new")}}})));
    read_again(&mut events).await;
    lab.project.write("go", "");
    events.wait_idle(&session).await;
    lab.say(&session, &script(json!([{"tools": [["s_pids", {}]]}, {"text": "done"}]))).await;
    let outputs: Vec<String> = lab
        .tools(&session)
        .await
        .into_iter()
        .map(|tool| match tool.state {
            ToolState::Completed(done) => done.output,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(outputs[1].trim(), "went");
    let server = |output: &String| output.split(' ').next().unwrap().to_owned();
    assert_eq!(server(&outputs[0]), server(&outputs[2]), "the running turn keeps its server");
    assert_eq!(server(&outputs[0]), server(&outputs[3]), "the next turn has the same one");
    assert_eq!(run(&lab, &session, "new").await.unwrap(), "new");
    // Servers that are no longer configured go.
    lab.project.write_home(GLOBAL, "{}");
    read_again(&mut events).await;
    assert!(lab.engine.mcp(&lab.scope).await.unwrap().is_empty());
}
