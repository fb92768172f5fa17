//! The request's body. Pure.

use std::collections::HashSet;

use api::{Json, JsonMap};
use serde_json::json;

use crate::{AssistantContent, Content, Prompt, PromptMessage, ToolResult};

/// OpenAI's limit for a tool's name.
const MAX_NAME: usize = 64;
/// Body fields that options may not replace: the decoder and the conversation depend on them.
const OWN_FIELDS: [&str; 2] = ["messages", "stream"];
/// What the model reads in place of a result that does not exist.
const NO_RESULT: &str = "No result: the call was interrupted, and whether it had an effect is unknown.";

/// The body of a streaming chat completion.
pub fn request(prompt: Prompt, model: &str) -> Json {
    let Prompt { system, messages, tools, settings } = prompt;
    let mut body = JsonMap::new();
    body.insert("model".into(), model.into());
    // Strict chat templates accept one system message only, and only as the first.
    let mut wire = Vec::with_capacity(messages.len() + 1);
    let system = system.into_iter().filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n\n");
    if !system.is_empty() {
        wire.push(object([("role", "system".into()), ("content", system.into())]));
    }
    Messages { out: &mut wire }.add(messages);
    body.insert("messages".into(), wire.into());
    if !tools.is_empty() {
        let tools = tools.into_iter().map(|tool| {
            let function = [
                ("name", Json::from(tool.name)),
                ("description", tool.description.into()),
                ("parameters", tool.schema),
            ];
            json!({"type": "function", "function": object(function)})
        });
        body.insert("tools".into(), tools.collect());
    }
    body.insert("stream".into(), true.into());
    body.insert("stream_options".into(), json!({"include_usage": true}));
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            body.insert(name.into(), value);
        }
    };
    set("temperature", settings.temperature.map(Json::from));
    set("top_p", settings.top_p.map(Json::from));
    let limited = ["max_tokens", "max_completion_tokens"].iter().any(|name| settings.options.contains_key(*name));
    if !limited {
        set(output_limit(model), settings.max_output.map(Json::from));
    }
    body.extend(settings.options.into_iter().filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str())));
    Json::Object(body)
}

/// OpenAI's reasoning models refuse `max_tokens`; most other servers know nothing else.
fn output_limit(model: &str) -> &'static str {
    let name = model.rsplit('/').next().unwrap_or(model);
    if ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family)) {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

/// Builds a conversation that strict servers accept: each call is followed by exactly one result, roles alternate where
/// they can, and no message is empty.
struct Messages<'a> {
    out: &'a mut Vec<Json>,
}

impl Messages<'_> {
    fn add(&mut self, messages: Vec<PromptMessage>) {
        // Thinking goes back only within the turn that it belongs to: vendors that want it back want it there, and
        // refuse or ignore it later.
        let turn = messages.iter().rposition(|message| matches!(message, PromptMessage::User(_))).unwrap_or(0);
        let mut messages: Vec<Option<PromptMessage>> = messages.into_iter().map(Some).collect();
        for at in 0..messages.len() {
            match messages[at].take() {
                Some(PromptMessage::User(content)) => self.user(content),
                Some(PromptMessage::Assistant(content)) => {
                    let calls = self.assistant(content, at > turn);
                    let results = calls.into_iter().map(|id| take_result(&mut messages[at + 1..], id)).collect();
                    self.results(results);
                }
                // A result without its call: servers refuse the whole request for it.
                Some(PromptMessage::Tool(_)) | None => {}
            }
        }
    }

    fn user(&mut self, content: Vec<Content>) {
        let mut parts: Vec<Json> = content.into_iter().filter_map(part).collect();
        if parts.is_empty() {
            parts.push(json!({"type": "text", "text": "(no text)"}));
        }
        if let Some(last) = self.out.last_mut().filter(|last| last["role"] == "user") {
            let mut all = match last["content"].take() {
                Json::Array(parts) => parts,
                text => vec![json!({"type": "text", "text": text})],
            };
            all.append(&mut parts);
            last["content"] = compact(all);
        } else {
            self.out.push(object([("role", "user".into()), ("content", compact(parts))]));
        }
    }

    /// Adds what the model said, and returns the ids of its calls.
    fn assistant(&mut self, content: Vec<AssistantContent>, current: bool) -> Vec<String> {
        let (mut text, mut thinking) = (String::new(), String::new());
        let (mut calls, mut ids) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for piece in content {
            match piece {
                AssistantContent::Text(more) => text.push_str(&more),
                AssistantContent::Reasoning { text: more, .. } => thinking.push_str(&more),
                AssistantContent::ToolCall { id, name, input } => {
                    if seen.insert(id.clone()) {
                        calls.push(call(&id, &name, input));
                        ids.push(id);
                    }
                }
            }
        }
        if text.trim().is_empty() && calls.is_empty() {
            return ids;
        }
        let mut message = JsonMap::new();
        message.insert("role".into(), "assistant".into());
        // Null, not "": gateways to other vendors refuse empty texts.
        message.insert("content".into(), if text.trim().is_empty() { Json::Null } else { text.into() });
        if current && !calls.is_empty() && !thinking.is_empty() {
            message.insert("reasoning_content".into(), thinking.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".into(), calls.into());
        }
        match self.out.last_mut() {
            Some(last) if last["role"] == "assistant" && last.get("tool_calls").is_none() => {
                let before = last["content"].as_str().unwrap_or_default();
                let text = [before, message["content"].as_str().unwrap_or_default()].join("\n\n");
                message.insert("content".into(), text.trim_end().into());
                *last = Json::Object(message);
            }
            _ => self.out.push(Json::Object(message)),
        }
        ids
    }

    /// Adds the results of one message's calls, then what is attached to them: a result can only be text.
    fn results(&mut self, results: Vec<ToolResult>) {
        let mut attached = Vec::new();
        for result in results {
            if !result.attachments.is_empty() {
                attached.push(Content::Text(format!("Attached to the result of {}:", result.name)));
                attached.extend(result.attachments);
            }
            let text = if result.output.is_empty() { "(no output)".to_owned() } else { result.output };
            self.out.push(object([
                ("role", "tool".into()),
                ("tool_call_id", result.id.into()),
                ("content", text.into()),
            ]));
        }
        if !attached.is_empty() {
            self.user(attached);
        }
    }
}

/// The result of a call: it comes before the model speaks again. Ids may come back in later messages.
fn take_result(rest: &mut [Option<PromptMessage>], id: String) -> ToolResult {
    for message in rest {
        match message.take() {
            Some(PromptMessage::Tool(result)) if result.id == id => return result,
            Some(next @ PromptMessage::Assistant(_)) => {
                *message = Some(next);
                break;
            }
            other => *message = other,
        }
    }
    ToolResult { id, output: NO_RESULT.to_owned(), is_error: true, ..ToolResult::default() }
}

fn part(content: Content) -> Option<Json> {
    match content {
        Content::Text(text) if text.trim().is_empty() => None,
        Content::Text(text) => Some(object([("type", "text".into()), ("text", text.into())])),
        Content::Image { data_url, .. } => {
            Some(object([("type", "image_url".into()), ("image_url", object([("url", data_url.into())]))]))
        }
        Content::File { filename, data_url, .. } => {
            let file = object([("filename", filename.into()), ("file_data", data_url.into())]);
            Some(object([("type", "file".into()), ("file", file)]))
        }
    }
}

/// Texts alone are sent as one text: small servers know no lists of parts.
fn compact(parts: Vec<Json>) -> Json {
    if parts.iter().all(|part| part["type"] == "text") {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        return texts.join("\n\n").into();
    }
    parts.into()
}

fn call(id: &str, name: &str, input: Json) -> Json {
    let arguments = match input {
        Json::Object(_) => input.to_string(),
        Json::Null => "{}".to_owned(),
        // The model's broken arguments; servers parse them again and want an object.
        other => json!({"input": other}).to_string(),
    };
    json!({"id": id, "type": "function", "function": {"name": tool_name(name), "arguments": arguments}})
}

/// A name that every server accepts, for calls of tools that do not exist.
fn tool_name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(legal).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// An object from values that move in; `json!` would copy long texts.
fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    Json::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests;
