//! One connection to an event stream, as far as its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{Cursor, HostError, WatchScope};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Response};
use sse_stream::{Sse, SseByteStream};
use tokio::time::timeout;

use crate::Client;
use crate::error::Failure;

/// The longest event, in bytes. A stream that goes beyond it is broken or hostile.
const MAX_EVENT: usize = 16 << 20;

/// An open event stream.
pub(crate) struct Connection {
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    /// What came since the last whole event.
    size: Arc<AtomicUsize>,
    first: Option<Sse>,
}

impl Connection {
    /// Connects. The server has subscribed once its first event is there, so that one is waited for.
    pub async fn open(client: &Client, scope: &WatchScope, after: Option<&Cursor>) -> Result<Self, HostError> {
        let mut call = match scope {
            WatchScope::Directory(directory) => client.call(Method::GET, &["event"]).query("directory", directory),
            WatchScope::All | WatchScope::Session(_) => client.call(Method::GET, &["global", "event"]),
        };
        call = call.header("accept", "text/event-stream");
        if let Some(cursor) = after {
            call = call.header("last-event-id", &cursor.to_string());
        }
        let limit = client.inner.timeouts.call;
        let open = async {
            let response = call.send().await?;
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            if !kind.starts_with("text/event-stream") {
                let text = format!("{} is no event stream but {kind:?}; is this a server of OpenCode?", call.asked());
                return Err(Failure::Refused(HostError::Failed(text)));
            }
            let mut connection = Self::over(response, client.inner.timeouts.stream_silence);
            match connection.next().await {
                Some(Ok(event)) => connection.first = Some(event),
                Some(Err(error)) => return Err(broken(&call.asked(), &error)),
                None => return Err(broken(&call.asked(), &"it ended at once")),
            }
            Ok(connection)
        };
        Ok(timeout(limit, open).await.unwrap_or_else(|_| Err(call.late(limit)))?)
    }

    fn over(response: Response, silence: Duration) -> Self {
        let size = Arc::new(AtomicUsize::new(0));
        let counter = size.clone();
        let chunks = stream::unfold(Some(response), move |response| {
            let counter = counter.clone();
            async move {
                let mut response = response?;
                let chunk = match timeout(silence, response.chunk()).await {
                    Ok(Ok(chunk)) => chunk.map(Ok)?,
                    Ok(Err(error)) => Err(std::io::Error::other(error)),
                    Err(_) => Err(std::io::Error::other(format!("silent for {silence:?}"))),
                };
                let chunk: Result<Bytes, std::io::Error> = chunk.and_then(|bytes| {
                    let size = counter.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
                    let fits = size <= MAX_EVENT;
                    fits.then_some(bytes)
                        .ok_or_else(|| std::io::Error::other(format!("an event beyond {MAX_EVENT} bytes")))
                });
                let rest = chunk.is_ok().then_some(response);
                Some((chunk, rest))
            }
        });
        Self { events: SseByteStream::new(Box::pin(chunks)).boxed(), size, first: None }
    }

    /// The next event; nothing once the server has closed the stream.
    pub async fn next(&mut self) -> Option<Result<Sse, sse_stream::Error>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let next = self.events.next().await;
        if matches!(next, Some(Ok(_))) {
            self.size.store(0, Ordering::Relaxed);
        }
        next
    }

    /// Whether it broke because of an event that is too large: that would come again.
    pub fn is_choked(&self) -> bool {
        self.size.load(Ordering::Relaxed) > MAX_EVENT
    }
}

fn broken(asked: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::Broken(HostError::Failed(format!("The event stream {asked} broke: {why}")))
}
