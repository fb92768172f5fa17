//! The events of a peer's stream, bounded in size, time and silence.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use reqwest::Response;
use tokio::time::Instant;
use url::Url;
use web::{EventTooLarge, SseDecoder};

use super::http::failed;
use super::options::StreamLimits;
use super::{ClientError, StreamItem};
use crate::wire::{self, Dialect};

type Chunks = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// The events of a task, as a peer sends them. Ends when the peer ends it.
pub struct PeerStream {
    url: Url,
    dialect: Dialect,
    limits: StreamLimits,
    /// `None` once it has ended.
    chunks: Option<Chunks>,
    decoder: SseDecoder,
    ready: VecDeque<StreamItem>,
    /// An error that comes after the events that are ready.
    failure: Option<ClientError>,
    bytes: usize,
    deadline: Instant,
}

impl PeerStream {
    /// The stream of a response.
    pub(super) fn of(response: Response, url: Url, dialect: Dialect, limits: StreamLimits) -> Self {
        let chunks: Chunks = Box::pin(response.bytes_stream());
        Self::new(Some(chunks), VecDeque::new(), url, dialect, limits)
    }

    /// A stream of one event: the reply of a peer that does not stream.
    pub(super) fn one(item: StreamItem, url: Url, dialect: Dialect, limits: StreamLimits) -> Self {
        Self::new(None, VecDeque::from([item]), url, dialect, limits)
    }

    fn new(
        chunks: Option<Chunks>,
        ready: VecDeque<StreamItem>,
        url: Url,
        dialect: Dialect,
        limits: StreamLimits,
    ) -> Self {
        let decoder = SseDecoder::new(limits.event);
        let deadline = Instant::now() + limits.duration;
        Self { url, dialect, limits, chunks, decoder, ready, failure: None, bytes: 0, deadline }
    }

    /// The next event. After an error nothing follows.
    pub async fn next(&mut self) -> Option<Result<StreamItem, ClientError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            if let Some(error) = self.failure.take() {
                self.chunks = None;
                return Some(Err(error));
            }
            let chunks = self.chunks.as_mut()?;
            let limit = (Instant::now() + self.limits.idle).min(self.deadline);
            let read = match tokio::time::timeout_at(limit, chunks.next()).await {
                Ok(Some(Ok(chunk))) => self.take(&chunk),
                Ok(Some(Err(error))) => Err(self.broken(&error)),
                Ok(None) => {
                    self.chunks = None;
                    self.end()
                }
                Err(_) if limit == self.deadline => {
                    Err(self.too_large(format!("{} s", self.limits.duration.as_secs())))
                }
                Err(_) => Err(ClientError::Silent { url: self.url.to_string(), idle: self.limits.idle }),
            };
            self.failure = read.err();
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), ClientError> {
        self.bytes += chunk.len();
        if self.bytes > self.limits.bytes {
            return Err(self.too_large(format!("{} bytes", self.limits.bytes)));
        }
        let Self { decoder, ready, dialect, .. } = self;
        let read = decoder.push(chunk, &mut |event| item(*dialect, &event.data).map(|item| ready.push_back(item)));
        read.map_err(|error| self.refused(error))
    }

    fn end(&mut self) -> Result<(), ClientError> {
        let Self { decoder, ready, dialect, .. } = self;
        let read = decoder.finish(&mut |event| item(*dialect, &event.data).map(|item| ready.push_back(item)));
        read.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: ReadError) -> ClientError {
        match error {
            ReadError::Peer(error) => ClientError::of_peer(&self.url, error),
            ReadError::TooLarge(limit) => self.too_large(limit.to_string()),
        }
    }

    fn broken(&self, error: &reqwest::Error) -> ClientError {
        match failed(&self.url, error) {
            ClientError::Unreachable { url, why } => ClientError::Broken { url, why },
            other => other,
        }
    }

    fn too_large(&self, what: String) -> ClientError {
        ClientError::TooLarge { url: self.url.to_string(), what }
    }
}

enum ReadError {
    Peer(crate::Error),
    TooLarge(EventTooLarge),
}

impl From<EventTooLarge> for ReadError {
    fn from(error: EventTooLarge) -> Self {
        Self::TooLarge(error)
    }
}

fn item(dialect: Dialect, data: &str) -> Result<StreamItem, ReadError> {
    wire::parse_event(dialect, data.as_bytes()).map_err(ReadError::Peer)
}
