//! Signals that end or stop a program: its work continues afterwards, and waiting clients are told.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{WAIT, until};

use super::cancel::running;
use super::harness::{Harness, Reader, finish, signal, spawn};
use super::serve::ServeProcess;

#[test]
fn a_turn_is_parked_and_resumed() {
    for (with, code, name) in [(Signal::TERM, 143, "SIGTERM"), (Signal::HUP, 129, "SIGHUP")] {
        let harness = Harness::new();
        let (child, alive) = running(&harness, "true");
        signal(child.id(), with);
        let ran = finish(child).expect(code);
        ran.says(&format!("error: received {name}: the turn is parked"));
        ran.says("trefoil run -c");
        assert!(!ran.stderr.contains("cancelling"), "{}", ran.stderr);
        assert_eq!(alive.rest(), "", "nothing of it is left");
        let session = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
        assert!(!harness.export(&session).to_string().contains("aborted"), "it was not aborted");
        // Without a message, the prompt that was sent is answered now.
        let ran = harness.play(json!([{ "text": "Never." }, { "text": "It goes on." }]), &["-c"]).expect(0);
        assert_eq!(ran.stdout, "It goes on.\n");
        let export = harness.export(&session);
        let tool = export["messages"].to_string();
        assert!(tool.contains("interrupted"), "the command that was cut off says so: {tool}");
        assert_eq!(export["messages"].as_array().unwrap().iter().filter(|m| m["info"]["role"] == "user").count(), 1);
    }
}

#[test]
fn a_model_that_does_not_answer_is_left_alone_and_asked_again() {
    let harness = Harness::new();
    let script = harness.script(json!([{ "text": "Hm ", "hold": harness.project.path().join("never") }]));
    let mut child = spawn(harness.command(&["run", "--script", &script, "go"]));
    let stdout = child.stdout.take().unwrap();
    Reader::new(move || stdout).wait_for("Hm ");
    signal(child.id(), Signal::TERM);
    finish(child).expect(143).says("the turn is parked");
    let ran = harness.play(json!([{ "text": "Again." }]), &["-c"]).expect(0);
    assert_eq!(ran.stdout, "Again.\n");
}

#[test]
fn before_the_message_was_sent() {
    let harness = Harness::new();
    let mut command = harness.command(&["run", "x"]);
    let (reader, _writer) = std::io::pipe().unwrap();
    command.stdin(reader);
    let mut child = spawn(command);
    let stderr = child.stderr.take().unwrap();
    let mut stderr = Reader::new(move || stderr);
    stderr.wait_for("waiting for the end of standard input");
    signal(child.id(), Signal::TERM);
    finish(child).expect(143);
    assert!(stderr.rest().contains("received SIGTERM before the message was sent"));
    assert!(harness.sessions().is_empty());
}

/// A turn on a server whose command waits; returns the session and the connection that waits for the answer.
fn waiting(harness: &Harness, serving: &ServeProcess) -> (String, TcpStream) {
    let made = request(serving.address(), "POST", "/session", "{}");
    let session = body(&made)["id"].as_str().unwrap().to_owned();
    let pipe = harness.pipe("begun");
    let prompt =
        json!({ "parts": [{ "type": "text", "text": "go" }], "model": { "providerID": "script", "modelID": "file" } });
    let stream = send(serving.address(), "POST", &format!("/session/{session}/message"), &prompt.to_string());
    Reader::new(move || std::fs::File::open(pipe).unwrap()).wait_for("begun");
    (session, stream)
}

fn send(address: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

fn request(address: &str, method: &str, path: &str, body: &str) -> String {
    rest(send(address, method, path, body))
}

fn rest(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn body(answer: &str) -> Value {
    let body = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}")).1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn waiting_clients_are_told_that_the_server_stops() {
    for with in [Signal::TERM, Signal::HUP, Signal::INT] {
        let harness = Harness::new();
        let never = harness.pipe("never");
        let command = format!("echo begun > begun; cat {}", never.display());
        let script =
            harness.script(json!([{ "tools": [["bash", { "command": command }]] }, { "text": "It goes on." }]));
        let serving = ServeProcess::of(spawn(harness.hearing(true, &["serve", "--port", "0", "--script", &script])));
        let mut events = send(serving.address(), "GET", "/event", "");
        let (session, answer) = waiting(&harness, &serving);
        serving.end(with).expect(0);
        let answer = rest(answer);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let told = body(&answer);
        assert_eq!(told["_tag"], "ServiceUnavailableError");
        assert!(told["message"].as_str().unwrap().contains("goes on at the next start"), "{told}");
        // The stream ends with complete events, so a client knows that it may reconnect.
        let mut heard = Vec::new();
        let _ = events.read_to_end(&mut heard);
        let heard = String::from_utf8(heard).unwrap();
        assert!(heard.contains("server.connected") && heard.contains(&session), "{heard}");
        let ran =
            harness.play(json!([{ "text": "Never." }, { "text": "It goes on." }]), &["--session", &session]).expect(0);
        assert_eq!(ran.stdout, "It goes on.\n");
    }
}

#[test]
fn a_server_under_nohup_outlives_its_terminal() {
    let harness = Harness::new();
    let serving = ServeProcess::of(spawn(harness.hearing(false, &["serve", "--port", "0"])));
    signal(serving.program.id(), Signal::HUP);
    let answer = request(serving.address(), "GET", "/global/health", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    serving.end(Signal::TERM).expect(0);
}

#[test]
fn an_abort_of_a_stopped_process_is_noted_and_takes_effect_later() {
    let harness = Harness::new();
    let (child, alive) = running(&harness, "true");
    let session = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let pid = child.id();
    signal(pid, Signal::STOP);
    until("the process is stopped", || exec::is_stopped(i32::try_from(pid).unwrap()));
    // The second time it says the same.
    for _ in 0..2 {
        let ran = harness.trefoil(&["cancel", &session]).expect(1);
        ran.says(&format!("The process {pid} runs {session} and is stopped"));
        ran.says(&format!("kill -CONT {pid}"));
    }
    signal(pid, Signal::CONT);
    finish(child).expect(130);
    assert_eq!(alive.rest(), "", "nothing of it is left");
    let export = harness.export(&session).to_string();
    assert!(export.contains("MessageAbortedError"), "{export}");
    // The next turn is not affected.
    let ran = harness.play(json!([{ "text": "Again." }]), &["-c", "again"]).expect(0);
    assert_eq!(ran.stdout, "Again.\n");
}
