//! The way of a request from its head to its response.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use axum::http::request::Parts;
use bytes::Bytes;
use transport::backlog::ClientBacklog;
use transport::listen::ConnectionInfo;
use transport::trace::TraceContext;
use transport::{body, gzip};

use super::refusal::{Refused, add_negotiated_headers, body_error, is_json, refuse};
use super::{Endpoint, into_response};
use crate::wire::{self, Operation, Rejection, Route, Target};
use crate::{Call, Error, ErrorKind, Line, Principal, Reply, depth};

impl Endpoint {
    /// Answers a request whose host and origin are allowed. Leaves the body there unless it is needed. `head_only` if the
    /// client wants no body.
    pub(super) async fn answer(
        self: Arc<Self>,
        parts: Parts,
        body: &mut Body,
        trace: &TraceContext,
        head_only: bool,
    ) -> Result<Response<Body>, Refused> {
        let query = parts.uri.query().unwrap_or_default();
        let routed = wire::route(&parts.method, parts.uri.path(), query, &parts.headers, &self.wire);
        if routed.as_ref().is_ok_and(Route::is_public) {
            return Ok(self.documents.public(&parts));
        }
        let dialect = routed.as_ref().map_or_else(|rejection| rejection.dialect, Route::dialect);
        let principal = self.authenticate(&parts.headers, dialect)?;
        let route = routed.map_err(reject)?;
        if let Some(document) = self.document(&route, &parts).await {
            return Ok(document);
        }
        if head_only && route.is_stream() {
            let error = Error::new(ErrorKind::HttpMethodNotAllowed, "Method Not Allowed").with("allowed", vec!["GET"]);
            return Err(Box::new(refuse(&error, dialect)));
        }
        let bytes = match route.has_body() {
            true if !is_json(&parts.headers) => {
                let message = "Send application/json or application/a2a+json";
                return Err(Box::new(refuse(&Error::new(ErrorKind::MediaTypeNotSupported, message), dialect)));
            }
            true => self.read_body(&route, &parts, std::mem::take(body)).await?,
            false => Bytes::new(),
        };
        let mut request = wire::parse(&route, &bytes, &self.wire).map_err(reject)?;
        if let Err(error) = depth::arrive(&mut request.call, &parts.headers, trace.header_text()) {
            let mut response = into_response(wire::error_response(&error, &request));
            add_negotiated_headers(request.negotiated_headers(), &mut response);
            return Err(Box::new(response));
        }
        self.log_payload("request", request.method, &bytes);
        drop(bytes);
        let client = ConnectionInfo::of(&parts).map(|info| info.client.clone());
        let response = self.clone().perform(principal, request, client).await;
        Ok(gzip::compress(response, gzip::is_accepted(&parts.headers), self.settings.gzip_minimum).await)
    }

    /// The document that a path names.
    async fn document(&self, route: &Route, parts: &Parts) -> Option<Response<Body>> {
        match &route.target {
            Target::PublicCard => Some(self.documents.public(parts)),
            Target::ExtendedCard => Some(self.documents.extended(parts)),
            Target::Rest(call) if call.operation == Operation::ExtendedCard => {
                let mut response = self.documents.extended(parts);
                add_negotiated_headers(route.card_headers(), &mut response);
                Some(response)
            }
            Target::Health => Some(self.documents.health(parts)),
            Target::OpenApi => Some(self.documents.openapi(parts)),
            Target::Metrics => {
                let response = self.metrics_response(route);
                Some(gzip::compress(response, gzip::is_accepted(&parts.headers), self.settings.gzip_minimum).await)
            }
            Target::JsonRpc | Target::Rest(_) => None,
        }
    }

    async fn read_body(&self, route: &Route, parts: &Parts, body: Body) -> Result<Bytes, Refused> {
        let refuse = |error: &Error| Box::new(refuse(error, route.dialect()));
        let read = body::read(&parts.headers, body, self.settings.max_request_body).await;
        read.map_err(|error| refuse(&body_error(&error)))
    }

    /// Performs a call on a task of its own: a client that hangs up changes nothing about what it asked for.
    pub(super) async fn perform(
        self: Arc<Self>,
        principal: Principal,
        request: wire::Request,
        client: Option<Arc<ClientBacklog>>,
    ) -> Response<Body> {
        let request = Arc::new(request);
        let (endpoint, shared) = (self, request.clone());
        let called = tokio::spawn(async move { endpoint.call(&principal, &shared, client).await });
        let result = called.await.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, method = request.method, "a call failed");
            Err(Error::internal("The call failed; the log of the service says why"))
        });
        let mut response = result.unwrap_or_else(|error| into_response(wire::error_response(&error, &request)));
        add_negotiated_headers(request.negotiated_headers(), &mut response);
        response
    }

    async fn call(
        &self,
        principal: &Principal,
        request: &wire::Request,
        client: Option<Arc<ClientBacklog>>,
    ) -> Result<Response<Body>, Error> {
        let (service, line) = (&self.service, request.dialect.payload);
        let reply = match &request.call {
            Call::Stream(send) => {
                let permit = self.stream_permit(principal)?;
                let events = service.stream(principal, line, (**send).clone()).await?;
                return Ok(self.stream_response(request, events, client, permit));
            }
            Call::Subscribe { id, after } => {
                let permit = self.stream_permit(principal)?;
                let events = service.subscribe(principal, id, *after).await?;
                if events.is_over() && line == Line::V10 {
                    let message =
                        format!("Task {id} has ended; there is nothing to subscribe to. Get the task instead");
                    return Err(Error::new(ErrorKind::UnsupportedOperation, message));
                }
                return Ok(self.stream_response(request, events, client, permit));
            }
            Call::Send(send) => service.send(principal, line, (**send).clone()).await?,
            Call::Get { id, history_length } => {
                Reply::Task(Box::new(service.get(principal, id, *history_length).await?))
            }
            Call::List(list) => Reply::Tasks(service.list(principal, list.clone()).await?),
            Call::Cancel { id } => Reply::Task(Box::new(service.cancel(principal, id).await?)),
            Call::PutPush(config) => Reply::Push(service.put_push(principal, line, config.clone()).await?),
            Call::GetPush { task, id } => Reply::Push(service.get_push(principal, task, id.as_deref()).await?),
            Call::ListPush { task, page_size, page_token } => {
                let (configs, next) = service.list_push(principal, task, *page_size, page_token.as_deref()).await?;
                Reply::Pushes(configs, next)
            }
            Call::DeletePush { task, id } => {
                service.delete_push(principal, task, id.as_deref()).await?;
                Reply::Deleted
            }
            Call::ExtendedCard => Reply::Json(self.documents.extended_card().clone()),
            Call::Extension { method, params } => {
                Reply::Json(self.extensions.call(principal, line, method, params).await?)
            }
        };
        let response = wire::reply(&reply, request);
        self.log_payload("response", request.method, &response.body);
        Ok(into_response(response))
    }

    fn log_payload(&self, what: &str, method: &str, bytes: &[u8]) {
        if !self.settings.log_payloads || method.starts_with("opencode.sessions.") {
            return;
        }
        let limit = if self.settings.log_body_limit == 0 { bytes.len() } else { self.settings.log_body_limit };
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]);
        tracing::debug!(target: "a2a::payload", what, method, bytes = bytes.len(), body = %shown);
    }
}

fn reject(rejection: Rejection) -> Refused {
    let mut response = into_response(rejection.response());
    add_negotiated_headers(rejection.negotiated_headers, &mut response);
    Box::new(response)
}
