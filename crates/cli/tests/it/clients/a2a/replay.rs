//! Every recorded exchange of opencode-a2a, replayed against the service in front of an OpenCode server like the recorded one.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::json;
use testkit::TempProject;

use super::service::{A2aService, TOKEN, run, told};
use super::{installed, script};

/// The OpenCode server; it is killed on drop.
struct Upstream {
    child: Child,
    url: String,
}

impl Upstream {
    fn start(project: &TempProject, root: &Path) -> Self {
        let mut command = project.command("node");
        command.arg(script("a2a-fake-opencode.mjs")).arg(root);
        let mut child =
            command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("Node.js is needed here: {error}"));
        let url = told(&mut child).trim_end().to_owned();
        Self { child, url }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn replay(line: &str) {
    let project = TempProject::without_git();
    let root = project.path().to_owned();
    std::fs::create_dir(root.join("sub")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("escape")).unwrap();
    let upstream = Upstream::start(&project, &root);
    let both = ["session_shell", "workspace_mutation"];
    let credentials = json!([
        {"scheme": "bearer", "token": "alice-token", "principal": "alice", "capabilities": both},
        {"credential_id": "c-bob", "scheme": "bearer", "token": "bob-token", "principal": "bob"},
        {"scheme": "bearer", "token": "off-token", "principal": "off", "enabled": false},
        {"scheme": "basic", "username": "carol", "password": "secret"},
    ]);
    let service = A2aService::start(project, |command| {
        for secret in ["A2A_BEARER_TOKEN", "A2A_CARD_SIGNING_KEY", "A2A_PUSH_ALLOW_PRIVATE_HOSTS"] {
            command.env_remove(secret);
        }
        command.env("A2A_STATIC_AUTH_CREDENTIALS", credentials.to_string());
        command.env("A2A_PROTOCOL_VERSION", line).env("A2A_ENABLE_WORKSPACE_MUTATIONS", "true");
        command.env("OPENCODE_BASE_URL", &upstream.url).env("OPENCODE_WORKSPACE_ROOT", &root);
    });
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../a2a/tests/fixtures");
    let recordings = [fixtures.join(format!("recordings-{line}.jsonl")), script("a2a-documents.jsonl")];
    let setup = json!({"url": service.url, "token": TOKEN, "prompts": {}, "scratch": service.project.root(), "line": line, "root": root,
        "recordings": recordings, "differences": script("a2a-differences.txt")});
    run(&service.project, Path::new("node"), &installed(peer::packages).join("a2a-replay.mjs"), &setup);
}

#[test]
fn every_recorded_exchange_of_line_03_is_answered_the_same() {
    replay("0.3");
}

#[test]
fn every_recorded_exchange_of_line_10_is_answered_the_same() {
    replay("1.0");
}
