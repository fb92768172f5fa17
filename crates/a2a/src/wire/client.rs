//! The wire as a client of other agents sees it: calls to requests, responses to replies and events.

use api::{Json, JsonMap};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::dialect::{Dialect, Syntax, Transport};
use super::enums::state_name;
use super::error;
use super::extension::{ExtensionSet, HEADER, OLDER_HEADER};
use super::fields::{Object, Path};
use super::head::A2A_JSON;
use super::methods::Operation;
use super::read;
use super::time::timestamp;
use super::view::View;
use super::write::{InnerPush, Shown};
use crate::call::{Call, ListRequest, PushConfig, Reply, SendRequest, TaskPage};
use crate::error::{Error, ErrorKind};
use crate::event::{Block, Lane, TaskEvent};
use crate::model::{ArtifactId, Content, Line, Message, Task};

/// A request to another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Its method.
    pub method: Method,
    /// Its path and query, to append to the URL of the agent's interface.
    pub path: String,
    /// Its headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its body.
    pub body: Vec<u8>,
    /// Whether the reply is an event stream.
    pub is_stream: bool,
}

/// What stays readable in a segment of a path or in a value of a query.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encode(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Spells a call for another agent.
///
/// # Errors
/// The line has no such operation.
pub fn outgoing(
    call: &Call,
    dialect: Dialect,
    tenant: Option<&str>,
    id: u64,
    extensions: &[String],
) -> Result<Outgoing, Error> {
    let mut request = match dialect.transport {
        Transport::JsonRpc => rpc(call, dialect, tenant, id)?,
        Transport::Rest => rest(call, dialect, tenant)?,
    };
    let accept = match (request.is_stream, dialect.transport, dialect.payload) {
        (true, ..) => "text/event-stream",
        (false, Transport::Rest, Line::V10) => A2A_JSON,
        (false, ..) => "application/json",
    };
    request.headers.push((ACCEPT, HeaderValue::from_static(accept)));
    if !request.body.is_empty() {
        // Agents of 1.0 take both media types, some only this one.
        request.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
    }
    let version = HeaderValue::from_static(dialect.payload.version());
    request.headers.push((HeaderName::from_static("a2a-version"), version));
    if let Ok(list) = HeaderValue::from_str(&extensions.join(","))
        && !extensions.is_empty()
    {
        if dialect.payload == Line::V03 {
            request.headers.push((HeaderName::from_static(OLDER_HEADER), list.clone()));
        }
        request.headers.push((HeaderName::from_static(HEADER), list));
    }
    if let Call::Send(send) | Call::Stream(send) = call
        && let Some(Ok(trace)) = send.traceparent.as_deref().map(HeaderValue::from_str)
    {
        request.headers.push((HeaderName::from_static("traceparent"), trace));
    }
    if let Call::Subscribe { after: Some(after), .. } = call {
        request.headers.push((HeaderName::from_static("last-event-id"), HeaderValue::from(*after)));
    }
    Ok(request)
}

fn operation(call: &Call) -> Option<Operation> {
    Some(match call {
        Call::Send(_) => Operation::Send,
        Call::Stream(_) => Operation::Stream,
        Call::Get { .. } => Operation::Get,
        Call::List(_) => Operation::List,
        Call::Cancel { .. } => Operation::Cancel,
        Call::Subscribe { .. } => Operation::Subscribe,
        Call::PutPush(_) => Operation::PutPush,
        Call::GetPush { .. } => Operation::GetPush,
        Call::ListPush { .. } => Operation::ListPush,
        Call::DeletePush { .. } => Operation::DeletePush,
        Call::ExtendedCard => Operation::ExtendedCard,
        Call::Extension { .. } => return None,
    })
}

fn rpc(call: &Call, dialect: Dialect, tenant: Option<&str>, id: u64) -> Result<Outgoing, Error> {
    let operation = operation(call);
    let method = match (operation, call) {
        (Some(operation), _) => operation.method(dialect.payload).ok_or_else(|| missing(operation))?,
        (None, Call::Extension { method, .. }) => method.as_str(),
        (None, _) => return Err(Error::internal("a call without a method")),
    };
    let mut params = rpc_params(call, dialect.syntax());
    if let (Some(tenant), Line::V10, Json::Object(params)) = (tenant, dialect.payload, &mut params) {
        params.insert("tenant".into(), tenant.into());
    }
    let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    Ok(Outgoing {
        method: Method::POST,
        path: String::new(),
        headers: Vec::new(),
        body: body.to_string().into_bytes(),
        is_stream: operation.is_some_and(Operation::is_stream),
    })
}

fn missing(operation: Operation) -> Error {
    let message = format!("the agent's line of the protocol has no operation {operation:?} on this transport");
    Error::new(ErrorKind::UnsupportedOperation, message)
}

fn rpc_params(call: &Call, syntax: Syntax) -> Json {
    let new = syntax == Syntax::Proto10;
    let push = |task: &str, id: &Option<String>| {
        let (task_field, id_field) = if new { ("taskId", "id") } else { ("id", "pushNotificationConfigId") };
        object([(task_field, Some(json!(task))), (id_field, id.as_ref().map(|id| json!(id)))])
    };
    match call {
        Call::Send(send) | Call::Stream(send) => send_params(send, syntax),
        Call::Get { id, history_length } => {
            object([("id", Some(json!(id))), ("historyLength", history_length.map(Json::from))])
        }
        Call::List(list) => Json::Object(list_fields(list, syntax)),
        Call::Cancel { id } | Call::Subscribe { id, .. } => json!({ "id": id }),
        Call::PutPush(config) => to_json(&Shown(config, &whole_view(syntax))),
        Call::GetPush { task, id } | Call::DeletePush { task, id } => push(task, id),
        Call::ListPush { task, page_size, page_token } => {
            let mut params = push(task, &None);
            if let (true, Json::Object(params)) = (new, &mut params) {
                params.extend(page_size.map(|size| ("pageSize".to_owned(), Json::from(size))));
                params.extend(page_token.as_ref().map(|token| ("pageToken".to_owned(), json!(token))));
            }
            params
        }
        Call::ExtendedCard => Json::Object(JsonMap::new()),
        Call::Extension { params, .. } => Json::Object(params.clone()),
    }
}

fn rest(call: &Call, dialect: Dialect, tenant: Option<&str>) -> Result<Outgoing, Error> {
    let syntax = dialect.syntax();
    let configs = |task: &str| format!("/tasks/{}/pushNotificationConfigs", encode(task));
    let config =
        |task: &str, id: &Option<String>| format!("{}/{}", configs(task), encode(id.as_deref().unwrap_or(task)));
    let (method, path, body) = match call {
        Call::Send(send) => (Method::POST, "/message:send".to_owned(), Some(send_params(send, syntax))),
        Call::Stream(send) => (Method::POST, "/message:stream".to_owned(), Some(send_params(send, syntax))),
        Call::Get { id, history_length } => {
            let query = history_length.map(|length| format!("?historyLength={length}")).unwrap_or_default();
            (Method::GET, format!("/tasks/{}{query}", encode(id)), None)
        }
        Call::List(list) => (Method::GET, format!("/tasks{}", query(&list_fields(list, syntax))), None),
        Call::Cancel { id } => (Method::POST, format!("/tasks/{}:cancel", encode(id)), Some(json!({}))),
        Call::Subscribe { id, .. } => (Method::GET, format!("/tasks/{}:subscribe", encode(id)), None),
        Call::PutPush(push) => (Method::POST, configs(&push.task_id), Some(put_push_body(push, syntax))),
        Call::GetPush { task, id } => (Method::GET, config(task, id), None),
        Call::DeletePush { task, id } => (Method::DELETE, config(task, id), None),
        Call::ListPush { task, page_size, page_token } => {
            let fields = object([
                ("pageSize", page_size.map(Json::from)),
                ("pageToken", page_token.as_ref().map(|token| json!(token))),
            ]);
            let query = fields.as_object().map(query).unwrap_or_default();
            (Method::GET, format!("{}{query}", configs(task)), None)
        }
        Call::ExtendedCard if dialect.payload == Line::V03 => (Method::GET, "/card".to_owned(), None),
        Call::ExtendedCard => (Method::GET, "/extendedAgentCard".to_owned(), None),
        Call::Extension { .. } => {
            return Err(Error::new(ErrorKind::UnsupportedOperation, "methods of extensions need JSON-RPC"));
        }
    };
    let path = match (dialect.payload, tenant) {
        (Line::V03, _) => format!("/v1{path}"),
        (Line::V10, Some(tenant)) => format!("/{}{path}", encode(tenant)),
        (Line::V10, None) => path,
    };
    Ok(Outgoing {
        method,
        path,
        headers: Vec::new(),
        body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        is_stream: operation(call).is_some_and(Operation::is_stream),
    })
}

fn put_push_body(push: &PushConfig, syntax: Syntax) -> Json {
    let config = to_json(&Shown(push, &whole_view(syntax)));
    if syntax == Syntax::Proto10 {
        return config;
    }
    let id = push.id.as_deref().unwrap_or(&push.task_id);
    json!({"parent": format!("tasks/{}", push.task_id), "configId": id, "config": config})
}

/// Nothing is hidden from the agents that we call.
fn whole_view(syntax: Syntax) -> View {
    let dialect = match syntax {
        Syntax::Kinds => Dialect::of(Line::V03, Transport::JsonRpc),
        Syntax::Proto03 => Dialect::of(Line::V03, Transport::Rest),
        Syntax::Proto10 => Dialect::of(Line::V10, Transport::JsonRpc),
    };
    View::new(dialect, ExtensionSet::ALL, false)
}

fn to_json(value: &impl serde::Serialize) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

fn object<const N: usize>(fields: [(&str, Option<Json>); N]) -> Json {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<JsonMap>().into()
}

fn query(fields: &JsonMap) -> String {
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encode(&text(value)))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn send_params(send: &SendRequest, syntax: Syntax) -> Json {
    let view = whole_view(syntax);
    let options = &send.options;
    let modes = &options.accepted_output_modes;
    let (push_field, waiting) = match syntax {
        Syntax::Kinds => ("pushNotificationConfig", ("blocking", !options.return_immediately)),
        Syntax::Proto03 => ("pushNotification", ("blocking", !options.return_immediately)),
        Syntax::Proto10 => ("taskPushNotificationConfig", ("returnImmediately", options.return_immediately)),
    };
    let configuration = object([
        ("acceptedOutputModes", (!modes.is_empty()).then(|| json!(modes))),
        ("historyLength", options.history_length.map(Json::from)),
        (waiting.0, Some(Json::Bool(waiting.1))),
        (push_field, options.push.as_ref().map(|config| to_json(&InnerPush { config, view: &view }))),
    ]);
    let metadata = (!send.metadata.is_empty()).then(|| Json::Object(send.metadata.clone()));
    object([
        ("message", Some(to_json(&Shown(&send.message, &view)))),
        ("configuration", Some(configuration)),
        ("metadata", metadata),
    ])
}

fn list_fields(list: &ListRequest, syntax: Syntax) -> JsonMap {
    let since = if syntax == Syntax::Proto10 { "statusTimestampAfter" } else { "lastUpdatedAfter" };
    let syntax = if syntax == Syntax::Proto10 { syntax } else { Syntax::Kinds };
    let fields = object([
        ("contextId", list.context_id.as_ref().map(|id| json!(id))),
        ("status", list.state.map(|state| state_name(state, syntax).into())),
        (since, list.changed_since.map(|time| timestamp(time).into())),
        ("pageSize", list.page_size.map(Json::from)),
        ("pageToken", list.page_token.as_ref().map(|token| json!(token))),
        ("historyLength", list.history_length.map(Json::from)),
        ("includeArtifacts", list.include_artifacts.then_some(Json::Bool(true))),
    ]);
    match fields {
        Json::Object(fields) => fields,
        _ => JsonMap::new(),
    }
}

/// Reads the response to a call that is no stream.
///
/// # Errors
/// The error that the agent sent, or [`ErrorKind::InvalidAgentResponse`].
pub fn parse_reply(call: &Call, dialect: Dialect, status: u16, body: &[u8]) -> Result<Reply, Error> {
    let value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(_) if body.is_empty() && (200..300).contains(&status) => Json::Null,
        Err(error) if (200..300).contains(&status) => return Err(malformed(error)),
        Err(_) => return Err(error::read(&Json::Null, dialect, status)),
    };
    let result = payload(value, dialect, status)?;
    reply_of(call, result, dialect.syntax()).map_err(|error| malformed(error.message))
}

/// The result inside of an envelope, or the whole body of REST.
fn payload(mut value: Json, dialect: Dialect, status: u16) -> Result<Json, Error> {
    let failed = !(200..300).contains(&status);
    match dialect.transport {
        _ if failed => Err(error::read(&value, dialect, status)),
        Transport::JsonRpc if value.get("error").is_some_and(|error| !error.is_null()) => {
            Err(error::read(&value, dialect, status))
        }
        Transport::JsonRpc => {
            let result = value.as_object_mut().and_then(|envelope| envelope.remove("result"));
            result.ok_or_else(|| malformed("a response without result or error"))
        }
        Transport::Rest => Ok(value),
    }
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, format!("The agent's answer is malformed: {what}"))
}

fn reply_of(call: &Call, result: Json, syntax: Syntax) -> Result<Reply, Error> {
    let root = Path::Root("result");
    Ok(match call {
        Call::Send(_) | Call::Stream(_) | Call::Subscribe { .. } => match item(result, syntax)? {
            StreamItem::Task(task) => Reply::Sent(task),
            StreamItem::Message(message) => Reply::Message(message),
            StreamItem::Event { .. } => return Err(root.wrong("a task or a message")),
        },
        Call::Get { .. } | Call::Cancel { .. } => Reply::Task(Box::new(read::task(result, root, syntax)?)),
        Call::List(_) => {
            // Some agents of 0.3 list tasks in the spelling of JSON-RPC, some in that of REST. This reads both.
            let syntax = if syntax == Syntax::Proto10 { syntax } else { Syntax::Proto03 };
            let mut page = Object::new(result, root)?;
            Reply::Tasks(TaskPage {
                tasks: page.each("tasks", |value, path| read::task(value, path, syntax))?,
                next_page_token: page.text("nextPageToken")?.unwrap_or_default(),
                page_size: page.count("pageSize")?.unwrap_or_default(),
                total_size: page.count("totalSize")?.unwrap_or_default().into(),
            })
        }
        Call::PutPush(PushConfig { task_id, .. }) => Reply::Push(push(result, root, syntax, task_id)?),
        Call::GetPush { task, .. } => Reply::Push(push(result, root, syntax, task)?),
        Call::ListPush { task, .. } => pushes(result, syntax, task)?,
        Call::DeletePush { .. } => Reply::Deleted,
        Call::ExtendedCard | Call::Extension { .. } => Reply::Json(result),
    })
}

fn push(value: Json, path: Path<'_>, syntax: Syntax, task: &str) -> Result<PushConfig, Error> {
    let config = if syntax == Syntax::Proto10 {
        read::push_config(value, path, syntax)?
    } else {
        let mut wrapper = Object::new(value, path)?;
        let inner = wrapper.needed("pushNotificationConfig")?;
        read::push_config(inner, wrapper.at("pushNotificationConfig"), syntax)?
    };
    Ok(PushConfig { task_id: task.to_owned(), ..config })
}

fn pushes(result: Json, syntax: Syntax, task: &str) -> Result<Reply, Error> {
    let root = Path::Root("result");
    let wrapped = if result.is_array() { json!({ "configs": result }) } else { result };
    let mut page = Object::new(wrapped, root)?;
    let configs = page.each("configs", |value, path| push(value, path, syntax, task))?;
    Ok(Reply::Pushes(configs, page.text("nextPageToken")?.unwrap_or_default()))
}

/// An item of another agent's stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// The task as it is.
    Task(Box<Task>),
    /// A message instead of a task.
    Message(Box<Message>),
    /// An event of the task.
    Event {
        /// The task.
        task_id: String,
        /// The context that it belongs to.
        context_id: String,
        /// The number of the event, where the agent counts.
        seq: Option<u64>,
        /// Whether the agent says that the stream ends with it.
        is_final: bool,
        /// The event.
        event: Box<TaskEvent>,
    },
}

/// Reads the data of an event of another agent's stream.
///
/// # Errors
/// The error that the agent sent, or [`ErrorKind::InvalidAgentResponse`].
pub fn parse_event(dialect: Dialect, data: &[u8]) -> Result<StreamItem, Error> {
    let value: Json = serde_json::from_slice(data).map_err(malformed)?;
    // REST has no envelope: an error is an object of its own.
    if dialect.transport == Transport::Rest && value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(error::read(&value, dialect, 200));
    }
    let result = payload(value, dialect, 200)?;
    item(result, dialect.syntax()).map_err(|error| malformed(error.message))
}

fn item(value: Json, syntax: Syntax) -> Result<StreamItem, Error> {
    let root = Path::Root("result");
    let mut object = Object::new(value, root)?;
    let (kind, value) = match syntax {
        Syntax::Kinds => {
            let kind = object.text("kind")?.unwrap_or_default();
            (kind, Json::Object(object.into_map()))
        }
        Syntax::Proto03 | Syntax::Proto10 => {
            let names = [("task", "task"), ("message", "message"), ("msg", "message")];
            let updates = [("statusUpdate", "status-update"), ("artifactUpdate", "artifact-update")];
            let found = names.into_iter().chain(updates).find_map(|(name, kind)| Some((kind, object.take(name)?)));
            let Some((kind, value)) = found else {
                return Err(root.wrong("a task, a message or an update"));
            };
            (kind.to_owned(), value)
        }
    };
    match kind.as_str() {
        "task" => Ok(StreamItem::Task(Box::new(read::task(value, root, syntax)?))),
        "message" => Ok(StreamItem::Message(Box::new(read::message(value, root, syntax)?))),
        "status-update" => status_update(Object::new(value, root)?, syntax),
        "artifact-update" => artifact_update(Object::new(value, root)?, syntax),
        _ => Err(root.wrong("a task, a message or an update")),
    }
}

fn status_update(mut object: Object<'_>, syntax: Syntax) -> Result<StreamItem, Error> {
    let status = object.needed("status")?;
    let status = read::status(status, object.at("status"), syntax)?;
    let mut metadata = object.metadata("metadata")?;
    let (mark, seq) = read::stream_mark(&mut metadata).map_or((None, None), |(mark, _, seq)| (Some(mark), seq));
    let is_final = object.boolean("final")?.unwrap_or(status.state.is_terminal());
    Ok(StreamItem::Event {
        task_id: object.required("taskId")?,
        context_id: object.filled("contextId")?.unwrap_or_default(),
        seq,
        is_final,
        event: Box::new(TaskEvent::Status { status, metadata, mark }),
    })
}

fn artifact_update(mut object: Object<'_>, syntax: Syntax) -> Result<StreamItem, Error> {
    let task_id = object.required("taskId")?;
    let artifact = object.needed("artifact")?;
    let artifact = read::artifact(artifact, object.at("artifact"), syntax, &task_id)?;
    let mut metadata = artifact.metadata;
    let stream = read::stream_mark(&mut metadata);
    metadata.extend(object.metadata("metadata")?);
    let (mark, block, seq) = stream.map_or((None, None, None), |(mark, block, seq)| (Some(mark), block, seq));
    let shared = format!("{task_id}:stream");
    let id = match (artifact.id, block) {
        // One artifact for all lanes, as 0.3 has it: the block tells them apart.
        (ArtifactId::Named(name), Some(block)) if name == shared => ArtifactId::Lane(match block {
            Block::Text => Lane::Text,
            Block::Reasoning => Lane::Reasoning,
            Block::ToolCall => Lane::Tool(tool_call(artifact.parts.first().map(|part| &part.content))),
        }),
        (id, _) => id,
    };
    let append = object.boolean("append")?.unwrap_or(false);
    Ok(StreamItem::Event {
        context_id: object.filled("contextId")?.unwrap_or_default(),
        seq,
        is_final: false,
        event: Box::new(TaskEvent::Artifact {
            id,
            name: artifact.name,
            parts: artifact.parts,
            append,
            append_any: append,
            last_chunk: object.boolean("lastChunk")?.unwrap_or(false),
            metadata,
            mark,
        }),
        task_id,
    })
}

fn tool_call(content: Option<&Content>) -> String {
    match content {
        Some(Content::Data(data)) => data["call_id"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}
