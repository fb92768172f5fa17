//! A client of MCP servers: local programs (stdio) and remote servers (streamable HTTP, or the older HTTP with SSE),
//! with OAuth where a server requires it.
//!
//! Invariants: a server harms only itself. Its output is bounded, every wait for it has a limit, and what it sends is
//! untrusted data: names are sanitised, sizes limited. A local server runs under a supervisor ([`exec::Exec::pipes`]),
//! so it ends with Trefoil.

mod client;
mod error;
mod http_client;
mod names;
mod oauth;
mod peer;
mod protocol;
mod servers;
mod transport;

pub use self::peer::MESSAGE_MAX;
pub use error::Error;
pub use names::{prompt_name, resource_key, sanitized, tool_name};
pub use protocol::{CallResult, Content, Prompt, PromptArgument, Resource, ResourceContents, ResourceTemplate, Tool};
pub use servers::{Authorization, Instructions, Servers, Setup};

/// Ignores poisoning: everything behind these locks is plain data, valid even if a holder panicked.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The beginning of a text, for messages.
pub(crate) fn truncated(text: &str, max: usize) -> String {
    let text = text.trim();
    if text.len() <= max { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(max)]) }
}
