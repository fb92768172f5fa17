//! `trefoil a2a` as a process, and requests to it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::WAIT;

use crate::e2e::harness::{Harness, Program, Reader, RunResult, finish, signal, spawn};

/// The token of the tests.
pub const TOKEN: &str = "a-token-for-tests";

/// A service; it is killed when dropped.
pub struct A2aProcess {
    program: Program,
    /// Its base URL.
    pub url: String,
}

/// A response.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// Reads a whole response.
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The body, if the status is the expected one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}\n\n{}", self.head, self.body);
        serde_json::from_str(&self.body).unwrap_or(Value::String(self.body))
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|key| key.eq_ignore_ascii_case(name));
        self.head.lines().find(named)?.split_once(':').map(|(_, value)| value.trim())
    }
}

/// Sends a request with further headers to any server.
pub fn send(url: &str, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
    let mut stream = begin(url, method, path, headers, body);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    Answer::parse(&String::from_utf8_lossy(&answer))
}

/// Sends a request; the response is still to be read.
pub fn begin(url: &str, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> TcpStream {
    let (address, base) = url.strip_prefix("http://").unwrap().split_once('/').map_or_else(
        || (url.strip_prefix("http://").unwrap(), String::new()),
        |(address, base)| (address, format!("/{base}")),
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!("{method} {base}{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    if !body.is_empty() {
        head += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    stream
}

impl A2aProcess {
    /// A service with the token of the tests.
    pub fn start(harness: &Harness, args: &[&str]) -> Self {
        Self::with(harness, args, &[("A2A_BEARER_TOKEN", TOKEN)])
    }

    /// A service with these variables.
    pub fn with(harness: &Harness, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut all = vec!["a2a", "--port", "0"];
        all.extend(args);
        let mut command = harness.command(&all);
        command.envs(env.iter().copied());
        let mut program = spawn(command);
        let stdout = program.stdout.take().unwrap();
        let mut lines = Reader::new(move || stdout);
        lines.wait_for("a2a service listening on ");
        let url = lines.wait_for("\n").trim().to_owned();
        Self { program, url }
    }

    /// Sends a request with the token.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let headers: Vec<_> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        send(&self.url, method, path, &headers, body)
    }

    /// Calls a method of JSON-RPC; returns its result.
    #[track_caller]
    pub fn call(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut answer = self.send("POST", "/", &[], Some(&body)).expect(200);
        assert!(answer.get("error").is_none(), "{method}: {answer:#}");
        answer["result"].take()
    }

    /// Opens an event stream.
    pub fn stream(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reader {
        let bearer = format!("Bearer {TOKEN}");
        let headers: Vec<_> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        let stream = begin(&self.url, method, path, &headers, body);
        Reader::new(move || stream)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Sends a signal, and waits for the end.
    pub fn end(self, with: Signal) -> RunResult {
        signal(self.program.id(), with);
        finish(self.program)
    }
}

/// A message of 0.3 with a text.
pub fn message(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "user", "kind": "message", "parts": [{ "kind": "text", "text": text }] })
}

/// A message of 1.0 with a text.
pub fn new_message(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// A text that plays these steps.
pub fn script(steps: &Value) -> String {
    format!("SCRIPT:{steps}")
}
