//! The project and configuration that the recordings were made with.

use serde_json::{Value, json};
use testkit::{ModelServer, TempProject};

use crate::exchange::Recording;

/// Where the recorded projects were. The longer names come first, because they are replaced.
pub const DIRECTORIES: [&str; 3] = ["/home/user/proj-ask", "/home/user/proj2", "/home/user/proj"];
/// Where the recorded model and web page were.
pub const MODEL: &str = "127.0.0.1:4199";

/// A project as it was.
pub fn project(recording: &Recording, model: &ModelServer) -> TempProject {
    let project = TempProject::new();
    project.write("hello.txt", "hello world\n");
    project.write("src/main.rs", "fn main() {\n    println!(\"hi\");\n}\n");
    project.write("a.txt", "alpha\n");
    project.write("rev.txt", "v1\n");
    project.write("edit_me.txt", "line one\nline two\nline three\n");
    project.write("edit_noread.txt", "aaa\n");
    project.write("extra.md", "EXTRA-INSTR-MARKER\n");
    project.write("sub/x.txt", "x\n");
    project.write("sub/AGENTS.md", "NESTED\n");
    project.commit("the recorded project");
    let asks = recording.exchanges.iter().any(|exchange| exchange.request.directory.as_deref() == Some(DIRECTORIES[0]));
    let mut config = config(&model.base_url());
    if asks {
        config["permission"] = json!({"bash": "ask", "edit": "ask", "webfetch": "deny"});
    }
    project.write_home(".config/opencode/opencode.json", config.to_string());
    let greet = "---\ndescription: Greet someone\nagent: build\n---\nkw:hello greet $ARGUMENTS first=$1 second=$2 shell=!`echo sh`\n";
    project.write_home(".config/opencode/command/greet.md", greet);
    let subby = "---\ndescription: Sub\nagent: general\nsubtask: true\n---\nkw:hello subby $ARGUMENTS\n";
    project.write_home(".config/opencode/command/subby.md", subby);
    project
}

fn config(base_url: &str) -> Value {
    let limit = json!({"context": 100_000, "output": 8192});
    json!({
        "$schema": "https://opencode.ai/config.json",
        "share": "disabled",
        "autoupdate": false,
        "enabled_providers": ["fake"],
        "model": "fake/fake-model",
        "small_model": "fake/fake-small",
        "provider": {"fake": {
            "name": "Fake",
            "npm": "@ai-sdk/openai-compatible",
            "options": {"apiKey": "sk-fake", "baseURL": base_url},
            "models": {
                "fake-model": {
                    "name": "Fake Model",
                    "attachment": true,
                    "reasoning": true,
                    "tool_call": true,
                    "cost": {"input": 1, "output": 2, "cache_read": 0.1, "cache_write": 1.5},
                    "limit": limit,
                    "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]},
                    "variants": {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}},
                },
                "fake-small": {"name": "Fake Small", "limit": limit},
                "gpt-5-fake": {"name": "GPT5 Fake", "limit": limit},
            },
        }},
    })
}
