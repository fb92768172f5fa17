//! Events applied to the task that they are about. Applying the log of a task in order gives what it has made.

use api::{Json, JsonMap};
use serde_json::json;

use crate::event::{StreamMark, TaskEvent};
use crate::model::{Artifact, ArtifactId, Content, Part, Task, TaskStatus};

/// Takes an event into the task.
pub(super) fn apply(task: &mut Task, event: &TaskEvent) {
    match event {
        TaskEvent::Status { status, metadata, .. } => {
            apply_status(task, status);
            merge(&mut task.metadata, metadata);
            if let Some(shared) = task.metadata.get_mut("shared").and_then(Json::as_object_mut) {
                let is_open = shared.get("interrupt").is_some_and(|interrupt| interrupt["phase"] == "asked");
                if !is_open || !status.state.is_interrupted() {
                    shared.shift_remove("interrupt");
                }
                if status.state.is_terminal() {
                    shared.shift_remove("progress");
                }
            }
        }
        TaskEvent::Artifact { id, name, parts, append, metadata, mark, .. } => {
            let index = task.artifacts.iter().position(|artifact| artifact.id == *id);
            let artifact = match index.and_then(|index| task.artifacts.get_mut(index)) {
                Some(artifact) => artifact,
                None => {
                    task.artifacts.push(Artifact {
                        id: id.clone(),
                        name: name.clone(),
                        description: None,
                        parts: Vec::new(),
                        extensions: Vec::new(),
                        metadata: JsonMap::new(),
                    });
                    let Some(artifact) = task.artifacts.last_mut() else { return };
                    artifact
                }
            };
            merge(&mut artifact.metadata, metadata);
            let is_new_message = set_stream(artifact, mark.as_ref());
            match (append, id) {
                // Each state of a tool call replaces the one before.
                (false, _) | (_, ArtifactId::Lane(crate::event::Lane::Tool(_))) => artifact.parts = parts.clone(),
                (true, _) => add(&mut artifact.parts, parts, is_new_message),
            }
        }
        TaskEvent::Message(_) => {}
    }
}

/// Progress does not change what the task says about its state, or when that changed.
fn apply_status(task: &mut Task, status: &TaskStatus) {
    if task.status.state != status.state || status.message.is_some() {
        task.status = status.clone();
    }
}

/// Adds members to metadata, those of `shared` and `opencode` one by one.
pub(super) fn merge(into: &mut JsonMap, from: &JsonMap) {
    for (name, value) in from {
        match (into.get_mut(name), value) {
            (Some(Json::Object(known)), Json::Object(more)) => {
                known.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            _ => drop(into.insert(name.clone(), value.clone())),
        }
    }
}

/// Notes the message that the artifact comes from. Returns whether it is another one than before.
fn set_stream(artifact: &mut Artifact, mark: Option<&StreamMark>) -> bool {
    let ArtifactId::Lane(lane) = &artifact.id else { return false };
    let Some(StreamMark { message_id: Some(message), source, .. }) = mark else { return false };
    let known = artifact.metadata.get("shared").and_then(|shared| shared["stream"]["message_id"].as_str());
    if known == Some(message) {
        return false;
    }
    let is_new = known.is_some();
    let stream = json!({"block_type": lane.block(), "source": source, "message_id": message});
    artifact.metadata.insert("shared".to_owned(), json!({"stream": stream}));
    is_new
}

/// Adds parts. Text that goes on joins the text before it, unless it belongs to another message.
fn add(into: &mut Vec<Part>, parts: &[Part], is_new_message: bool) {
    let mut may_join = !is_new_message;
    for part in parts {
        if let (true, Content::Text(more), Some(Part { content: Content::Text(text), .. })) =
            (may_join && part.metadata.is_empty(), &part.content, into.last_mut())
        {
            text.push_str(more);
        } else {
            into.push(part.clone());
        }
        may_join = true;
    }
}
