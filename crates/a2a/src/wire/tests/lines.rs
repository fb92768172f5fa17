//! Which line a request gets, by its version and by what it names; and values that pass through both lines.

use proptest::prelude::*;
use serde_json::json;

use super::super::{
    AskedVersion, Dialect, EventWriter, Extension, StreamItem, Transport, parse_event, parse_reply, reply,
};
use super::*;
use crate::call::{PushAuthentication, PushConfig, Reply, TaskPage};
use crate::error::ErrorKind;
use crate::event::{Lane, NumberedEvent, StreamMark, TaskEvent};
use crate::model::{Artifact, ArtifactId, Content, Message, Part, Role, Task, TaskState, TaskStatus};

/// The lines of payload and errors; or the line of the refusal.
type Outcome = Result<(Line, Line), Line>;

fn ask(version: Option<&str>, query: &str, path: &str, body: &Json) -> Result<Request, Rejection> {
    let settings = settings(Line::V03);
    let mut headers = HeaderMap::new();
    if let Some(version) = version {
        headers.insert("a2a-version", HeaderValue::from_str(version).unwrap());
    }
    let method = if body.is_null() { Method::GET } else { Method::POST };
    let route = route(&method, path, query, &headers, &settings)?;
    parse(&route, body.to_string().as_bytes(), &settings)
}

fn outcome(answer: Result<Request, Rejection>) -> Outcome {
    match answer {
        Ok(request) => Ok((request.dialect.payload, request.dialect.errors)),
        Err(rejection) => {
            assert_eq!(rejection.error.kind, ErrorKind::VersionNotSupported, "{:?}", rejection.error);
            Err(rejection.dialect.errors)
        }
    }
}

#[test]
fn the_version_and_the_name_decide() {
    use Line::{V03, V10};
    let old = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "t"}});
    let new = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}});
    // The version, then what comes of a name or path of 0.3, and of one of 1.0.
    let table: [(&str, Outcome, Outcome); 13] = [
        ("", Ok((V03, V03)), Ok((V10, V10))),
        ("  ", Ok((V03, V03)), Ok((V10, V10))),
        ("0.3", Ok((V03, V03)), Err(V03)),
        ("0.3.0", Ok((V03, V03)), Err(V03)),
        ("0.3.26", Ok((V03, V03)), Err(V03)),
        ("1.0", Ok((V03, V10)), Ok((V10, V10))),
        ("1.0.1", Ok((V03, V10)), Ok((V10, V10))),
        ("0.2", Err(V03), Err(V10)),
        ("2.0", Err(V03), Err(V10)),
        ("1.1", Err(V03), Err(V10)),
        ("1", Err(V03), Err(V10)),
        ("abc", Err(V03), Err(V10)),
        ("1.0,0.3", Err(V03), Err(V10)),
    ];
    for (version, old_outcome, new_outcome) in table {
        let encoded = format!("x=1&A2A-Version={}", version.replace(' ', "%20").replace(',', "%2C"));
        for (header, query) in [(Some(version), ""), (None, encoded.as_str())] {
            let context = format!("{version:?} in {}", if header.is_some() { "the header" } else { "the query" });
            assert_eq!(outcome(ask(header, query, "/", &old)), old_outcome, "{context}");
            assert_eq!(outcome(ask(header, query, "/", &new)), new_outcome, "{context}");
            assert_eq!(outcome(ask(header, query, "/v1/tasks/t", &Json::Null)), old_outcome, "{context}");
            for path in ["/tasks/t", "/acme/tasks/t"] {
                assert_eq!(outcome(ask(header, query, path, &Json::Null)), new_outcome, "{context}");
            }
        }
        // The header wins, and an empty one leaves it to the query.
        assert_eq!(outcome(ask(Some("0.3"), &encoded, "/", &old)), Ok((V03, V03)));
        assert_eq!(outcome(ask(Some(""), &encoded, "/", &old)), old_outcome);
    }
}

#[test]
fn methods_of_extensions_belong_to_the_asked_line() {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "opencode.sessions.list", "params": {}});
    assert_eq!(ask(None, "", "/", &body).unwrap().dialect, Dialect::of(Line::V03, Transport::JsonRpc));
    assert_eq!(ask(Some("0.3"), "", "/", &body).unwrap().dialect.payload, Line::V03);
    let refused = ask(Some("1.0"), "", "/", &body).unwrap_err();
    assert_eq!(refused.error.kind, ErrorKind::ExtensionNegotiationRequired);
    assert_eq!(ask(Some("abc"), "", "/", &body).unwrap_err().error.kind, ErrorKind::VersionNotSupported);
}

#[test]
fn an_old_name_with_the_new_version_has_old_payloads_and_new_errors() {
    let get = |version: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "t"}});
        ask(Some(version), "", "/", &body).unwrap()
    };
    let task = task_in(TaskState::Completed);
    let request = get("1.0");
    let body = json(&reply(&Reply::Task(Box::new(task)), &request).body);
    assert_eq!((&body["result"]["kind"], &body["result"]["status"]["state"]), (&json!("task"), &json!("completed")));
    let error = crate::Error::task_not_found("t");
    let shape = |request: &Request| json(&super::super::error_response(&error, request).body)["error"]["data"].clone();
    assert!(shape(&request).is_array());
    assert!(shape(&get("0.3")).is_null());
    let version = |request: &Request| request.negotiated_headers()[0].1.clone();
    assert_eq!((version(&request), version(&get("0.3"))), ("1.0".parse().unwrap(), "0.3".parse().unwrap()));
}

#[test]
fn refusals_have_the_code_of_the_asked_line() {
    let body = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "t"}});
    let code = |version: &str, method: &str| {
        let response = ask(Some(version), "", "/", &body(method)).unwrap_err().response();
        (response.status.as_u16(), json(&response.body)["error"]["code"].as_i64().unwrap())
    };
    assert_eq!(code("2.0", "tasks/get"), (200, -32001));
    assert_eq!(code("2.0", "GetTask"), (200, -32009));
    assert_eq!(code("0.3", "GetTask"), (200, -32001));
    assert_eq!(code("abc", "ListTasks"), (200, -32009));
    let rest = ask(Some("abc"), "", "/v1/tasks/t", &Json::Null).unwrap_err().response();
    assert_eq!((rest.status.as_u16(), &json(&rest.body)["type"]), (400, &json!("VERSION_NOT_SUPPORTED")));
    let rest = ask(Some("abc"), "", "/tasks/t", &Json::Null).unwrap_err().response();
    assert_eq!(json(&rest.body)["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED");
    assert_eq!(AskedVersion::parse("abc"), AskedVersion::Unknown("abc".into()));
}

fn task_in(state: TaskState) -> Task {
    Task {
        id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus { state, message: None, timestamp: 1_700_000_000_123 },
        artifacts: Vec::new(),
        history: Vec::new(),
        metadata: JsonMap::new(),
    }
}

#[test]
fn a_page_of_tasks_is_complete_in_1_0() {
    for path in ["/tasks", "/"] {
        let request = match path {
            "/" => {
                ask(None, "", path, &json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}})).unwrap()
            }
            _ => ask(None, "", path, &Json::Null).unwrap(),
        };
        let page = TaskPage { page_size: 50, ..TaskPage::default() };
        let body = json(&reply(&Reply::Tasks(page), &request).body);
        let result = body.get("result").unwrap_or(&body);
        assert_eq!(*result, json!({ "tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0 }));
    }
}

#[test]
fn parts_of_the_artifact_that_lanes_share_tell_their_kinds() {
    let mut task = task_in(TaskState::Working);
    let lane = |id, part| Artifact {
        id: ArtifactId::Lane(id),
        name: None,
        description: None,
        parts: vec![part],
        extensions: Vec::new(),
        metadata: JsonMap::new(),
    };
    task.artifacts = vec![
        lane(Lane::Reasoning, Part::text("hm")),
        lane(Lane::Text, Part::text("yes")),
        lane(Lane::Tool("p".into()), Part::data(json!({"call_id": "c", "tool": "read"}))),
    ];
    let kind = |part: &Json| part.pointer("/metadata/shared/stream").map(|stream| json!(stream).to_string());
    for (line, transport) in DIALECTS {
        let request = request(line, transport, false);
        let body = json(&reply(&Reply::Task(Box::new(task.clone())), &request).body);
        let artifacts = body.get("result").unwrap_or(&body)["artifacts"].as_array().unwrap().clone();
        let kinds: Vec<_> =
            artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().unwrap()).map(kind).collect();
        let told = ["reasoning", "text", "tool_call"].map(|kind| Some(json!({ "block_type": kind }).to_string()));
        match line {
            Line::V03 => assert_eq!((artifacts.len(), kinds), (1, told.to_vec()), "{transport:?}"),
            Line::V10 => assert_eq!((artifacts.len(), kinds), (3, vec![None; 3]), "{transport:?}"),
        }
    }
}

#[test]
fn whole_numbers_stay_whole() {
    let mut task = task_in(TaskState::Completed);
    task.metadata = json!({"count": 5, "big": 9_007_199_254_740_993_u64, "half": 0.5}).as_object().unwrap().clone();
    for (path, body) in [
        ("/v1/tasks/t", Json::Null),
        ("/tasks/t", Json::Null),
        ("/", json!({"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {"id": "t"}})),
        ("/", json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "t"}})),
    ] {
        let request = ask(None, "", path, &body).unwrap();
        let text = String::from_utf8(reply(&Reply::Task(Box::new(task.clone())), &request).body).unwrap();
        assert!(text.contains(r#"{"count":5,"big":9007199254740993,"half":0.5}"#), "{text}");
        assert!(body.is_null() || text.contains(r#""id":7"#), "{text}");
        assert!(text.contains("2023-11-14T22:13:20.123Z"), "{text}");
    }
}

#[test]
fn json_of_1_0_has_the_media_type_that_the_client_takes() {
    let settings = settings(Line::V03);
    for (accept, path, want) in [
        (None, "/tasks/t", "application/a2a+json"),
        (Some("application/json"), "/tasks/t", "application/json"),
        (Some("application/a2a+json, application/json"), "/tasks/t", "application/a2a+json"),
        (None, "/v1/tasks/t", "application/json"),
    ] {
        let mut headers = HeaderMap::new();
        headers.extend(accept.map(|accept| (http::header::ACCEPT, HeaderValue::from_static(accept))));
        let route = route(&Method::GET, path, "", &headers, &settings).unwrap();
        let request = parse(&route, b"", &settings).unwrap();
        let response = reply(&Reply::Task(Box::new(task_in(TaskState::Working))), &request);
        assert_eq!(response.headers[0].1, want, "{accept:?} {path}");
    }
}

/// The dialects that values pass through.
const DIALECTS: [(Line, Transport); 4] = [
    (Line::V03, Transport::JsonRpc),
    (Line::V03, Transport::Rest),
    (Line::V10, Transport::JsonRpc),
    (Line::V10, Transport::Rest),
];

/// A request in a dialect with all extensions, whose reply is a task.
fn request(line: Line, transport: Transport, stream: bool) -> Request {
    let settings = settings(Line::V03);
    let names: Vec<&str> = Extension::ALL.into_iter().map(Extension::urn).collect();
    let mut headers = HeaderMap::new();
    headers.insert("a2a-extensions", HeaderValue::from_str(&names.join(",")).unwrap());
    let (path, method) = match (line, stream) {
        (Line::V03, false) => ("/v1/tasks/t", "tasks/get"),
        (Line::V03, true) => ("/v1/tasks/t:subscribe", "tasks/resubscribe"),
        (Line::V10, false) => ("/tasks/t", "GetTask"),
        (Line::V10, true) => ("/tasks/t:subscribe", "SubscribeToTask"),
    };
    let (http, path, body) = match transport {
        Transport::Rest => (Method::GET, path, String::new()),
        Transport::JsonRpc => (
            Method::POST,
            "/",
            json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": {"id": "t"}}).to_string(),
        ),
    };
    let route = route(&http, path, "", &headers, &settings).unwrap();
    parse(&route, body.as_bytes(), &settings).unwrap()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "\\PC{1,12}", Just("\u{0}\n\"\\\u{1f340}".to_owned())]
}

fn metadata() -> impl Strategy<Value = JsonMap> {
    let value = prop_oneof![
        any::<i64>().prop_map(Json::from),
        any::<bool>().prop_map(Json::from),
        text().prop_map(Json::from),
        Just(json!({"deep": [1, {"er": null}]})),
    ];
    proptest::collection::btree_map("[a-z]{3,6}", value, 0..3)
        .prop_map(|map| map.into_iter().filter(|(name, _)| !matches!(name.as_str(), "shared" | "trefoil")).collect())
}

/// Parts. In 0.3 text has no name or type, data is an object, and REST takes base64 that looks encoded twice for just that.
fn part() -> impl Strategy<Value = Part> {
    let file = (
        prop_oneof![
            Just(Content::Raw("AAEC/w==".into())),
            text().prop_map(|name| Content::Url(format!("http://{name}")))
        ],
        proptest::option::of(text()),
        proptest::option::of("[a-z]{1,5}/[a-z]{1,5}"),
    );
    let file = file.prop_map(|(content, filename, media_type)| Part { filename, media_type, ..Part::new(content) });
    let data = metadata().prop_map(|map| Part::data(json!({ "member": map })));
    let part = prop_oneof![text().prop_map(Part::text), file, data];
    (part, metadata()).prop_map(|(part, metadata)| Part { metadata, ..part })
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    proptest::collection::vec(part(), 1..4)
}

fn message() -> impl Strategy<Value = Message> {
    (text(), any::<bool>(), parts(), proptest::option::of(text()), metadata()).prop_map(
        |(message_id, user, parts, task_id, metadata)| Message {
            message_id,
            role: if user { Role::User } else { Role::Agent },
            parts,
            context_id: task_id.clone(),
            task_id,
            reference_task_ids: Vec::new(),
            extensions: vec!["urn:x".into()],
            metadata,
        },
    )
}

fn status() -> impl Strategy<Value = TaskStatus> {
    (0..TaskState::ALL.len(), proptest::option::of(message()), 1_i64..4_000_000_000_000)
        .prop_map(|(state, message, timestamp)| TaskStatus { state: TaskState::ALL[state], message, timestamp })
}

fn artifact() -> impl Strategy<Value = Artifact> {
    (text(), proptest::option::of(text()), parts(), metadata()).prop_map(|(id, name, parts, metadata)| Artifact {
        id: ArtifactId::Named(format!("a{id}")),
        name,
        description: None,
        parts,
        extensions: Vec::new(),
        metadata,
    })
}

fn task() -> impl Strategy<Value = Task> {
    let artifacts = proptest::collection::vec(artifact(), 0..3);
    let history = proptest::collection::vec(message(), 0..3);
    (text(), text(), status(), artifacts, history, metadata()).prop_map(
        |(id, context_id, status, artifacts, history, metadata)| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
        },
    )
}

fn event() -> impl Strategy<Value = TaskEvent> {
    let mark = || {
        (proptest::option::of(text()), "[a-z]{1,6}").prop_map(|(message_id, source)| StreamMark {
            message_id,
            source,
            role: Some("assistant".into()),
        })
    };
    let status = (status(), metadata(), mark()).prop_map(|(status, metadata, mark)| TaskEvent::Status {
        status,
        metadata,
        mark: Some(mark),
    });
    let lane = prop_oneof![Just(Lane::Text), Just(Lane::Reasoning), "[a-z]{1,5}".prop_map(Lane::Tool)];
    let artifact = (lane, parts(), any::<bool>(), any::<bool>(), metadata(), mark()).prop_map(
        |(lane, parts, append, last_chunk, metadata, mark)| TaskEvent::Artifact {
            id: ArtifactId::Lane(lane),
            name: None,
            parts,
            append,
            append_any: append,
            last_chunk,
            metadata,
            mark: Some(mark),
        },
    );
    prop_oneof![status, artifact, message().prop_map(TaskEvent::Message)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tasks_survive_every_dialect(task in task()) {
        for (line, transport) in DIALECTS {
            let request = request(line, transport, false);
            let bytes = reply(&Reply::Task(Box::new(task.clone())), &request).body;
            let back = parse_reply(&request.call, request.dialect, 200, &bytes);
            prop_assert_eq!(back, Ok(Reply::Task(Box::new(task.clone()))), "{} {:?}", line, transport);
        }
    }

    #[test]
    fn events_survive_every_dialect(event in event(), seq in 1_u64..1_000_000) {
        for (line, transport) in DIALECTS {
            let request = request(line, transport, true);
            let mut writer = EventWriter::new(&request, "t", "c");
            let numbered = NumberedEvent { seq, event: event.clone() };
            let bytes = writer.event(&numbered).unwrap();
            prop_assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'));
            match (parse_event(request.dialect, &bytes).unwrap(), &event) {
                (StreamItem::Message(back), TaskEvent::Message(message)) => prop_assert_eq!(&*back, message),
                (StreamItem::Event { task_id, context_id, seq: number, is_final, event: back }, _) => {
                    prop_assert_eq!((task_id.as_str(), context_id.as_str(), number), ("t", "c", Some(seq)));
                    prop_assert_eq!(is_final, event.is_last(), "{} {:?}", line, transport);
                    prop_assert_eq!(same_lane(&event, line), *back, "{} {:?}", line, transport);
                }
                (item, _) => prop_assert!(false, "{:?}", item),
            }
        }
    }

    #[test]
    fn push_configurations_survive_every_dialect(url in text(), token in proptest::option::of(text()), credentials in text()) {
        let authentication = PushAuthentication { schemes: vec!["Bearer".into()], credentials: Some(credentials) };
        let config = PushConfig {
            task_id: "t".into(), id: Some("p".into()), url, token, authentication: Some(authentication),
        };
        for (line, transport) in DIALECTS {
            let mut request = request(line, transport, false);
            request.call = crate::Call::GetPush { task: "t".into(), id: Some("p".into()) };
            let bytes = reply(&Reply::Push(config.clone()), &request).body;
            prop_assert_eq!(parse_reply(&request.call, request.dialect, 200, &bytes), Ok(Reply::Push(config.clone())));
        }
    }
}

/// In 0.3 the part of a tool call is not in the id of its artifact.
fn same_lane(event: &TaskEvent, line: Line) -> TaskEvent {
    match event.clone() {
        TaskEvent::Artifact {
            id: ArtifactId::Lane(Lane::Tool(_)),
            name,
            parts,
            append,
            append_any,
            last_chunk,
            metadata,
            mark,
        } if line == Line::V03 => {
            let id = ArtifactId::Lane(Lane::Tool(String::new()));
            TaskEvent::Artifact { id, name, parts, append, append_any, last_chunk, metadata, mark }
        }
        event => event,
    }
}
