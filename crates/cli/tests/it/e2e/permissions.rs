//! `trefoil permission …`: what was allowed for always is listed, with where it counts, and ends.

use serde_json::json;

use super::rig::Rig;
use super::terminal::Terminal;

fn asking() -> Rig {
    let rig = Rig::new();
    rig.configure(json!({ "permission": { "bash": "ask" } }));
    rig
}

fn play(rig: &Rig, command: &str) -> Terminal {
    let script = rig.script(json!([{ "tools": [["bash", { "command": command }]] }, { "text": "end" }]));
    Terminal::new(rig.command(&["run", "--script", &script, "go"]))
}

#[test]
fn what_is_allowed_for_always_is_listed_and_ends() {
    let rig = asking();
    rig.trefoil(&["permission", "list"]).expect(0).says("nothing is allowed for always");
    assert_eq!(rig.trefoil(&["permission", "list", "--json"]).expect(0).json(), json!([]));
    let mut terminal = play(&rig, "touch one");
    let shown = terminal.screen.wait_for("instead >");
    let directory = rig.project.directory();
    let whole: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(whole.contains(&format!("always would allow: `touch *` in {directory}")), "{shown}");
    terminal.say("a");
    terminal.end(0);
    let listed = rig.trefoil(&["permission", "list", "--json"]).expect(0).json();
    let entry = &listed[0];
    assert_eq!(
        json!([entry["directory"], entry["permission"], entry["pattern"]]),
        json!([directory, "bash", "touch *"])
    );
    let id = entry["id"].as_str().unwrap();
    assert!(id.starts_with("psv_"));
    let text = rig.trefoil(&["permission", "list"]).expect(0).stdout;
    for part in [id, "bash", "touch *", &format!("in {directory}")] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // It counts for another process, without a terminal.
    rig.play(json!([{ "tools": [["bash", { "command": "touch two" }]] }, { "text": "end" }]), &["go"]).expect(0);
    assert!(rig.project.path().join("two").exists());

    rig.trefoil(&["permission", "revoke", "psv_nope"])
        .expect(1)
        .says("`trefoil permission list` names those that count");
    rig.trefoil(&["permission", "revoke", id, "psv_nope"]).expect(1).says("nothing was revoked");
    assert_eq!(rig.trefoil(&["permission", "list", "--json"]).expect(0).json(), listed);
    rig.trefoil(&["permission", "revoke"]).expect(2);
    rig.trefoil(&["permission", "revoke", id, "--all"]).expect(2);
    rig.trefoil(&["permission", "revoke", id]).expect(0).says("revoked 1 approval");
    rig.trefoil(&["permission", "revoke", id]).expect(1).says("nothing is allowed for always");
    let mut terminal = play(&rig, "touch three");
    terminal.screen.wait_for("instead >");
    terminal.say("a");
    terminal.end(0);
    let revoked = rig.trefoil(&["permission", "revoke", "--all", "--json"]).expect(0).json();
    assert_eq!(revoked["revoked"][0]["pattern"], "touch *");
    assert_eq!(rig.trefoil(&["permission", "list", "--json"]).expect(0).json(), json!([]));
}
