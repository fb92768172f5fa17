//! The OpenCode face: its HTTP and SSE API, answered by the engine.
//!
//! Invariants: every operation is in one list ([`operations`]), from which the router, the OpenAPI document and the table of
//! operations are made; a handler translates and never decides; nothing in here is durable, the journal is.

mod agents;
mod backlog;
mod call;
mod doc;
mod error;
mod events;
mod guard;
mod listen;
mod listeners;
mod metrics;
mod operation;
mod peer;
mod pty;
mod reload;
mod router;
mod routes;
mod secret;
mod tui;
mod vcs;
mod workspace;
mod worktree;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use api::{Event, EventBody, Frame, Json, Scope};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use engine::Engine;
use futures::FutureExt as _;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub use guard::Password;
pub use operation::{Offer, Operation};

use error::Error;
use guard::Guard;
use listen::Socket;
use operation::Incoming;
use router::Router;

/// The version of OpenCode whose API this is; what clients see as the server's version.
pub const COMPATIBLE: &str = "1.18.33";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A host name or address, and a port; without a port 4096 if it is free, else any.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: Option<u16>,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// The port that OpenCode's server takes if it is free.
const USUAL_PORT: u16 = 4096;

/// What a server is made of.
pub struct Options {
    /// The engine.
    pub engine: Engine,
    /// The directory of requests that name none.
    pub directory: PathBuf,
    /// Where to listen.
    pub listen: Listen,
    /// The password that clients must know.
    pub password: Option<Password>,
    /// Further origins whose pages may call.
    pub cors: Vec<String>,
    /// Further names under which the server may be reached.
    pub hosts: Vec<String>,
    /// The version of this program.
    pub version: String,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Everybody could run commands on this machine.
    #[error("{0} can be reached from other machines, and there is no password")]
    Open(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// Where.
        place: String,
        /// Why.
        error: std::io::Error,
    },
}

/// What handlers share.
pub struct State {
    pub(crate) engine: Engine,
    pub(crate) directory: String,
    pub(crate) guard: Guard,
    pub(crate) router: Router,
    pub(crate) metrics: metrics::Metrics,
    /// Events of this server that are no durable change: terminals, toasts.
    pub(crate) live: broadcast::Sender<Frame>,
    pub(crate) listeners: listeners::Listeners,
    /// What waits for clients.
    pub(crate) backlog: backlog::Backlog,
    pub(crate) closing: CancellationToken,
    pub(crate) ptys: pty::Ptys,
    pub(crate) control: tui::Control,
    /// The clients that speak ACP.
    pub(crate) agents: agents::Agents,
    server: HeaderValue,
    pub(crate) version: String,
}

/// A server that listens and does not answer yet; connections wait in its queue.
pub struct Server {
    state: Arc<State>,
    socket: Socket,
    url: String,
}

/// All operations.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The OpenAPI document.
pub fn openapi() -> Json {
    doc::openapi(&operations(), env!("CARGO_PKG_VERSION"))
}

impl Server {
    /// Begins to listen.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let mut hosts = options.hosts;
        let (socket, url) = match options.listen {
            Listen::Unix(path) => {
                let place = format!("unix:{}", path.display());
                let socket = listen::unix(&path).map_err(|error| StartError::Listen { place: place.clone(), error })?;
                (socket, place)
            }
            Listen::Tcp { host, port } => {
                let (listener, address) = bind(&host, port, options.password.is_some()).await?;
                let url = format!("http://{}", authority(&host, address));
                if !address.ip().is_unspecified() {
                    hosts.push(host);
                }
                (Socket::Tcp(listener), url)
            }
        };
        let server = format!("trefoil/{}", options.version);
        let router = Router::new(routes::operations());
        let metrics = metrics::Metrics::new(router.operations().iter().map(|operation| operation.id));
        let state = State {
            engine: options.engine,
            directory: options.directory.to_string_lossy().into_owned(),
            guard: Guard { password: options.password, cors: options.cors, hosts },
            router,
            metrics,
            live: broadcast::channel(events::LIVE_QUEUE).0,
            listeners: listeners::Listeners::default(),
            backlog: backlog::Backlog::default(),
            closing: CancellationToken::new(),
            ptys: pty::Ptys::default(),
            control: tui::Control::default(),
            agents: agents::Agents::default(),
            server: HeaderValue::from_str(&server).unwrap_or(HeaderValue::from_static("trefoil")),
            version: options.version,
        };
        Ok(Self { state: Arc::new(state), socket, url })
    }

    /// Where it can be reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers until the token is cancelled; then lets answers on their way end. Turns are the engine's to park.
    pub async fn run(self, stop: CancellationToken) {
        let closing = self.state.closing.clone();
        let state = self.state.clone();
        metrics::observe(&self.state);
        let accept = listen::accept(self.state, self.socket);
        let watch = async {
            stop.cancelled().await;
            closing.cancel();
        };
        tokio::join!(accept, watch);
        state.ptys.close().await;
    }
}

async fn bind(host: &str, port: Option<u16>, secured: bool) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { place: format!("{host}:{}", port.unwrap_or(USUAL_PORT)), error };
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    let ports: &[u16] = match &port {
        Some(port) => std::slice::from_ref(port),
        None => &[USUAL_PORT, 0],
    };
    for port in ports {
        for address in tokio::net::lookup_host((host, *port)).await.map_err(failed)? {
            if !secured && !is_loopback(address.ip()) {
                return Err(StartError::Open(address));
            }
            match TcpListener::bind(address).await.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((address, listener)) => return Ok((listener, address)),
                Err(error) => last = error,
            }
        }
    }
    Err(failed(last))
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The host as it was named, with the port that it got.
fn authority(host: &str, address: SocketAddr) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", address.port()),
        _ => format!("{host}:{}", address.port()),
    }
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
