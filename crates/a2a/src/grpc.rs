//! gRPC of 1.0: messages of protocol buffers to the JSON that `wire` reads and writes, and errors to statuses. Pure.
//!
//! The types are those of the official crate, which knows both forms of each message.

use a2a_pb::protojson as proto;
use api::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{BufMut as _, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::Operation;
use crate::wire::methods::CORE;

/// The media type, with or without a suffix.
pub(crate) const MEDIA_TYPE: &str = "application/grpc";
/// The path of the service.
const SERVICE: &str = "/lf.a2a.v1.A2AService/";
/// What comes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// How a call ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    code: Code,
    message: String,
    /// `google.rpc.ErrorInfo`: reason, domain and metadata.
    info: Option<ErrorInfo>,
}

/// The codes of gRPC that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Ok = 0,
    Unknown = 2,
    InvalidArgument = 3,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: std::collections::BTreeMap<String, String>,
}

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// What a message of a status escapes besides what is not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

impl Status {
    /// It worked.
    pub(crate) fn ok() -> Self {
        Self::new(Code::Ok, "")
    }

    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), info: None }
    }

    /// There is no such method.
    pub(crate) fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    /// A fault of ours.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(Code::Internal, message.to_string())
    }

    /// The status for an error that REST of 1.0 has with this status and body.
    pub(crate) fn of_rest(status: StatusCode, body: &[u8]) -> Self {
        let body: Json = serde_json::from_slice(body).unwrap_or_default();
        let error = &body["error"];
        let code = error["status"].as_str().map_or_else(|| code_of_status(status), code_of_name);
        let text = [&error["message"], error, &body["detail"]].into_iter().find_map(Json::as_str);
        let info = error["details"].as_array().and_then(|details| {
            let info = details.iter().find(|detail| detail["@type"] == ERROR_INFO)?;
            let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
            let metadata = info["metadata"].as_object().into_iter().flatten();
            let metadata = metadata.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
            Some(ErrorInfo { reason: text("reason"), domain: text("domain"), metadata: metadata.collect() })
        });
        Self { code, message: text.unwrap_or("The call failed").to_owned(), info }
    }

    /// The headers that end a call.
    pub(crate) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(self.code as u16));
        let message = utf8_percent_encode(&self.message, ESCAPED).to_string();
        if let Ok(message) = HeaderValue::from_str(&message)
            && !message.is_empty()
        {
            trailers.insert("grpc-message", message);
        }
        if let Some(info) = &self.info {
            let detail = Any { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() };
            let status = RpcStatus { code: self.code as i32, message: self.message.clone(), details: vec![detail] };
            if let Ok(value) = HeaderValue::from_str(&STANDARD_NO_PAD.encode(status.encode_to_vec())) {
                trailers.insert("grpc-status-details-bin", value);
            }
        }
        trailers
    }
}

fn code_of_name(name: &str) -> Code {
    match name {
        "INVALID_ARGUMENT" => Code::InvalidArgument,
        "NOT_FOUND" => Code::NotFound,
        "PERMISSION_DENIED" | "FORBIDDEN" => Code::PermissionDenied,
        "RESOURCE_EXHAUSTED" => Code::ResourceExhausted,
        "FAILED_PRECONDITION" => Code::FailedPrecondition,
        "UNIMPLEMENTED" => Code::Unimplemented,
        "INTERNAL" => Code::Internal,
        "UNAVAILABLE" => Code::Unavailable,
        "UNAUTHENTICATED" => Code::Unauthenticated,
        _ => Code::Unknown,
    }
}

fn code_of_status(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 | 405 => Code::Unimplemented,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The operation of a path. Methods are named as in JSON-RPC.
pub(crate) fn operation(path: &str) -> Option<Operation> {
    let name = path.strip_prefix(SERVICE)?;
    CORE.iter().find(|core| core.v10 == name).map(|core| core.operation)
}

/// The one message of a request.
pub(crate) fn unframe(body: &[u8]) -> Result<&[u8], Status> {
    let broken = || Status::new(Code::InvalidArgument, "The request is not one message with its length before it");
    let (prefix, message) = body.split_at_checked(PREFIX_BYTES).ok_or_else(broken)?;
    let [compressed, length @ ..] = prefix else { return Err(broken()) };
    if *compressed != 0 {
        return Err(Status::unimplemented("Compressed messages are not supported"));
    }
    let length = <[u8; 4]>::try_from(length).map(u32::from_be_bytes).map_err(|_| broken())?;
    if usize::try_from(length) == Ok(message.len()) { Ok(message) } else { Err(broken()) }
}

fn frame(message: &impl Message) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let prefix = u32::try_from(length).map_err(|_| Status::internal("The reply is too long for a message"))?;
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(prefix);
    message.encode(&mut framed).map_err(Status::internal)?;
    Ok(framed.freeze())
}

/// A request as the JSON of its protocol buffers.
pub(crate) fn decode(operation: Operation, message: &[u8]) -> Result<Json, Status> {
    match operation {
        Operation::Send | Operation::Stream => to_json::<proto::SendMessageRequest>(message),
        Operation::Get => to_json::<proto::GetTaskRequest>(message),
        Operation::List => to_json::<proto::ListTasksRequest>(message),
        Operation::Cancel => to_json::<proto::CancelTaskRequest>(message),
        Operation::Subscribe => to_json::<proto::SubscribeToTaskRequest>(message),
        Operation::PutPush => to_json::<proto::TaskPushNotificationConfig>(message),
        Operation::GetPush => to_json::<proto::GetTaskPushNotificationConfigRequest>(message),
        Operation::ListPush => to_json::<proto::ListTaskPushNotificationConfigsRequest>(message),
        Operation::DeletePush => to_json::<proto::DeleteTaskPushNotificationConfigRequest>(message),
        Operation::ExtendedCard => to_json::<proto::GetExtendedAgentCardRequest>(message),
    }
}

fn to_json<M: Message + Default + Serialize>(message: &[u8]) -> Result<Json, Status> {
    let refuse =
        |error: &dyn std::fmt::Display| Status::new(Code::InvalidArgument, format!("Invalid message: {error}"));
    let message = M::decode(message).map_err(|error| refuse(&error))?;
    serde_json::to_value(message).map_err(|error| refuse(&error))
}

/// A reply, or an event of a stream, from its JSON.
pub(crate) fn encode(operation: Operation, json: &[u8]) -> Result<Bytes, Status> {
    match operation {
        Operation::Send => from_json::<proto::SendMessageResponse>(json),
        Operation::Stream | Operation::Subscribe => from_json::<proto::StreamResponse>(json),
        Operation::Get | Operation::Cancel => from_json::<proto::Task>(json),
        Operation::List => from_json::<proto::ListTasksResponse>(json),
        Operation::PutPush | Operation::GetPush => from_json::<proto::TaskPushNotificationConfig>(json),
        Operation::ListPush => from_json::<proto::ListTaskPushNotificationConfigsResponse>(json),
        Operation::DeletePush => frame(&()),
        Operation::ExtendedCard => from_json::<proto::AgentCard>(json),
    }
}

fn from_json<M: Message + DeserializeOwned>(json: &[u8]) -> Result<Bytes, Status> {
    let message: M = serde_json::from_slice(json).map_err(Status::internal)?;
    frame(&message)
}

/// What a block of server-sent events holds: its data, and whether it is an error that ends the stream.
pub(crate) fn event(block: &str) -> Option<(String, bool)> {
    let (mut data, mut is_error) = (None, false);
    for line in block.lines() {
        if let Some(text) = line.strip_prefix("data:") {
            data.get_or_insert_with(String::new).push_str(text.trim_start());
        } else if let Some(name) = line.strip_prefix("event:") {
            is_error = name.trim() == "error";
        }
    }
    data.map(|data| (data, is_error))
}

#[cfg(test)]
mod tests;
