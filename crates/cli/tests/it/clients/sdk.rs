//! OpenCode's SDK from npm, in Node.

use std::time::Duration;

use serde_json::json;
use testkit::TempProject;

use super::harness::{TestServer, disguise, finish, path_with, scripts, succeeded};

/// How long a script may take; a working one takes a few seconds. Its own waits are shorter.
const LONGEST: Duration = Duration::from_secs(300);

/// A project with what the scripts look for.
fn project() -> TempProject {
    let project = TempProject::new();
    project.write("src/main.rs", "fn main() {\n    println!(\"needle\");\n}\n");
    project
        .write(".opencode/command/greet.md", "---\ndescription: Says hello\n---\nSCRIPT: [{\"text\": \"Hello $1\"}]\n");
    project.commit("code");
    let config = json!({
        "provider": {"local": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Local",
            "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "sk-secret"},
            "models": {"small": {"name": "Small", "limit": {"context": 8192, "output": 1024}}},
        }},
        "agent": {
            "reviewer": {"description": "Looks at changes", "mode": "subagent", "prompt": "Review."},
            "careful": {"description": "Asks first", "mode": "subagent", "permission": {"bash": "ask"}},
        },
        "command": {"count": {"description": "Counts", "template": "SCRIPT: [{\"text\": \"Counted $ARGUMENTS\"}]"}},
        "mcp": {"tools": {"type": "local", "command": ["true"], "enabled": false}},
    });
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    project
}

fn script(served: &TestServer, name: &str) {
    let mut node = served.project.command("node");
    node.arg(scripts().join(name)).env("TREFOIL_URL", &served.url);
    node.env("TREFOIL_DIRECTORY", served.project.directory());
    succeeded(&finish(node, LONGEST));
}

#[test]
fn every_method_of_the_current_sdk_works_or_says_why_not() {
    script(&TestServer::with(project(), |_| {}), "sdk.mjs");
}

#[test]
fn every_method_of_the_first_sdk_works_or_says_why_not() {
    script(&TestServer::with(project(), |_| {}), "sdk-first.mjs");
}

#[test]
fn the_sdk_starts_trefoil_in_the_place_of_opencode() {
    let project = TempProject::new();
    let mut node = project.command("node");
    node.arg(scripts().join("sdk-launch.mjs")).env("PATH", path_with(&disguise(&project)));
    succeeded(&finish(node, LONGEST));
}
