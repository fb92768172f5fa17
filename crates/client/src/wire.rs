//! What the wire has in other shapes than the [`Host`](api::Host).

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
    /// Where; empty for what is everywhere.
    #[serde(borrow, default)]
    pub directory: Cow<'a, str>,
    /// The project.
    #[serde(borrow, default)]
    pub project: Cow<'a, str>,
    /// The event.
    #[serde(borrow)]
    pub payload: &'a RawValue,
}

/// The type of an event.
pub fn kind(json: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_slice::<Kind<'_>>(json).ok().map(|event| event.kind)
}

/// Why a `server.resync` says that there is a gap.
pub fn reason(json: &[u8]) -> String {
    let event: Json = serde_json::from_slice(json).unwrap_or_default();
    event["properties"]["reason"].as_str().unwrap_or("the server has no events after the last one received").to_owned()
}

/// A request's body out of a value, without the fields that are null: OpenCode knows absent fields only.
pub fn body(value: &impl Serialize) -> Result<Json, HostError> {
    let unfit = |error| HostError::Invalid(format!("The request cannot be written as JSON: {error}"));
    let mut json = serde_json::to_value(value).map_err(unfit)?;
    if let Some(map) = json.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    Ok(json)
}

/// A prompt.
pub fn prompt(input: PromptInput) -> Result<Json, HostError> {
    let variant = input.variant.clone().or_else(|| input.model.as_ref()?.variant.clone());
    let model = input.model.as_ref().map(model);
    let mut json = body(&PromptInput { variant, model: None, ..input })?;
    if let Some(model) = model {
        json["model"] = model;
    }
    Ok(json)
}

/// A model where the variant has a field of its own.
pub fn model(model: &ModelRef) -> Json {
    json!({"providerID": model.provider_id, "modelID": model.model_id})
}

/// A command.
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

/// A change of a session. Another server than ours would not know the agent and the model.
pub fn change(change: &UpdateSession, is_trefoil: bool) -> Result<Json, HostError> {
    body(&json!({
        "title": change.title,
        "metadata": change.metadata,
        "permission": change.permission,
        "time": change.archived.map(|archived| json!({"archived": archived})),
        "agent": change.agent.as_ref().filter(|_| is_trefoil),
        "model": change.model.as_ref().filter(|_| is_trefoil),
    }))
}

/// OpenCode's cursor to the messages before one.
pub fn cursor(message: &Message) -> String {
    URL_SAFE_NO_PAD.encode(json!({"id": message.id(), "time": message.created()}).to_string())
}

/// A line that matches, as ripgrep writes it.
#[derive(Deserialize)]
pub struct Found {
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

impl From<Found> for FindTextMatch {
    fn from(found: Found) -> Self {
        let Found { path, lines, line_number, absolute_offset, submatches } = found;
        let matches = submatches.into_iter().map(|part| (part.start, part.end)).collect();
        Self { path: path.text, line: lines.text, line_number, offset: absolute_offset, matches }
    }
}

/// What `/config/providers` answers.
#[derive(Deserialize)]
pub struct Providers {
    /// The providers.
    pub providers: Vec<Provider>,
    /// The model of each that is used if none is named.
    #[serde(default)]
    pub default: IndexMap<String, String>,
}

/// What a message for a running turn became.
#[derive(Deserialize)]
pub struct Steered {
    /// The message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
}

/// Where a part belongs, whatever its kind.
#[derive(Deserialize)]
pub struct Place {
    /// The part.
    pub id: String,
    /// Its session.
    #[serde(rename = "sessionID")]
    pub session_id: String,
    /// Its message.
    #[serde(rename = "messageID")]
    pub message_id: String,
}

/// The messages of a session that wait for an answer, out of all its messages: those of the human after the last one that
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
