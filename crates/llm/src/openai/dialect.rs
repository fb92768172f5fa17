//! How servers that speak chat completions differ: as data, so that request builder and decoder know no vendor.

use api::Json;

/// The field in which most servers give reasoning and take it back.
const USUAL_FIELD: &str = "reasoning_content";

/// How a server differs from others that speak chat completions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatDialect {
    /// Under which name its data is kept on parts.
    pub vendor: String,
    /// The field of an assistant message that takes reasoning back; `None` if the server knows none, or refuses it.
    pub reasoning: Option<ReasoningField>,
    /// Ids of calls have exactly nine letters and digits.
    pub nine_character_ids: bool,
    /// It speaks of usage and of reasoning as OpenRouter does.
    pub is_openrouter: bool,
    /// It takes the id of the conversation as the key of its cache.
    pub has_cache_key: bool,
    /// It is OpenAI itself, which refuses options of its other wire.
    pub is_openai: bool,
}

/// A field that takes reasoning back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningField {
    /// Its name.
    pub name: String,
    /// Whether it is sent even if there was no reasoning: models whose catalogue entry names the field refuse messages
    /// without it.
    pub is_required: bool,
}

impl ChatDialect {
    /// The dialect of a model. `npm` is the AI SDK's package for its provider, `interleaved` the catalogue's word on
    /// where its reasoning goes: a flag, or the name of a field.
    pub fn of(provider: &str, npm: &str, model: &str, interleaved: &Json) -> Self {
        let package = npm.strip_prefix("@ai-sdk/").unwrap_or(npm);
        let is = |vendor: &str| provider == vendor || package == vendor;
        let is_openrouter = provider == "openrouter" || npm.starts_with("@openrouter/");
        let model = model.to_lowercase();
        let usual = match () {
            // They refuse messages with fields that they do not know.
            () if is("openai") || is("xai") || is("mistral") => None,
            () if is_openrouter || is("groq") => Some("reasoning"),
            () => Some(USUAL_FIELD),
        };
        let named = interleaved.as_str().or_else(|| interleaved.get("field")?.as_str()).filter(|name| !name.is_empty());
        let reasoning = match named {
            // Details go back wherever a server has given some; they are no text.
            Some("reasoning_details") => usual.map(|name| (name, false)),
            Some(name) => Some((name, true)),
            None if interleaved == &Json::Bool(true) => Some((usual.unwrap_or(USUAL_FIELD), false)),
            None => usual.map(|name| (name, false)),
        };
        Self {
            vendor: if is_openrouter { "openrouter" } else { provider }.to_owned(),
            reasoning: reasoning.map(|(name, is_required)| ReasoningField { name: name.to_owned(), is_required }),
            nine_character_ids: is("mistral") || model.contains("mistral") || model.contains("devstral"),
            is_openrouter,
            has_cache_key: provider == "openai" || is("mistral"),
            is_openai: provider == "openai",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn where_reasoning_goes_back() {
        for (provider, npm, interleaved, field) in [
            ("mine", "@ai-sdk/openai-compatible", json!(false), Some(("reasoning_content", false))),
            ("mine", "@ai-sdk/openai-compatible", json!(true), Some(("reasoning_content", false))),
            ("mine", "@ai-sdk/openai-compatible", json!({"field": "reasoning"}), Some(("reasoning", true))),
            ("mine", "@ai-sdk/openai-compatible", json!("thinking"), Some(("thinking", true))),
            (
                "mine",
                "@ai-sdk/openai-compatible",
                json!({"field": "reasoning_details"}),
                Some(("reasoning_content", false)),
            ),
            (
                "openrouter",
                "@ai-sdk/openai-compatible",
                json!({"field": "reasoning_details"}),
                Some(("reasoning", false)),
            ),
            ("or", "@openrouter/ai-sdk-provider", json!(false), Some(("reasoning", false))),
            ("groq", "@ai-sdk/groq", json!(null), Some(("reasoning", false))),
            (
                "deepseek",
                "@ai-sdk/openai-compatible",
                json!({"field": "reasoning_content"}),
                Some(("reasoning_content", true)),
            ),
            ("openai", "@ai-sdk/openai", json!(false), None),
            ("mistral", "@ai-sdk/openai-compatible", json!(false), None),
            ("xai", "@ai-sdk/xai", json!(false), None),
            ("xai", "@ai-sdk/xai", json!(true), Some(("reasoning_content", false))),
        ] {
            let dialect = ChatDialect::of(provider, npm, "m", &interleaved);
            let found = dialect.reasoning.as_ref().map(|field| (field.name.as_str(), field.is_required));
            assert_eq!(found, field, "{provider} {npm} {interleaved}");
        }
    }

    #[test]
    fn vendors_and_families() {
        let of = |provider: &str, npm: &str, model: &str| ChatDialect::of(provider, npm, model, &json!(false));
        assert!(of("mistral", "", "x").nine_character_ids && of("p", "@ai-sdk/mistral", "x").nine_character_ids);
        assert!(of("p", "", "Devstral-Small").nine_character_ids && !of("p", "", "gpt").nine_character_ids);
        assert_eq!(of("or", "@openrouter/ai-sdk-provider", "x").vendor, "openrouter");
        assert_eq!(of("groq", "@ai-sdk/groq", "x").vendor, "groq");
        assert!(of("openai", "", "x").has_cache_key && of("mistral", "", "x").has_cache_key);
        assert!(!of("p", "@ai-sdk/openai", "x").has_cache_key);
    }
}
