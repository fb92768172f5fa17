//! Where a server listens.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use super::Socket;

/// The address to listen on.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A host name or address, and a port. Without a port: the one that the server prefers if it is free, else any.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: Option<u16>,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
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

/// A socket that listens; connections wait in its queue until they are accepted.
pub struct Bound {
    /// The socket.
    pub socket: Socket,
    /// Its address: `http://host:port`, or `unix:path`.
    pub url: String,
    /// The host name by which clients reach it, unless it listens on every address or on a path.
    pub host: Option<String>,
}

impl Listen {
    /// Starts to listen. An address that other machines can reach is refused, unless clients need credentials.
    pub async fn bind(self, preferred_port: u16, needs_credentials: bool) -> Result<Bound, StartError> {
        match self {
            Self::Unix(path) => {
                let place = format!("unix:{}", path.display());
                match bind_unix(&path) {
                    Ok(socket) => Ok(Bound { socket, url: place, host: None }),
                    Err(error) => Err(StartError::Listen { place, error }),
                }
            }
            Self::Tcp { host, port } => {
                let (listener, address) = bind_tcp(&host, port, preferred_port, needs_credentials).await?;
                let url = format!("http://{}", authority(&host, address));
                let host = (!address.ip().is_unspecified()).then_some(host);
                Ok(Bound { socket: Socket::Tcp(listener), url, host })
            }
        }
    }
}

/// Listens on a path. Replaces a socket that nobody serves any more, and leaves anything else alone.
fn bind_unix(path: &Path) -> std::io::Result<Socket> {
    if let Ok(existing) = std::fs::symlink_metadata(path) {
        let in_use = || std::os::unix::net::UnixStream::connect(path).is_ok();
        if !existing.file_type().is_socket() || in_use() {
            return Err(std::io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Socket::Unix(listener, path.to_owned()))
}

async fn bind_tcp(
    host: &str,
    port: Option<u16>,
    preferred_port: u16,
    needs_credentials: bool,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { place: format!("{host}:{}", port.unwrap_or(preferred_port)), error };
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    let ports: &[u16] = match &port {
        Some(port) => std::slice::from_ref(port),
        None => &[preferred_port, 0],
    };
    for port in ports {
        for address in tokio::net::lookup_host((host, *port)).await.map_err(failed)? {
            if !needs_credentials && !is_loopback(address.ip()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: Option<u16>) -> Listen {
        Listen::Tcp { host: host.into(), port }
    }

    #[tokio::test]
    async fn a_taken_port_is_replaced_only_if_none_was_asked_for() {
        let taken = tcp("127.0.0.1", Some(0)).bind(1, false).await.unwrap();
        let port = taken.url.rsplit_once(':').unwrap().1.parse().unwrap();
        assert_eq!(taken.host.as_deref(), Some("127.0.0.1"));
        let other = tcp("127.0.0.1", None).bind(port, false).await.unwrap();
        assert_ne!(other.url, taken.url);
        let Err(StartError::Listen { place, error }) = tcp("127.0.0.1", Some(port)).bind(1, false).await else {
            panic!("the port was bound twice");
        };
        assert_eq!((place, error.kind()), (format!("127.0.0.1:{port}"), std::io::ErrorKind::AddrInUse));
    }

    #[tokio::test]
    async fn an_address_for_everybody_needs_credentials() {
        let refused = tcp("0.0.0.0", Some(0)).bind(1, false).await;
        assert!(matches!(refused, Err(StartError::Open(_))));
        let open = tcp("0.0.0.0", Some(0)).bind(1, true).await.unwrap();
        assert!(open.url.starts_with("http://0.0.0.0:"), "{}", open.url);
        assert_eq!(open.host, None, "no client reaches it by that name");
    }

    #[tokio::test]
    async fn a_path_is_replaced_only_if_it_is_a_socket_that_nobody_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let bind = || Listen::Unix(path.clone()).bind(1, false);
        let first = bind().await.unwrap();
        assert_eq!(first.url, format!("unix:{}", path.display()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(bind().await.is_err(), "it is served");
        drop(first);
        assert!(bind().await.is_ok(), "its server is gone");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "text").unwrap();
        assert!(bind().await.is_err(), "it is a file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn an_ipv6_address_is_bracketed() {
        let address = "[::1]:7".parse().unwrap();
        assert_eq!(authority("::1", address), "[::1]:7");
        assert_eq!(authority("localhost", address), "localhost:7");
    }
}
