//! A server whose responses the test writes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use trefoil_client::{Client, Options, Timeouts};

/// The most requests that wait for the test.
const REQUESTS: usize = 64;
/// The largest request body.
const MAX_BODY: usize = 1 << 20;

/// Which server it claims to be.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Trefoil,
    OpenCode,
}

/// A server on its own port. Every request waits for the test to answer it.
pub struct Fake {
    pub address: SocketAddr,
    requests: mpsc::Receiver<PendingRequest>,
    server: JoinHandle<()>,
}

/// A request that waits for its response.
pub struct PendingRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Value,
    kind: Kind,
    response: oneshot::Sender<Response>,
}

/// A response that the test writes bit by bit. It ends when dropped.
pub struct Writer(pub mpsc::Sender<Result<Bytes, std::io::Error>>);

struct Shared {
    kind: Kind,
    requests: mpsc::Sender<PendingRequest>,
}

impl Fake {
    pub async fn start(kind: Kind) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::channel(REQUESTS);
        let router = router(kind, sender);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, requests, server }
    }

    /// Like [`start`](Self::start), on a Unix socket.
    pub async fn start_at(kind: Kind, path: &std::path::Path) -> Self {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let (sender, requests) = mpsc::channel(REQUESTS);
        let router = router(kind, sender);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address: ([127, 0, 0, 1], 0).into(), requests, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        self.client_with(Timeouts::default())
    }

    /// A client with its own timeouts.
    pub fn client_with(&self, timeouts: Timeouts) -> Client {
        Client::new(&self.url(), Options { timeouts, ..Options::default() }).unwrap()
    }

    /// The next request.
    pub async fn next(&mut self) -> PendingRequest {
        let next = timeout(testkit::WAIT, self.requests.recv()).await;
        next.expect("a request comes").expect("the server lives")
    }

    /// Whether no request is waiting.
    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn router(kind: Kind, requests: mpsc::Sender<PendingRequest>) -> Router {
    Router::new().fallback(handle).with_state(Arc::new(Shared { kind, requests }))
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, MAX_BODY).await.unwrap();
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
    let (sender, response) = oneshot::channel();
    let request = PendingRequest {
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
        body,
        kind: shared.kind,
        response: sender,
    };
    shared.requests.send(request).await.unwrap();
    response.await.unwrap_or_else(|_| panic!("the test did not answer"))
}

impl PendingRequest {
    /// The request line as it appears on the wire: `GET /session?limit=1`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.uri)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Responds with JSON.
    pub fn json(self, status: u16, body: &Value) {
        self.respond(status, "application/json", body.to_string());
    }

    /// Responds with JSON, as another kind of server.
    pub fn json_as(self, kind: Kind, status: u16, body: &Value) {
        Self { kind, ..self }.json(status, body);
    }

    pub fn respond(self, status: u16, kind: &str, body: impl Into<Body>) {
        let mut response = Response::new(body.into());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert("content-type", kind.parse().unwrap());
        self.send(response);
    }

    pub fn send(self, mut response: Response) {
        if self.kind == Kind::Trefoil {
            response.headers_mut().insert("server", "trefoil/0.1.0".parse().unwrap());
        }
        // The client may be gone; the test will notice.
        let _ = self.response.send(response);
    }

    /// Responds with headers and a body that the test writes.
    pub fn begin(self, kind: &str) -> Writer {
        let (sender, receiver) = mpsc::channel(16);
        self.respond(200, kind, Body::from_stream(ReceiverStream::new(receiver)));
        Writer(sender)
    }

    /// Responds with an event stream that has sent its first event.
    pub async fn events(self) -> Writer {
        let global = self.uri.path() == "/global/event";
        let connected = r#"{"id":"evt_1","type":"server.connected","properties":{}}"#;
        let writer = self.begin("text/event-stream");
        let data = if global { format!(r#"{{"payload":{connected}}}"#) } else { connected.to_owned() };
        writer.write(format!("data: {data}\n\n")).await;
        writer
    }
}

impl Writer {
    pub async fn write(&self, text: impl Into<Bytes>) {
        timeout(testkit::WAIT, self.0.send(Ok(text.into()))).await.expect("the client reads").expect("it is there");
    }

    /// Writes an event of a global stream.
    pub async fn event(&self, id: Option<&str>, payload: &Value) {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        let envelope = serde_json::json!({"directory": "/p", "project": "prj", "payload": payload});
        self.write(format!("{id}data: {envelope}\n\n")).await;
    }

    /// Cuts the connection without a proper end.
    pub async fn cut(self) {
        let cut = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "cut by the test");
        let _ = self.0.send(Err(cut)).await;
    }

    /// Waits until the client hangs up.
    pub async fn closed(&self) {
        timeout(testkit::WAIT, self.0.closed()).await.expect("the client hangs up");
    }
}
