//! Cancellations that race the ends of their tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::soon;
use trefoil_a2a::{ErrorKind, TaskState};

use crate::common::*;

const ROUNDS: usize = 10_000;
/// How many tasks race at the same time.
const RACERS: usize = 16;
/// A cancellation lets others run at most this often before it comes.
const MAX_YIELDS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_cancellations_race_the_end_of_their_tasks() {
    // The agent for conformance kits has no work of its own, so that the ends come close to the cancellations.
    let lab = Arc::new(Lab::scripted().await);
    let (next, canceled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let racers = (0..RACERS).map(|_| {
        let (lab, next, canceled) = (lab.clone(), next.clone(), canceled.clone());
        tokio::spawn(async move {
            loop {
                let round = next.fetch_add(1, Ordering::Relaxed);
                if round >= ROUNDS {
                    return;
                }
                if race(&lab, round).await {
                    canceled.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    for racer in racers.collect::<Vec<_>>() {
        racer.await.unwrap();
    }
    let canceled = canceled.load(Ordering::Relaxed);
    assert!((1..ROUNDS).contains(&canceled), "the race had one outcome: {canceled} of {ROUNDS} were cancelled");
}

/// Cancels a task that is about to complete. Returns whether it was cancelled.
async fn race(lab: &Lab, round: usize) -> bool {
    let stream = lab.stream(say(&format!("tck-artifact-text-{round}"), "hi")).await;
    let id = stream.task_id().to_owned();
    let cancel = async {
        for _ in 0..round % MAX_YIELDS {
            tokio::task::yield_now().await;
        }
        soon("the answer to a cancellation", lab.service.cancel(&alice(), &id)).await
    };
    let (cancel, items) = tokio::join!(cancel, collect(stream));
    let ends: Vec<TaskState> =
        events(&items).iter().filter_map(|(_, event)| event.state()).filter(|state| state.is_terminal()).collect();
    let state = lab.get(&id).await.status.state;
    match cancel {
        Ok(task) => assert_eq!((task.status.state, state), (TaskState::Canceled, TaskState::Canceled)),
        Err(error) => assert_eq!((error.kind, state), (ErrorKind::TaskNotCancelable, TaskState::Completed)),
    }
    assert_eq!(ends, [state], "one end, and the stream tells it");
    state == TaskState::Canceled
}
