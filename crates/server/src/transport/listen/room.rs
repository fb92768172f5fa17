//! How many connections there may be, and whose: no stranger takes the places of our own user.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The most connections at a time; further ones are told to come back.
const MAX_CONNECTIONS: usize = 4096;

/// The most connections of one stranger.
const SHARE: usize = 1024;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A process of our own user.
    Us,
    /// One of another user of this machine.
    User(u32),
    /// One of this machine, but nobody can tell whose.
    Unknown,
    /// Another machine.
    Remote(IpAddr),
}

impl Origin {
    /// Another machine by its address. One machine has as many addresses of IPv6 as it likes, so its network counts.
    pub fn remote(address: IpAddr) -> Self {
        Self::Remote(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The places of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Room {
    open: Arc<Mutex<HashMap<Origin, usize>>>,
    /// All places, and those that strangers may have together.
    most: usize,
    strangers: usize,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place {
    room: Room,
    origin: Origin,
}

impl Room {
    /// The places of a server that may open so many descriptors for connections.
    pub fn new(descriptors: u64) -> Self {
        let most = MAX_CONNECTIONS.min(usize::try_from(descriptors).unwrap_or(MAX_CONNECTIONS));
        Self { open: Arc::default(), most, strangers: most - most / 4 }
    }

    /// A place, if there is one for whoever comes.
    pub fn enter(&self, origin: Origin) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let ours = open.get(&Origin::Us).copied().unwrap_or(0);
        let own = open.get(&origin).copied().unwrap_or(0);
        let stranger_fits = all - ours < self.strangers && own < SHARE.min(self.strangers);
        if all >= self.most || (origin != Origin::Us && !stranger_fits) {
            return None;
        }
        *open.entry(origin).or_default() += 1;
        Some(Place { room: self.clone(), origin })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.room.open.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn fill(room: &Room, origin: Origin) -> Vec<Place> {
        std::iter::from_fn(|| room.enter(origin)).collect()
    }

    #[test]
    fn strangers_leave_places_to_us() {
        let room = Room::new(1 << 20);
        let mut taken: Vec<Vec<Place>> = Vec::new();
        for (origin, most) in [
            (Origin::User(65534), SHARE),
            (Origin::User(65534), 0),
            (Origin::Unknown, SHARE),
            (Origin::remote("10.0.0.1".parse().unwrap()), SHARE),
            (Origin::remote("10.0.0.2".parse().unwrap()), 0),
            (Origin::User(0), 0),
        ] {
            taken.push(fill(&room, origin));
            assert_eq!(taken.last().unwrap().len(), most, "{origin:?}");
        }
        let ours = fill(&room, Origin::Us);
        assert_eq!(ours.len(), MAX_CONNECTIONS - 3 * SHARE);
        drop(taken);
        assert_eq!(fill(&room, Origin::Us).len(), 3 * SHARE);
        drop(ours);
        assert!(room.enter(Origin::User(1)).is_some());
        assert!(room.open.lock().unwrap().is_empty(), "who is gone is forgotten");
    }

    #[test]
    fn few_descriptors_are_shared_too() {
        let room = Room::new(100);
        let strangers = fill(&room, Origin::User(1));
        assert_eq!(strangers.len(), 75);
        assert_eq!(fill(&room, Origin::Us).len(), 25);
    }

    #[test]
    fn a_network_of_ipv6_is_one_machine() {
        let of = |text: &str| Origin::remote(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
