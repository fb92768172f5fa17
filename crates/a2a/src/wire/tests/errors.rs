//! Errors: the code, the status and the shape of each kind in each line and transport, and every recorded error.

use serde_json::json;

use super::super::error::{self, ALL_KINDS};
use super::super::request::RequestId;
use super::super::{Dialect, Transport};
use super::*;
use crate::error::{Error, ErrorKind};

/// What a kind of error is: its code in 0.3 and in 1.0, its status in REST of 0.3 and of 1.0, and its names in 1.0.
type Expected = (i64, i64, u16, u16, &'static str, &'static str);

/// The codes and statuses of the specifications, and of the recorded service where they have none.
#[rustfmt::skip]
fn expected(kind: ErrorKind) -> Expected {
    match kind {
        ErrorKind::Parse => (-32700, -32700, 400, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        ErrorKind::InvalidRequest => (-32600, -32600, 400, 400, "INVALID_ARGUMENT", "INVALID_HTTP_JSON_PAYLOAD"),
        ErrorKind::MethodNotFound => (-32601, -32601, 404, 404, "NOT_FOUND", "METHOD_NOT_SUPPORTED"),
        ErrorKind::MethodDisabled => (-32601, -32601, 403, 403, "PERMISSION_DENIED", "METHOD_DISABLED"),
        ErrorKind::InvalidParams => (-32602, -32602, 400, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ErrorKind::Internal => (-32603, -32603, 500, 500, "INTERNAL", "INTERNAL_ERROR"),
        ErrorKind::TaskNotFound => (-32001, -32001, 404, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ErrorKind::TaskNotCancelable => (-32002, -32002, 409, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        ErrorKind::PushNotSupported => (-32003, -32003, 501, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ErrorKind::UnsupportedOperation => (-32004, -32004, 501, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ErrorKind::ContentTypeNotSupported => (-32005, -32005, 415, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
        ErrorKind::InvalidAgentResponse => (-32006, -32006, 502, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
        ErrorKind::ExtendedCardNotConfigured => (-32007, -32007, 404, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
        ErrorKind::ExtensionSupportRequired => (-32008, -32008, 400, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
        ErrorKind::VersionNotSupported => (-32001, -32009, 400, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
        ErrorKind::SessionNotFound => (-32001, -32001, 404, 404, "NOT_FOUND", "SESSION_NOT_FOUND"),
        ErrorKind::SessionForbidden => (-32006, -32006, 403, 403, "PERMISSION_DENIED", "SESSION_FORBIDDEN"),
        ErrorKind::UpstreamUnreachable => (-32002, -32002, 503, 503, "UNAVAILABLE", "UPSTREAM_UNREACHABLE"),
        ErrorKind::UpstreamHttp => (-32003, -32003, 502, 502, "UNAVAILABLE", "UPSTREAM_HTTP_ERROR"),
        ErrorKind::UpstreamPayload => (-32005, -32005, 502, 502, "INTERNAL", "UPSTREAM_PAYLOAD_ERROR"),
        ErrorKind::InterruptNotFound => (-32004, -32004, 404, 404, "NOT_FOUND", "INTERRUPT_REQUEST_NOT_FOUND"),
        ErrorKind::InterruptExpired => (-32007, -32007, 410, 400, "FAILED_PRECONDITION", "INTERRUPT_REQUEST_EXPIRED"),
        ErrorKind::InterruptTypeMismatch => (-32008, -32008, 409, 400, "FAILED_PRECONDITION", "INTERRUPT_TYPE_MISMATCH"),
        ErrorKind::AuthorizationForbidden => (-32007, -32007, 403, 403, "PERMISSION_DENIED", "AUTHORIZATION_FORBIDDEN"),
        ErrorKind::ExtensionNegotiationRequired => (-32004, -32004, 400, 400, "FAILED_PRECONDITION", "EXTENSION_NEGOTIATION_REQUIRED"),
        // These have a status in JSON-RPC, too, so that nobody sees a code of theirs.
        ErrorKind::Unauthorized => (0, 0, 401, 401, "UNAUTHENTICATED", "UNAUTHORIZED"),
        ErrorKind::Forbidden => (0, 0, 403, 403, "FORBIDDEN", "FORBIDDEN"),
        ErrorKind::PathNotFound => (0, 0, 404, 404, "NOT_FOUND", "PATH_NOT_FOUND"),
        ErrorKind::HttpMethodNotAllowed => (0, 0, 405, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
        ErrorKind::BodyTooLarge => (0, 0, 413, 413, "RESOURCE_EXHAUSTED", "REQUEST_BODY_TOO_LARGE"),
        ErrorKind::MediaTypeNotSupported => (0, 0, 415, 415, "INVALID_ARGUMENT", "MEDIA_TYPE_NOT_SUPPORTED"),
        ErrorKind::TooManyRequests => (0, 0, 429, 429, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS"),
        ErrorKind::ShuttingDown => (0, 0, 503, 503, "UNAVAILABLE", "SHUTTING_DOWN"),
    }
}

fn is_standard(code: i64) -> bool {
    code <= -32600
}

/// The kinds whose body says no more than a text, in both lines.
fn is_bare(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unauthorized
            | ErrorKind::PathNotFound
            | ErrorKind::HttpMethodNotAllowed
            | ErrorKind::TooManyRequests
    )
}

fn written(kind: ErrorKind, line: Line, transport: Transport) -> (u16, Json) {
    let error = Error::new(kind, "What happened").with("session_id", "s").with("max_bytes", 7);
    let response = error::response(&error, Dialect::of(line, transport), &RequestId::Number(3.into()));
    assert!(response.headers.iter().any(|(name, value)| name == "content-type" && value == "application/json"));
    (response.status.as_u16(), json(&response.body))
}

#[test]
fn every_kind_has_its_code_and_shape_in_json_rpc() {
    for kind in ALL_KINDS {
        let (old, new, old_status, ..) = expected(kind);
        for (line, code) in [(Line::V03, old), (Line::V10, new)] {
            let (status, body) = written(kind, line, Transport::JsonRpc);
            if code == 0 {
                assert_eq!((status, body.get("jsonrpc")), (old_status, None), "{kind:?}");
                continue;
            }
            assert_eq!((status, &body["jsonrpc"], &body["id"]), (200, &json!("2.0"), &json!(3)), "{kind:?}");
            let error = &body["error"];
            assert_eq!(error["code"], code, "{line} {kind:?}");
            assert_eq!(error.as_object().unwrap().len(), 3, "{line} {kind:?}");
            let data = &error["data"];
            match line {
                Line::V03 => {
                    assert_eq!(error["message"], "What happened");
                    assert_eq!((&data["session_id"], &data["max_bytes"]), (&json!("s"), &json!(7)), "{kind:?}");
                }
                Line::V10 if is_standard(code) => {
                    assert_ne!(error["message"], "What happened", "{kind:?}");
                    assert_eq!((&data["sessionId"], &data["maxBytes"]), (&json!("s"), &json!(7)), "{kind:?}");
                }
                Line::V10 => {
                    assert_eq!(error["message"], "What happened");
                    assert_info(data, expected(kind).5);
                }
            }
        }
    }
}

/// `ErrorInfo` with texts only, and the same as values.
fn assert_info(details: &Json, reason: &str) {
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": { "sessionId": "s", "maxBytes": "7" },
    });
    assert_eq!(details[0], info);
    assert_eq!((&details[1]["sessionId"], &details[1]["maxBytes"]), (&json!("s"), &json!(7)));
}

#[test]
fn every_kind_has_its_status_and_shape_in_rest() {
    for kind in ALL_KINDS {
        let (_, _, old_status, new_status, name, reason) = expected(kind);
        let (status, old) = written(kind, Line::V03, Transport::Rest);
        assert_eq!(status, old_status, "{kind:?}");
        let text = ["message", "error", "detail"].into_iter().find_map(|member| old.get(member)).unwrap();
        assert!(text.is_string(), "{old}");
        let (status, new) = written(kind, Line::V10, Transport::Rest);
        assert_eq!(status, new_status, "{kind:?}");
        if is_bare(kind) {
            assert_eq!(new, old);
            continue;
        }
        let error = &new["error"];
        assert_eq!(error["code"], new_status, "{kind:?}");
        assert_eq!(error["status"], name, "{kind:?}");
        assert_eq!(error["message"], "What happened");
        if kind != ErrorKind::Forbidden {
            assert_info(&error["details"], reason);
        }
    }
}

/// Clients tell errors apart by what they read.
#[test]
fn what_is_written_is_read_as_the_same_kind() {
    for kind in ALL_KINDS {
        for line in Line::ALL {
            for transport in [Transport::JsonRpc, Transport::Rest] {
                let (status, body) = written(kind, line, transport);
                let read = error::read(&body, Dialect::of(line, transport), status).kind;
                // REST of 0.3 has no more than a status for these.
                let (same, coarse) = (read == kind, transport == Transport::Rest && line == Line::V03);
                let standard = is_standard(expected(kind).0) && line == Line::V10;
                assert!(
                    same || coarse || standard || is_bare(kind) || expected(kind).0 == 0,
                    "{line} {kind:?} {read:?}"
                );
            }
        }
    }
}

/// The fields of a recorded error, as the service had them.
fn fields(recorded: &Json) -> JsonMap {
    let error = recorded.get("error").filter(|error| error.is_object()).unwrap_or(recorded);
    let details = error.get("data").or_else(|| error.get("details"));
    let from = match details {
        Some(Json::Array(list)) => list.get(1).cloned().unwrap_or_default(),
        Some(data) => data.clone(),
        None if error.get("code").is_some() => Json::Null,
        None => error.clone(),
    };
    let hidden = ["@type", "error", "message", "detail", "reason"];
    let members = from.as_object().cloned().unwrap_or_default();
    // `detail` is a field of errors of the agent runtime; alone it is the text of an error.
    let is_field = |name: &str| !hidden.contains(&name) || (name == "detail" && members.len() > 1);
    members.iter().filter(|(name, _)| is_field(name)).map(|(name, value)| (snake(name), value.clone())).collect()
}

fn snake(camel: &str) -> String {
    camel
        .chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect()
}

/// What we answer where the recorded service answered with an error.
fn answer(recording: &Recording, line: Line) -> Option<(u16, Json)> {
    let settings = settings(line);
    let body = |response: crate::wire::Response| {
        let body = if response.body.is_empty() { Json::Null } else { json(&response.body) };
        (response.status.as_u16(), body)
    };
    let is_large = recording.name.ends_with("413");
    match recording.parse(line) {
        Err(rejection) if !is_large => return Some(body(rejection.response())),
        _ => {}
    }
    let recorded = recording.reply.as_ref().unwrap_or(&Json::Null);
    if recorded.get("error").is_none() && recording.status < 400 {
        return None;
    }
    let dialect = recording.route(&settings).unwrap().dialect();
    let dialect = recording.parse(line).map_or(dialect, |request| request.dialect);
    let read = error::read(recorded, dialect, recording.status);
    let error = Error { fields: fields(recorded), ..read };
    let id = match recorded.get("id") {
        Some(Json::Number(id)) => RequestId::Number(id.clone()),
        Some(Json::String(id)) => RequestId::Text(id.clone()),
        _ => RequestId::Null,
    };
    Some(body(error::response(&error, dialect, &id)))
}

/// The pointers to what differs. Prose was replaced in the recordings, and texts about errors are our own.
fn differences(recorded: &Json, ours: &Json, at: &str, found: &mut Vec<String>) {
    match (recorded, ours) {
        (Json::Object(one), Json::Object(other)) => {
            let only_ours = other.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(only_ours) {
                let (one, other) = (one.get(name), other.get(name));
                let at = format!("{at}/{name}");
                match (one, other) {
                    (Some(one), Some(other)) => differences(one, other, &at, found),
                    _ => found.push(at),
                }
            }
        }
        (Json::Array(one), Json::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(one, other, &format!("{at}/{index}"), found);
            }
        }
        (Json::String(_), Json::String(_)) if at.ends_with("/message") || at == "/error" => {}
        (Json::Number(one), Json::Number(other)) if one.as_f64() == other.as_f64() => {}
        (one, other) if one == other => {}
        _ => found.push(at.to_owned()),
    }
}

/// A line of the list of differences: the line of the protocol, the recording or `*`, and the pointer or `status`.
struct Allowed {
    line: &'static str,
    name: &'static str,
    pointer: &'static str,
    used: bool,
}

fn allowed() -> Vec<Allowed> {
    let lines = include_str!("../../../tests/fixtures/differences.txt").lines();
    let rules = lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    rules
        .map(|rule| {
            let (place, reason) = rule.split_once(" | ").unwrap_or_else(|| panic!("no reason: {rule}"));
            assert!(!reason.trim().is_empty(), "no reason: {rule}");
            let mut words = place.split_whitespace();
            let mut word =
                || words.next().unwrap_or_else(|| panic!("not a line of the protocol, a name, a pointer: {rule}"));
            Allowed { line: word(), name: word(), pointer: word(), used: false }
        })
        .collect()
}

#[test]
fn recorded_errors_are_answered_alike() {
    let mut allowed = allowed();
    let (mut unlisted, mut seen) = (Vec::new(), 0);
    for line in Line::ALL {
        for recording in recordings(line) {
            let Some((status, ours)) = answer(&recording, line) else { continue };
            seen += 1;
            let mut found = Vec::new();
            if status != recording.status {
                found.push("status".to_owned());
            }
            let recorded = recording.reply.as_ref().unwrap_or(&Json::Null);
            let is_error = recorded.is_null()
                || recorded.get("result").is_none() && recording.status >= 400
                || recorded.get("error").is_some();
            if is_error && !recorded.is_null() {
                differences(recorded, &ours, "", &mut found);
            } else if !ours.is_null() {
                found.push("/".to_owned());
            }
            for pointer in found {
                let matches = |rule: &&mut Allowed| {
                    rule.line == line.version()
                        && (rule.name == "*" || rule.name == recording.name)
                        && (rule.pointer == "*" || rule.pointer == pointer)
                };
                match allowed.iter_mut().find(matches) {
                    Some(rule) => rule.used = true,
                    None => unlisted.push(format!("{line} {} {pointer}", recording.name)),
                }
            }
        }
    }
    assert!(seen > 90, "{seen}");
    assert!(unlisted.is_empty(), "different, and not in the list:\n{}", unlisted.join("\n"));
    let idle: Vec<String> = allowed
        .iter()
        .filter(|rule| !rule.used)
        .map(|rule| format!("{} {} {}", rule.line, rule.name, rule.pointer))
        .collect();
    assert!(idle.is_empty(), "no longer different; remove from the list:\n{}", idle.join("\n"));
}
