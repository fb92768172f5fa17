//! Many streams at once, from one thread, so that the clients take as little of the processor as possible.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::service::{COMPLETED, headers, message};

/// How long a stream may take.
const LONGEST: Duration = Duration::from_secs(120);
/// How many bytes are read at a time.
const READ_BYTES: usize = 16 << 10;
/// What each event begins with.
const EVENT: &[u8] = b"data:";

/// What a client saw of a stream.
#[derive(Default)]
pub struct Streamed {
    /// Milliseconds until its first event; `None` if there was none.
    pub first: Option<f64>,
    /// Whether its task has completed.
    pub is_complete: bool,
}

/// Opens this many streams at once, each with a message of its own, and reads them to their end.
pub fn run(address: SocketAddr, count: usize, text: &str) -> Result<Vec<Streamed>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..count {
            let body = message(text, None).to_string();
            clients.spawn(async move {
                let mut seen = Streamed::default();
                // One that breaks is one that did not complete.
                let _ = timeout(LONGEST, follow(address, &body, &mut seen)).await;
                seen
            });
        }
        Ok(clients.join_all().await)
    })
}

async fn follow(address: SocketAddr, body: &str, seen: &mut Streamed) -> Result<()> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let head = format!(
        "POST /message:stream HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\naccept: text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n{}\r\n",
        body.len(),
        headers()
    );
    stream.write_all((head + body).as_bytes()).await?;
    let mut text = Vec::new();
    loop {
        text.reserve(READ_BYTES);
        if stream.read_buf(&mut text).await? == 0 {
            break;
        }
        if seen.first.is_none() && text.windows(EVENT.len()).any(|window| window == EVENT) {
            seen.first = Some(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    seen.is_complete = std::str::from_utf8(&text).context("events are UTF-8")?.contains(COMPLETED);
    Ok(())
}
