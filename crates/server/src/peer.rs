//! Whose process is at the other end of a loopback connection.

use std::net::{IpAddr, SocketAddr};

/// The user of a loopback connection's other end: the owner of the socket whose addresses mirror ours, as the kernel lists
/// it. Nothing where that cannot be told.
pub fn user(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let tables: &[&str] = if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    tables.iter().find_map(|table| {
        let text = std::fs::read_to_string(table).ok()?;
        // The client's own socket: its local address is our peer's.
        text.lines().skip(1).find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let local = address(fields.next()?)?;
            let remote = address(fields.next()?)?;
            let user = fields.nth(4)?;
            (same(local, peer) && same(remote, own)).then(|| user.parse().ok()).flatten()
        })
    })
}

fn same(left: SocketAddr, right: SocketAddr) -> bool {
    left.port() == right.port() && left.ip().to_canonical() == right.ip().to_canonical()
}

/// `0100007F:1F90`: 32-bit groups in the machine's byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let group = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => group(0)?.into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&group(at)?);
            }
            bytes.into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(address("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
            let six = address("00000000000000000000000001000000:1000");
            assert_eq!(six, Some("[::1]:4096".parse().unwrap()));
        }
        assert_eq!(address("junk"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_user_of_a_connection_is_found() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(bind) else { continue };
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(user(peer, server.local_addr().unwrap()), Some(rustix::process::getuid().as_raw()));
            drop(client);
        }
    }
}
