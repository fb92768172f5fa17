//! Ctrl-C, and worse.

use std::fs::File;

use api::{Session, WatchScope};
use futures::StreamExt as _;
use rustix::process::Signal;
use serde_json::json;
use store::{SessionQuery, Store};
use testkit::soon;

use super::rig::{Program, Reader, Rig, finish, signal, spawn};

/// A turn whose command runs until it is killed, and a pipe that says "started" and ends when nothing of it is left.
pub fn running(rig: &Rig, command: &str) -> (Program, Reader) {
    let pipe = rig.pipe("alive");
    let command = format!("{command}; exec 3>alive; echo started >&3; sleep 300");
    let script =
        rig.script(json!([{ "text": "Begin. ", "tools": [["bash", { "command": command }]] }, { "text": "Never." }]));
    let child = spawn(rig.hearing(true, &["run", "--script", &script, "go"]));
    let mut alive = Reader::new(move || File::open(pipe).unwrap());
    alive.wait_for("started\n");
    (child, alive)
}

#[test]
fn once_stops_the_turn_and_all_its_processes() {
    let rig = Rig::new();
    let (child, alive) = running(&rig, "true");
    signal(child.id(), Signal::INT);
    let ran = finish(child).expect(130);
    assert_eq!(ran.stdout, "Begin. \n");
    ran.says("cancelling");
    ran.says("error: cancelled");
    assert_eq!(alive.rest(), "", "nothing of it is left");
    // The session is not stuck: it goes on.
    let ran = rig.play(json!([{ "text": "Again." }]), &["-c", "again"]).expect(0);
    assert_eq!(ran.stdout, "Again.\n");
}

#[test]
fn twice_quits_at_once_and_still_leaves_nothing_running() {
    let rig = Rig::new();
    // A command that does not listen makes the stop take its time.
    let (mut child, alive) = running(&rig, "trap '' TERM INT");
    let stderr = child.stderr.take().unwrap();
    let mut stderr = Reader::new(move || stderr);
    signal(child.id(), Signal::INT);
    stderr.wait_for("cancelling");
    signal(child.id(), Signal::INT);
    finish(child).expect(130);
    assert_eq!(alive.rest(), "", "nothing of it is left");
    rig.play(json!([{ "text": "Again." }]), &["-c", "again"]).expect(0);
}

#[test]
fn a_model_that_does_not_answer_is_cancelled_too() {
    let rig = Rig::new();
    let script = rig.script(json!([{ "text": "Hm ", "hold": rig.project.path().join("never") }]));
    let mut child = spawn(rig.command(&["run", "--script", &script, "go"]));
    let stdout = child.stdout.take().unwrap();
    let mut stdout = Reader::new(move || stdout);
    stdout.wait_for("Hm ");
    signal(child.id(), Signal::INT);
    finish(child).expect(130).says("cancelling");
}

/// Waits until the journal says that of its only session.
fn wait_until(rig: &Rig, holds: impl Fn(&Store, &Session) -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&rig.project.home().join(".local/share/trefoil/trefoil.db")).unwrap();
        let mut events = store.watch(WatchScope::All, None).unwrap();
        while !holds(&store, &store.sessions(&SessionQuery::default()).unwrap()[0]) {
            soon("what the journal is to say", events.next()).await.unwrap();
        }
    });
}

#[test]
fn whoever_joined_a_turn_leaves_it_and_it_goes_on() {
    let rig = Rig::new();
    let pipe = rig.pipe("go");
    let waits = json!([{ "text": "Begin. ", "tools": [["bash", { "command": "read -r line <go; echo got $line" }]] }]);
    let script = rig.rules(json!({
        "rules": [{ "when": { "text": "two" }, "steps": [{ "text": "End." }] }],
        "default": waits,
    }));
    let mut first = spawn(rig.command(&["run", "--script", &script, "one"]));
    let stdout = first.stdout.take().unwrap();
    let mut stdout = Reader::new(move || stdout);
    stdout.wait_for("Begin. ");

    let leaves = |args: &[&str], joined: &dyn Fn(&Store, &Session) -> bool| {
        let mut command = rig.command(&["run", "--script", &script, "-c"]);
        command.args(args);
        let child = spawn(command);
        wait_until(&rig, joined);
        signal(child.id(), Signal::INT);
        let ran = finish(child).expect(130);
        ran.says("error: left the session; its turn goes on in the process that began it");
        assert!(!ran.stderr.contains("cancelling"), "{}", ran.stderr);
    };
    leaves(&["two"], &|store, session| store.inbox(&session.id).unwrap().len() == 2);
    // Without a message it only looks on.
    leaves(&["--title", "Seen"], &|_, session| session.title == "Seen");

    std::fs::write(pipe, "on\n").unwrap();
    stdout.wait_for("End.");
    finish(first).expect(0);
    let id = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = rig.export(&id).to_string();
    assert!(export.contains("got on") && export.contains("\"two\""), "{export}");
}

#[test]
fn waiting_for_standard_input_can_be_cancelled() {
    let rig = Rig::new();
    let mut command = rig.command(&["run", "x"]);
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
fn a_killed_program_leaves_nothing_running_and_its_session_goes_on() {
    let rig = Rig::new();
    let (child, alive) = running(&rig, "true");
    signal(child.id(), Signal::KILL);
    finish(child);
    assert_eq!(alive.rest(), "", "nothing of it is left");
    // The new message may join the recovered turn before or after its next step.
    let ran = rig.play(json!([{ "text": "Again." }, { "text": "Again." }]), &["-c", "again"]).expect(0);
    assert!(ran.stdout.ends_with("Again.\n"), "{}", ran.stdout);
    let id = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = rig.export(&id);
    let mut parts =
        export["messages"].as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    let tool = parts.find(|part| part["type"] == "tool").unwrap();
    assert_eq!(tool["state"]["status"], "error", "{tool:#}");
    assert!(tool["state"].to_string().contains("interrupted"), "{tool:#}");
}

#[test]
fn a_killed_program_leaves_no_mcp_server_running() {
    let rig = Rig::new();
    let server = testkit::mcp_server(rig.project.path());
    rig.configure(json!({ "mcp": { "s": { "type": "local", "command": ["python3", server] } } }));
    let pipe = rig.pipe("alive");
    let script = rig.script(json!([{ "tools": [["s_hold", { "path": pipe }]] }, { "text": "Never." }]));
    let child = spawn(rig.command(&["run", "--script", &script, "go"]));
    let mut alive = Reader::new(move || File::open(pipe).unwrap());
    alive.wait_for("started\n");
    signal(child.id(), Signal::KILL);
    finish(child);
    assert_eq!(alive.rest(), "", "neither the server nor its child is left");
}
