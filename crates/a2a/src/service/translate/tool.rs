//! Tool calls, as blocks of type `tool_call` show them.

use api::{Json, JsonMap, ToolPart, ToolState};

/// How far a tool call is that has ended.
pub(super) const DONE: u8 = 2;

/// How far a call is.
pub(super) fn rank(state: &ToolState) -> u8 {
    match state {
        ToolState::Pending(_) => 0,
        ToolState::Running(_) => 1,
        ToolState::Completed(_) | ToolState::Error(_) => DONE,
    }
}

/// How far a call was, by what was told of it.
pub(super) fn rank_of(payload: &Json) -> u8 {
    match payload.get("status").and_then(Json::as_str) {
        Some("pending") => 0,
        Some("running") => 1,
        _ => DONE,
    }
}

/// The payload of a block of type `tool_call`.
pub(super) fn payload(tool: &ToolPart) -> Json {
    let (title, metadata) = match &tool.state {
        ToolState::Pending(_) => (None, None),
        ToolState::Running(running) => (running.title.as_deref(), running.metadata.as_ref()),
        ToolState::Completed(done) => (Some(done.title.as_str()), Some(&done.metadata)),
        ToolState::Error(failed) => (None, failed.metadata.as_ref()),
    };
    let subtitle = metadata.and_then(|metadata| metadata.get("subtitle")).and_then(Json::as_str);
    let mut payload = JsonMap::new();
    let mut put = |name: &str, value: Json| payload.insert(name.to_owned(), value);
    put("call_id", tool.call_id.as_str().into());
    put("tool", tool.tool.as_str().into());
    put("status", tool.state.status().into());
    if let Some(title) = title.filter(|title| !title.is_empty()) {
        put("title", title.into());
    }
    if let Some(subtitle) = subtitle {
        put("subtitle", subtitle.into());
    }
    put("input", tool.state.input().clone());
    match &tool.state {
        ToolState::Completed(done) => drop(put("output", done.output.as_str().into())),
        ToolState::Error(failed) => drop(put("error", failed.error.as_str().into())),
        ToolState::Pending(_) | ToolState::Running(_) => {}
    }
    Json::Object(payload)
}
