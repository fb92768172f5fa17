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
    /// The title that clients show.
    pub title: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs, absolute.
    pub cwd: String,
    /// Whether its program is running.
    pub status: PtyStatus,
    /// Its process id.
    pub pid: u32,
    /// Its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub exit_code: Option<i64>,
}

/// Whether a terminal's program is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PtyStatus {
    /// It is running.
    Running,
    /// It exited.
    Exited,
}
