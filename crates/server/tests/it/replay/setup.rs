//! The project and configuration that the recordings were made with.

use serde_json::{Value, json};
use testkit::{ModelServer, TempProject};

use super::exchange::Recording;

/// The directories of the recorded projects. Longer names come first, because they are replaced in this order.
pub const RECORDED_DIRECTORIES: [&str; 3] = ["/home/user/proj-ask", "/home/user/proj2", "/home/user/proj"];
/// Commands of the recordings and their replacements, which live long enough on a slow machine too: one must outlive its
/// scenario, the other the model's answer that called it.
pub const LONGER_COMMANDS: [(&str, &str); 2] = [
    ("echo pty-hello; sleep 1", "echo pty-hello; sleep 60"),
    ("echo err >&2; sleep 0.3; echo more", "echo err >&2; sleep 3; echo more"),
];
/// A tool of the recorded project that does not exist here: nobody need wait for it.
pub const MISSING_TOOL: &str = "tool mytool ";
/// The address of the recorded model and web page.
pub const RECORDED_HOST: &str = "127.0.0.1:4199";

/// The recorded project.
pub fn project(scenario: &str, recording: &Recording, model: &ModelServer) -> TempProject {
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
    let mut config = config(&model.base_url());
    let is_in = |directory| recording.exchanges.iter().any(|e| e.request.directory.as_deref() == Some(directory));
    if is_in(RECORDED_DIRECTORIES[1]) {
        config["provider"]["fake"]["models"]["gpt-5-fake"] =
            json!({"name": "GPT5 Fake", "limit": {"context": 100_000, "output": 8192}});
    }
    if is_in(RECORDED_DIRECTORIES[0]) {
        config["permission"] = json!({"bash": "ask", "edit": "ask", "webfetch": "deny"});
    }
    project.write_home(".config/opencode/opencode.json", config.to_string());
    match scenario {
        "11_command_shell" => commands(&project),
        "22_discovery" | "24_nested_task_depth2" => discovered_files(&project, config),
        _ => {}
    }
    project
}

fn commands(project: &TempProject) {
    let greet = "---\ndescription: Greet someone\nagent: build\n---\nkw:hello greet $ARGUMENTS first=$1 second=$2 shell=!`echo sh`\n";
    project.write_home(".config/opencode/command/greet.md", greet);
    let subby = "---\ndescription: Sub\nagent: general\nsubtask: true\n---\nkw:hello subby $ARGUMENTS\n";
    project.write_home(".config/opencode/command/subby.md", subby);
}

/// Everything that is discovered in files.
fn discovered_files(project: &TempProject, mut config: Value) {
    let home = |path: &str, text: &str| drop(project.write_home(format!(".config/opencode/{path}"), text));
    config["agent"]["custom"] = json!({"prompt": "CUSTOM", "description": "Custom", "mode": "primary",
        "permission": {"bash": {"*": "ask", "git *": "allow"}}});
    config["command"]["jsoncmd"] = json!({"template": "kw:hello json", "description": "In JSON", "agent": "plan"});
    config["instructions"] = json!(["extra.md"]);
    config["subagent_depth"] = json!(2);
    let server = testkit::mcp_server(&project.home());
    config["mcp"]["demo"] = json!({"type": "local", "command": ["python3", server, "demo"], "enabled": true});
    home("opencode.json", &config.to_string());
    home(
        "agent/reviewer.md",
        "---\ndescription: Reviews\nmode: subagent\nmodel: fake/fake-small\ntemperature: 0.2\npermission:\n  edit: deny\n---\nREVIEWER-PROMPT\n",
    );
    home("agents/plural.md", "---\ndescription: Plural\nmode: all\n---\nPLURAL\n");
    home("commands/plur.md", "---\ndescription: Plural\n---\nkw:hello plural\n");
    home("skill/demo/SKILL.md", "---\nname: demo\ndescription: A skill\n---\nDo the demo.\n");
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
            },
        }},
    })
}
