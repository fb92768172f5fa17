//! Wiring: turns what the process was given into a running engine, or into a client of a server.
//!
//! Only this folder reads the environment and the current directory. It also owns what a process has once: its signals, its log
//! and its allocator.

pub mod a2a;
pub mod agents;
mod interrupt;
mod invocation;
pub mod log;
pub mod memory;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use api::Scope;
use engine::Engine;
use llm::{Llm, Script};
use store::{DatabaseErrorKind, Store, StoreError};

use crate::args::Remote;
use crate::exit::{Exit, Failure};
use crate::terminal;

pub use interrupt::{Interrupt, Signal};
pub use invocation::{Invocation, env_var};

/// The largest script that is read.
const MAX_SCRIPT: u64 = 16 << 20;

/// The program and its version, as model servers see it.
pub const USER_AGENT: &str = concat!("trefoil/", env!("CARGO_PKG_VERSION"));

/// The model id of the script that a user names.
const SCRIPT_FILE: &str = "file";
/// The model id of the script that is always there.
const SCRIPT_DEMO: &str = "demo";

/// The engine of this process and the journal below it.
pub struct LocalEngine {
    /// The engine.
    pub engine: Engine,
    /// The journal, for what no host can do (`session import`).
    pub store: Store,
}

/// Opens the journal and starts the engine; needs a runtime. `script` plays instead of a model.
pub fn open(invocation: &Invocation, script: Option<&Path>, question_tool: bool) -> anyhow::Result<LocalEngine> {
    open_with(invocation, script, question_tool, false, Store::open_with)
}

/// Opens the engine for a command that only reads: it works on a journal that cannot be written.
pub fn open_for_reading(invocation: &Invocation) -> anyhow::Result<LocalEngine> {
    let local = open_with(invocation, invocation.script_file().as_deref(), false, false, Store::open_or_read_only)?;
    if let Some(why) = local.store.read_only_reason() {
        terminal::say(&format!("opened the database read-only: {}\n", terminal::one_line(&why.to_string(), 500)));
    }
    Ok(local)
}

/// Opens the engine for an editor: edits and commands need permission unless the configuration says otherwise.
pub fn open_for_editor(invocation: &Invocation, script: Option<&Path>) -> anyhow::Result<LocalEngine> {
    open_with(invocation, script, true, true, Store::open_with)
}

fn open_with(
    invocation: &Invocation,
    script: Option<&Path>,
    question_tool: bool,
    careful: bool,
    open: fn(&Path, store::Options) -> Result<Store, StoreError>,
) -> anyhow::Result<LocalEngine> {
    let mut scripts = indexmap::IndexMap::new();
    if let Some(path) = script {
        scripts.insert(SCRIPT_FILE.to_string(), Arc::new(read_script(&invocation.directory.join(path))?));
    }
    scripts.insert(SCRIPT_DEMO.to_string(), Arc::new(Script::demo()));
    let store = open_store(invocation, open)?;
    let program = std::env::current_exe().context("the path of this program cannot be read")?;
    let lock = store.lock_fd().map(|lock| lock.try_clone_to_owned()).transpose();
    let inputs = invocation.config_inputs();
    let trust = inputs.trust.clone();
    let exec = exec::Exec::supervised(program, lock.context("cannot share the lock of this process")?)
        .trusting(move |file, programs| trust.reloaded().covers(file, &config::content_hash(programs.as_bytes())));
    let version = env!("CARGO_PKG_VERSION");
    let acp: Arc<dyn api::Runner> = Arc::new(acp::Runner::new(exec.clone(), version, invocation.agent_depth()));
    let engine = Engine::open(engine::Options {
        store: store.clone(),
        llm: Llm::new(USER_AGENT),
        exec,
        inputs,
        scripts,
        question_tool,
        careful,
        runners: HashMap::from([("acp".to_owned(), acp), ("a2a".to_owned(), agents::runner(invocation))]),
        tools: agents::tools(invocation),
        version: version.to_owned(),
    })?;
    Ok(LocalEngine { engine, store })
}

/// Opens Trefoil's database.
fn open_store(
    invocation: &Invocation,
    open: fn(&Path, store::Options) -> Result<Store, StoreError>,
) -> anyhow::Result<Store> {
    let path = invocation.database_path();
    let store = open(&path, store_options(invocation)?)
        .map_err(|error| database_failure(&error, "cannot open the database"))?;
    if let Some(loss) = store.data_loss() {
        terminal::say(&format!("warning: {loss}\n"));
    }
    Ok(store)
}

fn store_options(invocation: &Invocation) -> anyhow::Result<store::Options> {
    Ok(store::Options { crash_after: invocation.crash_after()?, ..store::Options::default() })
}

/// Writes a row, durably: a database on a full disk can be opened, and a server must find that out before its first prompt.
pub async fn prove_writable(store: &Store) -> anyhow::Result<()> {
    let mut batch = store::Batch::new(&store::Location::new("", "")).durable();
    batch.record_if_changed("server", "started", &serde_json::json!({ "time": api::now() }));
    store.commit(batch).await.map_err(|error| database_failure(&error, "cannot serve"))?;
    Ok(())
}

/// Hides the credentials of callers from commands: no process of the same user can read this process's memory or its initial
/// environment, which has them. This also disables debuggers and core dumps.
pub fn protect_memory() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "commands can read the credentials of this server");
    }
}

/// The error of a command whose database cannot be opened or written.
pub fn database_failure(error: &StoreError, what: &str) -> Failure {
    let hint = match error {
        StoreError::Database { kind: DatabaseErrorKind::Full, .. } => {
            "free some space. Until then sessions can be listed, shown and exported, and TREFOIL_DATA_DIR can name a \
             directory on another disk"
        }
        _ => "TREFOIL_DATA_DIR names another directory for it; `trefoil doctor` checks it closely",
    };
    Failure::new(Exit::Failed, format!("{what}: {error}")).hint(hint)
}

/// A client of the server that `--attach` names, and the directory there. Sends nothing yet.
pub fn remote_client(invocation: &Invocation, remote: &Remote) -> anyhow::Result<Option<(client::Client, Scope)>> {
    let Some(url) = &remote.attach else { return Ok(None) };
    let directory = remote.dir.clone().unwrap_or_else(|| invocation.directory.to_string_lossy().into_owned());
    let options = client::Options {
        directory: Some(directory.clone()),
        username: invocation.server_secret("USERNAME"),
        password: invocation.server_secret("PASSWORD"),
        ..client::Options::default()
    };
    let refused = |error: api::HostError| Failure::new(Exit::Usage, error.to_string());
    let host = client::Client::new(url, options).map_err(refused)?;
    Ok(Some((host, Scope::new(directory))))
}

fn read_script(path: &Path) -> anyhow::Result<Script> {
    let refused = |why: String| Failure::new(Exit::Usage, format!("cannot play the script {}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if size > MAX_SCRIPT {
        return Err(refused(format!("it has more than {} MB", MAX_SCRIPT >> 20)).into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Ok(Script::parse(&text).map_err(|error| refused(error.to_string()))?)
}
