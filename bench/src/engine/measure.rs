//! Measurements inside the process, where a pipe would cost as much as the work itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use api::{Host as _, ListTurns, MessageId, Scope, Session, SessionId};
use engine::Engine;
use serde_json::{Value, json};
use store::{Batch, Location, SessionQuery, Store, TurnEnd};
use tokio_util::sync::CancellationToken;
use tools::{Context, LocalEnvironment, Options, Progress, Registry, RegistryOptions};

/// The number of sessions per transaction.
const BATCH: usize = 1_000;

/// Writes many sessions.
pub async fn fill(store: &Store, scope: &Scope, sessions: usize) -> Result<Value> {
    let place = Location::new(scope.directory.as_str(), "bench");
    for first in (0..sessions).step_by(BATCH) {
        let mut batch = Batch::new(&place);
        for number in first..sessions.min(first + BATCH) {
            batch.session(&session(scope, number)?);
        }
        store.commit(batch).await?;
    }
    Ok(json!({}))
}

fn session(scope: &Scope, number: usize) -> Result<Session> {
    Ok(serde_json::from_value(json!({
        "id": SessionId::new(), "slug": "calm-fox", "projectID": "bench", "directory": scope.directory,
        "title": format!("Repair the parser, part {number}"), "version": "0",
        "time": {"created": number, "updated": number},
        "summary": {"additions": 12, "deletions": 3, "files": 2},
    }))?)
}

/// Reads the first page of sessions, as typed values.
pub fn page(store: &Store, times: usize) -> Result<Value> {
    let query = SessionQuery::default();
    let mut spent = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        let page = store.sessions(&query)?;
        spent.push(milliseconds(start));
        anyhow::ensure!(!page.is_empty(), "the page is empty");
    }
    Ok(json!({"ms": spent}))
}

/// Writes many turns that have ended.
pub async fn turns(store: &Store, scope: &Scope, turns: usize) -> Result<Value> {
    let place = Location::new(scope.directory.as_str(), "bench");
    let session = session(scope, 0)?;
    let mut batch = Batch::new(&place);
    batch.session(&session);
    store.commit(batch).await?;
    for first in (1..=turns).step_by(BATCH) {
        let mut batch = Batch::new(&place);
        for number in first..=turns.min(first + BATCH - 1) {
            batch.begin_turn(&session.id, None);
            batch.end_turn(TurnEnd {
                session: session.id.clone(),
                number: number.try_into()?,
                is_cancelled: false,
                answer: Some(MessageId::new()),
                error: None,
            });
        }
        store.commit(batch).await?;
    }
    Ok(json!({"id": session.id}))
}

/// Reads the first page of a session's turns as a face does.
pub async fn turn_page(engine: &Engine, session: &SessionId, times: usize) -> Result<Value> {
    let mut spent = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        let page = engine.turns(session, ListTurns::default()).await?;
        spent.push(milliseconds(start));
        anyhow::ensure!(!page.turns.is_empty() && page.older.is_some(), "the page is not the first of many");
    }
    Ok(json!({"ms": spent}))
}

/// Searches a folder with the model's tool.
pub async fn grep(folder: PathBuf, pattern: &str, times: usize) -> Result<Value> {
    let registry = Registry::builtin(&RegistryOptions::default());
    let tool = registry.get("grep").context("there is no grep")?;
    let input = json!({"pattern": pattern});
    let mut context = context(folder);
    context.granted = tool.needs(&input, &context).await?.into();
    let mut spent = Vec::with_capacity(times);
    let mut matches = Value::Null;
    for _ in 0..times {
        let start = Instant::now();
        let output = tool.run(input.clone(), context.clone()).await?;
        spent.push(milliseconds(start));
        matches = output.metadata.get("matches").cloned().unwrap_or_default();
    }
    Ok(json!({"ms": spent, "matches": matches}))
}

/// Command lines as models write them.
const COMMANDS: [&str; 8] = [
    "git status --short && git log --oneline -n 5",
    "cargo test -p engine 2>&1 | tail -20",
    "for f in src/*.rs; do wc -l \"$f\"; done | sort -n | head",
    "find . -name '*.rs' -not -path './target/*' | xargs grep -n 'fn main'",
    "X=$(git rev-parse HEAD); echo \"at $X\"; test -f Cargo.toml && cat Cargo.toml",
    "cat > notes.txt <<'EOF'\none $HOME\ntwo\nEOF\nsed -n '1,20p' notes.txt",
    "mkdir -p out && cp README.md out/ && rm -rf out/tmp; ls -la out",
    "timeout 60 env RUST_LOG=debug cargo run --quiet -- --help | grep -i usage || echo none",
];

/// Determines what commands need, as before each call of `bash`.
pub async fn judge(folder: PathBuf, times: usize) -> Result<Value> {
    let registry = Registry::builtin(&RegistryOptions::default());
    let tool = registry.get("bash").context("there is no bash")?;
    let context = context(folder);
    let mut spent = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        for command in COMMANDS {
            anyhow::ensure!(!tool.needs(&json!({"command": command}), &context).await?.is_empty(), "{command}");
        }
        spent.push(milliseconds(start) / COMMANDS.len() as f64);
    }
    Ok(json!({"ms": spent}))
}

fn context(folder: PathBuf) -> Context {
    Context {
        session: SessionId::new(),
        message: MessageId::new(),
        call_id: "bench".into(),
        agent: "build".into(),
        traceparent: None,
        directory: folder.clone(),
        worktree: folder,
        env: Arc::new(LocalEnvironment),
        exec: exec::Exec::direct(),
        cancel: CancellationToken::new(),
        progress: Progress::none(),
        options: Arc::new(Options::default()),
        answers: None,
        granted: Arc::default(),
        readable: tools::ReadPolicy::new(|_| true),
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
