//! Whose process is at the other end of a loopback connection.

use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The user of a loopback connection's other end: the owner of the socket whose addresses mirror ours, as the kernel knows
/// it. Nothing where that cannot be told.
pub fn user(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    asked(peer, own).or_else(|| listed(peer, own))
}

/// Asks the kernel for that one socket (`sock_diag(7)`): a few microseconds, however many connections there are.
fn asked(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let (peer, own) = (canonical(peer), canonical(own));
    let protocol = rustix::net::Protocol::from_raw(rustix::net::netlink::SOCK_DIAG.as_raw());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(protocol)).ok()?;
    rustix::net::sendto(&socket, &question(peer, own), SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
    let mut buffer = [0; 512];
    // The kernel answers before `sendto` returns.
    let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).ok()?;
    answer(buffer.get(..length)?, peer, own)
}

/// What the header of a netlink message takes.
const HEADER: usize = 16;
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// Ports, addresses, interface and cookie of a socket.
const SOCKET: usize = 48;

/// A netlink header, then `inet_diag_req_v2`: the socket at `peer` that is connected to `own`.
fn question(peer: SocketAddr, own: SocketAddr) -> Vec<u8> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut message = Vec::with_capacity(HEADER + 8 + SOCKET);
    message.extend(u32::try_from(HEADER + 8 + SOCKET).unwrap_or_default().to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    // NLM_F_REQUEST; then sequence and port, which one question needs not.
    message.extend(1u16.to_ne_bytes());
    message.extend([0; 8]);
    // Family, TCP, no extensions; sockets in every state.
    message.extend([family.as_raw() as u8, 6, 0, 0]);
    message.extend(u32::MAX.to_ne_bytes());
    message.extend(places(peer, own));
    // Any interface, no cookie.
    message.extend([0; 4]);
    message.extend([0xff; 8]);
    message
}

/// The user in an `inet_diag_msg`, if it is about that socket.
fn answer(message: &[u8], peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let body = message.get(HEADER..)?;
    let wanted = places(peer, own);
    let user = body.get(4 + SOCKET + 12..4 + SOCKET + 16)?;
    (kind == BY_FAMILY && body.get(4..4 + wanted.len())? == wanted)
        .then(|| user.try_into().map(u32::from_ne_bytes).ok())?
}

/// Both ports, then both addresses, each in 16 bytes.
fn places(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut bytes = [local.port().to_be_bytes(), remote.port().to_be_bytes()].concat();
    for ip in [local.ip(), remote.ip()] {
        let mut place = [0; 16];
        match ip {
            IpAddr::V4(ip) => place[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => place.copy_from_slice(&ip.octets()),
        }
        bytes.extend(place);
    }
    bytes
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Looks through the kernel's list of all sockets, where it cannot be asked for one.
fn listed(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
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
    canonical(left) == canonical(right)
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
            let (own, me) = (server.local_addr().unwrap(), Some(rustix::process::getuid().as_raw()));
            assert_eq!(asked(peer, own), me, "{bind}");
            assert_eq!(listed(peer, own), me, "{bind}");
            let nobody = SocketAddr::new(peer.ip(), peer.port().wrapping_add(1));
            assert_eq!(user(nobody, own), None, "a socket that is not there has no user");
            drop(client);
        }
    }
}
