//! Structured output: the model submits its answer through a tool whose schema is the requested one.

use api::{OutputFormat, Part, ToolState, UserMessage};
use llm::ToolSpec;

/// The tool that takes the answer.
pub(crate) const TOOL: &str = "StructuredOutput";
/// How often the model may submit an invalid answer, unless the prompt sets another number.
const RETRIES: u32 = 2;

/// Fills in the defaults of a requested format.
pub(crate) fn complete(format: OutputFormat) -> OutputFormat {
    match format {
        OutputFormat::JsonSchema { schema, retry_count } => {
            OutputFormat::JsonSchema { schema, retry_count: retry_count.or(Some(RETRIES)) }
        }
        OutputFormat::Text => OutputFormat::Text,
    }
}

/// The tool, if the prompt requests structured output.
pub(crate) fn spec(user: &UserMessage) -> Option<ToolSpec> {
    match &user.format {
        Some(OutputFormat::JsonSchema { schema, .. }) => Some(ToolSpec {
            name: TOOL.to_owned(),
            description: "Submits the final answer in the requested format. Call it exactly once, when the work is \
                          done; any other text is not read."
                .into(),
            schema: schema.clone().into(),
        }),
        _ => None,
    }
}

/// How often the model may submit an invalid answer.
pub(crate) fn retries(user: &UserMessage) -> u32 {
    match &user.format {
        Some(OutputFormat::JsonSchema { retry_count, .. }) => retry_count.unwrap_or(RETRIES),
        _ => 0,
    }
}

/// The submitted answer.
pub(crate) fn answer(parts: &[Part]) -> Option<api::Json> {
    parts.iter().filter_map(Part::as_tool).find_map(|tool| match &tool.state {
        ToolState::Completed(done) if tool.tool == TOOL => Some(done.input.clone()),
        _ => None,
    })
}

/// Checks an answer against required keys, enums and plain types, up to a maximum depth.
pub(crate) fn check(schema: &api::Json, value: &api::Json, path: &str, depth: u32) -> Result<(), String> {
    const DEPTH: u32 = 32;
    if depth > DEPTH {
        return Ok(());
    }
    let at = if path.is_empty() { "the answer".to_owned() } else { path.to_owned() };
    if let Some(kind) = schema.get("type").and_then(api::Json::as_str)
        && !fits(kind, value)
    {
        return Err(format!("{at} must be of type {kind}"));
    }
    if let Some(allowed) = schema.get("enum").and_then(api::Json::as_array)
        && !allowed.contains(value)
    {
        return Err(format!("{at} must be one of {}", api::Json::Array(allowed.clone())));
    }
    for key in schema.get("required").and_then(api::Json::as_array).into_iter().flatten().filter_map(|k| k.as_str()) {
        if value.get(key).is_none() {
            return Err(format!("{at} lacks the key {key:?}"));
        }
    }
    if let (Some(properties), Some(object)) =
        (schema.get("properties").and_then(api::Json::as_object), value.as_object())
    {
        for (key, inner) in properties {
            if let Some(field) = object.get(key) {
                check(inner, field, &format!("{path}.{key}"), depth + 1)?;
            }
        }
    }
    if let (Some(items), Some(array)) = (schema.get("items"), value.as_array()) {
        for (index, item) in array.iter().enumerate() {
            check(items, item, &format!("{path}[{index}]"), depth + 1)?;
        }
    }
    Ok(())
}

fn fits(kind: &str, value: &api::Json) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_invalid_answer_is_explained() {
        let schema = json!({"type": "object", "required": ["answer"], "properties": {
            "answer": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}});
        let check = |value| check(&schema, &value, "", 0);
        assert_eq!(check(json!({"answer": 42, "tags": ["a"]})), Ok(()));
        assert_eq!(check(json!([])), Err("the answer must be of type object".to_owned()));
        assert_eq!(check(json!({})), Err("the answer lacks the key \"answer\"".to_owned()));
        assert_eq!(check(json!({"answer": 1.5})), Err(".answer must be of type integer".to_owned()));
        assert!(check(json!({"answer": 1, "tags": ["c"]})).unwrap_err().starts_with(".tags[0] must be one of"));
    }
}
