//! The program on a terminal: colours, questions, live output, wrapping.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use super::harness::{Harness, Program, Reader, finish, signal};
use crate::clients::opencode_terminal::Screen;

/// A program whose three streams are a terminal.
pub struct Terminal {
    pub child: Program,
    pub screen: Reader,
    keys: File,
}

impl Terminal {
    /// A terminal that does not know its size.
    pub fn new(command: Command) -> Self {
        Self::sized(command, 0)
    }

    /// A terminal with that many columns.
    pub fn sized(mut command: Command, columns: u16) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let size = Winsize { ws_row: if columns > 0 { 40 } else { 0 }, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&main, size).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let child = Program::from(command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap());
        drop(command);
        let keys = File::from(main);
        let screen = keys.try_clone().unwrap();
        Self { child, screen: Reader::new(move || screen), keys }
    }

    fn play(harness: &Harness, steps: Value, args: &[&str]) -> Self {
        let script = harness.script(steps);
        let mut command = harness.command(&["run", "--script", &script]);
        command.args(args);
        Self::new(command)
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.keys, "{line}").unwrap();
    }

    /// Waits for the end; returns the rest of the screen.
    #[track_caller]
    pub fn end(self, code: i32) -> String {
        let ran = finish(self.child);
        let rest = self.screen.rest();
        assert_eq!(ran.code, code, "{rest}");
        rest
    }
}

fn asking() -> Harness {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": "ask" } }));
    harness
}

fn touch(names: &[&str]) -> Value {
    let mut steps: Vec<Value> =
        names.iter().map(|name| json!({ "tools": [["bash", { "command": format!("touch {name}") }]] })).collect();
    steps.push(json!({ "text": "Finished." }));
    Value::Array(steps)
}

#[test]
fn permissions_are_asked() {
    let harness = asking();
    let mut terminal = Terminal::play(&harness, touch(&["one", "two", "three"]), &["go"]);
    terminal.screen.wait_for("allow bash?");
    terminal.screen.wait_for("touch one");
    terminal.screen.wait_for("say what to do instead > ");
    terminal.say("perhaps");
    terminal.screen.wait_for("please answer y, a or n");
    terminal.screen.wait_for("instead > ");
    assert!(!harness.project.path().join("one").exists());
    terminal.say("y");
    terminal.screen.wait_for("touch two");
    terminal.screen.wait_for("instead > ");
    assert!(harness.project.path().join("one").exists());
    terminal.say("a");
    // `always` covers the third.
    terminal.screen.wait_for("Finished.");
    let rest = terminal.end(0);
    assert!(rest.contains("tokens in"), "{rest}");
    assert!(harness.project.path().join("three").exists());
}

#[test]
fn a_plain_no_ends_the_turn_and_a_no_with_words_continues_it() {
    let harness = asking();
    let mut terminal = Terminal::play(&harness, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("instead > ");
    terminal.say("n");
    let rest = terminal.end(4);
    assert!(rest.contains("rejected"), "{rest}");

    let mut terminal = Terminal::play(&harness, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("instead > ");
    terminal.say("n: use something else");
    terminal.screen.wait_for("use something else");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);
    assert!(!harness.project.path().join("one").exists());
}

#[test]
fn a_long_command_is_shown_to_its_end() {
    let harness = asking();
    let command = format!("{}echo \u{202e}{}\ntouch tail # END", "echo one\n".repeat(60), "x".repeat(300));
    let steps = json!([{ "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]);
    let mut terminal = Terminal::play(&harness, steps, &["go"]);
    let mut seen = terminal.screen.wait_for("[Enter] more");
    terminal.say("y");
    terminal.screen.wait_for("there is more to read");
    let mut pages = 0;
    while !seen.contains("# END") {
        terminal.screen.wait_for(" > ");
        assert!(!harness.project.path().join("tail").exists() && pages < 50, "{seen}");
        terminal.say("");
        seen = terminal.screen.wait_for("[n] no");
        pages += 1;
    }
    assert!(seen.contains("\\u{202e}"), "{seen}");
    terminal.screen.wait_for("instead > ");
    terminal.say("y");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);
    assert!(harness.project.path().join("tail").exists());
}

#[test]
fn a_question_stays_below_what_others_print() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": { "*": "allow", "touch *": "ask" } } }));
    let pipe = harness.project.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let calls = json!([["bash", { "command": "touch one" }], ["bash", { "command": "cat pipe" }]]);
    let mut terminal = Terminal::play(&harness, json!([{ "tools": calls }, { "text": "Finished." }]), &["go"]);
    terminal.screen.wait_for("instead > ");
    std::fs::write(&pipe, "meanwhile\n").unwrap();
    terminal.screen.wait_for("│ meanwhile");
    let again = terminal.screen.wait_for("instead > ");
    assert!(again.contains("allow bash?") && again.contains("touch one"), "{again}");
    terminal.say("y");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);
    assert!(harness.project.path().join("one").exists());
}

#[test]
fn a_request_survives_the_program() {
    let harness = asking();
    let mut terminal = Terminal::play(&harness, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("instead > ");
    signal(terminal.child.id(), Signal::KILL);
    terminal.end(-1);
    let mut terminal = Terminal::play(&harness, json!([{ "text": "On we go." }]), &["-c", "go on"]);
    terminal.screen.wait_for("touch one");
    terminal.screen.wait_for("instead > ");
    terminal.say("y");
    terminal.screen.wait_for("tokens in");
    terminal.end(0);
    assert!(harness.project.path().join("one").exists());
}

#[test]
fn questions_are_answered() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "question": "allow" } }));
    let question = json!({ "questions": [{ "question": "Which colour?", "header": "Colour", "options": [
        { "label": "Red", "description": "warm" }, { "label": "Blue", "description": "cold" }] }] });
    let steps = json!([{ "tools": [["question", question]] }, { "text": "Fine." }]);
    let mut terminal = Terminal::play(&harness, steps, &["go"]);
    terminal.screen.wait_for("Which colour?");
    terminal.screen.wait_for("dismiss) > ");
    terminal.say("2");
    terminal.screen.wait_for("Fine.");
    terminal.end(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert!(harness.export(&id).to_string().contains("=\\\"Blue\\\""), "the model got the answer");
}

#[test]
fn trust_is_offered() {
    let harness = asking();
    harness.project.write("trefoil.json", json!({ "permission": { "bash": "allow" } }).to_string());
    let mut terminal = Terminal::play(&harness, touch(&["one"]), &["go"]);
    terminal.screen.wait_for("Trust these files now, as they are? [y/N] ");
    terminal.say("no");
    terminal.screen.wait_for("allow bash?");
    terminal.screen.wait_for("instead > ");
    terminal.say("y");
    terminal.screen.wait_for("Finished.");
    terminal.end(0);

    let mut terminal = Terminal::play(&harness, touch(&["two"]), &["go"]);
    terminal.screen.wait_for("[y/N] ");
    terminal.say("y");
    let text = terminal.screen.wait_for("Finished.");
    assert!(!text.contains("allow bash?"), "{text}");
    terminal.end(0);
}

/// A pipe, and a command that prints these lines and then waits for the pipe.
fn waiting(harness: &Harness, lines: &str) -> (std::path::PathBuf, String) {
    (harness.pipe("pipe"), format!("{lines}; cat pipe"))
}

#[test]
fn a_running_command_shows_its_last_lines_and_the_time() {
    let harness = Harness::new();
    let (pipe, command) = waiting(&harness, "seq 1 50 | sed 's/^/number /'");
    let steps = json!([{ "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]);
    let mut terminal = Terminal::play(&harness, steps, &["go"]);
    terminal.screen.wait_for("│ number 50");
    terminal.screen.wait_for(" 1 s");
    std::fs::write(&pipe, "let go\n").unwrap();
    let done = terminal.screen.wait_for("Finished.");
    assert!(done.contains("│ let go"), "{done}");
    terminal.end(0);
}

/// The text from the error on, or all if there is none. A spinner may come before it.
fn about(text: &str) -> &str {
    text.find("error: ").map_or(text, |at| &text[at..])
}

/// The words of a text without control sequences.
fn words(text: &str) -> Vec<String> {
    api::strip_control(text).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn errors_hints_and_notices_wrap_between_words() {
    let harness = Harness::new();
    let command = |args: &[&str]| {
        let mut command = harness.command(args);
        command.env_remove("TREFOIL_FALLBACK_MODEL");
        command
    };
    for args in [
        &["run"][..],
        &["run", "--agent", "nobody", "go"],
        &["run", "-m", "openai/gpt-5", "go"],
        &["run", "-m", "script/nothing", "go"],
        &["run", "--script", "missing.json", "go"],
        &["run", "-c", "go"],
        &["run", "--attach", "http://127.0.0.1:9", "go"],
        &["run", "go"],
        &["session", "list"],
        &["session", "show", "ses_nobody"],
        &["session", "import", "missing.json"],
        &["auth", "list"],
        &["permission", "list"],
        &["worktree", "list"],
        &["mcp", "list"],
        &["mcp", "remove", "nothing"],
    ] {
        let piped = finish(super::harness::spawn(command(args)));
        assert_eq!(piped.stdout, "", "{args:?}");
        for columns in [40, 70] {
            let terminal = Terminal::sized(command(args), columns);
            let shown = terminal.end(piped.code).replace('\r', "");
            assert!(!shown.contains("tokens in"), "{args:?} used nothing: {shown}");
            let shown = about(&shown);
            assert_eq!(words(shown), words(about(&piped.stderr)), "{args:?}");
            for line in api::strip_control(shown).lines() {
                let is_one_word = line.split_whitespace().count() == 1;
                assert!(line.chars().count() <= usize::from(columns) || is_one_word, "{args:?}, {columns}: {line:?}");
            }
        }
    }
}

#[test]
fn notes_of_a_run_wrap_between_words() {
    let harness = asking();
    let command = format!("touch {}", "made ".repeat(30));
    let script = harness.script(json!([{ "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]));
    let command = harness.command(&["run", "--script", &script, "--yes", "go"]);
    let shown = Terminal::sized(command, 50).end(0).replace('\r', "");
    let shown = api::strip_control(&shown).into_owned();
    let note = shown.split_once("allowed by --yes").unwrap_or_else(|| panic!("{shown}")).1;
    let (first, rest) = note.split_once('\n').unwrap();
    let lines: Vec<&str> = rest.lines().take_while(|line| line.starts_with("  made")).collect();
    assert!(lines.len() > 1 && first.ends_with("made"), "{shown}");
    assert!(lines.iter().all(|line| line.chars().count() <= 50 && line.ends_with("made")), "{lines:#?}");
}

#[test]
fn the_end_of_a_run_names_the_session_and_how_to_continue() {
    let harness = Harness::new();
    let steps = json!([{ "text": "Finished." }]);
    let rest = Terminal::play(&harness, steps.clone(), &["go"]).end(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let line = rest.lines().find(|line| line.contains(&id)).unwrap_or_else(|| panic!("no {id} in:\n{rest}"));
    assert!(line.contains("trefoil run -c"), "{line}");
    // Only on a terminal.
    let ran = harness.play(steps, &["go"]).expect(0);
    assert!(!ran.stderr.contains("ses_"), "{}", ran.stderr);
}

#[test]
fn markdown_is_rendered_on_terminals_alone() {
    let harness = Harness::new();
    let text = "# Title\nSome **bold** words and `code`.\n\n- one\n";
    let script = harness.script(json!([{ "text": text }]));
    let run = |env: (&str, &str)| {
        let mut command = harness.command(&["run", "--script", &script, "go"]);
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
    let ran = super::harness::finish(super::harness::spawn(run(("TERM", "xterm")))).expect(0);
    assert_eq!(ran.stdout, text);
}

#[test]
fn a_dumb_terminal_gets_nothing_but_text() {
    let harness = asking();
    let script = harness.script(json!([
        { "text": "**Now.** ", "tools": [["bash", { "command": "touch one" }], ["frobnicate", {}]] },
        { "text": "Finished." },
    ]));
    let mut command = harness.command(&["run", "--script", &script, "go"]);
    command.env_remove("NO_COLOR").env("TERM", "dumb");
    let mut terminal = Terminal::new(command);
    let mut seen = terminal.screen.wait_for("instead > ");
    terminal.say("y");
    seen += &terminal.end(0);
    assert!(seen.contains("**Now.**") && seen.contains("Finished.") && !seen.contains('\u{1b}'), "{seen:?}");
}

/// Changes the width of a terminal while a command runs; returns the screen at the end.
fn resized(widths: &[u16], text: &str) -> (Harness, Screen) {
    let harness = Harness::new();
    let (pipe, command) = waiting(&harness, "seq -f 'number %g with many words, so that it is a long line here' 1 40");
    let script =
        harness.script(json!([{ "text": text, "tools": [["bash", { "command": command }]] }, { "text": "Finished." }]));
    let screen = Screen::start(&harness.project, &harness.command(&["run", "--script", &script, "go"]), (100, 30));
    screen.shows("│ number 40");
    for columns in widths {
        screen.resize(*columns);
        // It was redrawn since: the time has advanced.
        let before = seconds(&screen.shows("bash  seq"));
        screen.until("another second", |now| seconds(now) > before);
    }
    std::fs::write(&pipe, "let go\n").unwrap();
    screen.shows("continue");
    (harness, screen)
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
    // Lines that tmux itself moves out of an almost empty screen are out of reach; the visible part is clean.
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
    let harness = Harness::new();
    let script = harness.script(touch(&["one"]));
    for (wanted, no_color) in [(true, ""), (false, "1")] {
        let mut command = harness.command(&["run", "--script", &script, "go"]);
        command.env("NO_COLOR", no_color);
        let mut terminal = Terminal::new(command);
        let text = terminal.screen.wait_for("Finished.");
        assert_eq!(text.contains("\u{1b}[32m●"), wanted, "{text:?}");
        terminal.end(0);
    }
}
