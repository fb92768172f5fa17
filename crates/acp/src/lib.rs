//! The ACP face: an agent for editors, over a pair of pipes. It knows a [`Host`](api::Host) and nothing of what is behind
//! it, so that it works in front of this process's engine and of a server far away.
//!
//! Invariants: nothing durable is kept here; what the client did not announce is never used; every message stays below a
//! megabyte; no request holds up another one, and no session another session.

mod agent;
mod capabilities;
pub mod client;
mod editor;
pub mod rpc;
mod runner;
mod size;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Environment, Host, SessionId};
use tokio_util::sync::CancellationToken;

pub use agent::Brought;
use rpc::{Sink, Source};
pub use runner::Runner;

/// What an agent is made of.
pub struct Options {
    /// Where the work is done.
    pub host: Arc<dyn Host>,
    /// The engine of this process, if the work is done here: it may use the editor's files and terminals.
    pub local: Option<Arc<dyn Local>>,
    /// The version that clients are told.
    pub version: String,
    /// How the human signs in.
    pub login: Login,
    /// Which client brought the MCP servers of a session; shared by the clients of a process.
    pub brought: Brought,
}

/// A program that asks the human for credentials, in a terminal.
#[derive(Debug, Clone)]
pub struct Login {
    /// This program.
    pub program: String,
    /// The arguments that make it an agent.
    pub command: Vec<String>,
    /// The further ones that make it ask.
    pub args: Vec<String>,
}

/// What an agent does with the engine of its own process, beyond what every host can.
pub trait Local: Send + Sync {
    /// The disk.
    fn disk(&self) -> Arc<dyn Environment>;
    /// Binds the files and commands of a session to the editor's, or no longer.
    fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>);
}

/// Serves a client until it hangs up or `stop` is cancelled. Turns that run then are left to the host.
pub async fn serve(options: Options, source: impl Source, sink: impl Sink + 'static, stop: CancellationToken) {
    let peer = rpc::Peer::default();
    let agent = Arc::new(agent::Agent::new(options, peer.clone()));
    rpc::run(source, sink, peer, agent.clone(), stop).await;
    agent.leave().await;
}

/// A lock whose holder panicked is still good: everything behind these locks is a plain map.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
