//! The program on a terminal: colours, asks and the question about trust.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::rig::{Program, Reader, Rig, finish, signal};

/// A program whose three streams are a terminal.
pub struct Terminal {
    pub child: Program,
    pub screen: Reader,
    keys: File,
}

impl Terminal {
    pub fn new(mut command: Command) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let child = Program::from(command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap());
        drop(command);
        let keys = File::from(main);
        let screen = keys.try_clone().unwrap();
        Self { child, screen: Reader::new(move || screen), keys }
    }

    fn play(rig: &Rig, steps: Value, args: &[&str]) -> Self {
        let script = rig.script(steps);
        let mut command = rig.command(&["run", "--script", &script]);
        command.args(args);
        Self::new(command)
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.keys, "{line}").unwrap();
    }

    /// Waits for the end; gives the rest of the screen.
    #[track_caller]
    pub fn end(self, code: i32) -> String {
        let ran = finish(self.child);
        let rest = self.screen.rest();
        assert_eq!(ran.code, code, "{rest}");
        rest
    }
}

fn asking() -> Rig {
    let rig = Rig::new();
    rig.configure(json!({ "permission": { "bash": "ask" } }));
    rig
}

fn touch(names: &[&str]) -> Value {
    let mut steps: Vec<Value> =
        names.iter().map(|name| json!({ "tools": [["bash", { "command": format!("touch {name}") }]] })).collect();
    steps.push(json!({ "text": "Finished." }));
    Value::Array(steps)
}

#[test]
fn permissions_are_asked() {
    let rig = asking();
    let mut terminal = Terminal::play(&rig, touch(&["one", "two", "three"]), &["go"]);
    terminal.screen.wait_for("allow bash?");
    terminal.screen.wait_for("touch one");
    terminal.screen.wait_for("say what to do instead > ");
    terminal.say("perhaps");
    terminal.screen.wait_for("please answer y, a or n");
    terminal.screen.wait_for("instead > ");
    assert!(!rig.project.path().join("one").exists());
    terminal.say("y");
    terminal.screen.wait_for("touch two");
    terminal.screen.wait_for("instead > ");
    assert!(rig.project.path().join("one").exists());
    terminal.say("a");
    // Always covers the third.
    terminal.screen.wait_for("Finished.");
    let rest = terminal.end(0);
    assert!(rest.contains("tokens in"), "{rest}");
    assert!(rig.project.path().join("three").exists());
}

#[test]
fn a_plain_no_ends_the_turn_and_a_no_with_words_goes_on() {
    let rig = asking();
    let mut terminal = Terminal::play(&rig, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("instead > ");
    terminal.say("n");
    let rest = terminal.end(4);
    assert!(rest.contains("rejected"), "{rest}");

    let mut terminal = Terminal::play(&rig, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("instead > ");
    terminal.say("n: use something else");
    terminal.screen.wait_for("use something else");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);
    assert!(!rig.project.path().join("one").exists());
}

#[test]
fn a_long_command_is_shown_to_its_end() {
    let rig = asking();
    let command = format!("{}echo \u{202e}{}\ntouch tail # END", "echo one\n".repeat(60), "x".repeat(300));
    let steps = json!([{ "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]);
    let mut terminal = Terminal::play(&rig, steps, &["go"]);
    let mut seen = terminal.screen.wait_for("[Enter] more");
    terminal.say("y");
    terminal.screen.wait_for("there is more to read");
    let mut pages = 0;
    while !seen.contains("# END") {
        terminal.screen.wait_for(" > ");
        assert!(!rig.project.path().join("tail").exists() && pages < 50, "{seen}");
        terminal.say("");
        seen = terminal.screen.wait_for("[n] no");
        pages += 1;
    }
    assert!(seen.contains("\\u{202e}"), "{seen}");
    terminal.screen.wait_for("instead > ");
    terminal.say("y");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);
    assert!(rig.project.path().join("tail").exists());
}

#[test]
fn a_question_stays_below_what_others_print() {
    let rig = Rig::new();
    rig.configure(json!({ "permission": { "bash": { "*": "allow", "touch *": "ask" } } }));
    let pipe = rig.project.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let calls = json!([["bash", { "command": "touch one" }], ["bash", { "command": "cat pipe" }]]);
    let mut terminal = Terminal::play(&rig, json!([{ "tools": calls }, { "text": "Finished." }]), &["go"]);
    terminal.screen.wait_for("instead > ");
    std::fs::write(&pipe, "meanwhile\n").unwrap();
    terminal.screen.wait_for("│ meanwhile");
    let again = terminal.screen.wait_for("instead > ");
    assert!(again.contains("allow bash?") && again.contains("touch one"), "{again}");
    terminal.say("y");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);
    assert!(rig.project.path().join("one").exists());
}

#[test]
fn an_ask_survives_the_program() {
    let rig = asking();
    let mut terminal = Terminal::play(&rig, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("instead > ");
    signal(terminal.child.id(), Signal::KILL);
    terminal.end(-1);
    let mut terminal = Terminal::play(&rig, json!([{ "text": "On we go." }]), &["-c", "go on"]);
    terminal.screen.wait_for("touch one");
    terminal.screen.wait_for("instead > ");
    terminal.say("y");
    terminal.screen.wait_for("tokens in");
    terminal.end(0);
    assert!(rig.project.path().join("one").exists());
}

#[test]
fn questions_are_answered() {
    let rig = Rig::new();
    rig.configure(json!({ "permission": { "question": "allow" } }));
    let question = json!({ "questions": [{ "question": "Which colour?", "header": "Colour", "options": [
        { "label": "Red", "description": "warm" }, { "label": "Blue", "description": "cold" }] }] });
    let steps = json!([{ "tools": [["question", question]] }, { "text": "Fine." }]);
    let mut terminal = Terminal::play(&rig, steps, &["go"]);
    terminal.screen.wait_for("Which colour?");
    terminal.screen.wait_for("dismiss) > ");
    terminal.say("2");
    terminal.screen.wait_for("Fine.");
    terminal.end(0);
    let id = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert!(rig.export(&id).to_string().contains("=\\\"Blue\\\""), "the model got the answer");
}

#[test]
fn trust_is_offered() {
    let rig = asking();
    rig.project.write("trefoil.json", json!({ "permission": { "bash": "allow" } }).to_string());
    let mut terminal = Terminal::play(&rig, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("Trust these files now, as they are? [y/N] ");
    terminal.say("no");
    terminal.screen.wait_for("allow bash?");
    terminal.screen.wait_for("instead > ");
    terminal.say("y");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);

    let mut terminal = Terminal::play(&rig, touch(&["two"]), &["go"]);
    terminal.screen.wait_for("[y/N] ");
    terminal.say("y");
    let text = terminal.screen.wait_for("Finished.");
    assert!(!text.contains("allow bash?"), "{text}");
    terminal.end(0);
}

#[test]
fn colours_unless_unwanted() {
    let rig = Rig::new();
    let script = rig.script(touch(&["one"]));
    for (wanted, no_color) in [(true, ""), (false, "1")] {
        let mut command = rig.command(&["run", "--script", &script, "go"]);
        command.env("NO_COLOR", no_color);
        let mut terminal = Terminal::new(command);
        let text = terminal.screen.wait_for("Finished.");
        assert_eq!(text.contains("\u{1b}[32m●"), wanted, "{text:?}");
        terminal.end(0);
    }
}
