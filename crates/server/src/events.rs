//! Event streams: the events of the journal and of this server, framed as server-sent events.

pub mod flush;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::{Cursor, Event, EventBody, Frame, Host, SHARED_BYTES, WatchItem, WatchScope};
use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_stream::wrappers::BroadcastStream;
use transport::backlog::ClientBacklog;
use transport::sse::{self, SseOutput};

use crate::State;
use crate::error::Error;
use crate::metrics::SubscriberGuard;
use flush::StreamHandle;

/// How often a stream sends a heartbeat.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How many of this server's own events may wait for a slow subscriber.
pub const LIVE_QUEUE: usize = 1024;

/// How events are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// As they are: `/event`.
    Plain,
    /// With their directory and project, and durable ones once more as `sync`: `/global/event`.
    Global,
}

/// The cursor to resume from: the header of a browser that reconnects, or the query.
pub fn resume_cursor(headers: &HeaderMap, after: Option<&str>) -> Option<String> {
    sse::last_event_id(headers).or(after).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Opens a stream of events.
pub async fn stream(
    state: &Arc<State>,
    host: &dyn Host,
    client: Arc<ClientBacklog>,
    scope: WatchScope,
    envelope: Envelope,
    after: Option<String>,
) -> Result<Body, Error> {
    let (after, resync_reason) = parse_cursor(after);
    let watch = host.watch(scope.clone(), after).await?;
    Ok(stream_body(state, client, watch, scope, envelope, resync_reason))
}

/// Parses a cursor; if that fails, says why.
fn parse_cursor(after: Option<String>) -> (Option<Cursor>, Option<String>) {
    match after.map(|text| text.parse::<Cursor>().map_err(|_| text)) {
        None => (None, None),
        Some(Ok(cursor)) => (Some(cursor), None),
        Some(Err(text)) => (None, Some(format!("{text:?} is not a cursor of this server"))),
    }
}

fn stream_body(
    state: &State,
    client: Arc<ClientBacklog>,
    watch: BoxStream<'static, WatchItem>,
    scope: WatchScope,
    envelope: Envelope,
    resync_reason: Option<String>,
) -> Body {
    let mut stream = SseStream {
        watch,
        live: BroadcastStream::new(state.live.subscribe()),
        scope,
        envelope,
        output: SseOutput::new(client, &state.closing, HEARTBEAT),
        subscriber: state.metrics.subscriber_opened(),
        handle: state.event_streams.register(),
    };
    stream.push_own_event(EventBody::ServerConnected {});
    if let Some(reason) = resync_reason {
        stream.push_resync(reason);
    }
    Body::from_stream(stream)
}

struct SseStream {
    watch: BoxStream<'static, WatchItem>,
    live: BroadcastStream<Frame>,
    scope: WatchScope,
    envelope: Envelope,
    output: SseOutput,
    subscriber: SubscriberGuard,
    handle: StreamHandle,
}

impl SseStream {
    /// Adds an event of the stream itself.
    fn push_own_event(&mut self, body: EventBody) {
        if let Ok(json) = serde_json::to_vec(&Event::new(body)) {
            match self.envelope {
                Envelope::Plain => self.push_data(&json),
                Envelope::Global => self.push_data(&[b"{\"payload\":", &json[..], b"}"].concat()),
            }
        }
    }

    fn push_resync(&mut self, reason: String) {
        self.push_own_event(EventBody::ServerResync { reason: Some(reason) });
        let directory = match &self.scope {
            WatchScope::Directory(directory) => directory.clone(),
            _ => String::new(),
        };
        self.push_own_event(EventBody::InstanceDisposed { directory });
    }

    fn push_data(&mut self, json: &[u8]) {
        for piece in [b"data: ", json, b"\n\n"] {
            self.output.push(piece);
        }
    }

    fn push_frame(&mut self, frame: &Frame) {
        self.subscriber.count_event();
        let (slot, render): (usize, fn(&Frame) -> Vec<Bytes>) = match self.envelope {
            Envelope::Plain => (0, render_plain),
            Envelope::Global => (1, render_global),
        };
        if frame.json().len() > SHARED_BYTES {
            // Large frames are sent from where they are; all subscribers share the bytes.
            self.output.push_shared(render(frame));
        } else {
            self.output.push(&frame.rendered(slot, |frame| render(frame).concat().into()));
        }
        // OpenCode closes a directory's stream when it drops the directory's state.
        if self.envelope == Envelope::Plain
            && frame.cursor.is_none()
            && matches!(frame.event().as_deref(), Some(Event { body: EventBody::InstanceDisposed { .. }, .. }))
        {
            self.output.finish();
        }
    }

    /// Whether an event of this server belongs into the stream. None is about a session's work.
    fn takes_live(&self, frame: &Frame) -> bool {
        !matches!(self.scope, WatchScope::Subtree(_)) && frame.within(&self.scope)
    }

    /// Takes what is available. A source that is not ready wakes the stream later.
    fn fill(&mut self, context: &mut Context<'_>) {
        while self.output.has_room() {
            match self.watch.as_mut().poll_next(context) {
                Poll::Ready(Some(WatchItem::Frame(frame))) => self.push_frame(&frame),
                Poll::Ready(Some(WatchItem::Resync(reason))) => self.push_resync(reason),
                Poll::Ready(Some(WatchItem::Lagged)) => self.output.cut("the client reads too slowly"),
                Poll::Ready(None) => self.output.cut("the journal is closed"),
                Poll::Pending => break,
            }
        }
        while self.output.has_room() {
            match Pin::new(&mut self.live).poll_next(context) {
                Poll::Ready(Some(Ok(frame))) if self.takes_live(&frame) => self.push_frame(&frame),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_))) => self.output.cut("the client reads too slowly"),
                Poll::Ready(None) => self.output.cut("the server stops"),
                Poll::Pending => break,
            }
        }
        if self.output.poll_tick(context) {
            self.push_own_event(EventBody::ServerHeartbeat {});
        }
        self.output.flush(context);
    }
}

impl Stream for SseStream {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.handle.before_poll(context);
        if self.output.is_drained() {
            self.fill(context);
        }
        let is_drained = self.output.is_drained();
        self.handle.after_poll(is_drained, context);
        self.output.poll_send(context)
    }
}

/// The end of a frame. Its turn is a field that the standard does not know, so readers skip it; Trefoil's client does
/// not.
fn frame_end(frame: &Frame) -> String {
    let id = frame.cursor.as_ref().map(|cursor| format!("\nid: {cursor}")).unwrap_or_default();
    let turn = frame.turn_id().map(|turn| format!("\nturn: {turn}")).unwrap_or_default();
    id + &turn + "\n\n"
}

/// A frame of `/event`.
fn render_plain(frame: &Frame) -> Vec<Bytes> {
    vec![Bytes::from_static(b"data: "), frame.json().clone(), frame_end(frame).into()]
}

/// The frames of `/global/event`.
fn render_global(frame: &Frame) -> Vec<Bytes> {
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let (directory, project) = (text(&frame.directory), text(&frame.project));
    let begin = format!("data: {{\"directory\":{directory},\"project\":{project},\"payload\":");
    let end = format!("}}{}", frame_end(frame));
    let mut pieces = vec![begin.clone().into(), frame.json().clone(), end.clone().into()];
    if let Some((before, data, after)) = replica_frame(frame) {
        pieces.extend([(begin + &before).into(), data, (after + &end).into()]);
    }
    pieces
}

/// An event of the journal in the form that OpenCode's replicas read.
#[derive(Deserialize)]
pub struct JournalEvent<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// Its data.
    #[serde(borrow)]
    pub properties: &'a RawValue,
}

/// The frame for replicas, if they read this event: what precedes its data, the data, and what follows.
fn replica_frame(frame: &Frame) -> Option<(String, Bytes, String)> {
    let seq = frame.cursor.as_ref()?.seq;
    let session = frame.session.as_ref()?;
    let event = replicated_event(frame)?;
    let (id, kind) = (event.id, event.kind);
    let data = frame.json().slice_ref(event.properties.get().as_bytes());
    let before = format!(
        r#"{{"type":"sync","syncEvent":{{"id":"{id}","type":"{kind}.1","seq":{seq},"aggregateID":"{session}","data":"#
    );
    Some((before, data, format!(r#"}},"id":"{id}"}}"#)))
}

/// The event of a frame, if replicas read it.
pub fn replicated_event(frame: &Frame) -> Option<JournalEvent<'_>> {
    let event: JournalEvent<'_> = serde_json::from_slice(frame.json()).ok()?;
    api::schema::SYNCED.contains(&event.kind).then_some(event)
}
