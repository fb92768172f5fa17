//! An MCP server for tests: a program in Python that behaves as it is told.

use std::path::{Path, PathBuf};

/// Writes the server into a folder; gives its path. It is run by `python3`, and takes its kind as an argument: `polite`,
/// `demo` (has one tool and nothing else), `noisy` (prints what is no message), `mute` (never answers), `gone` (ends at once) or `flood` (prints for ever).
pub fn mcp_server(folder: &Path) -> PathBuf {
    let path = folder.join("mcp_test_server.py");
    std::fs::write(&path, include_str!("servers/mcp.py")).expect("the server can be written");
    path
}
