//! Sockets: where the server listens, how many connections it takes, and how they end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures::FutureExt as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::backlog::Counted;
use crate::{State, peer};

/// The most connections at a time; further ones are told to come back.
pub const MAX_CONNECTIONS: usize = 4096;

/// How long a client may take to send the head of a request, the first or the next.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(75);

/// How long connections may take to end when the server stops.
const DRAIN: Duration = Duration::from_secs(3);

/// The pause after the system refused to hand out a connection (too many open files).
const REFUSED: Duration = Duration::from_millis(100);

/// Descriptors that connections leave to everything else: the database, commands and what is said to them, MCP servers,
/// models. At most half of all.
const RESERVED: u64 = 256;

const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket that listens.
pub enum Socket {
    /// On an address.
    Tcp(TcpListener),
    /// On a path.
    Unix(UnixListener, PathBuf),
}

/// Listens on a path; a socket that nobody serves any more is replaced, anything else is left alone.
pub fn unix(path: &Path) -> std::io::Result<Socket> {
    if let Ok(there) = std::fs::symlink_metadata(path) {
        let in_use = || std::os::unix::net::UnixStream::connect(path).is_ok();
        if !there.file_type().is_socket() || in_use() {
            return Err(std::io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Socket::Unix(listener, path.to_owned()))
}

/// Takes connections until the server stops, then lets them end.
pub async fn accept(state: Arc<State>, socket: Socket) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let limit = exec::descriptor_limit();
    let last = limit - RESERVED.min(limit / 2);
    let mut refused = false;
    loop {
        let accepted = state.closing.run_until_cancelled(next(&socket)).await;
        let Some(accepted) = accepted else { break };
        match accepted {
            Ok((mut stream, descriptor, peer)) => {
                // A new descriptor is the lowest that is free, so its number is that of those in use, whatever for.
                let room = room.clone().try_acquire_owned().ok().filter(|_| descriptor < last);
                warn_once(&mut refused, room.is_none(), || format!("descriptor {descriptor} of {limit}"));
                let Some(room) = room else {
                    // Only what fits at once, for it must not be held. It is a new connection, so all of it fits.
                    let _ = stream.write_all(FULL).now_or_never();
                    continue;
                };
                let state = state.clone();
                connections.spawn(async move {
                    converse(state, stream, peer).await;
                    drop(room);
                });
            }
            Err(error) => {
                warn_once(&mut refused, true, || error.to_string());
                tokio::time::sleep(REFUSED).await;
            }
        }
    }
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "connections are cut");
    }
    if let Socket::Unix(_, path) = &socket {
        let _ = std::fs::remove_file(path);
    }
}

/// Logs that connections cannot be taken when that begins, not for each of them.
fn warn_once(refused: &mut bool, now: bool, why: impl FnOnce() -> String) {
    if now && !*refused {
        tracing::warn!(why = why(), "no further connections can be taken for now");
    }
    *refused = now;
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Whose process is at the other end.
#[derive(Clone, Copy)]
enum Peer {
    /// To be looked up when the first request comes.
    Loopback(SocketAddr, SocketAddr),
    /// Not of this machine, so the password decides.
    Remote,
    /// The kernel said it.
    User(u32),
}

/// The next connection, with the number of its descriptor.
async fn next(socket: &Socket) -> std::io::Result<(Box<dyn Stream>, u64, Peer)> {
    let number = |fd: RawFd| u64::try_from(fd).unwrap_or(0);
    match socket {
        Socket::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let own = stream.local_addr()?;
            let loopback = peer.ip().to_canonical().is_loopback();
            let peer = if loopback { Peer::Loopback(peer, own) } else { Peer::Remote };
            let fd = number(stream.as_raw_fd());
            Ok((Box::new(stream), fd, peer))
        }
        Socket::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            let fd = number(stream.as_raw_fd());
            Ok((Box::new(stream), fd, Peer::User(user)))
        }
    }
}

/// The user at the other end, if it is neither ours nor root.
fn stranger(state: &State, peer: Peer) -> Option<u32> {
    let user = match peer {
        Peer::User(user) => Some(user),
        Peer::Remote => None,
        Peer::Loopback(..) if state.guard.password.is_some() => None,
        Peer::Loopback(peer, own) => {
            let user = peer::user(peer, own);
            if user.is_none() {
                state.warn_unknown_peer();
            }
            user
        }
    };
    user.filter(|user| *user != 0 && *user != rustix::process::getuid().as_raw())
}

async fn converse(state: Arc<State>, stream: Box<dyn Stream>, peer: Peer) {
    let _open = state.metrics.connection();
    let closing = state.closing.clone();
    let stranger = stranger(&state, peer);
    let reader = state.backlog.join();
    let service = service_fn({
        let reader = reader.clone();
        move |request: Request<hyper::body::Incoming>| {
            let (state, reader) = (state.clone(), reader.clone());
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(reader.clone());
                let answer = state.answer(request, stranger).await;
                Ok::<_, Infallible>(answer.map(|body| Counted::new(body, &reader)))
            }
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // What waits for it goes with the connection.
        () = reader.cut() => return,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
