//! The A2A service with clients that are not ours: the SDKs of both lines over both transports, agent kits, and opencode-a2a.

mod bridge;
mod model;
mod replay;
mod service;
mod upstream;

use std::path::{Path, PathBuf};

use service::{A2aService, project};

/// Fails with the way to get it unless a program could be installed.
fn installed(install: impl FnOnce(&Path) -> std::io::Result<PathBuf>) -> PathBuf {
    install(&testkit::target_folder()).unwrap_or_else(|error| panic!("a client of A2A is needed here: {error}"))
}

fn script(name: &str) -> PathBuf {
    peer::sources().join(name)
}

/// Runs a Python script with the service.
fn python(install: impl FnOnce(&Path) -> std::io::Result<PathBuf>, name: &str, transport: &str) {
    let python = installed(install);
    A2aService::start(project(), |_| {}).run(&python, &script(name), transport);
}

/// Runs a script in Node.js with the service.
fn node(folder: &Path, name: &str, transport: &str) {
    A2aService::start(project(), |_| {}).run(Path::new("node"), &folder.join(name), transport);
}

#[test]
fn the_python_sdk_of_line_03_over_json_rpc() {
    python(peer::a2a_python_03, "a2a_sdk_03.py", "JSONRPC");
}

#[test]
fn the_python_sdk_of_line_03_over_http_json() {
    python(peer::a2a_python_03, "a2a_sdk_03.py", "HTTP+JSON");
}

#[test]
fn the_python_sdk_of_line_10_over_json_rpc() {
    python(peer::a2a_python, "a2a_sdk_10.py", "JSONRPC");
}

#[test]
fn the_python_sdk_of_line_10_over_http_json() {
    python(peer::a2a_python, "a2a_sdk_10.py", "HTTP+JSON");
}

#[test]
fn the_javascript_sdk_of_line_03_over_json_rpc() {
    node(&installed(peer::packages), "a2a-sdk-03.mjs", "JSONRPC");
}

#[test]
fn the_javascript_sdk_of_line_03_over_http_json() {
    node(&installed(peer::packages), "a2a-sdk-03.mjs", "HTTP+JSON");
}

#[test]
fn the_javascript_sdk_of_line_10_over_json_rpc() {
    node(&installed(peer::packages), "a2a-sdk-10.mjs", "JSONRPC");
}

#[test]
fn the_javascript_sdk_of_line_10_over_http_json() {
    node(&installed(peer::packages), "a2a-sdk-10.mjs", "HTTP+JSON");
}

#[test]
fn a_remote_agent_of_google_adk() {
    python(peer::a2a_python, "a2a_adk.py", "JSONRPC");
}

#[test]
fn a_remote_agent_of_agent_framework() {
    python(peer::a2a_python, "a2a_agent_framework.py", "JSONRPC");
}

#[test]
fn a_remote_agent_of_gemini_cli() {
    node(&installed(peer::gemini_cli_core), "a2a-gemini.mjs", "HTTP+JSON");
}
