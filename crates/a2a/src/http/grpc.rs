//! gRPC on the port of the other transports: each call becomes one of REST, and its reply is translated back.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use transport::body;
use transport::listen::ConnectionInfo;
use transport::trace::TraceContext;

use super::Endpoint;
use super::refusal::body_error;
use crate::grpc::{self, Status};
use crate::wire::{self, Dialect, Operation, RequestId, Transport};
use crate::{Line, depth};

const DIALECT: Dialect = Dialect { payload: Line::V10, errors: Line::V10, transport: Transport::Rest };
/// The largest reply that is translated at once. Replies that are no streams are in memory anyway.
const MAX_REPLY_BYTES: usize = 256 << 20;

/// Whether a request is one of gRPC.
pub(super) fn is_grpc(parts: &Parts) -> bool {
    let media = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    media.is_some_and(|media| media.starts_with(grpc::MEDIA_TYPE.as_bytes()))
}

impl Endpoint {
    /// Answers a call.
    pub(super) async fn answer_grpc(
        self: Arc<Self>,
        parts: Parts,
        body: &mut Body,
        trace: &TraceContext,
    ) -> Response<Body> {
        match self.call_grpc(parts, body, trace).await {
            Ok(response) => response,
            Err(status) => ended(&status),
        }
    }

    async fn call_grpc(
        self: Arc<Self>,
        parts: Parts,
        body: &mut Body,
        trace: &TraceContext,
    ) -> Result<Response<Body>, Status> {
        let principal = match self.authenticate(&parts.headers, DIALECT) {
            Ok(principal) => principal,
            Err(refused) => return Err(status_of(*refused).await),
        };
        let path = parts.uri.path();
        let operation =
            grpc::operation(path).ok_or_else(|| Status::unimplemented(format!("There is no method {path}")))?;
        let bytes = body::read(&parts.headers, std::mem::take(body), self.settings.max_request_body).await;
        let bytes = bytes.map_err(|error| of_wire(&wire::error(&body_error(&error), DIALECT, &RequestId::Null)))?;
        let params = grpc::decode(operation, grpc::unframe(&bytes)?)?;
        let mut request = wire::parse_proto(operation, params, &parts.headers, &self.wire)
            .map_err(|rejection| of_wire(&rejection.response()))?;
        depth::arrive(&mut request.call, &parts.headers, trace.header_text())
            .map_err(|error| of_wire(&wire::error(&error, DIALECT, &RequestId::Null)))?;
        let client = ConnectionInfo::of(&parts).map(|info| info.client.clone());
        let response = self.perform(principal, request, client).await;
        if operation.is_stream() && response.status().is_success() {
            return Ok(events(operation, response));
        }
        if !response.status().is_success() {
            return Err(status_of(response).await);
        }
        let (mut head, body) = response.into_parts();
        let json = read_reply(body).await?;
        let message = grpc::encode(operation, &json)?;
        let frames = [Frame::data(message), Frame::trailers(Status::ok().trailers())];
        let frames = stream::iter(frames.map(Ok::<_, axum::Error>));
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(grpc::MEDIA_TYPE));
        Ok(Response::from_parts(head, Body::new(StreamBody::new(frames))))
    }
}

fn of_wire(response: &wire::Response) -> Status {
    Status::of_rest(response.status, &response.body)
}

async fn status_of(response: Response<Body>) -> Status {
    let status = response.status();
    match read_reply(response.into_body()).await {
        Ok(body) => Status::of_rest(status, &body),
        Err(status) => status,
    }
}

async fn read_reply(body: Body) -> Result<Bytes, Status> {
    axum::body::to_bytes(body, MAX_REPLY_BYTES).await.map_err(Status::internal)
}

/// A call that ends without a message.
fn ended(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = status.trailers();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(grpc::MEDIA_TYPE));
    response
}

/// The events of a stream as messages.
fn events(operation: Operation, response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let events = Events { operation, body, text: Vec::new(), ready: VecDeque::new(), is_over: false };
    let frames = stream::unfold(events, |mut events| async move {
        let frame = events.next().await?;
        Some((frame, events))
    });
    for name in [header::CONTENT_LENGTH, header::CACHE_CONTROL] {
        head.headers.remove(name);
    }
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(grpc::MEDIA_TYPE));
    Response::from_parts(head, Body::new(StreamBody::new(frames)))
}

/// A stream of server-sent events that is translated.
struct Events {
    operation: Operation,
    body: Body,
    /// The block that has not ended yet.
    text: Vec<u8>,
    ready: VecDeque<Frame<Bytes>>,
    is_over: bool,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(Ok(frame));
            }
            if self.is_over {
                return None;
            }
            match self.body.frame().await {
                None => self.end(&Status::ok()),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.take(&bytes);
                    }
                    if self.body.is_end_stream() && !self.is_over {
                        self.end(&Status::ok());
                    }
                }
            }
        }
    }

    /// Translates the blocks that are complete.
    fn take(&mut self, bytes: &[u8]) {
        // Blocks end with an empty line, which may come in two pieces.
        let mut from = self.text.len().saturating_sub(1);
        self.text.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(at) = self.text[from..].windows(2).position(|pair| pair == b"\n\n") {
            let end = from + at;
            let block = String::from_utf8_lossy(&self.text[start..end]).into_owned();
            (start, from) = (end + 2, end + 2);
            match grpc::event(&block) {
                None => {}
                Some((data, true)) => {
                    // The status of the response was good when it began; the name in the body counts.
                    let status = Status::of_rest(axum::http::StatusCode::INTERNAL_SERVER_ERROR, data.as_bytes());
                    return self.end(&status);
                }
                Some((data, false)) => match grpc::encode(self.operation, data.as_bytes()) {
                    Ok(message) => self.ready.push_back(Frame::data(message)),
                    Err(status) => return self.end(&status),
                },
            }
        }
        self.text.drain(..start);
    }

    fn end(&mut self, status: &Status) {
        self.is_over = true;
        self.ready.push_back(Frame::trailers(status.trailers()));
    }
}
