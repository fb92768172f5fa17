//! Brings equivalent schemas into one form.

use serde_json::{Value, json};

pub type Object = serde_json::Map<String, Value>;

/// How far references and nested unions are followed.
const MAX_DEPTH: usize = 16;

/// Keywords that do not affect which values are valid.
const IGNORED_KEYWORDS: [&str; 9] =
    ["title", "description", "format", "default", "example", "examples", "deprecated", "contentMediaType", "$schema"];

/// The largest safe integer of JavaScript. Its validators write it as a bound where there is none.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// The component that a schema refers to.
pub fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")
}

/// One alternative that a schema allows: keywords of one type. Without keywords it allows anything.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The component that it comes from.
    pub component: Option<String>,
    pub keywords: Object,
}

/// The alternatives of a schema at its top level, with references resolved. Nested schemas stay as they are.
pub fn choices(schema: &Value, document: &Value) -> Vec<Choice> {
    let mut choices = Vec::new();
    collect(schema, document, None, &mut choices, 0);
    if choices.iter().any(|choice| choice.keywords.is_empty()) {
        return vec![Choice::default()];
    }
    merge_enums(choices)
}

fn collect(schema: &Value, document: &Value, component: Option<&str>, choices: &mut Vec<Choice>, depth: usize) {
    assert!(depth < MAX_DEPTH, "a schema that is only itself: {schema}");
    if let Some(name) = reference(schema) {
        let target = &document["components"]["schemas"][name];
        assert!(!target.is_null(), "there is no component {name}");
        return collect(target, document, Some(name), choices, depth + 1);
    }
    let schema = schema.as_object().cloned().unwrap_or_default();
    if let Some(Value::Array(union)) = schema.get("anyOf").or(schema.get("oneOf")) {
        let first = choices.len();
        union.iter().for_each(|choice| collect(choice, document, None, choices, depth + 1));
        let mut beside = schema.clone();
        beside.retain(|key, _| key != "anyOf" && key != "oneOf");
        let beside = normalize(beside);
        return choices[first..].iter_mut().for_each(|choice| apply_beside(choice, &beside));
    }
    if let Some(Value::Array(types)) = schema.get("type") {
        for kind in types {
            let mut choice = if kind == "null" { Object::new() } else { schema.clone() };
            choice.insert("type".into(), kind.clone());
            collect(&choice.into(), document, None, choices, depth + 1);
        }
        return;
    }
    choices.push(Choice { component: component.map(str::to_owned), keywords: normalize(schema) });
}

/// Keywords beside a union apply to each of its alternatives.
fn apply_beside(choice: &mut Choice, beside: &Object) {
    for (key, value) in beside {
        choice.component = None;
        match (choice.keywords.get_mut(key), value) {
            (Some(Value::Object(fields)), Value::Object(more)) => fields.extend(more.clone()),
            (Some(Value::Array(names)), Value::Array(more)) => names.extend(more.clone()),
            (Some(_), _) => {}
            (None, value) => drop(choice.keywords.insert(key.clone(), value.clone())),
        }
    }
}

fn normalize(mut schema: Object) -> Object {
    schema.retain(|key, value| match key.as_str() {
        // Whether unknown fields are refused or ignored does not matter to those who use the known ones.
        "additionalProperties" => value.as_object().is_some_and(|fields| !fields.is_empty()),
        "properties" => value.as_object().is_some_and(|fields| !fields.is_empty()),
        "required" => value.as_array().is_some_and(|names| !names.is_empty()),
        "minimum" => value.as_f64().is_some_and(|bound| bound > -MAX_SAFE_INTEGER),
        "maximum" => value.as_f64().is_some_and(|bound| bound < MAX_SAFE_INTEGER),
        key => !IGNORED_KEYWORDS.contains(&key),
    });
    // Greater than 0 implies at least 0.
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    if let (Some(above), Some(least)) = (bound("exclusiveMinimum"), bound("minimum"))
        && above >= least
    {
        schema.remove("minimum");
    }
    if let Some(value) = schema.remove("const") {
        schema.insert("enum".into(), json!([value]));
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
        values.sort_by_key(Value::to_string);
    }
    // `{"const": …}` alone is a string.
    if schema.contains_key("enum") && !schema.contains_key("type") {
        schema.insert("type".into(), "string".into());
    }
    schema
}

/// Merges several lists of constants.
fn merge_enums(choices: Vec<Choice>) -> Vec<Choice> {
    let is_enum = |choice: &Choice| choice.keywords.len() == 2 && choice.keywords.contains_key("enum");
    let (enums, mut others): (Vec<_>, Vec<_>) = choices.into_iter().partition(is_enum);
    let lists = enums.iter().filter_map(|choice| choice.keywords["enum"].as_array());
    let mut values: Vec<Value> = lists.flatten().cloned().collect();
    values.sort_by_key(Value::to_string);
    values.dedup();
    if let Some(mut one) = enums.into_iter().next() {
        one.keywords.insert("enum".into(), values.into());
        others.push(one);
    }
    others
}

/// What tells an alternative from the others of its union: its constants, else its type.
pub fn label(choice: &Object, document: &Value) -> String {
    fn constants(choice: &Object, document: &Value, depth: usize, found: &mut Vec<String>) {
        let fields = choice.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (name, field) in fields.filter(|(_, field)| reference(field).is_none()) {
            let [Choice { keywords: field, .. }] = &choices(field, document)[..] else { continue };
            match field.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
                Some([Value::String(only)]) => found.push(only.clone()),
                // `{"type": "sync", "syncEvent": {"type": …}}`: only one level down.
                _ if depth == 0 && name == "syncEvent" => constants(field, document, 1, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    constants(choice, document, 0, &mut found);
    if found.is_empty() { describe(choice) } else { found.join("/") }
}

/// A short description of an alternative.
pub fn describe(choice: &Object) -> String {
    let kind = choice.get("type").and_then(Value::as_str).unwrap_or("any");
    match choice.get("enum") {
        Some(values) => values.to_string(),
        None => kind.to_owned(),
    }
}
