//! Messages, tasks and push configurations in the JSON of each syntax, written straight to bytes.

use std::fmt;

use api::JsonMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::dialect::Syntax;
use super::enums::{role_name, state_name};
use super::time::Iso;
use super::view::View;
use crate::call::{PushAuthentication, PushConfig, TaskPage};
use crate::event::{Block, Lane, StreamMark};
use crate::model::{Artifact, ArtifactId, Content, Message, Part, Task, TaskStatus};

/// A value as a client sees it.
pub(super) struct Shown<'a, T: ?Sized>(pub &'a T, pub &'a View);

/// Formatted text, written without an intermediate string.
pub(super) struct Text<T>(pub T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'a, T> Serialize for Shown<'a, [T]>
where
    Shown<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|item| Shown(item, self.1)))
    }
}

impl Serialize for Shown<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(message, view) = *self;
        let syntax = view.syntax();
        let mut map = serializer.serialize_map(None)?;
        if syntax == Syntax::Kinds {
            map.serialize_entry("kind", "message")?;
        }
        map.serialize_entry("messageId", &message.message_id)?;
        entry(&mut map, "contextId", message.context_id.as_deref())?;
        entry(&mut map, "taskId", message.task_id.as_deref())?;
        map.serialize_entry("role", role_name(message.role, syntax))?;
        let parts = if syntax == Syntax::Proto03 { "content" } else { "parts" };
        map.serialize_entry(parts, &Shown(message.parts.as_slice(), view))?;
        // The protocol buffers of 0.3 lack this field.
        if syntax != Syntax::Proto03 {
            list_entry(&mut map, "referenceTaskIds", &message.reference_task_ids)?;
        }
        list_entry(&mut map, "extensions", &message.extensions)?;
        metadata_entry(&mut map, &Metadata::of(&message.metadata, view))?;
        map.end()
    }
}

impl Serialize for Shown<'_, Part> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Shown(&LanePart { part: self.0, block: None }, self.1).serialize(serializer)
    }
}

/// A part of an artifact, with the kind of its lane where the artifact does not tell it.
#[derive(Clone, Copy)]
pub(super) struct LanePart<'a> {
    part: &'a Part,
    block: Option<Block>,
}

impl<'a> LanePart<'a> {
    /// The parts of an artifact whose event or id tells the kind of its lane.
    pub(super) fn plain(parts: &'a [Part]) -> impl Iterator<Item = Self> + Clone {
        parts.iter().map(|part| Self { part, block: None })
    }

    /// The parts of a lane that shares an artifact with others.
    fn marked(lane: &'a Artifact) -> impl Iterator<Item = Self> {
        let block = match &lane.id {
            ArtifactId::Lane(lane) => Some(lane.block()),
            ArtifactId::Named(_) => None,
        };
        lane.parts.iter().map(move |part| Self { part, block })
    }
}

impl Serialize for Shown<'_, LanePart<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(&LanePart { part, block }, view) = *self;
        let mut map = serializer.serialize_map(None)?;
        match view.syntax() {
            Syntax::Kinds => kind_part(&mut map, part)?,
            Syntax::Proto03 => old_proto_part(&mut map, part)?,
            Syntax::Proto10 => new_part(&mut map, part)?,
        }
        metadata_entry(&mut map, &Metadata::with_block(&part.metadata, block, view))?;
        map.end()
    }
}

/// The file of a part of 0.3. The names of its members differ between the transports.
struct OldFile<'a> {
    part: &'a Part,
    content: &'static str,
    value: &'a str,
}

impl Serialize for OldFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.content, self.value)?;
        entry(&mut map, "mimeType", self.part.media_type.as_deref())?;
        entry(&mut map, "name", self.part.filename.as_deref())?;
        map.end()
    }
}

fn kind_part<M: SerializeMap>(map: &mut M, part: &Part) -> Result<(), M::Error> {
    let mut file = |content, value| {
        map.serialize_entry("kind", "file")?;
        map.serialize_entry("file", &OldFile { part, content, value })
    };
    match &part.content {
        Content::Raw(bytes) => file("bytes", bytes),
        Content::Url(url) => file("uri", url),
        Content::Text(text) => {
            map.serialize_entry("kind", "text")?;
            map.serialize_entry("text", text)
        }
        Content::Data(data) => {
            map.serialize_entry("kind", "data")?;
            // Data of 1.0 may be any value, of 0.3 only an object.
            if data.is_object() {
                map.serialize_entry("data", data)
            } else {
                map.serialize_entry("data", &Wrapped { name: "value", value: data })
            }
        }
    }
}

fn old_proto_part<M: SerializeMap>(map: &mut M, part: &Part) -> Result<(), M::Error> {
    match &part.content {
        Content::Text(text) => map.serialize_entry("text", text),
        // Encoded twice, as the SDK for Python writes and expects it: it fails on bytes that are no text.
        Content::Raw(bytes) => {
            let value = STANDARD.encode(bytes);
            map.serialize_entry("file", &OldFile { part, content: "fileWithBytes", value: &value })
        }
        Content::Url(url) => map.serialize_entry("file", &OldFile { part, content: "fileWithUri", value: url }),
        Content::Data(data) if data.is_object() => map.serialize_entry("data", &Wrapped { name: "data", value: data }),
        Content::Data(data) => {
            let value = &Wrapped { name: "value", value: data };
            map.serialize_entry("data", &Wrapped { name: "data", value })
        }
    }
}

fn new_part<M: SerializeMap>(map: &mut M, part: &Part) -> Result<(), M::Error> {
    match &part.content {
        Content::Text(text) => map.serialize_entry("text", text)?,
        Content::Raw(bytes) => map.serialize_entry("raw", bytes)?,
        Content::Url(url) => map.serialize_entry("url", url)?,
        Content::Data(data) => map.serialize_entry("data", data)?,
    }
    entry(map, "filename", part.filename.as_deref())?;
    entry(map, "mediaType", part.media_type.as_deref())
}

/// An object with one member.
pub(super) struct Wrapped<'a, T: ?Sized> {
    pub name: &'static str,
    pub value: &'a T,
}

impl<T: Serialize + ?Sized> Serialize for Wrapped<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.name, self.value)?;
        map.end()
    }
}

impl Serialize for Shown<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, view) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", state_name(status.state, view.syntax()))?;
        if let Some(message) = &status.message {
            map.serialize_entry("message", &Shown(message, view))?;
        }
        if status.timestamp != 0 {
            map.serialize_entry("timestamp", &Text(Iso(status.timestamp)))?;
        }
        map.end()
    }
}

impl Serialize for Shown<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(task, view) = *self;
        let mut map = serializer.serialize_map(None)?;
        if view.syntax() == Syntax::Kinds {
            map.serialize_entry("kind", "task")?;
        }
        map.serialize_entry("id", &task.id)?;
        map.serialize_entry("contextId", &task.context_id)?;
        map.serialize_entry("status", &Shown(&task.status, view))?;
        if !task.artifacts.is_empty() {
            map.serialize_entry("artifacts", &Artifacts { task, view })?;
        }
        if !task.history.is_empty() {
            map.serialize_entry("history", &Shown(task.history.as_slice(), view))?;
        }
        metadata_entry(&mut map, &Metadata::of(&task.metadata, view))?;
        map.end()
    }
}

/// The artifacts of a task. In 0.3 all lanes are one artifact, whose parts tell their kinds.
struct Artifacts<'a> {
    task: &'a Task,
    view: &'a View,
}

impl Serialize for Artifacts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { task, view } = *self;
        let mut list = serializer.serialize_seq(None)?;
        let is_lane = |artifact: &&Artifact| matches!(artifact.id, ArtifactId::Lane(_));
        let first_lane = task.artifacts.iter().position(|artifact| is_lane(&artifact));
        for (index, artifact) in task.artifacts.iter().enumerate() {
            let id = NamedId { id: &artifact.id, task: &task.id, view };
            let parts = if !is_lane(&artifact) || view.syntax() == Syntax::Proto10 {
                LanePart::plain(&artifact.parts).collect()
            } else if first_lane == Some(index) {
                let shown = task.artifacts.iter().filter(is_lane).filter(|lane| shows_lane(&lane.id, view));
                shown.flat_map(LanePart::marked).collect::<Vec<_>>()
            } else {
                continue;
            };
            if parts.is_empty() && is_lane(&artifact) {
                continue;
            }
            list.serialize_element(&WholeArtifact { artifact, id, parts, view })?;
        }
        list.end()
    }
}

/// Whether the client takes a lane at all: those of tools are structured data, which 0.3 has no text for.
pub(super) fn shows_lane(id: &ArtifactId, view: &View) -> bool {
    !(view.text_only && view.syntax() != Syntax::Proto10 && matches!(id, ArtifactId::Lane(Lane::Tool(_))))
}

struct WholeArtifact<'a> {
    artifact: &'a Artifact,
    id: NamedId<'a>,
    parts: Vec<LanePart<'a>>,
    view: &'a View,
}

impl Serialize for WholeArtifact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { artifact, id, parts, view } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &Text(id))?;
        entry(&mut map, "name", artifact.name.as_deref())?;
        entry(&mut map, "description", artifact.description.as_deref())?;
        map.serialize_entry("parts", &OutputParts { parts: parts.iter().copied(), view })?;
        list_entry(&mut map, "extensions", &artifact.extensions)?;
        metadata_entry(&mut map, &Metadata::of(&artifact.metadata, view))?;
        map.end()
    }
}

/// The parts of an artifact. For a client that takes text alone, data is JSON in text.
pub(super) struct OutputParts<'a, I> {
    pub parts: I,
    pub view: &'a View,
}

impl<'a, I: Iterator<Item = LanePart<'a>> + Clone> Serialize for OutputParts<'a, I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for lane_part in self.parts.clone() {
            match &lane_part.part.content {
                Content::Data(data) if self.view.text_only => {
                    let text = Part { content: Content::Text(data.to_string()), ..lane_part.part.clone() };
                    list.serialize_element(&Shown(&LanePart { part: &text, ..lane_part }, self.view))?;
                }
                _ => list.serialize_element(&Shown(&lane_part, self.view))?,
            }
        }
        list.end()
    }
}

/// The id of an artifact in a line.
#[derive(Clone, Copy)]
pub(super) struct NamedId<'a> {
    pub id: &'a ArtifactId,
    pub task: &'a str,
    pub view: &'a View,
}

impl fmt::Display for NamedId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, task, view } = self;
        match id {
            ArtifactId::Named(name) => f.write_str(name),
            ArtifactId::Lane(_) if view.syntax() != Syntax::Proto10 => write!(f, "{task}:stream"),
            ArtifactId::Lane(Lane::Text) => write!(f, "{task}:stream:text"),
            ArtifactId::Lane(Lane::Reasoning) => write!(f, "{task}:stream:reasoning"),
            ArtifactId::Lane(Lane::Tool(part)) => write!(f, "{task}:stream:tool:{part}"),
        }
    }
}

/// What `metadata.shared.stream` says.
#[derive(Clone, Copy)]
pub(super) struct Stream<'a> {
    pub mark: &'a StreamMark,
    pub block: Option<Block>,
    pub task: &'a str,
    pub context: &'a str,
    pub seq: u64,
}

impl Serialize for Stream<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { mark, block, task, context, seq } = *self;
        let mut map = serializer.serialize_map(None)?;
        if let Some(block) = block {
            map.serialize_entry("block_type", &block)?;
        }
        entry(&mut map, "source", Some(mark.source.as_str()).filter(|source| !source.is_empty()))?;
        entry(&mut map, "message_id", mark.message_id.as_deref())?;
        entry(&mut map, "role", mark.role.as_deref())?;
        map.serialize_entry("event_id", &Text(format_args!("{task}:{context}:{task}:stream:{seq}")))?;
        map.serialize_entry("sequence", &seq)?;
        map.end()
    }
}

/// What `metadata.shared.stream` says of an event, or of a part in a task.
#[derive(Clone, Copy)]
enum StreamFacts<'a> {
    Event(Stream<'a>),
    Part(Block),
}

impl Serialize for StreamFacts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Event(stream) => stream.serialize(serializer),
            Self::Part(block) => Wrapped { name: "block_type", value: block }.serialize(serializer),
        }
    }
}

/// The metadata that a client sees.
pub(super) struct Metadata<'a> {
    map: &'a JsonMap,
    stream: Option<StreamFacts<'a>>,
    view: &'a View,
}

impl<'a> Metadata<'a> {
    pub(super) fn of(map: &'a JsonMap, view: &'a View) -> Self {
        Self { map, stream: None, view }
    }

    pub(super) fn with_stream(map: &'a JsonMap, stream: Option<Stream<'a>>, view: &'a View) -> Self {
        Self { map, stream: stream.filter(|_| view.shows_shared("stream")).map(StreamFacts::Event), view }
    }

    fn with_block(map: &'a JsonMap, block: Option<Block>, view: &'a View) -> Self {
        Self { map, stream: block.filter(|_| view.shows_shared("stream")).map(StreamFacts::Part), view }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stream.is_none() && !self.members().any(|(name, _)| name != "shared") && self.shared().next().is_none()
    }

    fn members(&self) -> impl Iterator<Item = (&'a String, &'a api::Json)> {
        self.map.iter().filter(|(name, _)| self.view.shows(name))
    }

    fn shared(&self) -> impl Iterator<Item = (&'a String, &'a api::Json)> {
        let has_stream = self.stream.is_some();
        let shared = self.map.get("shared").and_then(api::Json::as_object);
        let shown = move |name: &str| self.view.shows_shared(name) && !(has_stream && name == "stream");
        shared.into_iter().flatten().filter(move |(name, _)| shown(name))
    }
}

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.members().filter(|(name, _)| *name != "shared") {
            map.serialize_entry(name, value)?;
        }
        if self.stream.is_some() || self.shared().next().is_some() {
            map.serialize_entry("shared", &Shared(self))?;
        }
        map.end()
    }
}

struct Shared<'a>(&'a Metadata<'a>);

impl Serialize for Shared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.shared() {
            map.serialize_entry(name, value)?;
        }
        entry(&mut map, "stream", self.0.stream)?;
        map.end()
    }
}

impl Serialize for Shown<'_, TaskPage> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(page, view) = *self;
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("tasks", &Shown(page.tasks.as_slice(), view))?;
        map.serialize_entry("nextPageToken", &page.next_page_token)?;
        map.serialize_entry("pageSize", &page.page_size)?;
        map.serialize_entry("totalSize", &page.total_size)?;
        map.end()
    }
}

impl Serialize for Shown<'_, PushConfig> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(config, view) = *self;
        let id = config.id.as_deref().unwrap_or(&config.task_id);
        let mut map = serializer.serialize_map(None)?;
        match view.syntax() {
            Syntax::Kinds => map.serialize_entry("taskId", &config.task_id)?,
            Syntax::Proto03 => {
                let task = &config.task_id;
                map.serialize_entry("name", &Text(format_args!("tasks/{task}/pushNotificationConfigs/{id}")))?;
            }
            Syntax::Proto10 => {
                entry(&mut map, "taskId", Some(config.task_id.as_str()).filter(|task| !task.is_empty()))?;
                push_entries(&mut map, config, view)?;
                return map.end();
            }
        }
        map.serialize_entry("pushNotificationConfig", &InnerPush { config, view })?;
        map.end()
    }
}

/// The part of a push configuration that clients of 0.3 send with a message.
pub(super) struct InnerPush<'a> {
    pub config: &'a PushConfig,
    pub view: &'a View,
}

impl Serialize for InnerPush<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        push_entries(&mut map, self.config, self.view)?;
        map.end()
    }
}

fn push_entries<M: SerializeMap>(map: &mut M, config: &PushConfig, view: &View) -> Result<(), M::Error> {
    entry(map, "id", config.id.as_deref())?;
    map.serialize_entry("url", &config.url)?;
    entry(map, "token", config.token.as_deref())?;
    entry(map, "authentication", config.authentication.as_ref().map(|it| Shown(it, view)))
}

impl Serialize for Shown<'_, PushAuthentication> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(authentication, view) = *self;
        let mut map = serializer.serialize_map(None)?;
        match view.syntax() {
            Syntax::Kinds | Syntax::Proto03 => map.serialize_entry("schemes", &authentication.schemes)?,
            Syntax::Proto10 => {
                let scheme = authentication.schemes.first().map_or("", String::as_str);
                map.serialize_entry("scheme", scheme)?;
            }
        }
        entry(&mut map, "credentials", authentication.credentials.as_deref())?;
        map.end()
    }
}

pub(super) fn entry<M: SerializeMap>(
    map: &mut M,
    name: &'static str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(name, &value),
        None => Ok(()),
    }
}

pub(super) fn list_entry<M: SerializeMap>(map: &mut M, name: &'static str, list: &[String]) -> Result<(), M::Error> {
    if list.is_empty() { Ok(()) } else { map.serialize_entry(name, list) }
}

pub(super) fn metadata_entry<M: SerializeMap>(map: &mut M, metadata: &Metadata<'_>) -> Result<(), M::Error> {
    if metadata.is_empty() { Ok(()) } else { map.serialize_entry("metadata", metadata) }
}
