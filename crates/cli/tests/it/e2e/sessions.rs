//! `trefoil session …`, `models` and `agent`.

use serde_json::json;

use super::harness::Harness;

fn talked() -> (Harness, String) {
    let harness = Harness::new();
    let steps = json!([{ "text": "Sure. ", "tools": [["bash", { "command": "echo hi" }]] }, { "text": "Done." }]);
    harness.play(steps, &["--title", "A talk", "please"]).expect(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    (harness, id)
}

#[test]
fn sessions_are_listed_and_shown() {
    let (harness, id) = talked();
    let ran = harness.trefoil(&["session", "list"]).expect(0);
    assert!(ran.stdout.starts_with(&id) && ran.stdout.ends_with("A talk\n"), "{}", ran.stdout);
    let ran = harness.trefoil(&["session", "show", &id]).expect(0);
    assert!(ran.stdout.starts_with("A talk\n"), "{}", ran.stdout);
    for text in ["> please\n", "Sure. \n", "● bash  echo hi\n  │ hi\n", "Done.\n"] {
        assert!(ran.stdout.contains(text), "{text:?} is not in:\n{}", ran.stdout);
    }
    let shown = harness.trefoil(&["session", "show", "--json", &id]).expect(0).json();
    assert_eq!(shown, harness.export(&id));
    assert_eq!(shown["messages"].as_array().unwrap().len(), 3);

    let other = Harness::new();
    let mut command = other.command(&["session", "list", "--all", "--limit", "5"]);
    command.env("TREFOIL_DB", harness.project.home().join(".local/share/trefoil/trefoil.db"));
    let ran = super::harness::finish(super::harness::spawn(command)).expect(0);
    assert!(ran.stdout.contains(&id) && ran.stdout.contains(&harness.project.directory()), "{}", ran.stdout);
    other.trefoil(&["session", "list"]).expect(0).says("no sessions yet");
}

#[test]
fn a_session_moves_to_another_place() {
    let (harness, id) = talked();
    let text = harness.trefoil(&["session", "export", &id]).expect(0).stdout;
    let other = Harness::new();
    let file = other.project.write_home("talk.json", &text);
    let file = file.to_str().unwrap();
    let ran = other.trefoil(&["session", "import", file]).expect(0);
    assert_eq!(ran.stdout.trim(), id);
    let (there, here) = (harness.export(&id), other.export(&id));
    assert_eq!(here["messages"], there["messages"]);
    assert_eq!(here["info"]["directory"], other.project.directory());
    assert_eq!((&here["info"]["path"], &there["info"]["path"]), (&json!(""), &json!("")));
    assert_eq!(other.sessions().len(), 1, "it is one of this project now");
    other.play(json!([{ "text": "Going on." }]), &["-c", "go on"]).expect(0);
    assert_eq!(other.export(&id)["messages"].as_array().unwrap().len(), 5);

    other.trefoil(&["session", "import", file]).expect(1).says("already exists");
    // The same messages in another session would overwrite these.
    let stolen = text.replace(&id, "ses_stolen");
    let ran = other.piped(&["session", "import", "-"], stolen.as_bytes()).expect(1);
    ran.says("already exists");
    assert_eq!(other.export(&id)["messages"].as_array().unwrap().len(), 5);
}

/// The author of the file does not decide what is allowed here, and can run nothing.
#[test]
fn an_import_brings_no_rules_and_runs_nothing() {
    let (harness, id) = talked();
    let mut export = harness.export(&id);
    let rule = |permission: &str| json!({"permission": permission, "pattern": "*", "action": "allow"});
    export["info"]["permission"] = json!([rule("*"), rule("bash"), rule("external_directory")]);
    let answer = &mut export["messages"][1];
    answer["info"]["time"].as_object_mut().unwrap().remove("completed");
    let call = answer["parts"].as_array_mut().unwrap().iter_mut().find(|part| part["type"] == "tool").unwrap();
    call["state"] = json!({"status": "running", "input": {"command": "touch smuggled"}, "time": {"start": 1}});
    let other = Harness::new();
    other.configure(json!({"permission": {"bash": {"*": "allow", "touch made": "ask"}}}));
    other.piped(&["session", "import", "-"], export.to_string().as_bytes()).expect(0);
    assert!(other.export(&id)["info"]["permission"].is_null());
    let steps = json!([{"tools": [["bash", {"command": "touch made"}]]}, {"text": "Done."}]);
    other.play(steps, &["-c", "go on"]).expect(4).says("denied: bash touch made");
    assert!(!other.project.path().join("made").exists() && !other.project.path().join("smuggled").exists());
    let export = other.export(&id);
    let imported = &export["messages"][1];
    assert!(imported["info"]["time"]["completed"].is_number(), "{imported:#}");
    let call = imported["parts"].as_array().unwrap().iter().find(|part| part["type"] == "tool").unwrap();
    assert_eq!(call["state"]["status"], "error", "{call:#}");
}

#[test]
fn bad_imports_change_nothing() {
    let harness = Harness::new();
    for (text, why) in
        [("", "not an exported session"), ("{}", "not an exported session"), ("\u{0}", "not an exported session")]
    {
        harness.piped(&["session", "import", "-"], text.as_bytes()).expect(1).says(why);
    }
    harness.piped(&["session", "import", "-"], b"\xff").expect(1).says("not UTF-8");
    harness.trefoil(&["session", "import", "missing.json"]).expect(1).says("cannot import missing.json");
    assert!(harness.sessions().is_empty());
}

#[test]
fn sessions_are_deleted() {
    let (harness, id) = talked();
    harness.trefoil(&["session", "delete", &id, "ses_nope"]).expect(1).says("unknown session: ses_nope");
    assert_eq!(harness.sessions().len(), 1, "an unknown one stops it before anything is deleted");
    harness.trefoil(&["session", "delete", &id]).expect(0).says("deleted");
    assert!(harness.sessions().is_empty());
}

#[test]
fn a_closed_pipe_prints_no_error() {
    let (harness, id) = talked();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = harness.command(&["session", "show", &id]);
    command.stdout(writer).stderr(std::process::Stdio::piped());
    let ran = super::harness::finish(command.spawn().unwrap().into());
    assert_eq!(ran.stderr, "");
}

#[test]
fn models_and_agents_are_listed() {
    let harness = Harness::new();
    harness.configure(json!({ "provider": { "local": {
        "npm": "@ai-sdk/openai-compatible",
        "options": { "baseURL": "http://127.0.0.1:9/v1", "apiKey": "sk-very-secret" },
        "models": { "tiny": { "name": "Tiny" } },
    } } }));
    let ran = harness.trefoil(&["models"]).expect(0);
    assert!(ran.stdout.contains("local/tiny") && ran.stdout.contains("script/demo"), "{}", ran.stdout);
    let ran = harness.trefoil(&["models", "--json", "local"]).expect(0);
    assert_eq!(ran.json()[0]["models"]["tiny"]["name"], "Tiny");
    for args in [&["models", "--json"][..], &["doctor", "--json"], &["config", "show"]] {
        let ran = harness.trefoil(args);
        assert!(!ran.stdout.contains("sk-very-secret") && !ran.stderr.contains("sk-very-secret"), "{args:?}");
    }
    let ran = harness.trefoil(&["agent", "list"]).expect(0);
    assert!(
        ran.stdout.contains("build") && ran.stdout.contains("plan") && !ran.stdout.contains("title"),
        "{}",
        ran.stdout
    );
    assert!(harness.trefoil(&["agent", "list", "--json"]).expect(0).json()["agents"].as_array().unwrap().len() > 4);
    // There is only `agent`; the error suggests it.
    harness.trefoil(&["agents"]).expect(2).says("'agent'");
}
