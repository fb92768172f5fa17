//! `opencode attach`: the real terminal client in tmux, with our server behind it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use serde_json::json;
use testkit::{TempProject, WAIT};

use super::harness::{OPENCODE_LONGEST, TestServer, finish, opencode, succeeded};
use super::recorder::Recorder;

/// A program on a tmux screen (`apt-get install tmux`). Ends when dropped.
pub struct Screen {
    socket: String,
    drawn: DrawListener,
}

/// Tells when tmux has drawn something.
struct DrawListener {
    control: Child,
    news: Receiver<()>,
}

impl DrawListener {
    /// Listens to the screen of a socket, in tmux's control mode.
    fn listen(socket: &str) -> Self {
        let mut control = tmux(socket, &["-C", "attach"]);
        let mut control = control.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(control.stdout.take().unwrap()).split(b'\n');
        // One signal is enough for everything since the last look.
        let (sender, news) = sync_channel(1);
        std::thread::spawn(move || lines.flatten().for_each(|_| _ = sender.try_send(())));
        Self { control, news }
    }
}

impl Drop for DrawListener {
    fn drop(&mut self) {
        let _ = self.control.kill();
        let _ = self.control.wait();
    }
}

fn tmux(socket: &str, args: &[&str]) -> Command {
    let mut tmux = Command::new("tmux");
    tmux.args(["-S", socket]).args(args);
    tmux
}

impl Screen {
    fn attach(served: &TestServer) -> Self {
        Self::attach_to(served, &served.url)
    }

    /// Attaches to the server at an address.
    fn attach_to(served: &TestServer, url: &str) -> Self {
        let mut client = opencode(&served.project);
        client.args(["attach", url, "--dir", &served.project.directory()]);
        Self::start(&served.project, &client, (120, 40))
    }

    /// Starts a program of a project on a screen of that size. The screen stays when the program ends.
    pub fn start(project: &TempProject, program: &Command, (columns, lines): (u16, u16)) -> Self {
        let socket = project.root().join("tmux").to_str().unwrap().to_owned();
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let mut tmux =
            tmux(&socket, &["-f", "/dev/null", "start-server", ";", "set", "-g", "remain-on-exit", "on", ";"]);
        tmux.args(["new-session", "-d", "-x", &columns, "-y", &lines, "--", "env", "-i"]);
        tmux.args(
            program.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, value?.to_str()?))),
        );
        tmux.args(["TERM=xterm-256color", "COLORTERM=truecolor"]).arg(program.get_program()).args(program.get_args());
        tmux.current_dir(project.path());
        succeeded(&finish(tmux, WAIT));
        Self { drawn: DrawListener::listen(&socket), socket }
    }

    /// Changes the width of the screen.
    pub fn resize(&self, columns: u16) {
        succeeded(&finish(self.tmux(&["resize-window", "-x", &columns.to_string()]), WAIT));
    }

    /// Everything that was ever on the screen, with wrapped lines joined.
    pub fn history(&self) -> String {
        succeeded(&finish(self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]), WAIT))
    }

    fn tmux(&self, args: &[&str]) -> Command {
        tmux(&self.socket, args)
    }

    pub fn text(&self) -> String {
        succeeded(&finish(self.tmux(&["capture-pane", "-p"]), WAIT))
    }

    /// Waits until the screen is as wanted; returns it.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            let left = OPENCODE_LONGEST.saturating_sub(start.elapsed());
            let drawn = self.drawn.news.recv_timeout(left);
            assert!(drawn.is_ok() && !left.is_zero(), "{what} was not shown within {OPENCODE_LONGEST:?}:\n{text}");
        }
    }

    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.until(&format!("{text:?}"), |screen| screen.contains(text))
    }

    fn key(&self, key: &str) {
        succeeded(&finish(self.tmux(&["send-keys", key]), WAIT));
    }

    /// Types a text, and waits until it shows.
    #[track_caller]
    fn types(&self, text: &str) {
        succeeded(&finish(self.tmux(&["send-keys", "-l", text]), WAIT));
        self.shows(text);
    }

    /// Types a prompt, and sends it once it shows.
    #[track_caller]
    fn prompt(&self, text: &str) {
        self.types(text);
        self.key("Enter");
    }

    /// Runs a command of the client; returns what it then shows.
    #[track_caller]
    fn command(&self, name: &str, shows: &str) {
        self.prompt(name);
        self.shows(shows);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).output();
    }
}

#[test]
fn the_terminal_client_prompts_answers_a_permission_and_switches_agents() {
    let project = testkit::TempProject::new();
    let config = json!({"permission": {"bash": "ask"}});
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    let served = TestServer::with(project, |_| {});
    let (_, known) = served.send("POST", "/session", Some(&json!({"title": "Known to the terminal"})));
    let screen = Screen::attach(&served);
    screen.shows("Ask anything");
    screen.shows("Build ·");
    screen.prompt("greet me");
    screen.shows("Good morning from Trefoil.");

    screen.prompt("multiply");
    screen.shows("Permission required");
    screen.shows("Allow once");
    screen.key("Enter");
    screen.shows("6*7=42");
    screen.shows("That was easy.");

    screen.key("Tab");
    screen.shows("Plan ·");
    screen.prompt("think");
    screen.shows("Here is what to do.");

    // The list of sessions.
    screen.key("C-x");
    screen.key("l");
    screen.shows("Known to the terminal");
    screen.key("Escape");

    let (_, sessions) = served.send("GET", "/session", None);
    let sessions = sessions.as_array().unwrap();
    let own = sessions.iter().find(|session| session["id"] != known["id"]).unwrap();
    let id = own["id"].as_str().unwrap();
    let (_, messages) = served.send("GET", &format!("/session/{id}/message"), None);
    let users = messages.as_array().unwrap().iter().filter(|message| message["info"]["role"] == "user");
    let agents: Vec<_> = users.map(|message| message["info"]["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["build", "build", "plan"]);
}

#[test]
fn every_request_of_the_terminal_client_is_known() {
    let project = testkit::TempProject::new();
    project.write("notes/groceries.md", "milk\n");
    let served = TestServer::with(project, |_| {});
    let recorder = Recorder::start(served.address());
    let screen = Screen::attach_to(&served, &recorder.url());
    screen.shows("Ask anything");
    screen.shows("Build ·");

    // Files are completed after an `@`.
    screen.types("@groc");
    screen.shows("notes/groceries.md");
    screen.key("Tab");
    screen.until("the file in the prompt", |text| text.contains("@notes/groceries.md") && !text.contains("@groc "));
    screen.prompt("greet me");
    screen.shows("Good morning from Trefoil.");

    // Dialogs that read from the server.
    for (command, shows) in [
        ("/models", "Select model"),
        ("/sessions", "Sessions"),
        ("/status", "Status"),
        ("/agents", "Select agent"),
        ("/rename", "Rename Session"),
        ("/timeline", "Timeline"),
        ("/fork", "Fork"),
    ] {
        screen.command(command, shows);
        screen.key("Escape");
        screen.until(&format!("the end of {command}"), |text| !text.contains(shows));
    }
    // Commands that are not offered say so.
    for (command, notice) in [("/compact", "Compaction is not supported"), ("/undo", "Undo is not supported")] {
        screen.command(command, notice);
    }
    let exchanges = recorder.exchanges();
    let unknown: Vec<_> = exchanges.iter().filter(|exchange| [404, 405].contains(&exchange.status)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    for (method, path) in [
        ("GET", "/global/event"),
        ("GET", "/api/fs/find"),
        ("POST", "/session"),
        ("POST", "/summarize"),
        ("POST", "/revert"),
    ] {
        let asked = exchanges.iter().any(|exchange| exchange.method == method && exchange.path.contains(path));
        assert!(asked, "nobody asked {method} {path}: {exchanges:#?}");
    }
}
