//! Notifications to webhooks: each event of a task at least once and in order, also over a restart.
//!
//! * `webhook`: which webhooks are taken, and one request to one.
//! * `body`: what a notification says.
//! * `worker`: the notifications of one push configuration, one after another.
//!
//! The log of a task's events is the queue: a configuration stores the number of the last event that its webhook has. A
//! webhook that is too far behind gets the task as it is in place of the events.

mod body;
mod webhook;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::event::TaskEvent;
use crate::model::Task;
use crate::records::Records;
pub(crate) use webhook::Webhooks;

/// The most requests at the same time.
const MAX_REQUESTS: usize = 32;
/// The most of them for one owner, so that slow webhooks of one do not hold up those of all.
const MAX_REQUESTS_OF_OWNER: usize = 8;
/// The wait before a notification is sent again, at first. It doubles each time.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Owners without requests are forgotten when there are this many.
const MAX_IDLE_OWNERS: usize = 1000;

/// Takes an event into a task.
pub(crate) type Apply = fn(&mut Task, &TaskEvent);

/// Sends notifications. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pusher {
    inner: Arc<Inner>,
}

struct Inner {
    records: Records,
    webhooks: Webhooks,
    apply: Apply,
    retry: Duration,
    requests: Semaphore,
    owners: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// The configurations with a worker, by task and id, and whether there is news for it.
    running: Mutex<HashMap<(String, String), bool>>,
    tracker: TaskTracker,
    closing: CancellationToken,
}

impl Pusher {
    pub(crate) fn new(
        records: Records,
        webhooks: Webhooks,
        apply: Apply,
        tracker: TaskTracker,
        closing: CancellationToken,
    ) -> Self {
        Self::with_retry(records, webhooks, apply, RETRY_MIN, tracker, closing)
    }

    fn with_retry(
        records: Records,
        webhooks: Webhooks,
        apply: Apply,
        retry: Duration,
        tracker: TaskTracker,
        closing: CancellationToken,
    ) -> Self {
        let (requests, owners, running) = (Semaphore::new(MAX_REQUESTS), Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { records, webhooks, apply, retry, requests, owners, running, tracker, closing }) }
    }

    /// Sends what is to be sent until the service closes. Once per service.
    pub(crate) fn start(&self) {
        let pusher = self.clone();
        self.inner.tracker.spawn(async move {
            let closing = pusher.inner.closing.clone();
            loop {
                tokio::select! {
                    () = closing.cancelled() => return,
                    tasks = pusher.inner.records.woken_tasks() => tasks.iter().for_each(|task| pusher.wake(task)),
                }
            }
        });
    }

    /// Makes sure that a worker looks at each configuration of a task.
    fn wake(&self, task: &str) {
        let deliveries = match self.inner.records.deliveries(task) {
            Ok(deliveries) => deliveries,
            Err(error) => {
                tracing::warn!(task, %error, "push notifications wait for the next event of the task");
                return;
            }
        };
        for delivery in deliveries {
            let key = (delivery.task, delivery.config);
            if let Some(news) = self.inner.running().get_mut(&key) {
                *news = true;
                continue;
            }
            self.inner.running().insert(key.clone(), false);
            let inner = self.inner.clone();
            self.inner.tracker.spawn(async move { worker::run(&inner, key).await });
        }
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<(String, String), bool>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a worker, unless there is news for it.
    fn may_stop(&self, key: &(String, String)) -> bool {
        let mut running = self.running();
        match running.get_mut(key) {
            Some(news) if *news => {
                *news = false;
                false
            }
            _ => {
                running.remove(key);
                true
            }
        }
    }

    /// What bounds the requests of an owner.
    fn owner(&self, identity: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = owners.get(identity).and_then(Weak::upgrade) {
            return owner;
        }
        if owners.len() >= MAX_IDLE_OWNERS {
            owners.retain(|_, owner| owner.strong_count() > 0);
        }
        let owner = Arc::new(Semaphore::new(MAX_REQUESTS_OF_OWNER));
        owners.insert(identity.to_owned(), Arc::downgrade(&owner));
        owner
    }
}
