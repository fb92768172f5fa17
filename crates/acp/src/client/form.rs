//! Forms that an agent wants filled in.

use serde_json::{Map, Value, json};

use crate::rpc::Request;

/// The most fields of a form.
const MAX_FIELDS: usize = 100;

/// A form. It must be answered.
pub struct Form {
    /// Its session; empty if it has none.
    pub session: String,
    /// The agent's message.
    pub message: String,
    /// The fields.
    pub fields: Vec<Field>,
    request: Request,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form").field("session", &self.session).field("fields", &self.fields).finish()
    }
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name in the response.
    pub key: String,
    /// Its title for the user.
    pub title: String,
    /// A longer explanation.
    pub description: String,
    /// The kind of value.
    pub kind: FieldKind,
    /// Whether a value is required.
    pub required: bool,
    /// The default value.
    pub default: Option<Value>,
}

/// The kind of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldKind {
    /// Any text.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Boolean,
    /// One of these values, each with its name.
    OneOf(Vec<(String, String)>),
    /// Any of these values.
    AnyOf(Vec<(String, String)>),
}

impl Form {
    pub(super) fn new(mut request: Request) -> Self {
        let params = request.params.take();
        let text = |key: &str| params[key].as_str().unwrap_or_default().to_owned();
        Self { session: text("sessionId"), message: text("message"), fields: fields(&params), request }
    }

    /// Fills in the form without a user: defaults, and the first choice of single-choice fields. `None` if a required
    /// field stays empty.
    pub fn default_content(&self) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        for field in &self.fields {
            let value = field.default.clone().or_else(|| match &field.kind {
                FieldKind::OneOf(choices) => choices.first().map(|(value, _)| json!(value)),
                _ => None,
            });
            match value {
                Some(value) => drop(content.insert(field.key.clone(), value)),
                None if field.required => return None,
                None => {}
            }
        }
        Some(content)
    }

    /// Waits until the agent withdraws the form.
    pub async fn withdrawn(&self) {
        self.request.cancel.cancelled().await;
    }

    /// Submits the form.
    pub fn accept(self, content: Map<String, Value>) {
        self.request.reply(Ok(json!({"action": "accept", "content": content})));
    }

    /// Declines on behalf of the user.
    pub fn decline(self) {
        self.request.reply(Ok(json!({"action": "decline"})));
    }

    /// Answers that nobody will decide.
    pub fn cancel(self) {
        self.request.reply(Ok(json!({"action": "cancel"})));
    }
}

fn fields(params: &Value) -> Vec<Field> {
    let schema = &params["requestedSchema"];
    let is_required = |key: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key));
    let properties = schema["properties"].as_object().into_iter().flatten().take(MAX_FIELDS);
    let field = |(key, property): (&String, &Value)| {
        let text = |name: &str| property[name].as_str().unwrap_or_default().to_owned();
        let title = Some(text("title")).filter(|title| !title.is_empty()).unwrap_or_else(|| key.clone());
        let kind = match property["type"].as_str() {
            Some("number") => FieldKind::Number,
            Some("integer") => FieldKind::Integer,
            Some("boolean") => FieldKind::Boolean,
            Some("array") => FieldKind::AnyOf(choices(&property["items"])),
            _ => match choices(property) {
                choices if choices.is_empty() => FieldKind::Text,
                choices => FieldKind::OneOf(choices),
            },
        };
        let default = Some(property["default"].clone()).filter(|value| !value.is_null());
        let (key, description, required) = (key.clone(), text("description"), is_required(key));
        Field { key, title, description, kind, required, default }
    };
    properties.map(field).collect()
}

/// The choices of a field, named or not.
fn choices(schema: &Value) -> Vec<(String, String)> {
    let named = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    let named = named.into_iter().flatten().filter_map(|option| {
        let value = option["const"].as_str()?;
        Some((value.to_owned(), option["title"].as_str().unwrap_or(value).to_owned()))
    });
    let plain = schema["enum"].as_array().into_iter().flatten();
    named.chain(plain.filter_map(|value| Some((value.as_str()?.to_owned(), value.as_str()?.to_owned())))).collect()
}

impl Field {
    /// Parses a typed line; `None` if it is invalid, or empty for a required field without a default.
    pub fn parse(&self, line: &str) -> Option<FieldInput> {
        let line = line.trim();
        if line.is_empty() {
            return match &self.default {
                Some(value) => Some(FieldInput::Value(value.clone())),
                None => (!self.required).then_some(FieldInput::Empty),
            };
        }
        let value = match &self.kind {
            FieldKind::Text => json!(line),
            FieldKind::Number => json!(line.parse::<f64>().ok().filter(|number| number.is_finite())?),
            FieldKind::Integer => json!(line.parse::<i64>().ok()?),
            FieldKind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => json!(true),
                "n" | "no" | "false" => json!(false),
                _ => return None,
            },
            FieldKind::OneOf(choices) => json!(find(choices, line)?),
            FieldKind::AnyOf(choices) => {
                let picked: Option<Vec<&str>> = line.split(',').map(|one| find(choices, one.trim())).collect();
                json!(picked?)
            }
        };
        Some(FieldInput::Value(value))
    }
}

/// The parsed input of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldInput {
    /// A value.
    Value(Value),
    /// The field stays empty.
    Empty,
}

/// Finds a choice by number or name.
fn find<'a>(choices: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    let by_number = wanted.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let by_name = || choices.iter().find(|(value, name)| value == wanted || name.eq_ignore_ascii_case(wanted));
    by_number.or_else(by_name).map(|(value, _)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_parse_typed_lines() {
        let schema = json!({"type": "object", "required": ["color", "name"], "properties": {
            "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
            "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
            "many": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}},
            "plain": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "count": {"type": "integer"},
            "share": {"type": "number"},
            "sure": {"type": "boolean"},
            "name": {"type": "string", "title": "Name", "description": "Yours"},
        }});
        let fields = fields(&json!({ "requestedSchema": schema }));
        let parse = |key: &str, line: &str| fields.iter().find(|field| field.key == key).unwrap().parse(line);
        let value = |value: Value| Some(FieldInput::Value(value));
        for (key, line, want) in [
            ("color", "2", value(json!("g"))),
            ("color", " red ", value(json!("r"))),
            ("color", "blue", None),
            ("color", "", None),
            ("size", "", value(json!("m"))),
            ("many", "1, b", value(json!(["a", "b"]))),
            ("many", "1, c", None),
            ("plain", "y", value(json!(["y"]))),
            ("count", "-3", value(json!(-3))),
            ("count", "3.5", None),
            ("share", "3.5", value(json!(3.5))),
            ("share", "inf", None),
            ("sure", "Yes", value(json!(true))),
            ("sure", "perhaps", None),
            ("sure", "", Some(FieldInput::Empty)),
            ("name", "", None),
            ("name", "Ann", value(json!("Ann"))),
        ] {
            assert_eq!(parse(key, line), want, "{key}: {line:?}");
        }
        let name = fields.iter().find(|field| field.key == "name").unwrap();
        assert_eq!((name.title.as_str(), name.description.as_str(), name.required), ("Name", "Yours", true));
        assert!(super::fields(&json!({"requestedSchema": 5})).is_empty());
    }
}
