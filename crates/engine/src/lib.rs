//! The agent runtime: sessions, turns, subagents, permissions and recovery. [`Engine`] is the [`api::AgentRuntime`] of
//! this process.
//!
//! Invariants: the engine knows no protocol (no HTTP status, no ACP or A2A type). Durable state changes only through
//! [`store::Store::commit`]. The state of the turn loop is derived from rows, so another process can resume an
//! interrupted turn.

// What a caller may do and see.
mod access;
// Requests to the user, and the rules and approvals that decide when to ask.
mod ask;
// The view of the files that each session has.
mod environments;
mod error;
// [`Engine`] as an [`api::AgentRuntime`].
mod host;
// Everything known about a directory: configuration, agents, models, MCP servers and files.
mod project;
// Agents that run outside this process.
mod remote;
// Sessions as records: create, list, fork, delete, and the tree below a session.
mod session;
// Budgets, the ledger, and the limits on subagents.
mod spending;
// The `task` tool, and sessions that work for another session.
mod subagent;
// The tasks of the engine, and their end.
mod tasks;
// From a prompt to its answer: the turn loop and everything it runs.
mod turn;
// The working trees of a project: changes, linked worktrees, workspaces.
mod workspace;
// Subagents that work in a git worktree of their own.
mod worktree;

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Caller, Environment, Runner, Scope, SessionId};
use indexmap::IndexMap;
use llm::{Llm, Script};
use store::{Signal, Store};

pub use error::Error;
pub use project::UpdateProject;
pub use project::models::{Catalog, server};
pub use session::tidy::{TidyOptions, TidyReport};
pub use turn::watchdog::WatchdogScope;
pub use workspace::worktree_name;
pub use worktree::{CleanedWorktrees, ListedWorktree};

pub(crate) use environments::SharedEnvironment;

use ask::Asks;
use environments::Environments;
use project::config_reload;
use project::projects::Projects;
use spending::Spending;
use subagent::Subagents;
use tasks::Tasks;
use turn::local::LocalTurns;
use workspace::git_worktree::Worktrees;

/// How long [`Engine::shutdown`] waits for turns to park before it gives up on them.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(10);

/// How long [`Engine::shutdown`] first waits for titles.
const TITLE_WAIT: Duration = Duration::from_secs(2);

/// What an engine is built from.
pub struct Options {
    /// The journal.
    pub store: Store,
    /// The model clients.
    pub llm: Llm,
    /// The process runner.
    pub exec: exec::Exec,
    /// Where configuration comes from. Each call replaces the directory with its own.
    pub inputs: config::Inputs,
    /// The models of the `script` provider, by id.
    pub scripts: IndexMap<String, Arc<Script>>,
    /// Whether someone is there to answer the `question` tool.
    pub question_tool: bool,
    /// Whether edits and commands need approval unless the configuration says otherwise, because a user is watching.
    /// This applies to the sessions this engine creates and the prompts it accepts, even when another process continues
    /// them.
    pub careful: bool,
    /// The runners of remote agents, by their configuration key.
    pub runners: HashMap<String, Arc<dyn Runner>>,
    /// Tools in addition to the built-in ones. They replace no built-in tool.
    pub tools: Vec<Arc<dyn tools::Tool>>,
    /// The version written into new sessions.
    pub version: String,
}

/// A caller's handle on the agent runtime of this process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    /// Who uses this handle.
    pub(crate) caller: Arc<Caller>,
}

/// What an engine was built with, besides the store, the models and the process runner. See [`Options`].
pub(crate) struct Settings {
    pub(crate) inputs: config::Inputs,
    pub(crate) scripts: IndexMap<String, Arc<Script>>,
    pub(crate) runners: HashMap<String, Arc<dyn Runner>>,
    pub(crate) tools: Vec<Arc<dyn tools::Tool>>,
    pub(crate) question_tool: bool,
    pub(crate) careful: bool,
    pub(crate) version: String,
}

/// The engine itself. Each room keeps its own state in memory, and says what others may do with it; what needs several
/// rooms is a method of this type, in the room that it is about.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) llm: Llm,
    pub(crate) exec: exec::Exec,
    pub(crate) settings: Settings,
    pub(crate) tasks: Tasks,
    pub(crate) turns: LocalTurns,
    pub(crate) asks: Asks,
    pub(crate) subagents: Subagents,
    pub(crate) spending: Spending,
    pub(crate) projects: Projects,
    pub(crate) worktrees: Worktrees,
    pub(crate) environments: Arc<Environments>,
}

impl Engine {
    /// Starts an engine; must be called inside a tokio runtime. The handle is that of the machine's owner.
    pub fn open(options: Options) -> Result<Self, Error> {
        // Only at startup: a folder that is moved away later must not be recreated.
        let data = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&options.inputs.dirs.data);
        if let Err(error) = data {
            tracing::warn!(folder = %options.inputs.dirs.data.display(), %error, "cannot create the data folder");
        }
        let signals = options.store.take_signals();
        let inner = Arc::new(Inner {
            store: options.store,
            llm: options.llm,
            exec: options.exec,
            settings: Settings {
                inputs: options.inputs,
                scripts: options.scripts,
                runners: options.runners,
                tools: options.tools,
                question_tool: options.question_tool,
                careful: options.careful,
                version: options.version,
            },
            tasks: Tasks::default(),
            turns: LocalTurns::default(),
            asks: Asks::default(),
            subagents: Subagents::default(),
            spending: Spending::default(),
            projects: Projects::default(),
            worktrees: Worktrees::default(),
            environments: Arc::default(),
        });
        if let Some(mut signals) = signals {
            let weak = Arc::downgrade(&inner);
            let closing = inner.tasks.closing().clone();
            tokio::spawn(async move {
                while let Some(Some((session, signal))) = closing.run_until_cancelled(signals.recv()).await {
                    let Some(inner) = weak.upgrade() else { break };
                    inner.on_signal(&session, signal);
                }
            });
        }
        config_reload::spawn_watcher(&inner);
        Ok(Self { inner, caller: Arc::default() })
    }

    /// The configuration of a directory, loaded on first use.
    pub fn loaded(&self, scope: &Scope) -> Arc<config::LoadedConfig> {
        self.inner.instance(Path::new(&scope.directory)).loaded.clone()
    }

    /// Like [`api::Host::sessions`], but returns a JSON array of the stored rows without parsing them.
    pub async fn sessions_json(&self, scope: &Scope, query: api::ListSessions) -> Result<String, api::HostError> {
        self.inner.list_json(&self.caller, scope, query).await
    }

    /// Like [`api::Host::tree`], but returns JSON. A tree of a thousand sessions is many small pieces of memory, so it is
    /// written and freed on the thread that read it.
    pub async fn tree_json(&self, id: &SessionId) -> Result<Vec<u8>, api::HostError> {
        self.check(id, access::Right::Read)?;
        self.inner.tree_json(id).await
    }

    /// The process runner.
    pub fn exec(&self) -> &exec::Exec {
        &self.inner.exec
    }

    /// The process runner for a directory. It hides the environment variables that the directory's configuration hides.
    pub fn exec_at(&self, scope: &Scope) -> exec::Exec {
        self.inner.instance(Path::new(&scope.directory)).exec.clone()
    }

    /// The shell for a user's terminal: the configured one, otherwise the user's own.
    pub fn terminal_shell(&self, scope: &Scope) -> PathBuf {
        let configured = self.loaded(scope).config.shell.clone();
        let own = || self.inner.settings.inputs.env.get("SHELL").cloned();
        let chosen = configured.or_else(own).map(PathBuf::from).filter(|shell| shell.is_absolute() && shell.is_file());
        chosen.unwrap_or_else(|| self.inner.instance(Path::new(&scope.directory)).options.shell.clone())
    }

    /// The tools of a directory: those offered to `model`, or all of them without a model.
    pub async fn tools(&self, scope: &Scope, model: Option<&api::ModelRef>) -> Vec<Arc<dyn tools::Tool>> {
        let instance = self.inner.current_instance(Path::new(&scope.directory)).await;
        let Some(wanted) = model else {
            let patches = instance.patch_tools.iter().filter(|tool| instance.tools.get(tool.name()).is_none());
            return instance.tools.iter().chain(patches).cloned().collect();
        };
        let known = self.inner.resolve(&instance, wanted).map(|target| target.model.api.id);
        instance.tools_for(&known.unwrap_or_else(|_| wanted.model_id.clone())).iter().cloned().collect()
    }

    /// The number of turns running in this process.
    pub fn running(&self) -> usize {
        self.inner.turns.running()
    }

    /// The number of writes waiting for the journal.
    pub fn queued_writes(&self) -> usize {
        self.inner.store.queued_writes()
    }

    /// Binds a session to another view of its files, for turns that run in this process. `None` unbinds it.
    pub fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        self.inner.environments.bind(session, environment);
    }

    /// Stops taking signals, parks the running turns (they resume at the next start) and waits for their processes to
    /// end. Titles that are being written get a moment to finish.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.turns.park_all();
        let _ = tokio::time::timeout(TITLE_WAIT, inner.turns.finish_titles()).await;
        inner.tasks.closing().cancel();
        // Also those that began meanwhile.
        inner.turns.park_all();
        let _ = tokio::time::timeout(SHUTDOWN_WAIT, inner.tasks.finish()).await;
    }
}

impl Inner {
    fn on_signal(self: &Arc<Self>, session: &SessionId, signal: Signal) {
        match signal {
            Signal::Abort { epoch } => self.turns.abort_turn(session, epoch),
            Signal::Reply { ask } => self.asks.wake(&ask),
            Signal::Wake | Signal::Steer { .. } => {
                self.start(session);
            }
        }
    }
}

/// Locks a mutex even if a holder panicked: everything behind these locks is a plain map.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs work on a thread that may block. Fails only if the work panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, api::HostError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "blocking work panicked");
        api::HostError::Failed(error.to_string())
    })
}
