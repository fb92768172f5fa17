//! A service on an engine, on a temporary project.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::{AgentRuntime, Host as _};
use config::{Dirs, Inputs, Trust};
use engine::Engine;
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{TempProject, soon};
use trefoil_a2a::records::Records;
use trefoil_a2a::service::{Agent, EventStream, Service, ServiceOptions, StreamItem};
use trefoil_a2a::{
    Content, Error, Line, Message, Part, Principal, Reply, Role, SendOptions, SendRequest, Settings, Task, TaskEvent,
};

/// A service on an engine of its own.
pub struct Lab {
    pub project: TempProject,
    pub engine: Engine,
    pub service: Service,
    settings: Settings,
    agent: Agent,
}

impl Lab {
    /// A service with the default settings, whose engine asks nothing.
    pub async fn new() -> Self {
        Self::with(json!({}), |_| {}).await
    }

    /// A service whose engine has a configuration, with other settings.
    pub async fn with(config: Value, change: impl FnOnce(&mut Settings)) -> Self {
        Self::of(Agent::Host, config, change).await
    }

    /// The agent for conformance kits.
    pub async fn scripted() -> Self {
        Self::of(Agent::Script, json!({}), |_| {}).await
    }

    async fn of(agent: Agent, config: Value, change: impl FnOnce(&mut Settings)) -> Self {
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        let mut settings = Settings::default();
        change(&mut settings);
        let engine = open_engine(&project);
        let service = open_service(&project, &engine, &settings, agent).await;
        Self { project, engine, service, settings, agent }
    }

    /// Stops service and engine, and opens them again on the same database.
    pub async fn restart(self) -> Self {
        self.stop().await.start().await
    }

    /// Stops service and engine.
    pub async fn stop(self) -> Stopped {
        let Self { project, engine, service, settings, agent } = self;
        soon("the end of the service", service.shutdown()).await;
        drop(service);
        soon("the end of the engine", engine.shutdown()).await;
        Stopped { project, settings, agent }
    }

    /// A file that a script can wait for (`after`, `hold`). It goes on when the test writes the file.
    pub fn gate(&self, name: &str) -> PathBuf {
        self.project.path().join(name)
    }

    /// Opens a gate.
    pub fn open(&self, gate: &std::path::Path) {
        std::fs::write(gate, "").unwrap();
    }

    pub async fn send(&self, request: SendRequest) -> Result<Task, Error> {
        match soon("the answer to a message", self.service.send(&alice(), Line::V10, request)).await? {
            Reply::Sent(task) => Ok(*task),
            other => panic!("not a task: {other:?}"),
        }
    }

    /// Sends a message that is answered at once.
    pub async fn begin(&self, mut request: SendRequest) -> Task {
        request.options.return_immediately = true;
        self.send(request).await.unwrap()
    }

    pub async fn stream(&self, request: SendRequest) -> EventStream {
        self.service.stream(&alice(), Line::V03, request).await.unwrap()
    }

    pub async fn get(&self, id: &str) -> Task {
        self.service.get(&alice(), id, None).await.unwrap()
    }

    /// Waits until a task is as it should be.
    pub async fn until(&self, id: &str, what: &str, is: impl Fn(&Task) -> bool) -> Task {
        let mut task = self.get(id).await;
        let mut events = self.service.subscribe(&alice(), id, None).await.unwrap();
        while !is(&task) {
            match soon(what, events.next()).await {
                Some(item) => drop(item.unwrap()),
                None => return self.get(id).await,
            }
            task = self.get(id).await;
        }
        task
    }
}

/// What is left of a service that was stopped.
pub struct Stopped {
    project: TempProject,
    settings: Settings,
    agent: Agent,
}

impl Stopped {
    /// Opens it again, as the program does: first the service, then what the engine had not finished.
    pub async fn start(self) -> Lab {
        let Self { project, settings, agent } = self;
        let engine = open_engine(&project);
        let service = open_service(&project, &engine, &settings, agent).await;
        engine.recover(None).await.unwrap();
        Lab { project, engine, service, settings, agent }
    }
}

pub fn alice() -> Principal {
    Principal { identity: "alice".to_owned(), credential: None, capabilities: Default::default() }
}

pub fn bob() -> Principal {
    Principal { identity: "bob".to_owned(), ..alice() }
}

/// A message with a text.
pub fn say(id: &str, text: &str) -> SendRequest {
    SendRequest {
        message: Message {
            message_id: id.to_owned(),
            role: Role::User,
            parts: vec![Part::text(text)],
            context_id: None,
            task_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: Default::default(),
        },
        options: SendOptions::default(),
        metadata: Default::default(),
        traceparent: None,
    }
}

/// A message whose answer is scripted.
pub fn play(id: &str, steps: Value) -> SendRequest {
    say(id, &format!("SCRIPT: {steps}"))
}

/// It as a message to a task.
pub fn to_task(mut request: SendRequest, task: &Task) -> SendRequest {
    request.message.task_id = Some(task.id.clone());
    request
}

/// It as a message of a context.
pub fn in_context(mut request: SendRequest, context: &str) -> SendRequest {
    request.message.context_id = Some(context.to_owned());
    request
}

/// All events of a stream.
pub async fn collect(mut events: EventStream) -> Vec<StreamItem> {
    let mut items = Vec::new();
    while let Some(item) = soon("the next event of a stream", events.next()).await {
        items.push(item.unwrap());
    }
    items
}

/// The events among the items of a stream, and their numbers.
pub fn events(items: &[StreamItem]) -> Vec<(u64, TaskEvent)> {
    let event = |item: &StreamItem| match item {
        StreamItem::Event(event) => Some((event.seq, event.event.clone())),
        _ => None,
    };
    items.iter().filter_map(event).collect()
}

/// The text of all artifacts.
pub fn text_of(task: &Task) -> String {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let text = |part: &Part| match &part.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    };
    parts.filter_map(text).collect()
}

/// The text of the status message.
pub fn status_text(task: &Task) -> String {
    let parts = task.status.message.iter().flat_map(|message| &message.parts);
    let text = |part: &Part| match &part.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    };
    parts.filter_map(text).collect()
}

pub fn database(project: &TempProject) -> PathBuf {
    let env: BTreeMap<String, String> = project.env().into_iter().collect();
    Dirs::from_env(&env, &project.home()).data.join("trefoil.db")
}

fn open_engine(project: &TempProject) -> Engine {
    let env: BTreeMap<String, String> = project.env().into_iter().collect();
    let dirs = Dirs::from_env(&env, &project.home());
    let store = store::Store::open(&database(project)).unwrap();
    let inputs = Inputs { directory: project.path().to_owned(), home: project.home(), dirs, env, trust: Trust::All };
    Engine::open(engine::Options {
        store,
        llm: llm::Llm::new("trefoil/test"),
        exec: exec::Exec::direct(),
        inputs,
        scripts: BTreeMap::from([("demo".to_owned(), Arc::new(llm::Script::demo()))]).into_iter().collect(),
        question_tool: true,
        careful: false,
        runners: Default::default(),
        tools: Vec::new(),
        version: "0.0.0".to_owned(),
    })
    .unwrap()
}

/// A service in front of another agent runtime.
pub async fn service_on(project: &TempProject, host: Arc<dyn AgentRuntime>) -> Service {
    open_on(project, host, &Settings::default(), Agent::Host).await
}

/// The same, with settings.
pub async fn service_with(project: &TempProject, host: Arc<dyn AgentRuntime>, settings: &Settings) -> Service {
    open_on(project, host, settings, Agent::Host).await
}

/// A service whose rows are gone when it stops.
pub async fn temporary_service(project: &TempProject, host: Arc<dyn AgentRuntime>, agent: Agent) -> Service {
    let records = Records::open_temporary(project.root()).await.unwrap();
    open_with(project, host, records, &Settings::default(), agent).await
}

async fn open_service(project: &TempProject, engine: &Engine, settings: &Settings, agent: Agent) -> Service {
    open_on(project, Arc::new(engine.clone()), settings, agent).await
}

async fn open_on(project: &TempProject, host: Arc<dyn AgentRuntime>, settings: &Settings, agent: Agent) -> Service {
    let path = database(project);
    let records = Records::open(store::Store::open(&path).unwrap(), &path).await.unwrap();
    open_with(project, host, records, settings, agent).await
}

async fn open_with(
    project: &TempProject,
    host: Arc<dyn AgentRuntime>,
    records: Records,
    settings: &Settings,
    agent: Agent,
) -> Service {
    let settings = settings.into();
    let workspace_root = project.path().to_owned();
    Service::open(ServiceOptions { host, records, settings, workspace_root, agent }).await.unwrap()
}
