//! `trefoil config`, `trust` and `doctor`.

use serde_json::{Value, json};

use super::harness::Harness;

#[test]
fn check_names_every_problem_with_its_place() {
    let harness = Harness::new();
    let ran = harness.trefoil(&["config", "check"]).expect(0);
    assert!(ran.stdout.contains("0 errors, 0 warnings"), "{}", ran.stdout);
    harness.project.write("trefoil.jsonc", "{\n  // fine\n  \"modle\": \"a/b\",\n  \"snapshot\": \"often\"\n}\n");
    harness.project.write("opencode.json", "{\n  \"model\": \n");
    let ran = harness.trefoil(&["config", "check"]).expect(1);
    for text in ["trefoil.jsonc:3", "modle", "model", "trefoil.jsonc:4", "snapshot", "opencode.json:"] {
        assert!(ran.stdout.contains(text), "{text:?} is not in:\n{}", ran.stdout);
    }
    // The rest still works, and says what is wrong.
    let ran = harness.play(json!([{ "text": "Hi." }]), &["x"]).expect(0);
    ran.says("configuration: ");
    ran.says("trefoil.jsonc:3");
}

#[test]
fn check_knows_the_settings_of_a2a() {
    let harness = Harness::new();
    let agent = |settings: Value| json!({"helper": {"mode": "subagent", "description": "Helps.", "a2a": settings}});
    let good = json!({"url": "https://agent.example", "token_env": "TOKEN", "version": "1.0", "silence": 60});
    harness.configure(json!({"a2a": {"port": 9000, "title": "Ours"}, "agent": agent(good)}));
    let ran = harness.trefoil(&["config", "check"]).expect(0);
    assert!(ran.stdout.contains("0 errors, 0 warnings"), "{}", ran.stdout);
    let bad = json!({"url": "https://agent.example", "tokn_env": "TOKEN", "version": "2.0"});
    harness.configure(json!({"a2a": {"prot": 9000, "metrics_enabled": "maybe"}, "agent": agent(bad)}));
    let ran = harness.trefoil(&["config", "check"]).expect(1);
    for text in ["a2a.prot", "a2a.metrics_enabled", "tokn_env", "agent.helper.a2a.version"] {
        assert!(ran.stdout.contains(text), "{text:?} is not in:\n{}", ran.stdout);
    }
}

#[test]
fn keys_without_effect_are_named() {
    let harness = Harness::new();
    harness.configure(json!({ "autoupdate": true }));
    let ran = harness.trefoil(&["config", "check"]).expect(0);
    assert!(ran.stdout.contains("without effect yet: ") && ran.stdout.contains("autoupdate"), "{}", ran.stdout);
}

#[test]
fn show_and_path() {
    let harness = Harness::new();
    harness.configure(json!({ "username": "me" }));
    assert_eq!(harness.trefoil(&["config", "show", "--json"]).expect(0).json()["username"], "me");
    let ran = harness.trefoil(&["config", "show"]).expect(0);
    assert!(ran.stdout.starts_with("// ") && ran.stdout.contains("trefoil.json"), "{}", ran.stdout);
    let ran = harness.trefoil(&["config", "path"]).expect(0);
    assert!(ran.stdout.contains(".config/trefoil/trefoil.json") && ran.stdout.contains("trefoil.db"), "{}", ran.stdout);
}

#[test]
fn repository_configuration_needs_trust_for_what_loosens() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": "ask" } }));
    harness.project.write("trefoil.json", json!({ "permission": { "bash": "allow" } }).to_string());
    let steps = json!([{ "tools": [["bash", { "command": "touch made" }]] }, { "text": "Done." }]);
    let ran = harness.play(steps.clone(), &["go"]).expect(4);
    ran.says("Not trusted, so left out of the configuration:\n");
    ran.says("trefoil.json");
    ran.says("hint: `trefoil trust`");
    assert!(harness.trefoil(&["config", "check"]).expect(0).stdout.contains("not trusted, so left out"));
    let log = std::fs::read_to_string(harness.project.home().join(".local/state/trefoil/trefoil.log")).unwrap();
    assert!(log.contains("not trusted"), "{log}");

    harness.trefoil(&["trust"]).expect(4).says("there is no terminal to ask on");
    harness.trefoil(&["trust", "--yes"]).expect(0).says("trusted 1 file,");
    harness.trefoil(&["trust"]).expect(0).says("nothing here that needs trust");
    assert!(harness.trefoil(&["trust", "--list"]).expect(0).stdout.contains("trefoil.json"));
    harness.play(steps.clone(), &["go"]).expect(0);
    assert!(harness.project.path().join("made").exists());

    // Trust is bound to the content.
    harness.project.write("trefoil.json", json!({ "permission": { "bash": "allow" }, "username": "x" }).to_string());
    harness.play(steps.clone(), &["go"]).expect(4);
    harness.trefoil(&["trust", "--yes"]).expect(0);
    harness.trefoil(&["trust", "--revoke"]).expect(0).says("no longer trusted: 1 file below ");
    harness.play(steps.clone(), &["go"]).expect(4);

    let script = harness.script(steps);
    let mut command = harness.command(&["run", "--script", &script, "go"]);
    command.env("TREFOIL_TRUST", "all");
    super::harness::finish(super::harness::spawn(command)).expect(0);
}

#[test]
fn doctor_looks_and_advises() {
    let harness = Harness::new();
    let mut command = harness.command(&["doctor", "--json"]);
    command.env("OPENAI_API_KEY", "sk-very-secret").env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let ran = super::harness::finish(super::harness::spawn(command)).expect(0);
    assert!(!ran.stdout.contains("sk-very-secret"));
    let findings = ran.json();
    let found = |name: &str| findings.as_array().unwrap().iter().find(|finding| finding["name"] == name).cloned();
    assert_eq!(found("key").unwrap()["found"], "OPENAI_API_KEY is set");
    for name in ["version", "local server", "git", "shell", "database", "configuration", "trust"] {
        assert!(found(name).is_some_and(|finding| finding["level"] != Value::Null), "{name}");
    }
    assert!(!harness.project.home().join(".local/share/trefoil").exists(), "looking makes nothing");
    assert!(found("provider").unwrap()["found"].as_str().unwrap().contains("cannot be reached"));
    let ran = harness.trefoil(&["doctor"]).expect(0);
    assert!(ran.stdout.contains("script/demo, unless a prompt names another"), "{}", ran.stdout);
}

#[test]
fn logs_go_where_they_are_wanted() {
    let harness = Harness::new();
    harness.play(json!([{ "text": "Hi." }]), &["x"]).expect(0);
    let log = harness.project.home().join(".local/state/trefoil/trefoil.log");
    assert!(!log.exists(), "nothing to log, no file");
    harness.project.write_home(".local/share/trefoil/trust.json", "damaged");
    let ran = harness.play(json!([{ "text": "Hi." }]), &["--print-logs", "x"]).expect(0);
    ran.says("nothing is trusted");
    assert!(!log.exists());
    harness.play(json!([{ "text": "Hi." }]), &["x"]).expect(0);
    assert!(std::fs::read_to_string(log).unwrap().contains("nothing is trusted"));
}

#[test]
fn mcp_servers_are_added_and_listed() {
    let harness = Harness::new();
    let server = testkit::mcp_server(harness.project.path());
    let server = server.to_str().unwrap();
    harness.trefoil(&["mcp", "list"]).expect(0).says("There are no MCP servers");
    let added = harness.trefoil(&["mcp", "add", "s", "--env", "A=b", "--", "python3", server]).expect(0);
    assert_eq!(added.stdout, "added s: connected\n");
    let far = ["mcp", "add", "far", "--url", "http://127.0.0.1:1/mcp", "--header", "X-Key=k"];
    assert!(harness.trefoil(&far).expect(0).stdout.starts_with("added far: failed, "));
    let status = harness.trefoil(&["mcp", "list", "--json"]).expect(0).json();
    assert_eq!((&status["s"]["status"], &status["far"]["status"]), (&json!("connected"), &json!("failed")));
    harness.trefoil(&["mcp", "auth", "s"]).expect(1).says("does not support OAuth");
    harness.trefoil(&["mcp", "logout", "far"]).expect(0);
    harness.trefoil(&["mcp", "add", "x"]).expect(2).says("neither --url nor a command");
    harness.trefoil(&["mcp", "add", "x", "--env", "A", "--", "y"]).expect(2).says("NAME=VALUE");
}
