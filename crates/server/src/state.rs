//! The state that handlers share, and the way of a request to its handler.

mod client_handles;
mod reload;

use std::sync::Arc;
use std::time::Instant;

use api::{AgentRuntime, Event, EventBody, Frame, Scope};
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use engine::Engine;
use futures::FutureExt as _;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use transport::backlog::Backlog;
use transport::listen::Handler;
use transport::request_id::{REQUEST_ID, request_id};

use crate::error::Error;
use crate::guard::Guard;
use crate::operation::RawRequest;
use crate::operation::router::Router;
use crate::{acp_clients, events, metrics, terminal, tui};

pub(crate) use client_handles::ClientHandles;

/// The state that handlers share.
pub struct State {
    /// The contract, for what no client asked for.
    pub(crate) host: Arc<dyn AgentRuntime>,
    /// The engine, for what the contract does not have.
    pub(crate) engine: Engine,
    pub(crate) client_handles: ClientHandles,
    pub(crate) directory: String,
    pub(crate) guard: Guard,
    pub(crate) router: Router,
    pub(crate) metrics: metrics::Metrics,
    /// Events of this server that are not stored: terminals, toasts.
    pub(crate) live: broadcast::Sender<Frame>,
    pub(crate) event_streams: events::flush::OpenStreams,
    /// The bytes that wait for slow clients.
    pub(crate) backlog: Backlog,
    pub(crate) closing: CancellationToken,
    pub(crate) terminals: terminal::Terminals,
    pub(crate) tui_requests: tui::TuiRequestQueue,
    /// Clients that speak ACP.
    pub(crate) acp_clients: acp_clients::AcpClients,
    pub(crate) server_header: HeaderValue,
    pub(crate) version: String,
}

impl State {
    /// Sends the subscribers of a directory an event that is not stored.
    pub(crate) fn publish(&self, directory: &str, project: &str, body: EventBody) {
        // An error means that there are no subscribers.
        let _ = self.live.send(Frame::live(directory.into(), project.into(), Arc::new(Event::new(body))));
    }

    /// Shows a toast in terminal clients if a request asked for something that Trefoil does not offer: they do not show
    /// the error themselves.
    pub(crate) fn notify_not_offered(&self, scope: &Scope, error: &Error) {
        if error.not_offered
            && let Some(message) = error.message()
        {
            let project = self.engine.loaded(scope).project.id.clone();
            self.publish(&scope.directory, &project, tui::warning_toast(message));
        }
    }
}

impl Handler for State {
    async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        // A trailing slash is ignored, except in `/` itself.
        let path = parts.uri.path();
        let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path).to_owned();
        let method = parts.method.clone();
        let origin = parts.headers.get(header::ORIGIN).cloned();
        let id = request_id(&parts.headers);
        let mut is_allowed = true;
        let mut operation = "";
        let mut response = if let Some(early_response) = self.guard.check(&parts) {
            is_allowed = early_response.status() != StatusCode::FORBIDDEN;
            early_response
        } else {
            match self.router.find(&method, &path) {
                Ok(found) => {
                    operation = found.id;
                    let raw = RawRequest { state: self.clone(), path: path.clone(), parts, body };
                    let handled = std::panic::AssertUnwindSafe((found.handler)(raw)).catch_unwind().await;
                    match handled {
                        Ok(Err(error)) if found.v2 => error.in_v2().into(),
                        Ok(answer) => answer.unwrap_or_else(Into::into),
                        Err(_) => Error::internal(format!("{} panicked", found.id)).into(),
                    }
                }
                Err(error) => error.into_response(&method, &path),
            }
        };
        if self.closing.is_cancelled() && response.status() == StatusCode::INTERNAL_SERVER_ERROR {
            // Not a fault: the turn is parked, and continues at the next start.
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        self.guard.add_cors_headers(origin.as_ref().filter(|_| is_allowed), &mut response);
        let headers = response.headers_mut();
        headers.insert(header::SERVER, self.server_header.clone());
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert(REQUEST_ID, id);
        }
        let status = response.status().as_u16();
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.metrics.count_request(operation, status, micros);
        tracing::info!(target: "access", id, %method, path, operation, status, micros);
        response
    }
}
