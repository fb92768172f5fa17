//! JSON schemas of the wire types, with OpenCode's component names.
//!
//! The schemas are derived from the serde types. Three conventions keep them close to the wire:
//!
//! * A union member that is a type of its own (`TextPart`) adds its tag with [`tagged`], so that the component is
//!   complete.
//! * A union member that is only a variant (`session.created`) has the component's name as its title; [`finish`] turns
//!   it into one.
//! * A value that we pass through, or hold as a plain string, has its schema in [`shape`].

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::{EventId, Json, JsonMap};

pub(crate) mod shape;

pub use shape::{Nullable, PermissionRuleset, QuestionAnswer, Range};

/// The path of the components in an OpenAPI document.
const COMPONENTS: &str = "/components/schemas";

/// A schema generator for an OpenAPI 3.1 document. Its definitions are the components; run [`finish`] on the result.
pub fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = COMPONENTS.into();
        settings.meta_schema = None;
    });
    settings.into_generator()
}

/// Converts the schemas of an otherwise complete OpenAPI document to OpenCode's form: optional values are absent rather
/// than null, a choice of constants is one `enum`, numbers have no Rust formats, and every schema with a title is a
/// component of that name.
pub fn finish(document: &mut Json) {
    let mut simplifier = SchemaSimplifier::default();
    if let Some(paths) = document.get_mut("paths") {
        schemas_in(paths, &mut |schema| simplifier.transform(schema));
    }
    let Some(components) = document.pointer_mut(COMPONENTS).and_then(Json::as_object_mut) else { return };
    for component in components.values_mut().filter_map(|component| component.try_into().ok()) {
        simplifier.component(component);
    }
    for (name, component) in simplifier.named {
        components.entry(name).or_insert(component);
    }
    components.sort_keys();
}

/// Visits every schema below `paths`.
fn schemas_in(value: &mut Json, visit: &mut dyn FnMut(&mut Schema)) {
    match value {
        Json::Object(map) => {
            let is_parameter = map.contains_key("in");
            for (key, value) in map {
                if key != "schema" {
                    schemas_in(value, visit);
                } else if let Ok(schema) = <&mut Schema>::try_from(value) {
                    visit(schema);
                    if is_parameter {
                        not_null(schema);
                    }
                }
            }
        }
        Json::Array(list) => list.iter_mut().for_each(|value| schemas_in(value, visit)),
        _ => {}
    }
}

#[derive(Default)]
struct SchemaSimplifier {
    named: JsonMap,
}

impl SchemaSimplifier {
    fn component(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        schema.remove("title");
        simplify(schema);
    }
}

impl Transform for SchemaSimplifier {
    fn transform(&mut self, schema: &mut Schema) {
        let title = schema.get("title").and_then(Json::as_str).map(str::to_owned);
        self.component(schema);
        if let Some(name) = title {
            let reference = json_schema!({ "$ref": format!("#{COMPONENTS}/{name}") });
            let component = std::mem::replace(schema, reference);
            self.named.insert(name, component.to_value());
        }
    }
}

fn simplify(schema: &mut Schema) {
    if schema.get("type").is_some_and(|kind| kind != "string") {
        schema.remove("format");
    }
    if schema.get("default").is_some_and(Json::is_null) {
        schema.remove("default");
    }
    one_enum(schema);
    plain_map(schema);
    let required = schema.get("required").and_then(Json::as_array).cloned().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) else { return };
    for (name, property) in properties {
        if !required.iter().any(|key| key == name)
            && let Ok(property) = property.try_into()
        {
            not_null(property);
        }
    }
}

/// Merges string constants with separate descriptions into one `enum`.
fn one_enum(schema: &mut Schema) {
    let Some(choices) = schema.get("oneOf").and_then(Json::as_array) else { return };
    let plain = |choice: &Json| choice.get("type").is_some_and(|kind| kind == "string");
    let values: Option<Vec<Json>> = choices
        .iter()
        .map(|choice| match (choice.get("const"), choice.get("enum")) {
            (Some(one), None) if plain(choice) => Some(vec![one.clone()]),
            (None, Some(Json::Array(some))) if plain(choice) => Some(some.clone()),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()
        .map(|values| values.concat());
    if let Some(values) = values {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), values.into());
    }
}

/// Turns a map whose keys are ids into a map with string keys.
fn plain_map(schema: &mut Schema) {
    if let Some(Json::Object(patterns)) = schema.get("patternProperties")
        && let [value] = patterns.values().collect::<Vec<_>>()[..]
    {
        let value = value.clone();
        schema.remove("patternProperties");
        schema.insert("additionalProperties".into(), value);
    }
}

fn not_null(schema: &mut Schema) {
    if let Some(Json::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            let one = one.clone();
            schema.insert("type".into(), one);
        }
    }
    if let Some(Json::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Json::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [Json::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            schema.ensure_object().extend(only);
        }
    }
}

/// Adds the tag of a union member as one of its own properties.
pub(crate) fn tagged(tag: &'static str, kind: &'static str) -> impl Transform {
    move |schema: &mut Schema| {
        let object = schema.ensure_object();
        let mut properties = JsonMap::new();
        properties.insert(tag.into(), json!({ "type": "string", "const": kind }));
        if let Some(Json::Object(fields)) = object.remove("properties") {
            properties.extend(fields);
        }
        object.insert("properties".into(), properties.into());
        if let Json::Array(required) = object.entry("required").or_insert_with(|| json!([])) {
            required.insert(0, tag.into());
        }
    }
}

/// Makes integer fields plain numbers, as OpenCode has them.
pub(crate) fn numbers(schema: &mut Schema) {
    let fields = schema.get_mut("properties").and_then(Json::as_object_mut);
    for field in fields.into_iter().flat_map(JsonMap::values_mut) {
        if let Ok(field) = <&mut Schema>::try_from(field)
            && field.get("type").is_some_and(|kind| kind == "integer" || kind == &json!(["integer", "null"]))
        {
            field.insert("type".into(), "number".into());
            field.remove("minimum");
        }
    }
}

/// The component name of an event: `EventSessionCreated` for `session.created`.
fn event_component(kind: &str) -> String {
    // Without the prefix, these names belong to the bodies of `/tui/publish`, which have no id.
    if kind.starts_with("tui.") {
        return format!("Event.{kind}");
    }
    format!("Event{}", pascal(kind))
}

fn pascal(kind: &str) -> String {
    let words = kind.split('.').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or_default();
        format!("{}{rest}", first.to_uppercase())
    });
    words.collect()
}

/// Adds the event's id and component name to every kind of event. Expects `{"properties": {"id"}, "oneOf": […]}`.
pub(crate) fn events(schema: &mut Schema) {
    let object = schema.ensure_object();
    let id = object.remove("properties").and_then(|mut fields| fields.get_mut("id").map(Json::take));
    let mut kinds = object.remove("oneOf").or_else(|| object.remove("anyOf")).unwrap_or_default();
    for kind in kinds.as_array_mut().into_iter().flatten() {
        let name = kind.pointer("/properties/type/const").and_then(Json::as_str).map(event_component);
        kind["title"] = name.into();
        kind["properties"]["id"] = id.clone().unwrap_or_default();
        if let Some(required) = kind["required"].as_array_mut() {
            required.insert(0, "id".into());
        }
    }
    object.retain(|key, _| key == "description");
    object.insert("anyOf".into(), kinds);
}

/// An event as `/global/event` sends it: with its directory, and for the events of a session's log also in the form of
/// the sync protocol. Only the schema is used: the server builds the text from that of the event.
#[derive(Debug, Clone, Copy)]
pub enum GlobalEvent {}

/// The events of a session's log, which OpenCode's replicas read.
pub const SYNCED: [&str; 7] = [
    "session.created",
    "session.updated",
    "session.deleted",
    "message.updated",
    "message.removed",
    "message.part.updated",
    "message.part.removed",
];

impl JsonSchema for GlobalEvent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GlobalEvent".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut union = crate::Event::json_schema(generator);
        let mut kinds = match union.get_mut("anyOf").map(Json::take) {
            Some(Json::Array(kinds)) => kinds,
            _ => Vec::new(),
        };
        let id = generator.subschema_for::<EventId>();
        let sync = |event: &Json| {
            let kind = event.pointer("/properties/type/const")?.as_str().filter(|kind| SYNCED.contains(kind))?;
            Some(json!({
                "title": format!("SyncEvent{}", pascal(kind)),
                "type": "object",
                "properties": {
                    "type": { "type": "string", "const": "sync" },
                    "id": id,
                    "syncEvent": {
                        "type": "object",
                        "properties": {
                            "type": { "type": "string", "const": format!("{kind}.1") },
                            "id": id,
                            "seq": { "type": "number" },
                            "aggregateID": { "type": "string" },
                            "data": event.pointer("/properties/properties")?,
                        },
                        "required": ["type", "id", "seq", "aggregateID", "data"],
                    },
                },
                "required": ["type", "id", "syncEvent"],
            }))
        };
        let synced: Vec<Json> = kinds.iter().filter_map(sync).collect();
        kinds.extend(synced);
        json_schema!({
            "description": "An event with the place it happened at.",
            "type": "object",
            "properties": {
                "directory": { "type": "string" },
                "project": { "type": "string" },
                "workspace": { "type": "string" },
                "payload": { "anyOf": kinds },
            },
            "required": ["directory", "payload"],
        })
    }
}

/// The schema of an `APIError` alone.
pub(crate) fn api_error(generator: &mut SchemaGenerator) -> Schema {
    let union = crate::MessageError::json_schema(generator);
    let kinds = union.get("oneOf").and_then(Json::as_array).into_iter().flatten();
    let error = kinds.into_iter().find(|kind| kind.get("title").is_some_and(|title| title == "APIError"));
    error.and_then(|error| error.clone().try_into().ok()).unwrap_or_default()
}
