//! Limits for each identity: of requests in a window, and of what is open at the same time. What is beyond a limit fails at
//! once.

use std::time::Duration;

/// How many requests each identity may make in a window of time. Knows a bounded number of identities.
pub struct RateLimit {}

/// How much each identity may have open at the same time.
pub struct ConcurrencyLimit {}

/// Counts until it is dropped.
pub struct ConcurrencyPermit {}

impl RateLimit {
    /// At most `max` requests in each window, for at most `identities` identities at a time.
    pub fn new(max: u32, window: Duration, identities: usize) -> Self {
        let _ = (max, window, identities);
        unimplemented!()
    }

    /// Counts a request; the error says when the next one is allowed.
    pub fn take(&self, identity: &str) -> Result<(), Duration> {
        let _ = identity;
        unimplemented!()
    }
}

impl ConcurrencyLimit {
    /// At most `max` for each identity; 0 means any number.
    pub fn new(max: usize, identities: usize) -> Self {
        let _ = (max, identities);
        unimplemented!()
    }

    /// Takes a place, if one is free.
    pub fn try_acquire(&self, identity: &str) -> Option<ConcurrencyPermit> {
        let _ = identity;
        unimplemented!()
    }
}
