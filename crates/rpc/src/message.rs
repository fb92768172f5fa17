//! Messages: how they are parsed and serialised.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

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

/// A message as it was sent: a request, a notification or a response. `P` holds parameters and results.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de>"))]
pub struct RawMessage<P> {
    /// The version of JSON-RPC.
    #[serde(default, deserialize_with = "present")]
    pub jsonrpc: Option<Value>,
    /// The id of the request. A notification has none.
    #[serde(default, deserialize_with = "present")]
    pub id: Option<Value>,
    /// The method. A response has none.
    #[serde(default, deserialize_with = "present")]
    pub method: Option<Value>,
    /// The parameters.
    #[serde(default, deserialize_with = "present")]
    pub params: Option<P>,
    /// The result of a request that succeeded.
    #[serde(default, deserialize_with = "present")]
    pub result: Option<P>,
    /// The error of one that failed; see [`Error::from_response`].
    #[serde(default, deserialize_with = "present")]
    pub error: Option<Value>,
}

impl<'de, P: Deserialize<'de>> RawMessage<P> {
    /// Parses a message. Serde would read a list as the fields in order.
    pub fn parse(text: &'de [u8]) -> serde_json::Result<Self> {
        match text.trim_ascii_start().first() {
            Some(b'[') => {
                serde_json::from_slice::<IgnoredAny>(text)?;
                Err(serde::de::Error::custom("expected an object, got a list"))
            }
            _ => serde_json::from_slice(text),
        }
    }
}

/// Tells a null field from a missing one: a request may have the id null, a notification has no id.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Parses a line. Invalid UTF-8 counts as invalid JSON.
pub fn parse(line: &[u8]) -> Incoming {
    let Ok(text) = std::str::from_utf8(line) else {
        return Incoming::Invalid(Value::Null, Error::parse("The message is not UTF-8"));
    };
    if text.trim().is_empty() {
        return Incoming::Empty;
    }
    let raw: RawMessage<Value> = match RawMessage::parse(line) {
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
        (Some(Value::String(method)), Some(id)) => Incoming::Request(id, method, raw.params.unwrap_or_default()),
        (Some(Value::String(method)), None) => Incoming::Notification(method, raw.params.unwrap_or_default()),
        (Some(_), id) => Incoming::Invalid(id.unwrap_or_default(), Error::invalid_request("A method is a string")),
        (None, Some(id)) => match (raw.result, raw.error) {
            (_, Some(error)) if !error.is_null() => Incoming::Response(id, Err(Error::from_response(error))),
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

/// The id of one of our requests in a response. Some servers send numeric ids back as strings.
pub fn request_id(id: &Value) -> Option<u64> {
    id.as_u64().or_else(|| id.as_str()?.parse().ok())
}

/// A request or a notification, serialised directly: thousands may hold whole files.
#[derive(Serialize)]
struct OutgoingMessage<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a P>,
}

/// Serialises a request.
pub fn request(id: u64, method: &str, params: &impl Serialize) -> Vec<u8> {
    serialise(&OutgoingMessage { jsonrpc: "2.0", id: Some(id), method, params: Some(params) })
}

/// Serialises a notification.
pub fn notification<P: Serialize>(method: &str, params: Option<&P>) -> Vec<u8> {
    serialise(&OutgoingMessage { jsonrpc: "2.0", id: None, method, params })
}

/// Serialises a response.
pub fn response(id: &Value, result: Result<Value, Error>) -> Vec<u8> {
    match result {
        Ok(result) => serialise(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Err(error) => serialise(&json!({"jsonrpc": "2.0", "id": id, "error": error})),
    }
}

fn serialise(message: &impl Serialize) -> Vec<u8> {
    // Only non-string keys could fail, and there are none. An empty line means nothing to the peer.
    serde_json::to_vec(message).unwrap_or_default()
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
        for line in ["5", "null", "[]", r#"["2.0", 1, "m", {}]"#, "[{\"id\":1,\"method\":\"m\"}]", "{}", "\"x\""] {
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
        for odd in [r#""odd""#, "{}", r#"{"code":"x"}"#, "[]"] {
            let line = format!(r#"{{"id":1,"error":{odd}}}"#);
            let Incoming::Response(_, Err(error)) = parse(line.as_bytes()) else { panic!("{odd} is not an error") };
            assert_eq!(error.code, code::INTERNAL, "{odd}");
        }
        assert_eq!(Error::from_response(json!({"message": "no"})), Error::new(0, "no"));
    }

    #[test]
    fn request_ids_may_come_back_as_text() {
        assert_eq!((request_id(&json!(7)), request_id(&json!("7"))), (Some(7), Some(7)));
        for other in [json!(null), json!(-1), json!(1.5), json!("a"), json!([7])] {
            assert_eq!(request_id(&other), None, "{other}");
        }
    }

    #[test]
    fn outgoing_messages() {
        let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
        assert_eq!(
            text(request(1, "m", &json!({"a": 1}))),
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}"#
        );
        assert_eq!(text(notification("n", Some(&json!([])))), r#"{"jsonrpc":"2.0","method":"n","params":[]}"#);
        assert_eq!(text(notification::<()>("n", None)), r#"{"jsonrpc":"2.0","method":"n"}"#);
        assert_eq!(text(response(&json!("x"), Ok(json!(1)))), r#"{"jsonrpc":"2.0","id":"x","result":1}"#);
        let refused = text(response(&Value::Null, Err(Error::new(-1, "no"))));
        assert_eq!(refused, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#);
    }
}
