//! ACP over a WebSocket: one message per frame.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use acp::rpc::{Received, Sink, Source};
use axum::extract::ws::{Message, WebSocket};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::State;
use crate::transport::backlog::Reader as Client;

/// After this long without a word, a client is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);
/// How often it is asked in vain before it counts as gone.
const MAX_PINGS: u32 = 3;
/// How long a client may take to read a message.
const SEND_WAIT: Duration = Duration::from_secs(60);

/// Speaks with a client until it is gone.
pub async fn converse(state: Arc<State>, client: Arc<Client>, socket: WebSocket) {
    let (sink, stream) = socket.split();
    let writer = Writer { sink: Arc::new(Mutex::new(sink)), client: client.clone() };
    let reader = Reader { stream, writer: writer.clone(), unanswered: 0 };
    let stop = state.closing.child_token();
    let mut serving = std::pin::pin!(acp::serve(super::options(&state), reader, writer, stop.clone()));
    tokio::select! {
        () = &mut serving => return,
        () = client.cut() => stop.cancel(),
    }
    serving.await;
}

/// What we say.
#[derive(Clone)]
struct Writer {
    sink: Arc<Mutex<SplitSink<WebSocket, Message>>>,
    client: Arc<Client>,
}

impl Writer {
    async fn send(&self, message: Message) -> io::Result<()> {
        let _waiting = self.client.wait(length(&message));
        let mut sink = self.sink.lock().await;
        let sent = timeout(SEND_WAIT, sink.send(message)).await;
        sent.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)
    }
}

fn length(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) => 0,
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
