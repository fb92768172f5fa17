//! Long reads: they hold up nobody, and whoever stops waiting for one leaves nothing behind.

use std::future::poll_fn;
use std::sync::mpsc;

use crate::common::*;
use api::*;
use futures::stream::BoxStream;
use futures::{StreamExt, poll};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use trefoil_store::*;

/// The most events in a page of the log.
const PAGE: usize = 256;

/// A store whose log has this many events after the cursor.
async fn filled(temp: &Temp, events: usize) -> (Store, Option<Cursor>) {
    let store = temp.open();
    let first = store.commit(toast_batch("0")).await.unwrap().last;
    let mut many = batch();
    (1..=events).for_each(|i| many.event(toast(i.to_string())));
    store.commit(many).await.unwrap();
    (store, first)
}

#[tokio::test]
async fn a_replay_gives_way_to_others_after_each_page() {
    const EVENTS: usize = 5000;
    let temp = Temp::new();
    let (store, first) = filled(&temp, EVENTS).await;
    let mut watch = store.watch(WatchScope::All, first).unwrap();
    // How many events came without giving way, the most of them, and how often it gave way.
    let (mut in_a_row, mut most, mut waits) = (0, 0, 0);
    for i in 1..=EVENTS {
        let item = poll_fn(|context| {
            let item = watch.poll_next_unpin(context);
            if item.is_pending() {
                (in_a_row, waits) = (0, waits + 1);
            }
            item
        });
        let item = timeout(WAIT, item).await.expect("the next event");
        let Some(WatchItem::Frame(frame)) = item else { panic!("expected a frame, got {item:?}") };
        assert_eq!(toast_text(&frame), Some(i.to_string()));
        in_a_row += 1;
        most = most.max(in_a_row);
    }
    assert!(most <= PAGE, "{most} events at once");
    assert!(waits >= EVENTS / PAGE, "it gave way {waits} times");
}

/// Keeps all threads for long reads busy.
struct Occupied {
    ends: Vec<mpsc::Sender<()>>,
    reads: Vec<JoinHandle<()>>,
}

impl Occupied {
    /// Returns once every thread is busy, which needs all of them to be free.
    async fn all(store: &Store) -> Self {
        let (mut ends, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..MAX_LONG_READS {
            let (end, ended) = mpsc::channel();
            let (begin, begun) = tokio::sync::oneshot::channel();
            let store = store.clone();
            ends.push(end);
            reads.push(tokio::spawn(async move {
                let read = move |_: &Store| {
                    begin.send(()).unwrap();
                    // Fails when the sender is dropped, which is what it waits for.
                    let _ = ended.recv();
                    Ok::<_, StoreError>(())
                };
                store.long_read(read).await.unwrap();
            }));
            timeout(WAIT, begun).await.expect("a thread for the read").unwrap();
        }
        Self { ends, reads }
    }

    async fn release(self) {
        drop(self.ends);
        for read in self.reads {
            timeout(WAIT, read).await.expect("the end of the read").unwrap();
        }
    }
}

#[tokio::test]
async fn a_watcher_that_goes_away_frees_its_thread() {
    let temp = Temp::new();
    let (store, first) = filled(&temp, 3 * PAGE).await;
    let occupied = Occupied::all(&store).await;
    let mut waiting = store.watch(WatchScope::All, first.clone()).unwrap();
    for _ in 0..5 {
        assert!(poll!(waiting.next()).is_pending(), "all threads are busy");
    }
    let mut read = Box::pin(store.long_read(|_| Ok::<_, StoreError>(())));
    assert!(poll!(read.as_mut()).is_pending(), "all threads are busy");
    // Both are in the queue. Reads by key and commits do not need a thread.
    store.commit(toast_batch("meanwhile")).await.unwrap();
    assert_eq!(store.record("a2a", "none").unwrap(), None);
    drop((waiting, read));
    occupied.release().await;
    // One that goes away in the middle of its replay.
    let mut replaying = store.watch(WatchScope::All, first).unwrap();
    next_frame(&mut replaying).await;
    drop(replaying);
    Occupied::all(&store).await.release().await;
}

#[tokio::test]
async fn a_replay_goes_on_after_the_store_is_closed() {
    let temp = Temp::new();
    let (store, first) = filled(&temp, 3 * PAGE).await;
    let mut watch = store.watch(WatchScope::All, first).unwrap();
    next_frame(&mut watch).await;
    drop(store);
    // The watcher does not keep the store open; what is in the log still comes.
    for _ in 1..3 * PAGE {
        next_frame(&mut watch).await;
    }
    assert!(timeout(WAIT, watch.next()).await.expect("the end of the stream").is_none());
}

/// Reads the next event and checks that it is the one after `seen`.
async fn follow(watch: &mut BoxStream<'static, WatchItem>, seen: u64) -> u64 {
    let cursor = next_frame(watch).await.cursor.unwrap();
    assert_eq!(cursor.seq, seen + 1);
    cursor.seq
}

#[tokio::test]
async fn commits_during_a_replay_are_neither_lost_nor_repeated() {
    const EVENTS: usize = 600;
    let temp = Temp::new();
    // The second one is followed like another process.
    let (store, other) = (temp.open(), temp.open());
    let mut cursors = Vec::new();
    for i in 0..EVENTS {
        cursors.extend(store.commit(toast_batch(i.to_string())).await.unwrap().last);
    }
    for from in [0, 1, EVENTS / 2, EVENTS - PAGE, EVENTS - 1] {
        for taken in [0, 1, PAGE - 1, PAGE, PAGE + 1] {
            for is_alone in [true, false] {
                // The first watcher attaches in another way than later ones.
                let first = (!is_alone).then(|| store.watch(WatchScope::All, None).unwrap());
                other.commit(toast_batch("before")).await.unwrap();
                let mut watch = store.watch(WatchScope::All, Some(cursors[from].clone())).unwrap();
                let mut last = 0;
                for (writer, text) in [(&other, "a"), (&store, "b"), (&other, "c")] {
                    last = writer.commit(toast_batch(text)).await.unwrap().last.unwrap().seq;
                }
                let mut seen = cursors[from].seq;
                for _ in 0..taken {
                    if seen < last {
                        seen = follow(&mut watch, seen).await;
                    }
                }
                for writer in [&store, &other] {
                    last = writer.commit(toast_batch("after")).await.unwrap().last.unwrap().seq;
                }
                while seen < last {
                    seen = follow(&mut watch, seen).await;
                }
                drop(first);
            }
        }
    }
}
