//! Messages through both of their forms.

use api::JsonMap;
use http::HeaderMap;
use serde_json::json;

use super::*;
use crate::call::{Call, Reply};
use crate::model::{Message as TaskMessage, Part, Role, Task, TaskState, TaskStatus};
use crate::wire::{self, error, parse_proto, reply};
use crate::{Error, ErrorKind, Line};

fn settings() -> wire::Settings {
    wire::Settings {
        default_line: Line::V03,
        supported: Line::ALL.to_vec(),
        session_shell: false,
        workspace_mutations: false,
    }
}

fn framed<M: Message>(message: &M) -> Vec<u8> {
    frame(message).unwrap().to_vec()
}

fn parse(operation: Operation, message: &impl Message) -> Result<wire::Request, wire::Rejection> {
    let body = framed(message);
    let json = decode(operation, unframe(&body).unwrap()).unwrap();
    parse_proto(operation, json, &HeaderMap::new(), &settings())
}

#[test]
fn every_method_of_the_service_is_found() {
    for core in &CORE {
        assert_eq!(operation(&format!("{SERVICE}{}", core.v10)), Some(core.operation));
    }
    for path in ["/lf.a2a.v1.A2AService/Nope", "/lf.a2a.v1.A2AService/", "/GetTask", "/a2a.v1.A2AService/GetTask"] {
        assert_eq!(operation(path), None);
    }
}

#[test]
fn requests_become_the_calls_of_their_json() {
    let text = proto::Part { content: Some(proto::part::Content::Text("hi".into())), ..Default::default() };
    let raw = proto::Part {
        content: Some(proto::part::Content::Raw(vec![0, 255, 7])),
        filename: "f".into(),
        ..Default::default()
    };
    let message = proto::Message {
        message_id: "m".into(),
        role: proto::Role::User as i32,
        parts: vec![text, raw],
        ..Default::default()
    };
    let configuration = proto::SendMessageConfiguration {
        return_immediately: true,
        history_length: Some(0),
        accepted_output_modes: vec!["text/plain".into()],
        ..Default::default()
    };
    let send = proto::SendMessageRequest {
        tenant: "acme".into(),
        message: Some(message),
        configuration: Some(configuration),
        ..Default::default()
    };
    let Call::Send(call) = parse(Operation::Send, &send).unwrap().call else { panic!("a message is sent") };
    assert_eq!(call.message.parts[0], Part::text("hi"));
    assert_eq!(call.message.parts[1].filename.as_deref(), Some("f"));
    assert!(call.options.return_immediately);
    assert_eq!(call.options.history_length, Some(0));
    let get = proto::GetTaskRequest { id: "t".into(), history_length: Some(3), ..Default::default() };
    assert_eq!(parse(Operation::Get, &get).unwrap().call, Call::Get { id: "t".into(), history_length: Some(3) });
    let list = proto::ListTasksRequest {
        context_id: "c".into(),
        status: proto::TaskState::Working as i32,
        page_size: Some(7),
        status_timestamp_after: Some(pbjson_timestamp(1_700_000_000)),
        include_artifacts: Some(true),
        ..Default::default()
    };
    let Call::List(list) = parse(Operation::List, &list).unwrap().call else { panic!("a list") };
    assert_eq!(
        (list.state, list.page_size, list.changed_since),
        (Some(TaskState::Working), Some(7), Some(1_700_000_000_000))
    );
    let all = parse(Operation::List, &proto::ListTasksRequest::default()).unwrap().call;
    assert_eq!(all, Call::List(crate::ListRequest::default()));
    let push = proto::TaskPushNotificationConfig { task_id: "t".into(), url: "http://x".into(), ..Default::default() };
    let Call::PutPush(push) = parse(Operation::PutPush, &push).unwrap().call else { panic!("a configuration") };
    assert_eq!((push.task_id.as_str(), push.url.as_str()), ("t", "http://x"));
    let missing = parse(Operation::Get, &proto::GetTaskRequest::default()).unwrap_err();
    assert_eq!(missing.error.kind, ErrorKind::InvalidParams);
}

/// A timestamp, out of its bytes, as its type belongs to another crate.
fn pbjson_timestamp<T: Message + Default>(seconds: i64) -> T {
    #[derive(Clone, PartialEq, Message)]
    struct Timestamp {
        #[prost(int64, tag = "1")]
        seconds: i64,
    }
    T::decode(Timestamp { seconds }.encode_to_vec().as_slice()).unwrap()
}

#[test]
fn replies_become_the_messages_of_their_json() {
    let message = TaskMessage {
        message_id: "m".into(),
        role: Role::Agent,
        parts: vec![Part::text("done"), Part::data(json!({ "a": [1, null] }))],
        context_id: Some("c".into()),
        task_id: Some("t".into()),
        reference_task_ids: vec!["r".into()],
        extensions: Vec::new(),
        metadata: json!({ "n": 5 }).as_object().unwrap().clone(),
    };
    let task = Task {
        id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus { state: TaskState::AuthRequired, message: Some(message), timestamp: 1_700_000_000_123 },
        artifacts: Vec::new(),
        history: Vec::new(),
        metadata: JsonMap::new(),
    };
    let request = parse(Operation::Get, &proto::GetTaskRequest { id: "t".into(), ..Default::default() }).unwrap();
    let json = reply(&Reply::Task(Box::new(task)), &request).body;
    let bytes = encode(Operation::Get, &json).unwrap();
    let back = proto::Task::decode(unframe(&bytes).unwrap()).unwrap();
    let status = back.status.unwrap();
    assert_eq!((back.id.as_str(), status.state), ("t", proto::TaskState::AuthRequired as i32));
    assert_eq!(status.timestamp.map(|time| (time.seconds, time.nanos)), Some((1_700_000_000, 123_000_000)));
    let message = status.message.unwrap();
    assert_eq!((message.parts.len(), message.reference_task_ids), (2, vec!["r".to_owned()]));
    assert_eq!(encode(Operation::DeletePush, b"{}").unwrap().as_ref(), [0; 5]);
}

#[test]
fn cards_are_valid_messages() {
    let settings = crate::Settings::default();
    let schemes = [crate::Scheme::Bearer];
    let input = crate::card::CardInput::new(&settings, "http://a:1", &schemes, std::path::Path::new("/"), "1");
    let json = crate::card::extended_card(&input).to_string();
    let bytes = encode(Operation::ExtendedCard, json.as_bytes()).unwrap();
    let card = proto::AgentCard::decode(unframe(&bytes).unwrap()).unwrap();
    assert!(card.supported_interfaces.iter().any(|one| one.protocol_binding == "GRPC" && one.url == "a:1"));
    assert_eq!(card.security_schemes.len(), 1);
}

#[test]
fn errors_become_statuses_with_their_reason() {
    let dialect = wire::Dialect::of(Line::V10, wire::Transport::Rest);
    for (kind, code, reason) in [
        (ErrorKind::TaskNotFound, 5, "TASK_NOT_FOUND"),
        (ErrorKind::TaskNotCancelable, 9, "TASK_NOT_CANCELABLE"),
        (ErrorKind::VersionNotSupported, 9, "VERSION_NOT_SUPPORTED"),
        (ErrorKind::InvalidParams, 3, "INVALID_PARAMS"),
        (ErrorKind::Internal, 13, "INTERNAL_ERROR"),
        (ErrorKind::SessionForbidden, 7, "SESSION_FORBIDDEN"),
        (ErrorKind::UpstreamUnreachable, 14, "UPSTREAM_UNREACHABLE"),
        (ErrorKind::Unauthorized, 16, ""),
        (ErrorKind::TooManyRequests, 8, ""),
        (ErrorKind::BodyTooLarge, 8, "REQUEST_BODY_TOO_LARGE"),
        (ErrorKind::Forbidden, 7, ""),
    ] {
        let error = Error::new(kind, "Weißt du, 100 %?\n").with("session_id", "s");
        let response = error_of(&error, dialect);
        let trailers = Status::of_rest(response.status, &response.body).trailers();
        assert_eq!(trailers["grpc-status"], code.to_string(), "{kind:?}");
        assert_eq!(trailers["grpc-message"], "Wei%C3%9Ft du, 100 %25?%0A", "{kind:?}");
        let details = trailers.get("grpc-status-details-bin").map(|details| STANDARD_NO_PAD.decode(details).unwrap());
        let info = details.map(|bytes| RpcStatus::decode(bytes.as_slice()).unwrap()).map(|status| {
            assert_eq!(status.code, code);
            ErrorInfo::decode(status.details[0].value.as_slice()).unwrap()
        });
        assert_eq!(info.as_ref().map_or("", |info| info.reason.as_str()), reason, "{kind:?}");
        assert!(info.is_none_or(|info| info.metadata["sessionId"] == "s"));
    }
}

fn error_of(failure: &Error, dialect: wire::Dialect) -> wire::Response {
    error(failure, dialect, &wire::RequestId::Null)
}

#[test]
fn malformed_requests_are_refused() {
    for body in [&b""[..], &[0, 0, 0], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 9], &[0, 255, 255, 255, 255]] {
        assert_eq!(unframe(body).unwrap_err().code, Code::InvalidArgument, "{body:?}");
    }
    assert_eq!(unframe(&[1, 0, 0, 0, 0]).unwrap_err().code, Code::Unimplemented);
    for operation in CORE.iter().map(|core| core.operation) {
        for bytes in [&[0xff_u8; 40][..], &[0x0a, 0x7f, 1], &[0x0b]] {
            let _ = decode(operation, bytes);
        }
        assert!(decode(operation, &[]).is_ok());
    }
    // A message of half of the world: tags that open groups forever.
    assert!(decode(Operation::Send, &[0x0b; 100_000]).is_err());
}

#[test]
fn blocks_of_events_are_read() {
    assert_eq!(event(":"), None);
    assert_eq!(event("id: 4\ndata: {\"a\":1}"), Some(("{\"a\":1}".into(), false)));
    assert_eq!(event("event: error\ndata:{}"), Some(("{}".into(), true)));
}
