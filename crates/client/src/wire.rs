//! Wire formats that differ from the [`Host`](api::Host) types.

use std::borrow::Cow;

use api::{
    CommandInput, FindTextMatch, HostError, Json, Message, MessageId, ModelRef, PromptInput, Provider, UpdateSession,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

/// An event of `/global/event`.
#[derive(Deserialize)]
pub struct Envelope<'a> {
    /// The directory; empty for events that belong to none.
    #[serde(borrow, default)]
    pub directory: Cow<'a, str>,
    /// The project.
    #[serde(borrow, default)]
    pub project: Cow<'a, str>,
    /// The event.
    #[serde(borrow)]
    pub payload: &'a RawValue,
}

/// The reason for a gap in a `server.resync` event.
pub fn resync_reason(json: &[u8]) -> String {
    let event: Json = serde_json::from_slice(json).unwrap_or_default();
    event["properties"]["reason"].as_str().unwrap_or("the server has no events after the last one received").to_owned()
}

/// Serializes a request body without null fields: OpenCode only knows absent ones.
pub fn body(value: &impl Serialize) -> Result<Json, HostError> {
    let unfit = |error| HostError::Invalid(format!("The request cannot be written as JSON: {error}"));
    let mut json = serde_json::to_value(value).map_err(unfit)?;
    if let Some(map) = json.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    Ok(json)
}

/// The body of a prompt.
pub fn prompt(input: PromptInput) -> Result<Json, HostError> {
    let variant = input.variant.clone().or_else(|| input.model.as_ref()?.variant.clone());
    let model = input.model.as_ref().map(model);
    let mut json = body(&PromptInput { variant, model: None, ..input })?;
    if let Some(model) = model {
        json["model"] = model;
    }
    Ok(json)
}

/// A model, where the variant has its own field.
pub fn model(model: &ModelRef) -> Json {
    json!({"providerID": model.provider_id, "modelID": model.model_id})
}

/// The body of a command.
pub fn command(input: &CommandInput) -> Result<Json, HostError> {
    let target = &input.target;
    body(&json!({
        "command": input.command,
        "arguments": input.arguments,
        "agent": target.agent,
        "model": target.model.as_ref().map(ModelRef::to_string),
        "variant": target.variant.as_ref().or(target.model.as_ref().and_then(|model| model.variant.as_ref())),
        "messageID": target.message_id,
        "parts": (!input.parts.is_empty()).then_some(&input.parts),
    }))
}

/// The body of a session update. Only Trefoil knows agent and model.
pub fn session_update(change: &UpdateSession, is_trefoil: bool) -> Result<Json, HostError> {
    body(&json!({
        "title": change.title,
        "metadata": change.metadata,
        "permission": change.permission,
        "time": change.archived.map(|archived| json!({"archived": archived})),
        "agent": change.agent.as_ref().filter(|_| is_trefoil),
        "model": change.model.as_ref().filter(|_| is_trefoil),
    }))
}

/// OpenCode's cursor for the messages before this one.
pub fn cursor(message: &Message) -> String {
    URL_SAFE_NO_PAD.encode(json!({"id": message.id(), "time": message.created()}).to_string())
}

/// A matching line in ripgrep's format.
#[derive(Deserialize)]
pub struct RipgrepMatch {
    path: Text,
    lines: Text,
    line_number: u64,
    absolute_offset: u64,
    submatches: Vec<Submatch>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Submatch {
    start: u64,
    end: u64,
}

impl From<RipgrepMatch> for FindTextMatch {
    fn from(found: RipgrepMatch) -> Self {
        let RipgrepMatch { path, lines, line_number, absolute_offset, submatches } = found;
        let matches = submatches.into_iter().map(|part| (part.start, part.end)).collect();
        Self { path: path.text, line: lines.text, line_number, offset: absolute_offset, matches }
    }
}

/// The response of `/config/providers`.
#[derive(Deserialize)]
pub struct ProvidersResponse {
    /// The providers.
    pub providers: Vec<Provider>,
    /// The default model of each provider.
    #[serde(default)]
    pub default: IndexMap<String, String>,
}

/// The response to steering a turn.
#[derive(Deserialize)]
pub struct SteerResponse {
    /// The message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
}

/// The user messages that are waiting for an answer, given all messages of a session: those after the last message that
/// ended a turn.
pub fn unanswered<'a>(messages: impl DoubleEndedIterator<Item = &'a Message>) -> Vec<MessageId> {
    let ends_turn = |message: &Message| {
        message.as_assistant().is_some_and(|answer| {
            let goes_on = answer.error.is_none() && answer.finish.as_deref() == Some("tool-calls");
            answer.time.completed.is_some() && !goes_on
        })
    };
    let newest_first = messages.rev().take_while(|message| !ends_turn(message));
    let mut ids: Vec<MessageId> = newest_first.filter_map(Message::as_user).map(|message| message.id.clone()).collect();
    ids.reverse();
    ids
}
