//! Errors in the shape of each line and transport: codes, statuses and bodies, both to write and to read.

use api::{Json, JsonMap};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::dialect::{Dialect, Transport};
use super::request::RequestId;
use crate::error::{Error, ErrorKind};
use crate::model::Line;

/// A response of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its media type, and what else belongs to the body.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Response {
    /// The reply to a notification.
    pub(super) fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, headers: Vec::new(), body: Vec::new() }
    }

    pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Self {
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        Self { status, headers, body }
    }
}

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const DOMAIN: &str = "a2a-protocol.org";

/// What a kind of error is called.
struct Spelling {
    /// The code of JSON-RPC. Those of extensions collide with those of the protocol; `reason` tells them apart.
    code: i64,
    /// The reason in 1.0, and the `type` of extensions in 0.3.
    reason: &'static str,
    /// The status of REST in 0.3.
    old_status: u16,
    /// The status of REST in 1.0, and its name in gRPC.
    status: u16,
    status_name: &'static str,
}

const fn spelling(
    code: i64,
    reason: &'static str,
    old_status: u16,
    status: u16,
    status_name: &'static str,
) -> Spelling {
    Spelling { code, reason, old_status, status, status_name }
}

fn spell(kind: ErrorKind) -> Spelling {
    match kind {
        ErrorKind::Parse => spelling(-32700, "PARSE_ERROR", 400, 400, "INVALID_ARGUMENT"),
        ErrorKind::InvalidRequest => spelling(-32600, "INVALID_HTTP_JSON_PAYLOAD", 400, 400, "INVALID_ARGUMENT"),
        ErrorKind::MethodNotFound => spelling(-32601, "METHOD_NOT_SUPPORTED", 404, 404, "NOT_FOUND"),
        ErrorKind::MethodDisabled => spelling(-32601, "METHOD_DISABLED", 403, 403, "PERMISSION_DENIED"),
        ErrorKind::InvalidParams => spelling(-32602, "INVALID_PARAMS", 400, 400, "INVALID_ARGUMENT"),
        ErrorKind::Internal => spelling(-32603, "INTERNAL_ERROR", 500, 500, "INTERNAL"),

        ErrorKind::TaskNotFound => spelling(-32001, "TASK_NOT_FOUND", 404, 404, "NOT_FOUND"),
        ErrorKind::TaskNotCancelable => spelling(-32002, "TASK_NOT_CANCELABLE", 409, 400, "FAILED_PRECONDITION"),
        ErrorKind::PushNotSupported => {
            spelling(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", 501, 400, "FAILED_PRECONDITION")
        }
        ErrorKind::UnsupportedOperation => spelling(-32004, "UNSUPPORTED_OPERATION", 501, 400, "FAILED_PRECONDITION"),
        ErrorKind::ContentTypeNotSupported => {
            spelling(-32005, "CONTENT_TYPE_NOT_SUPPORTED", 415, 400, "INVALID_ARGUMENT")
        }
        ErrorKind::InvalidAgentResponse => spelling(-32006, "INVALID_AGENT_RESPONSE", 502, 500, "INTERNAL"),
        ErrorKind::ExtendedCardNotConfigured => {
            spelling(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 404, 400, "FAILED_PRECONDITION")
        }
        ErrorKind::ExtensionSupportRequired => {
            spelling(-32008, "EXTENSION_SUPPORT_REQUIRED", 400, 400, "FAILED_PRECONDITION")
        }
        ErrorKind::VersionNotSupported => spelling(-32009, "VERSION_NOT_SUPPORTED", 400, 400, "FAILED_PRECONDITION"),

        ErrorKind::SessionNotFound => spelling(-32001, "SESSION_NOT_FOUND", 404, 404, "NOT_FOUND"),
        ErrorKind::SessionForbidden => spelling(-32006, "SESSION_FORBIDDEN", 403, 403, "PERMISSION_DENIED"),
        ErrorKind::UpstreamUnreachable => spelling(-32002, "UPSTREAM_UNREACHABLE", 503, 503, "UNAVAILABLE"),
        ErrorKind::UpstreamHttp => spelling(-32003, "UPSTREAM_HTTP_ERROR", 502, 502, "UNAVAILABLE"),
        ErrorKind::UpstreamPayload => spelling(-32005, "UPSTREAM_PAYLOAD_ERROR", 502, 502, "INTERNAL"),
        ErrorKind::InterruptNotFound => spelling(-32004, "INTERRUPT_REQUEST_NOT_FOUND", 404, 404, "NOT_FOUND"),
        ErrorKind::InterruptExpired => spelling(-32007, "INTERRUPT_REQUEST_EXPIRED", 410, 400, "FAILED_PRECONDITION"),
        ErrorKind::InterruptTypeMismatch => {
            spelling(-32008, "INTERRUPT_TYPE_MISMATCH", 409, 400, "FAILED_PRECONDITION")
        }
        ErrorKind::AuthorizationForbidden => spelling(-32007, "AUTHORIZATION_FORBIDDEN", 403, 403, "PERMISSION_DENIED"),
        ErrorKind::ExtensionNegotiationRequired => {
            spelling(-32004, "EXTENSION_NEGOTIATION_REQUIRED", 400, 400, "FAILED_PRECONDITION")
        }

        ErrorKind::Unauthorized => spelling(-32603, "UNAUTHORIZED", 401, 401, "UNAUTHENTICATED"),
        ErrorKind::Forbidden => spelling(-32603, "FORBIDDEN", 403, 403, "FORBIDDEN"),
        ErrorKind::PathNotFound => spelling(-32601, "PATH_NOT_FOUND", 404, 404, "NOT_FOUND"),
        ErrorKind::HttpMethodNotAllowed => spelling(-32601, "METHOD_NOT_ALLOWED", 405, 405, "UNIMPLEMENTED"),
        ErrorKind::BodyTooLarge => spelling(-32603, "REQUEST_BODY_TOO_LARGE", 413, 413, "RESOURCE_EXHAUSTED"),
        ErrorKind::MediaTypeNotSupported => spelling(-32603, "MEDIA_TYPE_NOT_SUPPORTED", 415, 415, "INVALID_ARGUMENT"),
        ErrorKind::TooManyRequests => spelling(-32603, "TOO_MANY_REQUESTS", 429, 429, "RESOURCE_EXHAUSTED"),
        ErrorKind::ShuttingDown => spelling(-32603, "SHUTTING_DOWN", 503, 503, "UNAVAILABLE"),
    }
}

/// The code of JSON-RPC.
fn code(kind: ErrorKind, line: Line) -> i64 {
    match (kind, line) {
        // What clients of 0.3 know for it.
        (ErrorKind::VersionNotSupported, Line::V03) => -32001,
        _ => spell(kind).code,
    }
}

/// The type and the JSON-RPC code of an error, for what is published about methods.
pub(crate) fn type_and_code(kind: ErrorKind) -> (&'static str, i64) {
    let spelling = spell(kind);
    (spelling.reason, spelling.code)
}

/// Whether it comes from HTTP, and so has a status of its own in JSON-RPC, too.
fn is_http(kind: ErrorKind) -> bool {
    use ErrorKind::{
        BodyTooLarge, Forbidden, HttpMethodNotAllowed, MediaTypeNotSupported, PathNotFound, ShuttingDown,
        TooManyRequests, Unauthorized,
    };
    matches!(
        kind,
        Unauthorized
            | Forbidden
            | PathNotFound
            | HttpMethodNotAllowed
            | BodyTooLarge
            | MediaTypeNotSupported
            | TooManyRequests
            | ShuttingDown
    )
}

/// Whether it is an error of JSON-RPC itself, which 1.0 gives the message of its specification.
fn standard_message(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Parse => "Invalid JSON payload",
        ErrorKind::InvalidRequest => "Request payload validation error",
        ErrorKind::MethodNotFound | ErrorKind::MethodDisabled => "Method not found",
        ErrorKind::InvalidParams => "Invalid parameters",
        ErrorKind::Internal => "Internal error",
        _ => return None,
    })
}

/// The response for an error.
pub(super) fn response(error: &Error, dialect: Dialect, id: &RequestId) -> Response {
    let spelling = spell(error.kind);
    let mut response = if dialect.transport == Transport::JsonRpc && !is_http(error.kind) {
        Response::json(StatusCode::OK, bytes(&rpc(error, dialect.errors, id)))
    } else {
        let status = if dialect.errors == Line::V03 { spelling.old_status } else { spelling.status };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Response::json(status, bytes(&body(error, dialect.errors)))
    };
    let header = |value: String| HeaderValue::from_str(&value).ok();
    if let Some(allowed) = error.fields.get("allowed").and_then(Json::as_array) {
        let methods: Vec<&str> = allowed.iter().filter_map(Json::as_str).collect();
        response.headers.extend(header(methods.join(", ")).map(|value| (ALLOW, value)));
    }
    if let Some(seconds) = error.fields.get("retry_after").and_then(Json::as_u64) {
        response.headers.extend(header(seconds.to_string()).map(|value| (RETRY_AFTER, value)));
    }
    response
}

/// The body for an error inside of an event stream.
pub(super) fn in_stream(error: &Error, dialect: Dialect, id: &RequestId) -> Vec<u8> {
    match dialect.transport {
        Transport::JsonRpc => bytes(&rpc(error, dialect.errors, id)),
        Transport::Rest => bytes(&body(error, dialect.errors)),
    }
}

fn bytes(json: &Json) -> Vec<u8> {
    json.to_string().into_bytes()
}

/// A response of JSON-RPC.
fn rpc(error: &Error, line: Line, id: &RequestId) -> Json {
    let (message, data) = match line {
        Line::V03 => (error.message.as_str(), old_data(error)),
        Line::V10 => (standard_message(error.kind).unwrap_or(&error.message), new_data(error)),
    };
    let mut inner = JsonMap::new();
    inner.insert("code".into(), code(error.kind, line).into());
    inner.insert("message".into(), message.into());
    if let Some(data) = data {
        inner.insert("data".into(), data);
    }
    json!({"jsonrpc": "2.0", "id": id, "error": inner})
}

/// The data of 0.3: the fields, and the type of errors that the protocol itself does not have.
fn old_data(error: &Error) -> Option<Json> {
    let mut data = JsonMap::new();
    let of_protocol = standard_message(error.kind).is_some() || is_core(error.kind);
    let has_type = !of_protocol || matches!(error.kind, ErrorKind::MethodNotFound | ErrorKind::MethodDisabled);
    if has_type {
        data.insert("type".into(), spell(error.kind).reason.into());
    }
    data.extend(error.fields.clone());
    (!data.is_empty()).then_some(Json::Object(data))
}

fn is_core(kind: ErrorKind) -> bool {
    use ErrorKind::{
        ContentTypeNotSupported, ExtendedCardNotConfigured, ExtensionSupportRequired, InvalidAgentResponse,
        PushNotSupported, TaskNotCancelable, TaskNotFound, UnsupportedOperation,
    };
    matches!(
        kind,
        TaskNotFound
            | TaskNotCancelable
            | PushNotSupported
            | UnsupportedOperation
            | ContentTypeNotSupported
            | InvalidAgentResponse
            | ExtendedCardNotConfigured
            | ExtensionSupportRequired
    )
}

/// The data of 1.0: the fields of standard errors, and a list of details for all others.
fn new_data(error: &Error) -> Option<Json> {
    if standard_message(error.kind).is_none() {
        return Some(details(error, "type.googleapis.com/opencode_a2a.ErrorContext", false));
    }
    let mut data = camel_fields(error);
    if error.kind == ErrorKind::MethodDisabled {
        data.insert("type".into(), spell(error.kind).reason.into());
    }
    // The message is that of the specification, so what exactly is wrong stands here.
    if error.kind != ErrorKind::MethodNotFound {
        data.insert("detail".into(), error.message.as_str().into());
    }
    (!data.is_empty()).then_some(Json::Object(data))
}

/// The typed details of 1.0.
fn details(error: &Error, context: &str, with_empty_metadata: bool) -> Json {
    let fields = camel_fields(error);
    let mut info = JsonMap::new();
    info.insert("@type".into(), ERROR_INFO.into());
    info.insert("reason".into(), spell(error.kind).reason.into());
    info.insert("domain".into(), DOMAIN.into());
    if !fields.is_empty() || with_empty_metadata {
        info.insert("metadata".into(), fields.iter().map(|(name, value)| (name.clone(), as_text(value))).collect());
    }
    let mut list = vec![Json::Object(info)];
    if !fields.is_empty() {
        let mut facts = JsonMap::new();
        facts.insert("@type".into(), context.into());
        facts.extend(fields);
        list.push(Json::Object(facts));
    }
    Json::Array(list)
}

/// `ErrorInfo` has strings only; structured values are JSON in a string.
fn as_text(value: &Json) -> Json {
    match value {
        Json::String(_) => value.clone(),
        value => value.to_string().into(),
    }
}

/// The fields in camel case, without the type that 1.0 calls `reason`.
fn camel_fields(error: &Error) -> JsonMap {
    let fields = error.fields.iter().filter(|(name, _)| *name != "type" && !is_header(name));
    fields.map(|(name, value)| (camel_case(name), value.clone())).collect()
}

/// Fields that become headers.
fn is_header(name: &str) -> bool {
    matches!(name, "allowed" | "retry_after")
}

fn camel_case(snake: &str) -> String {
    let mut words = snake.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// A body outside of JSON-RPC.
fn body(error: &Error, line: Line) -> Json {
    match error.kind {
        // The same in both lines.
        ErrorKind::PathNotFound | ErrorKind::HttpMethodNotAllowed => json!({"detail": error.message}),
        ErrorKind::Unauthorized | ErrorKind::TooManyRequests => json!({"error": error.message}),
        _ if line == Line::V10 => new_body(error),
        _ => old_body(error),
    }
}

/// 0.3: a flat object. Errors of the protocol have their text in `message`, all others in `error`.
fn old_body(error: &Error) -> Json {
    let is_protocol = is_core(error.kind) || error.kind == ErrorKind::Internal;
    let mut body = JsonMap::new();
    let message = match error.kind {
        ErrorKind::VersionNotSupported => "Unsupported A2A version",
        _ => error.message.as_str(),
    };
    body.insert(if is_protocol { "message" } else { "error" }.into(), message.into());
    let typed = !is_protocol && standard_message(error.kind).is_none() && !is_http(error.kind);
    if typed {
        body.insert("type".into(), spell(error.kind).reason.into());
    }
    let hidden = |name: &str| {
        is_header(name)
            || matches!((error.kind, name), (ErrorKind::InvalidRequest, _) | (ErrorKind::BodyTooLarge, "actual_size"))
    };
    let fields = error.fields.iter().filter(|(name, _)| *name != "type" && !hidden(name));
    body.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
    Json::Object(body)
}

/// 1.0: the error model of Google's APIs (AIP-193).
fn new_body(error: &Error) -> Json {
    let spelling = spell(error.kind);
    let mut inner = json!({"code": spelling.status, "status": spelling.status_name, "message": error.message});
    let bare = matches!(error.kind, ErrorKind::Forbidden);
    if let Some(inner) = inner.as_object_mut().filter(|_| !bare) {
        inner.insert("details".into(), details(error, "type.googleapis.com/opencode_a2a.HttpErrorContext", true));
    }
    json!({ "error": inner })
}

/// The error that a peer sent as JSON-RPC or as a body.
pub(super) fn read(body: &Json, dialect: Dialect, status: u16) -> Error {
    let inner = body.get("error").filter(|inner| inner.is_object()).unwrap_or(body);
    let data = inner.get("data").or_else(|| inner.get("details"));
    let info = data.and_then(Json::as_array).and_then(|list| list.iter().find(|it| it["@type"] == ERROR_INFO));
    let reason = info.and_then(|info| info["reason"].as_str()).or_else(|| data.and_then(|data| data["type"].as_str()));
    let reason = reason.or_else(|| body["type"].as_str());
    let code = inner.get("code").and_then(Json::as_i64);
    let message = ["message", "error", "detail"].into_iter().find_map(|name| inner.get(name)?.as_str());
    let message = message.map_or_else(|| format!("The agent answered with status {status}"), str::to_owned);
    let kind = reason
        .and_then(kind_of_reason)
        .or_else(|| code.and_then(|code| kind_of_code(code, dialect.errors)))
        // In REST of 0.3 errors of the protocol are those with this member.
        .unwrap_or_else(|| match body["message"].is_string() {
            true => protocol_kind_of_status(status),
            false => kind_of_status(status),
        });
    let mut error = Error::new(kind, message);
    if let Some(code) = code {
        error = error.with("code", code);
    }
    if status != 200 {
        error = error.with("status", status);
    }
    if let Some(data) = data {
        error = error.with("data", data.clone());
    }
    error
}

pub(super) const ALL_KINDS: [ErrorKind; 33] = {
    use ErrorKind::*;
    [
        Parse,
        InvalidRequest,
        MethodNotFound,
        MethodDisabled,
        InvalidParams,
        Internal,
        TaskNotFound,
        TaskNotCancelable,
        PushNotSupported,
        UnsupportedOperation,
        ContentTypeNotSupported,
        InvalidAgentResponse,
        ExtendedCardNotConfigured,
        ExtensionSupportRequired,
        VersionNotSupported,
        SessionNotFound,
        SessionForbidden,
        UpstreamUnreachable,
        UpstreamHttp,
        UpstreamPayload,
        InterruptNotFound,
        InterruptExpired,
        InterruptTypeMismatch,
        AuthorizationForbidden,
        ExtensionNegotiationRequired,
        Unauthorized,
        Forbidden,
        PathNotFound,
        HttpMethodNotAllowed,
        BodyTooLarge,
        MediaTypeNotSupported,
        TooManyRequests,
        ShuttingDown,
    ]
};

fn kind_of_reason(reason: &str) -> Option<ErrorKind> {
    ALL_KINDS.into_iter().find(|kind| spell(*kind).reason == reason)
}

/// The codes of the protocol; those of extensions only their own reason tells.
fn kind_of_code(code: i64, line: Line) -> Option<ErrorKind> {
    let is_protocol = |kind: &ErrorKind| standard_message(*kind).is_some() || is_core(*kind);
    match (code, line) {
        (-32009, _) => Some(ErrorKind::VersionNotSupported),
        _ => ALL_KINDS.into_iter().filter(is_protocol).find(|kind| spell(*kind).code == code),
    }
}

/// What the protocol itself has for a status of 0.3.
fn protocol_kind_of_status(status: u16) -> ErrorKind {
    match status {
        404 => ErrorKind::TaskNotFound,
        409 => ErrorKind::TaskNotCancelable,
        415 => ErrorKind::ContentTypeNotSupported,
        501 => ErrorKind::UnsupportedOperation,
        _ => kind_of_status(status),
    }
}

fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        400 | 422 => ErrorKind::InvalidParams,
        401 => ErrorKind::Unauthorized,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::PathNotFound,
        405 => ErrorKind::HttpMethodNotAllowed,
        413 => ErrorKind::BodyTooLarge,
        415 => ErrorKind::MediaTypeNotSupported,
        429 => ErrorKind::TooManyRequests,
        503 => ErrorKind::ShuttingDown,
        _ => ErrorKind::Internal,
    }
}
