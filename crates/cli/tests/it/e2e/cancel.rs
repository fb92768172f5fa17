//! Ctrl-C and `kill -9`.

use std::fs::File;

use api::{Session, WatchScope};
use futures::StreamExt as _;
use rustix::process::Signal;
use serde_json::json;
use store::{SessionQuery, Store};
use testkit::soon;

use super::harness::{Harness, Program, Reader, finish, signal, spawn};

/// A turn whose command runs until it is killed, and a pipe that says "started" and ends when nothing of the command is left.
pub fn running(harness: &Harness, command: &str) -> (Program, Reader) {
    let pipe = harness.pipe("alive");
    let command = format!("{command}; exec 3>alive; echo started >&3; sleep 300");
    let script = harness
        .script(json!([{ "text": "Begin. ", "tools": [["bash", { "command": command }]] }, { "text": "Never." }]));
    let child = spawn(harness.hearing(true, &["run", "--script", &script, "go"]));
    let mut alive = Reader::new(move || File::open(pipe).unwrap());
    alive.wait_for("started\n");
    (child, alive)
}

#[test]
fn one_ctrl_c_stops_the_turn_and_all_its_processes() {
    let harness = Harness::new();
    let (child, alive) = running(&harness, "true");
    signal(child.id(), Signal::INT);
    let ran = finish(child).expect(130);
    assert_eq!(ran.stdout, "Begin. \n");
    ran.says("cancelling");
    ran.says("error: cancelled");
    assert_eq!(alive.rest(), "", "nothing of it is left");
    // The session is not stuck: it continues.
    let ran = harness.play(json!([{ "text": "Again." }]), &["-c", "again"]).expect(0);
    assert_eq!(ran.stdout, "Again.\n");
}

#[test]
fn a_second_ctrl_c_quits_at_once_and_leaves_nothing_running() {
    let harness = Harness::new();
    // A command that ignores signals delays the stop.
    let (mut child, alive) = running(&harness, "trap '' TERM INT");
    let stderr = child.stderr.take().unwrap();
    let mut stderr = Reader::new(move || stderr);
    signal(child.id(), Signal::INT);
    stderr.wait_for("cancelling");
    signal(child.id(), Signal::INT);
    finish(child).expect(130);
    assert_eq!(alive.rest(), "", "nothing of it is left");
    harness.play(json!([{ "text": "Again." }]), &["-c", "again"]).expect(0);
}

#[test]
fn a_model_that_does_not_answer_is_cancelled_too() {
    let harness = Harness::new();
    let script = harness.script(json!([{ "text": "Hm ", "hold": harness.project.path().join("never") }]));
    let mut child = spawn(harness.command(&["run", "--script", &script, "go"]));
    let stdout = child.stdout.take().unwrap();
    let mut stdout = Reader::new(move || stdout);
    stdout.wait_for("Hm ");
    signal(child.id(), Signal::INT);
    finish(child).expect(130).says("cancelling");
}

/// Waits until this holds for the only session of the journal.
fn wait_until(harness: &Harness, holds: impl Fn(&Store, &Session) -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&harness.project.home().join(".local/share/trefoil/trefoil.db")).unwrap();
        let mut events = store.watch(WatchScope::All, None).unwrap();
        while !holds(&store, &store.sessions(&SessionQuery::default()).unwrap()[0]) {
            soon("what the journal is to say", events.next()).await.unwrap();
        }
    });
}

#[test]
fn ctrl_c_in_a_joined_turn_leaves_it_running() {
    let harness = Harness::new();
    let pipe = harness.pipe("go");
    let waits = json!([{ "text": "Begin. ", "tools": [["bash", { "command": "read -r line <go; echo got $line" }]] }]);
    let script = harness.rules(json!({
        "rules": [{ "when": { "text": "two" }, "steps": [{ "text": "End." }] }],
        "default": waits,
    }));
    let mut first = spawn(harness.command(&["run", "--script", &script, "one"]));
    let stdout = first.stdout.take().unwrap();
    let mut stdout = Reader::new(move || stdout);
    stdout.wait_for("Begin. ");

    let leaves = |args: &[&str], joined: &dyn Fn(&Store, &Session) -> bool| {
        let mut command = harness.command(&["run", "--script", &script, "-c"]);
        command.args(args);
        let child = spawn(command);
        wait_until(&harness, joined);
        signal(child.id(), Signal::INT);
        let ran = finish(child).expect(130);
        ran.says("error: left the session; its turn continues in the process that started it");
        assert!(!ran.stderr.contains("cancelling"), "{}", ran.stderr);
    };
    leaves(&["two"], &|store, session| store.inbox(&session.id).unwrap().len() == 2);
    // Without a message it only watches.
    leaves(&["--title", "Seen"], &|_, session| session.title == "Seen");

    std::fs::write(pipe, "on\n").unwrap();
    stdout.wait_for("End.");
    finish(first).expect(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = harness.export(&id).to_string();
    assert!(export.contains("got on") && export.contains("\"two\""), "{export}");
}

#[test]
fn waiting_for_standard_input_can_be_cancelled() {
    let harness = Harness::new();
    let mut command = harness.command(&["run", "x"]);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(reader);
    let mut child = spawn(command);
    let stderr = child.stderr.take().unwrap();
    let mut stderr = Reader::new(move || stderr);
    stderr.wait_for("waiting for the end of standard input");
    signal(child.id(), Signal::INT);
    finish(child).expect(130);
    drop(writer);
}

#[test]
fn a_killed_program_leaves_nothing_running_and_its_session_continues() {
    let harness = Harness::new();
    let (child, alive) = running(&harness, "true");
    signal(child.id(), Signal::KILL);
    finish(child);
    assert_eq!(alive.rest(), "", "nothing of it is left");
    // The new message may join the recovered turn before or after its next step.
    let ran = harness.play(json!([{ "text": "Again." }, { "text": "Again." }]), &["-c", "again"]).expect(0);
    assert!(ran.stdout.ends_with("Again.\n"), "{}", ran.stdout);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = harness.export(&id);
    let mut parts =
        export["messages"].as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    let tool = parts.find(|part| part["type"] == "tool").unwrap();
    assert_eq!(tool["state"]["status"], "error", "{tool:#}");
    assert!(tool["state"].to_string().contains("interrupted"), "{tool:#}");
}

#[test]
fn a_turn_that_a_kill_interrupted_is_resumed_without_a_message() {
    let harness = Harness::new();
    let (child, _alive) = running(&harness, "true");
    signal(child.id(), Signal::KILL);
    finish(child);
    let ran = harness.play(json!([{ "text": "Never." }, { "text": "Resumed." }]), &["-c"]).expect(0);
    assert_eq!(ran.stdout, "Resumed.\n");
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let messages = harness.export(&id)["messages"].as_array().unwrap().clone();
    assert_eq!(messages.iter().filter(|message| message["info"]["role"] == "user").count(), 1, "nothing was sent");
    // There is nothing left to resume.
    harness.play(json!([{ "text": "Never." }]), &["-c"]).expect(2);
}

#[test]
fn a_killed_program_leaves_no_mcp_server_running() {
    let harness = Harness::new();
    let server = testkit::mcp_server(harness.project.path());
    harness.configure(json!({ "mcp": { "s": { "type": "local", "command": ["python3", server] } } }));
    let pipe = harness.pipe("alive");
    let script = harness.script(json!([{ "tools": [["s_hold", { "path": pipe }]] }, { "text": "Never." }]));
    let child = spawn(harness.command(&["run", "--script", &script, "go"]));
    let mut alive = Reader::new(move || File::open(pipe).unwrap());
    alive.wait_for("started\n");
    signal(child.id(), Signal::KILL);
    finish(child);
    assert_eq!(alive.rest(), "", "neither the server nor its child is left");
}
