//! Error messages.

use serde_json::json;

use super::harness::Harness;

#[test]
fn unknown_names_list_what_exists_and_leave_nothing_behind() {
    let harness = Harness::new();
    let steps = json!([{ "text": "Hi." }]);
    let ran = harness.play(steps.clone(), &["--model", "script/flie", "x"]).expect(1);
    ran.says("error: unknown model: script/flie\n  hint: known: script/file, script/demo");
    harness.play(steps.clone(), &["--model", "nonsense", "x"]).expect(1).says("unknown model: nonsense");
    harness
        .play(steps.clone(), &["--agent", "paln", "x"])
        .expect(1)
        .says("error: unknown agent: paln\n  hint: known: plan, ");
    let ran = harness.play(steps.clone(), &["--agent", "general", "x"]).expect(1);
    ran.says("error: agent general is a subagent");
    ran.says("hint: primary agents: ");
    assert!(
        ran.stderr.contains("build") && ran.stderr.contains("plan") && !ran.stderr.contains("explore"),
        "{}",
        ran.stderr
    );
    harness.play(steps.clone(), &["--agent", "title", "x"]).expect(1).says("unknown agent: title");
    assert!(harness.sessions().is_empty());
    harness.play(steps.clone(), &["--session", "ses_nope", "x"]).expect(1).says("there is no session yet");
    harness.play(steps.clone(), &["x"]).expect(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    harness
        .play(steps, &["--session", "nope", "x"])
        .expect(1)
        .says(&format!("unknown session: nope\n  hint: known: {id}"));
    harness.trefoil(&["models", "opnai"]).expect(1).says("error: unknown provider: opnai\n  hint: known: script");
    harness.trefoil(&["session", "show", "ses_x"]).expect(1).says("unknown session: ses_x");
}

#[test]
fn usage_errors_have_their_own_code() {
    let harness = Harness::new();
    harness.trefoil(&["run", "--nonsense"]).expect(2);
    harness.trefoil(&["run"]).expect(2).says("error: there is no message\n  hint: trefoil run");
    harness.trefoil(&["--log-level", "loud", "models"]).expect(2).says("unknown log level: loud");
    harness.trefoil(&["run", "--script", "missing.json", "x"]).expect(2).says("cannot play the script");
    harness.project.write("bad.json", "{ \"rules\": 3 }");
    harness.trefoil(&["run", "--script", "bad.json", "x"]).expect(2).says("the script is not valid");
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let harness = Harness::new();
    harness.project.write_home("blocked", "a file where a directory should be");
    let blocked = harness.project.home().join("blocked/data");
    let script = harness.script(json!([{ "text": "Hi." }]));
    let mut command = harness.command(&["run", "--script", &script, "x"]);
    command.env("TREFOIL_DATA_DIR", &blocked);
    let ran = super::harness::finish(super::harness::spawn(command)).expect(1);
    ran.says("error: cannot open the database");
    ran.says(blocked.to_str().unwrap());
    ran.says("hint: TREFOIL_DATA_DIR");
    // Another place works.
    let mut command = harness.command(&["run", "--script", &script, "x"]);
    command.env("TREFOIL_DATA_DIR", harness.project.home().join("elsewhere"));
    super::harness::finish(super::harness::spawn(command)).expect(0);
    assert!(harness.project.home().join("elsewhere/trefoil.db").is_file());
}

#[test]
fn a_damaged_database_is_left_as_it_is() {
    let harness = Harness::new();
    let path = harness
        .project
        .write_home(".local/share/trefoil/trefoil.db", "this is no database, whatever its name says\n".repeat(99));
    let before = std::fs::read(&path).unwrap();
    harness.trefoil(&["session", "list"]).expect(1).says("trefoil.db");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let findings = harness.trefoil(&["doctor", "--json"]).expect(1).json();
    let database = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "database").unwrap();
    assert_eq!(database["level"], "error");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_database_of_a_newer_version_is_kept() {
    let harness = Harness::new();
    harness.play(json!([{ "text": "Hi." }]), &["x"]).expect(0);
    let path = harness.project.home().join(".local/share/trefoil/trefoil.db");
    // The offset of SQLite's `user_version`.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &999_u32.to_be_bytes(), 60).unwrap();
    let findings = harness.trefoil(&["doctor", "--json"]).expect(1).json();
    let database = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "database").unwrap();
    assert!(database["found"].as_str().unwrap().contains("schema 999"), "{database:#}");
    let advice = database["advice"].as_str().unwrap();
    assert!(advice.contains("upgrade") && advice.contains("TREFOIL_DB") && !advice.contains("restore"), "{advice}");
    let mut command = harness.command(&["doctor"]);
    command.env("TREFOIL_DB", harness.project.home().join("other.db"));
    super::harness::finish(super::harness::spawn(command)).expect(0);
}

#[test]
fn version_and_completion() {
    let harness = Harness::new();
    let ran = harness.trefoil(&["--version"]).expect(0);
    assert_eq!(ran.stdout, format!("trefoil {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        let ran = harness.trefoil(&["completion", shell]).expect(0);
        assert!(ran.stdout.contains("trefoil") && ran.stdout.contains("session"), "{shell}");
    }
    assert!(std::fs::read_dir(harness.project.home()).unwrap().next().is_none(), "neither writes anything");
}
