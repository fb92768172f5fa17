//! Sockets: where a server listens, how many connections it accepts, and how they end.

mod address;
mod half_open;
mod limits;
#[cfg(feature = "http2")]
mod preface;

use std::convert::Infallible;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use futures::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backlog::{Backlog, ClientBacklog, CountedBody};
use crate::metrics::Gauge;
use crate::peer;
use half_open::{HalfOpenStream, PendingResponses, TrackedBody};
use limits::ConnectionLimits;

pub use address::{Bound, Listen, StartError};
pub use limits::ConnectionOrigin;

/// How long a client may take to send the head of its first or next request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(75);

/// How long connections may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause after the system refused to accept a connection (too many open files).
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Descriptors that connections leave to everything else: the database, commands and their pipes, MCP servers, models. At
/// most half of the limit.
const RESERVED_DESCRIPTORS: u64 = 256;

const FULL_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A listening socket.
pub enum Socket {
    /// On a TCP address.
    Tcp(TcpListener),
    /// On a path.
    Unix(UnixListener, PathBuf),
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Whether connections may also begin as HTTP/2, without TLS. Needs the feature `http2`.
    const HTTP2: bool = false;

    /// Answers a request of a client that may connect. The request's extensions have its [`ConnectionInfo`].
    fn respond(self: Arc<Self>, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

/// The settings of a server that accepts connections.
#[derive(Debug)]
pub struct AcceptOptions {
    /// Stops the server when it is cancelled.
    pub closing: CancellationToken,
    /// The bytes that wait for its clients.
    pub backlog: Backlog,
    /// Counts its open connections.
    pub connections: Gauge,
    /// The JSON that a client gets whose user is another one, or unknown. `None` if everybody may connect, because the
    /// handler asks for credentials.
    pub stranger_refusal: Option<&'static str>,
    /// How many descriptors this process may have open, for any purpose.
    pub descriptor_limit: u64,
}

/// The connection that a request came on.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// The bytes that wait for its client.
    pub client: Arc<ClientBacklog>,
    /// Who is at the other end.
    pub origin: ConnectionOrigin,
}

impl ConnectionInfo {
    /// The connection of a request that [`accept`] has passed on.
    pub fn of(request: &Parts) -> Option<&Self> {
        request.extensions.get()
    }
}

/// Accepts connections until the server stops, then lets them finish.
pub async fn accept<H: Handler>(socket: Socket, options: AcceptOptions, handler: Arc<H>) {
    let connections = TaskTracker::new();
    let limit = options.descriptor_limit;
    let max_descriptor = limit - RESERVED_DESCRIPTORS.min(limit / 2);
    let limits = ConnectionLimits::new(max_descriptor);
    let own_user = rustix::process::getuid().as_raw();
    let mut was_refused = false;
    loop {
        let accepted = options.closing.run_until_cancelled(next_connection(&socket, own_user)).await;
        let Some(accepted) = accepted else { break };
        match accepted {
            Ok(Connection { mut stream, descriptor, origin, responses }) => {
                // Decided before anything that the client sent is read, and without keeping the connection.
                if let Some(refusal) = options.stranger_refusal.filter(|_| origin != ConnectionOrigin::OwnUser) {
                    tracing::debug!(?origin, "refusing a connection of another user");
                    let _ = stream.write_all(&forbidden(refusal)).now_or_never();
                    continue;
                }
                // The system hands out the lowest free descriptor, so its number tells how many are in use for any
                // purpose.
                let permit = limits.try_acquire(origin).filter(|_| descriptor < max_descriptor);
                warn_once(&mut was_refused, permit.is_none(), || {
                    format!("descriptor {descriptor} of {limit}, {origin:?}")
                });
                let Some(permit) = permit else {
                    // Writes only what fits at once: the connection must not be kept. All of it fits, as the connection
                    // is new.
                    let _ = stream.write_all(FULL_RESPONSE).now_or_never();
                    continue;
                };
                let info = ConnectionInfo { client: options.backlog.add_client(), origin };
                let served = serve_connection(handler.clone(), info, stream, responses, options.closing.clone());
                let open = options.connections.open();
                connections.spawn(async move {
                    served.await;
                    drop((open, permit));
                });
            }
            Err(error) => {
                warn_once(&mut was_refused, true, || error.to_string());
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
    connections.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "closing the connections that are still open");
    }
    if let Socket::Unix(_, path) = &socket {
        let _ = std::fs::remove_file(path);
    }
}

fn forbidden(json: &str) -> Vec<u8> {
    let head = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length";
    format!("{head}: {}\r\n\r\n{json}", json.len()).into_bytes()
}

/// Logs once when connections start to be refused, not for each of them.
fn warn_once(was_refused: &mut bool, is_refused: bool, why: impl FnOnce() -> String) {
    if is_refused && !*was_refused {
        tracing::warn!(why = why(), "cannot accept further connections for now");
    }
    *was_refused = is_refused;
}

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A new connection.
struct Connection {
    stream: Box<dyn ByteStream>,
    /// Its descriptor's number.
    descriptor: u64,
    /// Who is at the other end.
    origin: ConnectionOrigin,
    /// Its responses that are not sent yet.
    responses: Arc<PendingResponses>,
}

/// The next connection. `own_user` is the user of this process.
async fn next_connection(socket: &Socket, own_user: u32) -> std::io::Result<Connection> {
    let responses = Arc::<PendingResponses>::default();
    let number = |fd: RawFd| u64::try_from(fd).unwrap_or(0);
    let origin_of =
        |user: u32| if user == own_user { ConnectionOrigin::OwnUser } else { ConnectionOrigin::OtherUser(user) };
    match socket {
        Socket::Tcp(listener) => loop {
            let (stream, peer) = listener.accept().await?;
            // These fail if the client is already gone, which is no fault of the listener.
            let (Ok(()), Ok(own)) = (stream.set_nodelay(true), stream.local_addr()) else { continue };
            let origin = if !peer.ip().to_canonical().is_loopback() {
                ConnectionOrigin::remote(peer.ip())
            } else {
                // While we are connected, nobody else can have the peer's address. After a reset whoever is found there
                // may have come later.
                let user = peer::user(peer, own).filter(|_| is_connected(&stream));
                user.map_or(ConnectionOrigin::Unknown, origin_of)
            };
            let descriptor = number(stream.as_raw_fd());
            let stream: Box<dyn ByteStream> = match origin {
                ConnectionOrigin::OwnUser | ConnectionOrigin::OtherUser(_) => {
                    Box::new(HalfOpenStream::new(stream, peer, own, responses.clone()))
                }
                ConnectionOrigin::Unknown | ConnectionOrigin::Remote(_) => Box::new(stream),
            };
            return Ok(Connection { stream, descriptor, origin, responses });
        },
        Socket::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            let origin = stream.peer_cred().map_or(ConnectionOrigin::Unknown, |peer| origin_of(peer.uid()));
            let descriptor = number(stream.as_raw_fd());
            Ok(Connection { stream: Box::new(stream), descriptor, origin, responses })
        }
    }
}

fn is_connected(stream: &tokio::net::TcpStream) -> bool {
    stream.peer_addr().is_ok() && matches!(stream.take_error(), Ok(None))
}

async fn serve_connection<H: Handler>(
    handler: Arc<H>,
    info: ConnectionInfo,
    stream: Box<dyn ByteStream>,
    responses: Arc<PendingResponses>,
    closing: CancellationToken,
) {
    let client = info.client.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, info, pending) = (handler.clone(), info.clone(), responses.begin());
        async move {
            let client = info.client.clone();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(info);
            let response = handler.respond(request).await;
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(CountedBody::new(body, &client), pending)))
        }
    });
    #[cfg(feature = "http2")]
    if H::HTTP2 {
        let Ok(Ok((is_http2, stream))) = tokio::time::timeout(HEADER_TIMEOUT, preface::is_http2(stream)).await else {
            return;
        };
        return match is_http2 {
            true => {
                let connection = http2().serve_connection(TokioIo::new(stream), service);
                drive(connection, |connection| connection.graceful_shutdown(), &client, &closing).await;
            }
            false => serve_http1(stream, service, &client, &closing).await,
        };
    }
    serve_http1(stream, service, &client, &closing).await;
}

/// The most requests of a connection at the same time.
#[cfg(feature = "http2")]
const MAX_HTTP2_STREAMS: u32 = 128;
/// How often an idle connection is asked whether its client is still there.
#[cfg(feature = "http2")]
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(feature = "http2")]
fn http2() -> hyper::server::conn::http2::Builder<hyper_util::rt::TokioExecutor> {
    let mut http = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HEADER_TIMEOUT);
    http
}

async fn serve_http1<I, S>(stream: I, service: S, client: &ClientBacklog, closing: &CancellationToken)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: HttpService<Incoming, Error = Infallible>,
    S::ResBody: http_body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    drive(connection, |connection| connection.graceful_shutdown(), client, closing).await;
}

/// Serves a connection until it ends, its client is disconnected, or the server stops and the connection with it.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    shut_down: impl FnOnce(std::pin::Pin<&mut C>),
    client: &ClientBacklog,
    closing: &CancellationToken,
) {
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // Its waiting bytes go with the connection.
        () = client.disconnected() => return,
        () = closing.cancelled() => {
            shut_down(connection.as_mut());
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}
