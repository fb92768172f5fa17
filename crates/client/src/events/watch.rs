//! Events without end: a connection, the next one when it breaks, and a word whenever something may be missing between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::{Cursor, Event, Frame, HostError, WatchItem, WatchScope};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use sse_stream::Sse;
use tokio::time::sleep;

use super::connection::Connection;
use crate::Client;
use crate::wire::{self, Envelope};

/// The pause before the first attempt to connect again; it doubles with each …
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

struct Watch {
    client: Client,
    scope: WatchScope,
    connection: Option<Connection>,
    /// Everything up to here was received.
    cursor: Option<Cursor>,
    /// Received and not yet handed out.
    ready: VecDeque<WatchItem>,
    /// Attempts to connect since the last event.
    attempts: u32,
    /// Whether this connection goes on where another one broke, without a gap.
    resumed: bool,
    /// The server said that there is a gap. To other clients it says so once more, as if the directory were dropped.
    resynced: bool,
}

/// Follows the events of a scope. Events that happen after this returned are not missed.
pub(crate) async fn watch(
    client: Client,
    scope: WatchScope,
    after: Option<Cursor>,
) -> Result<BoxStream<'static, WatchItem>, HostError> {
    let connection = Connection::open(&client, &scope, after.as_ref()).await?;
    let resumes = after.is_some();
    let mut ready = VecDeque::new();
    let cursor = after.filter(|_| client.is_trefoil());
    if resumes && cursor.is_none() {
        ready.push_back(WatchItem::Resync(format!("{} does not keep past events", client.inner.shown)));
    }
    let connection = Some(connection);
    let watch = Watch { client, scope, connection, cursor, ready, attempts: 0, resumed: false, resynced: false };
    Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await, watch)) }).boxed())
}

impl Watch {
    /// The next item. There always is one: the consumer ends it by dropping the stream.
    async fn next(&mut self) -> WatchItem {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return item;
            }
            match &mut self.connection {
                None => self.reconnect().await,
                Some(connection) => match connection.next().await {
                    Some(Ok(event)) => self.receive(event),
                    end => {
                        let why =
                            end.and_then(Result::err).map_or_else(|| "closed".to_owned(), |error| error.to_string());
                        tracing::debug!(server = self.client.inner.shown, why, "event stream ended");
                        if connection.is_choked() {
                            self.cursor = None;
                        }
                        self.connection = None;
                    }
                },
            }
        }
    }

    async fn reconnect(&mut self) {
        sleep(pause(self.attempts)).await;
        self.attempts = self.attempts.saturating_add(1);
        match Connection::open(&self.client, &self.scope, self.cursor.as_ref()).await {
            Ok(connection) => {
                self.connection = Some(connection);
                if self.cursor.is_none() || !self.client.is_trefoil() {
                    self.cursor = None;
                    let reason =
                        format!("the connection to {} broke, and events may be missing", self.client.inner.shown);
                    self.ready.push_back(WatchItem::Resync(reason));
                }
                self.resumed = self.cursor.is_some();
            }
            Err(error) => tracing::debug!(%error, attempts = self.attempts, "event stream not opened"),
        }
    }

    fn receive(&mut self, sse: Sse) {
        let cursor: Option<Cursor> = sse.id.as_deref().and_then(|id| id.parse().ok());
        if cursor.is_some() {
            self.cursor.clone_from(&cursor);
        }
        let Some(data) = sse.data else { return };
        let (directory, project, json) = match &self.scope {
            WatchScope::Directory(directory) => (directory.as_str().into(), "".into(), Bytes::from(data)),
            WatchScope::All | WatchScope::Session(_) => match serde_json::from_str::<Envelope<'_>>(&data) {
                Ok(envelope) => {
                    let json = Bytes::copy_from_slice(envelope.payload.get().as_bytes());
                    (Arc::<str>::from(&*envelope.directory), Arc::<str>::from(&*envelope.project), json)
                }
                Err(error) => return strange(&data, &error),
            },
        };
        let kind = wire::kind(&json);
        let after_resync = std::mem::take(&mut self.resynced);
        match kind.as_deref() {
            Some("server.connected") if !self.resumed => return,
            // Nothing is missing, but the server may be another process now: what it does not store is gone.
            Some("server.connected") => {}
            Some("server.heartbeat") => return self.attempts = 0,
            // Every durable event once more, for servers that copy each other.
            Some("sync") => return,
            Some("server.resync") => {
                self.resynced = true;
                self.cursor = cursor;
                return self.ready.push_back(WatchItem::Resync(wire::reason(&json)));
            }
            Some("server.instance.disposed") if after_resync => return,
            _ => self.attempts = 0,
        }
        match serde_json::from_slice::<Event>(&json) {
            Ok(event) => {
                let frame = Frame::new(cursor, directory, project, Arc::new(event), json);
                if !matches!(self.scope, WatchScope::Session(_)) || frame.within(&self.scope) {
                    self.ready.push_back(WatchItem::Frame(frame));
                }
            }
            Err(error) => strange(&String::from_utf8_lossy(&json), &error),
        }
    }
}

/// Whatever a server of another version sends, the events around it still count.
fn strange(data: &str, error: &serde_json::Error) {
    let data: String = data.chars().take(200).collect();
    tracing::warn!(%error, data, "an event is not understood");
}

/// Doubles with each attempt; half of it is random, so that clients of a server that was restarted do not come at once.
pub(crate) fn pause(attempts: u32) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << attempts.min(10)).min(LONGEST_PAUSE);
    full.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_bounds() {
        for attempts in [0, 1, 5, 40, u32::MAX] {
            let full = FIRST_PAUSE.saturating_mul(1 << attempts.min(10)).min(Duration::from_secs(5));
            let pauses: Vec<Duration> = (0..50).map(|_| pause(attempts)).collect();
            assert!(pauses.iter().all(|pause| (full / 2..=full).contains(pause)), "{attempts}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }
}
