//! Event streams as responses.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use futures::StreamExt as _;
use transport::backlog::ClientBacklog;
use transport::limit::ConcurrencyPermit;
use transport::sse::SseFrame;

use super::Endpoint;
use crate::event::{NumberedEvent, TaskEvent};
use crate::service::{EventStream, StreamItem};
use crate::wire::{self, EventWriter};

impl Endpoint {
    /// The events of a task as server-sent events. The permit is held until the stream ends.
    pub(super) fn stream_response(
        &self,
        request: &wire::Request,
        events: EventStream,
        client: Option<Arc<ClientBacklog>>,
        permit: ConcurrencyPermit,
    ) -> Response<Body> {
        let open = (permit, self.metrics.stream_opened());
        let mut writer = EventWriter::new(request, events.task_id(), events.context_id());
        let snapshot_seq = events.snapshot_seq();
        let frames = events.filter_map(move |item| {
            let _open = &open;
            let frame = match item {
                Ok(StreamItem::Snapshot(task)) => {
                    let id = snapshot_seq.map(|seq| seq.to_string());
                    Some(SseFrame { event: None, id, data: writer.snapshot(&task).into() })
                }
                Ok(StreamItem::Event(event)) => writer.event(&event).map(|data| {
                    let id = Some(event.seq.to_string());
                    SseFrame { event: None, id, data: data.into() }
                }),
                Ok(StreamItem::Message(message)) => {
                    let event = NumberedEvent { seq: 1, event: TaskEvent::Message(*message) };
                    writer.event(&event).map(|data| SseFrame { event: None, id: None, data: data.into() })
                }
                Err(error) => {
                    let data = writer.error(&error).into();
                    Some(SseFrame { event: Some("error"), id: None, data })
                }
            };
            std::future::ready(frame)
        });
        let mut response = transport::sse::response(frames, client, &self.closing);
        for (name, value) in wire::negotiated_headers(request) {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
