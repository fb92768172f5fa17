//! The program on a terminal: colours, asks and the question about trust.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::rig::{Program, Reader, Rig, finish, signal};
use crate::clients::opencode_terminal::Screen;

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

/// A pipe that a command of the agent waits for, after it has printed these lines; gives the command.
fn waiting(rig: &Rig, lines: &str) -> (std::path::PathBuf, String) {
    (rig.pipe("pipe"), format!("{lines}; cat pipe"))
}

#[test]
fn a_running_command_shows_its_last_lines_and_the_time() {
    let rig = Rig::new();
    let (pipe, command) = waiting(&rig, "seq 1 50 | sed 's/^/number /'");
    let steps = json!([{ "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]);
    let mut terminal = Terminal::play(&rig, steps, &["go"]);
    terminal.screen.wait_for("│ number 50");
    terminal.screen.wait_for(" 1 s");
    std::fs::write(&pipe, "let go\n").unwrap();
    let done = terminal.screen.wait_for("Finished.");
    assert!(done.contains("│ let go"), "{done}");
    terminal.end(0);
}

#[test]
fn the_end_of_a_run_names_the_session_and_how_to_go_on() {
    let rig = Rig::new();
    let steps = json!([{ "text": "Finished." }]);
    let rest = Terminal::play(&rig, steps.clone(), &["go"]).end(0);
    let id = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    let line = rest.lines().find(|line| line.contains(&id)).unwrap_or_else(|| panic!("no {id} in:\n{rest}"));
    assert!(line.contains("trefoil run -c"), "{line}");
    // Only for those who can read it.
    let ran = rig.play(steps, &["go"]).expect(0);
    assert!(!ran.stderr.contains("ses_"), "{}", ran.stderr);
}

#[test]
fn markdown_is_rendered_on_terminals_alone() {
    let rig = Rig::new();
    let text = "# Title\nSome **bold** words and `code`.\n\n- one\n";
    let script = rig.script(json!([{ "text": text }]));
    let run = |env: (&str, &str)| {
        let mut command = rig.command(&["run", "--script", &script, "go"]);
        command.env_remove("NO_COLOR").env(env.0, env.1);
        command
    };
    let rest = Terminal::new(run(("TERM", "xterm"))).end(0);
    for want in ["\u{1b}[1mTitle\u{1b}[0m", "\u{1b}[1mbold\u{1b}[0m", "\u{1b}[36mcode\u{1b}[0m", "• one"] {
        assert!(rest.contains(want), "{want:?} is not in {rest:?}");
    }
    for plain in [("TERM", "dumb"), ("NO_COLOR", "1")] {
        let rest = Terminal::new(run(plain)).end(0).replace("\r\n", "\n");
        assert!(rest.contains(text) && !rest.contains("[1m"), "{rest:?}");
    }
    // A pipe gets what the model wrote.
    let ran = super::rig::finish(super::rig::spawn(run(("TERM", "xterm")))).expect(0);
    assert_eq!(ran.stdout, text);
}

#[test]
fn a_dumb_terminal_gets_nothing_but_text() {
    let rig = asking();
    let script = rig.script(json!([
        { "text": "**Now.** ", "tools": [["bash", { "command": "touch one" }], ["frobnicate", {}]] },
        { "text": "Finished." },
    ]));
    let mut command = rig.command(&["run", "--script", &script, "go"]);
    command.env_remove("NO_COLOR").env("TERM", "dumb");
    let mut terminal = Terminal::new(command);
    let mut seen = terminal.screen.wait_for("instead > ");
    terminal.say("y");
    seen += &terminal.end(0);
    assert!(seen.contains("**Now.**") && seen.contains("Finished.") && !seen.contains('\u{1b}'), "{seen:?}");
}

/// Changes the width of a terminal while a command runs; gives what is on it in the end.
fn resized(widths: &[u16], text: &str) -> (Rig, Screen) {
    let rig = Rig::new();
    let (pipe, command) = waiting(&rig, "seq -f 'number %g with many words, so that it is a long line here' 1 40");
    let script =
        rig.script(json!([{ "text": text, "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]));
    let screen = Screen::start(&rig.project, &rig.command(&["run", "--script", &script, "go"]), (100, 30));
    screen.shows("│ number 40");
    for columns in widths {
        screen.resize(*columns);
        // Drawn again since: the time has passed on.
        let before = seconds(&screen.shows("bash  seq"));
        screen.until("another second", |now| seconds(now) > before);
    }
    std::fs::write(&pipe, "let go\n").unwrap();
    screen.shows("continue");
    (rig, screen)
}

#[test]
fn a_resize_leaves_nothing_behind() {
    let nothing_left = |shown: &str, widths: &[u16]| {
        for line in ["number 36", "number 40", "let go", "Finished."] {
            assert_eq!(shown.matches(line).count(), 1, "{line:?} at {widths:?}:\n{shown}");
        }
        assert!(!shown.contains(|c| "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏".contains(c)), "{widths:?}:\n{shown}");
    };
    let text: String = (0..40).map(|n| format!("word {n}\n")).collect();
    for widths in [&[45][..], &[30, 130, 50]] {
        let (_rig, screen) = resized(widths, &text);
        let history = screen.history();
        nothing_left(&history, widths);
        assert!((0..40).all(|n| history.contains(&format!("word {n}\n"))), "what was there stays:\n{history}");
    }
    // Lines that tmux itself moves out of an almost empty screen are beyond reach; what is visible is clean.
    let (_rig, screen) = resized(&[60], "A few words. ");
    nothing_left(&screen.text(), &[60]);
}

/// The seconds that the spinner shows.
fn seconds(screen: &str) -> u64 {
    let line = screen.lines().rev().find_map(|line| line.trim_end().strip_suffix(" s"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
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
