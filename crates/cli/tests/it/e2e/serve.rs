//! `trefoil serve` as a process, and `--attach`.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Harness, Program, Reader, RunResult, finish, signal, spawn};

/// A server process; it is killed when dropped.
pub struct ServeProcess {
    pub program: Program,
    pub url: String,
}

impl ServeProcess {
    pub fn start(harness: &Harness, args: &[&str]) -> Self {
        let mut all = vec!["serve", "--port", "0"];
        all.extend(args);
        Self::of(spawn(harness.command(&all)))
    }

    /// Waits until a program serves.
    pub fn of(mut program: Program) -> Self {
        let stdout = program.stdout.take().unwrap();
        let mut lines = Reader::new(move || stdout);
        lines.wait_for("opencode server listening on ");
        let url = lines.wait_for("\n").trim().to_owned();
        Self { program, url }
    }

    /// The address that it listens on.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Sends a signal, and waits for the end.
    pub fn end(self, with: Signal) -> RunResult {
        signal(self.program.id(), with);
        finish(self.program)
    }
}

fn texts(export: &Value) -> Vec<&str> {
    let messages = export["messages"].as_array().unwrap().iter();
    let parts = messages.flat_map(|message| message["parts"].as_array().unwrap());
    parts.filter(|part| part["type"] == "text").map(|part| part["text"].as_str().unwrap()).collect()
}

/// The address of a proxy that drops all events once a prompt was sent.
fn deaf_way(url: &str) -> String {
    let server: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let prompted = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(server).unwrap();
            let (requests, answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let events = Arc::new(AtomicBool::new(false));
            let (seen, is_events) = (prompted.clone(), events.clone());
            std::thread::spawn(move || {
                carry(requests, server, |bytes| {
                    let head = String::from_utf8_lossy(bytes);
                    is_events.fetch_or(head.starts_with("GET /event"), Ordering::SeqCst);
                    seen.fetch_or(head.contains("/message HTTP") && head.starts_with("POST"), Ordering::SeqCst);
                    true
                });
            });
            let prompted = prompted.clone();
            std::thread::spawn(move || {
                carry(answers, client, |_| !(prompted.load(Ordering::SeqCst) && events.load(Ordering::SeqCst)));
            });
        }
    });
    url
}

/// Passes on the bytes that `goes` accepts.
fn carry(mut from: TcpStream, mut to: TcpStream, goes: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if goes(&bytes[..count]) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn an_answer_is_shown_even_if_its_events_are_lost() {
    let harness = Harness::new();
    let script = harness.script(json!([{"tools": [["bash", {"command": "echo 1"}]]}, {"text": "Done."}]));
    let serving = ServeProcess::start(&harness, &["--script", &script]);
    let ran = harness.trefoil(&["run", "--attach", &deaf_way(&serving.url), "--model", "script/file", "go"]).expect(0);
    assert_eq!(ran.stdout.trim(), "Done.");
    ran.says("echo 1");
}

#[test]
fn run_works_on_a_server() {
    let harness = Harness::new();
    let script = harness.script(
        json!([{"text": "I look.", "tools": [["bash", {"command": "echo from the server"}]]}, {"text": "Done."}]),
    );
    let serving = ServeProcess::start(&harness, &["--script", &script]);
    let ran = harness.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "go"]).expect(0);
    assert!(ran.stdout.contains("Done."), "{}", ran.stdout);
    let lines =
        harness.trefoil(&["run", "--attach", &serving.url, "--format", "json", "-c", "again"]).expect(0).json_lines();
    let session = lines[0]["sessionID"].as_str().unwrap();
    assert!(lines.iter().any(|line| line["part"]["state"]["output"] == "from the server\n"), "{lines:?}");

    let listed = harness.trefoil(&["session", "list", "--json", "--attach", &serving.url]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "-c went on with the session: {listed}");
    let export = harness.trefoil(&["session", "export", session, "--attach", &serving.url]).expect(0).json();
    assert_eq!(export, harness.export(session), "the server's session is the one in the database");
    assert_eq!(texts(&export), ["go", "I look.", "Done.", "again", "I look.", "Done."]);
    harness.trefoil(&["session", "show", "nope", "--attach", &serving.url]).expect(1).says(session);
    harness.trefoil(&["models", "--attach", &serving.url]).expect(0);
    harness.trefoil(&["session", "delete", session, "--attach", &serving.url]).expect(0);
    assert!(harness.sessions().is_empty());
}

#[test]
fn the_attached_client_is_asked_for_permission() {
    let harness = Harness::new();
    harness.configure(json!({"permission": {"bash": "ask"}}));
    let script = harness.script(json!([{"tools": [["bash", {"command": "touch made"}]]}, {"text": "Done."}]));
    let serving = ServeProcess::start(&harness, &["--script", &script]);
    // Nobody can be asked here, so it is denied.
    harness.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "go"]).expect(4);
    assert!(!harness.project.path().join("made").exists());
    harness.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "--yes", "go"]).expect(0);
    assert!(harness.project.path().join("made").exists());
}

#[test]
fn an_unreachable_server_is_named() {
    let harness = Harness::new();
    let ran = harness.trefoil(&["run", "--attach", "http://127.0.0.1:9", "go"]).expect(1);
    ran.says("http://127.0.0.1:9");
    harness.trefoil(&["run", "--attach", "not a url", "go"]).expect(2);
    harness.trefoil(&["run", "--dir", "/tmp", "go"]).expect(2);
}

#[test]
fn a_turn_is_parked_at_shutdown_and_continues_at_the_next_start() {
    let harness = Harness::new();
    let pipe = harness.pipe("gate");
    // It waits for a writer that never comes.
    let command = format!("echo begun > {}; cat {}", pipe.display(), harness.pipe("never").display());
    // The second prompt may join the resumed turn, or find it done.
    let script = harness.rules(json!({
        "rules": [{"when": {"text": "and then"}, "steps": [{"text": "It goes on."}]}],
        "default": [{"tools": [["bash", {"command": command}]]}, {"text": "It goes on."}],
    }));
    let serving = ServeProcess::start(&harness, &["--script", &script]);
    let mut run = harness.command(&["run", "--attach", &serving.url, "--model", "script/file", "go"]);
    run.stdin(std::process::Stdio::null());
    let run = spawn(run);
    Reader::new(move || std::fs::File::open(pipe).unwrap()).wait_for("begun");
    let session = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    serving.end(Signal::TERM).expect(0);
    assert_ne!(finish(run).code, 0, "the turn has not ended");
    assert!(!texts(&harness.export(&session)).contains(&"It goes on."));

    let serving = ServeProcess::start(&harness, &["--script", &script]);
    // A prompt to the same session waits for the parked turn.
    harness.trefoil(&["run", "--attach", &serving.url, "--session", &session, "and then?"]).expect(0);
    let export = harness.export(&session);
    assert!(texts(&export).contains(&"It goes on."), "{export:#}");
    let tools = export["messages"].to_string();
    assert!(tools.contains("nterrupted"), "the command that was cut off says so: {tools}");
}

#[test]
fn an_open_address_needs_a_password() {
    let harness = Harness::new();
    let ran = harness.trefoil(&["serve", "--hostname", "0.0.0.0", "--port", "0"]).expect(1);
    ran.says("password");
    harness.configure(json!({"server": {"hostname": "0.0.0.0"}}));
    harness.trefoil(&["serve", "--port", "0"]).expect(1).says("password");
    let shut = ServeProcess::start(&harness, &["--password", "secret"]);
    let url = shut.url.replace("0.0.0.0", "127.0.0.1");
    harness.trefoil(&["session", "list", "--attach", &url]).expect(1).says("password");
    let with = url.replace("http://", "http://opencode:secret@");
    harness.trefoil(&["session", "list", "--attach", &with]).expect(0);
}

#[test]
fn without_a_port_it_listens_where_opencode_does_or_on_a_free_one() {
    let harness = Harness::new();
    let first = ServeProcess::of(spawn(harness.command(&["serve"])));
    let is_usual = first.url == "http://127.0.0.1:4096";
    // Another program of this machine may have the port.
    assert!(is_usual || TcpStream::connect("127.0.0.1:4096").is_ok(), "{} although 4096 is free", first.url);
    let second = ServeProcess::of(spawn(harness.command(&["serve"])));
    assert!(second.url.starts_with("http://127.0.0.1:") && second.url != first.url, "{} {}", first.url, second.url);
    for serving in [first, second] {
        harness.trefoil(&["session", "list", "--attach", &serving.url]).expect(0);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let harness = Harness::new();
    let serving = ServeProcess::start(&harness, &[]);
    let port = serving.url.rsplit(':').next().unwrap();
    harness.trefoil(&["serve", "--port", port]).expect(1).says("--port");
    serving.end(Signal::INT).expect(0);
}

#[test]
fn a_socket_is_served_to_its_owner_and_removed() {
    let harness = Harness::new();
    let path = harness.project.root().join("trefoil.sock");
    let path = path.to_str().unwrap();
    let mut program = spawn(harness.command(&["serve", "--socket", path]));
    let stdout = program.stdout.take().unwrap();
    let mut lines = Reader::new(move || stdout);
    lines.wait_for(&format!("listening on unix:{path}"));
    let serving = ServeProcess { program, url: format!("unix:{path}") };
    harness.trefoil(&["session", "list", "--attach", &serving.url]).expect(0);
    harness.trefoil(&["serve", "--socket", path]).expect(1);
    serving.end(Signal::TERM).expect(0);
    assert!(!std::path::Path::new(path).exists());
}

/// The event stream of a server.
fn events(url: &str) -> Reader {
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /global/event HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut events = Reader::new(move || stream);
    events.wait_for("server.connected");
    events
}

#[test]
fn the_turn_of_a_killed_server_continues_in_another() {
    let harness = Harness::new();
    let script = harness.script(json!([{"tools": [["bash", {"command": "exec sleep 300"}]]}, {"text": "Done."}]));
    let (doomed, living) =
        (ServeProcess::start(&harness, &["--script", &script]), ServeProcess::start(&harness, &["--script", &script]));
    let mut events = events(&living.url);
    let client = spawn(harness.command(&["run", "--attach", &doomed.url, "--model", "script/file", "go"]));
    events.wait_for("\"status\":\"running\"");
    doomed.end(Signal::KILL);
    // The other server is not told.
    events.wait_for("interrupted");
    events.wait_for("session.idle");
    drop(client);
    let session = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = harness.export(&session);
    assert_eq!(texts(&export), ["go", "Done."]);
    let messages = export["messages"].as_array().unwrap();
    assert!(
        messages
            .iter()
            .all(|message| message["info"]["role"] == "user" || !message["info"]["time"]["completed"].is_null())
    );
}
