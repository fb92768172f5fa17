//! Event streams: what the journal and this server tell, framed as server-sent events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::{Cursor, Event, EventBody, Frame, Host as _, Scope, SessionId, Subtree, WatchItem, WatchScope};
use axum::body::Body;
use axum::http::HeaderMap;
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{FutureExt as _, Stream, StreamExt as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::State;
use crate::error::Error;
use crate::listeners::Listener;
use crate::metrics::Subscribed;

/// How often a stream shows that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Frames are sent together up to this size.
const CHUNK: usize = 64 << 10;

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
    scope: WatchScope,
    envelope: Envelope,
    after: Option<String>,
) -> Result<Body, Error> {
    let (after, unknown) = parse(after);
    let watch = state.engine.watch(scope.clone(), after).await?;
    Ok(body(state, watch, scope, envelope, None, unknown))
}

/// The stream of a session and all below it, wherever they work.
pub async fn subtree(state: &Arc<State>, scope: &Scope, root: SessionId, after: Option<String>) -> Result<Body, Error> {
    let (after, unknown) = parse(after);
    // Watched first and looked at then: whoever is born in between is known twice, not missed.
    let watch = state.engine.watch(WatchScope::All, after.clone()).await?;
    let sessions = state.engine.tree(scope, &root).await?.sessions;
    let mut subtree = Subtree::new(root, sessions.into_iter().map(|node| node.session_id));
    if after.is_some() {
        subtree.revive(deleted(state.engine.watch(WatchScope::All, after).await?));
    }
    Ok(body(state, watch, WatchScope::All, Envelope::Plain, Some(subtree), unknown))
}

/// A cursor, or why it is none.
fn parse(after: Option<String>) -> (Option<Cursor>, Option<String>) {
    match after.map(|text| text.parse::<Cursor>().map_err(|_| text)) {
        None => (None, None),
        Some(Ok(cursor)) => (Some(cursor), None),
        Some(Err(text)) => (None, Some(format!("{text:?} is no cursor of this server"))),
    }
}

/// The sessions whose deletion the log tells, each with its parent; not more than it holds.
fn deleted(mut watch: BoxStream<'static, WatchItem>) -> Vec<(SessionId, Option<SessionId>)> {
    let mut deleted = Vec::new();
    while let Some(Some(WatchItem::Frame(frame))) = watch.next().now_or_never() {
        if let Some(Event { body: EventBody::SessionDeleted { info, .. }, .. }) = frame.event().as_deref() {
            deleted.push((info.id.clone(), info.parent_id.clone()));
        }
    }
    deleted
}

fn body(
    state: &State,
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
        out: BytesMut::new(),
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
    out: BytesMut,
    end: Option<End>,
    subscribed: Subscribed,
    listener: Listener,
}

impl Feed {
    /// An event of the stream itself.
    fn own(&mut self, body: EventBody) {
        if let Ok(json) = serde_json::to_vec(&Event::new(body)) {
            match self.envelope {
                Envelope::Plain => self.data(&json, None),
                Envelope::Global => self.data(&[b"{\"payload\":", &json[..], b"}"].concat(), None),
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

    fn data(&mut self, json: &[u8], cursor: Option<&Cursor>) {
        write_frame(&mut self.out, json, cursor);
    }

    fn frame(&mut self, frame: &Frame) {
        if self.subtree.as_mut().is_some_and(|subtree| !subtree.admits(frame)) {
            return;
        }
        self.subscribed.delivered();
        match self.envelope {
            Envelope::Plain => {
                self.out.extend_from_slice(&frame.rendered(0, plain));
                // The recorded server closes a directory's stream when its state is dropped.
                if frame.cursor.is_none()
                    && matches!(frame.event().as_deref(), Some(Event { body: EventBody::InstanceDisposed { .. }, .. }))
                {
                    self.end = Some(End::Planned);
                }
            }
            Envelope::Global => self.out.extend_from_slice(&frame.rendered(1, global)),
        }
    }

    /// Takes in what is there. Every source that is not ready wakes the stream later.
    fn fill(&mut self, context: &mut Context<'_>) {
        while self.end.is_none() && self.out.len() < CHUNK {
            match self.watch.as_mut().poll_next(context) {
                Poll::Ready(Some(WatchItem::Frame(frame))) => self.frame(&frame),
                Poll::Ready(Some(WatchItem::Resync(reason))) => self.resync(reason),
                Poll::Ready(Some(WatchItem::Lagged)) => self.end = Some(End::Cut("it reads too slowly")),
                Poll::Ready(None) => self.end = Some(End::Cut("the journal is closed")),
                Poll::Pending => break,
            }
        }
        while self.end.is_none() && self.out.len() < CHUNK {
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
    }
}

impl Stream for Feed {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener.asked(context);
        self.fill(context);
        let quiet = self.out.is_empty() && self.end.is_none();
        self.listener.looked(quiet, context);
        if !self.out.is_empty() {
            return Poll::Ready(Some(Ok(self.out.split().freeze())));
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

fn write_frame(out: &mut BytesMut, json: &[u8], cursor: Option<&Cursor>) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(json);
    if let Some(cursor) = cursor {
        out.extend_from_slice(format!("\nid: {cursor}").as_bytes());
    }
    out.extend_from_slice(b"\n\n");
}

/// A frame of `/event`, made once for all subscribers.
fn plain(frame: &Frame) -> Bytes {
    let mut out = BytesMut::with_capacity(frame.json().len() + 64);
    write_frame(&mut out, frame.json(), frame.cursor.as_ref());
    out.freeze()
}

/// The frames of `/global/event`, made once for all subscribers.
fn global(frame: &Frame) -> Bytes {
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let place = format!("{{\"directory\":{},\"project\":{},\"payload\":", text(&frame.directory), text(&frame.project));
    let mut out = BytesMut::with_capacity(2 * frame.json().len() + 512);
    let wrapped = [place.as_bytes(), &frame.json()[..], b"}"].concat();
    write_frame(&mut out, &wrapped, frame.cursor.as_ref());
    if let Some(sync) = sync(frame) {
        let wrapped = [place.as_bytes(), sync.as_bytes(), b"}"].concat();
        write_frame(&mut out, &wrapped, frame.cursor.as_ref());
    }
    out.freeze()
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

fn sync(frame: &Frame) -> Option<String> {
    let seq = frame.cursor.as_ref()?.seq;
    let session = frame.session.as_ref()?;
    let event = synced(frame)?;
    let id = event.id;
    Some(format!(
        r#"{{"type":"sync","syncEvent":{{"id":"{id}","type":"{}.1","seq":{seq},"aggregateID":"{session}","data":{}}},"id":"{id}"}}"#,
        event.kind,
        event.properties.get()
    ))
}

/// The event of a frame, if replicas read it.
pub fn synced(frame: &Frame) -> Option<Recorded<'_>> {
    let event: Recorded<'_> = serde_json::from_slice(frame.json()).ok()?;
    api::schema::SYNCED.contains(&event.kind).then_some(event)
}
