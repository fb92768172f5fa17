//! gRPC over a socket: the official client, and frames by hand for what it cannot send or hides.

use std::sync::Arc;

use a2a_pb::a2a_service_client::A2aServiceClient;
use a2a_pb::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    Message, Part, Role, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
    TaskState, part, send_message_response, stream_response,
};
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use prost::Message as _;
use serde_json::{Value, json};
use testkit::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use transport::backlog::Backlog;
use transport::listen::{AcceptOptions, Socket, accept};
use transport::metrics::Gauge;
use trefoil_a2a::card::CardInput;
use trefoil_a2a::{Credentials, Endpoint, EndpointOptions, Extensions, Scheme, Settings};

use crate::common::*;

const SERVICE: &str = "/lf.a2a.v1.A2AService";
const UNAUTHENTICATED: i32 = 16;
const UNIMPLEMENTED: i32 = 12;
const FAILED_PRECONDITION: i32 = 9;
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;

/// An endpoint on a socket. It closes when this is dropped.
struct Server {
    lab: Lab,
    address: String,
    _closing: DropGuard,
}

impl Server {
    async fn start(credentials: Credentials) -> Self {
        let change = |settings: &mut Settings| settings.push_allow_private_hosts = true;
        let lab = Lab::with(json!({}), change).await;
        let mut settings = Settings::default();
        change(&mut settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let url = format!("http://{address}");
        let closing = CancellationToken::new();
        let endpoint = Endpoint::new(EndpointOptions {
            service: lab.service.clone(),
            extensions: Extensions::new(lab.service.clone()),
            credentials,
            card: CardInput::new(&settings, &url, &[Scheme::Bearer], lab.project.path(), "0.0.0"),
            settings,
            signing_key: None,
            hosts: Vec::new(),
            closing: closing.clone(),
        });
        let options = AcceptOptions {
            closing: closing.clone(),
            backlog: Backlog::default(),
            connections: Gauge::default(),
            stranger_refusal: None,
            descriptor_limit: 4096,
        };
        tokio::spawn(accept(Socket::Tcp(listener), options, Arc::new(endpoint.unwrap())));
        Self { lab, address, _closing: closing.drop_guard() }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Calls a method with frames made by hand: the headers and the trailers, joined, and the bytes between them.
    async fn call(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        message: &impl prost::Message,
    ) -> (HeaderMap, Vec<u8>) {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::post(format!("{}{method}", self.url()));
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let mut client = client.ready().await.unwrap();
        let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        body.send_data(Bytes::from([&[0], length.as_slice(), &message].concat()), true).unwrap();
        let response = soon("the response", response).await.unwrap();
        assert_eq!(response.status(), 200);
        let (mut parts, mut body) = (response.headers().clone(), response.into_body());
        let mut bytes = Vec::new();
        while let Some(data) = soon("the body", body.data()).await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            bytes.extend_from_slice(&data);
        }
        parts.extend(soon("the trailers", body.trailers()).await.unwrap().unwrap_or_default());
        connection.abort();
        (parts, bytes)
    }
}

fn status(headers: &HeaderMap) -> i32 {
    headers["grpc-status"].to_str().unwrap().parse().unwrap()
}

/// A message that plays these steps.
fn message(id: &str, steps: &Value) -> SendMessageRequest {
    let text = part::Content::Text(format!("SCRIPT: {steps}"));
    let part = Part { content: Some(text), ..Part::default() };
    let message =
        Message { message_id: id.to_owned(), role: Role::User.into(), parts: vec![part], ..Message::default() };
    SendMessageRequest { message: Some(message), ..SendMessageRequest::default() }
}

fn state_of(task: &Task) -> TaskState {
    task.status.as_ref().unwrap().state()
}

fn get(id: &str) -> GetTaskRequest {
    GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() }
}

fn payload(response: StreamResponse) -> stream_response::Payload {
    response.payload.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_client_calls_every_method() {
    let server = Server::start(Credentials::none()).await;
    let mut client = A2aServiceClient::connect(server.url()).await.unwrap();

    let sent = client.send_message(message("m1", &json!([{"text": "Hello."}]))).await.unwrap().into_inner();
    let Some(send_message_response::Payload::Task(task)) = sent.payload else { panic!("{sent:?}") };
    assert_eq!(state_of(&task), TaskState::Completed);
    let read = client.get_task(get(&task.id)).await.unwrap().into_inner();
    assert_eq!((&read.id, state_of(&read)), (&task.id, TaskState::Completed));
    let listed = client.list_tasks(ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!((listed.tasks.len(), listed.total_size, &listed.tasks[0].id), (1, 1, &task.id));

    // Push configurations.
    let config = TaskPushNotificationConfig {
        id: "p1".to_owned(),
        task_id: task.id.clone(),
        url: "http://127.0.0.1:9/hook".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let made = client.create_task_push_notification_config(config.clone()).await.unwrap().into_inner();
    assert_eq!((made.id.as_str(), &made.url), ("p1", &config.url));
    let (task_id, id) = (task.id.clone(), "p1".to_owned());
    let wanted = GetTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
    let found = client.get_task_push_notification_config(wanted).await.unwrap().into_inner();
    assert_eq!(found.url, config.url);
    let all = || ListTaskPushNotificationConfigsRequest { task_id: task.id.clone(), ..Default::default() };
    assert_eq!(client.list_task_push_notification_configs(all()).await.unwrap().into_inner().configs.len(), 1);
    let (task_id, id) = (task.id.clone(), "p1".to_owned());
    let unwanted = DeleteTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
    client.delete_task_push_notification_config(unwanted).await.unwrap();
    assert_eq!(client.list_task_push_notification_configs(all()).await.unwrap().into_inner().configs.len(), 0);

    let card = client.get_extended_agent_card(GetExtendedAgentCardRequest::default()).await.unwrap().into_inner();
    let bindings: Vec<&str> = card.supported_interfaces.iter().map(|it| it.protocol_binding.as_str()).collect();
    assert!(bindings.contains(&"GRPC") && bindings.contains(&"JSONRPC"), "{bindings:?}");

    // What fails says why.
    let missing = client.get_task(get("nope")).await.unwrap_err();
    assert_eq!(missing.code() as i32, NOT_FOUND);
    assert!(!missing.details().is_empty(), "no details");
    let empty = client.send_message(SendMessageRequest::default()).await.unwrap_err();
    assert_eq!(empty.code() as i32, INVALID_ARGUMENT);
    let over = SubscribeToTaskRequest { id: task.id.clone(), ..Default::default() };
    assert_eq!(client.subscribe_to_task(over).await.unwrap_err().code() as i32, FAILED_PRECONDITION);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_task_end_together_when_it_is_cancelled() {
    let server = Server::start(Credentials::none()).await;
    let mut client = A2aServiceClient::connect(server.url()).await.unwrap();
    let gate = server.lab.gate("held");
    let held = message("m1", &json!([{"text": "Working.", "hold": gate}]));
    let mut events = client.send_streaming_message(held).await.unwrap().into_inner();
    let first = soon("the first event", events.message()).await.unwrap().unwrap();
    let stream_response::Payload::Task(task) = payload(first) else { panic!("a stream begins with its task") };
    let id = task.id;
    let subscribe = SubscribeToTaskRequest { id: id.clone(), ..Default::default() };
    let mut joined = client.subscribe_to_task(subscribe).await.unwrap().into_inner();
    let first = soon("the snapshot", joined.message()).await.unwrap().unwrap();
    assert!(matches!(payload(first), stream_response::Payload::Task(task) if task.id == id));

    let cancel = CancelTaskRequest { id: id.clone(), ..Default::default() };
    let cancelled = soon("the cancellation", client.cancel_task(cancel)).await.unwrap().into_inner();
    assert_eq!(state_of(&cancelled), TaskState::Canceled);
    for events in [&mut events, &mut joined] {
        let mut last = None;
        while let Some(event) = soon("the next event", events.message()).await.unwrap() {
            last = Some(payload(event));
        }
        let Some(stream_response::Payload::StatusUpdate(update)) = last else { panic!("{last:?}") };
        assert_eq!(update.status.unwrap().state(), TaskState::Canceled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_comes_in_pieces_and_in_order() {
    let server = Server::start(Credentials::none()).await;
    let mut client = A2aServiceClient::connect(server.url()).await.unwrap();
    let steps = json!([{"reasoning": "Hm.", "text": "One two three.", "chunks": 3}]);
    let mut events = client.send_streaming_message(message("m1", &steps)).await.unwrap().into_inner();
    let (mut text, mut last) = (String::new(), None);
    while let Some(event) = soon("the next event", events.message()).await.unwrap() {
        match payload(event) {
            stream_response::Payload::ArtifactUpdate(update) => {
                let artifact = update.artifact.unwrap();
                if artifact.artifact_id.ends_with(":text") {
                    let parts = artifact.parts.into_iter().filter_map(|part| part.content);
                    text.extend(parts.filter_map(|content| match content {
                        part::Content::Text(text) => Some(text),
                        _ => None,
                    }));
                }
            }
            stream_response::Payload::StatusUpdate(update) => last = Some(update.status.unwrap().state()),
            stream_response::Payload::Task(_) | stream_response::Payload::Message(_) => {}
        }
    }
    assert_eq!((text.is_empty(), last), (false, Some(TaskState::Completed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_methods_and_versions_are_checked() {
    const ALICE: (&str, &str) = ("authorization", "Bearer alice-token");
    let registry = r#"[{"scheme": "bearer", "token": "alice-token", "principal": "alice"}]"#;
    let server = Server::start(Credentials::new(None, Some(registry)).unwrap()).await;
    let method = format!("{SERVICE}/ListTasks");
    let list = ListTasksRequest::default();
    for headers in [&[][..], &[("authorization", "Bearer nobody")]] {
        let (headers, body) = server.call(&method, headers, &list).await;
        assert_eq!((status(&headers), body), (UNAUTHENTICATED, Vec::new()));
    }
    // Credentials come before methods.
    let (headers, _) = server.call(&format!("{SERVICE}/Nope"), &[], &list).await;
    assert_eq!(status(&headers), UNAUTHENTICATED);
    for path in [format!("{SERVICE}/Nope"), "/a2a.v1.A2AService/ListTasks".to_owned(), "/tasks".to_owned()] {
        let (headers, body) = server.call(&path, &[ALICE], &list).await;
        assert_eq!((status(&headers), body), (UNIMPLEMENTED, Vec::new()), "{path}");
    }
    for version in ["0.3", "9.9", "abc"] {
        let (headers, _) = server.call(&method, &[ALICE, ("a2a-version", version)], &list).await;
        assert_eq!(status(&headers), FAILED_PRECONDITION, "{version}");
        assert!(headers["grpc-message"].to_str().unwrap().contains(version), "{headers:?}");
    }
    for version in ["", "1.0", "1.0.1"] {
        let (headers, body) = server.call(&method, &[ALICE, ("a2a-version", version)], &list).await;
        assert_eq!(status(&headers), 0, "{version}: {headers:?}");
        assert_eq!(headers["a2a-version"], "1.0");
        assert_eq!(headers["content-type"], "application/grpc");
        let listed = a2a_pb::ListTasksResponse::decode(&body[5..]).unwrap();
        assert!(listed.tasks.is_empty());
    }
    // Bytes that are no message.
    let (headers, _) = server.call(&method, &[ALICE], &vec![0xffu8; 3]).await;
    assert_eq!(status(&headers), INVALID_ARGUMENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_is_on_the_same_port() {
    let server = Server::start(Credentials::none()).await;
    let mut client = A2aServiceClient::connect(server.url()).await.unwrap();
    let sent = client.send_message(message("m1", &json!([{"text": "Hello."}]))).await.unwrap().into_inner();
    let Some(send_message_response::Payload::Task(task)) = sent.payload else { panic!("{sent:?}") };
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let head = format!("GET /tasks/{} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", task.id, server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon("the response", stream.read_to_string(&mut response)).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let found: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&found["id"], &found["status"]["state"]), (&json!(task.id), &json!("TASK_STATE_COMPLETED")));
}
