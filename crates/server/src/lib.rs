//! The OpenCode face: its HTTP and SSE API, answered by the engine.
//!
//! Invariants: every operation is in one list ([`operations`]), from which the router, the OpenAPI document and the table of
//! operations are made; a handler translates and never decides; nothing in here is durable, the journal is.

mod acp_clients;
mod error;
mod events;
mod git;
mod metrics;
mod operation;
mod routes;
mod server;
mod state;
mod terminal;
mod transport;
mod tui;

use api::Json;

pub use operation::{Offer, Operation};
pub use server::{Listen, Options, Server, StartError};
pub use transport::guard::Password;

use state::State;

/// The version of OpenCode whose API this is; what clients see as the server's version.
pub const COMPATIBLE: &str = "1.18.33";

/// All operations.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The OpenAPI document.
pub fn openapi() -> Json {
    operation::openapi::document(&operations(), env!("CARGO_PKG_VERSION"))
}
