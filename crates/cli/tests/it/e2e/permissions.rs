//! `trefoil permission …`: lists what is always allowed and where, and revokes it.

use serde_json::json;

use super::harness::Harness;
use super::terminal::Terminal;

fn asking() -> Harness {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": "ask" } }));
    harness
}

fn play(harness: &Harness, command: &str) -> Terminal {
    let script = harness.script(json!([{ "tools": [["bash", { "command": command }]] }, { "text": "end" }]));
    Terminal::new(harness.command(&["run", "--script", &script, "go"]))
}

#[test]
fn permanent_approvals_are_listed_and_revoked() {
    let harness = asking();
    harness.trefoil(&["permission", "list"]).expect(0).says("nothing is always allowed");
    assert_eq!(harness.trefoil(&["permission", "list", "--json"]).expect(0).json(), json!([]));
    let mut terminal = play(&harness, "touch one");
    let shown = terminal.screen.wait_for("instead >");
    let directory = harness.project.directory();
    let whole: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(whole.contains(&format!("always would allow: `touch *` in {directory}")), "{shown}");
    terminal.say("a");
    terminal.end(0);
    let listed = harness.trefoil(&["permission", "list", "--json"]).expect(0).json();
    let entry = &listed[0];
    assert_eq!(
        json!([entry["directory"], entry["permission"], entry["pattern"]]),
        json!([directory, "bash", "touch *"])
    );
    let id = entry["id"].as_str().unwrap();
    assert!(id.starts_with("psv_"));
    let text = harness.trefoil(&["permission", "list"]).expect(0).stdout;
    for part in [id, "bash", "touch *", &format!("in {directory}")] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // It also applies to another process, without a terminal.
    harness.play(json!([{ "tools": [["bash", { "command": "touch two" }]] }, { "text": "end" }]), &["go"]).expect(0);
    assert!(harness.project.path().join("two").exists());

    harness
        .trefoil(&["permission", "revoke", "psv_nope"])
        .expect(1)
        .says("`trefoil permission list` shows the approvals");
    harness.trefoil(&["permission", "revoke", id, "psv_nope"]).expect(1).says("nothing was revoked");
    assert_eq!(harness.trefoil(&["permission", "list", "--json"]).expect(0).json(), listed);
    harness.trefoil(&["permission", "revoke"]).expect(2);
    harness.trefoil(&["permission", "revoke", id, "--all"]).expect(2);
    harness.trefoil(&["permission", "revoke", id]).expect(0).says("revoked 1 approval");
    harness.trefoil(&["permission", "revoke", id]).expect(1).says("nothing is always allowed");
    let mut terminal = play(&harness, "touch three");
    terminal.screen.wait_for("instead >");
    terminal.say("a");
    terminal.end(0);
    let revoked = harness.trefoil(&["permission", "revoke", "--all", "--json"]).expect(0).json();
    assert_eq!(revoked["revoked"][0]["pattern"], "touch *");
    assert_eq!(harness.trefoil(&["permission", "list", "--json"]).expect(0).json(), json!([]));
}
