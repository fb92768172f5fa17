//! Event streams: what the journal and this server tell, framed as server-sent events.

pub mod flush;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::{Cursor, Event, EventBody, Frame, Host as _, SHARED_BYTES, Scope, SessionId, Subtree, WatchItem, WatchScope};
use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::{Store, StoreError};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::State;
use crate::error::Error;
use crate::metrics::Subscribed;
use crate::transport::backlog::Reader;
use flush::Listener;

/// How often a stream shows that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Frames are sent together up to this size. A client that is stuck holds one such piece, and another one waits behind it.
const CHUNK: usize = 16 << 10;

/// A client that takes nothing for so long is cut.
const STUCK: Duration = Duration::from_secs(60);

/// The type of the event that says that a session is gone.
const DELETED: &str = "session.deleted";

/// How many of this server's own events wait for a slow subscriber.
pub const LIVE_QUEUE: usize = 1024;

/// How events are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// As they are: `/event`.
    Plain,
    /// With their directory and project, and durable ones once more as `sync`: `/global/event`.
    Global,
}

/// Where a client wants to go on: the header of a browser that reconnects, or the query.
pub fn cursor(headers: &HeaderMap, after: Option<&str>) -> Option<String> {
    let header = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    header.or(after).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A stream of events.
pub async fn stream(
    state: &Arc<State>,
    reader: Arc<Reader>,
    scope: WatchScope,
    envelope: Envelope,
    after: Option<String>,
) -> Result<Body, Error> {
    let (after, unknown) = parse(after);
    let watch = state.engine.watch(scope.clone(), after).await?;
    Ok(body(state, reader, watch, scope, envelope, None, unknown))
}

/// The stream of a session and all below it, wherever they work.
pub async fn subtree(
    state: &Arc<State>,
    reader: Arc<Reader>,
    scope: &Scope,
    root: SessionId,
    after: Option<String>,
) -> Result<Body, Error> {
    let (after, unknown) = parse(after);
    // Watched first and looked at then: whoever is born in between is known twice, not missed.
    let watch = state.engine.watch(WatchScope::All, after.clone()).await?;
    let sessions = state.engine.tree(scope, &root).await?.sessions;
    let mut subtree = Subtree::new(root, sessions.into_iter().map(|node| node.session_id));
    if let Some(Cursor { seq, .. }) = after {
        let store = state.engine.store().clone();
        let deleted = tokio::task::spawn_blocking(move || deleted(&store, seq)).await.map_err(Error::internal)?;
        subtree.revive(deleted.map_err(Error::internal)?);
    }
    Ok(body(state, reader, watch, WatchScope::All, Envelope::Plain, Some(subtree), unknown))
}

/// A cursor, or why it is none.
fn parse(after: Option<String>) -> (Option<Cursor>, Option<String>) {
    match after.map(|text| text.parse::<Cursor>().map_err(|_| text)) {
        None => (None, None),
        Some(Ok(cursor)) => (Some(cursor), None),
        Some(Err(text)) => (None, Some(format!("{text:?} is no cursor of this server"))),
    }
}

/// The sessions whose deletion the log tells after a place, each with its parent.
fn deleted(store: &Store, after: u64) -> Result<Vec<(SessionId, Option<SessionId>)>, StoreError> {
    let (mut deleted, mut at) = (Vec::new(), after);
    while let Some((frames, next)) = store.history(at)? {
        at = next;
        for frame in frames.iter().filter(|frame| synced(frame).is_some_and(|event| event.kind == DELETED)) {
            if let Some(Event { body: EventBody::SessionDeleted { info, .. }, .. }) = frame.event().as_deref() {
                deleted.push((info.id.clone(), info.parent_id.clone()));
            }
        }
    }
    Ok(deleted)
}

fn body(
    state: &State,
    reader: Arc<Reader>,
    watch: BoxStream<'static, WatchItem>,
    scope: WatchScope,
    envelope: Envelope,
    subtree: Option<Subtree>,
    unknown: Option<String>,
) -> Body {
    let live = BroadcastStream::new(state.live.subscribe());
    let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut feed = Feed {
        watch,
        live,
        heartbeat,
        closing: Box::pin(CancellationToken::cancelled_owned(state.closing.clone())),
        scope,
        envelope,
        subtree,
        reader,
        out: Vec::new(),
        ready: VecDeque::new(),
        end: None,
        subscribed: state.metrics.subscribed(),
        listener: state.listeners.join(),
    };
    feed.own(EventBody::ServerConnected {});
    if let Some(reason) = unknown {
        feed.resync(reason);
    }
    Body::from_stream(feed)
}

/// A stream is over: by an error, after which official clients reconnect, or as planned, after which they do not.
#[derive(Debug, Clone, Copy)]
enum End {
    Planned,
    Cut(&'static str),
}

struct Feed {
    watch: BoxStream<'static, WatchItem>,
    live: BroadcastStream<Frame>,
    heartbeat: Interval,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    scope: WatchScope,
    envelope: Envelope,
    /// Only events of these sessions are told, if it is there.
    subtree: Option<Subtree>,
    /// Who reads.
    reader: Arc<Reader>,
    /// Small frames, put together.
    out: Vec<u8>,
    /// What is to be sent, in order.
    ready: VecDeque<Bytes>,
    end: Option<End>,
    subscribed: Subscribed,
    listener: Listener,
}

impl Feed {
    /// An event of the stream itself.
    fn own(&mut self, body: EventBody) {
        if let Ok(json) = serde_json::to_vec(&Event::new(body)) {
            match self.envelope {
                Envelope::Plain => self.data(&json),
                Envelope::Global => self.data(&[b"{\"payload\":", &json[..], b"}"].concat()),
            }
        }
    }

    fn resync(&mut self, reason: String) {
        self.own(EventBody::ServerResync { reason: Some(reason) });
        let directory = match &self.scope {
            WatchScope::Directory(directory) => directory.clone(),
            _ => String::new(),
        };
        self.own(EventBody::InstanceDisposed { directory });
    }

    fn data(&mut self, json: &[u8]) {
        for piece in [b"data: ", json, b"\n\n"] {
            self.out.extend_from_slice(piece);
        }
    }

    fn frame(&mut self, frame: &Frame) {
        if self.subtree.as_mut().is_some_and(|subtree| !subtree.admits(frame)) {
            return;
        }
        self.subscribed.delivered();
        let (way, pieces): (usize, fn(&Frame) -> Vec<Bytes>) = match self.envelope {
            Envelope::Plain => (0, plain),
            Envelope::Global => (1, global),
        };
        if frame.json().len() > SHARED_BYTES {
            // Sent from where it is, for all subscribers together.
            self.put_together();
            self.ready.extend(pieces(frame));
        } else {
            self.out.extend_from_slice(&frame.rendered(way, |frame| pieces(frame).concat().into()));
        }
        // The recorded server closes a directory's stream when its state is dropped.
        if self.envelope == Envelope::Plain
            && frame.cursor.is_none()
            && matches!(frame.event().as_deref(), Some(Event { body: EventBody::InstanceDisposed { .. }, .. }))
        {
            self.end = Some(End::Planned);
        }
    }

    fn put_together(&mut self) {
        if !self.out.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.out).into());
        }
    }

    /// Whether there is enough to be sent.
    fn is_full(&self) -> bool {
        self.out.len() >= CHUNK || !self.ready.is_empty()
    }

    /// Takes in what is there. Every source that is not ready wakes the stream later.
    fn fill(&mut self, context: &mut Context<'_>) {
        while self.end.is_none() && !self.is_full() {
            match self.watch.as_mut().poll_next(context) {
                Poll::Ready(Some(WatchItem::Frame(frame))) => self.frame(&frame),
                Poll::Ready(Some(WatchItem::Resync(reason))) => self.resync(reason),
                Poll::Ready(Some(WatchItem::Lagged)) => self.end = Some(End::Cut("it reads too slowly")),
                Poll::Ready(None) => self.end = Some(End::Cut("the journal is closed")),
                Poll::Pending => break,
            }
        }
        while self.end.is_none() && !self.is_full() {
            match Pin::new(&mut self.live).poll_next(context) {
                Poll::Ready(Some(Ok(frame))) if frame.within(&self.scope) => self.frame(&frame),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_))) => self.end = Some(End::Cut("it reads too slowly")),
                Poll::Ready(None) => self.end = Some(End::Cut("the server stops")),
                Poll::Pending => break,
            }
        }
        if self.end.is_none() && self.heartbeat.poll_tick(context).is_ready() {
            self.own(EventBody::ServerHeartbeat {});
            // A tick that was due leaves no waker behind.
            let _ = self.heartbeat.poll_tick(context);
        }
        if self.end.is_none() && std::future::Future::poll(self.closing.as_mut(), context).is_ready() {
            self.end = Some(End::Cut("the server stops"));
        }
        self.put_together();
    }

    /// What was sent is not taken yet; whether that is for too long, or the server stops.
    fn is_stuck(&mut self, context: &mut Context<'_>) -> bool {
        let late = self.heartbeat.poll_tick(context).is_ready() && self.reader.stuck_for() > STUCK;
        // A tick that was due leaves no waker behind.
        let _ = self.heartbeat.poll_tick(context);
        late || std::future::Future::poll(self.closing.as_mut(), context).is_ready()
    }
}

impl Stream for Feed {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener.asked(context);
        if self.ready.is_empty() {
            self.fill(context);
        }
        let quiet = self.ready.is_empty() && self.end.is_none();
        self.listener.looked(quiet, context);
        if !self.ready.is_empty() {
            // One piece after the other: what waits here is shared, what waits in the connection is not.
            if self.reader.poll_taken(context).is_ready() {
                return Poll::Ready(self.ready.pop_front().map(Ok));
            }
            if !self.is_stuck(context) {
                return Poll::Pending;
            }
            self.ready.clear();
            self.end = Some(End::Cut("it reads too slowly, or the server stops"));
        }
        match self.end {
            None => Poll::Pending,
            Some(End::Planned) => Poll::Ready(None),
            Some(End::Cut(why)) => {
                self.end = Some(End::Planned);
                tracing::debug!(why, "an event stream is cut");
                Poll::Ready(Some(Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, why))))
            }
        }
    }
}

/// What ends a frame.
fn end(cursor: Option<&Cursor>) -> String {
    cursor.map_or_else(|| "\n\n".to_owned(), |cursor| format!("\nid: {cursor}\n\n"))
}

/// A frame of `/event`.
fn plain(frame: &Frame) -> Vec<Bytes> {
    vec![Bytes::from_static(b"data: "), frame.json().clone(), end(frame.cursor.as_ref()).into()]
}

/// The frames of `/global/event`.
fn global(frame: &Frame) -> Vec<Bytes> {
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let (directory, project) = (text(&frame.directory), text(&frame.project));
    let begin = format!("data: {{\"directory\":{directory},\"project\":{project},\"payload\":");
    let end = format!("}}{}", end(frame.cursor.as_ref()));
    let mut pieces = vec![begin.clone().into(), frame.json().clone(), end.clone().into()];
    if let Some((before, data, after)) = sync(frame) {
        pieces.extend([(begin + &before).into(), data, (after + &end).into()]);
    }
    pieces
}

/// An event of the journal as OpenCode's replicas read it.
#[derive(Deserialize)]
pub struct Recorded<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// What it says.
    #[serde(borrow)]
    pub properties: &'a RawValue,
}

/// The same for replicas, if they read it: what comes before its data, the data, and what comes after.
fn sync(frame: &Frame) -> Option<(String, Bytes, String)> {
    let seq = frame.cursor.as_ref()?.seq;
    let session = frame.session.as_ref()?;
    let event = synced(frame)?;
    let (id, kind) = (event.id, event.kind);
    let data = frame.json().slice_ref(event.properties.get().as_bytes());
    let before = format!(
        r#"{{"type":"sync","syncEvent":{{"id":"{id}","type":"{kind}.1","seq":{seq},"aggregateID":"{session}","data":"#
    );
    Some((before, data, format!(r#"}},"id":"{id}"}}"#)))
}

/// The event of a frame, if replicas read it.
pub fn synced(frame: &Frame) -> Option<Recorded<'_>> {
    let event: Recorded<'_> = serde_json::from_slice(frame.json()).ok()?;
    api::schema::SYNCED.contains(&event.kind).then_some(event)
}
