//! Returns freed memory to the system.
//!
//! The allocator keeps free pages for the thread that used them. That makes it fast, but after a burst (many slow readers, a long
//! answer) the pages would stay with the process for as long as it lives. So every worker thread releases them from time to time:
//! often while that frees something, rarely otherwise.

use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use crate::WORKERS;

/// How long to wait after a release that freed enough.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// The longest wait while there is nothing to release.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// A release that frees this many pages is worth another one soon.
const WORTHWHILE_PAGES: u64 = 256;
/// How long a worker thread is kept busy, so that another one takes the next task.
const HOLD: Duration = Duration::from_micros(300);

/// Releases free pages for as long as it is polled.
pub async fn release_free_pages() -> Infallible {
    let mut wait = MIN_INTERVAL;
    loop {
        tokio::time::sleep(wait).await;
        let before = resident_pages();
        collect();
        let workers = (0..WORKERS).map(|_| {
            tokio::spawn(async {
                collect();
                std::thread::sleep(HOLD);
            })
        });
        futures::future::join_all(workers.collect::<Vec<_>>()).await;
        let freed = before.saturating_sub(resident_pages());
        wait = if freed >= WORTHWHILE_PAGES { MIN_INTERVAL } else { (2 * wait).min(MAX_INTERVAL) };
    }
}

/// The pages of this process that are in memory; 0 if that is unknown.
fn resident_pages() -> u64 {
    let read = || fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok();
    read().unwrap_or(0)
}

/// Releases the free pages of the calling thread.
#[expect(unsafe_code, reason = "the allocator has no safe function for it")]
fn collect() {
    unsafe extern "C" {
        safe fn mi_collect(force: bool);
    }
    mi_collect(true);
}
