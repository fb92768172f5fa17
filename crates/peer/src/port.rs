//! Ports for programs that must be told theirs.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{Error, Result};
use std::net::TcpListener;

/// Below the kernel's ephemeral ports: one of those may be given to another program before the intended one has bound
/// it, which takes a real OpenCode seconds.
const FIRST_PORT: u16 = 10_000;
const PORT_COUNT: u16 = 22_000;

/// A free port that no other program gets by chance.
pub fn free_port() -> Result<u16> {
    let random = |attempt: u32| FIRST_PORT + (RandomState::new().hash_one(attempt) % u64::from(PORT_COUNT)) as u16;
    let free = (0..1000).map(random).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| Error::other("no free port among a thousand"))
}
