//! Sessions as actors, the turn loop, agents, permission decisions and recovery. [`Engine`] is the [`api::Host`] of this
//! process.
//!
//! Invariants: no protocol appears in here (no HTTP status, no ACP or A2A type); durable state changes only through
//! [`store::Store::commit`]; the loop's state is derived from rows, so a turn that was cut off goes on in another process.

// Requests to the human, and the rules and approvals that make them needed.
mod ask;
mod error;
// [`Engine`] as an [`api::Host`].
mod host;
// What is known about a directory: its configuration, agents, models, MCP servers and files.
mod project;
// Agents that run outside this process.
mod remote;
// Sessions as records: create, list, fork, delete, and the tree of a session.
mod session;
// Budgets, the ledger and the limits of subagents.
mod spending;
// The `task` tool and the sessions that work for another one.
mod subagent;
// From a prompt to its answer: the turn loop and everything it runs.
mod turn;
// Subagents that work in a git worktree of their own.
mod worktree;

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use api::{Environment, PartId, Runner, Scope, SessionId};
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
pub use worktree::{CleanedWorktrees, ListedWorktree};

use ask::rules;
use project::config_reload;
use project::instance::Instance;
use spending::budget;
use turn::{conversation_cache, runs, trace};

/// How long [`Engine::shutdown`] waits for turns to park before it gives up on them.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(10);

/// The most directories whose configuration is kept.
const INSTANCES_MAX: usize = 64;

/// How long it waits for titles before that.
const TITLE_WAIT: Duration = Duration::from_secs(2);

/// What an engine is made of.
pub struct Options {
    /// The journal.
    pub store: Store,
    /// The model wires.
    pub llm: Llm,
    /// The process runner.
    pub exec: exec::Exec,
    /// Where configuration comes from; its directory is replaced by that of each call.
    pub inputs: config::Inputs,
    /// The models of the provider `script`, by id.
    pub scripts: IndexMap<String, Arc<Script>>,
    /// Whether somebody is there who can answer the `question` tool.
    pub question_tool: bool,
    /// Whether edits and commands are asked for, unless the configuration says otherwise: somebody sits there and watches. That
    /// holds for the sessions that this engine makes and the prompts that it takes, whoever goes on with them.
    pub careful: bool,
    /// Who does the work of agents that are elsewhere, by the key of their configuration.
    pub runners: HashMap<String, Arc<dyn Runner>>,
    /// The version that new sessions carry.
    pub version: String,
}

/// The agent runtime of this process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
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
    /// Held while configuration that was edited is read again.
    pub(crate) reload_lock: tokio::sync::Mutex<()>,
    environments: Mutex<HashMap<SessionId, Arc<dyn Environment>>>,
    /// The MCP servers that sessions brought.
    session_servers: Mutex<HashMap<SessionId, Arc<::mcp::Servers>>>,
    pub(crate) runs: runs::Runs,
    /// The sessions that this process has to do with, if it looks after those alone.
    pub(crate) opened_sessions: Mutex<Option<HashSet<SessionId>>>,
    pub(crate) conversations: conversation_cache::ConversationCache,
    pub(crate) asks: ask::AskWaiters,
    /// Sessions whose turn was given up without a trace in the database, which refused every write.
    pub(crate) given_up: Mutex<HashSet<SessionId>>,
    pub(crate) constraints: rules::ConstraintsCache,
    pub(crate) traces: trace::Traces,
    /// Held while a subagent is counted and made, so that calls side by side do not make one too many.
    pub(crate) spawn_lock: tokio::sync::Mutex<()>,
    /// Told when a call of a model has ended.
    pub(crate) budget_signal: budget::BudgetSignal,
    /// The tasks in the background that this process follows, by their calls.
    pub(crate) background: Mutex<HashSet<PartId>>,
    /// What bounds how many children of a session work at once.
    pub(crate) subagent_slots: Mutex<HashMap<SessionId, Weak<Semaphore>>>,
    /// Held while worktrees are merged or removed: two merges into one tree would not see each other's changes.
    pub(crate) worktree_lock: tokio::sync::Mutex<()>,
    /// Cancelled when the engine shuts down.
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) titles: TaskTracker,
}

impl Engine {
    /// Starts an engine; must be called inside a tokio runtime.
    pub fn open(options: Options) -> Result<Self, Error> {
        // Only at the start: a folder that is moved away later must not be made anew.
        let data = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&options.inputs.dirs.data);
        if let Err(error) = data {
            tracing::warn!(folder = %options.inputs.dirs.data.display(), %error, "the data folder cannot be made");
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
            environments: Mutex::default(),
            session_servers: Mutex::default(),
            runs: runs::Runs::default(),
            opened_sessions: Mutex::default(),
            conversations: conversation_cache::ConversationCache::default(),
            asks: ask::AskWaiters::default(),
            given_up: Mutex::default(),
            constraints: rules::ConstraintsCache::default(),
            traces: trace::Traces::default(),
            spawn_lock: tokio::sync::Mutex::default(),
            budget_signal: budget::BudgetSignal::default(),
            background: Mutex::default(),
            subagent_slots: Mutex::default(),
            worktree_lock: tokio::sync::Mutex::default(),
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
        Ok(Self { inner })
    }

    /// The configuration of a directory, loaded at its first use.
    pub fn loaded(&self, scope: &Scope) -> Arc<config::Loaded> {
        self.inner.instance(Path::new(&scope.directory)).loaded.clone()
    }

    /// The same as [`api::Host::sessions`], as JSON texts, just as they are stored.
    pub fn sessions_json(&self, scope: &Scope, query: api::ListSessions) -> Result<Vec<String>, api::HostError> {
        self.inner.store.sessions_json(&self.inner.session_query(scope, query)).map_err(error::store_error)
    }

    /// The runner of processes.
    pub fn exec(&self) -> &exec::Exec {
        &self.inner.exec
    }

    /// The same for programs of a directory, without what its configuration hides from them.
    pub fn exec_at(&self, scope: &Scope) -> exec::Exec {
        self.inner.instance(Path::new(&scope.directory)).exec.clone()
    }

    /// The shell that a human gets in a terminal: the configured one, else their own.
    pub fn terminal_shell(&self, scope: &Scope) -> PathBuf {
        let configured = self.loaded(scope).config.shell.clone();
        let own = || self.inner.inputs.env.get("SHELL").cloned();
        let chosen = configured.or_else(own).map(PathBuf::from).filter(|shell| shell.is_absolute() && shell.is_file());
        chosen.unwrap_or_else(|| self.inner.instance(Path::new(&scope.directory)).options.shell.clone())
    }

    /// The tools of a directory: those that a model gets, or without one all that there are.
    pub async fn tools(&self, scope: &Scope, model: Option<&api::ModelRef>) -> Vec<Arc<dyn tools::Tool>> {
        let instance = self.inner.current_instance(Path::new(&scope.directory)).await;
        let Some(wanted) = model else {
            let patches = instance.patch_tools.iter().filter(|tool| instance.tools.get(tool.name()).is_none());
            return instance.tools.iter().chain(patches).cloned().collect();
        };
        let known = self.inner.resolve(&instance, wanted).map(|target| target.model.api.id);
        instance.tools_for(&known.unwrap_or_else(|_| wanted.model_id.clone())).iter().cloned().collect()
    }

    /// How many turns this process runs now.
    pub fn running(&self) -> usize {
        self.inner.runs.len()
    }

    /// How many writes wait for the journal.
    pub fn queued_writes(&self) -> usize {
        self.inner.store.queued()
    }

    /// Forgets what was loaded for a directory, so that the next call reads it anew. Running turns keep what they have.
    pub fn reload(&self, scope: &Scope) {
        let directory = Path::new(&scope.directory);
        // Worktrees of subagents have the configuration of the directory that they were made from.
        lock(&self.inner.instances).retain(|path, instance| path != directory && instance.origin != directory);
    }

    /// Binds a session's files to somebody else's view of them, for turns that this process runs; `None` unbinds.
    pub fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        let mut bound = lock(&self.inner.environments);
        match environment {
            Some(environment) => bound.insert(session.clone(), environment),
            None => bound.remove(session),
        };
    }

    /// Stops taking signals, parks the running turns (they go on at the next start) and waits for their processes to end.
    /// Titles that are being written get a moment.
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
            // Any one: it is loaded again when it is needed, and whoever uses it now keeps it. One whose files cannot be read
            // any more comes last, as what they said is known nowhere else.
            let is_readable = |instance: &Instance| !instance.has_rejected_edit.load(Ordering::Relaxed);
            let evicted =
                instances.iter().find(|(_, instance)| is_readable(instance)).or_else(|| instances.iter().next());
            evicted.map(|(directory, _)| directory.clone()).map(|directory| instances.remove(&directory));
        }
        instances.entry(directory.to_owned()).or_insert(loaded).clone()
    }

    pub(crate) fn environment(&self, session: &SessionId) -> Arc<dyn Environment> {
        lock(&self.environments).get(session).cloned().unwrap_or_else(|| Arc::new(tools::LocalEnvironment))
    }

    /// Lets a session see files as another one does, until the answer is dropped.
    /// One with a worktree of its own sees the files there.
    pub(crate) fn share_environment(self: &Arc<Self>, from: &SessionId, with: &SessionId) -> Option<SharedEnvironment> {
        if !matches!(self.isolated_worktree(with), Ok(None)) {
            return None;
        }
        let mut bound = lock(&self.environments);
        let environment = bound.get(from)?.clone();
        bound.insert(with.clone(), environment);
        Some(SharedEnvironment { inner: self.clone(), session: with.clone() })
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

/// A session that sees files as another one does.
pub(crate) struct SharedEnvironment {
    inner: Arc<Inner>,
    session: SessionId,
}

impl Drop for SharedEnvironment {
    fn drop(&mut self) {
        lock(&self.inner.environments).remove(&self.session);
    }
}

/// A lock whose holder panicked is still good: everything behind these locks is a plain map.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
