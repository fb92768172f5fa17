//! The service in front of the real OpenCode, with a scripted model.

use std::path::Path;
use std::time::Duration;

use client::{Client, Options};
use serde_json::json;
use testkit::{ModelServer, OpenCode};

use super::service::{A2aService, project};
use super::{installed, model, script};

/// How long OpenCode may take for its first response.
const START: Duration = Duration::from_secs(60);

/// Runs a script with a service in front of OpenCode.
async fn before_opencode(program: &Path, script: &Path, transport: &'static str) {
    let project = project();
    let server = ModelServer::start().await;
    let mut config = server.config();
    config["permission"] = json!({"bash": "ask"});
    config["enabled_providers"] = json!(["test"]);
    config["share"] = json!("disabled");
    let opencode = OpenCode::start(&project, &config);
    Client::new(&opencode.url(), Options::default()).unwrap().wait_until_ready(START).await.unwrap();
    let playing = tokio::spawn(model::serve(server));
    let (program, script, url) = (program.to_owned(), script.to_owned(), opencode.url());
    let run = tokio::task::spawn_blocking(move || {
        let service = A2aService::start(project, |command| {
            command.env("OPENCODE_BASE_URL", url);
        });
        service.run(&program, &script, transport);
    });
    run.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    playing.abort();
    drop(opencode);
}

#[tokio::test(flavor = "multi_thread")]
async fn line_03_works_on_the_real_opencode() {
    before_opencode(&installed(peer::a2a_python_03), &script("a2a_sdk_03.py"), "HTTP+JSON").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn line_10_works_on_the_real_opencode() {
    before_opencode(Path::new("node"), &installed(peer::packages).join("a2a-sdk-10.mjs"), "JSONRPC").await;
}
