//! A proxy that the test can cut.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{AbortHandle, JoinHandle};
use trefoil_client::{Client, Options};

/// The address of the server.
#[derive(Clone)]
pub enum Upstream {
    Tcp(String),
    Unix(PathBuf),
}

/// Forwards connections while it is open.
pub struct Proxy {
    address: SocketAddr,
    /// The connections; `None` while it is cut.
    open: Arc<Mutex<Option<Vec<AbortHandle>>>>,
    listener: JoinHandle<()>,
}

impl Proxy {
    pub async fn start(upstream: Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let connections = open.clone();
        let listener = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if let Some(connections) = connections.lock().unwrap().as_mut() {
                    connections.push(tokio::spawn(pass(client, upstream.clone())).abort_handle());
                }
            }
        });
        Self { address, open, listener }
    }

    pub fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), Options::default()).unwrap()
    }

    /// Closes every connection and refuses new ones.
    pub fn cut(&self) {
        for connection in self.open.lock().unwrap().take().unwrap_or_default() {
            connection.abort();
        }
    }

    /// Accepts connections again.
    pub fn restore(&self) {
        *self.open.lock().unwrap() = Some(Vec::new());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut();
    }
}

async fn pass(mut client: TcpStream, upstream: Upstream) {
    async fn join(client: &mut TcpStream, mut server: impl AsyncRead + AsyncWrite + Unpin) {
        // Either side may hang up.
        let _ = copy_bidirectional(client, &mut server).await;
    }
    match upstream {
        Upstream::Tcp(address) => join(&mut client, TcpStream::connect(address).await.unwrap()).await,
        Upstream::Unix(path) => join(&mut client, UnixStream::connect(path).await.unwrap()).await,
    }
}
