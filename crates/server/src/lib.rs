//! The OpenCode face: its HTTP and SSE API on top of the engine.
//!
//! Invariants: one list ([`operations`]) has every operation, and the router, the OpenAPI document and the table of
//! operations are made from it; a handler translates and never decides; nothing here is durable, the journal is.

mod acp_clients;
mod error;
mod events;
mod guard;
mod metrics;
mod operation;
mod routes;
mod server;
mod state;
mod terminal;
mod tui;

use api::Json;

pub use guard::Password;
pub use operation::{Operation, Support};
pub use server::{Options, Server};
pub use transport::listen::{Listen, StartError};

use state::State;

/// The version of OpenCode whose API this is. Clients see it as the server's version.
pub const OPENCODE_VERSION: &str = "1.18.33";

/// All operations.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The OpenAPI document.
pub fn openapi() -> Json {
    operation::openapi::document(&operations(), env!("CARGO_PKG_VERSION"))
}
