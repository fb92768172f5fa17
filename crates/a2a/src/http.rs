//! HTTP: requests to calls, replies to responses. What a line or transport spells how is the business of `wire`.
//!
//! A request passes the checks of its head (host, page, credentials, rate) before its path says more than whether it is
//! public, and before its body is read.

mod answer;
mod documents;
#[cfg(feature = "grpc")]
mod grpc;
mod metrics;
mod mount;
mod refusal;
mod stream;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tokio_util::sync::CancellationToken;
use transport::body;
use transport::limit::{ConcurrencyLimit, RateLimit};
use transport::listen::Handler;
use transport::origin::{self, OriginPolicy};
use transport::request_id::{REQUEST_ID, request_id};
use transport::trace::{TRACEPARENT, TraceContext};

use crate::card::CardInput;
use crate::service::Service;
use crate::{Credentials, Extensions, Scheme, Settings, wire};

pub use documents::DocumentError;
use documents::Documents;
use metrics::HttpMetrics;
pub use mount::MOUNT_PATH;

/// The most identities whose rates and streams are counted.
const MAX_IDENTITIES: usize = 10_000;

const ALLOWED_METHODS: &str = "GET, HEAD, POST, DELETE";
const EXPOSED_HEADERS: &str =
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, Traceparent, ETag, X-Request-Id, Retry-After";

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

impl Endpoint {
    /// Makes an endpoint; fails if the cards cannot be signed.
    pub fn new(options: EndpointOptions) -> Result<Self, DocumentError> {
        let EndpointOptions { service, extensions, credentials, settings, card, signing_key, hosts, closing } = options;
        let documents = Documents::new(&card, signing_key.as_deref(), settings.gzip_minimum)?;
        let schemes: Vec<&str> = credentials.schemes().into_iter().map(challenge).collect();
        let authenticate_header =
            HeaderValue::from_str(&schemes.join(", ")).unwrap_or(HeaderValue::from_static("Bearer"));
        // Whoever shows credentials is no page that was tricked into calling, so then any host name will do, unless the
        // operator lists names.
        let any_host = !schemes.is_empty() && settings.allowed_hosts.is_empty();
        let hosts = settings.allowed_hosts.iter().cloned().chain(hosts).collect();
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
            origins: OriginPolicy { origins: settings.allowed_origins.clone(), hosts, any_host },
            streams: ConcurrencyLimit::new(settings.max_streams, MAX_IDENTITIES),
            service,
            extensions,
            credentials,
            settings,
            documents,
            authenticate_header,
            rate,
            metrics: HttpMetrics::default(),
            closing,
        })
    }

    /// Answers a request.
    pub async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let (mut parts, mut body) = request.into_parts();
        let trace = TraceContext::of(&parts.headers);
        let origin = parts.headers.get(header::ORIGIN).cloned();
        let id = request_id(&parts.headers);
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        if method == Method::HEAD {
            // Answered as GET; the connection leaves the body out.
            parts.method = Method::GET;
        }
        let refusal = self.origins.check(&parts).err();
        let is_allowed = refusal.is_none();
        let mut response = match (refusal, origin::preflight(&parts, ALLOWED_METHODS)) {
            (Some(refusal), _) => self.refuse_origin(&parts, refusal),
            (None, Some(preflight)) => preflight,
            #[cfg(feature = "grpc")]
            (None, None) if grpc::is_grpc(&parts) => self.clone().answer_grpc(parts, &mut body, &trace).await,
            (None, None) => match self.clone().answer(parts, &mut body, &trace, method == Method::HEAD).await {
                Ok(response) => response,
                Err(refused) => *refused,
            },
        };
        // What nobody has read.
        body::discard(body, self.settings.max_request_body);
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
}

impl Handler for Endpoint {
    const HTTP2: bool = cfg!(feature = "grpc");

    async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        Endpoint::respond(self, request).await
    }
}

fn challenge(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Bearer => "Bearer",
        Scheme::Basic => "Basic realm=\"trefoil-a2a\"",
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
