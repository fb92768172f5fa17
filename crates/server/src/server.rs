//! The server: where it listens, and how it starts and stops.

use std::path::PathBuf;
use std::sync::Arc;

use axum::http::HeaderValue;
use engine::Engine;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use transport::backlog::Backlog;
use transport::listen::{self, AcceptOptions, Bound, Listen, Socket, StartError};
use transport::mount::{Mount, Mounted};

use crate::guard::{Guard, Password, STRANGER_REFUSAL};
use crate::operation::router::Router;
use crate::state::{ClientHandles, State};
use crate::{acp_clients, events, metrics, routes, terminal, tui};

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

/// A server that listens but does not answer yet; connections wait in the socket's queue.
pub struct Server {
    state: Arc<State>,
    socket: Socket,
    url: String,
}

impl Server {
    /// Starts to listen.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let bound = options.listen.bind(PREFERRED_PORT, options.password.is_some()).await?;
        let Bound { socket, url, host } = bound;
        let hosts = options.hosts.into_iter().chain(host).collect();
        let server_header = format!("trefoil/{}", options.version);
        let router = Router::new(routes::operations());
        let metrics = metrics::Metrics::new(router.operations().iter().map(|operation| operation.id));
        let state = State {
            host: Arc::new(options.engine.clone()),
            engine: options.engine,
            client_handles: ClientHandles::default(),
            directory: options.directory.to_string_lossy().into_owned(),
            guard: Guard::new(options.password, options.cors, hosts),
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

    /// Serves until the token is cancelled, then lets responses finish. Parking turns is the engine's job. `mount` is
    /// another face, which answers the paths that it takes.
    pub async fn run(self, stop: CancellationToken, mount: Option<Arc<dyn Mount>>) {
        let closing = self.state.closing.clone();
        let state = self.state.clone();
        metrics::observe(&self.state);
        let options = AcceptOptions {
            closing: closing.clone(),
            backlog: state.backlog.clone(),
            connections: state.metrics.connections().clone(),
            stranger_refusal: (!state.guard.needs_password()).then_some(STRANGER_REFUSAL),
            descriptor_limit: exec::descriptor_limit(),
        };
        let accept = listen::accept(self.socket, options, Arc::new(Mounted { face: self.state, mount }));
        let watch = async {
            stop.cancelled().await;
            closing.cancel();
        };
        tokio::join!(accept, watch);
        state.terminals.close().await;
    }
}
