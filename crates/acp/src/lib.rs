//! The ACP face. [`serve`] runs the agent that an editor starts: ACP over a pair of pipes, in front of any
//! [`AgentRuntime`], the engine of this process or a remote server. [`client`] is the other side of the protocol,
//! and [`Runner`] uses it to run other programs' agents as subagents. Both sides speak JSON-RPC ([`rpc`]).
//!
//! Invariants: nothing durable lives here; the agent uses only what the client announced; every message stays below one
//! megabyte; no request delays another one, and no session another session.

mod agent;
mod capabilities;
pub mod client;
mod editor;
mod runner;
mod size;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::rpc::{Sink, Source};
use api::{AgentRuntime, Environment, SessionId};
use tokio_util::sync::CancellationToken;

pub use ::rpc;
pub use agent::McpOwners;
pub use runner::Runner;

/// What an agent needs to run.
pub struct AgentOptions {
    /// Runs the sessions.
    pub host: Arc<dyn AgentRuntime>,
    /// The engine of this process if the host is local: only then can tools use the editor's files and terminals.
    pub local: Option<Arc<dyn LocalEngine>>,
    /// The version reported to clients.
    pub version: String,
    /// How the user signs in.
    pub login: Login,
    /// Which client supplied the MCP servers of each session. All clients of a process share it.
    pub mcp_owners: McpOwners,
}

/// The program that asks the user for credentials, in a terminal.
#[derive(Debug, Clone)]
pub struct Login {
    /// The executable, this program.
    pub program: String,
    /// The arguments that start the agent.
    pub command: Vec<String>,
    /// Additional arguments that start the sign-in instead.
    pub args: Vec<String>,
}

/// What an agent needs from the engine of its own process beyond [`AgentRuntime`].
pub trait LocalEngine: Send + Sync {
    /// The environment that works on the disk.
    fn disk(&self) -> Arc<dyn Environment>;
    /// Binds a session's files and commands to the editor's environment; `None` unbinds them.
    fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>);
}

/// Serves a client until it disconnects or `stop` is cancelled. The host keeps running turns that are still active.
pub async fn serve(options: AgentOptions, source: impl Source, sink: impl Sink + 'static, stop: CancellationToken) {
    let peer = rpc::Peer::default();
    let agent = Arc::new(agent::Agent::new(options, peer.clone()));
    rpc::run(source, sink, peer, agent.clone(), stop).await;
    agent.disconnect().await;
}

/// Ignores poisoning: everything behind these locks is a plain map, valid even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
