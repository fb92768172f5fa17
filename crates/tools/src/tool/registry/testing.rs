//! A workspace on disk for the tests of this crate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Json, MessageId, SessionId};
use exec::Exec;
use tokio_util::sync::CancellationToken;

use super::{Registry, RegistryOptions};
use crate::files::disk::LocalEnvironment;
use crate::tool::context::{Context, Options, Progress, ReadPolicy};
use crate::tool::{Need, Output, ToolError};

pub(crate) struct Workspace {
    guard: tempfile::TempDir,
    root: PathBuf,
    registry: Registry,
    pub options: Options,
    patch: Registry,
}

impl Workspace {
    pub fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let base = guard.path().canonicalize().unwrap();
        let root = base.join("project");
        std::fs::create_dir(&root).unwrap();
        let registry = Registry::builtin(&RegistryOptions { list: true, question: true, apply_patch: false });
        let patch = Registry::builtin(&RegistryOptions { apply_patch: true, ..RegistryOptions::default() });
        let output_dir = base.join("tool-output");
        let options = Options { output_dir, bash_timeout: Duration::from_secs(20), ..Options::default() };
        Self { guard, root, registry, options, patch }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that contains the workspace.
    pub fn outside(&self) -> PathBuf {
        self.guard.path().canonicalize().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn context(&self) -> Context {
        Context {
            session: SessionId::new(),
            message: MessageId::new(),
            call_id: "call_1".into(),
            agent: "build".into(),
            directory: self.root.clone(),
            worktree: self.root.clone(),
            env: Arc::new(LocalEnvironment),
            exec: Exec::direct(),
            cancel: CancellationToken::new(),
            progress: Progress::none(),
            options: Arc::new(self.options.clone()),
            answers: None,
            granted: Vec::new().into(),
            readable: ReadPolicy::new(|pattern| !pattern.ends_with(".env")),
            traceparent: None,
        }
    }

    pub async fn needs(&self, tool: &str, input: Json) -> Result<Vec<Need>, ToolError> {
        let tool = self.registry.get(tool).or(self.patch.get(tool)).unwrap();
        tool.needs(&input, &self.context()).await
    }

    /// Runs a call with all its needs granted.
    pub async fn run(&self, tool: &str, input: Json) -> Result<Output, ToolError> {
        self.run_in(self.context(), tool, input).await
    }

    pub async fn run_in(&self, mut ctx: Context, tool: &str, input: Json) -> Result<Output, ToolError> {
        ctx.granted = self.needs(tool, input.clone()).await?.into();
        self.run_granted(ctx, tool, input).await
    }

    /// Runs a call with the needs that `ctx` grants.
    pub async fn run_granted(&self, ctx: Context, tool: &str, input: Json) -> Result<Output, ToolError> {
        self.registry.get(tool).or(self.patch.get(tool)).unwrap().run(input, ctx).await
    }

    pub async fn fail(&self, tool: &str, input: Json) -> String {
        self.run(tool, input).await.unwrap_err().to_string()
    }
}
