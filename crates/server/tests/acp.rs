//! ACP over a WebSocket, behind the guard of the server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::time::Duration;

use common::Rig;
use futures::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::TempProject;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use trefoil_server::Password;

const PATIENCE: Duration = Duration::from_secs(30);

struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    updates: Vec<Value>,
}

impl Client {
    async fn open(rig: &Rig, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let url = format!("{}/acp", rig.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Self { socket, updates: Vec::new() }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        self.socket.send(Message::text(line)).await.unwrap();
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            let Message::Text(text) = next.unwrap_or_else(|_| panic!("{method} was not answered")).unwrap().unwrap()
            else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
            self.updates.push(message);
        }
    }
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
    let told = |update: &&Value| update["params"]["update"]["content"]["text"] == "Hello over a socket.";
    assert_eq!(client.updates.iter().filter(told).count(), 1, "{:?}", client.updates);
    // The same session, on the other face.
    let (status, messages) = rig.send(Method::GET, &format!("/session/{session}/message"), None).await;
    assert_eq!((status, messages.as_array().unwrap().len()), (200, 2));
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
    let open = Rig::new(json!({})).await;
    assert_eq!(open.send(Method::GET, "/acp", None).await.0, 400, "no upgrade");
}
