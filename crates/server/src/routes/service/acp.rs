//! The ACP face: by WebSocket, one message per frame, or by HTTP, where a client posts its messages and reads those of the
//! agent as events. Not one of OpenCode's operations.

use acp::rpc::MAX_LINE;
use api::Json;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use schemars::{Schema, SchemaGenerator};
use serde_json::json;

use crate::acp_clients::{self, Head, Refused};
use crate::error::{Error, Where};
use crate::operation::request::{Call, Nothing, Payload};
use crate::operation::{Accepted, Events, Operation, Raw, Reply as _, json, operation};
use crate::transport::secret;

/// The connection of a client that comes by HTTP.
const CONNECTION: HeaderName = HeaderName::from_static("acp-connection-id");
/// The session that a message is about.
const SESSION: HeaderName = HeaderName::from_static("acp-session-id");
/// The last event of a stream that the client has seen.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// What is about a session that is open, and says so in its head.
const WITH_SESSION: [&str; 6] = [
    "session/prompt",
    "session/cancel",
    "session/close",
    "session/set_mode",
    "session/set_model",
    "session/set_config_option",
];
/// The longest name of a session that is believed.
const MAX_NAME: usize = 1024;

pub fn operations() -> Vec<Operation> {
    let experimental = "experimental, as the transport is in the protocol";
    [
        operation(Method::GET, "/acp", "acp.connect", "Speak ACP by WebSocket, or read what the agent says.", connect),
        operation(Method::POST, "/acp", "acp.send", "Say something to the agent.", send),
        operation(Method::DELETE, "/acp", "acp.disconnect", "End a connection.", disconnect),
    ]
    .map(|operation| operation.partial(experimental).global().not_found())
    .into()
}

/// One message.
struct Line(Bytes);

impl Payload for Line {
    fn read(bytes: &Bytes) -> Result<Self, Error> {
        Ok(Self(bytes.clone()))
    }

    fn schema(generator: &mut SchemaGenerator) -> Option<(Schema, bool)> {
        Some((generator.subschema_for::<api::JsonMap>(), true))
    }
}

async fn connect(mut call: Call) -> Result<Raw<bool>, Error> {
    if !call.parts.headers.contains_key(header::UPGRADE) {
        return read(&call).map(Raw::response);
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
    let upgrade = upgrade.map_err(|refused| Error::bad_request(Where::Headers, refused.body_text()))?;
    let state = call.state;
    let client = state.backlog.reader(&call.parts);
    let seat = state.agents.seat()?;
    let name = named(&secret::new()?);
    let mut response = upgrade.max_message_size(MAX_LINE).on_upgrade(async move |socket| {
        let _held = seat;
        acp_clients::converse(state, client, socket).await;
    });
    response.headers_mut().insert(CONNECTION, name);
    Ok(Raw::response(response))
}

/// What the agent says, of a session or of the connection.
fn read(call: &Call) -> Result<Response<axum::body::Body>, Error> {
    let headers = &call.parts.headers;
    let accepts = text(headers, &header::ACCEPT)?.unwrap_or_default();
    if !accepts.to_ascii_lowercase().contains("text/event-stream") {
        let message = "Speak ACP by WebSocket, or accept text/event-stream";
        return Err(Error::named(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message));
    }
    let connection = connection(call)?;
    let last = text(headers, &LAST_EVENT)?.map(|last| {
        last.parse().map_err(|_| Error::bad_request(Where::Headers, "Last-Event-ID is not one of this stream"))
    });
    let body = connection.mail.read(text(headers, &SESSION)?, last.transpose()?).map_err(|refused| match refused {
        Refused::Taken => {
            let message = "Somebody reads this stream already";
            Error::named(StatusCode::CONFLICT, "ConflictError", message)
        }
        Refused::Full => {
            let message = "Too many streams are open; close some of them";
            Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        }
        Refused::Lost => gone("what came after Last-Event-ID is no longer known"),
    })?;
    Ok(Events::<Json>::new(body).into_response())
}

async fn send(call: Call<Nothing, Nothing, Line>) -> Result<Raw<Json>, Error> {
    let headers = &call.parts.headers;
    let kind = text(headers, &header::CONTENT_TYPE)?.unwrap_or_default();
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        let message = "A message is application/json";
        return Err(Error::named(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message));
    }
    let line = call.body.0.clone();
    let head = match Head::of(&line) {
        Ok(head) if line.trim_ascii_start().starts_with(b"{") => head,
        Err(error) if !error.is_data() => return Ok(refused(-32700, &format!("The message is not JSON: {error}"))),
        _ => return Ok(refused(-32600, "A message is one object; batches are not supported")),
    };
    let hello = head.method.as_deref() == Some("initialize") && head.id().is_some_and(|id| id != "null");
    if hello && !headers.contains_key(CONNECTION) {
        let (name, answer) = acp_clients::connect(&call.state, line.clone()).await?;
        let mut response = json(answer);
        response.headers_mut().insert(CONNECTION, named(&name));
        return Ok(Raw::response(response));
    }
    let connection = connection(&call)?;
    let bad = |message: String| Err(Error::bad_request(Where::Headers, message));
    if head.method.as_deref() == Some("initialize") {
        return bad("This connection has begun already; send initialize without Acp-Connection-Id".into());
    }
    let (named, meant) = (text(headers, &SESSION)?, head.session());
    let needs = head.method.as_deref().is_some_and(|method| WITH_SESSION.contains(&method));
    if needs && named.is_none() {
        return bad("Acp-Session-Id is missing".into());
    }
    if let (Some(named), Some(meant)) = (&named, &meant)
        && named != meant
    {
        return bad(format!("Acp-Session-Id is {named:?}, but the message is about {meant:?}"));
    }
    connection.mail.heard(&head, named);
    if !connection.send(line.clone()).await {
        return Err(unknown());
    }
    Ok(Raw::response(Accepted.into_response()))
}

async fn disconnect(call: Call) -> Result<Accepted, Error> {
    let name = name(&call.parts.headers)?;
    if call.state.agents.end(&name) { Ok(Accepted) } else { Err(unknown()) }
}

fn connection<Q, B>(call: &Call<Nothing, Q, B>) -> Result<std::sync::Arc<acp_clients::Connection>, Error> {
    let name = name(&call.parts.headers)?;
    let agents = &call.state.agents;
    agents.find(&name).ok_or_else(|| agents.why(&name).map_or_else(unknown, gone))
}

/// What was said got lost.
fn gone(why: &str) -> Error {
    let message = format!("This connection cannot go on: {why}. Begin anew with initialize, and load your sessions");
    Error::named(StatusCode::GONE, "Gone", message)
}

fn name(headers: &HeaderMap) -> Result<String, Error> {
    let missing = || Error::bad_request(Where::Headers, "Acp-Connection-Id is missing; begin with initialize");
    text(headers, &CONNECTION)?.ok_or_else(missing)
}

fn unknown() -> Error {
    Error::not_found("There is no such connection (any more); begin with initialize")
}

/// A header as text.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().ok().filter(|value| value.len() <= MAX_NAME).map(str::to_owned);
    value.map(Some).ok_or_else(|| Error::bad_request(Where::Headers, format!("{name} is too long or not ASCII")))
}

fn named(name: &str) -> HeaderValue {
    HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static(""))
}

/// What is no message at all is refused at once, since nothing would tell which stream its answer belongs to.
fn refused(code: i64, message: &str) -> Raw<Json> {
    let mut response =
        json(json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}).to_string());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    Raw::response(response)
}
