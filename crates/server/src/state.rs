//! What handlers share, and how a request is answered.

mod reload;

use std::sync::Arc;
use std::time::Instant;

use api::{Event, EventBody, Frame, Scope};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use engine::Engine;
use futures::FutureExt as _;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::operation::Incoming;
use crate::operation::router::Router;
use crate::transport::backlog::Backlog;
use crate::transport::guard::Guard;
use crate::{acp_clients, events, metrics, terminal, tui};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What handlers share.
pub struct State {
    pub(crate) engine: Engine,
    pub(crate) directory: String,
    pub(crate) guard: Guard,
    pub(crate) router: Router,
    pub(crate) metrics: metrics::Metrics,
    /// Events of this server that are no durable change: terminals, toasts.
    pub(crate) live: broadcast::Sender<Frame>,
    pub(crate) listeners: events::flush::Listeners,
    /// What waits for clients.
    pub(crate) backlog: Backlog,
    pub(crate) closing: CancellationToken,
    pub(crate) ptys: terminal::Ptys,
    pub(crate) control: tui::Control,
    /// The clients that speak ACP.
    pub(crate) agents: acp_clients::Agents,
    pub(crate) server: HeaderValue,
    pub(crate) version: String,
}

impl State {
    /// Tells subscribers of a directory something that is no durable change.
    pub(crate) fn tell(&self, directory: &str, project: &str, body: EventBody) {
        // Nobody listens: nobody misses it.
        let _ = self.live.send(Frame::live(directory.into(), project.into(), Arc::new(Event::new(body))));
    }

    /// Shows a notice in terminal clients if somebody asked for what Trefoil does not offer: they show no error of their own.
    pub(crate) fn tell_not_offered(&self, scope: &Scope, error: &Error) {
        if error.not_offered
            && let Some(message) = error.message()
        {
            let project = self.engine.loaded(scope).project.id.clone();
            self.tell(&scope.directory, &project, tui::warning(message));
        }
    }

    /// Answers a request of somebody who may connect.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        // A slash at the end makes no other path, unless it is all there is.
        let path = parts.uri.path();
        let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path).to_owned();
        let method = parts.method.clone();
        let origin = parts.headers.get(header::ORIGIN).cloned();
        let id = request_id(parts.headers.get(&REQUEST_ID));
        let mut allowed = true;
        let mut operation = "";
        let mut response = if let Some(answer) = self.guard.check(&parts) {
            allowed = answer.status() != StatusCode::FORBIDDEN;
            answer
        } else {
            match self.router.find(&method, &path) {
                Ok(found) => {
                    operation = found.id;
                    let incoming = Incoming { state: self.clone(), path: path.clone(), parts, body };
                    let handled = std::panic::AssertUnwindSafe((found.handler)(incoming)).catch_unwind().await;
                    match handled {
                        Ok(Err(error)) if found.v2 => error.in_v2().into(),
                        Ok(answered) => answered.unwrap_or_else(Into::into),
                        Err(_) => Error::internal(format!("{} panicked", found.id)).into(),
                    }
                }
                Err(miss) => miss.answer(&method, &path),
            }
        };
        if self.closing.is_cancelled() && response.status() == StatusCode::INTERNAL_SERVER_ERROR {
            // Not a fault: the turn is parked, and goes on at the next start.
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        self.guard.decorate(origin.as_ref().filter(|_| allowed), &mut response);
        let headers = response.headers_mut();
        headers.insert(header::SERVER, self.server.clone());
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert(REQUEST_ID, id);
        }
        let status = response.status().as_u16();
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.metrics.request(operation, status, micros);
        tracing::info!(target: "access", id, %method, path, operation, status, micros);
        response
    }
}

/// The client's own id of the request if it is sane, else a new one.
fn request_id(given: Option<&HeaderValue>) -> String {
    let given = given.and_then(|value| value.to_str().ok());
    let sane = |text: &&str| {
        (1..=128).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    given.filter(sane).map_or_else(|| format!("req_{:016x}", fastrand::u64(..)), str::to_owned)
}
