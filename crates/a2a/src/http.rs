//! HTTP: requests to calls, replies to responses. What a line or transport spells how is the business of `wire`.

mod documents;
mod metrics;
mod mount;
mod stream;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use tokio_util::sync::CancellationToken;
use transport::body::{self, BodyError};
use transport::limit::{ConcurrencyLimit, RateLimit};
use transport::listen::{ConnectionInfo, Handler};
use transport::origin::{self, OriginPolicy, Refusal};
use transport::request_id::{REQUEST_ID, request_id};
use transport::trace::TraceContext;

use crate::card::CardInput;
use crate::service::Service;
use crate::wire::{self, Dialect, Rejection, RequestId, Route, Target};
use crate::{Call, Credentials, Error, ErrorKind, Extensions, Principal, Reply, Settings};

pub use documents::DocumentError;
use documents::Documents;
use metrics::HttpMetrics;
pub use mount::MOUNT_PATH;

/// The most identities whose rates and streams are counted.
const MAX_IDENTITIES: usize = 10_000;

const ALLOWED_METHODS: &str = "GET, HEAD, POST, DELETE, OPTIONS";
const EXPOSED_HEADERS: &str =
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, Traceparent, ETag, X-Request-Id, Retry-After";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What an A2A endpoint is made of.
pub struct EndpointOptions {
    /// The tasks.
    pub service: Service,
    /// The methods of extensions.
    pub extensions: Extensions,
    /// Who may call.
    pub credentials: Credentials,
    /// The settings.
    pub settings: Settings,
    /// What the cards say.
    pub card: CardInput,
    /// The private key that signs cards, as PEM.
    pub signing_key: Option<String>,
    /// Host names under which the service is reached besides this machine's own.
    pub hosts: Vec<String>,
    /// Cancelled when the program stops.
    pub closing: CancellationToken,
}

/// An A2A service over HTTP, at the root of its address or below a prefix that somebody else strips. Cheap to share.
pub struct Endpoint {
    service: Service,
    extensions: Extensions,
    credentials: Credentials,
    settings: Settings,
    wire: wire::Settings,
    documents: Documents,
    origins: OriginPolicy,
    authenticate_header: HeaderValue,
    rate: Option<RateLimit>,
    streams: ConcurrencyLimit,
    metrics: HttpMetrics,
    closing: CancellationToken,
}

/// A refusal that has its response already. Boxed, as most requests have none.
type Refused = Box<Response<Body>>;

impl Endpoint {
    /// Makes an endpoint; fails if the cards cannot be signed.
    pub fn new(options: EndpointOptions) -> Result<Self, DocumentError> {
        let EndpointOptions { service, extensions, credentials, settings, card, signing_key, hosts, closing } = options;
        let documents = Documents::new(&card, signing_key.as_deref(), settings.gzip_minimum)?;
        let schemes: Vec<&str> = credentials.schemes().into_iter().map(scheme_challenge).collect();
        let authenticate_header =
            HeaderValue::from_str(&schemes.join(", ")).unwrap_or(HeaderValue::from_static("Bearer"));
        let hosts = settings.allowed_hosts.iter().cloned().chain(hosts).collect();
        // Whoever shows credentials is no page that was tricked into calling; without credentials the host name counts.
        let origins = OriginPolicy { origins: settings.allowed_origins.clone(), hosts, any_host: !schemes.is_empty() };
        let rate = settings
            .rate_limit
            .then(|| RateLimit::new(settings.rate_limit_requests, settings.rate_limit_window, MAX_IDENTITIES));
        Ok(Self {
            wire: wire::Settings {
                default_line: settings.default_line,
                supported: settings.lines.clone(),
                session_shell: settings.session_shell_enabled(),
                workspace_mutations: settings.workspace_mutations_enabled(),
            },
            streams: ConcurrencyLimit::new(settings.max_streams, MAX_IDENTITIES),
            service,
            extensions,
            credentials,
            settings,
            documents,
            origins,
            authenticate_header,
            rate,
            metrics: HttpMetrics::default(),
            closing,
        })
    }

    /// Answers a request.
    pub async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let trace = TraceContext::of(&parts.headers);
        let origin = parts.headers.get(header::ORIGIN).cloned();
        let id = request_id(&parts.headers);
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let refusal = self.origins.check(&parts).err();
        let is_allowed = refusal.is_none();
        let mut response = match (refusal, origin::preflight(&parts, ALLOWED_METHODS)) {
            (Some(refusal), _) => self.refuse_origin(&parts, refusal),
            (None, Some(preflight)) => preflight,
            (None, None) => match self.clone().answer(parts, body, &trace).await {
                Ok(response) => response,
                Err(refused) => *refused,
            },
        };
        origin::add_cors_headers(origin.as_ref().filter(|_| is_allowed), EXPOSED_HEADERS, &mut response);
        let headers = response.headers_mut();
        headers.insert(TRACEPARENT, trace.header());
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert(REQUEST_ID, id);
        }
        let status = response.status().as_u16();
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.metrics.count(status, micros);
        tracing::info!(target: "access", id, %method, path, status, micros, trace = %trace.trace_id());
        response
    }

    async fn answer(
        self: Arc<Self>,
        parts: Parts,
        body: Body,
        trace: &TraceContext,
    ) -> Result<Response<Body>, Refused> {
        let route = wire::route(
            &parts.method,
            parts.uri.path(),
            parts.uri.query().unwrap_or_default(),
            &parts.headers,
            &self.wire,
        )
        .map_err(|rejection| into_response(rejection.response()))
        .map_err(Box::new)?;
        if route.is_public() {
            return Ok(self.documents.public(&parts));
        }
        let principal = self.authenticate(&parts, &route)?;
        match route.target {
            Target::PublicCard => return Ok(self.documents.public(&parts)),
            Target::ExtendedCard => return Ok(self.documents.extended(&parts)),
            Target::Health => return Ok(self.documents.health(&parts)),
            Target::OpenApi => return Ok(self.documents.openapi(&parts)),
            Target::Metrics => return Ok(self.metrics_response(&route)),
            Target::JsonRpc | Target::Rest(_) => {}
        }
        let read = |error| Box::new(self.refuse_body(&route, &error));
        let bytes = match route.has_body() {
            true => body::read(&parts.headers, body, self.settings.max_request_body).await.map_err(read)?,
            false => bytes::Bytes::new(),
        };
        let mut request = wire::parse(&route, &bytes, &self.wire)
            .map_err(|rejection: Rejection| Box::new(into_response(rejection.response())))?;
        if let Call::Send(send) | Call::Stream(send) = &mut request.call {
            send.traceparent = Some(trace.header_text());
        }
        self.log_payload("request", &request.method, &bytes);
        // On a task of its own: a client that hangs up changes nothing about what it asked for.
        let client = ConnectionInfo::of(&parts).map(|info| info.client.clone());
        let endpoint = self.clone();
        let (accepts_gzip, plain_json) = (transport::gzip::is_accepted(&parts.headers), route.head.plain_json);
        let called = tokio::spawn(async move {
            let response = endpoint.call(&principal, &request, client).await;
            match response {
                Ok(response) => response,
                Err(error) => into_response(wire::error_response(&error, &request)),
            }
        });
        let response = match called.await {
            Ok(response) => response,
            Err(panicked) => {
                tracing::error!(%panicked, "a call failed");
                let error = Error::internal("The call failed; the log of the service says why");
                into_response(wire::error(&error, route.dialect(), &RequestId::Null))
            }
        };
        let _ = plain_json;
        Ok(transport::gzip::compress(response, accepts_gzip, self.settings.gzip_minimum).await)
    }

    async fn call(
        &self,
        principal: &Principal,
        request: &wire::Request,
        client: Option<Arc<transport::backlog::ClientBacklog>>,
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
                if events.is_over() && line == crate::Line::V10 {
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
        self.log_payload("response", &request.method, &response.body);
        let mut response = into_response(response);
        for (name, value) in wire::negotiated_headers(request) {
            response.headers_mut().insert(name, value);
        }
        Ok(response)
    }

    fn authenticate(&self, parts: &Parts, route: &Route) -> Result<Principal, Refused> {
        let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let dialect = route.dialect();
        let Some(principal) = self.credentials.authenticate(authorization) else {
            let error = Error::new(ErrorKind::Unauthorized, "Unauthorized");
            let mut response = into_response(wire::error(&error, dialect, &RequestId::Null));
            response.headers_mut().insert(header::WWW_AUTHENTICATE, self.authenticate_header.clone());
            return Err(Box::new(response));
        };
        if let Some(rate) = &self.rate
            && let Err(retry_after) = rate.take(&principal.identity)
        {
            let error = Error::new(ErrorKind::TooManyRequests, "Too many requests")
                .with("retry_after", retry_after.as_secs().max(1));
            return Err(Box::new(into_response(wire::error(&error, dialect, &RequestId::Null))));
        }
        Ok(principal)
    }

    fn stream_permit(&self, principal: &Principal) -> Result<transport::limit::ConcurrencyPermit, Error> {
        self.streams.try_acquire(&principal.identity).ok_or_else(|| {
            let message = format!("Too many open streams; {} are allowed", self.settings.max_streams);
            Error::new(ErrorKind::TooManyRequests, message).with("retry_after", 1)
        })
    }

    fn refuse_origin(&self, parts: &Parts, refusal: Refusal) -> Response<Body> {
        let message = match refusal {
            Refusal::Host(host) => format!("The host name {host:?} is not allowed; A2A_ALLOWED_HOSTS can allow it"),
            Refusal::Origin(_) | Refusal::Site => "Cross-origin request rejected".to_owned(),
        };
        let error = Error::new(ErrorKind::Forbidden, message);
        into_response(wire::error(&error, self.dialect_of(parts), &RequestId::Null))
    }

    fn refuse_body(&self, route: &Route, error: &BodyError) -> Response<Body> {
        let error = match error {
            BodyError::TooLarge { limit, size } => {
                let error = Error::new(ErrorKind::BodyTooLarge, "Request body too large").with("max_bytes", *limit);
                match size {
                    Some(size) => error.with("actual_size", *size),
                    None => error,
                }
            }
            BodyError::Stalled | BodyError::Broken(_) => Error::new(ErrorKind::InvalidRequest, error.to_string()),
        };
        into_response(wire::error(&error, route.dialect(), &RequestId::Null))
    }

    /// How to write an error about a request whose route does not matter.
    fn dialect_of(&self, parts: &Parts) -> Dialect {
        let query = parts.uri.query().unwrap_or_default();
        match wire::route(&parts.method, parts.uri.path(), query, &parts.headers, &self.wire) {
            Ok(route) => route.dialect(),
            Err(rejection) => rejection.dialect,
        }
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

impl Handler for Endpoint {
    async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        Endpoint::respond(self, request).await
    }
}

fn scheme_challenge(scheme: crate::Scheme) -> &'static str {
    match scheme {
        crate::Scheme::Bearer => "Bearer",
        crate::Scheme::Basic => "Basic realm=\"trefoil-a2a\"",
    }
}

fn into_response(written: wire::Response) -> Response<Body> {
    let mut response = Response::new(Body::from(written.body));
    *response.status_mut() = written.status;
    for (name, value) in written.headers {
        response.headers_mut().insert(name, value);
    }
    response
}

/// A response with a body of a media type.
fn plain(status: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
