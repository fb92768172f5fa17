//! A request from its bytes to a call, or to the error that refuses it.

use api::{Json, JsonMap};
use http::{HeaderName, HeaderValue};
use serde::{Serialize, Serializer};
use serde_json::Number;

use super::body;
use super::dialect::{Dialect, Settings, Transport};
use super::error::{self, Response};
use super::extension::{Extension, ExtensionSet, Requested, Subject, visible};
use super::head::Head;
use super::methods::{self, ExtensionMethod, Found, Operation};
use super::params;
use super::reply;
use super::route::{Route, Target};
use super::view::View;
use crate::call::Call;
use crate::error::{Error, ErrorKind};
use crate::model::Line;

/// The longest id of a JSON-RPC request: every event of a stream repeats it.
const MAX_REQUEST_ID: usize = 1024;

/// The id of a JSON-RPC request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestId {
    /// None that could be read, or null.
    Null,
    /// A whole number.
    Number(Number),
    /// A string.
    Text(String),
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its id; null in REST.
    pub id: RequestId,
    /// Whether it has no id, and so gets no reply.
    pub notification: bool,
    /// How it is spelled.
    pub dialect: Dialect,
    /// The JSON-RPC method, or the same of the operation of REST; for logs and metrics.
    pub method: &'static str,
    /// What it asks for.
    pub call: Call,
    /// The extensions that are active: those requested that bear on the call.
    pub extensions: ExtensionSet,
    /// The extensions that it asks for.
    pub requested: Requested,
    /// Whether the client takes `application/json`, but not `application/a2a+json`.
    pub plain_json: bool,
}

impl Request {
    /// Whether its reply is an event stream.
    pub fn is_stream(&self) -> bool {
        matches!(self.call, Call::Stream(_) | Call::Subscribe { .. })
    }

    /// What its replies show.
    pub fn view(&self) -> View {
        let text_only = match &self.call {
            Call::Send(send) | Call::Stream(send) => params::is_text_only(&send.options.accepted_output_modes),
            _ => false,
        };
        View::new(self.dialect, visible(self.dialect.payload, self.extensions), text_only)
    }

    /// The response headers that say what was agreed on.
    pub fn negotiated_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        reply::negotiated_headers(self.dialect, &self.requested, self.extensions)
    }
}

/// A request that is refused before it becomes a call, with what its reply needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// How the reply is spelled.
    pub dialect: Dialect,
    /// The id of the request.
    pub id: RequestId,
    /// Whether it has no id, and so gets no reply.
    pub notification: bool,
    /// What is wrong.
    pub error: Error,
    /// The response headers that say what was agreed on: none if that is what failed.
    pub negotiated_headers: Vec<(HeaderName, HeaderValue)>,
}

impl Rejection {
    pub(super) fn new(dialect: Dialect, error: Error) -> Self {
        Self { dialect, id: RequestId::Null, notification: false, error, negotiated_headers: Vec::new() }
    }

    /// The same after version and extensions were agreed on.
    fn after_negotiation(self, requested: &Requested, subject: Subject) -> Self {
        let negotiated_headers = reply::negotiated_headers(self.dialect, requested, requested.activated(subject));
        Self { negotiated_headers, ..self }
    }

    /// The reply.
    pub fn response(&self) -> Response {
        if self.notification { Response::no_content() } else { error::response(&self.error, self.dialect, &self.id) }
    }
}

/// Reads the body of a request for [`Target::JsonRpc`] or [`Target::Rest`].
///
/// # Errors
/// What the client has to change.
pub fn parse(route: &Route, body: &[u8], settings: &Settings) -> Result<Request, Rejection> {
    match &route.target {
        Target::Rest(_) => parse_rest(route, body),
        _ => parse_rpc(route, body, settings),
    }
}

/// Reads a request of 1.0 from the JSON of its protocol buffers. Replies to it are those of REST.
///
/// # Errors
/// What the client has to change.
#[cfg(feature = "grpc")]
pub fn parse_proto(
    operation: Operation,
    params: Json,
    headers: &http::HeaderMap,
    settings: &Settings,
) -> Result<Request, Rejection> {
    let head = Head::read(headers, "");
    let dialect = match head.version.negotiate(Some(Line::V10), settings) {
        Ok((payload, errors)) => Dialect { payload, errors, transport: Transport::Rest },
        Err((_, error)) => return Err(Rejection::new(Dialect::of(Line::V10, Transport::Rest), error)),
    };
    let mut call = params::rpc(operation, params, dialect.syntax()).map_err(|error| Rejection::new(dialect, error))?;
    complete(&mut call, &head);
    Ok(Request {
        id: RequestId::Null,
        notification: false,
        dialect,
        method: operation.method(Line::V10).unwrap_or_default(),
        call,
        extensions: head.extensions.activated(subject_of(operation)),
        requested: head.extensions,
        plain_json: true,
    })
}

fn parse_rest(route: &Route, body: &[u8]) -> Result<Request, Rejection> {
    let dialect = route.dialect();
    let Target::Rest(rest) = &route.target else {
        return Err(Rejection::new(dialect, Error::internal("this path has no operation of REST")));
    };
    let subject = subject_of(rest.operation);
    let refuse = |error| Rejection::new(dialect, error).after_negotiation(&route.head.extensions, subject);
    let body = if route.has_body() && !body.is_empty() {
        let body = body::parse(body).map_err(refuse)?;
        if body.get("jsonrpc").is_some() && body.get("method").is_some() {
            return Err(refuse(envelope(&route.path)));
        }
        body
    } else {
        Json::Object(JsonMap::new())
    };
    let mut call = params::rest(rest, &route.query, body, dialect.syntax()).map_err(refuse)?;
    complete(&mut call, &route.head);
    Ok(Request {
        id: RequestId::Null,
        notification: false,
        dialect,
        method: rest.operation.method(Line::V10).unwrap_or_default(),
        call,
        extensions: route.head.extensions.activated(subject),
        requested: route.head.extensions.clone(),
        plain_json: route.head.plain_json,
    })
}

fn envelope(path: &str) -> Error {
    let message = "This is a JSON-RPC request, which belongs to POST /. REST takes the bare message.";
    Error::new(ErrorKind::InvalidRequest, message).with("path", path)
}

fn parse_rpc(route: &Route, body: &[u8], settings: &Settings) -> Result<Request, Rejection> {
    let requested = &route.head.extensions;
    let mut envelope = read_envelope(body).map_err(|(id, error)| {
        let rejection = Rejection { id, ..Rejection::new(route.dialect(), error) };
        match route.head.version.negotiate(None, settings) {
            Ok(_) => rejection.after_negotiation(requested, Subject::Tasks),
            Err(_) => rejection,
        }
    })?;
    let found = methods::find(&envelope.method);
    let (named, subject) = match &found {
        Some(Found::Core(operation, line)) => (Some(*line), subject_of(*operation)),
        Some(Found::Extension(method)) if !is_disabled(method, settings) => (None, Subject::Method(method.extension)),
        Some(Found::Extension(_)) | None => (None, Subject::Tasks),
    };
    let (id, notification) = (envelope.id.clone(), envelope.notification);
    let refuse = |dialect, error| Rejection { id: id.clone(), notification, ..Rejection::new(dialect, error) };
    let dialect = match route.head.version.negotiate(named, settings) {
        Ok((payload, errors)) => Dialect { payload, errors, transport: Transport::JsonRpc },
        Err((line, error)) => return Err(refuse(Dialect::of(line, Transport::JsonRpc), error)),
    };
    let refuse = |error| refuse(dialect, error).after_negotiation(requested, subject);
    let params = std::mem::take(&mut envelope.params);
    let (method, mut call) = match found {
        None => return Err(refuse(unsupported(ErrorKind::MethodNotFound, &envelope.method, dialect, settings))),
        Some(Found::Core(operation, line)) => {
            let call = params::rpc(operation, params, dialect.syntax()).map_err(refuse)?;
            (operation.method(line).unwrap_or_default(), call)
        }
        Some(Found::Extension(method)) => {
            (method.name, extension_call(method, params, dialect, requested, settings).map_err(refuse)?)
        }
    };
    complete(&mut call, &route.head);
    Ok(Request {
        id: envelope.id,
        notification: envelope.notification,
        dialect,
        method,
        call,
        extensions: requested.activated(subject),
        requested: requested.clone(),
        plain_json: true,
    })
}

fn subject_of(operation: Operation) -> Subject {
    if operation == Operation::ExtendedCard { Subject::Card } else { Subject::Tasks }
}

fn read_envelope(body: &[u8]) -> Result<Envelope, (RequestId, Error)> {
    match body::parse(body) {
        Ok(Json::Object(envelope)) => Envelope::read(envelope),
        Ok(Json::Array(_)) => Err((RequestId::Null, invalid("", "Batches are not supported; send each request alone"))),
        Ok(_) => Err((RequestId::Null, invalid("", "A request is an object"))),
        Err(error) => Err((RequestId::Null, error)),
    }
}

/// Adds what the headers say.
fn complete(call: &mut Call, head: &Head) {
    match call {
        Call::Send(send) | Call::Stream(send) => send.traceparent.clone_from(&head.traceparent),
        Call::Subscribe { after, .. } => *after = head.after.or(*after),
        _ => {}
    }
}

/// A JSON-RPC request without its meaning.
struct Envelope {
    id: RequestId,
    notification: bool,
    method: String,
    params: Json,
}

impl Envelope {
    fn read(mut object: JsonMap) -> Result<Self, (RequestId, Error)> {
        let id = match object.remove("id") {
            None => None,
            Some(Json::Null) => Some(RequestId::Null),
            Some(Json::Number(number)) if number.is_i64() || number.is_u64() => Some(RequestId::Number(number)),
            Some(Json::String(text)) if text.len() <= MAX_REQUEST_ID => Some(RequestId::Text(text)),
            Some(_) => {
                let message = format!("id must be a string of at most {MAX_REQUEST_ID} bytes, a whole number or null");
                return Err((RequestId::Null, invalid("id", message)));
            }
        };
        let notification = id.is_none();
        let id = id.unwrap_or(RequestId::Null);
        let refuse = |field, message: &str| Err((id.clone(), invalid(field, message)));
        if object.get("jsonrpc").and_then(Json::as_str) != Some("2.0") {
            return refuse("jsonrpc", "jsonrpc must be \"2.0\"");
        }
        let Some(Json::String(method)) = object.remove("method") else {
            return refuse("method", "method must be a string");
        };
        let params = object.remove("params").unwrap_or(Json::Null);
        if !params.is_object() && !params.is_null() {
            return refuse("params", "params must be an object");
        }
        Ok(Self { id, notification, method, params })
    }
}

fn invalid(field: &str, message: impl Into<String>) -> Error {
    let error = Error::new(ErrorKind::InvalidRequest, message).with("type", "INVALID_REQUEST");
    if field.is_empty() { error } else { error.with("field", field) }
}

/// The longest method name that an error repeats.
const MAX_SHOWN_METHOD: usize = 256;

fn unsupported(kind: ErrorKind, method: &str, dialect: Dialect, settings: &Settings) -> Error {
    let method: String = method.chars().take(MAX_SHOWN_METHOD).collect();
    Error::new(kind, format!("Unsupported method: {method}"))
        .with("method", method)
        .with("supported_methods", methods::supported(dialect.errors, settings))
        .with("protocol_version", dialect.version())
}

fn is_disabled(method: &ExtensionMethod, settings: &Settings) -> bool {
    method.toggle.is_some_and(|toggle| !toggle.is_on(settings))
}

fn extension_call(
    method: &ExtensionMethod,
    params: Json,
    dialect: Dialect,
    requested: &Requested,
    settings: &Settings,
) -> Result<Call, Error> {
    if is_disabled(method, settings) {
        return Err(unsupported(ErrorKind::MethodDisabled, method.name, dialect, settings));
    }
    let extension = method.extension;
    // 0.3 has no header for extensions of its own, so a call is request enough there.
    if dialect.payload == Line::V10 && !requested.activated(Subject::Method(extension)).contains(extension) {
        return Err(not_negotiated(method.name, extension, requested));
    }
    match params {
        Json::Null => Ok(Call::Extension { method: method.name.to_owned(), params: JsonMap::new() }),
        Json::Object(params) => {
            for (name, value) in &params {
                super::fields::check_depth(value, super::fields::Path::Root(name))?;
            }
            Ok(Call::Extension { method: method.name.to_owned(), params })
        }
        _ => Err(Error::invalid("params", "params must be an object")),
    }
}

fn not_negotiated(method: &str, extension: Extension, requested: &Requested) -> Error {
    let message = format!("{method} belongs to an extension; name {} in the header A2A-Extensions.", extension.urn());
    Error::new(ErrorKind::ExtensionNegotiationRequired, message)
        .with("method", method)
        .with("required_extensions", vec![extension.urn()])
        .with("requested_extensions", requested.identifiers.clone())
        .with("header", "A2A-Extensions")
}
