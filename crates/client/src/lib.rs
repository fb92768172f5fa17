//! A remote [`AgentRuntime`](api::AgentRuntime): a client of OpenCode's HTTP and SSE API, for Trefoil and for OpenCode itself.
//!
//! Which features a server has beyond OpenCode's API is detected from the `server` header of its responses.
//!
//! ```no_run
//! # async fn example() -> Result<(), api::HostError> {
//! use api::{CreateSession, Host, PromptInput, PromptPart, Scope, WatchScope};
//! use trefoil_client::{Client, Options};
//!
//! let client = Client::new("http://127.0.0.1:4096", Options::default())?;
//! let scope = Scope::new("/path/of/a/project");
//! let events = client.events(WatchScope::Directory(scope.directory.clone())).await?;
//! let idle = events.once("session.idle");
//! let session = client.create_session(&scope, CreateSession::default()).await?;
//! let prompt = PromptInput { parts: vec![PromptPart::text("Hello")], ..PromptInput::default() };
//! client.prompt_async(&session.id, prompt).await?;
//! idle.await?;
//! # Ok(())
//! # }
//! ```

mod catalog_host;
mod client;
mod directories;
mod error;
mod events;
mod host;
mod limit;
mod monitor;
mod pages;
mod request;
mod wire;
mod workspace_host;

pub use api::{Ask, FileChanges, Progress, SessionUsage, Subagent, SubagentState, SubagentTree, ToolUse, TurnOutcome};
pub use client::{Client, Health, Options, Timeouts};
pub use events::Events;
pub use limit::Limits;
pub use monitor::{MonitorEvent, SubagentMonitor};
