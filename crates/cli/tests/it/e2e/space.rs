//! Disk space, and how it is freed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::harness::Harness;

const MARK: &str = "swordfish-4711";

fn data(harness: &Harness) -> PathBuf {
    harness.project.home().join(".local/share/trefoil")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// The files of the data directory that contain the mark.
fn marked(harness: &Harness) -> Vec<PathBuf> {
    let holds =
        |path: &PathBuf| std::fs::read(path).unwrap().windows(MARK.len()).any(|window| window == MARK.as_bytes());
    files(&data(harness)).into_iter().filter(holds).collect()
}

fn loud() -> Value {
    let command = format!("for i in $(seq 5000); do echo {MARK} $i; done");
    json!([{ "tools": [["bash", { "command": command, "description": "print" }]] }, { "text": MARK }])
}

#[test]
fn a_deleted_session_leaves_nothing_and_gc_gives_the_space_back() {
    let harness = Harness::new();
    harness.play(json!([{ "text": "Hi." }]), &["one"]).expect(0);
    for _ in 0..3 {
        harness.play(loud(), &["-c", MARK]).expect(0);
    }
    let looked = harness.trefoil(&["doctor", "--json"]).expect(0).json();
    let found = |name: &str| looked.as_array().unwrap().iter().find(|finding| finding["name"] == name).cloned();
    assert!(found("sessions").unwrap()["found"].as_str().unwrap().starts_with("1 session, "));
    assert!(found("tool output").unwrap()["found"].as_str().unwrap().starts_with("3 files"));
    assert!(found("event log").is_some() && found("free pages").is_some() && found("leftovers").is_none());

    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    harness.trefoil(&["session", "delete", &id]).expect(0);
    assert_eq!(files(&data(&harness).join("tool-output")), Vec::<PathBuf>::new());
    let before = harness.trefoil(&["gc", "--dry-run", "--json"]).expect(0).json();
    assert_eq!((&before["dry_run"], &before["leftovers"]), (&json!(true), &json!(0)));
    assert!(before["free_bytes"].as_u64().unwrap() > 100_000, "{before}");
    assert_eq!(before["bytes_before"], before["bytes_after"]);
    let ran = harness.trefoil(&["gc", "--json"]).expect(0).json();
    assert!(ran["bytes_after"].as_u64() < ran["bytes_before"].as_u64(), "{ran}");
    assert_eq!((&ran["problems"], ran.get("note")), (&json!([]), None));
    assert_eq!(marked(&harness), Vec::<PathBuf>::new());
    let again = harness.trefoil(&["gc"]).expect(0);
    assert!(again.stdout.contains("the database had") && again.stdout.contains("0.0 MB"), "{}", again.stdout);
}

#[test]
fn gc_removes_sessions_over_the_age_that_the_user_sets() {
    let harness = Harness::new();
    let script = harness.script(json!([{ "text": "Hi." }]));
    let mut old = harness.command(&["run", "--script", &script, "old"]);
    old.env("TREFOIL_CLOCK", (-90 * 24 * 60 * 60 * 1000_i64).to_string());
    super::harness::finish(super::harness::spawn(old)).expect(0);
    harness.trefoil(&["run", "--script", &script, "new"]).expect(0);
    assert_eq!(harness.trefoil(&["gc", "--json"]).expect(0).json()["sessions"], json!([]));
    assert_eq!(harness.sessions().len(), 2);
    harness.configure(json!({ "session": { "max_age_days": 30 } }));
    harness.trefoil(&["config", "check"]).expect(0);
    let counted = harness.trefoil(&["gc", "--dry-run", "--json"]).expect(0).json();
    assert_eq!(counted["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(harness.sessions().len(), 2);
    let removed = harness.trefoil(&["gc", "--json"]).expect(0).json();
    assert_eq!(removed["sessions"], counted["sessions"]);
    let left = harness.sessions();
    assert_eq!(left.len(), 1);
    assert_ne!(left[0]["id"], counted["sessions"][0]);
}

#[test]
fn a_session_from_a_machine_with_a_fast_clock_continues_in_order() {
    let (there, here) = (Harness::new(), Harness::new());
    let script = there.script(json!([{ "text": "Hi." }]));
    for words in [&["run", "--script", &script, "one"][..], &["run", "--script", &script, "-c", "two"]] {
        let mut run = there.command(words);
        run.env("TREFOIL_CLOCK", "300000");
        super::harness::finish(super::harness::spawn(run)).expect(0);
    }
    let id = there.sessions()[0]["id"].as_str().unwrap().to_owned();
    let file = here.project.write_home("export.json", there.export(&id).to_string());
    here.trefoil(&["session", "import", file.to_str().unwrap()]).expect(0);
    // Each prompt gets its own answer, not that of an earlier one.
    for words in ["three", "four"] {
        let call = json!({ "command": format!("echo {words} >> ran.txt"), "description": "say" });
        let rule = json!({ "when": { "text": words }, "steps": [{ "tools": [["bash", call]] }, { "text": words }] });
        let script = here.rules(json!({ "rules": [rule], "default": [{ "text": "not the last prompt" }] }));
        let ran = here.trefoil(&["run", "--script", &script, "-c", words]).expect(0);
        assert_eq!(ran.stdout.trim(), words);
    }
    assert_eq!(here.project.read("ran.txt"), "three\nfour\n");
    let export = here.export(&id);
    let messages = export["messages"].as_array().unwrap();
    let said = messages.iter().filter(|message| message["info"]["role"] == "user");
    let said: Vec<&str> = said.map(|message| message["parts"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["one", "two", "three", "four"]);
    assert!(messages.is_sorted_by_key(|message| message["info"]["id"].as_str().unwrap().to_owned()));
}
