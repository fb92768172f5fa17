//! `trefoil agent …`.

use serde_json::{Value, json};

use super::harness::Harness;

fn names(harness: &Harness) -> Vec<String> {
    let listed = harness.trefoil(&["agent", "list", "--json"]).expect(0).json();
    listed["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn shipped_agents_appear_once_they_are_added() {
    let harness = Harness::new();
    let native = names(&harness);
    assert_eq!(native, ["build", "compaction", "explore", "general", "plan", "summary", "title"]);
    let listed = harness.trefoil(&["agent", "list"]).expect(0);
    assert!(listed.stdout.contains("codebase-locator") && listed.stdout.contains("can be added"), "{}", listed.stdout);
    listed.says("web-search-researcher uses the tool websearch: give `websearch` a `url`");
    let listed = harness.trefoil(&["agent", "list", "--json"]).expect(0).json();
    assert_eq!((listed["agents"].as_array().unwrap().len(), listed["optional"].as_array().unwrap().len()), (7, 7));
    let missing = |agent: &&Value| !agent["missing"].is_null();
    let missing: Vec<_> = listed["optional"].as_array().unwrap().iter().filter(missing).map(|a| &a["name"]).collect();
    assert_eq!(missing, ["web-search-researcher"]);

    let shown = harness.trefoil(&["agent", "show", "codebase-locator"]).expect(0);
    assert!(shown.stdout.starts_with("---\ndescription: Says where"), "{}", shown.stdout);
    shown.says("not installed");
    let added = harness.trefoil(&["agent", "add", "codebase-locator"]).expect(0);
    assert_eq!(
        added.stdout.trim(),
        harness.project.path().join(".trefoil/agent/codebase-locator.md").to_str().unwrap()
    );
    harness.trefoil(&["agent", "add", "thoughts-locator", "--global"]).expect(0);
    assert!(harness.project.home().join(".config/trefoil/agent/thoughts-locator.md").exists());
    assert_eq!(names(&harness).len(), 9);
    // An agent that the user installed needs no trust, and has no problems.
    harness.trefoil(&["config", "check"]).expect(0);
    let shown = harness.trefoil(&["agent", "show", "codebase-locator"]).expect(0);
    for text in ["mode        subagent\n", "temperature 0.1\n", "  deny  ", "You find places."] {
        assert!(shown.stdout.contains(text), "{text:?} is not in:\n{}", shown.stdout);
    }
    harness.trefoil(&["agent", "add", "codebase-locator"]).expect(1).says("codebase-locator.md already exists");
    harness.trefoil(&["agent", "add", "web-search-researcher"]).expect(0).says("give `websearch` a `url`");
    harness.trefoil(&["agent", "add", "codebase-locater"]).expect(1).says("known: codebase-locator");
    harness.trefoil(&["agent", "show", "nope"]).expect(1).says("unknown agent: nope");
}

#[test]
fn an_agent_is_written_and_works() {
    let harness = Harness::new();
    let create = |name: &str, more: &[&str]| {
        let mut args = vec!["agent", "create", "--name", name, "--description", "Looks: closely", "--mode", "subagent"];
        args.extend(more);
        harness.trefoil(&args)
    };
    create("looker", &["--prompt", "Look.", "--tools", "read,grep", "--steps", "3", "--temperature", "0.3"]).expect(0);
    let agent = harness.trefoil(&["agent", "show", "looker", "--json"]).expect(0).json();
    let seen = json!([agent["description"], agent["mode"], agent["steps"], agent["temperature"], agent["prompt"]]);
    assert_eq!(seen, json!(["Looks: closely", "subagent", 3, 0.3, "Look."]));
    // It can be called, and what it may not do is denied.
    let child = json!([{ "tools": [["bash", { "command": "touch made" }]] }, { "text": "seen" }]).to_string();
    let call = json!({ "description": "Look", "prompt": format!("SCRIPT: {child}"), "subagent_type": "looker" });
    harness.play(json!([{ "tools": [["task", call]] }, { "text": "end" }]), &["go"]).expect(0);
    assert!(!harness.project.path().join("made").exists());

    // It is offered nothing else: no tool of an MCP server, no resource, no skill.
    harness.configure(
        json!({ "mcp": { "s": { "type": "local", "command": ["python3", "mcp_test_server.py", "polite"] } } }),
    );
    testkit::mcp_server(harness.project.path());
    harness
        .project
        .write_home(".config/trefoil/skill/demo/SKILL.md", "---\nname: demo\ndescription: Demo\n---\nTEXT\n");
    let mut args = vec!["agent", "create", "--name", "reader", "--description", "Reads", "--prompt", "Read."];
    args.extend(["--tools", "read,grep", "--mode", "all"]);
    harness.trefoil(&args).expect(0);
    let steps = json!([{ "tools": [["nothing", {}], ["s_echo", { "text": "hi" }], ["skill", { "name": "demo" }]] },
        { "text": "end" }]);
    let ran = harness.play(steps, &["--agent", "reader", "--format", "json", "go"]).expect(0);
    assert!(ran.stdout.contains("Available tools: grep, read."), "{}", ran.stdout);
    assert!(!ran.stdout.contains("echo: hi") && !ran.stdout.contains("TEXT"), "{}", ran.stdout);

    let text = harness.project.read(".trefoil/agent/looker.md");
    assert!(text.contains("\nonly: [read, grep]\n"), "{text}");
    create("looker", &["--prompt", "Other."]).expect(1).says("an agent looker already exists");
    create("build", &["--prompt", "Other."]).expect(1).says("an agent build already exists");
    assert_eq!(harness.project.read(".trefoil/agent/looker.md"), text);
    create("Bad Name", &["--prompt", "x"]).expect(1).says("an agent cannot be named \"Bad Name\"");
    create("x", &["--prompt", " "]).expect(2).says("needs a prompt");
    create("x", &["--prompt", "x", "--tools", "telepathy"]).expect(2).says("there is no tool \"telepathy\"");
    create("x", &["--prompt", "x", "--model", "tiny"]).expect(2).says("provider/model");
    create("x", &["--prompt", "x", "--steps", "0"]).expect(2);
    let folder = harness.project.home().join("elsewhere");
    create("x", &["--prompt", "x", "--path", folder.to_str().unwrap(), "--isolated"]).expect(0);
    let text = std::fs::read_to_string(folder.join("x.md")).unwrap();
    assert!(text.contains("\nisolation: worktree\n"), "{text}");
    let ran =
        harness.piped(&["agent", "create", "--name", "y", "--description", "d", "--prompt", "-"], b"From a pipe.\n");
    ran.expect(0);
    assert!(harness.project.read(".trefoil/agent/y.md").ends_with("---\n\nFrom a pipe.\n"));
    harness
        .trefoil(&["agent", "add", "thoughts-locator", "--attach", "http://127.0.0.1:9"])
        .expect(2)
        .says("this machine");
}

#[test]
fn an_agent_that_is_another_program_is_shown_and_needs_trust_in_a_repository() {
    let harness = Harness::new();
    let text = "---\ndescription: Another one.\nacp:\n  command: [other, acp]\n  environment:\n    KEY: sk-secret\n---\n\nBe brief.\n";
    harness.project.write_home(".config/trefoil/agent/mine.md", text);
    harness.project.write(".trefoil/agent/theirs.md", text.replace("other", "./evil"));
    let shown = harness.trefoil(&["agent", "show", "mine"]).expect(0);
    for line in ["mode        subagent", "program     other acp", "Be brief."] {
        assert!(shown.stdout.contains(line), "{line:?} is not in:\n{}", shown.stdout);
    }
    let listed = harness.trefoil(&["agent", "list"]).expect(0).stdout;
    assert!(listed.contains("other acp") && !listed.contains("theirs"), "{listed}");
    let checked = harness.trefoil(&["config", "check"]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("agent.theirs.acp starts a program"), "{said}");
    assert!(!said.contains("sk-secret"), "{said}");
    let all = harness.trefoil(&["config", "show"]);
    assert!(!all.stdout.contains("sk-secret"), "{}", all.stdout);
    harness.trefoil(&["trust", "--yes"]).expect(0);
    assert!(harness.trefoil(&["agent", "list"]).expect(0).stdout.contains("./evil acp"));
}
