//! Subagents: how `run` shows them, and how other commands watch and control them.

use std::fs::File;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Harness, Program, Reader, finish, signal, spawn};
use super::serve::ServeProcess;
use super::terminal::Terminal;

fn task(description: &str, steps: Value) -> Value {
    json!(["task", {"description": description, "prompt": format!("SCRIPT: {steps}"), "subagent_type": "general"}])
}

/// Steps of a session with one subagent, whose command waits until the gate is closed.
fn gated() -> Value {
    let child = json!([{"tools": [["bash", {"command": "cat gate"}]]}, {"text": "Through the gate."}]);
    json!([{"tools": [task("Wait", child)]}, {"text": "Well."}])
}

/// A run that works until the gate is closed. The gate is open when this returns.
struct WorkingRun<'a> {
    harness: &'a Harness,
    child: Program,
    gate: File,
    errors: Reader,
}

impl<'a> WorkingRun<'a> {
    fn start(harness: &'a Harness) -> Self {
        let gate = harness.pipe("gate");
        let script = harness.script(gated());
        let mut child = spawn(harness.command(&["run", "--script", &script, "go"]));
        let stderr = child.stderr.take().unwrap();
        let errors = Reader::new(move || stderr);
        Self { harness, child, gate: opened(gate), errors }
    }

    /// The sessions of the tree, from `trefoil tree --json`.
    fn tree(&self) -> Vec<Value> {
        let root = self.harness.sessions()[0]["id"].as_str().unwrap().to_owned();
        let tree = self.harness.trefoil(&["tree", &root, "--json"]).expect(0).json();
        tree["sessions"].as_array().unwrap().clone()
    }

    fn ids(&self) -> [String; 2] {
        let ids: Vec<String> = self.tree().iter().map(|node| node["sessionID"].as_str().unwrap().to_owned()).collect();
        ids.try_into().unwrap()
    }

    /// Closes the gate, and waits for the end; returns both streams.
    fn end(self, code: i32) -> (String, String) {
        drop(self.gate);
        let ran = finish(self.child).expect(code);
        (ran.stdout, self.errors.rest())
    }
}

/// A pipe that a command of the agent reads; returns once it does.
fn opened(path: std::path::PathBuf) -> File {
    testkit::on_thread("somebody opens the gate", || File::options().write(true).open(path)).unwrap()
}

#[test]
fn run_prints_when_subagents_start_and_end() {
    let harness = Harness::new();
    let one = task("First look", json!([{"tools": [["bash", {"command": "true"}]]}, {"text": "One."}]));
    let two = task("Second look", json!([{"http_error": 400, "error_body": {"error": {"message": "No."}}}]));
    let ran = harness.play(json!([{"tools": [one, two]}, {"text": "Both."}]), &["go"]).expect(0);
    assert_eq!(ran.stdout, "Both.\n");
    for line in [
        "▸ general  First look\n",
        "▸ general  Second look\n",
        "✓ general  First look  1 call · ",
        "✗ general  Second look  0 calls · ",
    ] {
        assert_eq!(ran.stderr.matches(line).count(), 1, "{line:?} in:\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains('\u{1b}'), "nothing is drawn without a terminal: {:?}", ran.stderr);
}

#[test]
fn a_tree_is_seen_from_another_terminal() {
    let harness = Harness::new();
    let working = WorkingRun::start(&harness);
    let nodes = working.tree();
    let [root, child] = &nodes[..] else { panic!("{nodes:?}") };
    assert_eq!((&root["state"], &child["state"]), (&json!("running"), &json!("running")));
    assert_eq!((&child["agent"], &child["tool"]["tool"]), (&json!("general"), &json!("bash")));
    let [id, _] = working.ids();
    let ran = harness.trefoil(&["tree", &id]).expect(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.stdout);
    assert!(lines[0].starts_with("● build  ") && lines[0].contains("task  Wait"), "{}", ran.stdout);
    assert!(lines[1].starts_with("└─ ● general  Wait  ") && lines[1].contains("bash  cat gate"), "{}", ran.stdout);
    assert!(lines[2].starts_with("2 sessions · 2 at work · 2 calls · 0 files · "), "{}", ran.stdout);
    // Watch it until it ends, which happens now.
    let watch = spawn(harness.command(&["tree", &id, "--watch", "--json"]));
    let (stdout, _) = working.end(0);
    assert_eq!(stdout, "Well.\n");
    let watched = finish(watch).expect(0).json_lines();
    let last = watched.last().unwrap()["sessions"].as_array().unwrap();
    assert!(last.iter().all(|node| node["state"] == "idle"), "{last:?}");
    assert_eq!(last[0]["total"]["steps"], 4);
}

#[test]
fn a_watched_tree_is_redrawn_until_it_is_idle() {
    let harness = Harness::new();
    let working = WorkingRun::start(&harness);
    let [id, _] = working.ids();
    let mut terminal = Terminal::new(harness.command(&["tree", &id, "--watch"]));
    terminal.screen.wait_for("bash  cat gate");
    terminal.screen.wait_for("2 at work");
    working.end(0);
    terminal.screen.wait_for("\u{1b}[1A\u{1b}[K");
    terminal.screen.wait_for("2 sessions · 0 at work");
    terminal.end(0);
}

#[test]
fn a_tree_whose_program_was_killed_is_interrupted() {
    let harness = Harness::new();
    let working = WorkingRun::start(&harness);
    let [id, _] = working.ids();
    let watch = spawn(harness.command(&["tree", &id, "--watch", "--json"]));
    signal(working.child.id(), Signal::KILL);
    finish(working.child);
    let watched = finish(watch).expect(0).json_lines();
    let last = watched.last().unwrap()["sessions"].as_array().unwrap();
    assert!(last.iter().all(|node| node["state"] == "interrupted" && node.get("ended").is_none()), "{last:?}");
    let shown = harness.trefoil(&["tree", &id]).expect(0).stdout;
    assert!(shown.starts_with("! build") && shown.matches("interrupted").count() == 2, "{shown}");
}

#[test]
fn a_subagent_is_steered() {
    let harness = Harness::new();
    let working = WorkingRun::start(&harness);
    let [root, child] = working.ids();
    harness
        .trefoil(&["steer", &child, r#"SCRIPT: [{"text": "Steered."}]"#])
        .expect(0)
        .says("the agent reads it at its next step");
    let (stdout, _) = working.end(0);
    assert_eq!(stdout, "Well.\n");
    let parent = harness.export(&root).to_string();
    assert!(parent.contains("Steered.") && !parent.contains("\\nThrough the gate."), "{parent}");
    let late = harness.trefoil(&["steer", &child, "Too late."]).expect(1);
    late.says("send a prompt instead");
}

#[test]
fn a_subagent_is_cancelled_and_its_parent_goes_on() {
    let harness = Harness::new();
    let working = WorkingRun::start(&harness);
    let [_, child] = working.ids();
    let ran = harness.trefoil(&["cancel", &child]).expect(0);
    ran.says("cancelled 1 session\n");
    assert_eq!(ran.stdout, format!("{child}\n"));
    let (stdout, stderr) = working.end(0);
    assert_eq!(stdout, "Well.\n");
    assert!(stderr.contains("⊘ general  Wait"), "{stderr}");
    harness.trefoil(&["cancel", &child]).expect(0).says("nothing was running");
}

#[test]
fn a_tree_is_paused_and_resumed() {
    let harness = Harness::new();
    let mut working = WorkingRun::start(&harness);
    let [root, _] = working.ids();
    harness.trefoil(&["resume", &root]).expect(0).says("it was not paused");
    harness.trefoil(&["pause", &root]).expect(0).says("paused; running steps finish first");
    harness.trefoil(&["pause", &root]).expect(0).says("it is already paused");
    // The command ends, and the next step is held.
    working.errors.wait_for("▸ general");
    let gate = std::mem::replace(&mut working.gate, File::open("/dev/null").unwrap());
    drop(gate);
    let held = || {
        working
            .tree()
            .iter()
            .all(|node| node["state"] == "paused" && node.get("tool").is_none_or(|tool| tool["tool"] == "task"))
    };
    testkit::until("the tree is held", held);
    assert!(working.child.try_wait().unwrap().is_none(), "it waits");
    harness.trefoil(&["resume", &root]).expect(0).says("resumed");
    assert_eq!(working.end(0).0, "Well.\n");
}

#[test]
fn a_run_without_a_terminal_does_not_wait_for_a_budget() {
    let harness = Harness::new();
    let steps = json!([{"tools": [["bash", {"command": "true"}]]}, {"text": "Done."}]);
    harness.play(steps.clone(), &["go"]).expect(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert!(harness.trefoil(&["budget", &id]).expect(0).stdout.contains("no budget"));
    let set = harness.trefoil(&["budget", &id, "--steps", "3", "--cost", "1"]).expect(0);
    assert_eq!(set.stdout, "$0.0000 of $1.0000 · 2 of 3 steps\n");
    let ran = harness.play(steps.clone(), &["-c", "again"]).expect(5);
    ran.says(&format!("raise it with `trefoil budget {id} --steps N`"));
    // Other limits stay.
    let set = harness.trefoil(&["budget", &id, "--steps", "9"]).expect(0);
    assert_eq!(set.stdout, "$0.0000 of $1.0000 · 3 of 9 steps\n");
    harness.play(steps.clone(), &["-c", "again"]).expect(0);
    assert_eq!(harness.trefoil(&["budget", &id, "--lift"]).expect(0).stdout, "it has no budget any more\n");
    harness.trefoil(&["budget", &id, "--steps", "0"]).expect(1);
    let unknown = harness.trefoil(&["budget", "ses_nobody"]).expect(1);
    unknown.says("unknown session: ses_nobody");
}

#[test]
fn a_run_waits_for_its_background_tasks() {
    let harness = Harness::new();
    let mut background =
        task("Later", json!([{"text": "From the background.", "after": harness.project.path().join("go")}]));
    background[1]["background"] = json!(true);
    let script = harness.rules(json!({
        "rules": [{"when": {"text": "<task id"}, "steps": [{"text": "It has reported."}]}],
        "default": [{"tools": [background]}, {"text": "Started."}],
    }));
    let mut run = spawn(harness.command(&["run", "--script", &script, "go"]));
    let stdout = run.stdout.take().unwrap();
    let mut stdout = Reader::new(move || stdout);
    assert_eq!(stdout.wait_for("Started.\n"), "Started.\n");
    harness.project.write("go", "");
    finish(run).expect(0).says("✓ general &  Later");
    assert_eq!(stdout.rest(), "It has reported.\n");
}

#[test]
fn the_same_commands_work_on_a_server() {
    let harness = Harness::new();
    let script = harness.script(json!([{"tools": [task("Look", json!([{"text": "Seen."}]))]}, {"text": "Well."}]));
    let serving = ServeProcess::start(&harness, &["--script", &script]);
    let attach = ["--attach", serving.url.as_str()];
    // With a title, so that none is made while the tree is read.
    let ran = ["run", "--title", "Tree", "--model", "script/file", attach[0], attach[1], "go"];
    harness.trefoil(&ran).expect(0).says("✓ general  Look  0 calls");
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let with = |args: &[&str]| harness.trefoil(&[args, &attach[..]].concat());
    let here = harness.trefoil(&["tree", &id, "--json"]).expect(0).json();
    assert_eq!(with(&["tree", &id, "--json"]).expect(0).json()["sessions"], here["sessions"]);
    assert_eq!(with(&["budget", &id, "--tokens", "5000"]).expect(0).stdout.matches("of 5,000 tokens").count(), 1);
    with(&["pause", &id]).expect(0).says("paused");
    with(&["resume", &id]).expect(0).says("resumed");
    with(&["cancel", &id]).expect(0).says("nothing was running");
    with(&["steer", &id, "hello"]).expect(1).says("send a prompt instead");
}

#[test]
fn the_tree_is_drawn_on_a_terminal_and_collapses() {
    let harness = Harness::new();
    let gate = harness.pipe("gate");
    let script = harness.script(gated());
    let mut terminal = Terminal::new(harness.command(&["run", "--script", &script, "go"]));
    let gate = opened(gate);
    terminal.screen.wait_for("└─ ");
    terminal.screen.wait_for("general");
    terminal.screen.wait_for("bash  cat gate");
    terminal.screen.wait_for("1 subagent at work");
    // It is redrawn.
    terminal.screen.wait_for("\u{1b}[1A\u{1b}[K");
    terminal.screen.wait_for("1 subagent at work");
    drop(gate);
    terminal.screen.wait_for("✓");
    terminal.screen.wait_for("1 call · ");
    terminal.screen.wait_for("Well.");
    let rest = terminal.end(0);
    assert!(rest.contains("1 subagent · 1 call · "), "{rest:?}");
    let after = rest.split("1 subagent · 1 call").last().unwrap();
    assert!(!after.contains("└─"), "nothing of the tree is left: {after:?}");
}

#[test]
fn the_user_is_told_how_to_raise_a_budget() {
    let harness = Harness::new();
    harness.play(json!([{"text": "Done."}]), &["go"]).expect(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    harness.trefoil(&["budget", &id, "--steps", "1"]).expect(0);
    let script = harness.script(json!([{"text": "Rich again."}]));
    let mut terminal = Terminal::new(harness.command(&["run", "--script", &script, "-c", "again"]));
    terminal.screen.wait_for(&format!("trefoil budget {id} --steps N"));
    harness.trefoil(&["budget", &id, "--steps", "5"]).expect(0);
    terminal.screen.wait_for("Rich again.");
    terminal.end(0);
}
