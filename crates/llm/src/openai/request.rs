//! The request's body. Pure.

use std::borrow::Cow;
use std::collections::HashSet;

use api::{Json, JsonMap, Written};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use crate::{AssistantContent, Content, Prompt, PromptMessage, ToolResult, ToolSpec};

/// OpenAI's limit for a tool's name.
const MAX_NAME: usize = 64;
/// Body fields that options may not replace: the decoder and the conversation depend on them.
const OWN_FIELDS: [&str; 2] = ["messages", "stream"];
/// What the model reads in place of a result that does not exist.
const NO_RESULT: &str = "No result: the call was interrupted, and whether it had an effect is unknown.";

/// A body to be written.
#[derive(Debug)]
pub struct Body<'a> {
    model: &'a str,
    messages: Vec<Json>,
    /// Written from where they are: they are the same for every request, and long.
    tools: &'a [ToolSpec],
    rest: JsonMap,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Tool<'a> {
            r#type: &'a str,
            function: Function<'a>,
        }
        #[derive(serde::Serialize)]
        struct Function<'a> {
            name: &'a str,
            description: &'a str,
            parameters: &'a Written,
        }
        let tools = self.tools.iter().map(|tool| Tool {
            r#type: "function",
            function: Function { name: &tool.name, description: &tool.description, parameters: &tool.schema },
        });
        let mut map = serializer.serialize_map(None)?;
        if !self.rest.contains_key("model") {
            map.serialize_entry("model", self.model)?;
        }
        map.serialize_entry("messages", &self.messages)?;
        if !self.tools.is_empty() && !self.rest.contains_key("tools") {
            map.serialize_entry("tools", &tools.collect::<Vec<_>>())?;
        }
        for (name, value) in &self.rest {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The body of a streaming chat completion.
pub fn request<'a>(prompt: &'a Prompt, model: &'a str) -> Body<'a> {
    let Prompt { system, messages, tools, settings } = prompt;
    // Strict chat templates accept one system message only, and only as the first.
    let mut wire = Vec::with_capacity(messages.len() + 1);
    let system = system.iter().filter(|text| !text.trim().is_empty()).map(String::as_str).collect::<Vec<_>>();
    let system = system.join("\n\n");
    if !system.is_empty() {
        wire.push(object([("role", "system".into()), ("content", system.into())]));
    }
    Messages { out: &mut wire }.add(messages);
    let mut body = JsonMap::new();
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
    let options = settings.options.iter().filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str()));
    body.extend(options.map(|(name, value)| (name.clone(), value.clone())));
    Body { model, messages: wire, tools, rest: body }
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
    fn add(&mut self, messages: &[PromptMessage]) {
        // Thinking goes back only within the turn that it belongs to: vendors that want it back want it there, and
        // refuse or ignore it later.
        let turn = messages.iter().rposition(|message| matches!(message, PromptMessage::User(_))).unwrap_or(0);
        let mut messages: Vec<Option<&PromptMessage>> = messages.iter().map(Some).collect();
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

    fn user<'c>(&mut self, content: impl IntoIterator<Item = &'c Content>) {
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
    fn assistant<'c>(&mut self, content: &'c [AssistantContent], current: bool) -> Vec<&'c str> {
        let (mut text, mut thinking) = (String::new(), String::new());
        let (mut calls, mut ids) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for piece in content {
            match piece {
                AssistantContent::Text(more) => text.push_str(more),
                AssistantContent::Reasoning { text: more, .. } => thinking.push_str(more),
                AssistantContent::ToolCall { id, name, input } => {
                    if seen.insert(id.as_str()) {
                        calls.push(call(id, name, input));
                        ids.push(id.as_str());
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
    fn results(&mut self, results: Vec<Cow<'_, ToolResult>>) {
        let mut attached = Vec::new();
        for result in &results {
            if !result.attachments.is_empty() {
                attached.push(Cow::Owned(Content::Text(format!("Attached to the result of {}:", result.name))));
                attached.extend(result.attachments.iter().map(Cow::Borrowed));
            }
            let text = if result.output.is_empty() { "(no output)" } else { &result.output };
            self.out.push(object([
                ("role", "tool".into()),
                ("tool_call_id", result.id.as_str().into()),
                ("content", text.into()),
            ]));
        }
        if !attached.is_empty() {
            self.user(attached.iter().map(AsRef::as_ref));
        }
    }
}

/// The result of a call: it comes before the model speaks again. Ids may come back in later messages.
fn take_result<'a>(rest: &mut [Option<&'a PromptMessage>], id: &str) -> Cow<'a, ToolResult> {
    for message in rest {
        match message.take() {
            Some(PromptMessage::Tool(result)) if result.id == id => return Cow::Borrowed(result),
            Some(next @ PromptMessage::Assistant(_)) => {
                *message = Some(next);
                break;
            }
            other => *message = other,
        }
    }
    let (id, output) = (id.to_owned(), NO_RESULT.to_owned());
    Cow::Owned(ToolResult { id, output, is_error: true, ..ToolResult::default() })
}

fn part(content: &Content) -> Option<Json> {
    match content {
        Content::Text(text) if text.trim().is_empty() => None,
        Content::Text(text) => Some(object([("type", "text".into()), ("text", text.as_str().into())])),
        Content::Image { data_url, .. } => {
            Some(object([("type", "image_url".into()), ("image_url", object([("url", data_url.as_str().into())]))]))
        }
        Content::File { filename, data_url, .. } => {
            let file = object([("filename", filename.as_str().into()), ("file_data", data_url.as_str().into())]);
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

fn call(id: &str, name: &str, input: &Json) -> Json {
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
