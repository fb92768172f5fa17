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
// From a prompt to its answer: the turn loop and everything it runs.
mod turn;
// The working trees of a project: changes, linked worktrees, workspaces.
mod workspace;
// Subagents that work in a git worktree of their own.
mod worktree;

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use api::{Caller, Environment, PartId, Runner, Scope, SessionId};
use indexmap::IndexMap;
use llm::{Llm, Script};
use store::{Signal, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::Error;
pub use project::UpdateProject;
pub use project::models::{Catalog, server};
pub use session::tidy::{TidyOptions, TidyReport};
pub use turn::watchdog::WatchdogScope;
pub use workspace::worktree_name;
pub use worktree::{CleanedWorktrees, ListedWorktree};

pub(crate) use environments::SharedEnvironment;

use ask::rules;
use project::config_reload;
use project::instance::Instance;
use spending::budget;
use turn::{conversation_cache, runs, trace};

/// How long [`Engine::shutdown`] waits for turns to park before it gives up on them.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(10);

/// The maximum number of directories whose configuration stays loaded.
const INSTANCES_MAX: usize = 64;

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

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) llm: Llm,
    pub(crate) exec: exec::Exec,
    pub(crate) inputs: config::Inputs,
    pub(crate) scripts: IndexMap<String, Arc<Script>>,
    pub(crate) question_tool: bool,
    pub(crate) careful: bool,
    pub(crate) runners: HashMap<String, Arc<dyn Runner>>,
    pub(crate) version: String,
    instances: Mutex<HashMap<PathBuf, Arc<Instance>>>,
    pub(crate) watched_directories: Arc<config_reload::WatchedDirectories>,
    /// Held while edited configuration is reloaded.
    pub(crate) reload_lock: tokio::sync::Mutex<()>,
    environments: Arc<environments::Environments>,
    /// MCP servers that clients added to single sessions.
    session_servers: Mutex<HashMap<SessionId, Arc<::mcp::Servers>>>,
    pub(crate) runs: runs::Runs,
    /// The sessions this process has opened, if its watchdog covers only those.
    pub(crate) opened_sessions: Mutex<Option<HashSet<SessionId>>>,
    pub(crate) conversations: conversation_cache::ConversationCache,
    pub(crate) asks: ask::AskWaiters,
    /// Sessions whose turn was abandoned without a trace in the database, because every write failed.
    pub(crate) given_up: Mutex<HashSet<SessionId>>,
    pub(crate) constraints_cache: rules::FifoCache<rules::ParsedConstraints>,
    pub(crate) traces: trace::Traces,
    /// Held while a subagent is counted and created, so that parallel calls cannot exceed the limit.
    pub(crate) spawn_lock: tokio::sync::Mutex<()>,
    /// Notified when a model call ends.
    pub(crate) budget_signal: budget::BudgetSignal,
    /// The background tasks this process follows, by the part id of their call.
    pub(crate) background: Mutex<HashSet<PartId>>,
    /// Limits how many children of a session work concurrently.
    pub(crate) subagent_slots: Mutex<HashMap<SessionId, Weak<Semaphore>>>,
    /// Held while worktrees are merged or removed: two merges into one tree would not see each other's changes.
    pub(crate) worktree_lock: tokio::sync::Mutex<()>,
    /// Held by the git commands that write in a worktree.
    pub(crate) git_locks: workspace::git_worktree::WorktreeLocks,
    /// Cancelled when the engine shuts down.
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) titles: TaskTracker,
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
            inputs: options.inputs,
            scripts: options.scripts,
            question_tool: options.question_tool,
            careful: options.careful,
            runners: options.runners,
            version: options.version,
            instances: Mutex::default(),
            watched_directories: Arc::default(),
            reload_lock: tokio::sync::Mutex::default(),
            environments: Arc::default(),
            session_servers: Mutex::default(),
            runs: runs::Runs::default(),
            opened_sessions: Mutex::default(),
            conversations: conversation_cache::ConversationCache::default(),
            asks: ask::AskWaiters::default(),
            given_up: Mutex::default(),
            constraints_cache: rules::FifoCache::default(),
            traces: trace::Traces::default(),
            spawn_lock: tokio::sync::Mutex::default(),
            budget_signal: budget::BudgetSignal::default(),
            background: Mutex::default(),
            subagent_slots: Mutex::default(),
            worktree_lock: tokio::sync::Mutex::default(),
            git_locks: workspace::git_worktree::WorktreeLocks::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            titles: TaskTracker::new(),
        });
        if let Some(mut signals) = signals {
            let weak = Arc::downgrade(&inner);
            let closing = inner.closing.clone();
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
        if self.caller.identity.is_none() {
            return self.inner.list_json(scope, query).await;
        }
        let sessions = self.only_accessible(self.inner.list(scope, query).await?, |session| &session.id)?;
        serde_json::to_string(&sessions).map_err(|error| api::HostError::Failed(error.to_string()))
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
        let own = || self.inner.inputs.env.get("SHELL").cloned();
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
        self.inner.runs.len()
    }

    /// The number of writes waiting for the journal.
    pub fn queued_writes(&self) -> usize {
        self.inner.store.queued_writes()
    }

    /// Drops the loaded configuration of a directory, so that the next call reads it again. Running turns keep what
    /// they have.
    pub fn reload(&self, scope: &Scope) {
        let directory = Path::new(&scope.directory);
        // A subagent's worktree uses the configuration of the directory it was made from.
        lock(&self.inner.instances).retain(|path, instance| path != directory && instance.origin != directory);
    }

    /// Binds a session to another view of its files, for turns that run in this process. `None` unbinds it.
    pub fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        self.inner.environments.bind(session, environment);
    }

    /// Stops taking signals, parks the running turns (they resume at the next start) and waits for their processes to
    /// end. Titles that are being written get a moment to finish.
    pub async fn shutdown(&self) {
        self.inner.runs.park_all();
        self.inner.titles.close();
        let _ = tokio::time::timeout(TITLE_WAIT, self.inner.titles.wait()).await;
        self.inner.closing.cancel();
        self.inner.runs.park_all();
        self.inner.tasks.close();
        let _ = tokio::time::timeout(SHUTDOWN_WAIT, self.inner.tasks.wait()).await;
    }
}

impl Inner {
    pub(crate) fn instance(&self, directory: &Path) -> Arc<Instance> {
        if let Some(found) = lock(&self.instances).get(directory) {
            return found.clone();
        }
        let loaded = Arc::new(Instance::load(self, directory, None));
        let mut instances = lock(&self.instances);
        if instances.len() >= INSTANCES_MAX {
            // Evict any instance: it is loaded again when needed, and current users keep theirs. Prefer one whose files
            // can still be read, because a rejected edit leaves its configuration only in memory.
            let is_readable = |instance: &Instance| !instance.has_rejected_edit.load(Ordering::Relaxed);
            let evicted =
                instances.iter().find(|(_, instance)| is_readable(instance)).or_else(|| instances.iter().next());
            evicted.map(|(directory, _)| directory.clone()).map(|directory| instances.remove(&directory));
        }
        instances.entry(directory.to_owned()).or_insert(loaded).clone()
    }

    pub(crate) fn environment(&self, session: &SessionId) -> Arc<dyn Environment> {
        self.environments.get(session).unwrap_or_else(|| Arc::new(tools::LocalEnvironment))
    }

    /// Lets the session `with` see files as `from` does until the guard is dropped. Returns `None` for a session with
    /// its own worktree, which sees the files there.
    pub(crate) fn share_environment(&self, from: &SessionId, with: &SessionId) -> Option<SharedEnvironment> {
        if !matches!(self.isolated_worktree(with), Ok(None)) {
            return None;
        }
        self.environments.share(from, with)
    }

    fn on_signal(self: &Arc<Self>, session: &SessionId, signal: Signal) {
        match signal {
            Signal::Abort { epoch } => self.runs.abort_turn(session, epoch),
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
