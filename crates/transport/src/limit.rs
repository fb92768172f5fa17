//! Limits for each identity: of requests in a window, and of what is open at the same time. What is beyond a limit fails at
//! once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many requests each identity may make in a window of time. Knows a bounded number of identities.
#[derive(Debug)]
pub struct RateLimit {
    max: u32,
    window: Duration,
    identities: usize,
    windows: Mutex<HashMap<String, Window>>,
}

/// The requests of an identity since its window began.
#[derive(Debug)]
struct Window {
    began: Instant,
    requests: u32,
}

/// How much each identity may have open at the same time. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct ConcurrencyLimit {
    max: usize,
    identities: usize,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    /// `None` if any number may be open.
    counted: Option<(ConcurrencyLimit, String)>,
}

impl RateLimit {
    /// At most `max` requests in each window, for at most `identities` identities at a time.
    pub fn new(max: u32, window: Duration, identities: usize) -> Self {
        Self { max, window, identities, windows: Mutex::default() }
    }

    /// Counts a request; the error says when the next one is allowed.
    pub fn take(&self, identity: &str) -> Result<(), Duration> {
        self.take_at(identity, Instant::now())
    }

    fn take_at(&self, identity: &str, now: Instant) -> Result<(), Duration> {
        let mut windows = lock(&self.windows);
        if let Some(window) = windows.get_mut(identity) {
            let age = now.saturating_duration_since(window.began);
            if age >= self.window {
                *window = Window { began: now, requests: 0 };
            } else if window.requests >= self.max {
                return Err(self.window - age);
            }
            window.requests += 1;
            return Ok(());
        }
        if windows.len() >= self.identities {
            windows.retain(|_, window| now.saturating_duration_since(window.began) < self.window);
        }
        if windows.len() >= self.identities {
            // Identities belong to credentials, so nobody can make up enough of them to be forgotten.
            let oldest = windows.iter().min_by_key(|(_, window)| window.began).map(|(identity, _)| identity.clone());
            oldest.and_then(|oldest| windows.remove(&oldest));
        }
        windows.insert(identity.to_owned(), Window { began: now, requests: 1 });
        Ok(())
    }
}

impl ConcurrencyLimit {
    /// At most `max` for each identity; 0 means any number.
    pub fn new(max: usize, identities: usize) -> Self {
        Self { max, identities, open: Arc::default() }
    }

    /// Takes a place, if one is free.
    pub fn try_acquire(&self, identity: &str) -> Option<ConcurrencyPermit> {
        if self.max == 0 {
            return Some(ConcurrencyPermit { counted: None });
        }
        let mut open = lock(&self.open);
        let is_full = open.len() >= self.identities;
        match open.get_mut(identity) {
            Some(count) if *count >= self.max => return None,
            Some(count) => *count += 1,
            None if is_full => return None,
            None => drop(open.insert(identity.to_owned(), 1)),
        }
        Some(ConcurrencyPermit { counted: Some((self.clone(), identity.to_owned())) })
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        let Some((limit, identity)) = &self.counted else { return };
        let mut open = lock(&limit.open);
        if let Some(count) = open.get_mut(identity) {
            *count -= 1;
            if *count == 0 {
                open.remove(identity);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    #[test]
    fn each_identity_has_a_window_of_its_own() {
        let limit = RateLimit::new(2, WINDOW, 10);
        let now = Instant::now();
        assert_eq!(limit.take_at("a", now), Ok(()));
        assert_eq!(limit.take_at("a", now + WINDOW / 4), Ok(()));
        assert_eq!(limit.take_at("a", now + WINDOW / 2), Err(WINDOW / 2), "the window began with the first request");
        assert_eq!(limit.take_at("b", now + WINDOW / 2), Ok(()));
        assert_eq!(limit.take_at("a", now + WINDOW), Ok(()));
        assert_eq!(limit.take_at("a", now + WINDOW), Ok(()));
        assert_eq!(limit.take_at("a", now + WINDOW), Err(WINDOW));
    }

    #[test]
    fn a_bounded_number_of_identities_is_known() {
        let limit = RateLimit::new(1, WINDOW, 2);
        let now = Instant::now();
        for (index, identity) in (0..).zip(["a", "b", "c"]) {
            assert_eq!(limit.take_at(identity, now + Duration::from_secs(index)), Ok(()));
        }
        assert_eq!(lock(&limit.windows).len(), 2, "the oldest is forgotten");
        assert!(limit.take_at("c", now + Duration::from_secs(3)).is_err());
        assert_eq!(limit.take_at("d", now + WINDOW + Duration::from_secs(2)), Ok(()));
        assert_eq!(lock(&limit.windows).len(), 1, "those whose window has ended are forgotten together");
    }

    #[test]
    fn places_are_free_again_once_a_permit_is_dropped() {
        let limit = ConcurrencyLimit::new(2, 2);
        let mut permits: Vec<_> = (0..2).map(|_| limit.try_acquire("a").unwrap()).collect();
        assert!(limit.try_acquire("a").is_none());
        let other = limit.try_acquire("b").unwrap();
        assert!(limit.try_acquire("c").is_none(), "two identities are known already");
        permits.pop();
        permits.push(limit.try_acquire("a").unwrap());
        drop((permits, other));
        assert!(lock(&limit.open).is_empty());
        assert!(limit.try_acquire("c").is_some());
    }

    #[test]
    fn without_a_limit_any_number_is_open() {
        let limit = ConcurrencyLimit::new(0, 0);
        let permits: Vec<_> = (0..1000).map(|_| limit.try_acquire("a").unwrap()).collect();
        assert!(lock(&limit.open).is_empty() && permits.len() == 1000);
    }
}
