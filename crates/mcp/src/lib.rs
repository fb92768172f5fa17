//! A client of MCP servers: programs of this machine (stdio) and servers with an address (streamable HTTP, or the older
//! HTTP with SSE), with OAuth where a server wants it.
//!
//! Invariants: a server hurts only itself. Whatever it prints is bounded, every wait for it has an end, and what it says is
//! data: its names are made harmless, its sizes are limited. A local server runs below a supervisor ([`exec::Exec::pipes`]),
//! so it is gone when Trefoil is.

mod auth;
mod browser;
mod client;
mod connect;
mod error;
mod http;
mod link;
mod list;
mod message;
mod name;
mod peer;
mod servers;
mod sse;
mod stdio;
mod store;
mod web;

pub use error::Error;
pub use list::{CallResult, Content, Prompt, PromptArgument, Resource, ResourceContents, ResourceTemplate, Tool};
pub use message::MESSAGE_MAX;
pub use name::{prompt_name, resource_key, sanitized, tool_name};
pub use servers::{Authorization, Instructions, Servers, Setup};

/// A lock whose holder panicked is still good: everything behind these locks is plain data.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
