//! The request that a handler gets, parsed and checked. An error names the place of what is wrong, in the words of
//! OpenCode's own validator where it has any.

use std::str::FromStr;
use std::sync::Arc;

use api::{AgentRuntime, Scope};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use engine::Engine;
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use transport::body::{self, BodyError};

use crate::State;
use crate::error::{Error, RequestPart};

/// The largest request body. Prompts carry images in base64.
pub const MAX_BODY: usize = 32 << 20;

/// The header that selects a directory.
const DIRECTORY_HEADER: &str = "x-opencode-directory";

/// A request to one operation: its path, query and body as types.
pub struct Request<P = NoParams, Q = NoParams, B = ()> {
    /// The server's state.
    pub state: Arc<State>,
    /// The contract, as the handle of the client that sent the request.
    pub host: Arc<dyn AgentRuntime>,
    /// The same handle of the engine, for what OpenCode's API has and the contract has not.
    pub engine: Engine,
    /// The directory that the request is about.
    pub scope: Scope,
    /// Whether the query named the directory, rather than a header or the server's default.
    pub directory_in_query: bool,
    /// The path parameters.
    pub path: P,
    /// The query parameters.
    pub query: Q,
    /// The body.
    pub body: B,
    /// Method, URI, headers and extensions, for the few handlers that need them.
    pub parts: Parts,
}

/// No parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct NoParams {}

/// An id that a client sent, checked for its prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ParsedId<T>(pub T);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for ParsedId<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<T: JsonSchema> JsonSchema for ParsedId<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A type that a request body can be.
pub trait RequestBody: Sized + Send {
    /// Whether the body is read at all.
    const IS_READ: bool = true;
    /// Parses the body.
    fn read(bytes: &Bytes) -> Result<Self, Error>;
    /// Its schema, and whether it is required; `None` if there is no body.
    fn schema(generator: &mut SchemaGenerator) -> Option<(Schema, bool)>;
}

impl RequestBody for () {
    const IS_READ: bool = false;

    fn read(_: &Bytes) -> Result<Self, Error> {
        Ok(())
    }

    fn schema(_: &mut SchemaGenerator) -> Option<(Schema, bool)> {
        None
    }
}

/// A JSON body.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send> RequestBody for JsonBody<T> {
    fn read(bytes: &Bytes) -> Result<Self, Error> {
        parse_object(bytes).map(Self)
    }

    fn schema(generator: &mut SchemaGenerator) -> Option<(Schema, bool)> {
        Some((generator.subschema_for::<T>(), true))
    }
}

/// A JSON body that may be left out.
pub struct OptionalJsonBody<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Default + Send> RequestBody for OptionalJsonBody<T> {
    fn read(bytes: &Bytes) -> Result<Self, Error> {
        match bytes.trim_ascii().first() {
            None => Ok(Self(T::default())),
            Some(_) => parse_object(bytes).map(Self),
        }
    }

    fn schema(generator: &mut SchemaGenerator) -> Option<(Schema, bool)> {
        Some((generator.subschema_for::<T>(), false))
    }
}

/// No operation takes a list. Serde would read one as the fields in order, with missing ones at the end.
fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match bytes.trim_ascii().first() {
        Some(b'[') => Err(Error::bad_request(RequestPart::Payload, "Expected an object, got a list")),
        _ => parse_json(bytes),
    }
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    // Tells broken JSON from JSON of the wrong shape, whatever the type looked at first. Only failed bodies are read
    // twice.
    if (read.is_err() || json.end().is_err())
        && let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes)
    {
        return Err(Error::bad_request(RequestPart::Body, format!("The body is not JSON: {error}")));
    }
    read.map_err(|error| Error::bad_request(RequestPart::Payload, explain(&error)))
}

/// Parses the query. Unknown parameters are ignored.
pub fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Error> {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let query = serde_urlencoded::Deserializer::new(pairs);
    serde_path_to_error::deserialize(query).map_err(|error| Error::bad_request(RequestPart::Query, explain(&error)))
}

/// Parses the parameters of a path: each segment of `pattern` in braces, taken from `path`, which matched it.
pub fn parse_path<T: DeserializeOwned>(path: &str, pattern: &str) -> Result<T, Error> {
    let mut map = api::JsonMap::new();
    for (name, value) in pattern.split('/').zip(path.split('/')) {
        let Some(name) = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else { continue };
        let value = percent_decode_str(value).decode_utf8();
        let value =
            value.map_err(|_| Error::bad_request(RequestPart::Params, format!("Not UTF-8\n  at [{name:?}]")))?;
        map.insert(name.into(), value.into());
    }
    serde_path_to_error::deserialize(api::Json::Object(map))
        .map_err(|error| Error::bad_request(RequestPart::Params, explain(&error)))
}

/// What is wrong, and where: `Missing key\n  at ["parts"]`.
fn explain<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    use serde_path_to_error::Segment;
    let mut message = error.inner().to_string();
    // The position in a one-line body helps nobody.
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    let mut path: String = error
        .path()
        .iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(format!("[{index}]")),
            Segment::Map { key } => Some(format!("[{key:?}]")),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect();
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        path.push_str(&format!("[{key:?}]"));
        message = "Missing key".into();
    }
    if path.is_empty() { message } else { format!("{message}\n  at {path}") }
}

/// The directory that a request is about: `?directory=`, else the header, else the server's own.
pub fn parse_scope(headers: &HeaderMap, query: &str, default: &str) -> Result<(Scope, bool), Error> {
    let mut directory = None;
    let mut workspace = None;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            // v2 spells it `location[directory]`.
            "directory" | "location[directory]" if !value.is_empty() => directory = Some(value.into_owned()),
            "workspace" | "location[workspace]" if !value.is_empty() => workspace = Some(value.into_owned()),
            _ => {}
        }
    }
    let in_query = directory.is_some();
    if directory.is_none()
        && let Some(value) = headers.get(DIRECTORY_HEADER)
    {
        let bad = || Error::bad_request(RequestPart::Headers, format!("Not UTF-8\n  at [{DIRECTORY_HEADER:?}]"));
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| bad())?;
        let text = percent_decode_str(text).decode_utf8().map_err(|_| bad())?;
        directory = Some(text.into_owned()).filter(|text| !text.is_empty());
    }
    let directory = match directory {
        None => default.to_string(),
        Some(given) => {
            let part = if in_query { RequestPart::Query } else { RequestPart::Headers };
            normalize_path(&given, default).ok_or_else(|| {
                Error::bad_request(part, format!("Not a directory path: {given:?}\n  at [\"directory\"]"))
            })?
        }
    };
    Ok((Scope { directory, workspace }, in_query))
}

/// An absolute path without `.`, `..` and trailing slash; a relative one is joined to `base`.
pub fn normalize_path(path: &str, base: &str) -> Option<String> {
    if path.contains('\0') || path.len() > 4096 {
        return None;
    }
    let joined = std::path::Path::new(base).join(path);
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.to_str()?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// Reads a body within its bounds of size and time.
pub async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Error> {
    body::read(headers, body, MAX_BODY).await.map_err(|error| match error {
        BodyError::TooLarge { .. } => {
            let message = format!("The body has more than {} MB", MAX_BODY >> 20);
            Error::named(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge", message)
        }
        BodyError::Stalled => {
            let message = "The body did not arrive in time".to_owned();
            Error::named(StatusCode::REQUEST_TIMEOUT, "RequestTimeout", message)
        }
        BodyError::Broken(why) => Error::bad_request(RequestPart::Body, format!("The body ended early: {why}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::SessionId;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "the test looks only at errors")]
    struct TestBody {
        parts: Vec<TestPart>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "the test looks only at errors")]
    struct TestPart {
        id: ParsedId<SessionId>,
    }

    fn refused(body: &str) -> api::Json {
        parse_json::<TestBody>(body.as_bytes()).unwrap_err().body.unwrap()
    }

    #[test]
    fn an_error_in_a_body_names_its_place() {
        let message = |body: &str| refused(body)["data"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message("{}"), "Missing key\n  at [\"parts\"]");
        assert_eq!(message(r#"{"parts":[{}]}"#), "Missing key\n  at [\"parts\"][0][\"id\"]");
        let bad = message(r#"{"parts":[{"id":"nope"}]}"#);
        assert_eq!(bad, "Expected a string starting with \"ses\", got \"nope\"\n  at [\"parts\"][0][\"id\"]");
        assert_eq!(refused("{bad")["data"]["kind"], "Body");
        assert_eq!(refused(r#"{"parts":[]} x"#)["data"]["kind"], "Body");
        assert_eq!(refused("{}")["data"]["kind"], "Payload");
    }

    #[test]
    fn the_query_takes_precedence_over_the_header() {
        let mut headers = HeaderMap::new();
        let of = |headers: &HeaderMap, query: &str| parse_scope(headers, query, "/srv").unwrap();
        assert_eq!(of(&headers, "").0.directory, "/srv");
        headers.insert(DIRECTORY_HEADER, "/a%20b/".parse().unwrap());
        assert_eq!(of(&headers, "").0.directory, "/a b");
        let (scope, in_query) = of(&headers, "directory=%2Fx%2F..%2Fy&workspace=wrk_1");
        assert_eq!((scope.directory.as_str(), scope.workspace.as_deref(), in_query), ("/y", Some("wrk_1"), true));
        assert_eq!(of(&headers, "location[directory]=sub").0.directory, "/srv/sub");
        assert!(super::parse_scope(&headers, "directory=%00", "/srv").is_err());
    }
}
