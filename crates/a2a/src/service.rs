//! Tasks, streams, interrupts and their owners, on any agent runtime.

pub mod access;
mod apply;
mod fetch;
mod hub;
mod input;
mod interrupts;
mod live;
mod metrics;
mod queue;
mod replies;
mod scope;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::AgentRuntime;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::records::Records;
use crate::{Error, Line, ListRequest, Principal, PushConfig, Reply, SendRequest, Settings, Task, TaskPage};
pub use access::Access;
pub use metrics::Metrics;
pub use stream::{EventStream, StreamItem};

/// Who answers messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The agent runtime.
    Host,
    /// A script that conformance kits drive by message id.
    Script,
}

/// What a service is made of.
pub struct ServiceOptions {
    /// Who does the work.
    pub host: Arc<dyn AgentRuntime>,
    /// Its durable rows.
    pub records: Records,
    /// What it needs of the settings.
    pub settings: ServiceSettings,
    /// The directory that clients may not leave.
    pub workspace_root: PathBuf,
    /// Who answers messages.
    pub agent: Agent,
}

/// What a service needs of the settings.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    pub(crate) stream_max_duration: Duration,
    pub(crate) allow_directory_override: bool,
    pub(crate) accept_data_parts: bool,
    pub(crate) claim_ttl: Duration,
    pub(crate) interrupt_ttl: Duration,
    pub(crate) interrupt_tombstone_ttl: Duration,
    pub(crate) upstream_url: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) system: Option<String>,
    pub(crate) variant: Option<String>,
}

impl From<&Settings> for ServiceSettings {
    fn from(settings: &Settings) -> Self {
        Self {
            stream_max_duration: settings.stream_max_duration,
            allow_directory_override: settings.allow_directory_override,
            accept_data_parts: settings.accept_data_parts,
            claim_ttl: settings.claim_ttl,
            interrupt_ttl: settings.interrupt_ttl,
            interrupt_tombstone_ttl: settings.interrupt_tombstone_ttl,
            upstream_url: settings.upstream_url.clone(),
            agent: settings.agent.clone(),
            system: settings.system.clone(),
            variant: settings.variant.clone(),
        }
    }
}

/// A service. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    host: Arc<dyn AgentRuntime>,
    records: Records,
    settings: ServiceSettings,
    metrics: Arc<Metrics>,
    access: Access,
    /// Where requests may work.
    places: scope::Places,
    /// What messages may contain.
    inputs: input::Inputs,
    /// The requests that wait for an answer.
    interrupts: interrupts::Interrupts,
    closing: CancellationToken,
}

fn store_error(error: &StoreError) -> Error {
    Error::internal(error)
}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl Service {
    /// Opens the service and takes up the tasks that had not ended.
    pub async fn open(options: ServiceOptions) -> Result<Self, Error> {
        unimplemented!()
    }

    /// Stops taking requests and waits until the tasks are parked.
    pub async fn shutdown(&self) {
        unimplemented!()
    }

    /// Who does the work.
    pub fn host(&self) -> &Arc<dyn AgentRuntime> {
        &self.inner.host
    }

    /// The durable rows.
    pub fn records(&self) -> &Records {
        &self.inner.records
    }

    /// Who may use what.
    pub fn access(&self) -> &Access {
        &self.inner.access
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Takes a message, and answers as its options say.
    pub async fn send(&self, who: &Principal, line: Line, request: SendRequest) -> Result<Reply, Error> {
        unimplemented!()
    }

    /// Takes a message, and streams the events of its task.
    pub async fn stream(&self, who: &Principal, line: Line, request: SendRequest) -> Result<EventStream, Error> {
        unimplemented!()
    }

    /// A task.
    pub async fn get(&self, who: &Principal, id: &str, history_length: Option<u32>) -> Result<Task, Error> {
        unimplemented!()
    }

    /// Tasks.
    pub async fn list(&self, who: &Principal, request: ListRequest) -> Result<TaskPage, Error> {
        unimplemented!()
    }

    /// Cancels a task and stops what runs for it.
    pub async fn cancel(&self, who: &Principal, id: &str) -> Result<Task, Error> {
        unimplemented!()
    }

    /// The events of a task after a number; without one, a snapshot first.
    pub async fn subscribe(&self, who: &Principal, id: &str, after: Option<u64>) -> Result<EventStream, Error> {
        unimplemented!()
    }

    /// Creates or replaces a push configuration.
    pub async fn put_push(&self, who: &Principal, line: Line, config: PushConfig) -> Result<PushConfig, Error> {
        unimplemented!()
    }

    /// A push configuration.
    pub async fn get_push(&self, who: &Principal, task: &str, id: Option<&str>) -> Result<PushConfig, Error> {
        unimplemented!()
    }

    /// A page of the push configurations of a task, and the cursor of the next one.
    pub async fn list_push(
        &self,
        who: &Principal,
        task: &str,
        page_size: Option<u32>,
        page_token: Option<&str>,
    ) -> Result<(Vec<PushConfig>, String), Error> {
        unimplemented!()
    }

    /// Deletes a push configuration.
    pub async fn delete_push(&self, who: &Principal, task: &str, id: Option<&str>) -> Result<(), Error> {
        unimplemented!()
    }
}
