//! Our own tools, in a separate folder for each case.

use std::sync::Arc;

use api::{MessageId, SessionId};
use exec::Exec;
use tokio_util::sync::CancellationToken;
use trefoil_tools::{Context, LocalEnvironment, Options, Progress, ReadPolicy, Registry, RegistryOptions};

use crate::Outcome;
use crate::cases::{Case, FILE};

pub async fn run(tool: &str, case: &Case) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().canonicalize().unwrap();
    let file = directory.join(FILE);
    std::fs::write(&file, &case.content).unwrap();
    let registry =
        Registry::builtin(&RegistryOptions { apply_patch: tool == "apply_patch", ..RegistryOptions::default() });
    let tool = registry.get(tool).unwrap();
    let mut context = Context {
        session: SessionId::new(),
        message: MessageId::new(),
        call_id: "call".into(),
        traceparent: None,
        agent: "build".into(),
        directory: directory.clone(),
        worktree: directory,
        env: Arc::new(LocalEnvironment),
        exec: Exec::direct(),
        cancel: CancellationToken::new(),
        progress: Progress::none(),
        options: Arc::new(Options::default()),
        answers: None,
        granted: Arc::default(),
        readable: ReadPolicy::new(|_| true),
    };
    context.granted = tool.needs(&case.input, &context).await.ok()?.into();
    tool.run(case.input.clone(), context).await.ok()?;
    Some(std::fs::read(file).unwrap())
}
