//! An endless event stream: reconnects when the connection breaks, and reports a resync whenever events may be missing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::{Cursor, Event, Frame, HostError, SessionId, Subtree, TurnId, WatchItem, WatchScope};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::time::sleep;
use web::SseEvent;

use super::connection::{Connection, Source};
use crate::Client;
use crate::limit::Permit;
use crate::monitor::read;
use crate::wire::{self, Envelope};

/// The delay before the first attempt to reconnect; it doubles with each …
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// … up to this.
const MAX_DELAY: Duration = Duration::from_secs(5);

struct WatchStream {
    client: Client,
    source: Source,
    filter: Filter,
    connection: Option<Connection>,
    /// Everything up to here was received.
    cursor: Option<Cursor>,
    /// Items received but not yet returned.
    pending: VecDeque<WatchItem>,
    /// Attempts to connect since the last event.
    attempts: u32,
    /// Its place among the streams of the client, also between two connections.
    _permit: Permit,
    /// Whether this connection continues an earlier one without a gap.
    is_resumed: bool,
    /// The server reported a gap. For other clients it repeats that as `server.instance.disposed`.
    is_resynced: bool,
}

/// Follows the events of a scope, over one connection of its own. Events after this returns are not missed.
pub(crate) async fn watch(
    client: Client,
    scope: WatchScope,
    after: Option<Cursor>,
) -> Result<BoxStream<'static, WatchItem>, HostError> {
    if matches!(scope, WatchScope::Subtree(_) | WatchScope::Turn(_)) {
        // OpenCode has no stream for these.
        client.detect().await?;
    }
    let (source, mut filter) = match scope {
        WatchScope::All => (Source::Global, Filter::Nothing),
        WatchScope::Directory(directory) => (Source::Directory(directory), Filter::Nothing),
        WatchScope::Session(_) => (Source::Global, Filter::Within(scope)),
        WatchScope::Subtree(root) if client.is_trefoil() => (Source::Tree(root), Filter::Nothing),
        WatchScope::Subtree(root) => (Source::Global, Filter::Subtree(Subtree::new(root.clone(), []), root)),
        WatchScope::Turn(TurnId { ref session, .. }) if client.is_trefoil() => {
            (Source::Tree(session.clone()), Filter::Within(scope))
        }
        WatchScope::Turn(_) => return Err(HostError::Unsupported("Watching one turn")),
    };
    let permit = client.inner.streams.enter(&client.inner.display_name)?;
    let connection = Connection::open(&client, &source, after.as_ref()).await?;
    filter.refresh(&client).await?;
    let wants_resume = after.is_some();
    let mut pending = VecDeque::new();
    let cursor = after.filter(|_| client.is_trefoil());
    if wants_resume && cursor.is_none() {
        pending.push_back(WatchItem::Resync(format!("{} does not keep past events", client.inner.display_name)));
    }
    let connection = Some(connection);
    let watch = WatchStream {
        client,
        source,
        filter,
        connection,
        cursor,
        pending,
        attempts: 0,
        _permit: permit,
        is_resumed: false,
        is_resynced: false,
    };
    Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await, watch)) }).boxed())
}

/// What of a stream is passed on.
enum Filter {
    /// Everything.
    Nothing,
    /// The events within a scope.
    Within(WatchScope),
    /// The events of a session and its descendants, on a server that cannot tell.
    Subtree(Subtree, SessionId),
}

impl Filter {
    /// Reads what the filter depends on. Must follow each connection, because events may be missing before it.
    async fn refresh(&mut self, client: &Client) -> Result<(), HostError> {
        if let Self::Subtree(subtree, root) = self {
            let (sessions, _) = read::walk(client, root).await?;
            *subtree = Subtree::new(root.clone(), sessions.into_iter().map(|session| session.id));
        }
        Ok(())
    }

    fn admits(&mut self, frame: &Frame) -> bool {
        match self {
            Self::Nothing => true,
            Self::Within(scope) => frame.within(scope),
            Self::Subtree(subtree, _) => subtree.admits(frame),
        }
    }
}

impl WatchStream {
    /// The next item. There always is one: the consumer ends the stream by dropping it.
    async fn next(&mut self) -> WatchItem {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return item;
            }
            match &mut self.connection {
                None => self.reconnect().await,
                Some(connection) => match connection.next().await {
                    Some(Ok(event)) => self.receive(event),
                    end => {
                        let why = end.and_then(Result::err).unwrap_or_else(|| "closed".to_owned());
                        tracing::debug!(server = self.client.inner.display_name, why, "event stream ended");
                        if connection.is_event_too_large() {
                            self.cursor = None;
                        }
                        self.connection = None;
                    }
                },
            }
        }
    }

    async fn reconnect(&mut self) {
        sleep(reconnect_delay(self.attempts)).await;
        self.attempts = self.attempts.saturating_add(1);
        let open = async {
            let connection = Connection::open(&self.client, &self.source, self.cursor.as_ref()).await?;
            self.filter.refresh(&self.client).await?;
            Ok::<_, HostError>(connection)
        };
        match open.await {
            Ok(connection) => {
                self.connection = Some(connection);
                if self.cursor.is_none() || !self.client.is_trefoil() {
                    self.cursor = None;
                    let reason = format!(
                        "the connection to {} broke, and events may be missing",
                        self.client.inner.display_name
                    );
                    self.pending.push_back(WatchItem::Resync(reason));
                }
                self.is_resumed = self.cursor.is_some();
            }
            Err(error) => tracing::debug!(%error, attempts = self.attempts, "event stream could not be opened"),
        }
    }

    fn receive(&mut self, sse: SseEvent) {
        let cursor: Option<Cursor> = sse.id.as_deref().and_then(|id| id.parse().ok());
        if cursor.is_some() {
            self.cursor.clone_from(&cursor);
        }
        let data = sse.data;
        let turn = sse.extension.as_deref().and_then(|turn| TurnId::parse(turn).ok());
        let (directory, project, json) = match &self.source {
            Source::Directory(directory) => (directory.as_str().into(), "".into(), Bytes::from(data)),
            Source::Tree(_) => ("".into(), "".into(), Bytes::from(data)),
            Source::Global => match serde_json::from_str::<Envelope<'_>>(&data) {
                Ok(envelope) => {
                    let json = Bytes::copy_from_slice(envelope.payload.get().as_bytes());
                    (Arc::<str>::from(&*envelope.directory), Arc::<str>::from(&*envelope.project), json)
                }
                Err(error) => return log_unreadable(&data, &error),
            },
        };
        let kind = Event::type_of(&json);
        let after_resync = std::mem::take(&mut self.is_resynced);
        match kind.as_deref() {
            Some("server.connected") if !self.is_resumed => return,
            // No event is missing, but the server may be a new process that has lost what it does not store.
            Some("server.connected") => {}
            Some("server.heartbeat") => return self.attempts = 0,
            // Repeats every durable event, for servers that replicate each other.
            Some("sync") => return,
            Some("server.resync") => {
                self.is_resynced = true;
                self.cursor = cursor;
                return self.pending.push_back(WatchItem::Resync(wire::resync_reason(&json)));
            }
            Some("server.instance.disposed") if after_resync => return,
            _ => self.attempts = 0,
        }
        match serde_json::from_slice::<Event>(&json) {
            Ok(event) => {
                self.client.inner.directories.observe(&event.body, &directory);
                let frame = Frame::new(cursor, directory, project, Arc::new(event), json);
                let frame = frame.of_turn(turn.map(|turn| turn.number));
                if self.filter.admits(&frame) {
                    self.pending.push_back(WatchItem::Frame(frame));
                }
            }
            Err(error) => log_unreadable(&String::from_utf8_lossy(&json), &error),
        }
    }
}

/// A server of another version may send anything; the other events still count.
fn log_unreadable(data: &str, error: &serde_json::Error) {
    let data: String = data.chars().take(200).collect();
    tracing::warn!(%error, data, "an event could not be parsed");
}

/// Doubles with each attempt. Half of it is random, so that the clients of a restarted server do not all reconnect at
/// once.
pub(crate) fn reconnect_delay(attempts: u32) -> Duration {
    let full = FIRST_DELAY.saturating_mul(1 << attempts.min(10)).min(MAX_DELAY);
    full.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_delays_grow_within_bounds() {
        for attempts in [0, 1, 5, 40, u32::MAX] {
            let full = FIRST_DELAY.saturating_mul(1 << attempts.min(10)).min(Duration::from_secs(5));
            let pauses: Vec<Duration> = (0..50).map(|_| reconnect_delay(attempts)).collect();
            assert!(pauses.iter().all(|pause| (full / 2..=full).contains(pause)), "{attempts}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }
}
