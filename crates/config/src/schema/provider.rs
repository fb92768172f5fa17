//! Providers and their models: their keys, and the types that they are read into.

use std::fmt;

use api::{Json, JsonMap, ModelStatus};
use indexmap::IndexMap;

use crate::schema::Shape::{self, Any, Count, Either, Flag, List, Map, Number, Object, Open, Text, Word};
use crate::schema::section::section;

const TIMEOUT: Shape = Either(&[Count(1), Flag]);
const OPTIONS: Shape = Open(&[
    ("apiKey", Text),
    ("baseURL", Text),
    ("enterpriseUrl", Text),
    ("headers", Map(&Text)),
    ("setCacheKey", Flag),
    ("timeout", TIMEOUT),
    ("headerTimeout", TIMEOUT),
    ("chunkTimeout", TIMEOUT),
]);
const KINDS: Shape = List(&Word(&["text", "audio", "image", "video", "pdf"]));
/// The prices of a long context.
const LONG_CONTEXT: Shape =
    Object(&[("input", Number), ("output", Number), ("cache_read", Number), ("cache_write", Number)]);

section! {
    /// A provider. Its options contain keys, so they are not logged.
    ProviderConfig {
        "api": Text => {
            /// Its base URL, if `options.baseURL` is not set.
            api: Option<String>
        },
        "name": Text => {
            /// Its display name.
            name: Option<String>
        },
        "env": List(&Text) => {
            /// The environment variables that may hold its key.
            env: Option<Vec<String>>
        },
        "id": Text,
        "npm": Text => {
            /// The AI SDK package, which identifies its wire format.
            npm: Option<String>
        },
        "whitelist": List(&Text) => {
            /// If set, the only models that may be used.
            whitelist: Option<Vec<String>>
        },
        "blacklist": List(&Text) => {
            /// Models that must not be used.
            blacklist: Vec<String>
        },
        "options": OPTIONS => {
            /// `baseURL`, `apiKey`, `headers`, timeouts and other options.
            options: JsonMap
        },
        "models": Map(&Object(ModelConfig::KEYS)) => {
            /// Its models by id.
            models: IndexMap<String, ModelConfig>
        },
    }
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

section! {
    /// A model of a provider.
    #[derive(Debug, PartialEq)]
    ModelConfig {
        "id": Text => {
            /// The vendor's name for it, if it differs from its key.
            id: Option<String>
        },
        "name": Text => {
            /// Its display name.
            name: Option<String>
        },
        "family": Text => {
            /// Its family.
            family: Option<String>
        },
        "release_date": Text => {
            /// Its release date.
            release_date: Option<String>
        },
        "attachment": Flag => {
            /// It accepts files.
            attachment: Option<bool>
        },
        "reasoning": Flag => {
            /// It reasons.
            reasoning: Option<bool>
        },
        "temperature": Flag => {
            /// It accepts a temperature.
            temperature: Option<bool>
        },
        "tool_call": Flag => {
            /// It calls tools.
            tool_call: Option<bool>
        },
        "interleaved": Either(&[Flag, Text, Object(&[("field", Text)])]) => {
            /// Whether reasoning is interleaved with text, or the field of the answer that carries it.
            interleaved: Option<Json>
        },
        "cost": Object(PriceConfig::KEYS) => {
            /// Prices per million tokens.
            cost: Option<PriceConfig>
        },
        "limit": Object(LimitConfig::KEYS) => {
            /// Its token limits.
            limit: Option<LimitConfig>
        },
        "modalities": Object(ModalitiesConfig::KEYS) => {
            /// Kinds of content.
            modalities: Option<ModalitiesConfig>
        },
        "experimental": Flag,
        "status": Word(&["alpha", "beta", "deprecated", "active"]) => {
            /// Its release stage.
            status: Option<ModelStatus>
        },
        "provider": Object(ModelProviderConfig::KEYS) => {
            /// A wire format or URL other than its provider's.
            provider: ModelProviderConfig
        },
        "options": Map(&Any) => {
            /// Options to put into the request.
            options: JsonMap
        },
        "headers": Map(&Text) => {
            /// Headers to send with the request.
            headers: IndexMap<String, String>
        },
        "variants": Map(&Map(&Any)) => {
            /// Named sets of options.
            variants: IndexMap<String, JsonMap>
        },
    }
}

section! {
    /// Prices in US dollars per million tokens.
    #[derive(Debug, PartialEq)]
    PriceConfig {
        "input": Number => {
            /// Uncached input.
            input: f64
        },
        "output": Number => {
            /// Output.
            output: f64
        },
        "cache_read": Number => {
            /// Tokens read from the cache.
            cache_read: f64
        },
        "cache_write": Number => {
            /// Tokens written to the cache.
            cache_write: f64
        },
        "context_over_200k": LONG_CONTEXT,
    }
}

section! {
    /// Token limits of a model; 0 means unknown.
    #[derive(Debug, PartialEq)]
    LimitConfig {
        "context": Count(0) => {
            /// Input and output together.
            context: u64
        },
        "input": Count(0) => {
            /// Input alone.
            input: Option<u64>
        },
        "output": Count(0) => {
            /// Output.
            output: u64
        },
    }
}

section! {
    /// Kinds of content that a model accepts and produces.
    #[derive(Debug, PartialEq)]
    ModalitiesConfig {
        "input": KINDS => {
            /// What it accepts.
            input: Option<Vec<String>>
        },
        "output": KINDS => {
            /// What it produces.
            output: Option<Vec<String>>
        },
    }
}

section! {
    /// A wire format or URL for one model.
    #[derive(Debug, PartialEq)]
    ModelProviderConfig {
        "npm": Text => {
            /// The AI SDK package, which identifies the wire format.
            npm: Option<String>
        },
        "api": Text => {
            /// The base URL.
            api: Option<String>
        },
    }
}
