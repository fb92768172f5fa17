//! Work that was cut off goes on where it is, or is said to be interrupted; it is never begun twice.

use api::{Host, TreeState};
use serde_json::{Value, json};
use testkit::{Recorder, eventually};

use super::lab::{Lab, bash, error, open, output, own, pipe, run, script, shell, text, told};

/// A command that tells its process id through the pipe `pid`, and stays.
const STAYS: &str = "echo $$ > pid; exec sleep 300";

fn lives(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).join("cmdline").exists()
}

/// Runs `trefoil run` until the other agent has written its process id, kills it, and gives the engine that comes next.
async fn killed(lab: Lab, prompt: &str) -> (Lab, api::SessionId, String) {
    pipe(&lab, "pid");
    let call = json!({"description": "Do it", "prompt": prompt, "subagent_type": "other"});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "told"}]});
    let path = lab.project.write_home("script.json", steps.to_string());
    lab.engine.shutdown().await;
    let mut command = lab.project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.args(["run", "--script"]).arg(&path).arg("go").stdout(std::process::Stdio::null());
    let mut run = command.spawn().unwrap();
    let pid = told(&lab, "pid");
    run.kill().unwrap();
    run.wait().unwrap();
    let engine = open(&lab.project);
    let lab = Lab { engine, ..lab };
    let roots = lab.engine.sessions(&lab.scope, api::ListSessions { roots: true, ..Default::default() }).await.unwrap();
    let session = roots[0].id.clone();
    (lab, session, pid)
}

async fn recovered(lab: &Lab, session: &api::SessionId) {
    let mut events = Recorder::new(std::sync::Arc::new(lab.engine.clone())).await;
    // Whoever was killed is dead only once nothing of it is left.
    eventually("something goes on", async || lab.engine.recover(None).await.unwrap() > 0).await;
    events.wait_idle(session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_it_goes_on_in_the_session_of_the_agent() {
    let steps = json!([{"text": "Begun. ", "tools": [bash(STAYS)]}, {"text": "Went on."}]);
    let (lab, session, pid) = killed(Lab::new(json!({})), &script(steps)).await;
    recovered(&lab, &session).await;
    assert!(!lives(&pid), "nothing of it is left");
    let task = lab.tools(&session).await.remove(0);
    // What goes on is told to by a message; the scripted model answers that one.
    assert!(output(&task).contains("</task_result>"), "{}", output(&task));
    let child = lab.child(&session).await;
    let messages = lab.messages(&child.id).await;
    assert!(text(&messages).starts_with("Begun. "), "{messages:#?}");
    let calls = lab.tools(&child.id).await;
    assert!(error(&calls[0]).contains("interrupted"), "{calls:#?}");
    let home = lab.project.root().join("other/data");
    let mut command = lab.project.command(env!("CARGO_BIN_EXE_trefoil"));
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
    let (lab, session, _) = killed(Lab::with(json!({}), |_| shell(answers)), "go").await;
    recovered(&lab, &session).await;
    let task = lab.tools(&session).await.remove(0);
    assert!(
        error(&task).contains("interrupted") && error(&task).contains("cannot open sessions again"),
        "{}",
        error(&task)
    );
    assert_eq!(lab.project.read("starts").lines().count(), 2);
    assert_eq!(lab.project.read("prompts").lines().count(), 1, "no second session was opened");
    let child = lab.child(&session).await;
    let tree = lab.engine.tree(&lab.scope, &child.id).await.unwrap();
    assert_eq!(tree.sessions[0].state, TreeState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_the_agent_and_the_next_start_goes_on() {
    let lab = Lab::with(json!({}), own);
    pipe(&lab, "pid");
    let session = lab.session().await;
    lab.begin(&session, &script(json!([{"tools": [bash(STAYS)]}]))).await;
    let pid = told(&lab, "pid");
    lab.engine.shutdown().await;
    assert!(!lives(&pid), "it is gone when we are");
    let lab = Lab { engine: open(&lab.project), ..lab };
    recovered(&lab, &session).await;
    let task = lab.tools(&session).await.remove(0);
    assert!(output(&task).contains("</task_result>"), "{}", output(&task));
}

#[tokio::test(flavor = "multi_thread")]
async fn its_subagents_are_cut_off_with_it() {
    let below = json!({"description": "Look", "prompt": script(json!([{"text": "Begun. ", "tools": [bash(STAYS)]}])),
        "subagent_type": "general"});
    let work = script(json!([{"tools": [["task", below]]}, {"text": "Went on."}]));
    let (lab, session, pid) = killed(Lab::new(json!({})), &work).await;
    recovered(&lab, &session).await;
    assert!(!lives(&pid), "nothing of it is left");
    let nodes = lab.engine.tree(&lab.scope, &session).await.unwrap().sessions;
    assert!(nodes.len() > 2 && nodes.iter().all(|node| !node.state.is_live()), "{nodes:#?}");
    let cut = nodes.iter().find(|node| node.depth == 2).unwrap();
    // The agent may go on with it, too; that is another answer.
    let messages = lab.messages(&cut.session_id).await;
    let first = messages.iter().find_map(|message| message.info.as_assistant()).unwrap();
    assert!(first.error.as_ref().unwrap().message().contains("interrupted"), "{messages:#?}");
    assert!(text(&messages).starts_with("Begun. "), "{messages:#?}");
    let calls = lab.tools(&cut.session_id).await;
    assert!(error(&calls[0]).contains("interrupted"), "{calls:#?}");
}

/// Kills the program right after its n-th commit, and has the next one go on.
async fn killed_after(commits: u32) -> bool {
    let lab = Lab::new(json!({}));
    lab.engine.shutdown().await;
    let below = json!({"description": "Look", "prompt": script(json!([{"tools": [bash("echo once >> log")]}, {"text": "Seen."}])),
        "subagent_type": "general"});
    let work = script(json!([{"tools": [["task", below]]}, {"text": "Done."}]));
    let call = json!({"description": "Do it", "prompt": work, "subagent_type": "other"});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "told"}]});
    let path = lab.project.write_home("script.json", steps.to_string());
    let trefoil = |crash: Option<u32>, more: &str| {
        let mut command = lab.project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(["run", "--script"]).arg(&path).arg(more);
        command.envs(crash.map(|commits| ("TREFOIL_CRASH_AFTER", commits.to_string())));
        run(command)
    };
    let whole = trefoil(Some(commits), "go").await.status.success();
    let next = trefoil(None, "-c").await;
    let said = String::from_utf8_lossy(&next.stderr).into_owned();
    let done = std::fs::read_to_string(lab.project.path().join("log")).unwrap_or_default();
    assert!(done.lines().count() <= 1, "after {commits} commits it was done twice: {said}");
    let lab = Lab { engine: open(&lab.project), ..lab };
    for session in lab.engine.sessions(&lab.scope, api::ListSessions::default()).await.unwrap() {
        let tree = lab.engine.tree(&lab.scope, &session.id).await.unwrap();
        assert!(tree.sessions.iter().all(|node| !node.state.is_live()), "after {commits} commits: {said}\n{tree:#?}");
        let calls = lab.tools(&session.id).await;
        assert!(calls.iter().all(|call| call.state.is_done()), "after {commits} commits: {said}\n{calls:#?}");
    }
    whole
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_it_is_killed_nothing_is_done_twice_and_nothing_is_left_open() {
    for commits in (2..200).step_by(3) {
        if killed_after(commits).await {
            assert!(commits > 20, "there were only {commits} commits");
            return;
        }
    }
    panic!("a task has fewer commits");
}
