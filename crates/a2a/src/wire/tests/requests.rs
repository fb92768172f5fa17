//! Every recorded request is read, spelled again, and compared.

use super::super::{Dialect, Extension, outgoing};
use super::*;
use crate::call::Call;
use crate::error::ErrorKind;

/// What recorded requests are refused for. All others are read.
fn refused(line: Line, name: &str) -> Option<ErrorKind> {
    let name = name.split_once('_').unwrap().1;
    Some(match (line, name) {
        (_, "rpc_parse_error") => ErrorKind::Parse,
        (_, "rpc_invalid_request" | "rpc_batch" | "rest_send_jsonrpc_envelope") => ErrorKind::InvalidRequest,
        (_, "rpc_413" | "rest_413") => ErrorKind::BodyTooLarge,
        (_, "rest_v0.3_jsonrpc_envelope" | "rest_v1.0_jsonrpc_envelope") => ErrorKind::InvalidRequest,
        (_, "rpc_send_missing_message" | "rest_list_bad") => ErrorKind::InvalidParams,
        (Line::V10, "rpc_send_empty_parts" | "rest_send_legacy_content" | "rpc_send_legacy_role") => {
            ErrorKind::InvalidParams
        }
        (_, "rpc_send_modes_json_only") => ErrorKind::UnsupportedOperation,
        (Line::V03, "rpc_list" | "rpc_v0.3_err_method" | "rpc_v1.0_err_method") => ErrorKind::MethodNotFound,
        (_, "rpc_unsupported_method" | "rpc_unsupported_ext") => ErrorKind::MethodNotFound,
        (_, "sess_shell" | "sess_shell_bob") => ErrorKind::MethodDisabled,
        // The recorded service of 0.3 has methods of extensions without negotiation in version 1.0, too.
        (Line::V03, "rpc_v1.0_err_session" | "rpc_v1.0_err_params") => ErrorKind::ExtensionNegotiationRequired,
        (Line::V10, "ext_not_negotiated") => ErrorKind::ExtensionNegotiationRequired,
        (_, "not_found_path") => ErrorKind::PathNotFound,
        (_, "options") => ErrorKind::HttpMethodNotAllowed,
        (_, name) if name.contains("version_2.0") || name.contains("version_abc") || name.contains("version_0.2") => {
            ErrorKind::VersionNotSupported
        }
        (_, "rest_version_query") => ErrorKind::VersionNotSupported,
        // The recorded service speaks 1.0 alone.
        (Line::V10, name) if name.contains("version_0.3") => ErrorKind::VersionNotSupported,
        (Line::V10, "rpc_legacy_method" | "rest_v1_prefix_404") => ErrorKind::VersionNotSupported,
        _ => return None,
    })
}

#[test]
fn recorded_requests_are_read_or_refused_as_they_were() {
    for line in Line::ALL {
        for recording in recordings(line) {
            let name = &recording.name;
            if name.ends_with("413") {
                continue;
            }
            match (recording.parse(line), refused(line, name)) {
                (Ok(_), None) => {}
                (Err(rejection), Some(kind)) => assert_eq!(rejection.error.kind, kind, "{line} {name}"),
                (Ok(_), Some(kind)) => panic!("{line} {name}: read, but {kind:?} is expected"),
                (Err(rejection), None) => panic!("{line} {name}: {:?}", rejection.error),
            }
        }
    }
}

#[test]
fn what_was_agreed_on_is_confirmed_as_recorded_also_in_refusals() {
    let mut seen = 0;
    for line in Line::ALL {
        for recording in recordings(line) {
            let (negotiated, is_refused) = match recording.parse(line) {
                Ok(request) => (request.negotiated_headers(), false),
                Err(rejection) => {
                    (rejection.negotiated_headers, rejection.error.kind == ErrorKind::VersionNotSupported)
                }
            };
            if is_refused {
                assert_eq!(negotiated, [], "{line} {}", recording.name);
                continue;
            }
            // Failures of REST name no extensions.
            for name in ["a2a-version", "a2a-extensions"].into_iter().take(if recording.status < 400 { 2 } else { 1 }) {
                let Some(recorded) = recording.reply_headers.get(name).and_then(Json::as_str) else { continue };
                let ours = negotiated.iter().find(|(ours, _)| ours == name).and_then(|(_, value)| value.to_str().ok());
                let sorted = |text: &str| {
                    let mut words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
                    words.sort();
                    words
                };
                assert_eq!(sorted(ours.unwrap_or_default()), sorted(recorded), "{line} {} {name}", recording.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 400, "{seen}");
}

#[test]
fn the_extended_card_is_about_all_extensions() {
    let all: Vec<&str> = Extension::ALL.into_iter().map(Extension::urn).collect();
    let mut headers = HeaderMap::new();
    headers.insert("a2a-extensions", HeaderValue::from_str(&format!("{},urn:unknown", all.join(","))).unwrap());
    let settings = settings(Line::V10);
    let confirmed = |negotiated: Vec<(HeaderName, HeaderValue)>| negotiated[1].1.to_str().unwrap().to_owned();
    let rest = route(&Method::GET, "/extendedAgentCard", "", &headers, &settings).unwrap();
    assert_eq!(confirmed(rest.card_headers()), all.join(","));
    let rpc = route(&Method::POST, "/", "", &headers, &settings).unwrap();
    let body = br#"{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}"#;
    assert_eq!(confirmed(parse(&rpc, body, &settings).unwrap().negotiated_headers()), all.join(","));
}

/// Whether all of `part` is in `whole`.
fn contains(whole: &Json, part: &Json) -> bool {
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|it| contains(it, value)))
        }
        (Json::Array(whole), Json::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (whole, part) => whole == part,
    }
}

#[test]
fn recorded_requests_survive_being_spelled_again() {
    let mut seen = 0;
    for line in Line::ALL {
        for recording in recordings(line) {
            let Ok(request) = recording.parse(line) else { continue };
            let name = &recording.name;
            let dialect = Dialect { errors: request.dialect.payload, ..request.dialect };
            let again = outgoing(&request.call, dialect, None, 1, &request.requested.identifiers).unwrap();
            let settings = settings(line);
            if is_rest_of(&recording.route(&settings).unwrap()) {
                assert_eq!(again.method.as_str(), recording.method, "{name}");
                assert_eq!(again.path, recording.path, "{name}");
            }
            if let Some(body) = recording.body.as_ref().filter(|body| !body.as_object().is_some_and(JsonMap::is_empty))
            {
                let mut expected = plain(body);
                let object = expected.as_object_mut().unwrap();
                object.remove("id");
                let again = plain(&json(&again.body));
                assert!(contains(&again, &Json::Object(object.clone())), "{name}:\n{again}\n{body}");
                seen += 1;
            }
            let mut headers = HeaderMap::new();
            headers.extend(again.headers.into_iter().map(|(name, value)| (Some(name), value)));
            let path = if again.path.is_empty() { "/" } else { &again.path };
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let route = route(&again.method, path, query, &headers, &settings).unwrap();
            let back =
                parse(&route, &again.body, &settings).unwrap_or_else(|rejection| panic!("{name}: {rejection:?}"));
            assert_eq!(back.call, request.call, "{name}");
        }
    }
    assert!(seen > 200, "{seen}");
}

fn rpc(line: Line, body: Json) -> Result<Request, Rejection> {
    let settings = settings(line);
    let route = route(&Method::POST, "/", "", &HeaderMap::new(), &settings).unwrap();
    parse(&route, body.to_string().as_bytes(), &settings)
}

#[test]
fn a_missing_id_makes_a_notification_and_null_does_not() {
    let body = |id: Json| {
        let mut body = serde_json::json!({"jsonrpc": "2.0", "method": "tasks/get", "params": {"id": "t"}});
        if id != "none" {
            body["id"] = id;
        }
        rpc(Line::V03, body).unwrap()
    };
    assert!(body("none".into()).notification);
    assert!(!body(Json::Null).notification);
    assert_eq!(body(7.into()).id, super::super::RequestId::Number(7.into()));
    assert_eq!(body("x".into()).id, super::super::RequestId::Text("x".into()));
}

#[test]
fn subscribe_resumes_after_the_event_that_a_client_names() {
    let settings = settings(Line::V03);
    let mut headers = HeaderMap::new();
    headers.insert("last-event-id", HeaderValue::from_static("9"));
    for method in [Method::GET, Method::POST] {
        for path in ["/v1/tasks/t:subscribe", "/tasks/t:subscribe"] {
            let route = route(&method, path, "", &headers, &settings).unwrap();
            let call = parse(&route, b"", &settings).unwrap().call;
            assert_eq!(call, Call::Subscribe { id: "t".into(), after: Some(9) });
        }
    }
    let stream = serde_json::json!({"shared": {"stream": {"sequence": 4.0}}});
    let body = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": "t", "metadata": stream}});
    assert_eq!(rpc(Line::V03, body).unwrap().call, Call::Subscribe { id: "t".into(), after: Some(4) });
}

#[test]
fn send_waits_or_returns_at_once_by_the_default_of_its_syntax() {
    let immediately = |path: &str, body: Json| {
        let settings = settings(Line::V03);
        let route = route(&Method::POST, path, "", &HeaderMap::new(), &settings).unwrap();
        match parse(&route, body.to_string().as_bytes(), &settings).unwrap().call {
            Call::Send(send) => send.options.return_immediately,
            call => panic!("{call:?}"),
        }
    };
    let old = serde_json::json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]});
    let new = serde_json::json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]});
    assert!(immediately("/v1/message:send", serde_json::json!({"message": old})));
    assert!(immediately("/v1/message:send", serde_json::json!({"request": old, "configuration": {}})));
    assert!(!immediately("/v1/message:send", serde_json::json!({"message": old, "configuration": {"blocking": true}})));
    assert!(!immediately("/message:send", serde_json::json!({"message": new})));
    assert!(immediately(
        "/message:send",
        serde_json::json!({"message": new, "configuration": {"return_immediately": true}})
    ));
    let kinds = serde_json::json!({"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]});
    let rpc = |configuration: Json| {
        let params = serde_json::json!({"message": kinds, "configuration": configuration});
        immediately("/", serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}))
    };
    assert!(!rpc(Json::Null));
    assert!(rpc(serde_json::json!({"blocking": false})));
}
