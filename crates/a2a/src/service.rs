//! Tasks, streams, interrupts and their owners, on any agent runtime.

pub mod access;
mod apply;
mod hub;
mod live;
mod metrics;
mod queue;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::{AgentRuntime, JsonMap, PermissionReply, PromptPart, Scope};
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
}

impl From<&Settings> for ServiceSettings {
    fn from(settings: &Settings) -> Self {
        Self { stream_max_duration: settings.stream_max_duration }
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

    /// The place that the metadata of a request names, else the service's.
    pub async fn scope(&self, metadata: &JsonMap) -> Result<Scope, Error> {
        unimplemented!()
    }

    /// A part of a prompt of `prompt_async` or `command`, under the rules for files of messages.
    pub async fn check_prompt_part(&self, part: PromptPart) -> Result<PromptPart, Error> {
        unimplemented!()
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

    /// Answers a permission request.
    pub async fn reply_permission(&self, who: &Principal, id: &str, reply: PermissionReply) -> Result<(), Error> {
        unimplemented!()
    }

    /// Answers a question; `None` declines to.
    pub async fn reply_question(
        &self,
        who: &Principal,
        id: &str,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), Error> {
        unimplemented!()
    }
}
