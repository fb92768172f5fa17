//! Sessions, messages and summaries as methods return them.

use api::{FileDiff, Json, JsonMap, MessageWithParts, Part as HostPart, Session, SessionId, SessionStatus, Todo};
use serde_json::json;

use crate::model::{Message, Part, Role, Task, TaskState, TaskStatus};
use crate::{Content, Line, wire};

/// The prefix of the contexts that sessions appear in.
const CONTEXT_PREFIX: &str = "ctx:opencode-session:";

/// The context that a session appears in.
pub(super) fn context_of(session: &SessionId) -> String {
    format!("{CONTEXT_PREFIX}{session}")
}

fn shared_session(fields: Json) -> JsonMap {
    let mut metadata = JsonMap::new();
    metadata.insert("shared".to_owned(), json!({ "session": fields }));
    metadata
}

/// A session as a task that has ended.
pub(super) fn session_task(session: &Session, line: Line) -> Json {
    let task = Task {
        id: session.id.to_string(),
        context_id: context_of(&session.id),
        // A session has no state of its own; what runs in it is a task.
        status: TaskStatus { state: TaskState::Completed, message: None, timestamp: 0 },
        artifacts: Vec::new(),
        history: Vec::new(),
        metadata: shared_session(json!({ "id": session.id, "title": session.title })),
    };
    wire::task_json(&task, line)
}

/// A message of a session: its texts and files.
pub(super) fn message(message: &MessageWithParts, line: Line) -> Json {
    let session = message.info.session_id();
    let role = if message.info.as_assistant().is_some() { Role::Agent } else { Role::User };
    let message = Message {
        message_id: message.info.id().to_string(),
        role,
        parts: message.parts.iter().filter_map(part).collect(),
        context_id: Some(context_of(session)),
        task_id: None,
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: shared_session(json!({ "id": session })),
    };
    wire::message_json(&message, line)
}

fn part(part: &HostPart) -> Option<Part> {
    match part {
        HostPart::Text(text) if text.ignored != Some(true) && text.synthetic != Some(true) => {
            Some(Part::text(text.text.clone()))
        }
        HostPart::File(file) => Some(Part {
            content: Content::Url(file.url.clone()),
            filename: file.filename.clone(),
            media_type: Some(file.mime.clone()),
            metadata: JsonMap::new(),
        }),
        _ => None,
    }
}

/// A session in short.
pub(super) fn summary(session: &Session) -> Json {
    let mut summary = JsonMap::new();
    let mut put = |key: &str, value: Json| summary.insert(key.to_owned(), value);
    put("id", session.id.as_str().into());
    put("title", session.title.as_str().into());
    put("project_id", session.project_id.as_str().into());
    put("directory", session.directory.as_str().into());
    if let Some(parent) = &session.parent_id {
        put("parent_id", parent.as_str().into());
    }
    put("version", session.version.as_str().into());
    if let Some(share) = &session.share {
        put("share_url", share.url.as_str().into());
    }
    if let Some(revert) = &session.revert {
        let mut fields = JsonMap::new();
        fields.insert("message_id".to_owned(), revert.message_id.as_str().into());
        let optional = [
            ("part_id", revert.part_id.as_ref().map(|part| part.to_string())),
            ("snapshot", revert.snapshot.clone()),
            ("diff", revert.diff.clone()),
        ];
        fields.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))));
        put("revert", fields.into());
    }
    summary.into()
}

/// The status of a session that is not idle.
pub(super) fn status(session: &str, status: &SessionStatus) -> Json {
    match status {
        SessionStatus::Idle => json!({ "session_id": session, "type": "idle" }),
        SessionStatus::Busy => json!({ "session_id": session, "type": "busy" }),
        SessionStatus::Retry { attempt, message, next, .. } => {
            json!({ "session_id": session, "type": "retry", "attempt": attempt, "message": message, "next": next })
        }
    }
}

/// An entry of a todo list. Entries have no ids of their own, so their place is one.
pub(super) fn todo((index, todo): (usize, &Todo)) -> Json {
    json!({
        "id": (index + 1).to_string(), "content": todo.content, "status": todo.status, "priority": todo.priority,
    })
}

/// A changed file.
pub(super) fn diff(diff: &FileDiff) -> Json {
    let mut fields = JsonMap::new();
    let mut put = |key: &str, value: Json| fields.insert(key.to_owned(), value);
    if let Some(file) = &diff.file {
        put("file", file.as_str().into());
    }
    if let Some(patch) = &diff.patch {
        put("patch", patch.as_str().into());
    }
    put("additions", diff.additions.into());
    put("deletions", diff.deletions.into());
    fields.into()
}
