//! Options of configurations have the AI SDK's names, and each wire has its own. Pure.
//!
//! What no table names passes through unchanged: vendors have more options than anybody lists. The name on the wire
//! works as well, and a later layer of options replaces an earlier one in either spelling.

use api::{Json, JsonMap};

use crate::ChatDialect;

/// The AI SDK's name, and that of chat completions.
const CHAT: [(&str, &str); 24] = [
    ("reasoningEffort", "reasoning_effort"),
    ("textVerbosity", "verbosity"),
    ("maxTokens", "max_tokens"),
    ("maxOutputTokens", "max_tokens"),
    ("maxCompletionTokens", "max_completion_tokens"),
    ("parallelToolCalls", "parallel_tool_calls"),
    ("serviceTier", "service_tier"),
    ("promptCacheKey", "prompt_cache_key"),
    ("promptCacheRetention", "prompt_cache_retention"),
    ("safetyIdentifier", "safety_identifier"),
    ("logitBias", "logit_bias"),
    ("topLogprobs", "top_logprobs"),
    ("topP", "top_p"),
    ("topK", "top_k"),
    ("frequencyPenalty", "frequency_penalty"),
    ("presencePenalty", "presence_penalty"),
    ("reasoningFormat", "reasoning_format"),
    ("includeReasoning", "include_reasoning"),
    ("searchParameters", "search_parameters"),
    ("safePrompt", "safe_prompt"),
    ("documentImageLimit", "document_image_limit"),
    ("documentPageLimit", "document_page_limit"),
    ("enableThinking", "enable_thinking"),
    ("thinkingBudget", "thinking_budget"),
];
/// Settings of the provider that older configurations have among the options of a model; no server knows them.
const LOCAL: [&str; 1] = ["setCacheKey"];
/// Options of OpenAI's other wire. OpenAI refuses them here.
const RESPONSES_ONLY: [&str; 2] = ["reasoningSummary", "include"];

/// Puts options over others: each replaces an earlier one of its name, in either spelling.
pub fn overlay(options: &mut JsonMap, over: JsonMap) {
    for (name, value) in over {
        let wire = wire_name(&name);
        let same = |other: &str| other != name && (other == wire || wire_name(other) == wire);
        options.retain(|other, _| !same(other));
        options.insert(name, value);
    }
}

/// How many tokens the options grant to thinking, beside the answer.
pub fn thinking_budget(options: &JsonMap) -> Option<u64> {
    let thinking = options.get("thinking")?;
    let is_off = thinking.get("type").and_then(Json::as_str) == Some("disabled");
    let budget = ["budgetTokens", "budget_tokens"].iter().find_map(|name| thinking.get(*name)?.as_u64());
    budget.filter(|budget| *budget > 0 && !is_off)
}

/// The options as chat completions spell them.
pub(crate) fn for_chat(options: &JsonMap, dialect: &ChatDialect) -> JsonMap {
    let mut body = JsonMap::new();
    for (name, value) in options {
        match name.as_str() {
            name if LOCAL.contains(&name) => {}
            "reasoningSummary" => {}
            name if dialect.is_openai && RESPONSES_ONLY.contains(&name) => {}
            "thinking" if dialect.is_openrouter => {
                reason(&mut body, "max_tokens", thinking_budget(options).map(Json::from))
            }
            "reasoningEffort" | "reasoning_effort" if dialect.is_openrouter => {
                reason(&mut body, "effort", Some(value.clone()));
            }
            "thinking" => drop(body.insert(name.clone(), thinking(value))),
            // A name of the wire that is given as such wins.
            other => {
                let wire = wire_name(other);
                if wire == other || !options.contains_key(wire) {
                    body.insert(wire.to_owned(), value.clone());
                }
            }
        }
    }
    body
}

fn wire_name(name: &str) -> &str {
    CHAT.iter().find(|(known, _)| *known == name).map_or(name, |(_, wire)| wire)
}

/// OpenRouter has one object for what others spread over several options. What it says itself wins.
fn reason(body: &mut JsonMap, name: &str, value: Option<Json>) {
    let Some(value) = value else { return };
    let reasoning = body.entry("reasoning").or_insert_with(|| Json::Object(JsonMap::new()));
    if let Json::Object(reasoning) = reasoning {
        reasoning.entry(name).or_insert(value);
    }
}

fn thinking(value: &Json) -> Json {
    let Json::Object(map) = value else { return value.clone() };
    let rename = |name: &String| if name == "budgetTokens" { "budget_tokens".to_owned() } else { name.clone() };
    Json::Object(map.iter().map(|(name, value)| (rename(name), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Json) -> JsonMap {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn names_are_translated_and_unknown_ones_pass_through() {
        let openai = ChatDialect { is_openai: true, ..ChatDialect::default() };
        let openrouter = ChatDialect { is_openrouter: true, ..ChatDialect::default() };
        let plain = ChatDialect::default();
        for (dialect, options, body) in [
            (
                &plain,
                json!({"reasoningEffort": "high", "textVerbosity": "low"}),
                json!({"reasoning_effort": "high", "verbosity": "low"}),
            ),
            (
                &plain,
                json!({"reasoning_effort": "low", "novel": {"aB": 1}}),
                json!({"reasoning_effort": "low", "novel": {"aB": 1}}),
            ),
            (&plain, json!({"reasoningEffort": "high", "reasoning_effort": "low"}), json!({"reasoning_effort": "low"})),
            (&plain, json!({"reasoning_effort": "low", "reasoningEffort": "high"}), json!({"reasoning_effort": "low"})),
            (
                &plain,
                json!({"reasoningSummary": "auto", "setCacheKey": true, "include": ["x"]}),
                json!({"include": ["x"]}),
            ),
            (&openai, json!({"reasoningSummary": "auto", "include": ["x"], "store": false}), json!({"store": false})),
            (
                &plain,
                json!({"thinking": {"type": "enabled", "budgetTokens": 9}}),
                json!({"thinking": {"type": "enabled", "budget_tokens": 9}}),
            ),
            (&plain, json!({"thinking": true}), json!({"thinking": true})),
            (&openrouter, json!({"reasoning": {"effort": "high"}}), json!({"reasoning": {"effort": "high"}})),
            (&openrouter, json!({"reasoningEffort": "low"}), json!({"reasoning": {"effort": "low"}})),
            (
                &openrouter,
                json!({"reasoning": {"effort": "high"}, "reasoningEffort": "low"}),
                json!({"reasoning": {"effort": "high"}}),
            ),
            (
                &openrouter,
                json!({"thinking": {"type": "enabled", "budgetTokens": 9}}),
                json!({"reasoning": {"max_tokens": 9}}),
            ),
            (&openrouter, json!({"thinking": {"type": "disabled"}}), json!({})),
        ] {
            assert_eq!(for_chat(&map(options.clone()), dialect), map(body), "{options}");
        }
    }

    #[test]
    fn every_name_is_translated_once() {
        let names: std::collections::HashSet<_> = CHAT.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), CHAT.len());
        assert!(CHAT.iter().all(|(name, wire)| name != wire && wire_name(wire) == *wire));
    }

    #[test]
    fn a_later_layer_wins_in_either_spelling() {
        let mut options = map(json!({"reasoning_effort": "high", "x": 1, "maxTokens": 5}));
        overlay(&mut options, map(json!({"reasoningEffort": "low"})));
        overlay(&mut options, map(json!({"max_tokens": 6, "x": 2})));
        assert_eq!(options, map(json!({"reasoningEffort": "low", "x": 2, "max_tokens": 6})));
    }

    #[test]
    fn the_budget_of_thinking() {
        let budget = |thinking: Json| thinking_budget(&map(json!({"thinking": thinking})));
        assert_eq!(budget(json!({"type": "enabled", "budgetTokens": 16_000})), Some(16_000));
        assert_eq!(budget(json!({"budget_tokens": 1})), Some(1));
        for none in [
            json!({"type": "disabled", "budgetTokens": 5}),
            json!({"budgetTokens": 0}),
            json!({"budgetTokens": -1}),
            json!(true),
        ] {
            assert_eq!(budget(none.clone()), None, "{none}");
        }
    }
}
