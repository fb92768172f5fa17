//! The schema of configuration files as JSON Schema, for the documents that faces publish.

use api::{Json, JsonMap};
use serde_json::json;

use crate::schema::{ACTIONS, CONFIG, Field, PERMISSIONS, Shape};

/// The schema of a configuration file. Parts for which OpenCode has a component have its name as their title.
pub fn config_schema() -> Json {
    describe(&CONFIG)
}

/// The component below a key, wherever the key occurs.
fn component(key: &str, shape: &Shape) -> Option<&'static str> {
    Some(match key {
        // A model's `attachment` is just a flag.
        "attachment" if !matches!(shape, Shape::Flag) => "AttachmentConfig",
        "image" => "ImageAttachmentConfig",
        "layout" => "LayoutConfig",
        "logLevel" => "LogLevel",
        "permission" => "PermissionConfig",
        "server" => "ServerConfig",
        _ => return None,
    })
}

/// The component of the values of a map.
fn item_component(key: &str) -> Option<&'static str> {
    match key {
        "agent" | "mode" => Some("AgentConfig"),
        "provider" => Some("ProviderConfig"),
        _ => None,
    }
}

fn describe(shape: &Shape) -> Json {
    match shape {
        Shape::Any => json!({}),
        Shape::Text => json!({ "type": "string" }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Number => json!({ "type": "number" }),
        Shape::Amount => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Shape::Count(0) => json!({ "type": "integer", "minimum": 0 }),
        Shape::Count(least) => json!({ "type": "integer", "exclusiveMinimum": least - 1 }),
        Shape::Word(words) => json!({ "type": "string", "enum": words }),
        Shape::List(item) => json!({ "type": "array", "items": describe(item) }),
        Shape::Map(Shape::Any) => json!({ "type": "object" }),
        Shape::Map(item) => json!({ "type": "object", "additionalProperties": describe(item) }),
        Shape::Object(fields) => json!({
            "type": "object", "properties": properties(fields), "additionalProperties": false,
        }),
        Shape::Open(fields) => json!({
            "type": "object", "properties": properties(fields), "additionalProperties": {},
        }),
        Shape::Either(shapes) => json!({ "anyOf": shapes.iter().map(describe).collect::<Vec<_>>() }),
        Shape::Permission => permission(),
        Shape::Only => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::Tools => json!({ "type": "object", "additionalProperties": { "type": "boolean" } }),
    }
}

fn properties(fields: &[Field]) -> JsonMap {
    let property = |(key, shape): &Field| {
        let mut schema = describe(shape);
        if let Some(name) = component(key, shape) {
            schema["title"] = name.into();
        }
        if let (Some(name), Shape::Map(_)) = (item_component(key), shape) {
            schema["additionalProperties"]["title"] = name.into();
        }
        ((*key).to_owned(), schema)
    };
    fields.iter().map(property).collect()
}

fn permission() -> Json {
    let action = json!({ "title": "PermissionActionConfig", "type": "string", "enum": ACTIONS });
    let patterns = json!({ "title": "PermissionObjectConfig", "type": "object", "additionalProperties": action });
    let rule = json!({ "title": "PermissionRuleConfig", "anyOf": [action, patterns] });
    let names: JsonMap = PERMISSIONS.iter().map(|name| ((*name).to_owned(), rule.clone())).collect();
    json!({ "anyOf": [action, { "type": "object", "properties": names, "additionalProperties": rule }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_limits_and_component_names() {
        let schema = config_schema();
        let at = |path: &str| schema.pointer(path).cloned().unwrap_or_default();
        assert_eq!(at("/properties/model"), json!({ "type": "string" }));
        assert_eq!(at("/properties/subagent_depth"), json!({ "type": "integer", "minimum": 0 }));
        assert_eq!(at("/properties/tool_output/properties/max_lines/exclusiveMinimum"), json!(0));
        assert_eq!(at("/properties/agent/additionalProperties/title"), json!("AgentConfig"));
        assert_eq!(at("/properties/agent/additionalProperties/additionalProperties"), json!({}));
        assert_eq!(at("/properties/permission/title"), json!("PermissionConfig"));
        assert_eq!(at("/additionalProperties"), json!(false));
    }
}
