//! Messages, parts, tasks and push configurations out of the JSON of each syntax.

use api::{Json, JsonMap};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::dialect::Syntax;
use super::enums::{parse_role, parse_state, roles};
use super::fields::{Object, Path, check_depth, whole};
use crate::call::{PushAuthentication, PushConfig};
use crate::error::Error;
use crate::event::{Block, Lane, StreamMark};
use crate::model::{Artifact, ArtifactId, Content, Message, Part, Task, TaskStatus};

pub(super) fn message(value: Json, path: Path<'_>, syntax: Syntax) -> Result<Message, Error> {
    let mut object = Object::new(value, path)?;
    let role = object.choice("role", |text| parse_role(text, syntax), roles(syntax))?;
    let parts = match (syntax, object.has("content")) {
        (Syntax::Proto03, true) => object.each("content", |item, path| part(item, path, syntax))?,
        (Syntax::Proto10, true) if !object.has("parts") => {
            let field = object.at("content").to_string();
            return Err(Error::invalid(&field, format!("{field} is not supported; use {}", object.at("parts"))));
        }
        _ if !object.has("parts") => return Err(object.missing("parts")),
        _ => object.each("parts", |item, path| part(item, path, syntax))?,
    };
    Ok(Message {
        message_id: object.required_id("messageId")?,
        role: role.ok_or_else(|| object.missing("role"))?,
        parts,
        context_id: object.id("contextId")?,
        task_id: object.id("taskId")?,
        reference_task_ids: object.texts("referenceTaskIds")?,
        extensions: object.texts("extensions")?,
        metadata: object.metadata("metadata")?,
    })
}

fn part(value: Json, path: Path<'_>, syntax: Syntax) -> Result<Part, Error> {
    let mut object = Object::new(value, path)?;
    let mut part = match syntax {
        Syntax::Kinds | Syntax::Proto03 => old_part(&mut object, syntax)?,
        Syntax::Proto10 => new_part(&mut object)?,
    };
    part.metadata = object.metadata("metadata")?;
    Ok(part)
}

/// A part of 0.3. REST takes parts with a `kind`, too, as its specification has both.
fn old_part(object: &mut Object<'_>, syntax: Syntax) -> Result<Part, Error> {
    let kind = object.text("kind")?;
    let kind = match kind.as_deref() {
        Some(kind @ ("text" | "file" | "data")) => kind,
        Some(_) => return Err(object.at("kind").wrong("`text`, `file` or `data`")),
        None => ["text", "file", "data"]
            .into_iter()
            .find(|name| object.has(name))
            .ok_or_else(|| object.path().wrong("a part with `text`, `file` or `data`"))?,
    };
    match kind {
        "text" => Ok(Part::text(object.text("text")?.ok_or_else(|| object.missing("text"))?)),
        "file" => {
            let file = object.needed("file")?;
            let path = object.at("file");
            old_file(Object::new(file, path)?, syntax)
        }
        _ => {
            let data = object.needed("data")?;
            check_depth(&data, object.at("data"))?;
            match data {
                // The protocol buffers of 0.3 wrap the data in a message of its own.
                Json::Object(mut wrapper)
                    if syntax == Syntax::Proto03
                        && wrapper.len() == 1
                        && wrapper.get("data").is_some_and(Json::is_object) =>
                {
                    Ok(Part::data(wrapper.remove("data").unwrap_or_default()))
                }
                data @ Json::Object(_) => Ok(Part::data(data)),
                _ => Err(object.at("data").wrong("an object")),
            }
        }
    }
}

fn old_file(mut file: Object<'_>, syntax: Syntax) -> Result<Part, Error> {
    let (bytes, uri) = match syntax {
        Syntax::Proto03 if file.has("fileWithBytes") || file.has("file_with_bytes") => ("fileWithBytes", "fileWithUri"),
        Syntax::Proto03 if file.has("fileWithUri") || file.has("file_with_uri") => ("fileWithBytes", "fileWithUri"),
        _ => ("bytes", "uri"),
    };
    let content = match (file.text(bytes)?, file.filled(uri)?) {
        (Some(text), None) => {
            let text = base64(&text).ok_or_else(|| file.at(bytes).wrong("base64"))?;
            Content::Raw(if bytes == "fileWithBytes" { unwrap_twice_encoded(text) } else { text })
        }
        (None, Some(uri)) => Content::Url(uri),
        _ => return Err(file.path().wrong(&format!("an object with either `{bytes}` or `{uri}`"))),
    };
    Ok(Part { filename: file.filled("name")?, media_type: file.filled("mimeType")?, ..Part::new(content) })
}

/// The SDK for Python encodes the bytes of a file twice for REST of 0.3, others do so once. Bytes that are base64 themselves
/// are taken for the former.
fn unwrap_twice_encoded(text: String) -> String {
    let inner = STANDARD.decode(&text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match inner {
        Some(inner) if !inner.is_empty() && STANDARD.decode(&inner).is_ok() => inner,
        _ => text,
    }
}

fn new_part(object: &mut Object<'_>) -> Result<Part, Error> {
    let found: Vec<&str> = ["text", "raw", "url", "data"].into_iter().filter(|name| object.has(name)).collect();
    let [name] = found.as_slice() else {
        return Err(object.path().wrong("a part with one of `text`, `raw`, `url` and `data`"));
    };
    let content = match *name {
        "text" => Content::Text(object.text("text")?.unwrap_or_default()),
        "raw" => {
            let text = object.text("raw")?.unwrap_or_default();
            Content::Raw(base64(&text).ok_or_else(|| object.at("raw").wrong("base64"))?)
        }
        "url" => Content::Url(object.text("url")?.unwrap_or_default()),
        _ => {
            let data = object.needed("data")?;
            check_depth(&data, object.at("data"))?;
            Content::Data(data)
        }
    };
    Ok(Part { filename: object.filled("filename")?, media_type: object.filled("mediaType")?, ..Part::new(content) })
}

/// Base64 in the standard alphabet with padding, from any of its variants.
fn base64(text: &str) -> Option<String> {
    if STANDARD.decode(text).is_ok() {
        return Some(text.to_owned());
    }
    let bytes =
        [&STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD].into_iter().find_map(|engine| engine.decode(text).ok())?;
    Some(STANDARD.encode(bytes))
}

/// The push configuration of a message, or of 0.3: what `pushNotificationConfig` holds.
pub(super) fn push_config(value: Json, path: Path<'_>, syntax: Syntax) -> Result<PushConfig, Error> {
    let mut object = Object::new(value, path)?;
    let authentication = match object.take("authentication") {
        None => None,
        Some(value) => Some(push_authentication(value, object.at("authentication"), syntax)?),
    };
    Ok(PushConfig {
        task_id: if syntax == Syntax::Proto10 { object.id("taskId")?.unwrap_or_default() } else { String::new() },
        id: object.id("id")?,
        url: object.required("url")?,
        token: object.filled("token")?,
        authentication,
    })
}

fn push_authentication(value: Json, path: Path<'_>, syntax: Syntax) -> Result<PushAuthentication, Error> {
    let mut object = Object::new(value, path)?;
    let schemes = match syntax {
        Syntax::Kinds | Syntax::Proto03 => object.texts("schemes")?,
        Syntax::Proto10 => object.filled("scheme")?.into_iter().collect(),
    };
    Ok(PushAuthentication { schemes, credentials: object.filled("credentials")? })
}

/// What `metadata.shared.stream` says, taken out of the metadata: the mark, the block and the number.
pub(super) fn stream_mark(metadata: &mut JsonMap) -> Option<(StreamMark, Option<Block>, Option<u64>)> {
    let shared = metadata.get_mut("shared")?.as_object_mut()?;
    let stream = shared.remove("stream")?;
    if shared.is_empty() {
        metadata.remove("shared");
    }
    let text = |name: &str| stream.get(name).and_then(Json::as_str).map(str::to_owned);
    let mark =
        StreamMark { message_id: text("message_id"), source: text("source").unwrap_or_default(), role: text("role") };
    let block = match stream.get("block_type").and_then(Json::as_str) {
        Some("text") => Some(Block::Text),
        Some("reasoning") => Some(Block::Reasoning),
        Some("tool_call") => Some(Block::ToolCall),
        _ => None,
    };
    let seq = stream.get("sequence").and_then(whole).and_then(|seq| u64::try_from(seq).ok());
    Some((mark, block, seq))
}

pub(super) fn status(value: Json, path: Path<'_>, syntax: Syntax) -> Result<TaskStatus, Error> {
    let mut object = Object::new(value, path)?;
    let state = object.choice("state", |text| parse_state(text, syntax), "a known state")?;
    let message = match object.take("message") {
        None => None,
        Some(value) => Some(self::message(value, object.at("message"), syntax)?),
    };
    Ok(TaskStatus {
        state: state.ok_or_else(|| object.missing("state"))?,
        message,
        // Agents need not send it; zero is what they did not say.
        timestamp: object.timestamp("timestamp")?.unwrap_or(0),
    })
}

pub(super) fn task(value: Json, path: Path<'_>, syntax: Syntax) -> Result<Task, Error> {
    let mut object = Object::new(value, path)?;
    let id = object.required_id("id")?;
    let status_value = object.needed("status")?;
    let status = status(status_value, object.at("status"), syntax)?;
    Ok(Task {
        context_id: object.id("contextId")?.unwrap_or_default(),
        status,
        artifacts: object.each("artifacts", |item, path| artifact(item, path, syntax, &id))?,
        history: object.each("history", |item, path| message(item, path, syntax))?,
        metadata: object.metadata("metadata")?,
        id,
    })
}

pub(super) fn artifact(value: Json, path: Path<'_>, syntax: Syntax, task: &str) -> Result<Artifact, Error> {
    let mut object = Object::new(value, path)?;
    Ok(Artifact {
        id: artifact_id(object.required("artifactId")?, task),
        name: object.filled("name")?,
        description: object.filled("description")?,
        parts: object.each("parts", |item, path| part(item, path, syntax))?,
        extensions: object.texts("extensions")?,
        metadata: object.metadata("metadata")?,
    })
}

/// Recognises the lanes of a service like ours.
fn artifact_id(id: String, task: &str) -> ArtifactId {
    let lane = match id.strip_prefix(task).and_then(|rest| rest.strip_prefix(":stream:")) {
        Some("text") => Lane::Text,
        Some("reasoning") => Lane::Reasoning,
        Some(rest) => match rest.strip_prefix("tool:") {
            Some(part) => Lane::Tool(part.to_owned()),
            None => return ArtifactId::Named(id),
        },
        None => return ArtifactId::Named(id),
    };
    ArtifactId::Lane(lane)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_part(value: Json, syntax: Syntax) -> Result<Part, String> {
        part(value, Path::Root("p"), syntax).map_err(|error| error.message)
    }

    #[test]
    fn files_of_either_client_for_rest_of_0_3_mean_the_same() {
        // `hello` encoded once, and twice as the SDK for Python does.
        for bytes in ["aGVsbG8=", "YUdWc2JHOD0="] {
            let part = read_part(json!({"file": {"fileWithBytes": bytes, "mimeType": "text/plain"}}), Syntax::Proto03)
                .unwrap();
            assert_eq!(part.content, Content::Raw("aGVsbG8=".into()), "{bytes}");
        }
        let part = read_part(json!({"file": {"file_with_uri": "http://x/y", "name": "y"}}), Syntax::Proto03).unwrap();
        assert_eq!((part.content, part.filename), (Content::Url("http://x/y".into()), Some("y".into())));
    }

    #[test]
    fn base64_is_normalised_and_checked() {
        let raw = |text| read_part(json!({"raw": text}), Syntax::Proto10).map(|part| part.content);
        assert_eq!(raw("-_8"), Ok(Content::Raw("+/8=".into())));
        assert_eq!(raw("no base64!"), Err("p.raw must be base64".into()));
    }

    #[test]
    fn a_part_has_one_content() {
        for (value, syntax) in [
            (json!({}), Syntax::Kinds),
            (json!({"kind": "weird", "text": "x"}), Syntax::Kinds),
            (json!({"kind": "file", "file": {}}), Syntax::Kinds),
            (json!({"kind": "file", "file": {"bytes": "", "uri": "u"}}), Syntax::Kinds),
            (json!({"text": "x", "url": "y"}), Syntax::Proto10),
            (json!({"kind": "file", "file": {"uri": "u"}}), Syntax::Proto10),
        ] {
            assert!(read_part(value.clone(), syntax).is_err(), "{value}");
        }
    }

    #[test]
    fn data_of_the_protocol_buffers_of_0_3_is_unwrapped() {
        let data = |value, syntax| read_part(value, syntax).unwrap().content;
        assert_eq!(data(json!({"data": {"data": {"a": 1}}}), Syntax::Proto03), Content::Data(json!({"a": 1})));
        assert_eq!(
            data(json!({"kind": "data", "data": {"data": {}}}), Syntax::Kinds),
            Content::Data(json!({"data": {}}))
        );
        assert_eq!(data(json!({"data": [1]}), Syntax::Proto10), Content::Data(json!([1])));
    }
}
