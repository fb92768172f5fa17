//! Tasks, streams, interrupts and their owners, on any agent runtime.
//!
//! * `access`, `scope`, `input`, `interrupts`, `replies`, `push_configs`: what requests may use, say and answer.
//! * `intake`, `binding`: a message becomes a task, or reaches one that exists.
//! * `runner`: one task from its row to its end. `driver` is its turn at the agent runtime, `translate` what its stream
//!   shows of it, `script` the turn of the agent for conformance kits.
//! * `live`, `apply`, `stream`: what everybody sees of a task that runs. `queue`: tasks of a session, one after another.
//! * `hub`: the one subscription to the events of the agent runtime.
//! * `recover`: tasks of an earlier run.

pub mod access;
mod apply;
mod binding;
mod cancel;
mod driver;
mod fetch;
mod hub;
mod input;
mod intake;
mod interrupts;
mod live;
mod metrics;
mod push_configs;
mod queue;
mod reading;
mod recover;
mod replies;
mod runner;
mod scope;
mod script;
mod stream;
mod translate;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::AgentRuntime;
use store::StoreError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::model::{Message, Part, Task};
use crate::records::Records;
use crate::{Error, Settings};
pub use access::Access;
use hub::Hub;
use input::Inputs;
pub(crate) use input::MAX_PARTS;
use intake::Locks;
use interrupts::Interrupts;
pub(crate) use interrupts::shown_details;
use live::LiveTask;
pub use metrics::Metrics;
use queue::Queues;
use scope::Places;
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
    pub(crate) accept_data_parts: bool,
    pub(crate) agent: Option<String>,
    pub(crate) allow_directory_override: bool,
    pub(crate) cancel_abort_timeout: Duration,
    pub(crate) claim_ttl: Duration,
    pub(crate) interrupt_tombstone_ttl: Duration,
    pub(crate) interrupt_ttl: Duration,
    pub(crate) push: bool,
    pub(crate) push_allow_private_hosts: bool,
    pub(crate) stream_max_duration: Duration,
    pub(crate) system: Option<String>,
    pub(crate) upstream_max_streams: usize,
    pub(crate) upstream_url: Option<String>,
    pub(crate) variant: Option<String>,
}

impl From<&Settings> for ServiceSettings {
    fn from(settings: &Settings) -> Self {
        Self {
            accept_data_parts: settings.accept_data_parts,
            agent: settings.agent.clone(),
            allow_directory_override: settings.allow_directory_override,
            cancel_abort_timeout: settings.cancel_abort_timeout,
            claim_ttl: settings.claim_ttl,
            interrupt_tombstone_ttl: settings.interrupt_tombstone_ttl,
            interrupt_ttl: settings.interrupt_ttl,
            push: settings.push,
            push_allow_private_hosts: settings.push_allow_private_hosts,
            stream_max_duration: settings.stream_max_duration,
            system: settings.system.clone(),
            upstream_max_streams: settings.upstream_max_streams,
            upstream_url: settings.upstream_url.clone(),
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
    agent: Agent,
    metrics: Arc<Metrics>,
    access: Access,
    places: Places,
    inputs: Inputs,
    interrupts: Interrupts,
    hub: Arc<Hub>,
    queues: Arc<Queues>,
    /// The tasks that have not ended, by id. Each has a runner.
    live: Mutex<HashMap<String, Arc<LiveTask>>>,
    locks: Locks,
    streams: stream::Streams,
    tracker: TaskTracker,
    closing: CancellationToken,
}

/// A new id for a task, a context or an artifact, as UUIDs are written.
fn new_id() -> String {
    const VERSION: u128 = 0x4 << 76;
    const VARIANT: u128 = 0x2 << 62;
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | VERSION | VARIANT;
    let hex = format!("{bits:032x}");
    let group = |range| hex.get(range).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", group(0..8), group(8..12), group(12..16), group(16..20), group(20..32))
}

/// A message of the agent about a task.
fn agent_message(task: &Task, text: &str) -> Message {
    Message::of_agent(new_id(), task, vec![Part::text(text)])
}

fn store_error(error: &StoreError) -> Error {
    Error::internal(error)
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveTask>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that has not ended.
    fn live_task(&self, id: &str) -> Option<Arc<LiveTask>> {
        self.live().get(id).cloned()
    }
}

impl Service {
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
}
