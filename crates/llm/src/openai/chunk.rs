//! The chunks of a stream, typed. Lenient where servers differ: null and missing are the same, texts may be lists of
//! parts, arguments may be objects, and counts may be anything.

use std::fmt;

use api::Json;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};

use crate::Usage;

/// No model counts further; this also keeps sums far from overflow.
const MAX_TOKENS: u64 = 1_000_000_000_000;

#[derive(Debug, Default, Deserialize)]
pub struct Chunk {
    pub choices: Option<Vec<Choice>>,
    pub usage: Option<WireUsage>,
    pub error: Option<Json>,
    /// `error` in vLLM's older error chunks, which have no `error` field.
    pub object: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Choice {
    pub index: Option<Count>,
    pub delta: Option<Delta>,
    /// Replaces `delta` if the server ignored that a stream was requested.
    pub message: Option<Delta>,
    pub finish_reason: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Delta {
    pub content: Option<Text>,
    pub reasoning_content: Option<Text>,
    /// Another name for the same (OpenRouter, newer vLLM, Groq).
    pub reasoning: Option<Text>,
    /// Reasoning in pieces that go back as they came (OpenRouter, MiniMax).
    pub reasoning_details: Option<Details>,
    pub refusal: Option<Text>,
    pub tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Debug, Default, Deserialize)]
pub struct CallDelta {
    pub index: Option<Count>,
    pub id: Option<Text>,
    pub function: Option<FunctionDelta>,
    /// What a gateway wants back with the call, for example Gemini's signature.
    pub extra_content: Option<Json>,
}

/// Details of reasoning; anything but a list counts as none.
#[derive(Debug, Default)]
pub struct Details(pub Vec<Json>);

impl<'de> Deserialize<'de> for Details {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Json::deserialize(deserializer)? {
            Json::Array(list) => Self(list),
            _ => Self::default(),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
pub struct FunctionDelta {
    pub name: Option<Text>,
    pub arguments: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
pub struct WireUsage {
    prompt_tokens: Option<Count>,
    completion_tokens: Option<Count>,
    total_tokens: Option<Count>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name for cached input.
    prompt_cache_hit_tokens: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<Count>,
    cache_write_tokens: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<Count>,
}

/// The tokens that a `usage` object reports; cached input and reasoning are subtracted from the sums.
pub fn usage(wire: &WireUsage) -> Usage {
    let count = |count: Option<Count>| count.map_or(0, |count| count.0);
    let prompt = wire.prompt_tokens_details.as_ref();
    let cache_read = match prompt.and_then(|details| details.cached_tokens) {
        Some(Count(cached)) if cached > 0 => cached,
        _ => count(wire.prompt_cache_hit_tokens),
    };
    let cache_write = count(prompt.and_then(|details| details.cache_write_tokens));
    let reasoning = count(wire.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens));
    Usage {
        input: count(wire.prompt_tokens).saturating_sub(cache_read).saturating_sub(cache_write),
        output: count(wire.completion_tokens).saturating_sub(reasoning),
        reasoning,
        cache_read,
        cache_write,
        total: wire.total_tokens.map(|total| total.0).filter(|total| *total > 0),
    }
}

/// A text, in whatever form the server sends it.
#[derive(Debug, Default)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }

    /// Content as a list of parts: their texts.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<String, A::Error> {
        let mut text = String::new();
        while let Some(part) = parts.next_element::<Json>()? {
            text.push_str(part.as_str().or_else(|| part.get("text")?.as_str()).unwrap_or_default());
        }
        Ok(text)
    }

    /// Arguments as an object: their JSON.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<String, A::Error> {
        Json::deserialize(MapAccessDeserializer::new(map)).map(|value| value.to_string())
    }
}

/// A token count or an index: a whole number from 0; anything else counts as 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count(pub u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor).map(|count| Self(count.min(MAX_TOKENS)))
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E>(self, number: i64) -> Result<u64, E> {
        Ok(u64::try_from(number).unwrap_or(0))
    }

    fn visit_f64<E>(self, number: f64) -> Result<u64, E> {
        // `as` saturates: below zero and NaN give 0.
        Ok(number as u64)
    }

    fn visit_str<E>(self, text: &str) -> Result<u64, E> {
        Ok(text.trim().parse().unwrap_or(0))
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(0)
    }
}
