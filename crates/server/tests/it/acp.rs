//! ACP over a WebSocket and over HTTP, behind the server's guard. Every message of the agent is checked against the
//! schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::{Events, Rig};
use crate::schema;
use futures::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{ModelServer, TempProject, WAIT};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use trefoil_server::Password;

/// The methods of the requests that were sent, by id.
type PendingRequests = Arc<Mutex<HashMap<u64, String>>>;

/// Fails if the schema does not allow a message of the agent. `unstable`: the client announced an unstable capability.
#[track_caller]
fn check_message(message: &Value, pending: &PendingRequests, unstable: bool) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    let (id, params) = (&message["id"], &message["params"]);
    let checked = match message["method"].as_str() {
        Some(method) if id.is_null() => schema::notification(method, params, unstable),
        Some(method) => schema::request(method, params),
        None if message["error"].is_object() => schema::check("Error", &message["error"]),
        None => {
            let method = id.as_u64().and_then(|id| pending.lock().unwrap().remove(&id));
            schema::response(&method.expect("an answer to a request"), &message["result"])
        }
    };
    checked.unwrap();
}

struct SocketClient {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    updates: Vec<Value>,
    pending: PendingRequests,
}

impl SocketClient {
    async fn open(rig: &Rig, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let url = format!("{}/acp", rig.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Self { socket, updates: Vec::new(), pending: PendingRequests::default() }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, id: u64, method: &str, params: Value) {
        self.pending.lock().unwrap().insert(id, method.to_owned());
        self.socket.send(Message::text(rpc_request(id, method, &params).to_string())).await.unwrap();
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        let limit = tokio::time::Instant::now() + WAIT;
        loop {
            let next = tokio::time::timeout_at(limit, self.socket.next()).await;
            let next = next.unwrap_or_else(|_| panic!("no message within {WAIT:?}; received: {:#?}", self.updates));
            if let Message::Text(text) = next.unwrap().unwrap() {
                let message = serde_json::from_str(&text).unwrap();
                check_message(&message, &self.pending, false);
                return message;
            }
        }
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(id, method, params).await;
        loop {
            let message = self.next().await;
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
            self.updates.push(message);
        }
    }
}

/// The text of the agent in a session. How it is split into chunks depends on timing.
fn agent_text(updates: &[Value], session: &str) -> String {
    let of = updates.iter().map(|update| &update["params"]).filter(|params| params["sessionId"] == session);
    let chunks = of.map(|params| &params["update"]).filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

#[tokio::test]
async fn a_session_works_over_a_websocket() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let mut client = SocketClient::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    client.socket.send(Message::text("noise")).await.unwrap();
    let hello = client.ask(1, "initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(hello["result"]["agentInfo"]["name"], "trefoil");
    assert_eq!(client.updates[0]["error"]["code"], -32700);
    let made = client.ask(2, "session/new", json!({"cwd": rig.project.directory(), "mcpServers": []})).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!([{"type": "text", "text": r#"SCRIPT: [{"text": "Hello over a socket."}]"#}]);
    let end = client.ask(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(agent_text(&client.updates, &session), "Hello over a socket.", "{:?}", client.updates);
    // The same session through the other face.
    let (status, messages) = rig.send(Method::GET, &format!("/session/{session}/message"), None).await;
    assert_eq!((status, messages.as_array().unwrap().len()), (200, 2));
}

#[tokio::test]
async fn a_socket_that_breaks_during_a_turn_loses_nothing() {
    let mut model = ModelServer::start().await;
    model.answer_titles("A title");
    let rig = Rig::new(model.config()).await;
    let mut first = SocketClient::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    first.ask(1, "initialize", json!({ "protocolVersion": 1 })).await;
    let made = first.ask(2, "session/new", json!({"cwd": rig.project.directory(), "mcpServers": []})).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!([{"type": "text", "text": "count"}]);
    first.send(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
    let mut call = model.next_call().await;
    let words = |range: std::ops::Range<u32>| range.map(|n| format!("w{n} ")).collect::<Vec<_>>();
    for word in words(0..50) {
        call.text(word).await;
    }
    while first.next().await["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
    drop(first);
    let mut second = SocketClient::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    second.ask(1, "initialize", json!({ "protocolVersion": 1 })).await;
    let load = json!({"sessionId": session, "cwd": rig.project.directory(), "mcpServers": []});
    assert!(second.ask(2, "session/load", load).await["error"].is_null());
    for word in words(50..100) {
        call.text(word).await;
    }
    call.finish("stop").await;
    while !agent_text(&second.updates, &session).ends_with("w99 ") {
        let next = second.next().await;
        second.updates.push(next);
    }
    assert_eq!(agent_text(&second.updates, &session), words(0..100).concat());
}

#[tokio::test]
async fn only_allowed_clients_get_in() {
    let password = Password { username: "opencode".into(), password: "secret".into() };
    let rig = Rig::guarded(TempProject::new(), Some(password)).await;
    assert_eq!(SocketClient::open(&rig, &[]).await.err(), Some(401));
    // opencode:secret
    let known = ("authorization", "Basic b3BlbmNvZGU6c2VjcmV0");
    assert!(SocketClient::open(&rig, &[known]).await.is_ok());
    assert_eq!(SocketClient::open(&rig, &[known, ("origin", "https://elsewhere.example")]).await.err(), Some(403));
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
    let post = || rig.http.post(format!("{}/acp", rig.url)).json(&hello);
    assert_eq!(post().send().await.unwrap().status(), 401);
    let elsewhere = post().header(known.0, known.1).header("origin", "https://elsewhere.example");
    assert_eq!(elsewhere.send().await.unwrap().status(), 403);
    assert_eq!(post().header(known.0, known.1).send().await.unwrap().status(), 200);
    let open = Rig::new(json!({})).await;
    assert_eq!(open.send(Method::GET, "/acp", None).await.0, 406, "neither upgrade nor events");
}

/// A client that posts its messages and reads events.
struct HttpClient<'a> {
    rig: &'a Rig,
    connection: String,
    pending: PendingRequests,
    /// Whether it announced an unstable capability.
    unstable: bool,
}

/// The messages that it reads.
struct MessageReader {
    events: Events,
    pending: PendingRequests,
    unstable: bool,
}

impl MessageReader {
    async fn next(&mut self) -> Option<Value> {
        let message = self.events.next().await?;
        check_message(&message, &self.pending, self.unstable);
        Some(message)
    }
}

impl<'a> HttpClient<'a> {
    async fn new(rig: &'a Rig, capabilities: Value) -> Self {
        let unstable = capabilities["subagents"].is_object();
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = rig.http.post(format!("{}/acp", rig.url)).json(&hello).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let connection = response.headers()["acp-connection-id"].to_str().unwrap().to_owned();
        let answer: Value = response.json().await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]["agentInfo"]["name"]), (&json!(0), &json!("trefoil")));
        let pending = PendingRequests::default();
        pending.lock().unwrap().insert(0, "initialize".to_owned());
        check_message(&answer, &pending, unstable);
        Self { rig, connection, pending, unstable }
    }

    fn request(&self, method: Method, session: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.rig.http.request(method, format!("{}/acp", self.rig.url));
        let request = request.header("acp-connection-id", &self.connection);
        session.into_iter().fold(request, |request, session| request.header("acp-session-id", session))
    }

    async fn post(&self, session: Option<&str>, message: Value) -> u16 {
        if let (Some(id), Some(method)) = (message["id"].as_u64(), message["method"].as_str()) {
            self.pending.lock().unwrap().insert(id, method.to_owned());
        }
        self.request(Method::POST, session).json(&message).send().await.unwrap().status().as_u16()
    }

    async fn read(&self, session: Option<&str>) -> Result<MessageReader, u16> {
        self.resume(session, None).await.map_err(|(status, _)| status)
    }

    /// Opens a stream after that event; fails with the status and body. A broken stream counts as read until the server
    /// notices.
    async fn resume(&self, session: Option<&str>, last: Option<&str>) -> Result<MessageReader, (u16, String)> {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < WAIT, "the stream is still in use");
            let request = self.request(Method::GET, session).header("accept", "text/event-stream").timeout(WAIT * 10);
            let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
            let response = request.send().await.unwrap();
            match response.status().as_u16() {
                200 => {
                    let events = Events::new(response);
                    return Ok(MessageReader { events, pending: self.pending.clone(), unstable: self.unstable });
                }
                409 if last.is_some() => {}
                status => return Err((status, response.text().await.unwrap())),
            }
        }
    }
}

fn rpc_request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Reads until a request is answered; returns the messages before, and the response.
async fn read_until_response(events: &mut MessageReader, id: u64) -> (Vec<Value>, Value) {
    let mut before = Vec::new();
    loop {
        let event = events.next().await.unwrap();
        if event["id"] == id && event["method"].is_null() {
            return (before, event);
        }
        before.push(event);
    }
}

#[tokio::test]
async fn a_session_works_over_http() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let client = HttpClient::new(&rig, json!({ "subagents": {} })).await;
    let mut connection = client.read(None).await.ok().unwrap();
    let params = json!({"cwd": rig.project.directory(), "mcpServers": []});
    assert_eq!(client.post(None, rpc_request(1, "session/new", &params)).await, 202);
    let (_, made) = read_until_response(&mut connection, 1).await;
    let id = made["result"]["sessionId"].as_str().unwrap();
    let mut session = client.read(Some(id)).await.ok().unwrap();
    let task =
        json!({"description": "Look", "subagent_type": "general", "prompt": r#"SCRIPT: [{"text": "I looked."}]"#});
    let steps = json!([{"tools": [["task", task]]}, {"text": "Hello over HTTP."}]);
    let params = json!({"sessionId": id, "prompt": [{"type": "text", "text": format!("SCRIPT: {steps}")}]});
    assert_eq!(client.post(Some(id), rpc_request(2, "session/prompt", &params)).await, 202);
    let (updates, end) = read_until_response(&mut session, 2).await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(agent_text(&updates, id), "Hello over HTTP.", "{updates:?}");
    // A subagent's messages come in the stream of its root, after it was announced.
    let announced = updates.iter().position(|told| told["params"]["update"]["sessionUpdate"] == "subagent_update");
    let (before, after) = updates.split_at(announced.unwrap());
    let child = after[0]["params"]["update"]["sessionId"].as_str().unwrap();
    assert_eq!(
        (agent_text(before, child).as_str(), agent_text(after, child).as_str()),
        ("", "I looked."),
        "{updates:?}"
    );
    // A client that loads the session on another connection, with the stream open, gets everything and then the response.
    let other = HttpClient::new(&rig, json!({})).await;
    let (mut theirs, mut replay) = (other.read(None).await.ok().unwrap(), other.read(Some(id)).await.ok().unwrap());
    let params = json!({"sessionId": id, "cwd": rig.project.directory(), "mcpServers": []});
    assert_eq!(other.post(Some(id), rpc_request(5, "session/load", &params)).await, 202);
    let mut replayed = Vec::new();
    while agent_text(&replayed, id) != "Hello over HTTP." {
        replayed.push(replay.next().await.unwrap());
    }
    assert!(read_until_response(&mut theirs, 5).await.1["error"].is_null());
    // A closed connection stays closed.
    assert_eq!(client.request(Method::DELETE, None).send().await.unwrap().status(), 202);
    assert_eq!(client.request(Method::DELETE, None).send().await.unwrap().status(), 404);
    assert!(connection.next().await.is_none() && client.read(None).await.err() == Some(404));
    assert_eq!(client.post(None, rpc_request(3, "session/list", &json!({}))).await, 404);
    assert_eq!(other.post(None, rpc_request(3, "session/list", &json!({}))).await, 202);
}

#[tokio::test]
async fn a_broken_stream_continues_where_it_was() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let client = HttpClient::new(&rig, json!({})).await;
    let mut connection = client.read(None).await.ok().unwrap();
    let params = json!({"cwd": rig.project.directory(), "mcpServers": []});
    client.post(None, rpc_request(1, "session/new", &params)).await;
    let (_, made) = read_until_response(&mut connection, 1).await;
    let id = made["result"]["sessionId"].as_str().unwrap();
    let mut session = client.read(Some(id)).await.ok().unwrap();
    // Slowly, so that it breaks in the middle. Everything arrives, whichever side is faster.
    let text = r#"SCRIPT: [{"chunks": 100, "chunk_delay_ms": 5}]"#;
    let params = json!({"sessionId": id, "prompt": [{"type": "text", "text": text}]});
    assert_eq!(client.post(Some(id), rpc_request(2, "session/prompt", &params)).await, 202);
    let mut updates = Vec::new();
    for breaks in 1..5 {
        // Read some; more is on its way when the stream breaks.
        while !agent_text(&updates, id).contains(&format!("w{breaks}0 ")) {
            updates.push(session.next().await.unwrap());
        }
        let last = session.events.last.clone();
        drop(session);
        session = client.resume(Some(id), last.as_deref()).await.ok().unwrap();
    }
    let (rest, end) = read_until_response(&mut session, 2).await;
    updates.extend(rest);
    assert_eq!(end["result"]["stopReason"], "end_turn");
    assert_eq!(
        agent_text(&updates, id),
        (0..100).map(|n| format!("w{n} ")).collect::<String>(),
        "everything once and in order"
    );
    // Messages wait while nobody reads.
    let last = session.events.last.clone().unwrap();
    drop(session);
    let (status, why) = client.resume(Some(id), Some("1000000")).await.err().unwrap();
    assert!(status == 410 && why.contains("Start again with initialize, and load your sessions"), "{status} {why}");
    assert_eq!(client.resume(Some(id), Some("x")).await.err().unwrap().0, 400);
    let parts = json!({"parts": [{"type": "text", "text": r#"SCRIPT: [{"text": "Meanwhile."}]"#}]});
    assert_eq!(rig.send(Method::POST, &format!("/session/{id}/message"), Some(parts)).await.0, 200);
    let mut session = client.read(Some(id)).await.ok().unwrap();
    while !agent_text(&updates, id).ends_with("Meanwhile.") {
        updates.push(session.next().await.unwrap());
    }
    assert!(session.events.last.unwrap().parse::<u64>().unwrap() > last.parse::<u64>().unwrap());
}

#[tokio::test]
async fn socket_and_http_clients_share_one_limit() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let _socket = SocketClient::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    for _ in 1..64 {
        HttpClient::new(&rig, json!({})).await;
    }
    let hello = rpc_request(0, "initialize", &json!({"protocolVersion": 1}));
    assert_eq!(rig.send(Method::POST, "/acp", Some(hello)).await.0, 429);
    assert_eq!(SocketClient::open(&rig, &[]).await.err(), Some(429));
}

#[tokio::test]
async fn invalid_http_requests_are_refused() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let url = format!("{}/acp", rig.url);
    let post =
        |body: &'static str, kind: &'static str| rig.http.post(&url).header("content-type", kind).body(body).send();
    assert_eq!(post("{}", "text/plain").await.unwrap().status(), 415);
    for (body, code) in [("{broken", -32700), ("[]", -32600), ("5", -32600)] {
        let response = post(body, "application/json; charset=utf-8").await.unwrap();
        assert_eq!(response.status(), 400);
        let answer: Value = response.json().await.unwrap();
        assert_eq!((&answer["id"], answer["error"]["code"].as_i64()), (&Value::Null, Some(code)), "{body}");
    }
    let (list, odd) = (r#"{"id":1,"method":"session/list"}"#, r#"{"id":null,"method":"initialize"}"#);
    for body in [list, odd] {
        assert_eq!(post(body, "application/json").await.unwrap().status(), 400, "{body}");
    }
    assert_eq!(rig.send(Method::DELETE, "/acp", None).await.0, 400);
    let client = HttpClient::new(&rig, json!({})).await;
    let again = rpc_request(1, "initialize", &json!({"protocolVersion": 1}));
    assert_eq!(client.post(None, again).await, 400);
    let prompt = rpc_request(2, "session/prompt", &json!({"sessionId": "ses_a", "prompt": []}));
    assert_eq!((client.post(None, prompt.clone()).await, client.post(Some("ses_b"), prompt).await), (400, 400));
    let mut connection = client.read(None).await.ok().unwrap();
    assert_eq!(client.read(None).await.err(), Some(409));
    assert_eq!(client.post(None, rpc_request(3, "nonsense", &Value::Null)).await, 202);
    assert_eq!(read_until_response(&mut connection, 3).await.1["error"]["code"], -32601);
    assert_eq!(client.request(Method::GET, None).send().await.unwrap().status(), 406);
}
