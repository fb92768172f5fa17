//! Memory that was freed goes back to the system.
//!
//! The allocator keeps free pages for the thread that used them. That is what makes it fast, but after a burst (many slow
//! readers, a long answer) they would stay with the process for as long as it lives. So every thread that does our work gives
//! them back from time to time: often while that is worth something, and rarely otherwise.

use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use crate::WORKERS;

/// How long to wait after pages were given back.
const SHORT: Duration = Duration::from_secs(5);
/// How long to wait at most while there is nothing to give back.
const LONG: Duration = Duration::from_secs(30);
/// What is worth coming back soon, in pages.
const WORTH: u64 = 256;
/// How long a worker thread is kept from its work, so that the next task is taken by another one.
const HOLD: Duration = Duration::from_micros(300);

/// Gives back free pages for as long as it is polled.
pub async fn give_back() -> Infallible {
    let mut wait = SHORT;
    loop {
        tokio::time::sleep(wait).await;
        let before = resident();
        collect();
        let workers = (0..WORKERS).map(|_| {
            tokio::spawn(async {
                collect();
                std::thread::sleep(HOLD);
            })
        });
        futures::future::join_all(workers.collect::<Vec<_>>()).await;
        wait = if before.saturating_sub(resident()) >= WORTH { SHORT } else { (2 * wait).min(LONG) };
    }
}

/// Pages of this process that are in memory; 0 if that cannot be told.
fn resident() -> u64 {
    let read = || fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok();
    read().unwrap_or(0)
}

/// Gives back what the calling thread has free.
#[expect(unsafe_code, reason = "the allocator has no safe function for it")]
fn collect() {
    unsafe extern "C" {
        safe fn mi_collect(force: bool);
    }
    mi_collect(true);
}
