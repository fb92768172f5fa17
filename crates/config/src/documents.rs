//! Text files beside the configuration: agents, commands and skills in markdown, and instructions such as AGENTS.md.

pub(crate) mod agent_file;
pub(crate) mod instruction;
pub(crate) mod markdown;
