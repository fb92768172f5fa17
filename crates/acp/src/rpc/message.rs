//! What a line means.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::Error;

/// What the other side said.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// An empty line.
    Nothing,
    /// Something that is answered with an error.
    Broken(Value, Error),
    /// It asks.
    Request(Value, String, Value),
    /// It tells.
    Notification(String, Value),
    /// It answers.
    Answer(Value, Result<Value, Error>),
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default, deserialize_with = "present")]
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    method: Option<Value>,
    #[serde(default)]
    params: Value,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    error: Option<Value>,
}

/// A field that is there, even if it is null: a request may have the id null, a notification has none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads a line. What is no UTF-8 is no JSON, and is answered like that.
pub fn parse(line: &[u8]) -> Incoming {
    let Ok(text) = std::str::from_utf8(line) else {
        return Incoming::Broken(Value::Null, Error::parse("The message is not UTF-8"));
    };
    if text.trim().is_empty() {
        return Incoming::Nothing;
    }
    let raw: Raw = match serde_json::from_str(text) {
        Ok(raw) => raw,
        Err(error) if error.is_data() => return Incoming::Broken(Value::Null, not_an_object(text)),
        Err(error) => return Incoming::Broken(Value::Null, Error::parse(format!("The message is not JSON: {error}"))),
    };
    let valid_id = raw.id.as_ref().is_none_or(|id| id.is_string() || id.is_number() || id.is_null());
    let id = || raw.id.clone().filter(|_| valid_id).unwrap_or_default();
    let broken = |why: &str| Incoming::Broken(id(), Error::invalid_request(why));
    if !valid_id {
        return broken("An id is a string, a number or null");
    }
    // Clients that leave the version out are understood; one that names another version means another protocol.
    if raw.jsonrpc.as_ref().is_some_and(|version| version != "2.0") {
        return broken("jsonrpc must be \"2.0\"");
    }
    match (raw.method, raw.id) {
        (Some(Value::String(method)), Some(id)) => Incoming::Request(id, method, raw.params),
        (Some(Value::String(method)), None) => Incoming::Notification(method, raw.params),
        (Some(_), id) => Incoming::Broken(id.unwrap_or_default(), Error::invalid_request("A method is a string")),
        (None, Some(id)) => match (raw.result, raw.error) {
            (_, Some(error)) if !error.is_null() => {
                let error = serde_json::from_value(error)
                    .unwrap_or_else(|_| Error::internal("The other side failed, and did not say how"));
                Incoming::Answer(id, Err(error))
            }
            (Some(result), _) => Incoming::Answer(id, Ok(result)),
            _ => Incoming::Broken(id, Error::invalid_request("A message has a method, a result or an error")),
        },
        (None, None) => Incoming::Broken(Value::Null, Error::invalid_request("A message has a method, or answers one")),
    }
}

fn not_an_object(text: &str) -> Error {
    let batch = text.trim_start().starts_with('[');
    Error::invalid_request(if batch {
        "Batches are not supported: send one message per line"
    } else {
        "A message is an object"
    })
}

#[cfg(test)]
mod tests {
    use super::super::error::code;
    use super::*;
    use serde_json::json;

    fn refused(line: &[u8]) -> (Value, i64) {
        match parse(line) {
            Incoming::Broken(id, error) => (id, error.code),
            other => panic!("{} is {other:?}", String::from_utf8_lossy(line)),
        }
    }

    #[test]
    fn requests_have_ids_of_all_kinds() {
        for id in [json!(1), json!(-7), json!(1.5), json!("a"), json!(""), Value::Null] {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": "m", "params": {"a": 1}}).to_string();
            assert_eq!(parse(line.as_bytes()), Incoming::Request(id, "m".into(), json!({"a": 1})));
        }
        assert_eq!(parse(br#"{"id":1,"method":"m"}"#), Incoming::Request(json!(1), "m".into(), Value::Null));
        assert_eq!(parse(br#"{"method":"m"}"#), Incoming::Notification("m".into(), Value::Null));
    }

    #[test]
    fn what_is_not_a_message_is_refused_with_the_right_code() {
        assert_eq!(refused(b"this is not json"), (Value::Null, code::PARSE));
        assert_eq!(refused(b"{\"id\":1,\"method\":\"m\""), (Value::Null, code::PARSE));
        assert_eq!(refused(b"{\"id\":1,\"method\":\"\xff\xfe\"}"), (Value::Null, code::PARSE));
        assert_eq!(refused("[".repeat(5000).as_bytes()).1, code::PARSE);
        for line in ["5", "null", "[]", "[{\"id\":1,\"method\":\"m\"}]", "{}", "\"x\""] {
            assert_eq!(refused(line.as_bytes()), (Value::Null, code::INVALID_REQUEST), "{line}");
        }
        assert_eq!(refused(br#"{"id":[1],"method":"m"}"#), (Value::Null, code::INVALID_REQUEST));
        assert_eq!(refused(br#"{"id":3,"method":5}"#), (json!(3), code::INVALID_REQUEST));
        assert_eq!(refused(br#"{"jsonrpc":"1.0","id":4,"method":"m"}"#), (json!(4), code::INVALID_REQUEST));
        assert_eq!(refused(br#"{"id":5}"#), (json!(5), code::INVALID_REQUEST));
        assert_eq!(parse(b"  \t"), Incoming::Nothing);
    }

    #[test]
    fn answers() {
        assert_eq!(parse(br#"{"id":1,"result":null}"#), Incoming::Answer(json!(1), Ok(Value::Null)));
        assert_eq!(parse(br#"{"id":1,"result":2,"error":null}"#), Incoming::Answer(json!(1), Ok(json!(2))));
        let Incoming::Answer(_, Err(error)) = parse(br#"{"id":1,"error":{"code":-1,"message":"no"}}"#) else {
            panic!("not an error")
        };
        assert_eq!((error.code, error.message.as_str()), (-1, "no"));
        assert!(matches!(parse(br#"{"id":1,"error":"odd"}"#), Incoming::Answer(_, Err(_))));
    }
}
