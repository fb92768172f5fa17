//! Tasks of one session run one after another, in the order in which they were accepted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use api::SessionId;
use tokio::sync::oneshot;

/// The tasks that run or wait, by session. Bounded by the tasks that have not ended.
#[derive(Default)]
pub(super) struct Queues {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_number: u64,
    sessions: HashMap<SessionId, VecDeque<Place>>,
}

struct Place {
    number: u64,
    /// Tells the task that it is first; `None` once it was told.
    wake: Option<oneshot::Sender<()>>,
}

/// A task's place in the queue of its session, until it is dropped.
pub(super) struct Ticket {
    queues: Arc<Queues>,
    session: SessionId,
    number: u64,
    /// `None` once it is first.
    first: Option<oneshot::Receiver<()>>,
}

impl Queues {
    /// Takes the last place in the queue of a session.
    pub(super) fn enter(self: &Arc<Self>, session: &SessionId) -> Ticket {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_number += 1;
        let number = state.last_number;
        let queue = state.sessions.entry(session.clone()).or_default();
        let (wake, first) = match queue.is_empty() {
            true => (None, None),
            false => {
                let (sender, receiver) = oneshot::channel();
                (Some(sender), Some(receiver))
            }
        };
        queue.push_back(Place { number, wake });
        Ticket { queues: self.clone(), session: session.clone(), number, first }
    }

    fn leave(&self, session: &SessionId, number: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = state.sessions.get_mut(session) else { return };
        queue.retain(|place| place.number != number);
        match queue.front_mut() {
            None => drop(state.sessions.remove(session)),
            Some(next) => {
                if let Some(wake) = next.wake.take() {
                    // Nobody listens if the task is leaving at this moment.
                    let _ = wake.send(());
                }
            }
        }
    }
}

impl Ticket {
    /// Whether nobody is before it.
    pub(super) fn is_first(&mut self) -> bool {
        if let Some(first) = &mut self.first
            && first.try_recv().is_ok()
        {
            self.first = None;
        }
        self.first.is_none()
    }

    /// Waits until nobody is before it. Cancel safe.
    pub(super) async fn wait(&mut self) {
        if let Some(first) = &mut self.first {
            // The sender is dropped only after it was used, or with the whole queue.
            let _ = first.await;
            self.first = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queues.leave(&self.session, self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn whoever_came_first_goes_first() {
        let queues = Arc::new(Queues::default());
        let (session, other) = (SessionId::new(), SessionId::new());
        let mut tickets: Vec<Ticket> = (0..3).map(|_| queues.enter(&session)).collect();
        assert!(queues.enter(&other).is_first());
        assert!(tickets[0].is_first());
        assert!(!tickets[1].is_first());
        // One that gives up in the middle wakes nobody.
        drop(tickets.remove(1));
        assert!(tickets[1].wait().now_or_never().is_none());
        drop(tickets.remove(0));
        assert!(tickets[0].wait().now_or_never().is_some());
        assert!(tickets[0].is_first());
        drop(tickets);
        assert!(queues.state.lock().unwrap().sessions.is_empty());
    }
}
