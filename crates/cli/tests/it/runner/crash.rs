//! Interrupted work continues where it is, or is reported as interrupted; it never starts twice.

use api::{Host, TreeState};
use serde_json::{Value, json};
use testkit::{Recorder, eventually};

use super::fixture::{Fixture, bash, error, open, output, own, pipe, run, script, shell, text, told};

/// A command that writes its process id into the pipe `pid`, and keeps running.
const STAYS: &str = "echo $$ > pid; exec sleep 300";

fn lives(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).join("cmdline").exists()
}

/// Runs `trefoil run` until the other agent has written its process id, kills it, and returns the next engine.
async fn killed(fixture: Fixture, prompt: &str) -> (Fixture, api::SessionId, String) {
    pipe(&fixture, "pid");
    let call = json!({"description": "Do it", "prompt": prompt, "subagent_type": "other"});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "told"}]});
    let path = fixture.project.write_home("script.json", steps.to_string());
    fixture.engine.shutdown().await;
    let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.args(["run", "--script"]).arg(&path).arg("go").stdout(std::process::Stdio::null());
    let mut run = command.spawn().unwrap();
    let pid = told(&fixture, "pid");
    run.kill().unwrap();
    run.wait().unwrap();
    let engine = open(&fixture.project);
    let fixture = Fixture { engine, ..fixture };
    let roots =
        fixture.engine.sessions(&fixture.scope, api::ListSessions { roots: true, ..Default::default() }).await.unwrap();
    let session = roots[0].id.clone();
    (fixture, session, pid)
}

async fn recovered(fixture: &Fixture, session: &api::SessionId) {
    let mut events = Recorder::new(std::sync::Arc::new(fixture.engine.clone())).await;
    // The killed program counts as dead once nothing of it is left.
    eventually("something goes on", async || fixture.engine.recover(None).await.unwrap() > 0).await;
    events.wait_idle(session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_it_continues_the_agents_session() {
    let steps = json!([{"text": "Begun. ", "tools": [bash(STAYS)]}, {"text": "Went on."}]);
    let (fixture, session, pid) = killed(Fixture::new(json!({})), &script(steps)).await;
    recovered(&fixture, &session).await;
    assert!(!lives(&pid), "nothing of it is left");
    let task = fixture.tools(&session).await.remove(0);
    // A message resumes the agent; the scripted model answers it.
    assert!(output(&task).contains("</task_result>"), "{}", output(&task));
    let child = fixture.child(&session).await;
    let messages = fixture.messages(&child.id).await;
    assert!(text(&messages).starts_with("Begun. "), "{messages:#?}");
    let calls = fixture.tools(&child.id).await;
    assert!(error(&calls[0]).contains("interrupted"), "{calls:#?}");
    let home = fixture.project.root().join("other/data");
    let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.env("XDG_DATA_HOME", home).args(["session", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&run(command).await.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "it is the same session there: {listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_go_on_is_interrupted_and_asked_nothing_twice() {
    let answers = r#"echo started >> starts
        read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
        read line || exit; echo prompted >> prompts; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
        read line; echo $$ > pid; exec sleep 300"#;
    let (fixture, session, _) = killed(Fixture::with(json!({}), |_| shell(answers)), "go").await;
    recovered(&fixture, &session).await;
    let task = fixture.tools(&session).await.remove(0);
    assert!(
        error(&task).contains("interrupted") && error(&task).contains("cannot open sessions again"),
        "{}",
        error(&task)
    );
    assert_eq!(fixture.project.read("starts").lines().count(), 2);
    assert_eq!(fixture.project.read("prompts").lines().count(), 1, "no second session was opened");
    let child = fixture.child(&session).await;
    let tree = fixture.engine.tree(&child.id).await.unwrap();
    assert_eq!(tree.sessions[0].state, TreeState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_the_agent_and_the_next_start_resumes_it() {
    let fixture = Fixture::with(json!({}), own);
    pipe(&fixture, "pid");
    let session = fixture.session().await;
    fixture.begin(&session, &script(json!([{"tools": [bash(STAYS)]}]))).await;
    let pid = told(&fixture, "pid");
    fixture.engine.shutdown().await;
    assert!(!lives(&pid), "it is gone when we are");
    let fixture = Fixture { engine: open(&fixture.project), ..fixture };
    recovered(&fixture, &session).await;
    let task = fixture.tools(&session).await.remove(0);
    assert!(output(&task).contains("</task_result>"), "{}", output(&task));
}

#[tokio::test(flavor = "multi_thread")]
async fn its_subagents_are_interrupted_with_it() {
    let below = json!({"description": "Look", "prompt": script(json!([{"text": "Begun. ", "tools": [bash(STAYS)]}])),
        "subagent_type": "general"});
    let work = script(json!([{"tools": [["task", below]]}, {"text": "Went on."}]));
    let (fixture, session, pid) = killed(Fixture::new(json!({})), &work).await;
    recovered(&fixture, &session).await;
    assert!(!lives(&pid), "nothing of it is left");
    let nodes = fixture.engine.tree(&session).await.unwrap().sessions;
    assert!(nodes.len() > 2 && nodes.iter().all(|node| !node.state.is_live()), "{nodes:#?}");
    let cut = nodes.iter().find(|node| node.depth == 2).unwrap();
    // The agent may also continue it; that is another answer.
    let messages = fixture.messages(&cut.session_id).await;
    let first = messages.iter().find_map(|message| message.info.as_assistant()).unwrap();
    assert!(first.error.as_ref().unwrap().message().contains("interrupted"), "{messages:#?}");
    assert!(text(&messages).starts_with("Begun. "), "{messages:#?}");
    let calls = fixture.tools(&cut.session_id).await;
    assert!(error(&calls[0]).contains("interrupted"), "{calls:#?}");
}

/// Kills the program right after its n-th commit, and lets the next one resume.
async fn killed_after(commits: u32) -> bool {
    let fixture = Fixture::new(json!({}));
    fixture.engine.shutdown().await;
    let below = json!({"description": "Look", "prompt": script(json!([{"tools": [bash("echo once >> log")]}, {"text": "Seen."}])),
        "subagent_type": "general"});
    let work = script(json!([{"tools": [["task", below]]}, {"text": "Done."}]));
    let call = json!({"description": "Do it", "prompt": work, "subagent_type": "other"});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "told"}]});
    let path = fixture.project.write_home("script.json", steps.to_string());
    let trefoil = |crash: Option<u32>, more: &str| {
        let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(["run", "--script"]).arg(&path).arg(more);
        command.envs(crash.map(|commits| ("TREFOIL_CRASH_AFTER", commits.to_string())));
        run(command)
    };
    let whole = trefoil(Some(commits), "go").await.status.success();
    let next = trefoil(None, "-c").await;
    let said = String::from_utf8_lossy(&next.stderr).into_owned();
    let done = std::fs::read_to_string(fixture.project.path().join("log")).unwrap_or_default();
    assert!(done.lines().count() <= 1, "after {commits} commits it was done twice: {said}");
    let fixture = Fixture { engine: open(&fixture.project), ..fixture };
    for session in fixture.engine.sessions(&fixture.scope, api::ListSessions::default()).await.unwrap() {
        let tree = fixture.engine.tree(&session.id).await.unwrap();
        assert!(tree.sessions.iter().all(|node| !node.state.is_live()), "after {commits} commits: {said}\n{tree:#?}");
        let calls = fixture.tools(&session.id).await;
        assert!(calls.iter().all(|call| call.state.is_done()), "after {commits} commits: {said}\n{calls:#?}");
    }
    whole
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_commit_repeats_nothing_and_leaves_nothing_open() {
    for commits in (2..200).step_by(3) {
        if killed_after(commits).await {
            assert!(commits > 20, "there were only {commits} commits");
            return;
        }
    }
    panic!("a task has fewer commits");
}
