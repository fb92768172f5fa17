//! `trefoil agent …`.

use serde_json::{Value, json};

use super::rig::Rig;

fn names(rig: &Rig) -> Vec<String> {
    let listed = rig.trefoil(&["agent", "list", "--json"]).expect(0).json();
    listed["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn agents_that_ship_are_there_once_they_were_added() {
    let rig = Rig::new();
    let native = names(&rig);
    assert_eq!(native, ["build", "compaction", "explore", "general", "plan", "summary", "title"]);
    let listed = rig.trefoil(&["agent", "list"]).expect(0);
    assert!(listed.stdout.contains("codebase-locator") && listed.stdout.contains("can be added"), "{}", listed.stdout);
    listed.says("web-search-researcher uses the tool websearch: give `websearch` a `url`");
    let listed = rig.trefoil(&["agent", "list", "--json"]).expect(0).json();
    assert_eq!((listed["agents"].as_array().unwrap().len(), listed["optional"].as_array().unwrap().len()), (7, 7));
    let missing = |agent: &&Value| !agent["missing"].is_null();
    let missing: Vec<_> = listed["optional"].as_array().unwrap().iter().filter(missing).map(|a| &a["name"]).collect();
    assert_eq!(missing, ["web-search-researcher"]);

    let shown = rig.trefoil(&["agent", "show", "codebase-locator"]).expect(0);
    assert!(shown.stdout.starts_with("---\ndescription: Says where"), "{}", shown.stdout);
    shown.says("not installed");
    let added = rig.trefoil(&["agent", "add", "codebase-locator"]).expect(0);
    assert_eq!(added.stdout.trim(), rig.project.path().join(".trefoil/agent/codebase-locator.md").to_str().unwrap());
    rig.trefoil(&["agent", "add", "thoughts-locator", "--global"]).expect(0);
    assert!(rig.project.home().join(".config/trefoil/agent/thoughts-locator.md").exists());
    assert_eq!(names(&rig).len(), 9);
    // What the user installed needs no further trust, and nothing is wrong with it.
    rig.trefoil(&["config", "check"]).expect(0);
    let shown = rig.trefoil(&["agent", "show", "codebase-locator"]).expect(0);
    for text in ["mode        subagent\n", "temperature 0.1\n", "  deny  ", "You find places."] {
        assert!(shown.stdout.contains(text), "{text:?} is not in:\n{}", shown.stdout);
    }
    rig.trefoil(&["agent", "add", "codebase-locator"]).expect(1).says("codebase-locator.md is there already");
    rig.trefoil(&["agent", "add", "web-search-researcher"]).expect(0).says("give `websearch` a `url`");
    rig.trefoil(&["agent", "add", "codebase-locater"]).expect(1).says("known: codebase-locator");
    rig.trefoil(&["agent", "show", "nope"]).expect(1).says("unknown agent: nope");
}

#[test]
fn an_agent_is_written_and_works() {
    let rig = Rig::new();
    let create = |name: &str, more: &[&str]| {
        let mut args = vec!["agent", "create", "--name", name, "--description", "Looks: closely", "--mode", "subagent"];
        args.extend(more);
        rig.trefoil(&args)
    };
    create("looker", &["--prompt", "Look.", "--tools", "read,grep", "--steps", "3", "--temperature", "0.3"]).expect(0);
    let agent = rig.trefoil(&["agent", "show", "looker", "--json"]).expect(0).json();
    let seen = json!([agent["description"], agent["mode"], agent["steps"], agent["temperature"], agent["prompt"]]);
    assert_eq!(seen, json!(["Looks: closely", "subagent", 3, 0.3, "Look."]));
    // It is called, and what it may not do is denied.
    let child = json!([{ "tools": [["bash", { "command": "touch made" }]] }, { "text": "seen" }]).to_string();
    let call = json!({ "description": "Look", "prompt": format!("SCRIPT: {child}"), "subagent_type": "looker" });
    rig.play(json!([{ "tools": [["task", call]] }, { "text": "end" }]), &["go"]).expect(0);
    assert!(!rig.project.path().join("made").exists());

    // Nothing else is offered to it: no tool of an MCP server, no resource, no skill.
    rig.configure(
        json!({ "mcp": { "s": { "type": "local", "command": ["python3", "mcp_test_server.py", "polite"] } } }),
    );
    testkit::mcp_server(rig.project.path());
    rig.project.write_home(".config/trefoil/skill/demo/SKILL.md", "---\nname: demo\ndescription: Demo\n---\nTEXT\n");
    let mut args = vec!["agent", "create", "--name", "reader", "--description", "Reads", "--prompt", "Read."];
    args.extend(["--tools", "read,grep", "--mode", "all"]);
    rig.trefoil(&args).expect(0);
    let steps = json!([{ "tools": [["nothing", {}], ["s_echo", { "text": "hi" }], ["skill", { "name": "demo" }]] },
        { "text": "end" }]);
    let ran = rig.play(steps, &["--agent", "reader", "--format", "json", "go"]).expect(0);
    assert!(ran.stdout.contains("Available tools: grep, read."), "{}", ran.stdout);
    assert!(!ran.stdout.contains("echo: hi") && !ran.stdout.contains("TEXT"), "{}", ran.stdout);

    let text = rig.project.read(".trefoil/agent/looker.md");
    assert!(text.contains("\nonly: [read, grep]\n"), "{text}");
    create("looker", &["--prompt", "Other."]).expect(1).says("there is an agent looker already");
    create("build", &["--prompt", "Other."]).expect(1).says("there is an agent build already");
    assert_eq!(rig.project.read(".trefoil/agent/looker.md"), text);
    create("Bad Name", &["--prompt", "x"]).expect(1).says("an agent cannot be named \"Bad Name\"");
    create("x", &["--prompt", " "]).expect(2).says("needs a prompt");
    create("x", &["--prompt", "x", "--tools", "telepathy"]).expect(2).says("there is no tool \"telepathy\"");
    create("x", &["--prompt", "x", "--model", "tiny"]).expect(2).says("provider/model");
    create("x", &["--prompt", "x", "--steps", "0"]).expect(2);
    let folder = rig.project.home().join("elsewhere");
    create("x", &["--prompt", "x", "--path", folder.to_str().unwrap(), "--isolated"]).expect(0);
    let text = std::fs::read_to_string(folder.join("x.md")).unwrap();
    assert!(text.contains("\nisolation: worktree\n"), "{text}");
    let ran = rig.piped(&["agent", "create", "--name", "y", "--description", "d", "--prompt", "-"], b"From a pipe.\n");
    ran.expect(0);
    assert!(rig.project.read(".trefoil/agent/y.md").ends_with("---\n\nFrom a pipe.\n"));
    rig.trefoil(&["agent", "add", "thoughts-locator", "--attach", "http://127.0.0.1:9"]).expect(2).says("this machine");
}

#[test]
fn an_agent_that_is_another_program_is_shown_and_needs_trust_in_a_repository() {
    let rig = Rig::new();
    let text = "---\ndescription: Another one.\nacp:\n  command: [other, acp]\n  environment:\n    KEY: sk-secret\n---\n\nBe brief.\n";
    rig.project.write_home(".config/trefoil/agent/mine.md", text);
    rig.project.write(".trefoil/agent/theirs.md", text.replace("other", "./evil"));
    let shown = rig.trefoil(&["agent", "show", "mine"]).expect(0);
    for line in ["mode        subagent", "program     other acp", "Be brief."] {
        assert!(shown.stdout.contains(line), "{line:?} is not in:\n{}", shown.stdout);
    }
    let listed = rig.trefoil(&["agent", "list"]).expect(0).stdout;
    assert!(listed.contains("other acp") && !listed.contains("theirs"), "{listed}");
    let checked = rig.trefoil(&["config", "check"]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("agent.theirs.acp starts a program"), "{said}");
    assert!(!said.contains("sk-secret"), "{said}");
    let all = rig.trefoil(&["config", "show"]);
    assert!(!all.stdout.contains("sk-secret"), "{}", all.stdout);
    rig.trefoil(&["trust", "--yes"]).expect(0);
    assert!(rig.trefoil(&["agent", "list"]).expect(0).stdout.contains("./evil acp"));
}
