//! Replies and the events of streams, as bytes.

use api::Json;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::dialect::{Dialect, Syntax, Transport};
use super::error::{self, Response};
use super::extension::{ExtensionSet, HEADER, OLDER_HEADER, Requested};
use super::head::A2A_JSON;
use super::request::{Request, RequestId};
use super::view::View;
use super::write::{
    LanePart, Metadata, NamedId, OutputParts, Shown, Stream, Text, Wrapped, entry, metadata_entry, shows_lane,
};
use crate::call::{PushConfig, Reply};
use crate::error::Error;
use crate::event::{NumberedEvent, StreamMark, TaskEvent};
use crate::model::{ArtifactId, Line, Message, Part, Task, TaskState, TaskStatus};

/// The response for a reply.
pub fn reply(reply: &Reply, request: &Request) -> Response {
    if request.notification {
        return Response::no_content();
    }
    let mut view = request.view();
    if matches!(reply, Reply::Tasks(_)) && view.dialect.payload == Line::V03 {
        // The list is no method of 0.3's protocol buffers: it has the spelling of JSON-RPC.
        view.dialect.transport = Transport::JsonRpc;
    }
    let result = Payload { reply, view: &view };
    match request.dialect.transport {
        Transport::JsonRpc => {
            let envelope = Envelope { id: &request.id, result };
            Response::json(StatusCode::OK, json_bytes(&envelope))
        }
        Transport::Rest => {
            let mut response = Response::json(StatusCode::OK, json_bytes(&result));
            if request.dialect.payload == Line::V10 && !request.plain_json {
                response.headers = vec![(CONTENT_TYPE, HeaderValue::from_static(A2A_JSON))];
            }
            response
        }
    }
}

/// The response for an error, before or without a request.
pub fn error(error: &Error, dialect: Dialect, id: &RequestId) -> Response {
    error::response(error, dialect, id)
}

/// The response for an error of a request.
pub fn error_response(error: &Error, request: &Request) -> Response {
    if request.notification {
        return Response::no_content();
    }
    error::response(error, request.dialect, &request.id)
}

/// The response headers that say what was agreed on: the version, and the active extensions.
pub fn negotiated_headers(
    dialect: Dialect,
    requested: &Requested,
    extensions: ExtensionSet,
) -> Vec<(HeaderName, HeaderValue)> {
    let version = HeaderValue::from_static(dialect.version());
    let mut headers = vec![(HeaderName::from_static("a2a-version"), version)];
    if extensions != ExtensionSet::NONE
        && let Ok(value) = HeaderValue::from_str(&requested.confirmed(extensions))
    {
        let name = if requested.older_header { OLDER_HEADER } else { HEADER };
        headers.push((HeaderName::from_static(name), value));
    }
    headers
}

/// A task as a line spells it, with all metadata.
pub fn task_json(task: &Task, line: Line) -> Json {
    serde_json::to_value(Shown(task, &View::all(line))).unwrap_or_default()
}

/// A message as a line spells it, with all metadata.
pub fn message_json(message: &Message, line: Line) -> Json {
    serde_json::to_value(Shown(message, &View::all(line))).unwrap_or_default()
}

/// What a webhook gets: in 0.3 the task, in 1.0 the event, or the task where there is none.
pub fn webhook_body(task: &Task, event: Option<&NumberedEvent>, line: Line) -> Vec<u8> {
    let view = View::all(line);
    match (line, event) {
        (Line::V10, Some(event)) => {
            let append = matches!(event.event, TaskEvent::Artifact { append: true, .. });
            json_bytes(&EventBody { event, task: &task.id, context: &task.context_id, append, view: &view })
        }
        (Line::V10, None) => json_bytes(&Wrapped { name: "task", value: &Shown(task, &view) }),
        (Line::V03, _) => json_bytes(&Shown(task, &view)),
    }
}

/// Maps have text keys and numbers are finite, so that this does not fail.
fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// A response of JSON-RPC.
struct Envelope<'a, T> {
    id: &'a RequestId,
    result: T,
}

impl<T: Serialize> Serialize for Envelope<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("jsonrpc", "2.0")?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("result", &self.result)?;
        map.end()
    }
}

struct Payload<'a> {
    reply: &'a Reply,
    view: &'a View,
}

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.view;
        let kinds = view.syntax() == Syntax::Kinds;
        match self.reply {
            Reply::Sent(task) if !kinds => Wrapped { name: "task", value: &Shown(&**task, view) }.serialize(serializer),
            Reply::Message(message) if !kinds => {
                Wrapped { name: "message", value: &Shown(&**message, view) }.serialize(serializer)
            }
            Reply::Message(message) => Shown(&**message, view).serialize(serializer),
            Reply::Sent(task) | Reply::Task(task) => Shown(&**task, view).serialize(serializer),
            Reply::Tasks(page) => Shown(page, view).serialize(serializer),
            Reply::Push(config) => Shown(config, view).serialize(serializer),
            Reply::Pushes(configs, _) if kinds => Shown(configs.as_slice(), view).serialize(serializer),
            Reply::Pushes(configs, next) => Pushes { configs, next, view }.serialize(serializer),
            Reply::Deleted if view.dialect.transport == Transport::Rest => serializer.serialize_map(Some(0))?.end(),
            Reply::Deleted => serializer.serialize_unit(),
            Reply::Json(json) => json.serialize(serializer),
        }
    }
}

struct Pushes<'a> {
    configs: &'a [PushConfig],
    next: &'a str,
    view: &'a View,
}

impl Serialize for Pushes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("configs", &Shown(self.configs, self.view))?;
        map.serialize_entry("nextPageToken", self.next)?;
        map.end()
    }
}

/// Writes the events of one stream for one client, each as one line of JSON.
#[derive(Debug)]
pub struct EventWriter {
    view: View,
    id: RequestId,
    task: String,
    context: String,
    /// What goes before and after the payload.
    prefix: Vec<u8>,
    suffix: &'static [u8],
    /// The state that the client knows.
    state: Option<TaskState>,
    /// Whether the event that begins the artifact of 0.3 was left out, so that another one has to begin it.
    must_begin: bool,
}

impl EventWriter {
    /// A writer for the stream that a request asks for.
    pub fn new(request: &Request, task: &str, context: &str) -> Self {
        Self::with_view(request.view(), request.id.clone(), task, context)
    }

    /// A writer for a client that was first heard of in another request.
    pub fn with_view(view: View, id: RequestId, task: &str, context: &str) -> Self {
        let (prefix, suffix): (Vec<u8>, &[u8]) = match view.dialect.transport {
            Transport::JsonRpc => {
                let mut prefix = br#"{"jsonrpc":"2.0","id":"#.to_vec();
                prefix.extend(json_bytes(&id));
                prefix.extend_from_slice(br#","result":"#);
                (prefix, b"}")
            }
            Transport::Rest => (Vec::new(), b""),
        };
        Self { view, id, task: task.into(), context: context.into(), prefix, suffix, state: None, must_begin: false }
    }

    /// The task as it is now.
    pub fn snapshot(&mut self, task: &Task) -> Vec<u8> {
        self.state = Some(task.status.state);
        match self.view.syntax() {
            Syntax::Kinds => self.line(&Shown(task, &self.view)),
            _ => self.line(&Wrapped { name: "task", value: &Shown(task, &self.view) }),
        }
    }

    /// An event, or nothing if it says nothing to this client.
    pub fn event(&mut self, event: &NumberedEvent) -> Option<Vec<u8>> {
        let append = match &event.event {
            TaskEvent::Status { status, metadata, mark } => {
                let known = self.state == Some(status.state) && !event.event.is_last();
                if known && status.message.is_none() {
                    let stream = mark.as_ref().map(|mark| self.stream(mark, event.seq));
                    if Metadata::with_stream(metadata, stream, &self.view).is_empty() {
                        return None;
                    }
                }
                self.state = Some(status.state);
                false
            }
            TaskEvent::Artifact { id, append, append_any, .. } => {
                let old_lane = matches!(id, ArtifactId::Lane(_)) && self.view.syntax() != Syntax::Proto10;
                if !shows_lane(id, &self.view) {
                    self.must_begin |= !append_any;
                    return None;
                }
                if old_lane { *append_any && !std::mem::take(&mut self.must_begin) } else { *append }
            }
            TaskEvent::Message(_) => false,
        };
        let (task, context) = (&self.task, &self.context);
        Some(self.line(&EventBody { event, task, context, append, view: &self.view }))
    }

    /// An error that ends the stream.
    pub fn error(&self, error: &Error) -> Vec<u8> {
        error::in_stream(error, self.view.dialect, &self.id)
    }

    fn stream<'a>(&'a self, mark: &'a StreamMark, seq: u64) -> Stream<'a> {
        Stream { mark, block: None, task: &self.task, context: &self.context, seq }
    }

    fn line(&self, payload: &impl Serialize) -> Vec<u8> {
        /// Most events are pieces of text with their metadata.
        const USUAL_SIZE: usize = 768;
        let mut line = Vec::with_capacity(USUAL_SIZE);
        line.extend_from_slice(&self.prefix);
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut line, payload);
        line.extend_from_slice(self.suffix);
        line
    }
}

struct EventBody<'a> {
    event: &'a NumberedEvent,
    task: &'a str,
    context: &'a str,
    append: bool,
    view: &'a View,
}

impl Serialize for EventBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kinds = self.view.syntax() == Syntax::Kinds;
        let name = match &self.event.event {
            TaskEvent::Message(message) if kinds => return Shown(message, self.view).serialize(serializer),
            TaskEvent::Message(message) => {
                return Wrapped { name: "message", value: &Shown(message, self.view) }.serialize(serializer);
            }
            TaskEvent::Status { .. } => "statusUpdate",
            TaskEvent::Artifact { .. } => "artifactUpdate",
        };
        if kinds {
            Update(self).serialize(serializer)
        } else {
            Wrapped { name, value: &Update(self) }.serialize(serializer)
        }
    }
}

/// A status or an artifact update without what wraps it.
struct Update<'a>(&'a EventBody<'a>);

impl Serialize for Update<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let EventBody { event, task, context, append, view } = *self.0;
        let mut map = serializer.serialize_map(None)?;
        let syntax = view.syntax();
        map.serialize_entry("taskId", task)?;
        map.serialize_entry("contextId", context)?;
        match &event.event {
            TaskEvent::Status { status, metadata, mark } => {
                if syntax == Syntax::Kinds {
                    map.serialize_entry("kind", "status-update")?;
                }
                let stream = mark.as_ref().map(|mark| Stream { mark, block: None, task, context, seq: event.seq });
                status_entries(&mut map, status, &Metadata::with_stream(metadata, stream, view), view)?;
                let last = event.event.is_last();
                if syntax == Syntax::Kinds || (syntax == Syntax::Proto03 && last) {
                    map.serialize_entry("final", &last)?;
                }
            }
            TaskEvent::Artifact { id, name, parts, last_chunk, metadata, mark, .. } => {
                if syntax == Syntax::Kinds {
                    map.serialize_entry("kind", "artifact-update")?;
                }
                let block = match id {
                    ArtifactId::Lane(lane) => Some(lane.block()),
                    ArtifactId::Named(_) => None,
                };
                let stream = mark.as_ref().map(|mark| Stream { mark, block, task, context, seq: event.seq });
                let metadata = Metadata::with_stream(metadata, stream, view);
                let id = NamedId { id, task, view };
                map.serialize_entry("artifact", &Chunk { id, name: name.as_deref(), parts, metadata, view })?;
                if append || syntax == Syntax::Kinds {
                    map.serialize_entry("append", &append)?;
                }
                if *last_chunk {
                    map.serialize_entry("lastChunk", &true)?;
                }
            }
            TaskEvent::Message(_) => {}
        }
        map.end()
    }
}

fn status_entries<M: SerializeMap>(
    map: &mut M,
    status: &TaskStatus,
    metadata: &Metadata<'_>,
    view: &View,
) -> Result<(), M::Error> {
    map.serialize_entry("status", &Shown(status, view))?;
    metadata_entry(map, metadata)
}

/// A piece of an artifact.
struct Chunk<'a> {
    id: NamedId<'a>,
    name: Option<&'a str>,
    parts: &'a [Part],
    metadata: Metadata<'a>,
    view: &'a View,
}

impl Serialize for Chunk<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &Text(self.id))?;
        entry(&mut map, "name", self.name)?;
        map.serialize_entry("parts", &OutputParts { parts: LanePart::plain(self.parts), view: self.view })?;
        metadata_entry(&mut map, &self.metadata)?;
        map.end()
    }
}
