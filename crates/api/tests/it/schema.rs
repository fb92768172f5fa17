//! The schemas of the wire types describe the recordings of OpenCode: every value fits, and every field is documented.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};
use trefoil_api::{
    Event, FileContent, FileDiff, FileNode, GlobalEvent, MessageWithParts, Part, PermissionRequest, Project,
    PromptPart, Provider, QuestionRequest, Session, SessionStatus, Skill, Todo, schema,
};

/// An OpenAPI document whose paths are the kinds of recorded values.
fn document() -> Value {
    let mut generator = schema::generator();
    let mut paths = Map::new();
    let mut kind = |name: &str, schema: fn(&mut SchemaGenerator) -> schemars::Schema| {
        paths.insert(name.into(), json!({ "schema": schema(&mut generator) }));
    };
    kind("event", SchemaGenerator::subschema_for::<Event>);
    kind("global", SchemaGenerator::subschema_for::<GlobalEvent>);
    kind("message", SchemaGenerator::subschema_for::<MessageWithParts>);
    kind("session", SchemaGenerator::subschema_for::<Session>);
    kind("part", SchemaGenerator::subschema_for::<Part>);
    kind("prompt part", SchemaGenerator::subschema_for::<PromptPart>);
    kind("status", SchemaGenerator::subschema_for::<SessionStatus>);
    kind("permission", SchemaGenerator::subschema_for::<PermissionRequest>);
    kind("question", SchemaGenerator::subschema_for::<QuestionRequest>);
    kind("todo", SchemaGenerator::subschema_for::<Todo>);
    kind("diff", SchemaGenerator::subschema_for::<FileDiff>);
    kind("skill", SchemaGenerator::subschema_for::<Skill>);
    kind("provider", SchemaGenerator::subschema_for::<Provider>);
    kind("project", SchemaGenerator::subschema_for::<Project>);
    kind("file", SchemaGenerator::subschema_for::<FileNode>);
    kind("content", SchemaGenerator::subschema_for::<FileContent>);
    let mut document = json!({ "paths": paths, "components": { "schemas": generator.take_definitions(false) } });
    schema::finish(&mut document);
    document
}

/// Checks a value against a schema; the error says where they differ.
fn check(schema: &Value, value: &Value, document: &Value) -> Result<(), String> {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(name.trim_start_matches('#')).ok_or(format!("no {name}"))?;
        return check(target, value, document);
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf").or(schema.get("oneOf")) {
        let errors: Vec<String> = choices.iter().filter_map(|choice| check(choice, value, document).err()).collect();
        return if errors.len() < choices.len() { Ok(()) } else { Err(format!("none of {errors:#?}")) };
    }
    let fits = match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some(other) => return Err(format!("type {other}")),
        None => true,
    };
    let constant = schema.get("const").is_none_or(|only| only == value);
    let listed = schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.contains(value));
    let prefix = schema.get("pattern").and_then(Value::as_str).map(|pattern| pattern.trim_start_matches('^'));
    let begins = prefix.is_none_or(|prefix| value.as_str().is_some_and(|text| text.starts_with(prefix)));
    if !(fits && constant && listed && begins) {
        return Err(format!("{value} is not {schema}"));
    }
    let at = |key: &str, error: String| format!(".{key} {error}");
    let fields = schema.get("properties").and_then(Value::as_object);
    for (key, value) in value.as_object().into_iter().flatten() {
        match (fields.and_then(|fields| fields.get(key)), schema.get("additionalProperties")) {
            (Some(field), _) => check(field, value, document).map_err(|error| at(key, error))?,
            (None, Some(others)) => check(others, value, document).map_err(|error| at(key, error))?,
            (None, None) if fields.is_some() => return Err(format!("{key} is not documented")),
            (None, None) => {}
        }
    }
    for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        value.get(key.as_str().unwrap()).ok_or(format!("{key} is missing"))?;
    }
    for item in value.as_array().into_iter().flatten() {
        check(schema.get("items").unwrap_or(&Value::Bool(true)), item, document).map_err(|error| at("[]", error))?;
    }
    Ok(())
}

#[test]
fn recordings_match_the_schemas() {
    let document = document();
    let mut seen = BTreeSet::new();
    let mut files: Vec<_> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    for file in files {
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let line: Map<String, Value> = serde_json::from_str(line).unwrap();
            let (kind, value) = line.into_iter().next().unwrap();
            let Some(path) = document["paths"].get(&kind) else { continue };
            if let Err(error) = check(&path["schema"], &value, &document) {
                panic!("{}:{}: {kind}: {error}", file.display(), number + 1);
            }
            seen.insert(kind);
        }
    }
    assert!(seen.len() > 10, "{seen:?}");

    let odd = json!({ "id": "evt_1", "type": "session.idle", "properties": { "sessionID": "ses_1", "mood": "calm" } });
    let error = check(&document["paths"]["event"]["schema"], &odd, &document).unwrap_err();
    assert!(error.contains("mood is not documented"), "{error}");
}

#[test]
fn union_members_are_components() {
    let document = document();
    let component = |name: &str| document["components"]["schemas"][name].clone();
    let constant = |name: &str, pointer: &str| component(name).pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(constant("EventSessionCreated", "/properties/type/const"), "session.created");
    assert_eq!(constant("Event.tui.prompt.append", "/properties/type/const"), "tui.prompt.append");
    assert_eq!(constant("EventServerResync", "/properties/type/const"), "server.resync");
    assert_eq!(
        constant("SyncEventMessagePartRemoved", "/properties/syncEvent/properties/type/const"),
        "message.part.removed.1"
    );
    assert_eq!(constant("StepStartPart", "/properties/type/const"), "step-start");
    assert_eq!(constant("ToolStateCompleted", "/properties/status/const"), "completed");
    assert_eq!(constant("APIError", "/properties/name/const"), "APIError");
    assert_eq!(constant("FilePartInput", "/properties/type/const"), "file");
    assert_eq!(component("Message")["anyOf"].as_array().unwrap().len(), 2);
    assert_eq!(
        component("PermissionAction"),
        json!({
            "description": component("PermissionAction")["description"],
            "type": "string",
            "enum": ["allow", "ask", "deny"],
        })
    );
}

#[test]
fn optional_values_are_never_null() {
    fn nulls(value: &Value) -> usize {
        match value {
            Value::String(text) => usize::from(text == "null"),
            Value::Array(list) => list.iter().map(nulls).sum(),
            Value::Object(map) => map.values().map(nulls).sum(),
            _ => 0,
        }
    }
    assert_eq!(nulls(&document()), 0);
}
