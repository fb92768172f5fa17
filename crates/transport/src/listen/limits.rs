//! Limits how many connections are open, and for whom: strangers cannot take the connections reserved for our own user.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The most open connections; further clients are told to come back.
const MAX_CONNECTIONS: usize = 4096;

/// The most connections of one stranger.
const MAX_PER_STRANGER: usize = 1024;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionOrigin {
    /// A process of our own user.
    OwnUser,
    /// A process of another user of this machine.
    OtherUser(u32),
    /// A process of this machine whose user is unknown.
    Unknown,
    /// Another machine.
    Remote(IpAddr),
}

impl ConnectionOrigin {
    /// Another machine, by its address. A machine has as many IPv6 addresses as it likes, so all of a /64 network count
    /// as one.
    pub fn remote(address: IpAddr) -> Self {
        Self::Remote(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The open connections of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    open: Arc<Mutex<HashMap<ConnectionOrigin, usize>>>,
    /// The most connections, and the most that all strangers together may have.
    max: usize,
    max_strangers: usize,
}

/// An open connection; dropping it makes room for another.
#[derive(Debug)]
pub struct ConnectionPermit {
    limits: ConnectionLimits,
    origin: ConnectionOrigin,
}

impl ConnectionLimits {
    /// The limits of a server that may open this many descriptors for connections.
    pub fn new(descriptors: u64) -> Self {
        let max = MAX_CONNECTIONS.min(usize::try_from(descriptors).unwrap_or(MAX_CONNECTIONS));
        Self { open: Arc::default(), max, max_strangers: max - max / 4 }
    }

    /// Admits a connection if there is room for its origin.
    pub fn try_acquire(&self, origin: ConnectionOrigin) -> Option<ConnectionPermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let ours = open.get(&ConnectionOrigin::OwnUser).copied().unwrap_or(0);
        let own = open.get(&origin).copied().unwrap_or(0);
        let stranger_fits = all - ours < self.max_strangers && own < MAX_PER_STRANGER.min(self.max_strangers);
        if all >= self.max || (origin != ConnectionOrigin::OwnUser && !stranger_fits) {
            return None;
        }
        *open.entry(origin).or_default() += 1;
        Some(ConnectionPermit { limits: self.clone(), origin })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(limits: &ConnectionLimits, origin: ConnectionOrigin) -> Vec<ConnectionPermit> {
        std::iter::from_fn(|| limits.try_acquire(origin)).collect()
    }

    #[test]
    fn strangers_leave_connections_to_us() {
        let limits = ConnectionLimits::new(1 << 20);
        let mut taken: Vec<Vec<ConnectionPermit>> = Vec::new();
        for (origin, most) in [
            (ConnectionOrigin::OtherUser(65534), MAX_PER_STRANGER),
            (ConnectionOrigin::OtherUser(65534), 0),
            (ConnectionOrigin::Unknown, MAX_PER_STRANGER),
            (ConnectionOrigin::remote("10.0.0.1".parse().unwrap()), MAX_PER_STRANGER),
            (ConnectionOrigin::remote("10.0.0.2".parse().unwrap()), 0),
            (ConnectionOrigin::OtherUser(0), 0),
        ] {
            taken.push(fill(&limits, origin));
            assert_eq!(taken.last().unwrap().len(), most, "{origin:?}");
        }
        let ours = fill(&limits, ConnectionOrigin::OwnUser);
        assert_eq!(ours.len(), MAX_CONNECTIONS - 3 * MAX_PER_STRANGER);
        drop(taken);
        assert_eq!(fill(&limits, ConnectionOrigin::OwnUser).len(), 3 * MAX_PER_STRANGER);
        drop(ours);
        assert!(limits.try_acquire(ConnectionOrigin::OtherUser(1)).is_some());
        assert!(limits.open.lock().unwrap().is_empty(), "closed connections are forgotten");
    }

    #[test]
    fn a_low_descriptor_limit_is_shared_too() {
        let limits = ConnectionLimits::new(100);
        let strangers = fill(&limits, ConnectionOrigin::OtherUser(1));
        assert_eq!(strangers.len(), 75);
        assert_eq!(fill(&limits, ConnectionOrigin::OwnUser).len(), 25);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_machine() {
        let of = |text: &str| ConnectionOrigin::remote(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
