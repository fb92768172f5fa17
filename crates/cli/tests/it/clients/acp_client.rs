//! `trefoil acp-client` with the real `opencode acp` and a scripted model.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{ModelServer, Reply, TempProject};

use super::harness::{OPENCODE_LONGEST, finish, opencode, succeeded};

fn client(project: &TempProject, model: &ModelServer) -> Command {
    let agent = opencode(project);
    let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut config = model.config();
    config["permission"] = json!({ "edit": "ask", "bash": "ask" });
    command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
    // All its requests stay on this machine.
    command.env("HTTPS_PROXY", "http://127.0.0.1:9");
    command.args(["acp-client", "--json", "--agent"]).arg(format!("exec '{}' acp", agent.get_program().display()));
    command
}

/// Runs the client while the model server runs.
async fn lines(mut command: Command, args: &[&str]) -> Vec<Value> {
    command.args(args);
    let output = tokio::task::spawn_blocking(move || finish(command, OPENCODE_LONGEST)).await.unwrap();
    succeeded(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_session_with_opencode() {
    let project = TempProject::new();
    let model = ModelServer::start().await;
    model.answer_titles("A title");

    let shown = lines(client(&project, &model), &[]).await;
    assert_eq!(of(&shown, "initialize")[0]["answer"]["agentInfo"]["name"], "OpenCode");
    assert!(of(&shown, "session")[0]["configOptions"].to_string().contains("test/test-model"), "{shown:?}");

    let path = project.path().join("made.txt");
    model.enqueue(Reply::text("Writing. ").tool(
        "c1",
        "write",
        json!({"filePath": path, "content": "from opencode\n"}),
    ));
    let task = json!({"description": "Look at it", "prompt": "look", "subagent_type": "general"});
    model.enqueue(Reply::text("Delegating. ").tool("c2", "task", task));
    model.enqueue(Reply::text("Seen."));
    model.enqueue(Reply::text("All done."));
    let told = lines(client(&project, &model), &["--permission", "allow", "--model", "test/test-model", "go"]).await;
    assert_eq!(project.read("made.txt"), "from opencode\n");
    assert_eq!(of(&told, "result")[0]["answer"]["stopReason"], "end_turn");
    assert!(!of(&told, "permission").is_empty(), "{told:?}");
    let root = of(&told, "session")[0]["sessionId"].as_str().unwrap().to_owned();
    let said: String = of(&told, "update")
        .iter()
        .filter(|line| line["update"]["sessionUpdate"] == "agent_message_chunk" && line["sessionId"] == root.as_str())
        .filter_map(|line| line["update"]["content"]["text"].as_str())
        .collect();
    assert!(said.ends_with("All done."), "{said}");
    let subagents = of(&told, "subagent");
    assert_eq!(subagents.first().map(|line| &line["title"]), Some(&json!("Look at it")), "{subagents:?}");
    let last = subagents.last().unwrap();
    assert_eq!((&last["state"], &last["parent"]), (&json!("idle"), &json!(root)));
    assert!(last["session"].is_string(), "{last}");

    model.enqueue(Reply::text("Again."));
    let more = lines(client(&project, &model), &["--session", &root, "--permission", "reject", "more"]).await;
    let replayed = of(&more, "update").iter().any(|line| line["update"].to_string().contains("All done."));
    assert!(replayed, "the conversation is shown before it goes on");
    assert!(of(&more, "update").iter().any(|line| line["update"].to_string().contains("Again.")));
}
