//! Finds the user whose process is at the other end of a loopback connection.

use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The user at the other end of a loopback connection: the owner of the socket whose addresses mirror ours, according to
/// the kernel. `None` if unknown: a socket that its client has closed has no owner any more.
pub fn user(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    match query_socket(peer, own) {
        Some(found) => found.owner(),
        // A kernel that finds our own end supports the query, so the other end is gone. Otherwise fall back to the list.
        None if query_socket(own, peer).is_some() => None,
        None => find_in_proc(peer, own)?.owner(),
    }
}

/// A socket as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketInfo {
    state: u8,
    user: u32,
    inode: u64,
}

/// States of a socket that is or was connected (`TCP_ESTABLISHED`, `TCP_FIN_WAIT1`, `TCP_FIN_WAIT2`, `TCP_CLOSE_WAIT`,
/// `TCP_LAST_ACK`, `TCP_CLOSING`). A socket in another state with the same addresses belongs to a later connection.
const CONNECTED_STATES: [u8; 6] = [1, 4, 5, 8, 9, 11];

impl SocketInfo {
    /// Its owner. A socket that its process has closed has no inode and claims to belong to root.
    fn owner(self) -> Option<u32> {
        (self.inode != 0 && CONNECTED_STATES.contains(&self.state)).then_some(self.user)
    }
}

/// Asks the kernel for this one socket (`sock_diag(7)`): a few microseconds, however many connections there are.
fn query_socket(peer: SocketAddr, own: SocketAddr) -> Option<SocketInfo> {
    let (peer, own) = (canonical(peer), canonical(own));
    let protocol = rustix::net::Protocol::from_raw(rustix::net::netlink::SOCK_DIAG.as_raw());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(protocol)).ok()?;
    rustix::net::sendto(&socket, &diag_request(peer, own), SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
    let mut buffer = [0; 512];
    // The kernel answers before `sendto` returns.
    let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).ok()?;
    parse_diag_response(buffer.get(..length)?, peer, own)
}

/// Length of a netlink message's header.
const HEADER_LEN: usize = 16;
/// The netlink message type of a query and of its answer.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Length of a socket's ports, addresses, interface and cookie.
const SOCKET_ID_LEN: usize = 48;

/// A netlink header, then `inet_diag_req_v2`: the socket at `peer` that is connected to `own`.
fn diag_request(peer: SocketAddr, own: SocketAddr) -> Vec<u8> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut message = Vec::with_capacity(HEADER_LEN + 8 + SOCKET_ID_LEN);
    message.extend(u32::try_from(HEADER_LEN + 8 + SOCKET_ID_LEN).unwrap_or_default().to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    // NLM_F_REQUEST; then sequence and port, which a single request does not need.
    message.extend(1u16.to_ne_bytes());
    message.extend([0; 8]);
    // Family, TCP, no extensions; sockets in every state.
    message.extend([family.as_raw() as u8, 6, 0, 0]);
    message.extend(u32::MAX.to_ne_bytes());
    message.extend(encode_endpoints(peer, own));
    // Any interface, no cookie.
    message.extend([0; 4]);
    message.extend([0xff; 8]);
    message
}

/// Parses an `inet_diag_msg`, if it describes that socket.
fn parse_diag_response(message: &[u8], peer: SocketAddr, own: SocketAddr) -> Option<SocketInfo> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let body = message.get(HEADER_LEN..)?;
    let [family, state, ..] = *body else { return None };
    let socket_id = body.get(4..4 + SOCKET_ID_LEN)?;
    let number = |at: usize| body.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok();
    // After the socket: expires, rqueue, wqueue, uid, inode.
    let (user, inode) = (number(4 + SOCKET_ID_LEN + 12)?, number(4 + SOCKET_ID_LEN + 16)?);
    let found = SocketInfo { state, user, inode: inode.into() };
    (kind == SOCK_DIAG_BY_FAMILY
        && parse_endpoint(family, socket_id, 0)? == peer
        && parse_endpoint(family, socket_id, 1)? == own)
        .then_some(found)
}

/// One end of a socket in the kernel's description: both ports, then both addresses in 16 bytes each.
fn parse_endpoint(family: u8, socket_id: &[u8], end: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(socket_id.get(end * 2..end * 2 + 2)?.try_into().ok()?);
    let ip: [u8; 16] = socket_id.get(4 + end * 16..20 + end * 16)?.try_into().ok()?;
    let ip: IpAddr = match AddressFamily::from_raw(family.into()) {
        AddressFamily::INET => [ip[0], ip[1], ip[2], ip[3]].into(),
        AddressFamily::INET6 => ip.into(),
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

/// Both ports, then both addresses, each in 16 bytes.
fn encode_endpoints(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut bytes = [local.port().to_be_bytes(), remote.port().to_be_bytes()].concat();
    for ip in [local.ip(), remote.ip()] {
        let mut octets = [0; 16];
        match ip {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets.copy_from_slice(&ip.octets()),
        }
        bytes.extend(octets);
    }
    bytes
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Searches the kernel's list of all sockets, for kernels that cannot be asked for one.
fn find_in_proc(peer: SocketAddr, own: SocketAddr) -> Option<SocketInfo> {
    let tables: &[&str] = if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    tables.iter().find_map(|table| {
        let text = std::fs::read_to_string(table).ok()?;
        // The client's own socket: its local address is our peer's.
        text.lines().skip(1).find_map(|line| {
            let (local, remote, found) = parse_proc_line(line)?;
            (same_address(local, peer) && same_address(remote, own)).then_some(found)
        })
    })
}

/// Parses `sl local remote state queues timer retransmits uid timeout inode …`.
fn parse_proc_line(line: &str) -> Option<(SocketAddr, SocketAddr, SocketInfo)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (parse_proc_address(fields.next()?)?, parse_proc_address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let user = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some((local, remote, SocketInfo { state, user, inode }))
}

fn same_address(left: SocketAddr, right: SocketAddr) -> bool {
    canonical(left) == canonical(right)
}

/// Parses `0100007F:1F90`: 32-bit groups in the machine's byte order, then the port.
fn parse_proc_address(text: &str) -> Option<SocketAddr> {
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
    fn addresses_are_parsed_as_the_kernel_writes_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(parse_proc_address("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
            let six = parse_proc_address("00000000000000000000000001000000:1000");
            assert_eq!(six, Some("[::1]:4096".parse().unwrap()));
        }
        assert_eq!(parse_proc_address("junk"), None);
    }

    /// Sockets that nobody owns, or that belong to another connection, have no user, whoever the kernel names.
    #[test]
    fn only_an_open_socket_of_this_connection_has_a_user() {
        let me = rustix::process::getuid().as_raw();
        let (established, fin_wait, time_wait) = (1, 5, 6);
        let (syn_sent, syn_received, closed, listens, unknown) = (2, 3, 7, 10, 12);
        for (state, user, inode, known) in [
            (established, me, 7, Some(me)),
            (established, 65534, 7, Some(65534)),
            (fin_wait, me, 7, Some(me)),
            // Closed by its process: the kernel says root, which may be our own user.
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
            assert_eq!(SocketInfo { state, user, inode }.owner(), known, "{state} {user} {inode}");
        }
    }

    #[test]
    fn a_line_of_proc_net_tcp_is_parsed() {
        let line =
            "  12: 0100007F:1F90 0100007F:1000 05 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
        let (local, remote, found) = parse_proc_line(line).unwrap();
        assert_eq!((local.port(), remote.port()), (8080, 4096));
        assert_eq!(found, SocketInfo { state: 5, user: 1000, inode: 4242 });
        assert_eq!(parse_proc_line("  sl  local_address rem_address   st tx_queue"), None);
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
                assert_eq!(query_socket(peer, own).unwrap().owner(), me, "{bind} {way}");
                assert_eq!(find_in_proc(peer, own).unwrap().owner(), me, "{bind} {way}");
                let nobody = SocketAddr::new(peer.ip(), peer.port().wrapping_add(1));
                assert_eq!(user(nobody, own), None, "a missing socket has no user");
                client.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(user(peer, own), me, "a half-closed one still has one: {bind} {way}");
                drop(client);
                assert_eq!(user(peer, own), None, "a closed one has none: {bind} {way}");
                assert_eq!(find_in_proc(peer, own).and_then(SocketInfo::owner), None, "{bind} {way}");
            }
        }
    }
}
