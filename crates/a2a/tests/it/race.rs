//! Cancelling tasks that complete at the same moment, very often.

use std::sync::Arc;

use futures::StreamExt as _;
use trefoil_a2a::service::{Agent, Service};
use trefoil_a2a::{ErrorKind, Line, ListRequest, TaskState};

use crate::common::*;

const ROUNDS: usize = 10_000;
/// How many race at the same time.
const AT_ONCE: usize = 32;
/// How often the one that cancels lets others go first, at most.
const MAX_YIELDS: u32 = 40;

#[tokio::test(flavor = "multi_thread")]
async fn each_of_ten_thousand_cancelled_tasks_ends_once() {
    let lab = Lab::scripted().await;
    let service = temporary_service(&lab.project, Arc::new(lab.engine.clone()), Agent::Script).await;
    let ends = futures::stream::iter(0..ROUNDS).map(|round| race(&service, round)).buffer_unordered(AT_ONCE);
    let ends: Vec<TaskState> = ends.collect().await;
    let count = |state| ends.iter().filter(|end| **end == state).count();
    let (canceled, completed) = (count(TaskState::Canceled), count(TaskState::Completed));
    assert_eq!(canceled + completed, ROUNDS);
    assert!(canceled > 0 && completed > 0, "the race comes out both ways: {canceled} {completed}");
    // The lists count each once, in the state in which it ended.
    for (state, count) in [(TaskState::Canceled, canceled), (TaskState::Completed, completed)] {
        let request = ListRequest { state: Some(state), ..ListRequest::default() };
        assert_eq!(service.list(&alice(), request).await.unwrap().total_size, count as u64, "{state:?}");
    }
    service.shutdown().await;
}

/// Returns how it ended, which everybody must have been told alike.
async fn race(service: &Service, round: usize) -> TaskState {
    let stream = service.stream(&alice(), Line::V03, say(&format!("tck-stream-001-{round}"), "hi")).await.unwrap();
    let id = stream.task_id().to_owned();
    let cancel = async {
        for _ in 0..fastrand::u32(..MAX_YIELDS) {
            tokio::task::yield_now().await;
        }
        service.cancel(&alice(), &id).await
    };
    let (cancel, items) = tokio::join!(cancel, collect(stream));
    let states = events(&items).into_iter().filter_map(|(_, event)| event.state());
    let ends: Vec<TaskState> = states.filter(|state| state.is_terminal()).collect();
    let task = service.get(&alice(), &id, None).await.unwrap();
    assert_eq!(ends, [task.status.state], "{id}");
    match cancel {
        Ok(canceled) => assert_eq!(canceled.status, task.status, "{id}"),
        Err(error) => {
            assert_eq!((error.kind, task.status.state), (ErrorKind::TaskNotCancelable, TaskState::Completed), "{id}");
        }
    }
    task.status.state
}
