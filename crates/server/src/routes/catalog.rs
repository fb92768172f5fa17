//! What a directory is configured with: agents, commands, skills, models, providers, MCP servers, tools.

pub mod agents;
pub mod config;
pub mod mcp;
pub mod provider;
pub mod tool;

use crate::operation::Operation;

/// The operations of this area.
pub fn operations() -> Vec<Operation> {
    [config::operations(), provider::operations(), agents::operations(), tool::operations(), mcp::operations()]
        .into_iter()
        .flatten()
        .collect()
}
