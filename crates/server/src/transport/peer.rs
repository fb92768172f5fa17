//! Whose process is at the other end of a loopback connection.

use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The user of a loopback connection's other end: the owner of the socket whose addresses mirror ours, as the kernel knows
/// it. `None` if that cannot be told: a client that has closed its socket has no owner any more.
pub fn user(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    match asked(peer, own) {
        Some(found) => found.user(),
        // A kernel that knows our own end has answered: the other one is gone. Else it cannot be asked for one socket.
        None if asked(own, peer).is_some() => None,
        None => listed(peer, own)?.user(),
    }
}

/// A socket, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    state: u8,
    user: u32,
    inode: u64,
}

/// States of a socket that is or was connected (`TCP_ESTABLISHED`, `TCP_FIN_WAIT1`, `TCP_FIN_WAIT2`, `TCP_CLOSE_WAIT`,
/// `TCP_LAST_ACK`, `TCP_CLOSING`). One in another state with the same addresses belongs to a later connection.
const CONNECTED: [u8; 6] = [1, 4, 5, 8, 9, 11];

impl Found {
    /// Its owner. A socket that its process has closed has no inode, and says that it is root's.
    fn user(self) -> Option<u32> {
        (self.inode != 0 && CONNECTED.contains(&self.state)).then_some(self.user)
    }
}

/// Asks the kernel for that one socket (`sock_diag(7)`): a few microseconds, however many connections there are.
fn asked(peer: SocketAddr, own: SocketAddr) -> Option<Found> {
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

/// What an `inet_diag_msg` says, if it is about that socket.
fn answer(message: &[u8], peer: SocketAddr, own: SocketAddr) -> Option<Found> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let body = message.get(HEADER..)?;
    let [family, state, ..] = *body else { return None };
    let about = body.get(4..4 + SOCKET)?;
    let number = |at: usize| body.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok();
    // Behind the socket: expires, rqueue, wqueue, uid, inode.
    let (user, inode) = (number(4 + SOCKET + 12)?, number(4 + SOCKET + 16)?);
    let found = Found { state, user, inode: inode.into() };
    (kind == BY_FAMILY && place(family, about, 0)? == peer && place(family, about, 1)? == own).then_some(found)
}

/// One end of a socket in the kernel's description: both ports, then both addresses in 16 bytes each.
fn place(family: u8, about: &[u8], end: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(about.get(end * 2..end * 2 + 2)?.try_into().ok()?);
    let ip: [u8; 16] = about.get(4 + end * 16..20 + end * 16)?.try_into().ok()?;
    let ip: IpAddr = match AddressFamily::from_raw(family.into()) {
        AddressFamily::INET => [ip[0], ip[1], ip[2], ip[3]].into(),
        AddressFamily::INET6 => ip.into(),
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
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
fn listed(peer: SocketAddr, own: SocketAddr) -> Option<Found> {
    let tables: &[&str] = if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    tables.iter().find_map(|table| {
        let text = std::fs::read_to_string(table).ok()?;
        // The client's own socket: its local address is our peer's.
        text.lines().skip(1).find_map(|line| {
            let (local, remote, found) = line_of(line)?;
            (same(local, peer) && same(remote, own)).then_some(found)
        })
    })
}

/// Reads `sl local remote state queues timer retransmits uid timeout inode …`.
fn line_of(line: &str) -> Option<(SocketAddr, SocketAddr, Found)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let user = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some((local, remote, Found { state, user, inode }))
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

    /// Sockets that nobody owns, or that belong to another connection, have no user; whoever the kernel names.
    #[test]
    fn only_an_open_socket_of_this_connection_has_a_user() {
        let me = rustix::process::getuid().as_raw();
        let (established, fin_wait, time_wait) = (1, 5, 6);
        let (syn_sent, syn_received, closed, listens, unknown) = (2, 3, 7, 10, 12);
        for (state, user, inode, known) in [
            (established, me, 7, Some(me)),
            (established, 65534, 7, Some(65534)),
            (fin_wait, me, 7, Some(me)),
            // Closed by its process: the kernel says root, which may be who we are.
            (established, 0, 0, None),
            (fin_wait, 0, 0, None),
            (fin_wait, me, 0, None),
            (time_wait, 0, 0, None),
            (time_wait, me, 7, None),
            (syn_sent, me, 7, None),
            (syn_received, me, 7, None),
            (closed, me, 7, None),
            (listens, me, 7, None),
            (unknown, me, 7, None),
        ] {
            assert_eq!(Found { state, user, inode }.user(), known, "{state} {user} {inode}");
        }
    }

    #[test]
    fn a_line_of_the_list_is_read() {
        let line =
            "  12: 0100007F:1F90 0100007F:1000 05 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
        let (local, remote, found) = line_of(line).unwrap();
        assert_eq!((local.port(), remote.port()), (8080, 4096));
        assert_eq!(found, Found { state: 5, user: 1000, inode: 4242 });
        assert_eq!(line_of("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn the_user_of_a_connection_is_found() {
        for bind in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(bind) else { continue };
            let port = listener.local_addr().unwrap().port();
            let ways: &[&str] = if bind == "127.0.0.1:0" { &["127.0.0.1"] } else { &["::1", "::ffff:127.0.0.1"] };
            for way in ways.iter().filter(|way| bind == "[::]:0" || **way != "::ffff:127.0.0.1") {
                let client = std::net::TcpStream::connect((*way, port)).unwrap();
                let (server, peer) = listener.accept().unwrap();
                let (own, me) = (server.local_addr().unwrap(), Some(rustix::process::getuid().as_raw()));
                assert_eq!(asked(peer, own).unwrap().user(), me, "{bind} {way}");
                assert_eq!(listed(peer, own).unwrap().user(), me, "{bind} {way}");
                let nobody = SocketAddr::new(peer.ip(), peer.port().wrapping_add(1));
                assert_eq!(user(nobody, own), None, "a socket that is not there has no user");
                client.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(user(peer, own), me, "one that has sent everything still has: {bind} {way}");
                drop(client);
                assert_eq!(user(peer, own), None, "one that was closed has not: {bind} {way}");
                assert_eq!(listed(peer, own).and_then(Found::user), None, "{bind} {way}");
            }
        }
    }
}
