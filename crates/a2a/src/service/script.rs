//! The agent that conformance kits drive by message id. It needs no model and no agent runtime.

use std::time::Duration;

use api::JsonMap;
use serde_json::json;

use super::translate::Outcome;
use crate::event::TaskEvent;
use crate::model::{ArtifactId, Content, Message, Part, Role};

/// How long the task of the kits for streams that break runs: twice what the kits wait for an event, and some more.
const LONG: Duration = Duration::from_secs(6);
/// The longest wait that a kit can ask for.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The text of files and their name, as the kits expect them.
const FILE_BASE64: &str = "dGNr";
const FILE_NAME: &str = "output.txt";
const FILE_URL: &str = "https://example.com/output.txt";

/// What the agent does, in order.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// It makes an artifact, or adds to it.
    Show(Box<TaskEvent>),
    /// It waits.
    Wait(Duration),
    /// It asks for input. Whatever comes next ends it.
    Ask(&'static str),
    /// It ends, with this text.
    End(Outcome, Option<&'static str>),
}

/// A message in place of a task, if the kit asks for that.
pub(super) fn message_reply(request: &Message) -> Option<Message> {
    request.message_id.starts_with("tck-message-response").then(|| Message {
        message_id: format!("{}-reply", request.message_id),
        role: Role::Agent,
        parts: vec![Part::text("Direct message response")],
        context_id: request.context_id.clone(),
        task_id: None,
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: JsonMap::new(),
    })
}

/// What the agent does about a message that begins a task. The kit for 1.0 drives it by the id of the message; that for
/// 0.3 needs tasks that stay open.
pub(super) fn steps(message: &Message) -> Vec<Step> {
    let id = message.message_id.as_str();
    let is = |prefix: &str| id.starts_with(prefix);
    let end = |text| Step::End(Outcome::Completed, text);
    let one = |part: Part| vec![Step::Show(Box::new(artifact(part, false, true))), end(None)];
    // The longer prefixes first.
    if is("tck-stream-artifact-chunked") {
        let chunks = [artifact(Part::text("chunk-1 "), false, false), artifact(Part::text("chunk-2"), true, true)];
        return chunks.into_iter().map(Box::new).map(Step::Show).chain([end(None)]).collect();
    }
    if is("test-resubscribe-message-id") {
        return vec![Step::Wait(LONG.min(MAX_WAIT)), end(None)];
    }
    let text = [
        ("tck-stream-artifact-text", "Streamed text content"),
        ("tck-stream-ordering-001", "Ordered output"),
        ("tck-stream-001", "Stream hello from TCK"),
        ("tck-stream-003", "Stream task lifecycle"),
        ("tck-artifact-text", "Generated text content"),
    ]
    .into_iter()
    .find(|(prefix, _)| is(prefix));
    if let Some((_, text)) = text {
        return one(Part::text(text));
    }
    if is("tck-artifact-file-url") {
        return one(file(Content::Url(FILE_URL.to_owned())));
    }
    if is("tck-stream-artifact-file") || is("tck-artifact-file") {
        return one(file(Content::Raw(FILE_BASE64.to_owned())));
    }
    if is("tck-artifact-data") {
        return one(Part::data(json!({"key": "value", "count": 42})));
    }
    if is("tck-stream-002") {
        return vec![end(None)];
    }
    if is("tck-complete-task") {
        return vec![end(Some("Hello from TCK"))];
    }
    if is("tck-reject-task") {
        return vec![Step::End(Outcome::Rejected("rejected".to_owned()), None)];
    }
    vec![Step::Ask("Say anything to go on"), end(Some("Hello from TCK"))]
}

fn file(content: Content) -> Part {
    let (filename, media_type) = (Some(FILE_NAME.to_owned()), Some("text/plain".to_owned()));
    Part { filename, media_type, ..Part::new(content) }
}

fn artifact(part: Part, append: bool, last_chunk: bool) -> TaskEvent {
    TaskEvent::Artifact {
        id: ArtifactId::Named("tck-artifact".to_owned()),
        name: None,
        parts: vec![part],
        append,
        append_any: append,
        last_chunk,
        metadata: JsonMap::new(),
        mark: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str) -> Message {
        Message {
            message_id: id.to_owned(),
            role: Role::User,
            parts: vec![Part::text("hi")],
            context_id: None,
            task_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: JsonMap::new(),
        }
    }

    #[test]
    fn every_id_of_the_kits_leads_to_an_end() {
        for id in [
            "tck-complete-task-1",
            "tck-artifact-text-1",
            "tck-artifact-file-1",
            "tck-artifact-file-url-1",
            "tck-artifact-data-1",
            "tck-reject-task-1",
            "tck-stream-001-1",
            "tck-stream-002-1",
            "tck-stream-003-1",
            "tck-stream-ordering-001-1",
            "tck-stream-artifact-text-1",
            "tck-stream-artifact-file-1",
            "tck-stream-artifact-chunked-1",
            "test-resubscribe-message-id-1",
        ] {
            let steps = steps(&message(id));
            assert!(matches!(steps.last(), Some(Step::End(..))), "{id}");
            assert!(!steps.iter().any(|step| matches!(step, Step::Ask(_))), "{id}");
        }
        for id in ["tck-input-required-1", "whatever"] {
            assert!(matches!(steps(&message(id)).first(), Some(Step::Ask(_))), "{id}");
        }
    }

    #[test]
    fn a_url_is_not_taken_for_a_file_with_bytes() {
        let steps = steps(&message("tck-artifact-file-url-7"));
        let Some(Step::Show(event)) = steps.first() else { panic!("{steps:?}") };
        let TaskEvent::Artifact { parts, .. } = &**event else { panic!("{event:?}") };
        assert_eq!(parts[0].content, Content::Url(FILE_URL.to_owned()));
        assert!(message_reply(&message("tck-message-response-1")).is_some());
        assert!(message_reply(&message("tck-complete-task")).is_none());
    }
}
