//! Waits that are bounded and say what they wait for.

use std::panic::Location;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::WAIT;

/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until the condition holds. Fails the test after [`WAIT`].
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < WAIT, "timed out after {WAIT:?} waiting for:  {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Likewise, for async tests.
#[track_caller]
pub fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    soon(what, async move {
        while !is().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

/// Awaits a future. Fails the test after [`WAIT`].
#[track_caller]
pub fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = Location::caller();
    async move {
        match timeout(WAIT, future).await {
            Ok(value) => value,
            Err(_) => panic!("{place}: timed out after {WAIT:?} waiting for:  {what}"),
        }
    }
}

/// Runs a function that may block forever, such as opening a pipe, on its own thread. Fails the test after [`WAIT`];
/// the thread is left behind then.
#[track_caller]
pub fn on_thread<T: Send + 'static>(what: &str, blocks: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(blocks()));
    match receiver.recv_timeout(WAIT) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("timed out after {WAIT:?} waiting for:  {what}"),
        Err(RecvTimeoutError::Disconnected) => panic!("this failed: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_return_their_values() {
        let mut looks = 0;
        until("the third look", || {
            looks += 1;
            looks == 3
        });
        let mut more = 0;
        eventually("the second look", async || {
            more += 1;
            more == 2
        })
        .await;
        assert_eq!((looks, more), (3, 2));
        assert_eq!(soon("a number", async { 1 }).await, 1);
        assert_eq!(on_thread("a number", || 2), 2);
    }

    #[test]
    #[should_panic(expected = "this failed: a thread")]
    fn a_panic_on_the_thread_fails_the_test() {
        on_thread("a thread", || panic!("on purpose"));
    }
}
