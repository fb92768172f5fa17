//! One connection to an event stream, from its opening to its end.

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
use crate::error::RequestError;

/// The longest event, in bytes. A stream that exceeds it is broken or hostile.
const MAX_EVENT: usize = 16 << 20;

/// An open event stream.
pub(crate) struct Connection {
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    /// Bytes received since the last complete event.
    unparsed: Arc<AtomicUsize>,
    first: Option<Sse>,
}

impl Connection {
    /// Connects and waits for the first event, because the server has subscribed only then.
    pub async fn open(client: &Client, scope: &WatchScope, after: Option<&Cursor>) -> Result<Self, HostError> {
        let mut request = match scope {
            WatchScope::Directory(directory) => client.request(Method::GET, &["event"]).query("directory", directory),
            WatchScope::All | WatchScope::Session(_) => client.request(Method::GET, &["global", "event"]),
        };
        request = request.header("accept", "text/event-stream");
        if let Some(cursor) = after {
            request = request.header("last-event-id", &cursor.to_string());
        }
        let limit = client.inner.timeouts.call;
        let open = async {
            let response = request.send().await?;
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            if !kind.starts_with("text/event-stream") {
                let text = format!(
                    "{} returned {kind:?} instead of an event stream; is this an OpenCode server?",
                    request.line()
                );
                return Err(RequestError::Refused(HostError::Failed(text)));
            }
            let mut connection = Self::read_stream(response, client.inner.timeouts.stream_silence);
            match connection.next().await {
                Some(Ok(event)) => connection.first = Some(event),
                Some(Err(error)) => return Err(stream_error(&request.line(), &error)),
                None => return Err(stream_error(&request.line(), &"it ended immediately")),
            }
            Ok(connection)
        };
        Ok(timeout(limit, open).await.unwrap_or_else(|_| Err(request.timed_out(limit)))?)
    }

    fn read_stream(response: Response, silence: Duration) -> Self {
        let unparsed = Arc::new(AtomicUsize::new(0));
        let counter = unparsed.clone();
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
                    let unparsed = counter.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
                    let fits = unparsed <= MAX_EVENT;
                    fits.then_some(bytes)
                        .ok_or_else(|| std::io::Error::other(format!("an event beyond {MAX_EVENT} bytes")))
                });
                let rest = chunk.is_ok().then_some(response);
                Some((chunk, rest))
            }
        });
        Self { events: SseByteStream::new(Box::pin(chunks)).boxed(), unparsed, first: None }
    }

    /// The next event, or `None` once the server has closed the stream.
    pub async fn next(&mut self) -> Option<Result<Sse, sse_stream::Error>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let next = self.events.next().await;
        if matches!(next, Some(Ok(_))) {
            self.unparsed.store(0, Ordering::Relaxed);
        }
        next
    }

    /// Whether the stream broke because of an event that is too large and would come again.
    pub fn is_event_too_large(&self) -> bool {
        self.unparsed.load(Ordering::Relaxed) > MAX_EVENT
    }
}

fn stream_error(request_line: &str, why: &dyn std::fmt::Display) -> RequestError {
    RequestError::Connection(HostError::Failed(format!("The event stream {request_line} broke: {why}")))
}
