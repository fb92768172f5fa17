//! A database whose WAL was removed or torn while no process had it open.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;

use super::harness::Harness;
use super::serve::ServeProcess;

const WAL: &str = ".local/share/trefoil/trefoil.db-wal";

/// A server that was killed after two turns.
fn killed() -> Harness {
    let harness = Harness::new();
    let script = harness.script(json!([{"text": "Done."}]));
    let serving = ServeProcess::start(&harness, &["--script", &script]);
    for prompt in ["one", "two"] {
        harness.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", prompt]).expect(0);
    }
    serving.end(Signal::KILL).expect(-1);
    harness
}

fn wal(harness: &Harness) -> PathBuf {
    harness.project.home().join(WAL)
}

#[test]
fn a_kill_alone_is_no_loss() {
    let harness = killed();
    assert!(fs::metadata(wal(&harness)).unwrap().len() > 0, "something is in the WAL");
    let ran = harness.trefoil(&["session", "list", "--json"]).expect(0);
    assert_eq!((ran.json().as_array().unwrap().len(), ran.stderr.as_str()), (2, ""));
}

#[test]
fn a_torn_wal_is_reported_everywhere_and_kept() {
    let harness = killed();
    let whole = fs::read(wal(&harness)).unwrap();
    let torn = &whole[..whole.len() / 2 + 100];
    fs::write(wal(&harness), torn).unwrap();
    let doctor = harness.trefoil(&["doctor"]).expect(1);
    assert!(doctor.stdout.contains("events of its log are gone"), "{}", doctor.stdout);
    assert!(fs::read(wal(&harness)).unwrap() == torn, "a look changes nothing");

    let ran = harness.trefoil(&["session", "list"]).expect(0);
    ran.says("warning: ");
    ran.says("events of its log are gone");
    ran.says("trefoil.db-wal.torn-");
    let log = fs::read_to_string(harness.project.home().join(".local/state/trefoil/trefoil.log")).unwrap();
    assert!(log.contains("events of its log are gone"), "{log}");
    let folder = fs::read_dir(wal(&harness).parent().unwrap()).unwrap().flatten();
    let kept: Vec<_> = folder.filter(|entry| entry.file_name().to_string_lossy().contains("torn-")).collect();
    assert_eq!(kept.len(), 2, "the WAL and a report: {kept:?}");
    assert!(kept.iter().any(|entry| fs::read(entry.path()).unwrap() == torn), "the WAL as it was");

    // It is reported once, and remembered.
    let ran = harness.trefoil(&["run", "--script", &harness.script(json!([{"text": "Fine."}])), "three"]).expect(0);
    assert!(ran.stdout.contains("Fine.") && !ran.stderr.contains("warning"), "{}", ran.stderr);
    let doctor = harness.trefoil(&["doctor"]);
    assert!(doctor.stdout.contains("lost before"), "{}", doctor.stdout);
}

#[test]
fn a_removed_wal_is_reported() {
    let harness = killed();
    fs::remove_file(wal(&harness)).unwrap();
    let serving = ServeProcess::start(&harness, &[]);
    let ran = serving.end(Signal::TERM).expect(0);
    ran.says("The -wal file that held them is missing");
    let doctor = harness.trefoil(&["doctor"]);
    assert!(doctor.stdout.contains("is missing"), "{}", doctor.stdout);
}
