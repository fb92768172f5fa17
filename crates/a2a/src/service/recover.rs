//! Opening the service: tasks that had not ended go on, those that were cancelled stop. Closing it: they are parked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::hub::Hub;
use super::input::Inputs;
use super::intake::{Locks, task_of};
use super::interrupts::Interrupts;
use super::live::LiveTask;
use super::metrics::{AbortOutcome, Metrics};
use super::queue::Queues;
use super::runner::{Job, Runner};
use super::scope::Places;
use super::stream::Streams;
use super::translate::Translator;
use super::{Agent, Inner, Service, ServiceOptions, apply, driver, push_configs, store_error};
use crate::Error;
use crate::records::UnfinishedTask;

/// How many cancelled tasks are stopped at the same time.
const STOPS: usize = 16;
/// How many events are read at a time.
const EVENT_PAGE: usize = 500;
/// How long tasks may take to be parked.
const PARK_TIME: Duration = Duration::from_secs(5);

impl Service {
    /// Opens the service and takes up the tasks that had not ended. Those that were cancelled are stopped when this
    /// returns; until then, the agent runtime should resume no turn.
    pub async fn open(options: ServiceOptions) -> Result<Self, Error> {
        let ServiceOptions { host, records, settings, workspace_root, agent } = options;
        let metrics = Arc::new(Metrics::default());
        let (tracker, closing) = (TaskTracker::new(), CancellationToken::new());
        let inner = Arc::new(Inner {
            access: Access::new(host.clone(), records.clone(), settings.claim_ttl),
            places: Places::new(&workspace_root, settings.allow_directory_override),
            inputs: Inputs::new(&settings),
            interrupts: Interrupts::new(&settings),
            hub: Hub::new(host.clone(), metrics.clone(), tracker.clone(), closing.clone()),
            queues: Arc::new(Queues::default()),
            live: Mutex::new(HashMap::new()),
            locks: Locks::default(),
            streams: Streams::new(settings.upstream_max_streams),
            host,
            records,
            settings,
            agent,
            metrics,
            tracker,
            closing,
        });
        inner.take_up().await?;
        push_configs::start(&inner);
        Ok(Self { inner })
    }

    /// Stops taking requests and waits until the tasks are parked: they go on at the next start.
    pub async fn shutdown(&self) {
        self.inner.closing.cancel();
        self.inner.tracker.close();
        if timeout(PARK_TIME, self.inner.tracker.wait()).await.is_err() {
            tracing::warn!("some tasks take too long to be parked; they go on at the next start all the same");
        }
    }
}

impl Inner {
    async fn take_up(self: &Arc<Self>) -> Result<(), Error> {
        let mut tasks = Vec::new();
        for id in self.records.unfinished() {
            if let Some(task) = self.records.load_unfinished(&id).await.map_err(|error| store_error(&error))? {
                tasks.push(task);
            }
        }
        let cancelled = tasks.iter().filter(|task| task.cancel_requested && self.agent == Agent::Host);
        let stops: Vec<_> = cancelled.map(|task| self.stop_left(task.clone())).collect();
        futures::stream::iter(stops).buffer_unordered(STOPS).collect::<()>().await;
        for task in tasks {
            self.resume(task).await?;
        }
        Ok(())
    }

    /// Stops what an earlier run left of a cancelled task. Its runner ends it.
    fn stop_left(self: &Arc<Self>, task: UnfinishedTask) -> impl Future<Output = ()> + Send + use<> {
        let inner = self.clone();
        async move {
            let (row, began) = (&task.row, Instant::now());
            let (scope, Some(session)) = (row.scope(), &row.session_id) else { return };
            let stop = driver::stop_left(&*inner.host, &scope, session, &task.work.prompt, row.turn.as_ref());
            let outcome = match timeout(inner.settings.cancel_abort_timeout, stop).await {
                Ok(Ok(())) => AbortOutcome::Success,
                Ok(Err(error)) => {
                    tracing::warn!(%error, task = %row.id, "cannot stop the turn of a cancelled task");
                    AbortOutcome::Error
                }
                Err(_) => AbortOutcome::Timeout,
            };
            inner.metrics.canceled(outcome, began.elapsed());
        }
    }

    /// Takes up a task where its log ends.
    async fn resume(self: &Arc<Self>, unfinished: UnfinishedTask) -> Result<(), Error> {
        let UnfinishedTask { row, work, .. } = unfinished;
        let mut task = task_of(&row, work.history.clone());
        let mut translator = Translator::new(row.session_id.clone(), work.prompt.id.clone());
        let mut seq = 0;
        loop {
            let events = self.records.events(&row.id, seq, EVENT_PAGE).await.map_err(|error| store_error(&error))?;
            let Some(last) = events.last() else { break };
            seq = last.seq;
            for event in &events {
                apply::apply(&mut task, &event.event);
                translator.restore(&event.event);
            }
        }
        // The row was written with the last event that changed it.
        task.status = row.status.clone();
        task.metadata = row.metadata.clone();
        let ticket = row.session_id.as_ref().map(|session| self.queues.enter(session));
        let (live, commands) = LiveTask::new(task, seq, true);
        let job = Job { row, work, grant: None, refused: None, has_past: true, resumed: Some(translator) };
        self.start(live.clone(), Runner::new(self.clone(), live, commands, job), ticket);
        Ok(())
    }
}
