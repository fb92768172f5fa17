//! The ACP face: over a WebSocket, one message per frame, or over HTTP, where a client posts its messages and reads the
//! agent's as events. Not one of OpenCode's operations.

use acp::rpc::MAX_LINE;
use api::Json;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use schemars::{Schema, SchemaGenerator};
use serde_json::json;
use transport::secret;

use crate::acp_clients::{self, MessageHead, StreamError};
use crate::error::{Error, RequestPart};
use crate::operation::request::{NoParams, Request, RequestBody};
use crate::operation::{Accepted, EventStream, Operation, RawReply, Reply as _, json, operation};

/// The connection of a client over HTTP.
const CONNECTION_HEADER: HeaderName = HeaderName::from_static("acp-connection-id");
/// The session that a message is about.
const SESSION_HEADER: HeaderName = HeaderName::from_static("acp-session-id");
/// The last event of a stream that the client has seen.
const LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");
/// Methods about an open session, which a header must name.
const SESSION_METHODS: [&str; 6] = [
    "session/prompt",
    "session/cancel",
    "session/close",
    "session/set_mode",
    "session/set_model",
    "session/set_config_option",
];
/// The longest header value that is accepted.
const MAX_HEADER_BYTES: usize = 1024;

pub fn operations() -> Vec<Operation> {
    let experimental = "experimental, like this transport in the protocol";
    [
        operation(
            Method::GET,
            "/acp",
            "acp.connect",
            "Speak ACP over a WebSocket, or read the agent's messages.",
            connect,
        ),
        operation(Method::POST, "/acp", "acp.send", "Send a message to the agent.", send),
        operation(Method::DELETE, "/acp", "acp.disconnect", "End a connection.", disconnect),
    ]
    .map(|operation| operation.partial(experimental).global().not_found())
    .into()
}

/// A JSON-RPC message.
struct Message(Bytes);

impl RequestBody for Message {
    fn read(bytes: &Bytes) -> Result<Self, Error> {
        Ok(Self(bytes.clone()))
    }

    fn schema(generator: &mut SchemaGenerator) -> Option<(Schema, bool)> {
        Some((generator.subschema_for::<api::JsonMap>(), true))
    }
}

async fn connect(mut request: Request) -> Result<RawReply<bool>, Error> {
    if !request.parts.headers.contains_key(header::UPGRADE) {
        return open_stream(&request).map(RawReply::response);
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut request.parts, &()).await;
    let upgrade = upgrade.map_err(|refused| Error::bad_request(RequestPart::Headers, refused.body_text()))?;
    let state = request.state;
    let client = state.backlog.client_of(&request.parts);
    let permit = state.acp_clients.client_permit()?;
    let id = header_value(&secret::generate().map_err(Error::internal)?);
    let mut response = upgrade.max_message_size(MAX_LINE).on_upgrade(async move |socket| {
        let _permit = permit;
        acp_clients::serve_websocket(state, client, socket).await;
    });
    response.headers_mut().insert(CONNECTION_HEADER, id);
    Ok(RawReply::response(response))
}

/// Streams the agent's messages, of a session or of the connection.
fn open_stream(request: &Request) -> Result<Response<axum::body::Body>, Error> {
    let headers = &request.parts.headers;
    let accepts = header_text(headers, &header::ACCEPT)?.unwrap_or_default();
    if !accepts.to_ascii_lowercase().contains("text/event-stream") {
        let message = "Speak ACP over a WebSocket, or accept text/event-stream";
        return Err(Error::named(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message));
    }
    let connection = connection(request)?;
    let last = header_text(headers, &LAST_EVENT_HEADER)?.map(|last| {
        last.parse().map_err(|_| Error::bad_request(RequestPart::Headers, "Last-Event-ID is not one of this stream"))
    });
    let body = connection.mailbox.open_stream(header_text(headers, &SESSION_HEADER)?, last.transpose()?).map_err(
        |refused| match refused {
            StreamError::AlreadyRead => {
                let message = "This stream already has a reader";
                Error::named(StatusCode::CONFLICT, "ConflictError", message)
            }
            StreamError::TooMany => {
                let message = "Too many streams are open; close some of them";
                Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            }
            StreamError::Lost => lost("the messages after Last-Event-ID are no longer known"),
        },
    )?;
    Ok(EventStream::<Json>::new(body).into_response())
}

async fn send(request: Request<NoParams, NoParams, Message>) -> Result<RawReply<Json>, Error> {
    let headers = &request.parts.headers;
    let kind = header_text(headers, &header::CONTENT_TYPE)?.unwrap_or_default();
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        let message = "A message is application/json";
        return Err(Error::named(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message));
    }
    let line = request.body.0.clone();
    let head = match MessageHead::of(&line) {
        Ok(head) if line.trim_ascii_start().starts_with(b"{") => head,
        Err(error) if !error.is_data() => {
            return Ok(invalid_message(-32700, &format!("The message is not JSON: {error}")));
        }
        _ => return Ok(invalid_message(-32600, "A message is one object; batches are not supported")),
    };
    let is_initialize = head.method.as_deref() == Some("initialize") && head.id().is_some_and(|id| id != "null");
    if is_initialize && !headers.contains_key(CONNECTION_HEADER) {
        let (id, response) = acp_clients::connect(&request.state, line.clone()).await?;
        let mut response = json(response);
        response.headers_mut().insert(CONNECTION_HEADER, header_value(&id));
        return Ok(RawReply::response(response));
    }
    let connection = connection(&request)?;
    let bad = |message: String| Err(Error::bad_request(RequestPart::Headers, message));
    if head.method.as_deref() == Some("initialize") {
        return bad("This connection is already initialized; send initialize without Acp-Connection-Id".into());
    }
    let (header_session, message_session) = (header_text(headers, &SESSION_HEADER)?, head.session());
    let needs_session = head.method.as_deref().is_some_and(|method| SESSION_METHODS.contains(&method));
    if needs_session && header_session.is_none() {
        return bad("Acp-Session-Id is missing".into());
    }
    if let (Some(header_session), Some(message_session)) = (&header_session, &message_session)
        && header_session != message_session
    {
        return bad(format!("Acp-Session-Id is {header_session:?}, but the message is about {message_session:?}"));
    }
    connection.mailbox.note_received(&head, header_session);
    if !connection.send(line.clone()).await {
        return Err(unknown_connection());
    }
    Ok(RawReply::response(Accepted.into_response()))
}

async fn disconnect(request: Request) -> Result<Accepted, Error> {
    let id = connection_id(&request.parts.headers)?;
    if request.state.acp_clients.end(&id) { Ok(Accepted) } else { Err(unknown_connection()) }
}

fn connection<Q, B>(request: &Request<NoParams, Q, B>) -> Result<std::sync::Arc<acp_clients::Connection>, Error> {
    let id = connection_id(&request.parts.headers)?;
    let clients = &request.state.acp_clients;
    clients.find(&id).ok_or_else(|| clients.end_reason(&id).map_or_else(unknown_connection, lost))
}

/// The error for a connection or stream whose messages are lost.
fn lost(why: &str) -> Error {
    let message =
        format!("This connection cannot continue: {why}. Start again with initialize, and load your sessions");
    Error::named(StatusCode::GONE, "Gone", message)
}

fn connection_id(headers: &HeaderMap) -> Result<String, Error> {
    let missing = || Error::bad_request(RequestPart::Headers, "Acp-Connection-Id is missing; start with initialize");
    header_text(headers, &CONNECTION_HEADER)?.ok_or_else(missing)
}

fn unknown_connection() -> Error {
    Error::not_found("There is no such connection, or no longer; start with initialize")
}

/// A header as text.
fn header_text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().ok().filter(|value| value.len() <= MAX_HEADER_BYTES).map(str::to_owned);
    value.map(Some).ok_or_else(|| Error::bad_request(RequestPart::Headers, format!("{name} is too long or not ASCII")))
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Refuses what is not a message at all: no stream could be chosen for the response.
fn invalid_message(code: i64, message: &str) -> RawReply<Json> {
    let mut response =
        json(json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}).to_string());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    RawReply::response(response)
}
