//! ACP over a WebSocket and over HTTP, behind the guard of the server. Every message of the agent is checked against the
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

/// The methods of the requests that were made, by their ids.
type Asked = Arc<Mutex<HashMap<u64, String>>>;

/// Fails if the schema does not allow what the agent says. `unstable`: the client announced such a thing.
#[track_caller]
fn fits(message: &Value, asked: &Asked, unstable: bool) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    let (id, params) = (&message["id"], &message["params"]);
    let checked = match message["method"].as_str() {
        Some(method) if id.is_null() => schema::notification(method, params, unstable),
        Some(method) => schema::request(method, params),
        None if message["error"].is_object() => schema::check("Error", &message["error"]),
        None => {
            let method = id.as_u64().and_then(|id| asked.lock().unwrap().remove(&id));
            schema::response(&method.expect("an answer to a request"), &message["result"])
        }
    };
    checked.unwrap();
}

struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    updates: Vec<Value>,
    asked: Asked,
}

impl Client {
    async fn open(rig: &Rig, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let url = format!("{}/acp", rig.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Self { socket, updates: Vec::new(), asked: Asked::default() }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn tell(&mut self, id: u64, method: &str, params: Value) {
        self.asked.lock().unwrap().insert(id, method.to_owned());
        self.socket.send(Message::text(ask(id, method, &params).to_string())).await.unwrap();
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        let limit = tokio::time::Instant::now() + WAIT;
        loop {
            let next = tokio::time::timeout_at(limit, self.socket.next()).await;
            let next = next.unwrap_or_else(|_| panic!("no message within {WAIT:?}; heard: {:#?}", self.updates));
            if let Message::Text(text) = next.unwrap().unwrap() {
                let message = serde_json::from_str(&text).unwrap();
                fits(&message, &self.asked, false);
                return message;
            }
        }
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.tell(id, method, params).await;
        loop {
            let message = self.next().await;
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
            self.updates.push(message);
        }
    }
}

/// What the agent said in a session. The pieces in which it is told depend on how fast it goes.
fn said(updates: &[Value], session: &str) -> String {
    let of = updates.iter().map(|update| &update["params"]).filter(|params| params["sessionId"] == session);
    let chunks = of.map(|params| &params["update"]).filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

#[tokio::test]
async fn a_session_over_a_websocket() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let mut client = Client::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    client.socket.send(Message::text("noise")).await.unwrap();
    let hello = client.ask(1, "initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(hello["result"]["agentInfo"]["name"], "trefoil");
    assert_eq!(client.updates[0]["error"]["code"], -32700);
    let made = client.ask(2, "session/new", json!({"cwd": rig.project.directory(), "mcpServers": []})).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!([{"type": "text", "text": r#"SCRIPT: [{"text": "Hello over a socket."}]"#}]);
    let end = client.ask(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(said(&client.updates, &session), "Hello over a socket.", "{:?}", client.updates);
    // The same session, on the other face.
    let (status, messages) = rig.send(Method::GET, &format!("/session/{session}/message"), None).await;
    assert_eq!((status, messages.as_array().unwrap().len()), (200, 2));
}

#[tokio::test]
async fn a_socket_that_breaks_in_mid_turn_loses_nothing() {
    let mut model = ModelServer::start().await;
    model.answer_titles("A title");
    let rig = Rig::new(model.config()).await;
    let mut first = Client::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    first.ask(1, "initialize", json!({ "protocolVersion": 1 })).await;
    let made = first.ask(2, "session/new", json!({"cwd": rig.project.directory(), "mcpServers": []})).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!([{"type": "text", "text": "count"}]);
    first.tell(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
    let mut call = model.next_call().await;
    let words = |range: std::ops::Range<u32>| range.map(|n| format!("w{n} ")).collect::<Vec<_>>();
    for word in words(0..50) {
        call.text(word).await;
    }
    while first.next().await["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
    drop(first);
    let mut second = Client::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    second.ask(1, "initialize", json!({ "protocolVersion": 1 })).await;
    let load = json!({"sessionId": session, "cwd": rig.project.directory(), "mcpServers": []});
    assert!(second.ask(2, "session/load", load).await["error"].is_null());
    for word in words(50..100) {
        call.text(word).await;
    }
    call.finish("stop").await;
    while !said(&second.updates, &session).ends_with("w99 ") {
        let next = second.next().await;
        second.updates.push(next);
    }
    assert_eq!(said(&second.updates, &session), words(0..100).concat());
}

#[tokio::test]
async fn only_who_may_gets_in() {
    let password = Password { username: "opencode".into(), password: "secret".into() };
    let rig = Rig::guarded(TempProject::new(), Some(password)).await;
    assert_eq!(Client::open(&rig, &[]).await.err(), Some(401));
    // opencode:secret
    let known = ("authorization", "Basic b3BlbmNvZGU6c2VjcmV0");
    assert!(Client::open(&rig, &[known]).await.is_ok());
    assert_eq!(Client::open(&rig, &[known, ("origin", "https://elsewhere.example")]).await.err(), Some(403));
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
    let post = || rig.http.post(format!("{}/acp", rig.url)).json(&hello);
    assert_eq!(post().send().await.unwrap().status(), 401);
    let elsewhere = post().header(known.0, known.1).header("origin", "https://elsewhere.example");
    assert_eq!(elsewhere.send().await.unwrap().status(), 403);
    assert_eq!(post().header(known.0, known.1).send().await.unwrap().status(), 200);
    let open = Rig::new(json!({})).await;
    assert_eq!(open.send(Method::GET, "/acp", None).await.0, 406, "neither upgrade nor events");
}

/// A client that posts what it says, and reads events.
struct Poster<'a> {
    rig: &'a Rig,
    connection: String,
    asked: Asked,
    /// It announced something that is not stable.
    unstable: bool,
}

/// What it reads.
struct Heard {
    events: Events,
    asked: Asked,
    unstable: bool,
}

impl Heard {
    async fn next(&mut self) -> Option<Value> {
        let message = self.events.next().await?;
        fits(&message, &self.asked, self.unstable);
        Some(message)
    }
}

impl<'a> Poster<'a> {
    async fn new(rig: &'a Rig, capabilities: Value) -> Self {
        let unstable = capabilities["subagents"].is_object();
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = rig.http.post(format!("{}/acp", rig.url)).json(&hello).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let connection = response.headers()["acp-connection-id"].to_str().unwrap().to_owned();
        let answer: Value = response.json().await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]["agentInfo"]["name"]), (&json!(0), &json!("trefoil")));
        let asked = Asked::default();
        asked.lock().unwrap().insert(0, "initialize".to_owned());
        fits(&answer, &asked, unstable);
        Self { rig, connection, asked, unstable }
    }

    fn request(&self, method: Method, session: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.rig.http.request(method, format!("{}/acp", self.rig.url));
        let request = request.header("acp-connection-id", &self.connection);
        session.into_iter().fold(request, |request, session| request.header("acp-session-id", session))
    }

    async fn post(&self, session: Option<&str>, message: Value) -> u16 {
        if let (Some(id), Some(method)) = (message["id"].as_u64(), message["method"].as_str()) {
            self.asked.lock().unwrap().insert(id, method.to_owned());
        }
        self.request(Method::POST, session).json(&message).send().await.unwrap().status().as_u16()
    }

    async fn read(&self, session: Option<&str>) -> Result<Heard, u16> {
        self.read_on(session, None).await.map_err(|(status, _)| status)
    }

    /// Reads on behind that event; else why not. A stream that has just broken is taken until the server has noticed.
    async fn read_on(&self, session: Option<&str>, last: Option<&str>) -> Result<Heard, (u16, String)> {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < WAIT, "the stream is still taken");
            let request = self.request(Method::GET, session).header("accept", "text/event-stream").timeout(WAIT * 10);
            let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
            let response = request.send().await.unwrap();
            match response.status().as_u16() {
                200 => {
                    let events = Events::new(response);
                    return Ok(Heard { events, asked: self.asked.clone(), unstable: self.unstable });
                }
                409 if last.is_some() => {}
                status => return Err((status, response.text().await.unwrap())),
            }
        }
    }
}

fn ask(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Reads on until a request is answered; gives what came before, and the answer.
async fn until(events: &mut Heard, id: u64) -> (Vec<Value>, Value) {
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
async fn a_session_over_http() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let client = Poster::new(&rig, json!({ "subagents": {} })).await;
    let mut connection = client.read(None).await.ok().unwrap();
    let params = json!({"cwd": rig.project.directory(), "mcpServers": []});
    assert_eq!(client.post(None, ask(1, "session/new", &params)).await, 202);
    let (_, made) = until(&mut connection, 1).await;
    let id = made["result"]["sessionId"].as_str().unwrap();
    let mut session = client.read(Some(id)).await.ok().unwrap();
    let task =
        json!({"description": "Look", "subagent_type": "general", "prompt": r#"SCRIPT: [{"text": "I looked."}]"#});
    let steps = json!([{"tools": [["task", task]]}, {"text": "Hello over HTTP."}]);
    let params = json!({"sessionId": id, "prompt": [{"type": "text", "text": format!("SCRIPT: {steps}")}]});
    assert_eq!(client.post(Some(id), ask(2, "session/prompt", &params)).await, 202);
    let (updates, end) = until(&mut session, 2).await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(said(&updates, id), "Hello over HTTP.", "{updates:?}");
    // A subagent comes in the stream of its root, after it was announced.
    let announced = updates.iter().position(|told| told["params"]["update"]["sessionUpdate"] == "subagent_update");
    let (before, after) = updates.split_at(announced.unwrap());
    let child = after[0]["params"]["update"]["sessionId"].as_str().unwrap();
    assert_eq!((said(before, child).as_str(), said(after, child).as_str()), ("", "I looked."), "{updates:?}");
    // Whoever loads it on another connection, with the stream open, gets everything and then the answer.
    let other = Poster::new(&rig, json!({})).await;
    let (mut theirs, mut replay) = (other.read(None).await.ok().unwrap(), other.read(Some(id)).await.ok().unwrap());
    let params = json!({"sessionId": id, "cwd": rig.project.directory(), "mcpServers": []});
    assert_eq!(other.post(Some(id), ask(5, "session/load", &params)).await, 202);
    let mut replayed = Vec::new();
    while said(&replayed, id) != "Hello over HTTP." {
        replayed.push(replay.next().await.unwrap());
    }
    assert!(until(&mut theirs, 5).await.1["error"].is_null());
    // Gone is gone.
    assert_eq!(client.request(Method::DELETE, None).send().await.unwrap().status(), 202);
    assert_eq!(client.request(Method::DELETE, None).send().await.unwrap().status(), 404);
    assert!(connection.next().await.is_none() && client.read(None).await.err() == Some(404));
    assert_eq!(client.post(None, ask(3, "session/list", &json!({}))).await, 404);
    assert_eq!(other.post(None, ask(3, "session/list", &json!({}))).await, 202);
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on_where_it_was() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let client = Poster::new(&rig, json!({})).await;
    let mut connection = client.read(None).await.ok().unwrap();
    let params = json!({"cwd": rig.project.directory(), "mcpServers": []});
    client.post(None, ask(1, "session/new", &params)).await;
    let (_, made) = until(&mut connection, 1).await;
    let id = made["result"]["sessionId"].as_str().unwrap();
    let mut session = client.read(Some(id)).await.ok().unwrap();
    // Slowly, so that it breaks in the middle; whoever is the faster, everything comes.
    let text = r#"SCRIPT: [{"chunks": 100, "chunk_delay_ms": 5}]"#;
    let params = json!({"sessionId": id, "prompt": [{"type": "text", "text": text}]});
    assert_eq!(client.post(Some(id), ask(2, "session/prompt", &params)).await, 202);
    let mut updates = Vec::new();
    for breaks in 1..5 {
        // Some is read, more is on its way when the stream breaks.
        while !said(&updates, id).contains(&format!("w{breaks}0 ")) {
            updates.push(session.next().await.unwrap());
        }
        let last = session.events.last.clone();
        drop(session);
        session = client.read_on(Some(id), last.as_deref()).await.ok().unwrap();
    }
    let (rest, end) = until(&mut session, 2).await;
    updates.extend(rest);
    assert_eq!(end["result"]["stopReason"], "end_turn");
    assert_eq!(
        said(&updates, id),
        (0..100).map(|n| format!("w{n} ")).collect::<String>(),
        "everything once and in its order"
    );
    // What happens while nobody reads waits.
    let last = session.events.last.clone().unwrap();
    drop(session);
    let (status, why) = client.read_on(Some(id), Some("1000000")).await.err().unwrap();
    assert!(status == 410 && why.contains("Start again with initialize, and load your sessions"), "{status} {why}");
    assert_eq!(client.read_on(Some(id), Some("x")).await.err().unwrap().0, 400);
    let parts = json!({"parts": [{"type": "text", "text": r#"SCRIPT: [{"text": "Meanwhile."}]"#}]});
    assert_eq!(rig.send(Method::POST, &format!("/session/{id}/message"), Some(parts)).await.0, 200);
    let mut session = client.read(Some(id)).await.ok().unwrap();
    while !said(&updates, id).ends_with("Meanwhile.") {
        updates.push(session.next().await.unwrap());
    }
    assert!(session.events.last.unwrap().parse::<u64>().unwrap() > last.parse::<u64>().unwrap());
}

#[tokio::test]
async fn clients_of_both_kinds_share_their_seats() {
    let rig = Rig::new(json!({ "model": "script/demo" })).await;
    let _socket = Client::open(&rig, &[]).await.unwrap_or_else(|status| panic!("{status}"));
    for _ in 1..64 {
        Poster::new(&rig, json!({})).await;
    }
    let hello = ask(0, "initialize", &json!({"protocolVersion": 1}));
    assert_eq!(rig.send(Method::POST, "/acp", Some(hello)).await.0, 429);
    assert_eq!(Client::open(&rig, &[]).await.err(), Some(429));
}

#[tokio::test]
async fn what_makes_no_sense_over_http_is_refused() {
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
    let client = Poster::new(&rig, json!({})).await;
    let again = ask(1, "initialize", &json!({"protocolVersion": 1}));
    assert_eq!(client.post(None, again).await, 400);
    let prompt = ask(2, "session/prompt", &json!({"sessionId": "ses_a", "prompt": []}));
    assert_eq!((client.post(None, prompt.clone()).await, client.post(Some("ses_b"), prompt).await), (400, 400));
    let mut connection = client.read(None).await.ok().unwrap();
    assert_eq!(client.read(None).await.err(), Some(409));
    assert_eq!(client.post(None, ask(3, "nonsense", &Value::Null)).await, 202);
    assert_eq!(until(&mut connection, 3).await.1["error"]["code"], -32601);
    assert_eq!(client.request(Method::GET, None).send().await.unwrap().status(), 406);
}
