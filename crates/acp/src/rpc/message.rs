//! Parses incoming lines.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::Error;

/// An incoming message.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// An empty line.
    Empty,
    /// An invalid message: the id to respond to, and the error.
    Invalid(Value, Error),
    /// Id, method and parameters.
    Request(Value, String, Value),
    /// Method and parameters.
    Notification(String, Value),
    /// Id and result of one of our requests.
    Response(Value, Result<Value, Error>),
}

#[derive(Deserialize)]
struct RawMessage {
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

/// Tells a null field from a missing one: a request may have the id null, a notification has no id.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Parses a line. Invalid UTF-8 counts as invalid JSON.
pub fn parse(line: &[u8]) -> Incoming {
    let Ok(text) = std::str::from_utf8(line) else {
        return Incoming::Invalid(Value::Null, Error::parse("The message is not UTF-8"));
    };
    if text.trim().is_empty() {
        return Incoming::Empty;
    }
    let raw: RawMessage = match serde_json::from_str(text) {
        Ok(raw) => raw,
        Err(error) if error.is_data() => return Incoming::Invalid(Value::Null, not_an_object(text)),
        Err(error) => return Incoming::Invalid(Value::Null, Error::parse(format!("The message is not JSON: {error}"))),
    };
    let valid_id = raw.id.as_ref().is_none_or(|id| id.is_string() || id.is_number() || id.is_null());
    let id = || raw.id.clone().filter(|_| valid_id).unwrap_or_default();
    let invalid = |why: &str| Incoming::Invalid(id(), Error::invalid_request(why));
    if !valid_id {
        return invalid("An id is a string, a number or null");
    }
    // A missing version is accepted; a different one means a different protocol.
    if raw.jsonrpc.as_ref().is_some_and(|version| version != "2.0") {
        return invalid("jsonrpc must be \"2.0\"");
    }
    match (raw.method, raw.id) {
        (Some(Value::String(method)), Some(id)) => Incoming::Request(id, method, raw.params),
        (Some(Value::String(method)), None) => Incoming::Notification(method, raw.params),
        (Some(_), id) => Incoming::Invalid(id.unwrap_or_default(), Error::invalid_request("A method is a string")),
        (None, Some(id)) => match (raw.result, raw.error) {
            (_, Some(error)) if !error.is_null() => {
                let error = serde_json::from_value(error)
                    .unwrap_or_else(|_| Error::internal("The other side failed without a valid error"));
                Incoming::Response(id, Err(error))
            }
            (Some(result), _) => Incoming::Response(id, Ok(result)),
            _ => Incoming::Invalid(id, Error::invalid_request("A message has a method, a result or an error")),
        },
        (None, None) => {
            Incoming::Invalid(Value::Null, Error::invalid_request("A message has a method, or answers one"))
        }
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
            Incoming::Invalid(id, error) => (id, error.code),
            other => panic!("{} is {other:?}", String::from_utf8_lossy(line)),
        }
    }

    #[test]
    fn request_ids_of_all_kinds() {
        for id in [json!(1), json!(-7), json!(1.5), json!("a"), json!(""), Value::Null] {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": "m", "params": {"a": 1}}).to_string();
            assert_eq!(parse(line.as_bytes()), Incoming::Request(id, "m".into(), json!({"a": 1})));
        }
        assert_eq!(parse(br#"{"id":1,"method":"m"}"#), Incoming::Request(json!(1), "m".into(), Value::Null));
        assert_eq!(parse(br#"{"method":"m"}"#), Incoming::Notification("m".into(), Value::Null));
    }

    #[test]
    fn invalid_messages_are_rejected_with_the_right_code() {
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
        assert_eq!(parse(b"  \t"), Incoming::Empty);
    }

    #[test]
    fn responses() {
        assert_eq!(parse(br#"{"id":1,"result":null}"#), Incoming::Response(json!(1), Ok(Value::Null)));
        assert_eq!(parse(br#"{"id":1,"result":2,"error":null}"#), Incoming::Response(json!(1), Ok(json!(2))));
        let Incoming::Response(_, Err(error)) = parse(br#"{"id":1,"error":{"code":-1,"message":"no"}}"#) else {
            panic!("not an error")
        };
        assert_eq!((error.code, error.message.as_str()), (-1, "no"));
        assert!(matches!(parse(br#"{"id":1,"error":"odd"}"#), Incoming::Response(_, Err(_))));
    }
}
