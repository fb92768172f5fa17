//! Sockets: where the server listens, how many connections it takes, and how they end.

mod half_open;
mod room;

use std::convert::Infallible;
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
use tokio_util::task::TaskTracker;

use crate::State;
use crate::transport::backlog::Counted;
use crate::transport::peer;
use half_open::{Answered, Answers, HalfOpen};
use room::{Origin, Room};

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

/// What somebody is told who is another user of this machine, or who closed the connection before that could be told.
const STRANGER: &str = "{\"name\":\"Forbidden\",\"data\":{\"message\":\"This server belongs to another user of this \
    machine, or it cannot tell who you are; start it with --password to share it\"}}";

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
    let limit = exec::descriptor_limit();
    let last = limit - RESERVED.min(limit / 2);
    let room = Room::new(last);
    let us = rustix::process::getuid().as_raw();
    let mut refused = false;
    loop {
        let accepted = state.closing.run_until_cancelled(next(&socket, us)).await;
        let Some(accepted) = accepted else { break };
        match accepted {
            Ok(Accepted { mut stream, descriptor, origin, answers }) => {
                // Decided before anything that was sent is looked at, and without holding the connection.
                if state.guard.password.is_none() && origin != Origin::Us {
                    tracing::debug!(?origin, "a connection of another user is refused");
                    let _ = stream.write_all(&forbidden()).now_or_never();
                    continue;
                }
                // A new descriptor is the lowest that is free, so its number is that of those in use, whatever for.
                let place = room.enter(origin).filter(|_| descriptor < last);
                warn_once(&mut refused, place.is_none(), || format!("descriptor {descriptor} of {limit}, {origin:?}"));
                let Some(place) = place else {
                    // Only what fits at once, for it must not be held. It is a new connection, so all of it fits.
                    let _ = stream.write_all(FULL).now_or_never();
                    continue;
                };
                let state = state.clone();
                connections.spawn(async move {
                    converse(state, stream, answers).await;
                    drop(place);
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

fn forbidden() -> Vec<u8> {
    let head = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length";
    format!("{head}: {}\r\n\r\n{STRANGER}", STRANGER.len()).into_bytes()
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

/// A new connection.
struct Accepted {
    stream: Box<dyn Stream>,
    /// The number of its descriptor.
    descriptor: u64,
    /// Who is at its other end.
    origin: Origin,
    /// Its answers.
    answers: Arc<Answers>,
}

/// The next connection. `us` is our own user.
async fn next(socket: &Socket, us: u32) -> std::io::Result<Accepted> {
    let answers = Arc::<Answers>::default();
    let number = |fd: RawFd| u64::try_from(fd).unwrap_or(0);
    let origin_of = |user: u32| if user == us { Origin::Us } else { Origin::User(user) };
    match socket {
        Socket::Tcp(listener) => loop {
            let (stream, peer) = listener.accept().await?;
            // A client that has gone meanwhile makes the first two fail. That is no fault of the listener.
            let (Ok(()), Ok(own)) = (stream.set_nodelay(true), stream.local_addr()) else { continue };
            let origin = if !peer.ip().to_canonical().is_loopback() {
                Origin::remote(peer.ip())
            } else {
                // While we are connected nobody else can have the addresses of the other end. A connection that was cut
                // says nothing: who is found there may have come later.
                let user = peer::user(peer, own).filter(|_| is_connected(&stream));
                user.map_or(Origin::Unknown, origin_of)
            };
            let descriptor = number(stream.as_raw_fd());
            let stream: Box<dyn Stream> = match origin {
                Origin::Us | Origin::User(_) => Box::new(HalfOpen::new(stream, peer, own, answers.clone())),
                Origin::Unknown | Origin::Remote(_) => Box::new(stream),
            };
            return Ok(Accepted { stream, descriptor, origin, answers });
        },
        Socket::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            let origin = stream.peer_cred().map_or(Origin::Unknown, |peer| origin_of(peer.uid()));
            let descriptor = number(stream.as_raw_fd());
            Ok(Accepted { stream: Box::new(stream), descriptor, origin, answers })
        }
    }
}

fn is_connected(stream: &tokio::net::TcpStream) -> bool {
    stream.peer_addr().is_ok() && matches!(stream.take_error(), Ok(None))
}

async fn converse(state: Arc<State>, stream: Box<dyn Stream>, answers: Arc<Answers>) {
    let _open = state.metrics.connection();
    let closing = state.closing.clone();
    let reader = state.backlog.join();
    let service = service_fn({
        let reader = reader.clone();
        move |request: Request<hyper::body::Incoming>| {
            let (state, reader, answer) = (state.clone(), reader.clone(), answers.begin());
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(reader.clone());
                let response = state.answer(request).await;
                Ok::<_, Infallible>(response.map(|body| Answered::new(Counted::new(body, &reader), answer)))
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
