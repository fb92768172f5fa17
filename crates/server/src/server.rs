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
use crate::state::State;
use crate::transport::backlog::Backlog;
use crate::transport::guard::{Guard, Password};
use crate::transport::listen::{self, Socket};
use crate::{acp_clients, events, metrics, routes, terminal, tui};

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

/// A server that listens and does not answer yet; connections wait in its queue.
pub struct Server {
    state: Arc<State>,
    socket: Socket,
    url: String,
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
            listeners: events::flush::Listeners::default(),
            backlog: Backlog::default(),
            closing: CancellationToken::new(),
            ptys: terminal::Ptys::default(),
            control: tui::Control::default(),
            agents: acp_clients::Agents::default(),
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
