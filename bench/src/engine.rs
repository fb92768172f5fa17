//! The engine as a process of its own, driven over pipes by the benchmark.
//!
//! One JSON request per line comes in, one JSON answer per line goes out (`{"error": …}` if it failed). It takes its home
//! from the environment and its project from the current directory, as the program itself does, and has the program's
//! allocator and threads, so that its memory and CPU time are what the program's would be.

mod measure;
mod tasks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{CreateSession, Host, PromptInput, PromptPart, Scope, SessionId, WatchItem, WatchScope};
use config::{Dirs, Inputs, Trust};
use engine::Engine;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Store;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// The first argument that starts this program as the engine.
pub const ARGUMENT: &str = "__engine";
/// As many as the program itself has.
const WORKERS: usize = 2;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    /// Creates a session; the answer has its `id`.
    Session,
    /// Sends a prompt and waits for the end of the turn.
    Turn { session: SessionId, text: String },
    /// Writes many sessions into the journal.
    Fill { sessions: usize },
    /// Reads the first page of sessions; the answer has the milliseconds of each read.
    Page { times: usize },
    /// Writes many ended turns into one session; the answer has its `id`.
    Turns { turns: usize },
    /// Reads the first page of a session's turns; the answer has the milliseconds of each read.
    TurnPage { session: SessionId, times: usize },
    /// Writes many ended tasks of A2A into the journal.
    Tasks { tasks: usize },
    /// Runs the `grep` tool; the answer has the milliseconds of each run and the number of matching lines.
    Grep { folder: PathBuf, pattern: String, times: usize },
    /// Parses command lines for the rules; the answer has the milliseconds per line of each run.
    Judge { times: usize },
}

/// Answers requests until there are no more.
pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(serve())
}

async fn serve() -> Result<()> {
    let subject = Subject::open()?;
    let subscriber = tokio::spawn(drain(subject.engine.watch(WatchScope::All, None).await?));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    while let Some(line) = lines.next_line().await? {
        let request = serde_json::from_str(&line).context("not a request");
        let answer = match request {
            Ok(request) => subject.answer(request).await,
            Err(error) => Err(error),
        };
        let answer = answer.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
        out.write_all(format!("{answer}\n").as_bytes()).await?;
        out.flush().await?;
    }
    subject.engine.shutdown().await;
    subscriber.abort();
    Ok(())
}

/// The one subscriber of every measurement: it reads each event and discards it.
async fn drain(mut events: futures::stream::BoxStream<'static, WatchItem>) {
    while events.next().await.is_some() {}
}

/// What is measured.
struct Subject {
    engine: Engine,
    store: Store,
    database: PathBuf,
    scope: Scope,
}

impl Subject {
    fn open() -> Result<Self> {
        let env: BTreeMap<String, String> = std::env::vars().collect();
        let home = std::env::home_dir().context("there is no home")?;
        let directory = std::env::current_dir()?;
        let scope = Scope::new(directory.to_string_lossy());
        let dirs = Dirs::from_env(&env, &home);
        let database = dirs.data.join("trefoil.db");
        let store = Store::open(&database)?;
        let engine = Engine::open(engine::Options {
            store: store.clone(),
            llm: llm::Llm::new("trefoil/bench"),
            exec: exec::Exec::direct(),
            inputs: Inputs { directory, home, dirs, env, trust: Trust::All },
            scripts: [("demo".to_owned(), Arc::new(llm::Script::demo()))].into_iter().collect(),
            question_tool: false,
            careful: false,
            runners: Default::default(),
            tools: Vec::new(),
            version: "0".to_owned(),
        })?;
        Ok(Self { engine, store, database, scope })
    }

    async fn answer(&self, request: Request) -> Result<Value> {
        match request {
            Request::Session => {
                // With a title, so that the model is not asked for one.
                let input = CreateSession { title: Some("bench".to_owned()), ..CreateSession::default() };
                Ok(json!({"id": self.engine.create_session(&self.scope, input).await?.id}))
            }
            Request::Turn { session, text } => {
                let prompt = PromptInput { parts: vec![PromptPart::text(&text)], ..PromptInput::default() };
                let answer = self.engine.prompt(&session, prompt).await?;
                let length: usize =
                    answer.parts.iter().filter_map(api::Part::as_text).map(|part| part.text.len()).sum();
                anyhow::ensure!(length > 0, "the turn had no answer: {}", serde_json::to_string(&answer)?);
                Ok(json!({"length": length}))
            }
            Request::Fill { sessions } => measure::fill(&self.store, &self.scope, sessions).await,
            Request::Page { times } => measure::page(&self.store, times),
            Request::Turns { turns } => measure::turns(&self.store, &self.scope, turns).await,
            Request::TurnPage { session, times } => measure::turn_page(&self.engine, &session, times).await,
            Request::Tasks { tasks } => tasks::fill(&self.store, &self.database, &self.scope, tasks).await,
            Request::Grep { folder, pattern, times } => measure::grep(folder, &pattern, times).await,
            Request::Judge { times } => measure::judge(self.scope.directory.as_str().into(), times).await,
        }
    }
}
