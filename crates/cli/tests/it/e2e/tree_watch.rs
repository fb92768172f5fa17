//! `trefoil tree --attach` while a subagent works: on a real OpenCode, and on Trefoil.

use std::fs::File;
use std::time::Duration;

use api::{CreateSession, Host as _, PromptInput, PromptPart, Scope};
use client::{Client, Options};
use serde_json::{Value, json};
use testkit::{ModelServer, OpenCode};

use super::harness::{Harness, Program, Reader, finish, spawn};
use super::serve::ServeProcess;

/// How long a server may take for its first response.
const START: Duration = Duration::from_secs(60);

fn config(model: &ModelServer) -> Value {
    let mut config = model.config();
    config["permission"] = json!({"bash": "allow", "task": "allow"});
    config["enabled_providers"] = json!(["test"]);
    config["share"] = json!("disabled");
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tree_of_opencode_is_watched() {
    let (harness, model) = (Harness::new(), ModelServer::start().await);
    let server = OpenCode::start(&harness.project, &config(&model));
    watched(&harness, &server.url(), model).await;
    let id = harness.trefoil(&["session", "list", "--json", "--attach", &server.url()]).expect(0).json();
    let id = id[0]["id"].as_str().unwrap().to_owned();
    harness.trefoil(&["pause", &id, "--attach", &server.url()]).expect(1).says("it is not Trefoil");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tree_of_trefoil_is_watched_on_its_server() {
    let (harness, model) = (Harness::new(), ModelServer::start().await);
    harness.project.write_home(".config/opencode/opencode.json", config(&model).to_string());
    let server = ServeProcess::start(&harness, &[]);
    watched(&harness, &server.url, model).await;
}

/// A program and its standard output.
struct Watch {
    program: Program,
    stdout: Reader,
}

impl Watch {
    fn start(harness: &Harness, args: &[&str]) -> Self {
        let mut program = spawn(harness.command(args));
        let stdout = program.stdout.take().unwrap();
        Self { program, stdout: Reader::new(move || stdout) }
    }

    /// What it printed since the last wait, once it has ended by itself.
    fn end(self) -> String {
        let rest = self.stdout.rest();
        finish(self.program).expect(0);
        rest
    }
}

/// Watches a session that delegates a task, from before the subagent starts until after it ended.
async fn watched(harness: &Harness, url: &str, mut model: ModelServer) {
    model.answer_titles("A title");
    let client = Client::new(url, Options::default()).unwrap();
    client.wait_until_ready(START).await.unwrap();
    let scope = Scope::new(harness.project.directory());
    let root = client.create_session(&scope, CreateSession::default()).await.unwrap().id;
    let prompt = PromptInput { parts: vec![PromptPart::text("Delegate")], ..PromptInput::default() };
    client.prompt_async(&root, prompt).await.unwrap();
    let mut call = model.next_call().await;

    let mut lines = Watch::start(harness, &["tree", root.as_str(), "--watch", "--attach", url]);
    let mut objects = Watch::start(harness, &["tree", root.as_str(), "--watch", "--json", "--attach", url]);
    lines.stdout.wait_for("thinking\n");
    objects.stdout.wait_for("\n");

    // It starts.
    let task = json!({"description": "Look around", "prompt": "Look", "subagent_type": "general"});
    call.tool("call_1", "task", task).await;
    call.finish("tool_calls").await;
    let mut call = model.next_call().await;
    lines.stdout.wait_for("  ● general  Look around  thinking\n");

    // It uses a tool.
    let gate = harness.pipe("gate");
    call.tool("call_2", "bash", json!({"command": "cat gate", "description": "Wait"})).await;
    call.finish("tool_calls").await;
    let gate = testkit::on_thread("the command opens the gate", || File::options().write(true).open(gate)).unwrap();
    lines.stdout.wait_for("  ● general  Look around  bash");
    objects.stdout.wait_for(r#""tool":"bash""#);
    let shown = harness.trefoil(&["tree", root.as_str(), "--attach", url]).expect(0).stdout;
    assert!(shown.contains("└─ ● general  Look around ") && shown.contains(" bash  "), "{shown}");
    assert!(shown.contains("2 sessions · 2 at work"), "{shown}");

    // It ends.
    drop(gate);
    let mut call = model.next_call().await;
    call.text("Seen.").await;
    call.finish("stop").await;
    lines.stdout.wait_for("  ✓ general  Look around  done");
    let mut call = model.next_call().await;
    call.text("Well.").await;
    call.finish("stop").await;
    let rest = lines.end();
    assert!(rest.contains("2 sessions · 0 at work"), "{rest}");
    let rest = objects.end();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    let states: Vec<&Value> = last["sessions"].as_array().unwrap().iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["idle", "idle"]);
}
