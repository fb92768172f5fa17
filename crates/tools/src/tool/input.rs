//! Arguments of a call: their JSON schema, and errors that name the offending key.

use api::{Json, JsonMap};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde::de::DeserializeOwned;

use crate::tool::ToolError;

/// The maximum depth of the argument check; serde checks deeper values.
const MAX_DEPTH: usize = 16;

/// Returns the schema of an argument type, and its doc comment, which is the tool's description.
pub(crate) fn schema_of<T: JsonSchema>() -> (Json, String) {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(simplify).transform(&mut schema);
    let mut schema = schema.to_value();
    let description = match schema.as_object_mut().and_then(|s| s.remove("description")) {
        Some(Json::String(text)) => text,
        _ => String::new(),
    };
    (schema, description)
}

/// Providers differ in what they support, so only plain JSON schema is sent: no null for an optional key (it is omitted
/// instead), no Rust number formats, no type names.
fn simplify(schema: &mut schemars::Schema) {
    schema.remove("format");
    schema.remove("title");
    if schema.get("default").is_some_and(Json::is_null) {
        schema.remove("default");
    }
    if let Some(Json::Array(types)) = schema.get_mut("type") {
        types.retain(|t| t != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            schema.insert("type".into(), one);
        }
    }
    if let Some(Json::Array(values)) = schema.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }
}

/// The message for the model when its arguments do not match the schema.
pub fn invalid_arguments(tool: &str, message: &str) -> String {
    format!(
        "The {tool} tool was called with invalid arguments: SchemaError({message}).\n\
         Please rewrite the input so it satisfies the expected schema."
    )
}

/// Checks and parses the arguments of a call.
pub(crate) fn parse<T: DeserializeOwned>(tool: &str, schema: &Json, mut input: Json) -> Result<T, ToolError> {
    drop_nulls(&mut input, MAX_DEPTH);
    let checked = check(schema, &input, &mut Vec::new());
    checked
        .and_then(|()| serde_json::from_value(input).map_err(|error| error.to_string()))
        .map_err(|message| ToolError::Invalid { message: invalid_arguments(tool, &message) })
}

/// Models send null for keys that they mean to omit.
fn drop_nulls(value: &mut Json, depth: usize) {
    if depth == 0 {
        return;
    }
    match value {
        Json::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(|v| drop_nulls(v, depth - 1));
        }
        Json::Array(list) => list.iter_mut().for_each(|v| drop_nulls(v, depth - 1)),
        _ => {}
    }
}

fn check(schema: &Json, value: &Json, path: &mut Vec<String>) -> Result<(), String> {
    if path.len() > MAX_DEPTH {
        return Ok(());
    }
    if let Some(Json::String(expected)) = schema.get("type")
        && !has_type(value, expected)
    {
        return Err(format!("Expected {expected}, got {}{}", describe(value), at(path)));
    }
    if let Some(Json::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Json::to_string).collect();
        return Err(format!("Expected one of {}, got {}{}", allowed.join(", "), describe(value), at(path)));
    }
    match value {
        Json::Object(map) => check_object(schema, map, path),
        Json::Array(list) => {
            let Some(items) = schema.get("items") else { return Ok(()) };
            list.iter().enumerate().try_for_each(|(index, item)| within(path, index.to_string(), items, item))
        }
        Json::Number(number) => {
            let minimum = schema.get("minimum").and_then(Json::as_f64);
            match (minimum, number.as_f64()) {
                (Some(minimum), Some(got)) if got < minimum => {
                    Err(format!("Expected a number of at least {minimum}, got {got}{}", at(path)))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn check_object(schema: &Json, map: &JsonMap, path: &mut Vec<String>) -> Result<(), String> {
    for key in schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
        if !map.contains_key(key) {
            path.push(Json::from(key).to_string());
            return Err(format!("Missing key{}", at(path)));
        }
    }
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else { return Ok(()) };
    for (key, value) in map {
        if let Some(property) = properties.get(key) {
            within(path, Json::from(key.as_str()).to_string(), property, value)?;
        }
    }
    Ok(())
}

fn within(path: &mut Vec<String>, step: String, schema: &Json, value: &Json) -> Result<(), String> {
    path.push(step);
    check(schema, value, path)?;
    path.pop();
    Ok(())
}

fn at(path: &[String]) -> String {
    if path.is_empty() {
        return String::new();
    }
    format!("\n  at [{}]", path.join("]["))
}

fn has_type(value: &Json, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_i64().is_some() || value.as_u64().is_some(),
        _ => true,
    }
}

/// A value as error messages show it.
fn describe(value: &Json) -> String {
    const SHOWN: usize = 60;
    let text = match value {
        Json::Object(_) => return "an object".into(),
        Json::Array(_) => return "an array".into(),
        other => other.to_string(),
    };
    if text.chars().count() <= SHOWN { text } else { text.chars().take(SHOWN).chain("…".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::json;

    /// Does things.
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Input {
        /// What to run.
        command: String,
        /// How long.
        timeout: Option<u64>,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Item {
        label: String,
        kind: Option<Kind>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Text,
        Html,
    }

    fn read(input: Json) -> Input {
        parse("demo", &schema_of::<Input>().0, input).unwrap()
    }

    fn error(input: Json) -> String {
        let (schema, _) = schema_of::<Input>();
        parse::<Input>("demo", &schema, input).unwrap_err().to_string()
    }

    #[test]
    fn the_schema_is_plain() {
        let (schema, description) = schema_of::<Input>();
        assert_eq!(description, "Does things.");
        assert_eq!(schema["required"], json!(["command"]));
        let timeout = json!({"type": "integer", "minimum": 0, "description": "How long."});
        assert_eq!(schema["properties"]["timeout"], timeout);
        assert_eq!(schema["properties"]["items"]["items"]["properties"]["label"]["type"], "string");
        assert!(!schema.to_string().contains("null"), "{schema}");
    }

    #[test]
    fn errors_name_the_key() {
        let missing = "The demo tool was called with invalid arguments: SchemaError(Missing key\n  at [\"command\"]).\n\
                       Please rewrite the input so it satisfies the expected schema.";
        assert_eq!(error(json!({"cmd": "x"})), missing);
        assert!(error(json!({"command": 5})).contains("Expected string, got 5\n  at [\"command\"]"));
        assert!(error(json!({"command": "x", "items": [{"label": "a"}, {}]})).contains("at [\"items\"][1][\"label\"]"));
        assert!(error(json!({"command": "x", "timeout": -1})).contains("at least 0"));
        assert!(
            error(json!({"command": "x", "items": [{"label": "a", "kind": "pdf"}]})).contains("\"text\", \"html\"")
        );
        assert!(error(json!("text")).contains("Expected object, got \"text\""));
        assert!(error(json!(null)).contains("Expected object"));
    }

    #[test]
    fn null_means_omitted() {
        let input = read(json!({"command": "x", "timeout": null, "unknown": 1}));
        assert_eq!((input.command.as_str(), input.timeout, input.items), ("x", None, vec![]));
    }

    #[test]
    fn valid_arguments_are_parsed() {
        let input = read(json!({"command": "x", "items": [{"label": "a", "kind": "html"}]}));
        assert_eq!((input.items[0].label.as_str(), &input.items[0].kind), ("a", &Some(Kind::Html)));
    }

    proptest! {
        #[test]
        fn parse_is_total(text in "\\PC{0,40}", number in any::<f64>(), deep in 0usize..40) {
            let (schema, _) = schema_of::<Input>();
            let mut value = json!({"command": text, "timeout": number, "items": [{"label": text}]});
            for _ in 0..deep {
                value = json!({"command": [value]});
            }
            let _ = parse::<Input>("demo", &schema, value);
        }
    }
}
