//! One connection to an event stream, from its opening to its end.

use std::collections::VecDeque;
use std::time::Duration;

use api::{Cursor, HostError, SessionId};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Response};
use tokio::time::timeout;
use web::{EventTooLarge, SseDecoder, SseEvent};

use crate::Client;
use crate::error::RequestError;

/// The longest event, in bytes. A stream that exceeds it is broken or hostile.
const MAX_EVENT: usize = 16 << 20;

/// The field with the turn of an event, which only Trefoil sends.
const TURN_FIELD: &str = "turn";

/// One of a server's event streams.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// That of a directory.
    Directory(String),
    /// That of everything, where each event names its directory.
    Global,
    /// That of a session and its descendants, which only Trefoil has.
    Tree(SessionId),
}

/// An open event stream.
pub(crate) struct Connection {
    response: Response,
    /// How long the server may send nothing.
    silence: Duration,
    decoder: SseDecoder,
    /// Events that are decoded, but not yet returned.
    ready: VecDeque<SseEvent>,
    is_event_too_large: bool,
}

impl Connection {
    /// Connects and waits for the first event, because the server has subscribed only then.
    pub async fn open(client: &Client, source: &Source, after: Option<&Cursor>) -> Result<Self, HostError> {
        let mut request = match source {
            Source::Directory(directory) => client.request(Method::GET, &["event"]).query("directory", directory),
            Source::Tree(root) => client.request(Method::GET, &["session", root.as_str(), "tree", "event"]),
            Source::Global => client.request(Method::GET, &["global", "event"]),
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
                return Err(RequestError::Refused(HostError::Payload(text)));
            }
            let mut connection = Self {
                response,
                silence: client.inner.timeouts.stream_silence,
                decoder: SseDecoder::new(MAX_EVENT).with_extension(TURN_FIELD),
                ready: VecDeque::new(),
                is_event_too_large: false,
            };
            match connection.next().await {
                Some(Ok(event)) => connection.ready.push_front(event),
                Some(Err(error)) => return Err(stream_error(&request.line(), &error)),
                None => return Err(stream_error(&request.line(), &"it ended immediately")),
            }
            Ok(connection)
        };
        Ok(timeout(limit, open).await.unwrap_or_else(|_| Err(request.timed_out(limit)))?)
    }

    /// The next event, or `None` once the server has closed the stream. After an error nothing more can be read.
    pub async fn next(&mut self) -> Option<Result<SseEvent, String>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let chunk = match timeout(self.silence, self.response.chunk()).await {
                Ok(Ok(chunk)) => chunk?,
                Ok(Err(error)) => return Some(Err(web::root_cause(&error).to_string())),
                Err(_) => return Some(Err(format!("silent for {:?}", self.silence))),
            };
            let ready = &mut self.ready;
            let mut sink = |event| -> Result<(), EventTooLarge> {
                ready.push_back(event);
                Ok(())
            };
            if let Err(error) = self.decoder.push(&chunk, &mut sink) {
                self.is_event_too_large = true;
                return Some(Err(error.to_string()));
            }
        }
    }

    /// Whether the stream broke because of an event that is too large and would come again.
    pub fn is_event_too_large(&self) -> bool {
        self.is_event_too_large
    }
}

fn stream_error(request_line: &str, why: &dyn std::fmt::Display) -> RequestError {
    RequestError::Connection(HostError::Unavailable(format!("The event stream {request_line} broke: {why}")))
}
