//! Requests that are wrong, as bytes on a socket: each gets a clear error, nothing changes, and the service goes on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};
use testkit::{WAIT, until};

use super::process::{A2aProcess, Answer, TOKEN, message, new_message, script};
use crate::e2e::harness::Harness;

/// A service with one task that has ended, and what it says about its tasks.
struct Victim {
    harness: Harness,
    service: A2aProcess,
    before: Value,
}

impl Victim {
    fn new(env: &[(&str, &str)]) -> Self {
        let harness = Harness::new();
        let env: Vec<_> = env.iter().copied().chain([("A2A_BEARER_TOKEN", TOKEN)]).collect();
        let service = A2aProcess::with(&harness, &[], &env);
        let text = script(&json!([{ "text": "Done." }]));
        service.call("SendMessage", json!({ "message": new_message("m-1", &text) }));
        let before = Self::tasks(&service);
        assert_eq!(before["totalSize"], 1, "{before:#}");
        Self { harness, service, before }
    }

    fn tasks(service: &A2aProcess) -> Value {
        service.call("ListTasks", json!({ "historyLength": 10, "includeArtifacts": true }))
    }

    /// Sends bytes, and then nothing more; what came back.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.service.url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        // It may answer and hang up before it has read all.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(!matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "it does not answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Posts a body with further headers.
    fn post(&self, path: &str, headers: &str, body: &[u8]) -> Answer {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        Answer::parse(&self.raw(&[head.as_bytes(), body].concat()))
    }

    /// The error of JSON-RPC that a body gets: its code and all that it says.
    #[track_caller]
    fn rpc_error(&self, body: &[u8]) -> (i64, String) {
        let answer = self.post("/", "", body).expect(200);
        let error = &answer["error"];
        assert!(answer.get("result").is_none(), "{answer:#}");
        (error["code"].as_i64().unwrap_or_else(|| panic!("no code: {answer:#}")), error.to_string())
    }

    /// Nothing has changed, and a message is still answered.
    fn check(self) {
        assert_eq!(Self::tasks(&self.service), self.before);
        assert_eq!(self.harness.sessions().len(), 1, "a session was made");
        let text = script(&json!([{ "text": "Still here." }]));
        let task = self.service.call("message/send", json!({ "message": message("m-2", &text) }));
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Still here.", "{task:#}");
    }
}

fn rpc(method: &str, params: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string().into_bytes()
}

/// A message with other values of some members.
fn changed(message: Value, changes: &Value) -> Value {
    let mut message = message;
    for (name, value) in changes.as_object().unwrap() {
        message[name.as_str()] = value.clone();
    }
    json!({ "message": message })
}

#[test]
fn wrong_types_are_named() {
    let victim = Victim::new(&[]);
    let old = |changes: Value| ("message/send", changed(message("m-x", "hello"), &changes));
    let new = |changes: Value| ("SendMessage", changed(new_message("m-x", "hello"), &changes));
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    for ((method, params), named) in [
        (("SendMessage", json!(5)), "params"),
        (("message/send", json!(["message"])), "params"),
        (("SendMessage", json!({})), "message"),
        (("SendMessage", json!({ "message": "hello" })), "message"),
        (new(json!({ "messageId": 5 })), "messageId"),
        (new(json!({ "role": "ROLE_KING" })), "role"),
        (new(json!({ "role": 7 })), "role"),
        (new(json!({ "parts": "hello" })), "parts"),
        (new(json!({ "parts": [{ "text": {} }] })), "text"),
        (new(json!({ "parts": [deep] })), "parts"),
        (new(json!({ "parts": [] })), "parts"),
        (new(json!({ "contextId": ["c"] })), "contextId"),
        (new(json!({ "metadata": "none" })), "metadata"),
        (old(json!({ "parts": [{ "kind": "smell" }] })), "kind"),
        (old(json!({ "parts": [{ "kind": "text", "text": 1 }] })), "text"),
        (old(json!({ "taskId": {} })), "taskId"),
        (old(json!({ "messageId": null })), "messageId"),
        (("GetTask", json!({ "id": 1 })), "id"),
        (("GetTask", json!({ "id": "x", "historyLength": "many" })), "historyLength"),
        (("ListTasks", json!({ "pageSize": -1 })), "pageSize"),
        (("ListTasks", json!({ "status": "DREAMING" })), "status"),
        (("CancelTask", json!({})), "id"),
    ] {
        let (code, text) = victim.rpc_error(&rpc(method, &params));
        // Parameters that are no object make no request.
        let wanted = if params.is_object() { -32602 } else { -32600 };
        assert_eq!(code, wanted, "{method} {params}: {text}");
        assert!(text.contains(named), "{method} {params}: {named} is not named: {text}");
    }
    victim.check();
}

#[test]
fn what_is_no_call_is_refused() {
    let victim = Victim::new(&[]);
    let nested = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let no_text =
        [&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":\""[..], b"\xff\xfe\"}"].concat();
    let bodies: [(&[u8], i64); 10] = [
        (b"", -32700),
        (b"{", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMess", -32700),
        (b"\xff\xfe\x00", -32700),
        (&no_text, -32700),
        (&nested, -32700),
        (b"5", -32600),
        (b"{\"id\":1,\"method\":\"GetTask\"}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/explode\"}", -32601),
    ];
    for (body, code) in bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let (got, text) = victim.rpc_error(body);
        assert_eq!(got, code, "{shown}: {text}");
    }
    for path in ["/message:send", "/v1/message:send", "/message:stream", "/v1/message:stream"] {
        for body in [&b"{"[..], b"\xff", b"[]", b"{\"message\":7}", b"{}"] {
            let answer = victim.post(path, "", body);
            assert_eq!(answer.status, 400, "{path}: {}", answer.body);
            assert!(serde_json::from_str::<Value>(&answer.body).unwrap().is_object(), "{}", answer.body);
        }
    }
    victim.check();
}

#[test]
fn unknown_versions_and_media_types_are_refused() {
    let victim = Victim::new(&[]);
    let body = json!({ "message": new_message("m-x", "hello") }).to_string();
    for version in ["abc", "2.0", "1", "0.3.0.1", "1.0; q=1"] {
        let answer = victim.post("/message:send", &format!("a2a-version: {version}\r\n"), body.as_bytes());
        assert_eq!(answer.status, 400, "{version}: {}", answer.body);
        assert!(answer.body.contains("VERSION_NOT_SUPPORTED"), "{}", answer.body);
    }
    let answer = victim.post("/", "a2a-version: abc\r\n", &rpc("SendMessage", &json!({})));
    let error = answer.expect(200)["error"].take();
    assert!([-32001, -32009].contains(&error["code"].as_i64().unwrap()), "{error:#}");
    let xml = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
         content-type: text/xml\r\ncontent-length: 4\r\n\r\n<a/>"
    );
    assert_eq!(Answer::parse(&victim.raw(xml.as_bytes())).status, 415);
    victim.check();
}

#[test]
fn unknown_fields_change_nothing() {
    let victim = Victim::new(&[]);
    let id = victim.before["tasks"][0]["id"].clone();
    let task = victim.service.call("GetTask", json!({ "id": id, "bogus": { "deep": [1, 2] }, "__proto__": {} }));
    assert_eq!(task["id"], id);
    // The same message with more around it is still the same message.
    let text = script(&json!([{ "text": "Done." }]));
    let again = json!({ "message": changed(new_message("m-1", &text), &json!({ "bogus": 1 }))["message"], "more": [] });
    let again = victim.service.call("SendMessage", again);
    assert_eq!(again["task"]["id"], id);
    victim.check();
}

#[test]
fn a_million_parts_and_bodies_of_a_hundred_megabytes_are_refused() {
    let victim = Victim::new(&[("A2A_MAX_REQUEST_BODY_BYTES", "67108864")]);
    let parts = |count: usize| {
        let parts = "{\"text\":\"\"},".repeat(count - 1);
        let message = format!("{{\"messageId\":\"m-x\",\"role\":\"ROLE_USER\",\"parts\":[{parts}{{\"text\":\"\"}}]}}");
        let params = format!("{{\"message\":{message}}}");
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":{params}}}")
    };
    let (code, text) = victim.rpc_error(parts(1_000_000).as_bytes());
    assert_eq!(code, -32600, "{text}");
    assert!(text.contains("more than"), "{text}");
    let (code, text) = victim.rpc_error(parts(50_000).as_bytes());
    assert_eq!(code, -32602, "{text}");
    assert!(text.contains("parts"), "{text}");
    let hundred = vec![b' '; 100 << 20];
    for path in ["/", "/message:send", "/v1/message:send"] {
        let answer = victim.post(path, "", &hundred);
        assert_eq!(answer.status, 413, "{path}: {}", answer.body);
        assert!(answer.body.contains("too large"), "{path}: {}", answer.body);
    }
    // Without a length it is read up to the limit.
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        hundred.len()
    );
    let answer = Answer::parse(&victim.raw(&[head.as_bytes(), &hundred, b"\r\n0\r\n\r\n"].concat()));
    assert_eq!(answer.status, 413, "{}", answer.body);
    victim.check();
}

#[test]
fn requests_that_are_cut_off_or_garbled_change_nothing() {
    let victim = Victim::new(&[]);
    let body = String::from_utf8(rpc("SendMessage", &json!({ "message": new_message("m-x", "hello") }))).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
    );
    let whole = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let files = || std::fs::read_dir(format!("/proc/{}/fd", victim.service.pid())).unwrap().count();
    let before = files();
    // Cut off anywhere before its last byte, it is no request.
    for cut in 1..whole.len() {
        let mut stream = TcpStream::connect(victim.service.url.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(&whole.as_bytes()[..cut]).unwrap();
    }
    until("the connections are closed", || files() <= before);
    for garbled in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\x00\xff\xfe\r\n\r\n",
        b"GET / SPDY/9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
        b"POST /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /tasks/%ff%fe%00 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-token-for-tests\r\nconnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \xff\xfe\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let answer = victim.raw(garbled);
        let is_refused = answer.is_empty() || !answer.starts_with("HTTP/1.1 2");
        assert!(is_refused, "{}: {answer}", String::from_utf8_lossy(garbled));
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(1 << 20));
    let answer = victim.raw(long.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    until("the connections are closed", || files() <= before);
    victim.check();
}
