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
use transport::backlog::ClientBacklog;

use crate::State;

/// A client that is silent for this long is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How many pings may stay unanswered before a client counts as gone.
const MAX_UNANSWERED_PINGS: u32 = 3;
/// How long a client may take to read a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves a client until it is gone.
pub async fn serve_websocket(state: Arc<State>, client: Arc<ClientBacklog>, socket: WebSocket) {
    let (sink, stream) = socket.split();
    let writer = SocketWriter { sink: Arc::new(Mutex::new(sink)), client: client.clone() };
    let reader = SocketReader { stream, writer: writer.clone(), unanswered_pings: 0 };
    let stop = state.closing.child_token();
    let mut serving = std::pin::pin!(acp::serve(super::options(&state), reader, writer, stop.clone()));
    tokio::select! {
        () = &mut serving => return,
        () = client.disconnected() => stop.cancel(),
    }
    serving.await;
}

/// Messages to the client.
#[derive(Clone)]
struct SocketWriter {
    sink: Arc<Mutex<SplitSink<WebSocket, Message>>>,
    client: Arc<ClientBacklog>,
}

impl SocketWriter {
    async fn send(&self, message: Message) -> io::Result<()> {
        let _waiting = self.client.hold(payload_len(&message));
        let mut sink = self.sink.lock().await;
        let sent = timeout(SEND_TIMEOUT, sink.send(message)).await;
        sent.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)
    }
}

fn payload_len(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) => 0,
    }
}

impl Sink for SocketWriter {
    async fn send(&mut self, messages: Vec<Vec<u8>>) -> io::Result<()> {
        for message in messages {
            let text = String::from_utf8(message).map_err(io::Error::other)?;
            SocketWriter::send(self, Message::text(text)).await?;
        }
        Ok(())
    }
}

/// Messages from the client.
struct SocketReader {
    stream: SplitStream<WebSocket>,
    writer: SocketWriter,
    unanswered_pings: u32,
}

impl Source for SocketReader {
    async fn next(&mut self) -> Received {
        loop {
            let Ok(message) = timeout(PING_INTERVAL, self.stream.next()).await else {
                self.unanswered_pings += 1;
                let ping = Message::Ping(bytes::Bytes::new());
                if self.unanswered_pings > MAX_UNANSWERED_PINGS || self.writer.send(ping).await.is_err() {
                    return Received::End;
                }
                continue;
            };
            self.unanswered_pings = 0;
            match message {
                Some(Ok(Message::Text(text))) => return Received::Line(text.as_bytes().to_vec()),
                Some(Ok(Message::Binary(bytes))) => return Received::Line(bytes.to_vec()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Received::End,
            }
        }
    }
}
