//! Builds the request body. Pure.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use api::{Json, JsonMap, SerializedJson};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::openai::decode::EXTRA_CONTENT;
use crate::openai::details;
use crate::openai::dialect::{ChatDialect, ReasoningField};
use crate::{AssistantContent, CachedMessage, Content, Prompt, PromptMessage, Settings, ToolResult, ToolSpec, options};

/// OpenAI's limit for a tool's name.
const MAX_NAME: usize = 64;
/// The length of Mistral's ids of calls, and what they consist of.
const SHORT_ID: usize = 9;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Body fields that options must not replace: the decoder and the conversation depend on them.
const OWN_FIELDS: [&str; 2] = ["messages", "stream"];
/// What the model reads in place of a missing result.
const NO_RESULT: &str = "No result: the call was interrupted, and whether it had an effect is unknown.";

/// A request body.
#[derive(Debug)]
pub struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    /// Serialised in place: they are long and the same for every request.
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
            parameters: &'a SerializedJson,
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
pub fn request<'a>(prompt: &'a Prompt, model: &'a str, dialect: &'a Arc<ChatDialect>) -> Body<'a> {
    let Prompt { system, messages, tools, settings } = prompt;
    // Strict chat templates accept only one system message, which must be the first.
    let mut wire = Vec::with_capacity(messages.len() + 1);
    let system = system.iter().filter(|text| !text.trim().is_empty()).map(String::as_str).collect::<Vec<_>>();
    let system = system.join("\n\n");
    if !system.is_empty() {
        wire.push(WireMessage::Built(Message::System { content: system }));
    }
    ConversationBuilder { out: &mut wire, dialect }.add(messages);
    Body { model, messages: wire, tools, rest: rest(settings, model, dialect) }
}

/// The fields besides model, messages and tools.
fn rest(settings: &Settings, model: &str, dialect: &ChatDialect) -> JsonMap {
    let options = options::for_chat(&settings.options, dialect);
    let mut body = JsonMap::new();
    body.insert("stream".into(), true.into());
    if dialect.is_openrouter {
        body.insert("usage".into(), json!({"include": true}));
    } else {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            body.insert(name.into(), value);
        }
    };
    set("temperature", settings.temperature.map(Json::from));
    set("top_p", settings.top_p.map(Json::from));
    let limited = ["max_tokens", "max_completion_tokens"].iter().any(|name| options.contains_key(*name));
    if !limited {
        set(output_limit(model), settings.max_output.map(Json::from));
    }
    let wants_key = settings.options.get("setCacheKey").and_then(Json::as_bool).unwrap_or(dialect.has_cache_key);
    set("prompt_cache_key", settings.session.as_deref().filter(|_| wants_key).map(Json::from));
    body.extend(options.into_iter().filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str())));
    body
}

/// OpenAI's reasoning models reject `max_tokens`; most other servers know nothing else.
fn output_limit(model: &str) -> &'static str {
    let name = model.rsplit('/').next().unwrap_or(model);
    if ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family)) {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

/// A message on the wire. Long texts are borrowed.
#[derive(Debug, serde::Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System { content: String },
    User { content: Parts<'a> },
    Assistant(Answer<'a>),
    Tool { tool_call_id: Cow<'a, str>, content: &'a str },
}

/// An assistant message on the wire.
#[derive(Debug)]
struct Answer<'a> {
    /// Null, not "": gateways to other vendors reject empty texts.
    content: Option<Cow<'a, str>>,
    /// The field for reasoning, and the reasoning.
    reasoning: Option<(&'a ReasoningField, String)>,
    details: Vec<&'a Json>,
    tool_calls: Vec<Json>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("content", &self.content)?;
        if let Some((field, text)) =
            self.reasoning.as_ref().filter(|(field, text)| field.is_required || !text.is_empty())
        {
            map.serialize_entry(&field.name, text)?;
        }
        if !self.details.is_empty() {
            map.serialize_entry(details::FIELD, &self.details)?;
        }
        if !self.tool_calls.is_empty() {
            map.serialize_entry("tool_calls", &self.tool_calls)?;
        }
        map.end()
    }
}

impl Answer<'_> {
    /// Puts an earlier message without calls before this one.
    fn prepend(&mut self, earlier: Answer<'_>) {
        let joined = |a: &str, b: &str| [a, b].join("\n\n").trim_end().to_owned();
        let (before, text) =
            (earlier.content.as_deref().unwrap_or_default(), self.content.as_deref().unwrap_or_default());
        self.content = Some(joined(before, text).into());
        if let (Some((_, thought)), Some((_, before))) = (&mut self.reasoning, earlier.reasoning.as_ref()) {
            *thought = match (before.is_empty(), thought.is_empty()) {
                (true, _) => std::mem::take(thought),
                (false, true) => before.clone(),
                (false, false) => joined(before, thought),
            };
        }
    }
}

/// Text-only content is sent as one string: small servers do not support lists of parts.
#[derive(Debug)]
struct Parts<'a>(Vec<Part<'a>>);

#[derive(Debug, serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: Address<'a> },
    File { file: File<'a> },
}

#[derive(Debug, serde::Serialize)]
struct Address<'a> {
    url: &'a str,
}

#[derive(Debug, serde::Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: &'a str,
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = self.0.iter().map(|part| if let Part::Text { text } = part { Some(&**text) } else { None });
        match texts.collect::<Option<Vec<&str>>>().as_deref() {
            Some([text]) => serializer.serialize_str(text),
            Some(texts) => serializer.serialize_str(&texts.join("\n\n")),
            None => self.0.serialize(serializer),
        }
    }
}

/// A message of the body: one that is already serialised, or one built for this request.
#[derive(Debug)]
enum WireMessage<'a> {
    /// The message and its JSON.
    Cached(&'a PromptMessage, Arc<RawValue>),
    Built(Message<'a>),
}

impl Serialize for WireMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Cached(_, text) => text.serialize(serializer),
            Self::Built(message) => message.serialize(serializer),
        }
    }
}

impl<'a> WireMessage<'a> {
    /// The wire form of a message that stands alone. Its JSON is cached with it: a long conversation is serialised
    /// once, not with every request.
    fn of(message: &'a CachedMessage, dialect: &'a Arc<ChatDialect>) -> Option<Self> {
        let text = message
            .wire(dialect, |message| standalone(message, dialect).and_then(|message| to_raw_value(&message).ok()))?;
        Some(Self::Cached(message, text))
    }

    fn is_user(&self) -> bool {
        match self {
            Self::Cached(message, _) => matches!(message, PromptMessage::User(_)),
            Self::Built(message) => matches!(message, Message::User { .. }),
        }
    }

    /// Whether it is an assistant message without calls.
    fn is_plain_assistant(&self) -> bool {
        match self {
            Self::Cached(message, _) => matches!(message, PromptMessage::Assistant(content) if !has_calls(content)),
            Self::Built(message) => matches!(message, Message::Assistant(answer) if answer.tool_calls.is_empty()),
        }
    }

    /// The message in a form that can be changed.
    fn into_message(self, dialect: &'a ChatDialect) -> Option<Message<'a>> {
        match self {
            Self::Cached(message, _) => standalone(message, dialect),
            Self::Built(message) => Some(message),
        }
    }
}

/// The wire form of a message if nothing is joined with it. `None` if it is empty.
fn standalone<'a>(message: &'a PromptMessage, dialect: &'a ChatDialect) -> Option<Message<'a>> {
    match message {
        PromptMessage::User(content) => Some(Message::User { content: Parts(parts(content)) }),
        PromptMessage::Assistant(content) => assistant(content, dialect).map(Message::Assistant),
        PromptMessage::Tool(result) => Some(tool(&result.id, Some(result), dialect)),
    }
}

fn has_calls(content: &[AssistantContent]) -> bool {
    content.iter().any(|piece| matches!(piece, AssistantContent::ToolCall { .. }))
}

/// Builds a conversation that strict servers accept: each call is followed by exactly one result, roles alternate where
/// possible, and no message is empty.
///
/// A message has the same form in every request, whatever follows it: vendors cache what repeats the request before.
struct ConversationBuilder<'a, 'o> {
    out: &'o mut Vec<WireMessage<'a>>,
    dialect: &'a Arc<ChatDialect>,
}

impl<'a> ConversationBuilder<'a, '_> {
    fn add(&mut self, messages: &'a [CachedMessage]) {
        let mut messages: Vec<Option<&CachedMessage>> = messages.iter().map(Some).collect();
        for at in 0..messages.len() {
            let Some(message) = messages[at].take() else { continue };
            match &**message {
                PromptMessage::User(content) => {
                    if self.out.last().is_some_and(WireMessage::is_user) {
                        self.user(parts(content));
                    } else {
                        self.out.extend(WireMessage::of(message, self.dialect));
                    }
                }
                PromptMessage::Assistant(content) => {
                    self.assistant(message, content);
                    if has_calls(content) {
                        let results = ids(content).map(|id| (id, take_result(&mut messages[at + 1..], id)));
                        let results = results.collect();
                        self.results(results);
                    }
                }
                // A result without its call: servers reject the whole request because of it.
                PromptMessage::Tool(_) => {}
            }
        }
    }

    /// Appends user content to a preceding user message, or adds a new message.
    fn user(&mut self, mut parts: Vec<Part<'a>>) {
        let before = self.out.pop_if(|line| line.is_user()).and_then(|line| line.into_message(self.dialect));
        let content = match before {
            Some(Message::User { content: Parts(mut before) }) => {
                before.append(&mut parts);
                before
            }
            _ => parts,
        };
        self.out.push(WireMessage::Built(Message::User { content: Parts(content) }));
    }

    /// Adds an assistant message, joined with one before it.
    fn assistant(&mut self, message: &'a CachedMessage, content: &'a [AssistantContent]) {
        if !self.out.last().is_some_and(WireMessage::is_plain_assistant) {
            self.out.extend(WireMessage::of(message, self.dialect));
            return;
        }
        let Some(mut answer) = assistant(content, self.dialect) else { return };
        if let Some(Message::Assistant(mut before)) = self.out.pop().and_then(|line| line.into_message(self.dialect)) {
            before.details.append(&mut answer.details);
            answer.details = std::mem::take(&mut before.details);
            answer.prepend(before);
        }
        self.out.push(WireMessage::Built(Message::Assistant(answer)));
    }

    /// Adds the results of a message's calls, then their attachments: a result can only be text.
    fn results(&mut self, results: Vec<(&'a str, Option<&'a CachedMessage>)>) {
        let mut attached = Vec::new();
        for (id, message) in results {
            let result = message.and_then(result_of);
            if let Some(result) = result.filter(|result| !result.attachments.is_empty()) {
                attached.push(Part::Text { text: format!("Attached to the result of {}:", result.name).into() });
                attached.extend(result.attachments.iter().filter_map(part));
            }
            let line = message.and_then(|message| WireMessage::of(message, self.dialect));
            self.out.push(line.unwrap_or_else(|| WireMessage::Built(tool(id, result, self.dialect))));
        }
        if !attached.is_empty() {
            self.user(attached);
        }
    }
}

/// The parts of user content; never empty.
fn parts(content: &[Content]) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = content.iter().filter_map(part).collect();
    if parts.is_empty() {
        parts.push(Part::Text { text: "(no text)".into() });
    }
    parts
}

/// The wire form of an assistant message. `None` if it has neither text nor calls. What a vendor ran itself has no form
/// here.
fn assistant<'a>(content: &'a [AssistantContent], dialect: &'a ChatDialect) -> Option<Answer<'a>> {
    let (mut text, mut thinking) = (Cow::Borrowed(""), String::new());
    let (mut tool_calls, mut returned) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for piece in content {
        match piece {
            // Copies only if there are several pieces.
            AssistantContent::Text { text: more, .. } => text += more.as_str(),
            AssistantContent::Reasoning { text: more, metadata } => {
                thinking.push_str(more);
                returned.extend(details::details(metadata, &dialect.vendor));
            }
            AssistantContent::ToolCall { id, name, input, metadata } => {
                if seen.insert(id.as_str()) {
                    let mut call = call(&wire_id(id, dialect), name, input);
                    if let Some(extra) = metadata.get(&dialect.vendor).and_then(|data| data.get(EXTRA_CONTENT)) {
                        call[EXTRA_CONTENT] = extra.clone();
                    }
                    tool_calls.push(call);
                }
            }
            AssistantContent::VendorCall { .. } => {}
        }
    }
    let content = Some(text).filter(|text| !text.trim().is_empty());
    if content.is_none() && tool_calls.is_empty() {
        return None;
    }
    let reasoning = dialect.reasoning.as_ref().map(|field| (field, thinking));
    Some(Answer { content, reasoning, details: returned, tool_calls })
}

/// An id that the server accepts. The same id has the same form in every request.
fn wire_id<'a>(id: &'a str, dialect: &ChatDialect) -> Cow<'a, str> {
    let fits = id.len() == SHORT_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !dialect.nine_character_ids || fits { id.into() } else { short_id(id).into() }
}

/// Nine letters and digits for any id. Two ids of a conversation have the same one less often than disks fail.
fn short_id(id: &str) -> String {
    // FNV-1a of 64 bits, then a finaliser, since ids often differ in their last character alone.
    let mut hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    let mut short = String::with_capacity(SHORT_ID);
    for _ in 0..SHORT_ID {
        short.push(char::from(LETTERS[(hash % LETTERS.len() as u64) as usize]));
        hash /= LETTERS.len() as u64;
    }
    short
}

/// The ids of the model's calls, without duplicates.
fn ids(content: &[AssistantContent]) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    let ids = content.iter().filter_map(|piece| match piece {
        AssistantContent::ToolCall { id, .. } => Some(id.as_str()),
        _ => None,
    });
    ids.filter(move |id| seen.insert(*id))
}

fn result_of(message: &CachedMessage) -> Option<&ToolResult> {
    match &**message {
        PromptMessage::Tool(result) => Some(result),
        _ => None,
    }
}

fn tool<'a>(id: &'a str, result: Option<&'a ToolResult>, dialect: &ChatDialect) -> Message<'a> {
    let output = result.map_or(NO_RESULT, |result| result.output.as_str());
    Message::Tool {
        tool_call_id: wire_id(id, dialect),
        content: if output.is_empty() { "(no output)" } else { output },
    }
}

/// Takes the result of a call, which comes before the model's next message. Later messages may reuse the id.
fn take_result<'a>(rest: &mut [Option<&'a CachedMessage>], id: &str) -> Option<&'a CachedMessage> {
    for message in rest {
        match message.map(|message| &**message) {
            Some(PromptMessage::Tool(result)) if result.id == id => return message.take(),
            Some(PromptMessage::Assistant(_)) => break,
            _ => {}
        }
    }
    None
}

fn part(content: &Content) -> Option<Part<'_>> {
    match content {
        Content::Text(text) if text.trim().is_empty() => None,
        Content::Text(text) => Some(Part::Text { text: text.into() }),
        Content::Image { data_url, .. } => Some(Part::ImageUrl { image_url: Address { url: data_url } }),
        Content::File { filename, data_url, .. } => Some(Part::File { file: File { filename, file_data: data_url } }),
    }
}

fn call(id: &str, name: &str, input: &Json) -> Json {
    let arguments = match input {
        Json::Object(_) => input.to_string(),
        Json::Null => "{}".to_owned(),
        // The model's broken arguments; servers parse them again and expect an object.
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

#[cfg(test)]
mod tests;
