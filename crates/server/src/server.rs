//! The server: where it listens, and how it starts and stops.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::HeaderValue;
use engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::operation::router::Router;
use crate::state::{ClientHandles, State};
use crate::transport::backlog::Backlog;
use crate::transport::guard::{Guard, Password};
use crate::transport::listen::{self, Socket};
use crate::{acp_clients, events, metrics, routes, terminal, tui};

/// The address to listen on.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A host name or address, and a port. Without a port: 4096 if it is free, else any.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: Option<u16>,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// The port that OpenCode's server prefers.
const PREFERRED_PORT: u16 = 4096;

/// The configuration of a server.
pub struct Options {
    /// The engine.
    pub engine: Engine,
    /// The directory of requests that name none.
    pub directory: PathBuf,
    /// The address to listen on.
    pub listen: Listen,
    /// The credentials that clients must send.
    pub password: Option<Password>,
    /// Further origins whose pages may call.
    pub cors: Vec<String>,
    /// Further host names under which the server is reached.
    pub hosts: Vec<String>,
    /// The version of this program.
    pub version: String,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is reachable from other machines and needs no password: anybody could run commands here.
    #[error("{0} can be reached from other machines, and there is no password")]
    Open(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// The address.
        place: String,
        /// The cause.
        error: std::io::Error,
    },
}

/// A server that listens but does not answer yet; connections wait in the socket's queue.
pub struct Server {
    state: Arc<State>,
    socket: Socket,
    url: String,
}

impl Server {
    /// Starts to listen.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let mut hosts = options.hosts;
        let (socket, url) = match options.listen {
            Listen::Unix(path) => {
                let place = format!("unix:{}", path.display());
                let socket =
                    listen::bind_unix(&path).map_err(|error| StartError::Listen { place: place.clone(), error })?;
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
        let server_header = format!("trefoil/{}", options.version);
        let router = Router::new(routes::operations());
        let metrics = metrics::Metrics::new(router.operations().iter().map(|operation| operation.id));
        let state = State {
            host: Arc::new(options.engine.clone()),
            engine: options.engine,
            client_handles: ClientHandles::default(),
            directory: options.directory.to_string_lossy().into_owned(),
            guard: Guard { password: options.password, cors: options.cors, hosts },
            router,
            metrics,
            live: broadcast::channel(events::LIVE_QUEUE).0,
            event_streams: events::flush::OpenStreams::default(),
            backlog: Backlog::default(),
            closing: CancellationToken::new(),
            terminals: terminal::Terminals::default(),
            tui_requests: tui::TuiRequestQueue::default(),
            acp_clients: acp_clients::AcpClients::default(),
            server_header: HeaderValue::from_str(&server_header).unwrap_or(HeaderValue::from_static("trefoil")),
            version: options.version,
        };
        Ok(Self { state: Arc::new(state), socket, url })
    }

    /// The address of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves until the token is cancelled, then lets responses finish. Parking turns is the engine's job.
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
        state.terminals.close().await;
    }
}

async fn bind(host: &str, port: Option<u16>, has_password: bool) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { place: format!("{host}:{}", port.unwrap_or(PREFERRED_PORT)), error };
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    let ports: &[u16] = match &port {
        Some(port) => std::slice::from_ref(port),
        None => &[PREFERRED_PORT, 0],
    };
    for port in ports {
        for address in tokio::net::lookup_host((host, *port)).await.map_err(failed)? {
            if !has_password && !is_loopback(address.ip()) {
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

/// The host as it was given, with the port that was bound.
fn authority(host: &str, address: SocketAddr) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", address.port()),
        _ => format!("{host}:{}", address.port()),
    }
}
