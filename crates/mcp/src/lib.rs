//! A client of MCP servers: programs of this machine (stdio) and servers with an address (streamable HTTP, or the older
//! HTTP with SSE), with OAuth where a server wants it.
//!
//! Invariants: a server hurts only itself. Whatever it prints is bounded, every wait for it has an end, and what it says is
//! data: its names are made harmless, its sizes are limited. A local server runs below a supervisor ([`exec::Exec::pipes`]),
//! so it is gone when Trefoil is.

mod client;
mod error;
mod http_client;
mod names;
mod oauth;
mod protocol;
mod rpc;
mod servers;
mod transport;

pub use error::Error;
pub use names::{prompt_name, resource_key, sanitized, tool_name};
pub use protocol::{CallResult, Content, Prompt, PromptArgument, Resource, ResourceContents, ResourceTemplate, Tool};
pub use rpc::MESSAGE_MAX;
pub use servers::{Authorization, Instructions, Servers, Setup};

/// A lock whose holder panicked is still good: everything behind these locks is plain data.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
