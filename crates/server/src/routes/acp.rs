//! The ACP face over a WebSocket, one message per frame. Not one of OpenCode's operations.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use acp::rpc::{MAX_LINE, Received, Sink, Source};
use acp::{Login, Options};
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{Method, StatusCode};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::call::Call;
use crate::error::{Error, Where};
use crate::operation::{Operation, Raw, operation};

/// Clients that are connected at once.
pub const MAX_CLIENTS: usize = 64;
/// After this long without a word, a client is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);
/// How often it is asked in vain before it counts as gone.
const MAX_PINGS: u32 = 3;
/// How long a client may take to read a message.
const SEND_WAIT: Duration = Duration::from_secs(60);

pub fn operations() -> Vec<Operation> {
    let connect = operation(Method::GET, "/acp", "acp.connect", "Speak ACP, by WebSocket.", connect);
    vec![connect.partial("experimental, as the transport is in the protocol; no streamable HTTP").global()]
}

async fn connect(mut call: Call) -> Result<Raw<bool>, Error> {
    let upgrade = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
    let upgrade = upgrade.map_err(|refused| Error::bad_request(Where::Headers, refused.body_text()))?;
    let state = call.state;
    let seat = state.agents.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{MAX_CLIENTS} ACP clients are connected already; close one first");
        Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    })?;
    let response = upgrade.max_message_size(MAX_LINE).on_upgrade(async move |socket| {
        let _held = seat;
        let options = Options {
            host: Arc::new(state.engine.clone()),
            // The work is done here, on the files of this machine: the client may be on another one.
            local: None,
            version: state.version.clone(),
            login: Login { program: "trefoil".into(), command: vec!["acp".into()], args: vec!["--login".into()] },
        };
        let (sink, stream) = socket.split();
        let writer = Writer(Arc::new(Mutex::new(sink)));
        let reader = Reader { stream, writer: writer.clone(), unanswered: 0 };
        acp::serve(options, reader, writer, state.closing.clone()).await;
    });
    Ok(Raw::response(response))
}

/// What we say.
#[derive(Clone)]
struct Writer(Arc<Mutex<SplitSink<WebSocket, Message>>>);

impl Writer {
    async fn send(&self, message: Message) -> io::Result<()> {
        let mut sink = self.0.lock().await;
        let sent = timeout(SEND_WAIT, sink.send(message)).await;
        sent.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)
    }
}

impl Sink for Writer {
    async fn send(&mut self, messages: Vec<Vec<u8>>) -> io::Result<()> {
        for message in messages {
            let text = String::from_utf8(message).map_err(io::Error::other)?;
            Writer::send(self, Message::text(text)).await?;
        }
        Ok(())
    }
}

/// What the client says.
struct Reader {
    stream: SplitStream<WebSocket>,
    writer: Writer,
    unanswered: u32,
}

impl Source for Reader {
    async fn next(&mut self) -> Received {
        loop {
            let Ok(message) = timeout(PING, self.stream.next()).await else {
                self.unanswered += 1;
                let ping = Message::Ping(bytes::Bytes::new());
                if self.unanswered > MAX_PINGS || self.writer.send(ping).await.is_err() {
                    return Received::End;
                }
                continue;
            };
            self.unanswered = 0;
            match message {
                Some(Ok(Message::Text(text))) => return Received::Line(text.as_bytes().to_vec()),
                Some(Ok(Message::Binary(bytes))) => return Received::Line(bytes.to_vec()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Received::End,
            }
        }
    }
}
