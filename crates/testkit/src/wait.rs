//! Waits that have an end, and say what they waited for.

use std::panic::Location;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::WAIT;

/// How often is looked for what nobody tells.
const LOOK: Duration = Duration::from_millis(10);

/// Looks until it is so. Fails the test if that takes longer than [`WAIT`].
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < WAIT, "within {WAIT:?} this did not come: {what}");
        std::thread::sleep(LOOK);
    }
}

/// The same for tests with a runtime.
#[track_caller]
pub fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    soon(what, async move {
        while !is().await {
            tokio::time::sleep(LOOK).await;
        }
    })
}

/// What a future gives. Fails the test if that takes longer than [`WAIT`].
#[track_caller]
pub fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = Location::caller();
    async move {
        match timeout(WAIT, future).await {
            Ok(value) => value,
            Err(_) => panic!("{place}: within {WAIT:?} this did not come: {what}"),
        }
    }
}

/// What something gives that may block for ever, such as opening a pipe. Fails the test if that takes longer than
/// [`WAIT`]; the thread that it runs on is left behind then.
#[track_caller]
pub fn aside<T: Send + 'static>(what: &str, blocks: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(blocks()));
    match receiver.recv_timeout(WAIT) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("within {WAIT:?} this did not come: {what}"),
        Err(RecvTimeoutError::Disconnected) => panic!("this failed: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_is_given() {
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
        assert_eq!(aside("a number", || 2), 2);
    }

    #[test]
    #[should_panic(expected = "this failed: a thread")]
    fn what_fails_aside_fails_the_test() {
        aside("a thread", || panic!("on purpose"));
    }
}
