//! Turns that are followed on the engine of this process, on Trefoil over HTTP, and on OpenCode.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod feed;
mod scenario;

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use api::AgentRuntime;
use client::{Client, Options};
use config::{Dirs, Inputs, Trust};
use engine::Engine;
use serde_json::{Value, json};
use testkit::{ModelServer, OpenCode, TempProject, trefoil_bin};

/// How long a server may take for its first response.
const START: Duration = Duration::from_secs(60);

/// An engine on a project's database.
pub fn open(project: &TempProject) -> Engine {
    let env: BTreeMap<String, String> = project.env().into_iter().collect();
    let dirs = Dirs::from_env(&env, &project.home());
    let store = store::Store::open(&dirs.data.join("trefoil.db")).unwrap();
    let inputs = Inputs { directory: project.path().to_owned(), home: project.home(), dirs, env, trust: Trust::All };
    Engine::open(engine::Options {
        store,
        llm: llm::Llm::new("trefoil/test"),
        exec: exec::Exec::direct(),
        inputs,
        scripts: BTreeMap::from([("demo".to_owned(), Arc::new(llm::Script::demo()))]).into_iter().collect(),
        question_tool: false,
        careful: false,
        runners: Default::default(),
        tools: Vec::new(),
        version: "0.0.0".to_owned(),
    })
    .unwrap()
}

fn config(model: &ModelServer) -> Value {
    let mut config = model.config();
    config["enabled_providers"] = json!(["test"]);
    config["share"] = "disabled".into();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_this_process_is_followed() {
    let (project, model) = (TempProject::new(), ModelServer::start().await);
    project.write_home(".config/opencode/opencode.json", config(&model).to_string());
    let host: Arc<dyn AgentRuntime> = Arc::new(open(&project));
    scenario::scenario(host, &project, model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_trefoil_over_http_is_followed() {
    let (project, model) = (TempProject::new(), ModelServer::start().await);
    project.write_home(".config/opencode/opencode.json", config(&model).to_string());
    let socket = project.root().join("trefoil.sock");
    let mut command = project.command(trefoil_bin());
    command.args(["serve", "--socket"]).arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(command.spawn().unwrap());
    let client = Client::new(&format!("unix:{}", socket.display()), Options::default()).unwrap();
    client.wait_until_ready(START).await.unwrap();
    scenario::scenario(Arc::new(client), &project, model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_opencode_is_followed() {
    let (project, model) = (TempProject::new(), ModelServer::start().await);
    let server = OpenCode::start(&project, &config(&model));
    let client = Client::new(&server.url(), Options::default()).unwrap();
    client.wait_until_ready(START).await.unwrap();
    scenario::scenario(Arc::new(client), &project, model).await;
}

/// A server process that ends when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
