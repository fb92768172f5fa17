//! Configuration that is edited while in use.

use crate::common::{Lab, script, text};
use api::{CatalogHost, CommandInput, EventBody, Host, McpStatus, PromptTarget, SessionId, ToolState, WatchScope};
use serde_json::{Value, json};
use testkit::Recorder;

const GLOBAL: &str = ".config/opencode/opencode.json";

async fn subscribe(lab: &Lab) -> Recorder {
    Recorder::scoped(lab.host(), WatchScope::Directory(lab.scope.directory.clone())).await
}

async fn wait_for_reload(events: &mut Recorder) {
    events.wait_for(|body| matches!(body, EventBody::CatalogUpdated {})).await;
}

/// The report about a rejected edit.
async fn rejected_edit(events: &mut Recorder) -> String {
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
    lab.engine.command(session, input).await.map(|answer| text(&answer))
}

fn says(words: &str) -> String {
    script(json!([{ "text": words }]))
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_a_directory_are_told_of_edits() {
    let lab = Lab::new();
    let session = lab.session().await;
    assert!(!names(&lab).await.contains(&"go".to_owned()));
    let mut events = subscribe(&lab).await;
    // A new folder, then a file in an existing folder, then the user's configuration.
    lab.project.write(".opencode/command/go.md", says("one"));
    wait_for_reload(&mut events).await;
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "one");
    lab.project.write(".opencode/command/go.md", says("another"));
    wait_for_reload(&mut events).await;
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "another");
    lab.project.write_home(".claude/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies\n---\nTidy up.\n");
    wait_for_reload(&mut events).await;
    lab.project.write_home(GLOBAL, json!({"command": {"own": {"template": "{file:./own.md}"}}}).to_string());
    lab.project.write_home(".config/opencode/own.md", says("mine"));
    wait_for_reload(&mut events).await;
    let known = names(&lab).await;
    assert!(["go", "tidy", "own"].iter().all(|name| known.contains(&(*name).to_owned())), "{known:?}");
    std::fs::remove_file(lab.project.path().join(".opencode/command/go.md")).unwrap();
    wait_for_reload(&mut events).await;
    assert!(run(&lab, &session, "go").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_current_even_without_subscribers() {
    let lab = Lab::new();
    let session = lab.session().await;
    names(&lab).await;
    lab.project.write(".opencode/command/go.md", says("one"));
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "one");
    lab.project.write(".opencode/command/stay.md", says("two"));
    assert!(names(&lab).await.contains(&"stay".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breaking_edit_has_no_effect_and_is_reported() {
    let lab = Lab::with(json!({"command": {"old": {"template": says("old")}}}));
    lab.project.write(".opencode/command/go.md", says("one"));
    let session = lab.session().await;
    names(&lab).await;
    let mut events = subscribe(&lab).await;
    lab.project.write_home(GLOBAL, "{\"command\": ");
    let told = rejected_edit(&mut events).await;
    assert!(told.contains("stays as it was") && told.contains("opencode.json:1"), "{told}");
    assert!(!told.contains("need approval"), "what is in effect is not tightened: {told}");
    assert_eq!(run(&lab, &session, "old").await.unwrap(), "old");
    lab.project.write(".opencode/command/go.md", "---\nagent: [\n---\nbroken\n");
    let told = rejected_edit(&mut events).await;
    assert!(told.contains("go.md"), "{told}");
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "one");
    // Once fixed, all of it applies.
    lab.project.write(".opencode/command/go.md", says("three"));
    lab.project.write_home(GLOBAL, json!({"command": {"new": {"template": says("new")}}}).to_string());
    wait_for_reload(&mut events).await;
    assert_eq!(run(&lab, &session, "go").await.unwrap(), "three");
    assert_eq!(run(&lab, &session, "new").await.unwrap(), "new");
    assert!(run(&lab, &session, "old").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn running_turns_keep_their_configuration() {
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
    let mut events = subscribe(&lab).await;
    // A turn that waits for its command while the configuration is reloaded.
    let waits = json!([
        {"tools": [["s_pids", {}], ["bash", {"command": "until [ -e go ]; do sleep 0.02; done; echo went"}]]},
        {"tools": [["s_pids", {}]]},
        {"text": "done"},
    ]);
    lab.engine.prompt_async(&session, crate::common::prompt(&script(waits))).await.unwrap();
    lab.project.write_home(GLOBAL, config(json!({"command": {"new": {"template": says("new")}}})));
    wait_for_reload(&mut events).await;
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
    // Servers that are no longer configured end.
    lab.project.write_home(GLOBAL, "{}");
    wait_for_reload(&mut events).await;
    assert!(lab.engine.mcp(&lab.scope).await.unwrap().is_empty());
}

/// Whether a command runs in a new prompt, without a subscriber of the directory.
async fn runs(lab: &Lab, session: &SessionId) -> bool {
    lab.say(session, &script(json!([{"tools": [["bash", {"command": "true"}]]}, {"text": "done"}]))).await;
    let call = lab.tools(session).await.pop().unwrap();
    match call.state {
        // A tool that is denied outright is not offered.
        ToolState::Completed(_) => call.tool == "bash",
        ToolState::Error(error) => {
            assert!(error.error.contains("denies") || error.error.contains("rejected"), "{}", error.error);
            false
        }
        other => panic!("{other:?}"),
    }
}

fn rule(action: &str) -> String {
    json!({"ask": {"timeout": 0}, "permission": {"bash": action}}).to_string()
}

/// Edits a file in place and restores its timestamps.
fn edit_keeping_times(path: &std::path::Path, content: &str) {
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    std::fs::write(path, content).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_rules_apply_at_the_next_prompt_even_without_subscribers() {
    let lab = Lab::with(serde_json::from_str(&rule("allow")).unwrap());
    let session = lab.session().await;
    let home = |name: &str| lab.project.home().join(".config/opencode").join(name);
    let here = |name: &str| lab.project.path().join(name);
    let link = |to: std::path::PathBuf, at: std::path::PathBuf| {
        let _ = std::fs::remove_file(&at);
        std::os::unix::fs::symlink(to, at).unwrap();
    };
    let agent = |action: &str| format!("---\ndescription: b\npermission:\n  bash: {action}\n---\n\n");
    assert!(runs(&lab, &session).await);
    let edits: [(&str, bool, &dyn Fn()); 15] = [
        ("written", false, &|| std::fs::write(home("opencode.json"), rule("deny")).unwrap()),
        ("written again", true, &|| std::fs::write(home("opencode.json"), rule("allow")).unwrap()),
        ("as long as before, with its old time", false, &|| {
            edit_keeping_times(&home("opencode.json"), &rule("allow").replace("\"allow\"", "\"deny\" "));
        }),
        ("replaced by another file", true, &|| {
            std::fs::write(home("new"), rule("allow")).unwrap();
            std::fs::rename(home("new"), home("opencode.json")).unwrap();
        }),
        ("a file that was not there", false, &|| std::fs::write(here("opencode.json"), rule("deny")).unwrap()),
        ("removed", true, &|| std::fs::remove_file(here("opencode.json")).unwrap()),
        ("a folder and an agent that were not there", false, &|| {
            std::fs::create_dir_all(here(".opencode/agent")).unwrap();
            std::fs::write(here(".opencode/agent/build.md"), agent("deny")).unwrap();
        }),
        ("the folder removed", true, &|| std::fs::remove_dir_all(here(".opencode")).unwrap()),
        ("a link to a file", false, &|| {
            std::fs::write(here("real.json"), rule("deny")).unwrap();
            link(here("real.json"), here("opencode.json"));
        }),
        ("the file behind a link", true, &|| std::fs::write(here("real.json"), rule("allow")).unwrap()),
        ("a link that leads to another file", false, &|| {
            std::fs::write(here("other.json"), rule("deny")).unwrap();
            link(here("other.json"), here("opencode.json"));
        }),
        ("a link that leads nowhere", true, &|| {
            std::fs::remove_file(here("opencode.json")).unwrap();
            std::fs::create_dir_all(here(".opencode/agent")).unwrap();
            link(here("later.md"), here(".opencode/agent/build.md"));
        }),
        ("made where a link leads", false, &|| std::fs::write(here("later.md"), agent("deny")).unwrap()),
        ("a linked folder", true, &|| {
            std::fs::remove_dir_all(here(".opencode")).unwrap();
            std::fs::create_dir_all(here("agents")).unwrap();
            std::fs::create_dir_all(here(".opencode")).unwrap();
            link(here("agents"), here(".opencode/agent"));
        }),
        ("a file in a linked folder", false, &|| std::fs::write(here("agents/build.md"), agent("deny")).unwrap()),
    ];
    for (what, may, edit) in edits {
        edit();
        assert_eq!(runs(&lab, &session).await, may, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_current() {
    let lab = Lab::new();
    let agents = async || -> Vec<String> {
        lab.engine.agents(&lab.scope).await.unwrap().into_iter().map(|agent| agent.name).collect()
    };
    assert!(!agents().await.contains(&"new".to_owned()));
    lab.project.write(".opencode/agent/new.md", "---\ndescription: n\n---\n\nDo.\n");
    assert!(agents().await.contains(&"new".to_owned()));
    // A prompt that names it at once finds it, too.
    lab.project.write(".opencode/agent/newer.md", "---\ndescription: n\n---\n\nDo.\n");
    let input = api::CreateSession { agent: Some("newer".to_owned()), ..api::CreateSession::default() };
    lab.engine.create_session(&lab.scope, input).await.unwrap();
    lab.project.write(".opencode/skill/demo/SKILL.md", "---\nname: demo\ndescription: D\n---\nx\n");
    assert_eq!(lab.engine.skills(&lab.scope).await.unwrap()[0].name, "demo");
    let provider = json!({"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "k"},
        "models": {"tiny": {}}});
    lab.project.write_home(GLOBAL, json!({"username": "me", "provider": {"near": provider}}).to_string());
    assert!(lab.engine.providers(&lab.scope).await.unwrap().iter().any(|provider| provider.id == "near"));
    lab.project.write_home(GLOBAL, json!({"username": "you", "tools": {"list": true}}).to_string());
    assert_eq!(lab.engine.config(&lab.scope).await.unwrap()["username"], "you");
    lab.project.write_home(GLOBAL, "{}");
    assert!(lab.engine.tools(&lab.scope, None).await.iter().all(|tool| tool.name() != "list"));
    lab.project.write_home(GLOBAL, json!({"tools": {"list": true}}).to_string());
    assert!(lab.engine.tools(&lab.scope, None).await.iter().any(|tool| tool.name() == "list"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_edit_loosens_nothing() {
    let config = |broken: &str| {
        let agent = json!({"mode": "subagent", "description": "s", "isolation": "worktree"});
        let rules = json!({"ask": {"timeout": 0}, "permission": {"read": {"key.txt": "deny"}, "bash": "deny"},
            "agent": {"smith": agent}});
        format!("{rules}{broken}")
    };
    let lab = Lab::with(serde_json::from_str(&config("")).unwrap());
    lab.project.write("key.txt", "s3cret\n");
    lab.project.commit("key");
    let session = lab.session().await;
    let read =
        json!([{"tools": [["read", {"filePath": "key.txt"}], ["bash", {"command": "cat key.txt"}]]}, {"text": "."}]);
    let all = async || {
        let mut told = String::new();
        for session in lab.engine.sessions(&lab.scope, api::ListSessions::default()).await.unwrap() {
            told += &format!("{:?}", lab.messages(&session.id).await);
        }
        told
    };
    assert!(!runs(&lab, &session).await);
    for broken in [" oops", "]", "{"] {
        lab.project.write_home(GLOBAL, config(broken));
        lab.say(&session, &script(read.clone())).await;
        assert!(!all().await.contains("s3cret"), "{broken}");
    }
    // A subagent in its own worktree, whose configuration was never loaded before, uses what is in effect.
    let task = json!(["task", {"description": "x", "prompt": script(read), "subagent_type": "smith"}]);
    lab.say(&session, &script(json!([{ "tools": [task] }, {"text": "."}]))).await;
    let children = lab.engine.children(&session).await.unwrap();
    assert_eq!(lab.tools(&children[0].id).await.len(), 2);
    assert!(!all().await.contains("s3cret"));
    // Once fixed, it applies.
    lab.project.write_home(GLOBAL, rule("allow"));
    assert!(runs(&lab, &session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_turn_keeps_its_rules() {
    let lab = Lab::with(serde_json::from_str(&rule("allow")).unwrap());
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let waits = "until [ -e go ]; do sleep 0.02; done";
    let steps = json!([
        {"tools": [["bash", {"command": waits}]]}, {"tools": [["bash", {"command": "true"}]]}, {"text": "done"},
    ]);
    lab.engine.prompt_async(&session, crate::common::prompt(&script(steps))).await.unwrap();
    events.wait_for(|body| matches!(body, EventBody::PartUpdated { .. })).await;
    lab.project.write_home(GLOBAL, rule("deny"));
    // A prompt in another session uses the new rules meanwhile.
    let other = lab.session().await;
    assert!(!runs(&lab, &other).await);
    lab.project.write("go", "");
    events.wait_idle(&session).await;
    let tools = lab.tools(&session).await;
    assert!(tools.iter().all(|tool| matches!(tool.state, ToolState::Completed(_))), "{tools:?}");
    assert!(!runs(&lab, &session).await);
}
