//! A form that an agent wants filled in.

use serde_json::{Map, Value, json};

use crate::rpc::Request;

/// The most fields that are asked for.
const MAX_FIELDS: usize = 100;

/// A form. It must be answered.
pub struct Form {
    /// The session that it is about, if it is about one.
    pub session: String,
    /// What the agent says.
    pub message: String,
    /// What is asked for.
    pub fields: Vec<Field>,
    request: Request,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form").field("session", &self.session).field("fields", &self.fields).finish()
    }
}

/// One thing that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name in the answer.
    pub key: String,
    /// What the human reads.
    pub title: String,
    /// More of it.
    pub description: String,
    /// What it takes.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// What it is if nothing is said.
    pub default: Option<Value>,
}

/// What a field takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Boolean,
    /// One of these: a value and its name.
    One(Vec<(String, String)>),
    /// Some of them.
    Many(Vec<(String, String)>),
}

impl Form {
    pub(super) fn new(mut request: Request) -> Self {
        let params = request.params.take();
        let text = |key: &str| params[key].as_str().unwrap_or_default().to_owned();
        Self { session: text("sessionId"), message: text("message"), fields: fields(&params), request }
    }

    /// What is answered without asking anybody: what is there already, and the first of what one is chosen from. Nothing
    /// if that is not enough.
    pub fn usual(&self) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        for field in &self.fields {
            let value = field.default.clone().or_else(|| match &field.kind {
                Kind::One(choices) => choices.first().map(|(value, _)| json!(value)),
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

    /// Waits until the agent no longer wants an answer.
    pub async fn withdrawn(&self) {
        self.request.cancel.cancelled().await;
    }

    /// Hands it in.
    pub fn accept(self, content: Map<String, Value>) {
        self.request.reply(Ok(json!({"action": "accept", "content": content})));
    }

    /// The human does not want to.
    pub fn decline(self) {
        self.request.reply(Ok(json!({"action": "decline"})));
    }

    /// Nobody decides.
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
            Some("number") => Kind::Number,
            Some("integer") => Kind::Integer,
            Some("boolean") => Kind::Boolean,
            Some("array") => Kind::Many(choices(&property["items"])),
            _ => match choices(property) {
                choices if choices.is_empty() => Kind::Text,
                choices => Kind::One(choices),
            },
        };
        let default = Some(property["default"].clone()).filter(|value| !value.is_null());
        let (key, description, required) = (key.clone(), text("description"), is_required(key));
        Field { key, title, description, kind, required, default }
    };
    properties.map(field).collect()
}

/// What there is to choose from, with names or without.
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
    /// What a typed line means; nothing if it means nothing, or an empty one leaves out what must be there.
    pub fn read(&self, line: &str) -> Option<Read> {
        let line = line.trim();
        if line.is_empty() {
            return match &self.default {
                Some(value) => Some(Read::Value(value.clone())),
                None => (!self.required).then_some(Read::Nothing),
            };
        }
        let value = match &self.kind {
            Kind::Text => json!(line),
            Kind::Number => json!(line.parse::<f64>().ok().filter(|number| number.is_finite())?),
            Kind::Integer => json!(line.parse::<i64>().ok()?),
            Kind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => json!(true),
                "n" | "no" | "false" => json!(false),
                _ => return None,
            },
            Kind::One(choices) => json!(find(choices, line)?),
            Kind::Many(choices) => {
                let picked: Option<Vec<&str>> = line.split(',').map(|one| find(choices, one.trim())).collect();
                json!(picked?)
            }
        };
        Some(Read::Value(value))
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// A value.
    Value(Value),
    /// The field stays empty.
    Nothing,
}

/// A choice by its number or its name.
fn find<'a>(choices: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    let by_number = wanted.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let by_name = || choices.iter().find(|(value, name)| value == wanted || name.eq_ignore_ascii_case(wanted));
    by_number.or_else(by_name).map(|(value, _)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_and_what_is_typed_into_them() {
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
        let read = |key: &str, line: &str| fields.iter().find(|field| field.key == key).unwrap().read(line);
        let value = |value: Value| Some(Read::Value(value));
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
            ("sure", "", Some(Read::Nothing)),
            ("name", "", None),
            ("name", "Ann", value(json!("Ann"))),
        ] {
            assert_eq!(read(key, line), want, "{key}: {line:?}");
        }
        let name = fields.iter().find(|field| field.key == "name").unwrap();
        assert_eq!((name.title.as_str(), name.description.as_str(), name.required), ("Name", "Yours", true));
        assert!(super::fields(&json!({"requestedSchema": 5})).is_empty());
    }
}
