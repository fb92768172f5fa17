//! Helpers for the tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use api::{Json, McpConfig, McpStatus};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trefoil_mcp::{CallResult, Content, Error, Servers, Setup};

/// Servers in a temporary folder.
pub struct Rig {
    pub servers: Servers,
    pub folder: TempDir,
    pub closing: CancellationToken,
    pub tasks: TaskTracker,
    pub changed: mpsc::UnboundedReceiver<String>,
}

impl Rig {
    /// Servers of a configuration as in a file; `SERVER` stands for the test server.
    pub fn new(config: Json) -> Self {
        Self::with(config, None)
    }

    /// The same, with a timeout for calls.
    pub fn with(config: Json, timeout: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = testkit::mcp_server(folder.path());
        let config = config.to_string().replace("SERVER", server.to_str().unwrap());
        let configs: indexmap::IndexMap<String, McpConfig> = serde_json::from_str(&config).unwrap();
        let (tell, changed) = mpsc::unbounded_channel();
        let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
        let setup = Setup {
            exec: exec::Exec::direct(),
            directory: folder.path().to_owned(),
            data: folder.path().join("data"),
            version: "1".to_owned(),
            timeout,
            closing: closing.clone(),
            tasks: tasks.clone(),
            changed: Arc::new(move |server| drop(tell.send(server.to_owned()))),
        };
        Self { servers: Servers::new(setup, configs), folder, closing, tasks, changed }
    }

    /// One test server of that kind, called `s`.
    pub fn local(kind: &str) -> Self {
        Self::new(json!({ "s": { "type": "local", "command": ["python3", "SERVER", kind] } }))
    }

    /// Starts the configured servers, and waits until each has started or failed: on a busy machine that may take
    /// longer than a prompt would wait.
    pub async fn ready(&self) {
        let starts =
            |status: &McpStatus| matches!(status, McpStatus::Failed { error } if error.contains("still starting"));
        let settled = async || {
            self.servers.ready().await;
            !self.servers.status().values().any(starts)
        };
        testkit::eventually("every server has started or failed", settled).await;
    }

    pub fn status(&self, name: &str) -> McpStatus {
        self.servers.status_of(name).unwrap()
    }

    pub async fn call(&self, tool: &str, arguments: Json) -> Result<CallResult, Error> {
        let cancel = CancellationToken::new();
        let tool = self.servers.tools().into_iter().find(|t| t.name == tool).expect("the tool is there");
        self.servers.call(&tool, arguments, &cancel, &|_| {}).await
    }

    pub async fn text(&self, tool: &str, arguments: Json) -> String {
        let result = self.call(tool, arguments).await.unwrap();
        match result.content.into_iter().next() {
            Some(Content::Text { text }) => text,
            other => panic!("no text: {other:?}"),
        }
    }
}

/// Waits with a limit.
#[track_caller]
pub fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    testkit::soon("what this line waits for", future)
}

/// Why a server failed.
pub fn failure(status: McpStatus) -> String {
    match status {
        McpStatus::Failed { error } => error,
        other => panic!("it did not fail: {other:?}"),
    }
}
