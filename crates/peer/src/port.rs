//! Ports for programs that must be told theirs.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{Error, Result};
use std::net::TcpListener;

/// Below the ports that the kernel hands out by itself: one of those may be given to somebody else before the program that it
/// was meant for has bound it, which takes a real OpenCode seconds.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// A port on which nobody listens, and which nobody gets by chance.
pub fn free_port() -> Result<u16> {
    let random = |attempt: u32| FIRST + (RandomState::new().hash_one(attempt) % u64::from(COUNT)) as u16;
    let free = (0..1000).map(random).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| Error::other("no free port among a thousand"))
}
