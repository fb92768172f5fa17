//! Bad input: every value of recorded requests replaced by every kind of JSON, and what is too much, too deep or no text.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::outgoing;
use super::*;
use crate::error::ErrorKind;

/// What stands in for each value.
fn replacements() -> Vec<Json> {
    let deep = (0..100).fold(json!(1), |inner, _| json!({ "d": inner }));
    vec![
        Json::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(7.0),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("\u{0}"),
        json!("a/../b"),
        json!("9".repeat(40)),
        json!("é\u{1f340}".repeat(500)),
        json!([]),
        json!([null]),
        json!([{}]),
        json!(["x", 1]),
        json!({}),
        json!({"x": 1, "kind": "weird", "text": 5}),
        deep,
    ]
}

/// The pointers to all values of a document.
fn pointers(value: &Json, at: &str, to: &mut Vec<String>) {
    to.push(at.to_owned());
    match value {
        Json::Object(map) => {
            for (name, value) in map {
                pointers(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), to);
            }
        }
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), to));
        }
        _ => {}
    }
}

/// One valid request of each shape: method and path without ids, and the names of all fields.
fn shapes() -> Vec<(Line, Recording)> {
    let mut seen = BTreeSet::new();
    let mut shapes = Vec::new();
    for line in Line::ALL {
        for recording in recordings(line) {
            let Some(body) = recording.body.clone() else { continue };
            if recording.parse(line).is_err() {
                continue;
            }
            let mut fields = Vec::new();
            pointers(&body, "", &mut fields);
            let path: String = recording.path.chars().filter(|c| !c.is_ascii_hexdigit() && *c != '-').collect();
            if seen.insert((line, path, body["method"].to_string(), fields)) {
                shapes.push((line, recording));
            }
        }
    }
    assert!(shapes.len() > 60, "{}", shapes.len());
    shapes
}

/// Whatever comes is read, or refused with a text and with what a client can fix.
fn check(line: Line, recording: &Recording, body: &[u8]) -> Result<Request, Rejection> {
    let settings = settings(line);
    let route = recording.route(&settings).unwrap();
    let answer = parse(&route, body, &settings);
    match &answer {
        Ok(request) => {
            let _ = request.view();
            let _ = outgoing(&request.call, request.dialect, None, 1, &[]);
        }
        Err(rejection) => {
            let clear = matches!(
                rejection.error.kind,
                ErrorKind::Parse
                    | ErrorKind::InvalidRequest
                    | ErrorKind::InvalidParams
                    | ErrorKind::MethodNotFound
                    | ErrorKind::UnsupportedOperation
                    | ErrorKind::ExtensionNegotiationRequired
            );
            let shown = String::from_utf8_lossy(body);
            assert!(clear, "{:?} for {shown}", rejection.error);
            assert!(!rejection.error.message.trim().is_empty());
            let response = rejection.response();
            if !rejection.notification {
                assert!(json(&response.body).is_object());
                // An error is never much larger than a name that it repeats.
                assert!(response.body.len() < 16 << 10, "{} bytes for {shown}", response.body.len());
            }
        }
    }
    answer
}

#[test]
fn every_value_may_be_anything() {
    let (mut read, mut refused) = (0, 0);
    let replacements = replacements();
    let mut seen = BTreeSet::new();
    for (line, recording) in shapes() {
        let body = recording.body.clone().unwrap();
        let is_extension =
            recording.parse(line).is_ok_and(|request| matches!(request.call, crate::Call::Extension { .. }));
        let mut places = Vec::new();
        pointers(&body, "", &mut places);
        for place in &places {
            // Parameters of extensions pass through whole, and the same field of the same method is one place.
            let depth = place.matches('/').count();
            let method =
                body["method"].as_str().unwrap_or(if recording.path.starts_with("/v1") { "old" } else { "new" });
            let method = if is_extension { "extension" } else { method };
            if (is_extension && depth > 2) || !seen.insert((line, method.to_owned(), place.clone())) {
                continue;
            }
            for replacement in replacements.clone() {
                let mut changed = body.clone();
                *changed.pointer_mut(place).unwrap() = replacement;
                match check(line, &recording, changed.to_string().as_bytes()) {
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} {refused}");
}

#[test]
fn every_field_may_be_missing() {
    for (line, recording) in shapes() {
        let body = recording.body.clone().unwrap();
        let mut places = Vec::new();
        pointers(&body, "", &mut places);
        for place in places.iter().filter(|place| !place.is_empty()) {
            let (parent, name) = place.rsplit_once('/').unwrap();
            let mut changed = body.clone();
            match changed.pointer_mut(parent).unwrap() {
                Json::Object(map) => drop(map.remove(&name.replace("~1", "/").replace("~0", "~"))),
                Json::Array(items) => drop(items.remove(name.parse().unwrap())),
                _ => unreachable!("a parent has members"),
            }
            let _ = check(line, &recording, changed.to_string().as_bytes());
        }
    }
}

#[test]
fn unknown_fields_change_nothing() {
    for (line, recording) in shapes() {
        let Ok(request) = recording.parse(line) else { continue };
        // Extensions check their fields themselves, and metadata and data are the client's own.
        if matches!(request.call, crate::Call::Extension { .. }) {
            continue;
        }
        let body = recording.body.clone().unwrap();
        let mut places = Vec::new();
        pointers(&body, "", &mut places);
        for place in places.iter().filter(|place| !place.contains("metadata") && !place.contains("data")) {
            let mut changed = body.clone();
            let Some(object) = changed.pointer_mut(place).and_then(Json::as_object_mut) else { continue };
            object.insert("zzUnknown".into(), json!({ "a": [1, null, {"b": "c"}] }));
            let again = check(line, &recording, changed.to_string().as_bytes()).unwrap();
            assert_eq!(again.call, request.call, "{place} of {body}");
        }
    }
}

#[test]
fn every_prefix_and_every_wrong_byte_is_refused_or_read() {
    for (line, recording) in shapes().into_iter().filter(|(_, one)| one.bytes().len() < 700) {
        let bytes = recording.bytes();
        for end in (0..bytes.len()).step_by(7) {
            let _ = check(line, &recording, &bytes[..end]);
        }
        for place in (0..bytes.len()).step_by(11) {
            for byte in [0, 0xff, b'"', b'{', b'\\', 0xc3] {
                let mut changed = bytes.clone();
                changed[place] = byte;
                // A method of the other line needs its version.
                let settings = settings(line);
                let _ = parse(&recording.route(&settings).unwrap(), &changed, &settings);
            }
        }
    }
}

/// A message of each syntax with these parts, and the place that it is sent to.
fn sends(parts: &str) -> [(&'static str, String); 4] {
    let old = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","content":{parts}}}}}"#);
    let new = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":{parts}}}}}"#);
    let kinds = format!(r#"{{"message":{{"messageId":"m","role":"user","parts":{parts}}}}}"#);
    let rpc =
        |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    [
        ("/v1/message:send", old),
        ("/message:send", new.clone()),
        ("/", rpc("SendMessage", &new)),
        ("/", rpc("message/send", &kinds)),
    ]
}

fn send(path: &str, body: &[u8]) -> Result<Request, Rejection> {
    let settings = settings(Line::V03);
    let route = route(&Method::POST, path, "", &HeaderMap::new(), &settings).unwrap();
    parse(&route, body, &settings)
}

#[test]
fn a_million_parts_are_refused_before_they_are_all_read() {
    let parts = format!("[{}]", vec![r#"{"text":"x"}"#; 1_000_000].join(","));
    for (path, body) in sends(&parts).into_iter().skip(2) {
        let refused = send(path, body.as_bytes()).unwrap_err().error;
        assert_eq!(
            (refused.kind, refused.fields["max"].as_u64()),
            (ErrorKind::InvalidRequest, Some(1 << 18)),
            "{path}"
        );
    }
    let parts = format!("[{}]", vec![r#"{"text":"x"}"#; 10_001].join(","));
    for (path, body) in sends(&parts) {
        assert_eq!(send(path, body.as_bytes()).unwrap_err().error.kind, ErrorKind::InvalidParams, "{path}");
    }
    let parts = format!("[{}]", vec![r#"{"text":"x"}"#; 10_000].join(","));
    for (path, body) in sends(&parts) {
        assert!(send(path, body.as_bytes()).is_ok(), "{path}");
    }
}

#[test]
fn what_is_nested_too_deeply_is_refused() {
    for depth in [65, 100, 127, 200, 100_000] {
        for nested in [
            format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
            format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth)),
        ] {
            let parts = format!(r#"[{{"text":"x","metadata":{{"d":{nested}}}}}]"#);
            for (path, body) in sends(&parts) {
                let kind = send(path, body.as_bytes()).unwrap_err().error.kind;
                assert!(matches!(kind, ErrorKind::Parse | ErrorKind::InvalidParams), "{kind:?} at {depth} for {path}");
            }
        }
    }
    let nested = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    let parts = format!(r#"[{{"text":"x","metadata":{{"d":{nested}}}}}]"#);
    for (path, body) in sends(&parts) {
        assert!(send(path, body.as_bytes()).is_ok(), "{path}");
    }
}

#[test]
fn what_is_no_text_is_a_parse_error() {
    let parse_errors: [&[u8]; 6] = [
        b"[{\"text\":\"\xff\"}]",
        b"[{\"text\":\"\xc3\"}]",
        br#"[{"text":"\ud800"}]"#,
        br#"[{"text":"\udc00\ud800"}]"#,
        br#"[{"text":"\u12"}]"#,
        b"[{\"text\":\"a\nb\"}]",
    ];
    for bad in parse_errors {
        for (path, body) in sends("PARTS") {
            let at = body.find("PARTS").unwrap();
            let bytes = [&body.as_bytes()[..at], bad, &body.as_bytes()[at + 5..]].concat();
            let rejection = send(path, &bytes).unwrap_err();
            assert_eq!(rejection.error.kind, ErrorKind::Parse, "{}", String::from_utf8_lossy(&bytes));
            assert_eq!(rejection.id, super::super::RequestId::Null);
        }
    }
    let good =
        send("/message:send", br#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"\ud83c\udf40"}]}}"#);
    assert!(format!("{:?}", good.unwrap().call).contains('\u{1f340}'));
}

#[test]
fn numbers_out_of_range_are_refused() {
    for number in
        ["-1", "1.5", "4294967296", "1e40", "-9223372036854775808", "18446744073709551615", "\"x\"", "true", "[]"]
    {
        for (method, field) in [("tasks/get", "historyLength"), ("GetTask", "historyLength"), ("ListTasks", "pageSize")]
        {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"id":"t","{field}":{number}}}}}"#);
            let refused = send("/", body.as_bytes()).unwrap_err().error;
            assert_eq!(
                (refused.kind, &refused.fields["field"]),
                (ErrorKind::InvalidParams, &json!(format!("params.{field}")))
            );
        }
    }
    for number in ["1e400", "-1e999"] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"id":"t","historyLength":{number}}}}}"#
        );
        assert_eq!(send("/", body.as_bytes()).unwrap_err().error.kind, ErrorKind::Parse);
    }
    for id in ["1.5", "[]", "{}", "true"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tasks/get","params":{{"id":"t"}}}}"#);
        assert_eq!(send("/", body.as_bytes()).unwrap_err().error.kind, ErrorKind::InvalidRequest, "{id}");
    }
    for query in ["pageSize=0", "pageSize=101", "pageSize=-1", "pageSize=x", "pageSize=", "historyLength=-1"] {
        let settings = settings(Line::V03);
        for path in ["/tasks", "/v1/tasks"] {
            let route = route(&Method::GET, path, query, &HeaderMap::new(), &settings).unwrap();
            let answer = parse(&route, b"", &settings);
            assert!(answer.is_err_and(|rejection| rejection.error.kind == ErrorKind::InvalidParams), "{path}?{query}");
        }
    }
}

#[test]
fn ids_are_bounded() {
    let long = "x".repeat(513);
    for (method, field) in [("tasks/get", "id"), ("GetTask", "id"), ("CancelTask", "id"), ("ListTasks", "contextId")] {
        let params = json!({ field: long });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        assert_eq!(send("/", body.as_bytes()).unwrap_err().error.kind, ErrorKind::InvalidParams, "{method}");
    }
    let id = "y".repeat(1025);
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tasks/get", "params": {"id": "t"}}).to_string();
    assert_eq!(send("/", body.as_bytes()).unwrap_err().error.kind, ErrorKind::InvalidRequest);
}

#[test]
fn ids_in_paths_are_bounded_as_those_in_bodies_are() {
    let settings = settings(Line::V03);
    let long = "x".repeat(513);
    for path in
        [format!("/tasks/{long}"), format!("/v1/tasks/{long}"), format!("/tasks/t/pushNotificationConfigs/{long}")]
    {
        let answer = route(&Method::GET, &path, "", &HeaderMap::new(), &settings)
            .and_then(|route| parse(&route, b"", &settings));
        assert!(answer.is_err(), "{}", path.len());
    }
}
