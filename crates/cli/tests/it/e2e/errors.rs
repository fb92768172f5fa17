//! What the user reads when something is wrong.

use serde_json::json;

use super::rig::Rig;

#[test]
fn unknown_names_list_what_exists_and_leave_nothing_behind() {
    let rig = Rig::new();
    let steps = json!([{ "text": "Hi." }]);
    let ran = rig.play(steps.clone(), &["--model", "script/flie", "x"]).expect(1);
    ran.says("error: unknown model: script/flie\n  hint: known: script/file, script/demo");
    rig.play(steps.clone(), &["--model", "nonsense", "x"]).expect(1).says("unknown model: nonsense");
    rig.play(steps.clone(), &["--agent", "paln", "x"])
        .expect(1)
        .says("error: unknown agent: paln\n  hint: known: plan, ");
    let ran = rig.play(steps.clone(), &["--agent", "general", "x"]).expect(1);
    ran.says("error: agent general is a subagent");
    ran.says("hint: primary agents: ");
    assert!(
        ran.stderr.contains("build") && ran.stderr.contains("plan") && !ran.stderr.contains("explore"),
        "{}",
        ran.stderr
    );
    rig.play(steps.clone(), &["--agent", "title", "x"]).expect(1).says("unknown agent: title");
    assert!(rig.sessions().is_empty());
    rig.play(steps.clone(), &["--session", "ses_nope", "x"]).expect(1).says("there is no session yet");
    rig.play(steps.clone(), &["x"]).expect(0);
    let id = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    rig.play(steps, &["--session", "nope", "x"]).expect(1).says(&format!("unknown session: nope\n  hint: known: {id}"));
    rig.trefoil(&["models", "opnai"]).expect(1).says("error: unknown provider: opnai\n  hint: known: script");
    rig.trefoil(&["session", "show", "ses_x"]).expect(1).says("unknown session: ses_x");
}

#[test]
fn usage_errors_have_their_own_code() {
    let rig = Rig::new();
    rig.trefoil(&["run", "--nonsense"]).expect(2);
    rig.trefoil(&["run"]).expect(2).says("error: there is no message\n  hint: trefoil run");
    rig.trefoil(&["--log-level", "loud", "models"]).expect(2).says("unknown log level: loud");
    rig.trefoil(&["run", "--script", "missing.json", "x"]).expect(2).says("cannot play the script");
    rig.project.write("bad.json", "{ \"rules\": 3 }");
    rig.trefoil(&["run", "--script", "bad.json", "x"]).expect(2).says("the script is not valid");
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let rig = Rig::new();
    rig.project.write_home("blocked", "a file where a directory should be");
    let blocked = rig.project.home().join("blocked/data");
    let script = rig.script(json!([{ "text": "Hi." }]));
    let mut command = rig.command(&["run", "--script", &script, "x"]);
    command.env("TREFOIL_DATA_DIR", &blocked);
    let ran = super::rig::finish(super::rig::spawn(command)).expect(1);
    ran.says("error: cannot open the database");
    ran.says(blocked.to_str().unwrap());
    ran.says("hint: TREFOIL_DATA_DIR");
    // Another place works.
    let mut command = rig.command(&["run", "--script", &script, "x"]);
    command.env("TREFOIL_DATA_DIR", rig.project.home().join("elsewhere"));
    super::rig::finish(super::rig::spawn(command)).expect(0);
    assert!(rig.project.home().join("elsewhere/trefoil.db").is_file());
}

#[test]
fn a_damaged_database_is_left_as_it_is() {
    let rig = Rig::new();
    let path = rig
        .project
        .write_home(".local/share/trefoil/trefoil.db", "this is no database, whatever its name says\n".repeat(99));
    let before = std::fs::read(&path).unwrap();
    rig.trefoil(&["session", "list"]).expect(1).says("trefoil.db");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let findings = rig.trefoil(&["doctor", "--json"]).expect(1).json();
    let database = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "database").unwrap();
    assert_eq!(database["level"], "error");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_database_of_a_newer_version_is_to_be_kept() {
    let rig = Rig::new();
    rig.play(json!([{ "text": "Hi." }]), &["x"]).expect(0);
    let path = rig.project.home().join(".local/share/trefoil/trefoil.db");
    // Where SQLite keeps the `user_version` of a file.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &999_u32.to_be_bytes(), 60).unwrap();
    let findings = rig.trefoil(&["doctor", "--json"]).expect(1).json();
    let database = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "database").unwrap();
    assert!(database["found"].as_str().unwrap().contains("schema 999"), "{database:#}");
    let advice = database["advice"].as_str().unwrap();
    assert!(advice.contains("upgrade") && advice.contains("TREFOIL_DB") && !advice.contains("restore"), "{advice}");
    let mut command = rig.command(&["doctor"]);
    command.env("TREFOIL_DB", rig.project.home().join("other.db"));
    super::rig::finish(super::rig::spawn(command)).expect(0);
}

#[test]
fn version_and_completion() {
    let rig = Rig::new();
    let ran = rig.trefoil(&["--version"]).expect(0);
    assert_eq!(ran.stdout, format!("trefoil {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        let ran = rig.trefoil(&["completion", shell]).expect(0);
        assert!(ran.stdout.contains("trefoil") && ran.stdout.contains("session"), "{shell}");
    }
    assert!(std::fs::read_dir(rig.project.home()).unwrap().next().is_none(), "neither writes anything");
}
