//! Accepting connections, and how they end.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Request, Response};
use testkit::soon;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trefoil_transport::backlog::Backlog;
use trefoil_transport::listen::{AcceptOptions, ConnectionInfo, ConnectionOrigin, Handler, Listen, accept};
use trefoil_transport::metrics::Gauge;

/// Answers each request with its path, once it may.
struct Echo {
    permits: Semaphore,
    began: Notify,
    origins: Mutex<Vec<ConnectionOrigin>>,
}

impl Handler for Echo {
    async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, _) = request.into_parts();
        self.origins.lock().unwrap().push(ConnectionInfo::of(&parts).unwrap().origin);
        self.began.notify_one();
        self.permits.acquire().await.unwrap().forget();
        Response::new(Body::from(parts.uri.path().to_owned()))
    }
}

struct Server {
    url: String,
    handler: Arc<Echo>,
    closing: CancellationToken,
    connections: Gauge,
    running: JoinHandle<()>,
}

/// Starts a server that answers this many requests at once.
async fn serve(listen: Listen, permits: usize, descriptor_limit: u64) -> Server {
    let bound = listen.bind(0, false).await.unwrap();
    let (permits, began, origins) = (Semaphore::new(permits), Notify::new(), Mutex::default());
    let handler = Arc::new(Echo { permits, began, origins });
    let (closing, connections) = (CancellationToken::new(), Gauge::default());
    let options = AcceptOptions {
        closing: closing.clone(),
        backlog: Backlog::default(),
        connections: connections.clone(),
        stranger_refusal: Some("{}"),
        descriptor_limit,
    };
    let running = tokio::spawn(accept(bound.socket, options, handler.clone()));
    Server { url: bound.url, handler, closing, connections, running }
}

fn any_port() -> Listen {
    Listen::Tcp { host: "127.0.0.1".into(), port: Some(0) }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.url.strip_prefix("http://").unwrap()).await.unwrap()
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// Everything that the server sends until it ends the connection.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    soon("the end of the connection", stream.read_to_string(&mut text)).await.unwrap();
    text
}

/// Reads until the response ends with a text.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let read = soon("a response", stream.read_buf(&mut text)).await.unwrap();
        assert!(read > 0, "the connection ended after {:?}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn requests_of_a_connection_are_answered_in_turn() {
    let server = serve(any_port(), 2, 1 << 20).await;
    let mut client = server.connect().await;
    for path in ["/one", "/two"] {
        send(&mut client, path).await;
        let response = read_until(&mut client, path).await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }
    assert_eq!(server.connections.value(), 1);
    assert_eq!(*server.handler.origins.lock().unwrap(), [ConnectionOrigin::OwnUser; 2]);
}

#[tokio::test]
async fn a_server_that_stops_finishes_its_responses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = serve(Listen::Unix(path.clone()), 0, 1 << 20).await;
    let (mut idle, mut busy) = (UnixStream::connect(&path).await.unwrap(), UnixStream::connect(&path).await.unwrap());
    send(&mut busy, "/slow").await;
    soon("a request", server.handler.began.notified()).await;
    server.closing.cancel();
    assert_eq!(rest(&mut idle).await, "");
    assert!(!server.running.is_finished());
    server.handler.permits.add_permits(1);
    assert!(rest(&mut busy).await.ends_with("\r\n\r\n/slow"));
    soon("the end of the server", server.running).await.unwrap();
    assert!(!path.exists(), "the path is free again");
    assert_eq!(server.connections.value(), 0);
}

/// Such a client has sent everything, and its connection reads like that of one that is gone.
#[tokio::test]
async fn a_client_that_sends_nothing_more_gets_its_response() {
    let server = serve(any_port(), 0, 1 << 20).await;
    let mut client = server.connect().await;
    send(&mut client, "/half").await;
    client.shutdown().await.unwrap();
    soon("a request", server.handler.began.notified()).await;
    server.handler.permits.add_permits(1);
    assert!(rest(&mut client).await.ends_with("\r\n\r\n/half"));
}

#[tokio::test]
async fn a_client_without_room_is_told_to_come_back() {
    let server = serve(any_port(), 1, 0).await;
    let response = rest(&mut server.connect().await).await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
    assert!(server.handler.origins.lock().unwrap().is_empty());
}
