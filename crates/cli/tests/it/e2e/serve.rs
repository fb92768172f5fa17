//! `trefoil serve` from outside, and `--attach` on it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::{Program, Ran, Reader, Rig, finish, signal, spawn};

/// A server; it is killed when dropped.
pub struct Serving {
    pub program: Program,
    pub url: String,
}

impl Serving {
    pub fn start(rig: &Rig, args: &[&str]) -> Self {
        let mut all = vec!["serve", "--port", "0"];
        all.extend(args);
        Self::of(spawn(rig.command(&all)))
    }

    /// The server that a program is.
    pub fn of(mut program: Program) -> Self {
        let stdout = program.stdout.take().unwrap();
        let mut lines = Reader::new(move || stdout);
        lines.wait_for("opencode server listening on ");
        let url = lines.wait_for("\n").trim().to_owned();
        Self { program, url }
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Sends a signal, and waits for the end.
    pub fn end(self, with: Signal) -> Ran {
        signal(self.program.id(), with);
        finish(self.program)
    }
}

fn texts(export: &Value) -> Vec<&str> {
    let messages = export["messages"].as_array().unwrap().iter();
    let parts = messages.flat_map(|message| message["parts"].as_array().unwrap());
    parts.filter(|part| part["type"] == "text").map(|part| part["text"].as_str().unwrap()).collect()
}

/// A way to a server on which no event comes any more once a prompt was sent; its address.
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

/// Passes on what `goes`.
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
fn an_answer_without_its_events_is_shown_all_the_same() {
    let rig = Rig::new();
    let script = rig.script(json!([{"tools": [["bash", {"command": "echo 1"}]]}, {"text": "Done."}]));
    let serving = Serving::start(&rig, &["--script", &script]);
    let ran = rig.trefoil(&["run", "--attach", &deaf_way(&serving.url), "--model", "script/file", "go"]).expect(0);
    assert_eq!(ran.stdout.trim(), "Done.");
    ran.says("echo 1");
}

#[test]
fn run_works_on_a_server() {
    let rig = Rig::new();
    let script = rig.script(
        json!([{"text": "I look.", "tools": [["bash", {"command": "echo from the server"}]]}, {"text": "Done."}]),
    );
    let serving = Serving::start(&rig, &["--script", &script]);
    let ran = rig.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "go"]).expect(0);
    assert!(ran.stdout.contains("Done."), "{}", ran.stdout);
    let lines =
        rig.trefoil(&["run", "--attach", &serving.url, "--format", "json", "-c", "again"]).expect(0).json_lines();
    let session = lines[0]["sessionID"].as_str().unwrap();
    assert!(lines.iter().any(|line| line["part"]["state"]["output"] == "from the server\n"), "{lines:?}");

    let listed = rig.trefoil(&["session", "list", "--json", "--attach", &serving.url]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "-c went on with the session: {listed}");
    let export = rig.trefoil(&["session", "export", session, "--attach", &serving.url]).expect(0).json();
    assert_eq!(export, rig.export(session), "the server's session is the one in the database");
    assert_eq!(texts(&export), ["go", "I look.", "Done.", "again", "I look.", "Done."]);
    rig.trefoil(&["session", "show", "nope", "--attach", &serving.url]).expect(1).says(session);
    rig.trefoil(&["models", "--attach", &serving.url]).expect(0);
    rig.trefoil(&["session", "delete", session, "--attach", &serving.url]).expect(0);
    assert!(rig.sessions().is_empty());
}

#[test]
fn a_permission_is_asked_of_whoever_attached() {
    let rig = Rig::new();
    rig.configure(json!({"permission": {"bash": "ask"}}));
    let script = rig.script(json!([{"tools": [["bash", {"command": "touch made"}]]}, {"text": "Done."}]));
    let serving = Serving::start(&rig, &["--script", &script]);
    // Nobody can be asked here, so it is refused.
    rig.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "go"]).expect(4);
    assert!(!rig.project.path().join("made").exists());
    rig.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "--yes", "go"]).expect(0);
    assert!(rig.project.path().join("made").exists());
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let rig = Rig::new();
    let ran = rig.trefoil(&["run", "--attach", "http://127.0.0.1:9", "go"]).expect(1);
    ran.says("http://127.0.0.1:9");
    rig.trefoil(&["run", "--attach", "not a url", "go"]).expect(2);
    rig.trefoil(&["run", "--dir", "/tmp", "go"]).expect(2);
}

#[test]
fn a_turn_is_parked_at_the_end_and_goes_on_at_the_next_start() {
    let rig = Rig::new();
    let pipe = rig.pipe("gate");
    // It waits for somebody who never writes.
    let command = format!("echo begun > {}; cat {}", pipe.display(), rig.pipe("never").display());
    // The second prompt may join the turn that goes on, or find it done.
    let script = rig.rules(json!({
        "rules": [{"when": {"text": "and then"}, "steps": [{"text": "It goes on."}]}],
        "default": [{"tools": [["bash", {"command": command}]]}, {"text": "It goes on."}],
    }));
    let serving = Serving::start(&rig, &["--script", &script]);
    let mut run = rig.command(&["run", "--attach", &serving.url, "--model", "script/file", "go"]);
    run.stdin(std::process::Stdio::null());
    let run = spawn(run);
    Reader::new(move || std::fs::File::open(pipe).unwrap()).wait_for("begun");
    let session = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    serving.end(Signal::TERM).expect(0);
    assert_ne!(finish(run).code, 0, "the turn has not ended");
    assert!(!texts(&rig.export(&session)).contains(&"It goes on."));

    let serving = Serving::start(&rig, &["--script", &script]);
    // Whoever asks for the same session waits for the turn that was parked.
    rig.trefoil(&["run", "--attach", &serving.url, "--session", &session, "and then?"]).expect(0);
    let export = rig.export(&session);
    assert!(texts(&export).contains(&"It goes on."), "{export:#}");
    let tools = export["messages"].to_string();
    assert!(tools.contains("nterrupted"), "the command that was cut off says so: {tools}");
}

#[test]
fn an_open_address_needs_a_password() {
    let rig = Rig::new();
    let ran = rig.trefoil(&["serve", "--hostname", "0.0.0.0", "--port", "0"]).expect(1);
    ran.says("password");
    rig.configure(json!({"server": {"hostname": "0.0.0.0"}}));
    rig.trefoil(&["serve", "--port", "0"]).expect(1).says("password");
    let shut = Serving::start(&rig, &["--password", "secret"]);
    let url = shut.url.replace("0.0.0.0", "127.0.0.1");
    rig.trefoil(&["session", "list", "--attach", &url]).expect(1).says("password");
    let with = url.replace("http://", "http://opencode:secret@");
    rig.trefoil(&["session", "list", "--attach", &with]).expect(0);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let rig = Rig::new();
    let serving = Serving::start(&rig, &[]);
    let port = serving.url.rsplit(':').next().unwrap();
    rig.trefoil(&["serve", "--port", port]).expect(1).says("--port");
    serving.end(Signal::INT).expect(0);
}

#[test]
fn a_socket_is_served_to_its_owner_and_taken_away() {
    let rig = Rig::new();
    let path = rig.project.root().join("trefoil.sock");
    let path = path.to_str().unwrap();
    let mut program = spawn(rig.command(&["serve", "--socket", path]));
    let stdout = program.stdout.take().unwrap();
    let mut lines = Reader::new(move || stdout);
    lines.wait_for(&format!("listening on unix:{path}"));
    let serving = Serving { program, url: format!("unix:{path}") };
    rig.trefoil(&["session", "list", "--attach", &serving.url]).expect(0);
    rig.trefoil(&["serve", "--socket", path]).expect(1);
    serving.end(Signal::TERM).expect(0);
    assert!(!std::path::Path::new(path).exists());
}

/// The events of a server, as they come.
fn events(url: &str) -> Reader {
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /global/event HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut events = Reader::new(move || stream);
    events.wait_for("server.connected");
    events
}

#[test]
fn the_turn_of_a_server_that_is_killed_goes_on_in_the_other_one() {
    let rig = Rig::new();
    let script = rig.script(json!([{"tools": [["bash", {"command": "exec sleep 300"}]]}, {"text": "Done."}]));
    let (doomed, living) = (Serving::start(&rig, &["--script", &script]), Serving::start(&rig, &["--script", &script]));
    let mut events = events(&living.url);
    let client = spawn(rig.command(&["run", "--attach", &doomed.url, "--model", "script/file", "go"]));
    events.wait_for("\"status\":\"running\"");
    doomed.end(Signal::KILL);
    // Nobody tells the other server.
    events.wait_for("interrupted");
    events.wait_for("session.idle");
    drop(client);
    let session = rig.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = rig.export(&session);
    assert_eq!(texts(&export), ["go", "Done."]);
    let messages = export["messages"].as_array().unwrap();
    assert!(
        messages
            .iter()
            .all(|message| message["info"]["role"] == "user" || !message["info"]["time"]["completed"].is_null())
    );
}
