//! A client at a terminal, over a WebSocket: first what it missed, in text frames; then a binary frame that begins with a
//! zero and says in JSON where it is (`{"cursor": n}`); then what is shown as it comes. What it sends is typed.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Terminal;
use super::scrollback::Next;
use crate::transport::backlog::Reader;

/// The largest message of a client, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// How long a client may take to receive one frame before it is cut.
const SEND_WAIT: Duration = Duration::from_secs(20);

/// How often a silent connection is tried, so that a client that vanished is noticed.
const PING: Duration = Duration::from_secs(30);

/// Where a client begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With all that is known.
    Everything,
    /// With what comes.
    Now,
    /// At a place that it knows.
    At(u64),
}

impl Begin {
    /// From a query: a place, or -1 for now. Whatever is no place counts as none.
    pub fn parse(cursor: Option<&str>) -> Self {
        match cursor.and_then(|text| text.trim().parse::<i64>().ok()) {
            Some(-1) => Self::Now,
            Some(place) if place >= 0 => Self::At(place.cast_unsigned()),
            _ => Self::Everything,
        }
    }
}

/// Serves a client until it leaves, the terminal ends or the server stops.
pub async fn attend(
    terminal: Arc<Terminal>,
    begin: Begin,
    socket: WebSocket,
    client: Arc<Reader>,
    closing: CancellationToken,
) {
    let (mut sink, stream) = socket.split();
    let why = tokio::select! {
        why = show(&terminal, begin, &client, &mut sink) => why,
        () = client.cut() => Some(TOO_SLOW),
        () = take(&terminal, stream) => return,
        () = closing.cancelled() => Some((1001, "server closing")),
    };
    if let Some((code, reason)) = why {
        let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let _ = timeout(Duration::from_secs(1), sink.send(close)).await;
    }
}

/// Shows what comes; gives the reason to close the connection, if there still is one.
async fn show(
    terminal: &Terminal,
    begin: Begin,
    client: &Arc<Reader>,
    sink: &mut SplitSink<WebSocket, Message>,
) -> Option<(u16, &'static str)> {
    let mut news = terminal.news.subscribe();
    let (start, end) = terminal.bounds();
    let mut at = match begin {
        Begin::Everything => start,
        Begin::Now => end,
        Begin::At(place) => place.clamp(start, end),
    };
    while at < end {
        match terminal.after(at, end) {
            Next::Text(text, next) => {
                let _waiting = client.wait(text.len());
                send(sink, Message::text(text)).await?;
                at = next;
            }
            // More came than is kept, while it was sent: the client reads too slowly.
            Next::Nothing | Next::Forgotten => return Some(TOO_SLOW),
        }
    }
    let place = [&[0][..], format!(r#"{{"cursor":{end}}}"#).as_bytes()].concat();
    send(sink, Message::binary(place)).await?;
    loop {
        // Asked for first: what is shown before the end is known is not missed.
        let ended = *news.borrow_and_update();
        match terminal.after(at, u64::MAX) {
            Next::Text(text, next) => {
                let _waiting = client.wait(text.len());
                send(sink, Message::text(text)).await?;
                at = next;
            }
            Next::Forgotten => return Some(TOO_SLOW),
            Next::Nothing if ended => return Some((1000, "")),
            Next::Nothing => match timeout(PING, news.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Some((1000, "")),
                Err(_) => send(sink, Message::Ping(bytes::Bytes::new())).await?,
            },
        }
    }
}

/// The client can come back and go on with what is left.
const TOO_SLOW: (u16, &str) = (1013, "reads too slowly");

async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> Option<()> {
    timeout(SEND_WAIT, sink.send(message)).await.ok()?.ok()
}

/// Types what the client sends, until it leaves.
async fn take(terminal: &Terminal, mut stream: SplitStream<WebSocket>) {
    while let Some(Ok(message)) = stream.next().await {
        let typed = match &message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) if std::str::from_utf8(bytes).is_ok() => bytes,
            Message::Close(_) => return,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => continue,
        };
        if let Err(error) = terminal.screen.write(typed).await {
            // It ended, and whoever shows says so.
            tracing::debug!(%error, "a terminal takes no input any more");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_client_begins() {
        assert_eq!(Begin::parse(None), Begin::Everything);
        assert_eq!(Begin::parse(Some("-1")), Begin::Now);
        assert_eq!(Begin::parse(Some("17")), Begin::At(17));
        for odd in ["", "-2", "1.5", "x", "99999999999999999999"] {
            assert_eq!(Begin::parse(Some(odd)), Begin::Everything, "{odd}");
        }
    }
}
