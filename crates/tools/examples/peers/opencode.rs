//! The real OpenCode: one turn of a scripted model calls its `edit` once per case, each on its own file.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ModelServer, Reply, TempProject};

use crate::Outcome;
use crate::cases::Case;

/// The number of calls per answer.
const CALLS: usize = 50;
/// How long OpenCode may take for one answer.
const TIME: Duration = Duration::from_secs(300);

pub async fn run(cases: &[Case]) -> Vec<Outcome> {
    let program = peer::install(&testkit::target_folder()).expect("OpenCode is needed here");
    let mut outcomes = Vec::new();
    for some in cases.chunks(CALLS) {
        let project = TempProject::new();
        let model = ModelServer::start().await;
        model.answer_titles("edits");
        let mut calls = Reply::default();
        for (number, case) in some.iter().enumerate() {
            let file = project.write(format!("{number}.txt"), &case.content);
            let mut input = case.input.clone();
            input["filePath"] = json!(file);
            calls = calls.tool(format!("call_{number}"), "edit", input);
        }
        model.enqueue(calls.finish("tool_calls"));
        model.enqueue(Reply::text("done").finish("stop"));
        let mut command = project.command(&program);
        command.args(["run", "--format", "json", "edit"]).env("OPENCODE_CONFIG_CONTENT", model.config().to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        let status = tokio::process::Command::from(command).status();
        let status = tokio::time::timeout(TIME, status).await.expect("OpenCode answers in time").unwrap();
        assert!(status.success(), "OpenCode ended with {status}");
        let results = model.requests().last().map(|request| request.messages().to_vec()).unwrap_or_default();
        outcomes.extend((0..some.len()).map(|number| {
            let applied = results.iter().any(|message| is_result(message, number) && succeeded(message));
            applied.then(|| std::fs::read(project.path().join(format!("{number}.txt"))).unwrap())
        }));
    }
    outcomes
}

fn is_result(message: &Value, number: usize) -> bool {
    message["tool_call_id"] == format!("call_{number}")
}

fn succeeded(message: &Value) -> bool {
    message["content"].to_string().contains("applied successfully")
}
