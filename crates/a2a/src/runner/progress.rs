//! What an agent says and does, in the terms of our sessions; prompts in the terms of the protocol. Pure.

use api::{Json, JsonMap, PromptPart, RunnerCall, RunnerCallState, Tokens, TokensCache, Usage, Usd};

use crate::model::{Content, Part};

/// The longest id of a call, title, and input or output, in bytes.
const MAX_ID: usize = 200;
const MAX_TITLE: usize = 500;
const MAX_INPUT: usize = 64 << 10;
const MAX_OUTPUT: usize = 64 << 10;
/// The most bytes of structured data that are shown.
const MAX_DATA: usize = 10_000;
/// The longest name of a tool.
const MAX_TOOL: usize = 64;

/// Cuts a text off after so many bytes.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// A prompt as the parts of a message.
pub(super) fn parts(prompt: &[PromptPart]) -> Vec<Part> {
    prompt.iter().filter_map(part).collect()
}

fn part(part: &PromptPart) -> Option<Part> {
    match part {
        PromptPart::Text { text, .. } => Some(Part::text(text)),
        PromptPart::File { mime, filename, url, .. } => {
            let content = if let Some((_, data)) = url.strip_prefix("data:").and_then(|d| d.split_once(";base64,")) {
                Content::Raw(data.to_owned())
            } else if url.starts_with("https://") || url.starts_with("http://") {
                Content::Url(url.clone())
            } else {
                // The agent cannot read our files. The content of a text file is a part of its own.
                let name = filename.as_deref().unwrap_or(url);
                return Some(Part::text(format!("[The file {name} ({mime}) was attached.]")));
            };
            Some(Part { filename: filename.clone(), media_type: Some(mime.clone()), ..Part::new(content) })
        }
        PromptPart::Agent { .. } | PromptPart::Subtask { .. } => None,
    }
}

/// A part of an artifact that is no text, as text.
pub(super) fn describe_part(part: &Part) -> String {
    let name = part.filename.as_deref().unwrap_or("file");
    let kind = part.media_type.as_deref().unwrap_or("of unknown type");
    match &part.content {
        Content::Text(text) => text.clone(),
        Content::Url(url) => format!("\n[{} ({}): {}]\n", cut(name, MAX_TITLE), cut(kind, MAX_ID), cut(url, MAX_DATA)),
        Content::Raw(data) => {
            format!("\n[{} ({}), {} bytes, is not kept]\n", cut(name, MAX_TITLE), cut(kind, MAX_ID), data.len() / 4 * 3)
        }
        Content::Data(data) => {
            let text = data.to_string();
            let more = if text.len() > MAX_DATA { " …" } else { "" };
            format!("\n```json\n{}{more}\n```\n", cut(&text, MAX_DATA))
        }
    }
}

/// A tool call of the agent.
pub(super) fn call(data: &JsonMap) -> Option<RunnerCall> {
    let text = |key: &str| data.get(key).and_then(Json::as_str).unwrap_or_default();
    let id = text("call_id");
    if id.is_empty() || id.len() > MAX_ID {
        return None;
    }
    let input = data.get("input").and_then(Json::as_object).cloned().unwrap_or_default();
    let fits = Json::Object(input.clone()).to_string().len() <= MAX_INPUT;
    let output = ["error", "output"].into_iter().find_map(|key| data.get(key).filter(|value| !value.is_null()));
    let output = output.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let state = match text("status") {
        "running" => RunnerCallState::Running,
        "completed" => RunnerCallState::Completed,
        "error" | "failed" => RunnerCallState::Failed,
        _ => RunnerCallState::Pending,
    };
    Some(RunnerCall {
        id: id.to_owned(),
        tool: tool_name(text("tool")),
        title: cut(text("title"), MAX_TITLE).to_owned(),
        input: if fits { input } else { JsonMap::new() },
        state,
        output: cut(&output.unwrap_or_default(), MAX_OUTPUT).to_owned(),
        ..RunnerCall::default()
    })
}

/// The name of a tool, if it can be one of ours.
pub(super) fn tool_name(name: &str) -> String {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= MAX_TOOL && name.bytes().all(fits);
    if is_name { name.to_owned() } else { "other".to_owned() }
}

/// What a task has used: `metadata.shared.usage`.
pub(super) fn usage(shared: &JsonMap) -> Usage {
    // Agents built on protocol buffers send whole numbers as floats.
    let count = |value: Option<&Json>| {
        let number = value.and_then(Json::as_f64).filter(|number| number.is_finite() && *number >= 0.0);
        // Truncation and saturation are what is wanted of such numbers.
        number.map_or(0, |number| number as u64)
    };
    let cache = |key: &str| count(shared.get("cache_tokens").and_then(|cache| cache.get(key)));
    let cost = shared.get("cost").and_then(Json::as_f64).filter(|cost| cost.is_finite() && *cost >= 0.0);
    Usage {
        cost: Usd(cost.unwrap_or(0.0)),
        tokens: Tokens {
            total: None,
            input: count(shared.get("input_tokens")),
            output: count(shared.get("output_tokens")),
            reasoning: count(shared.get("reasoning_tokens")),
            cache: TokensCache { read: cache("read_tokens"), write: cache("write_tokens") },
        },
        ..Usage::default()
    }
}
