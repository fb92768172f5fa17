//! A terminal's client on a WebSocket. It first gets the output that it missed, in text frames; then a binary frame, a
//! zero byte and its position as JSON (`{"cursor": n}`); then new output as it comes. What it sends is typed into the
//! terminal.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use transport::backlog::ClientBacklog;

use super::Terminal;
use super::scrollback::ScrollbackRead;

/// The largest message of a client, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// How long a client may take to receive one frame before it is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a silent connection is pinged, so that a vanished client is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The position from which a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// All output that is kept.
    Oldest,
    /// New output only.
    New,
    /// A position that the client knows.
    At(u64),
}

impl StartPosition {
    /// Parses the query: a position, or -1 for new output only. Anything else counts as absent.
    pub fn parse(cursor: Option<&str>) -> Self {
        match cursor.and_then(|text| text.trim().parse::<i64>().ok()) {
            Some(-1) => Self::New,
            Some(position) if position >= 0 => Self::At(position.cast_unsigned()),
            _ => Self::Oldest,
        }
    }
}

/// Serves a client until it leaves, the terminal ends or the server stops.
pub async fn serve_client(
    terminal: Arc<Terminal>,
    start_position: StartPosition,
    socket: WebSocket,
    client: Arc<ClientBacklog>,
    closing: CancellationToken,
) {
    let (mut sink, stream) = socket.split();
    let close_reason = tokio::select! {
        reason = send_output(&terminal, start_position, &client, &mut sink) => reason,
        () = client.disconnected() => Some(TOO_SLOW),
        () = type_input(&terminal, stream) => return,
        () = closing.cancelled() => Some((1001, "server closing")),
    };
    if let Some((code, reason)) = close_reason {
        let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let _ = timeout(Duration::from_secs(1), sink.send(close)).await;
    }
}

/// Sends output as it comes. Returns the close reason, unless the connection is already gone.
async fn send_output(
    terminal: &Terminal,
    start_position: StartPosition,
    client: &Arc<ClientBacklog>,
    sink: &mut SplitSink<WebSocket, Message>,
) -> Option<(u16, &'static str)> {
    let mut output = terminal.output_ended.subscribe();
    let (start, end) = terminal.bounds();
    let mut at = match start_position {
        StartPosition::Oldest => start,
        StartPosition::New => end,
        StartPosition::At(position) => position.clamp(start, end),
    };
    while at < end {
        match terminal.read_from(at, end) {
            ScrollbackRead::Text(text, next) => {
                let _waiting = client.hold(text.len());
                send(sink, Message::text(text)).await?;
                at = next;
            }
            // Output was discarded while it was sent: the client reads too slowly.
            ScrollbackRead::Empty | ScrollbackRead::Discarded => return Some(TOO_SLOW),
        }
    }
    let position = [&[0][..], format!(r#"{{"cursor":{end}}}"#).as_bytes()].concat();
    send(sink, Message::binary(position)).await?;
    loop {
        // Read before the output, so that none is missed that comes before the end.
        let ended = *output.borrow_and_update();
        match terminal.read_from(at, u64::MAX) {
            ScrollbackRead::Text(text, next) => {
                let _waiting = client.hold(text.len());
                send(sink, Message::text(text)).await?;
                at = next;
            }
            ScrollbackRead::Discarded => return Some(TOO_SLOW),
            ScrollbackRead::Empty if ended => return Some((1000, "")),
            ScrollbackRead::Empty => match timeout(PING_INTERVAL, output.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Some((1000, "")),
                Err(_) => send(sink, Message::Ping(bytes::Bytes::new())).await?,
            },
        }
    }
}

/// The client can reconnect and continue with what is left.
const TOO_SLOW: (u16, &str) = (1013, "reads too slowly");

async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> Option<()> {
    timeout(SEND_TIMEOUT, sink.send(message)).await.ok()?.ok()
}

/// Types what the client sends, until it leaves.
async fn type_input(terminal: &Terminal, mut stream: SplitStream<WebSocket>) {
    while let Some(Ok(message)) = stream.next().await {
        let input = match &message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) if std::str::from_utf8(bytes).is_ok() => bytes,
            Message::Close(_) => return,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => continue,
        };
        if let Err(error) = terminal.pty.write(input).await {
            // The terminal has ended, and the sending side tells the client.
            tracing::debug!(%error, "a terminal no longer takes input");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_positions_are_parsed() {
        assert_eq!(StartPosition::parse(None), StartPosition::Oldest);
        assert_eq!(StartPosition::parse(Some("-1")), StartPosition::New);
        assert_eq!(StartPosition::parse(Some("17")), StartPosition::At(17));
        for odd in ["", "-2", "1.5", "x", "99999999999999999999"] {
            assert_eq!(StartPosition::parse(Some(odd)), StartPosition::Oldest, "{odd}");
        }
    }
}
