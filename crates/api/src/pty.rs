//! Terminals that a server runs for its clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PtyId;

/// A terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pty {
    /// Its id.
    pub id: PtyId,
    /// What a client shows.
    pub title: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs, absolute.
    pub cwd: String,
    /// Whether it runs.
    pub status: PtyStatus,
    /// Its process.
    pub pid: u32,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub exit_code: Option<i64>,
}

/// Whether a terminal's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PtyStatus {
    /// It runs.
    Running,
    /// It ended.
    Exited,
}
