//! A low limit of open files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};
use testkit::WAIT;

use super::harness::{Harness, spawn};
use super::serve::ServeProcess;

/// The program with `ulimit` options such as `-n 256`.
fn limited(harness: &Harness, limits: &str, args: &[&str]) -> Command {
    let mut command = harness.project.command("sh");
    command.args(["-c", &format!("{limits} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_trefoil")]).args(args);
    command
}

/// Sends a request on a connection that stays open; returns its status and body.
fn request(stream: &mut TcpStream, method: &str, path: &str, body: &str) -> (u16, Value) {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn clients_leave_commands_what_they_need() {
    let harness = Harness::new();
    let script =
        harness.script(json!([{ "tools": [["bash", { "command": "echo it runs | cat" }]] }, { "text": "Done." }]));
    let serving =
        ServeProcess::of(spawn(limited(&harness, "ulimit -n 256", &["serve", "--port", "0", "--script", &script])));
    let connect = || {
        let stream = TcpStream::connect(serving.address()).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream
    };
    let mut first = connect();
    let session = request(&mut first, "POST", "/session", "{}").1["id"].as_str().unwrap().to_owned();
    // Event streams until there is no room for more; further ones are refused, and kept open nevertheless.
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = connect();
        write!(stream, "GET /event HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        match stream.read_exact(&mut answer) {
            Ok(()) if answer.starts_with(b"HTTP/1.1 200") => held.push(stream),
            Ok(()) => break String::from_utf8_lossy(&answer).into_owned(),
            // The request may cross the refusal.
            Err(error) => break error.to_string(),
        }
        assert!(held.len() < 256, "as many connections as there are descriptors");
    };
    assert!(held.len() > 50, "{} connections, then {refused}", held.len());
    held.extend((0..300).map(|_| connect()));
    let prompt =
        json!({ "parts": [{ "type": "text", "text": "go" }], "model": { "providerID": "script", "modelID": "file" } });
    let (status, answer) = request(&mut first, "POST", &format!("/session/{session}/message"), &prompt.to_string());
    assert_eq!((status, &answer["parts"][1]["text"]), (200, &json!("Done.")), "{answer}");
    let export = harness.export(&session).to_string();
    assert!(export.contains("it runs\\n"), "{export}");
    // Freed room is used again.
    drop(held);
    testkit::until("a connection is taken", || {
        let mut stream = connect();
        let asked = write!(stream, "GET /global/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    });
}

#[test]
fn the_limit_is_raised_for_the_program_and_not_for_its_commands() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "external_directory": "allow" } }));
    let script = harness.script(json!([
        { "tools": [["bash", { "command": "ulimit -Sn; ulimit -Hn; grep 'open files' /proc/$PPID/limits; git --version" }]] },
        { "text": "Done." },
    ]));
    let serving = ServeProcess::of(spawn(limited(
        &harness,
        "ulimit -Sn 300 && ulimit -Hn 900",
        &["serve", "--port", "0", "--script", &script],
    )));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.program.id())).unwrap();
    let own = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(own.split_whitespace().nth(3), Some("900"), "{own}");
    let ran = harness.trefoil(&["run", "--attach", &serving.url, "--model", "script/file", "--format", "json", "go"]);
    let output = ran.expect(0).json_lines().into_iter().find_map(|line| {
        let output = line["part"]["state"]["output"].as_str()?;
        Some(output.to_owned())
    });
    assert!(output.as_deref().is_some_and(|output| output.starts_with("300\n900\n")), "{output:?}");
}
