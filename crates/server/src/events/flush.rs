//! Who listens to events, so that a turn is answered after what it told. A client may end with its answer, as `opencode run
//! --attach` does, and would never read what is written a moment later.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::coop::has_budget_remaining;
use tokio::time::timeout;

/// The longest that an answer waits for the streams.
const PATIENCE: Duration = Duration::from_millis(100);

/// How many answers wait for a stream. One that takes none of them is stuck, and no further answer waits for it.
const WAITING: usize = 4;

/// An answer that waits until everybody has dropped it.
type Answer = Sender<Infallible>;

/// The event streams that are open.
#[derive(Debug, Default)]
pub struct Listeners(Mutex<Vec<Sender<Answer>>>);

impl Listeners {
    /// One more stream.
    pub fn join(&self) -> Listener {
        let (sender, answers) = mpsc::channel(WAITING);
        let mut streams = self.lock();
        streams.retain(|stream| !stream.is_closed());
        streams.push(sender);
        Listener { answers, taken: Vec::new(), quiet: false }
    }

    /// Waits until every stream has written what was told until now.
    pub async fn told(&self) {
        let (answer, mut all) = mpsc::channel(1);
        self.lock().retain(|stream| !matches!(stream.try_send(answer.clone()), Err(TrySendError::Closed(_))));
        drop(answer);
        if timeout(PATIENCE, all.recv()).await.is_err() {
            tracing::debug!("a turn is answered while an event stream is behind");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's side: it says when it is asked for more, and what it had.
#[derive(Debug)]
pub struct Listener {
    answers: Receiver<Answer>,
    /// Answers that came before the stream last looked for something to tell.
    taken: Vec<Answer>,
    /// Whether there was nothing then.
    quiet: bool,
}

impl Listener {
    /// The stream is asked for more, and has not looked yet.
    pub fn asked(&mut self, context: &mut Context<'_>) {
        // A connection writes what it has when its stream is quiet, before it asks again.
        if self.quiet {
            self.taken.clear();
        }
        while let Poll::Ready(Some(answer)) = self.answers.poll_recv(context) {
            self.taken.push(answer);
        }
    }

    /// The stream has looked.
    pub fn looked(&mut self, quiet: bool, context: &mut Context<'_>) {
        // A task whose budget is used up sees nothing, whatever there is.
        self.quiet = quiet && has_budget_remaining();
        if quiet && !self.taken.is_empty() {
            context.waker().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Instant;

    use futures::poll;
    use futures::task::noop_waker_ref;

    use super::*;

    #[tokio::test]
    async fn an_answer_waits_until_what_came_before_it_was_written() {
        let listeners = Listeners::default();
        listeners.told().await;
        let mut listener = listeners.join();
        let mut context = Context::from_waker(noop_waker_ref());
        listener.asked(&mut context);
        // Between these two an event and an answer come.
        let mut told = pin!(listeners.told());
        assert!(poll!(&mut told).is_pending());
        listener.looked(true, &mut context);
        listener.asked(&mut context);
        assert!(poll!(&mut told).is_pending(), "it came after the last look");
        listener.looked(false, &mut context);
        listener.asked(&mut context);
        assert!(poll!(&mut told).is_pending(), "there may be more");
        listener.looked(true, &mut context);
        assert!(poll!(&mut told).is_pending(), "it is about to be written");
        listener.asked(&mut context);
        assert!(poll!(&mut told).is_ready());
    }

    #[tokio::test]
    async fn a_stream_that_is_stuck_is_soon_waited_for_no_more() {
        let listeners = Listeners::default();
        let (_stuck, gone) = (listeners.join(), listeners.join());
        drop(gone);
        for _ in 0..WAITING {
            let begin = Instant::now();
            listeners.told().await;
            assert!(begin.elapsed() >= PATIENCE);
        }
        assert!(poll!(pin!(listeners.told())).is_ready());
    }
}
