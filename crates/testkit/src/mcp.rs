//! An MCP server for tests: a Python program whose behaviour the test selects.

use std::path::{Path, PathBuf};

/// Writes the server into a folder and returns its path. Run it with `python3` and one of these arguments: `polite`,
/// `demo` (has one tool and nothing else), `noisy` (prints lines that are not messages), `mute` (never answers), `gone`
/// (exits immediately) or `flood` (prints forever).
pub fn mcp_server(folder: &Path) -> PathBuf {
    let path = folder.join("mcp_test_server.py");
    std::fs::write(&path, include_str!("servers/mcp.py")).expect("the server can be written");
    path
}
