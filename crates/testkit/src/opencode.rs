//! The real OpenCode as a server, for tests that talk to it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::{TempProject, target_folder};

/// OpenCode's server on its own port, in a project and with its home directory. It is killed on drop.
pub struct OpenCode {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl OpenCode {
    /// Starts it with this configuration; installs it from npm on first use. It takes a while until it answers.
    pub fn start(project: &TempProject, config: &Value) -> Self {
        let program =
            peer::install(&target_folder()).unwrap_or_else(|error| panic!("OpenCode is needed here: {error}"));
        let address = SocketAddr::from(([127, 0, 0, 1], peer::free_port().expect("a port for OpenCode")));
        let log = project.root().join("opencode.log");
        let output = File::create(&log).expect("a log file in the temporary directory");
        let mut command = project.command(program);
        command.args(["serve", "--hostname", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--print-logs", "--log-level", "INFO"]);
        command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
        for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE", "DEFAULT_PLUGINS"] {
            command.env(format!("OPENCODE_DISABLE_{name}"), "1");
        }
        // Whatever else it tries to fetch (ripgrep from GitHub, for one) fails on this machine.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9");
        command.stderr(output.try_clone().expect("a second handle")).stdout(Stdio::from(output));
        let child = command.spawn().expect("OpenCode starts");
        Self { child, address, log }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for OpenCode {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // Becomes part of the failed test's output.
            print_end(&self.log());
        }
    }
}

#[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
fn print_end(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    eprintln!("OpenCode wrote last:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
}
