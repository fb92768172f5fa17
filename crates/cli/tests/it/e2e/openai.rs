//! The program with a server that speaks OpenAI's chat completions.

use serde_json::json;
use testkit::{ModelServer, Reply};

use super::harness::{Harness, RunResult, finish, spawn};

/// Runs the program while the server runs, with the variables that a newcomer would set.
async fn run(harness: &Harness, server: &ModelServer, args: &[&str]) -> RunResult {
    let mut command = harness.command(&["run"]);
    command.args(args).env("OPENAI_API_KEY", "sk-very-secret").env("OPENAI_MODEL", "tiny");
    command.env("OPENAI_BASE_URL", server.base_url());
    tokio::task::spawn_blocking(move || finish(spawn(command))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_named_by_variables_does_the_work() {
    let harness = Harness::new();
    let server = ModelServer::start().await;
    server.answer_titles("A title");
    server.enqueue(Reply::text("On it. ").tool("call_1", "bash", json!({ "command": "echo made > made.txt" })));
    server.enqueue(Reply::default().reasoning("Good.").and_text("Made it.").finish("stop"));
    let ran = run(&harness, &server, &["make", "it"]).await.expect(0);
    assert_eq!(ran.stdout, "On it. \nMade it.\n");
    ran.says("build · openai/tiny\n");
    ran.says("● bash  echo made > made.txt");
    assert_eq!(harness.project.read("made.txt"), "made\n");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_key_is_a_model_error_that_does_not_show_it() {
    let harness = Harness::new();
    let server = ModelServer::start().await;
    server.answer_titles("A title");
    server.enqueue(Reply::error(
        401,
        json!({ "error": { "message": "Incorrect API key", "type": "invalid_request_error" } }),
    ));
    let ran = run(&harness, &server, &["--log-level", "trace", "go"]).await.expect(3);
    ran.says("Incorrect API key");
    ran.says("hint: check the provider's key");
    let log =
        std::fs::read_to_string(harness.project.home().join(".local/state/trefoil/trefoil.log")).unwrap_or_default();
    for text in [&ran.stdout, &ran.stderr, &log] {
        assert!(!text.contains("sk-very-secret"), "the key is shown");
    }
}
