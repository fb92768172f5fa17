//! An agent on an engine in this process, and a client that drives it over a pipe. Every line that the agent sends is
//! validated against the schema.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use api::{AgentRuntime, Environment, SessionId};
use config::{Dirs, Inputs, Trust};
use engine::Engine;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use testkit::{TempProject, WAIT, soon};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trefoil_acp::rpc::{ByteSink, ByteSource};
use trefoil_acp::{AgentOptions, LocalEngine, Login, McpOwners};

use super::schema;

/// How a client reacts to a request of the agent.
pub enum Reply {
    Result(Value),
    Error(Value),
    /// It does not respond.
    Never,
    /// It sends this line.
    Raw(String),
}

type ReplyFn = Box<dyn FnMut(&str, &Value) -> Reply + Send>;

/// A project with an engine.
pub struct Lab {
    pub project: TempProject,
    pub engine: Engine,
}

struct TestEngine(Engine);

impl LocalEngine for TestEngine {
    fn disk(&self) -> Arc<dyn Environment> {
        Arc::new(tools::LocalEnvironment)
    }

    fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        self.0.bind(session, environment);
    }
}

impl Lab {
    pub fn new() -> Self {
        Self::with(json!({"permission": {"edit": "allow", "bash": "allow"}}))
    }

    /// A project with this configuration.
    pub fn with(config: Value) -> Self {
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        let engine = open(&project);
        Self { project, engine }
    }

    pub fn cwd(&self) -> String {
        self.project.directory()
    }

    /// A prompt whose turn writes this text and then hangs until it is stopped.
    pub fn hanging_prompt(&self, text: &str) -> String {
        script(json!([{"text": text, "hold": self.project.path().join("never")}]))
    }

    /// A client with these capabilities.
    pub async fn client(&self, capabilities: Value) -> Client {
        let client = self.uninitialized_client();
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        client.request("initialize", params.clone()).await.unwrap();
        client.connection.set_capabilities(&params["clientCapabilities"]);
        client
    }

    /// One of several clients of a process.
    pub async fn client_sharing(&self, clients: &McpOwners) -> Client {
        let (ours, agent, stop) = start(Arc::new(self.engine.clone()), None, clients.clone());
        let client = Client::new(ours, agent, stop);
        client.request("initialize", json!({ "protocolVersion": 1 })).await.unwrap();
        client
    }

    /// The pipe of an agent, for other clients than this rig's.
    pub fn pipe(&self) -> DuplexStream {
        start(Arc::new(self.engine.clone()), Some(Arc::new(TestEngine(self.engine.clone()))), McpOwners::default()).0
    }

    /// A client that has not called `initialize`.
    pub fn uninitialized_client(&self) -> Client {
        let host: Arc<dyn AgentRuntime> = Arc::new(self.engine.clone());
        serve(host, Some(Arc::new(TestEngine(self.engine.clone()))))
    }
}

pub fn open(project: &TempProject) -> Engine {
    open_with(project, [("demo".to_owned(), Arc::new(llm::Script::demo()))])
}

/// Opens an engine with these models.
pub fn open_with(project: &TempProject, scripts: impl IntoIterator<Item = (String, Arc<llm::Script>)>) -> Engine {
    let env: BTreeMap<String, String> = project.env().into_iter().collect();
    let dirs = Dirs::from_env(&env, &project.home());
    let store = store::Store::open(&dirs.data.join("trefoil.db")).unwrap();
    let inputs = Inputs { directory: project.path().to_owned(), home: project.home(), dirs, env, trust: Trust::All };
    let scripts = scripts.into_iter().collect();
    let llm = llm::Llm::new("trefoil/test");
    let (exec, version) = (exec::Exec::direct(), "0.0.0".to_owned());
    let (question_tool, careful) = (true, true);
    let runners = Default::default();
    Engine::open(engine::Options {
        store,
        llm,
        exec,
        inputs,
        scripts,
        question_tool,
        careful,
        runners,
        tools: Vec::new(),
        version,
    })
    .unwrap()
}

/// An agent in front of a host, and its client.
pub fn serve(host: Arc<dyn AgentRuntime>, local: Option<Arc<dyn LocalEngine>>) -> Client {
    let (ours, agent, stop) = start(host, local, McpOwners::default());
    Client::new(ours, agent, stop)
}

/// An agent, and the other end of its pipe.
fn start(
    host: Arc<dyn AgentRuntime>,
    local: Option<Arc<dyn LocalEngine>>,
    mcp_owners: McpOwners,
) -> (DuplexStream, JoinHandle<()>, CancellationToken) {
    let login = Login { program: "trefoil".into(), command: vec!["acp".into()], args: vec!["--login".into()] };
    let options = AgentOptions { host, local, version: "1.2.3".into(), login, mcp_owners };
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(theirs);
    let stop = CancellationToken::new();
    let agent = tokio::spawn(trefoil_acp::serve(options, ByteSource::new(read), ByteSink::new(write), stop.clone()));
    (ours, agent, stop)
}

/// A client of an agent.
pub struct Client {
    pub connection: Arc<ClientConnection>,
    pub agent: JoinHandle<()>,
    pub stop: CancellationToken,
    reader: JoinHandle<()>,
}

/// A request in progress; awaiting it returns the response, and fails the test if none comes.
pub struct PendingRequest {
    method: String,
    answer: oneshot::Receiver<Result<Value, Value>>,
    connection: Arc<ClientConnection>,
}

impl IntoFuture for PendingRequest {
    type Output = Result<Value, Value>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match tokio::time::timeout(WAIT, self.answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => {
                    panic!("{}: the connection was closed; received: {:#?}", self.method, self.connection.received())
                }
                Err(_) => panic!(
                    "{} was not answered within {WAIT:?}; received: {:#?}",
                    self.method,
                    self.connection.received()
                ),
            }
        })
    }
}

pub struct ClientConnection {
    writer: tokio::sync::Mutex<Option<WriteHalf<DuplexStream>>>,
    state: Mutex<ReceivedState>,
    arrived: Notify,
    /// Locked while the client does not read.
    reading: tokio::sync::Mutex<()>,
}

struct ReceivedState {
    next: u64,
    pending: HashMap<String, (String, oneshot::Sender<Result<Value, Value>>)>,
    /// Everything that the agent sent, in order.
    received: Vec<Value>,
    reply: ReplyFn,
    unstable: bool,
    /// Messages that violate the schema.
    violations: Vec<String>,
}

impl ReceivedState {
    fn check(&mut self, checked: Result<(), String>) {
        self.violations.extend(checked.err());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.connection.state.lock().unwrap().violations, Vec::<String>::new());
        }
        self.reader.abort();
        self.stop.cancel();
    }
}

impl Client {
    fn new(stream: DuplexStream, agent: JoinHandle<()>, stop: CancellationToken) -> Self {
        let (read, write) = tokio::io::split(stream);
        let state = ReceivedState {
            next: 0,
            pending: HashMap::new(),
            received: Vec::new(),
            reply: Box::new(|method, _| panic!("the client was asked for {method}")),
            unstable: false,
            violations: Vec::new(),
        };
        let connection = Arc::new(ClientConnection {
            writer: tokio::sync::Mutex::new(Some(write)),
            state: Mutex::new(state),
            arrived: Notify::new(),
            reading: tokio::sync::Mutex::new(()),
        });
        let reader = tokio::spawn({
            let connection = connection.clone();
            async move {
                let mut lines = BufReader::new(read).lines();
                loop {
                    drop(connection.reading.lock().await);
                    let Ok(Some(line)) = lines.next_line().await else { break };
                    assert!(line.len() < 1 << 20, "a message of {} bytes", line.len());
                    connection
                        .handle(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
                        .await;
                }
            }
        });
        Self { connection, agent, stop, reader }
    }

    /// Sets how the client reacts to requests of the agent.
    pub fn on_request(&self, reply: impl FnMut(&str, &Value) -> Reply + Send + 'static) {
        self.connection.state.lock().unwrap().reply = Box::new(reply);
    }

    /// Sends a request and waits for the response.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.start_request(method, params).await.await
    }

    /// Sends a request; the response comes later.
    pub async fn start_request(&self, method: &str, params: Value) -> PendingRequest {
        let id = {
            let mut state = self.connection.state.lock().unwrap();
            state.next += 1;
            json!(state.next)
        };
        self.start_request_as(id, method, params).await
    }

    /// Sends a request with an explicit id.
    pub async fn start_request_as(&self, id: Value, method: &str, params: Value) -> PendingRequest {
        let (sender, answer) = oneshot::channel();
        self.connection.state.lock().unwrap().pending.insert(id.to_string(), (method.to_owned(), sender));
        self.raw(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        PendingRequest { method: method.to_owned(), answer, connection: self.connection.clone() }
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) {
        self.raw(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    /// Sends a line.
    pub async fn raw(&self, line: impl AsRef<[u8]>) {
        self.connection.send(line.as_ref()).await;
    }

    /// Closes the client's end of the pipe.
    pub async fn disconnect(&self) {
        if let Some(mut writer) = self.connection.writer.lock().await.take() {
            let _ = writer.shutdown().await;
        }
    }

    /// Stops reading until the guard is dropped.
    pub async fn stall(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.connection.reading.lock().await
    }

    /// Everything that the agent sent.
    pub fn received(&self) -> Vec<Value> {
        self.connection.received()
    }

    /// Waits until the agent has ended.
    pub async fn wait_for_end(&mut self) {
        soon("the agent's end", &mut self.agent).await.unwrap();
    }

    /// The last message except title updates, which arrive independently of a turn.
    pub fn last_received(&self) -> Value {
        let titled = |message: &Value| message["params"]["update"]["sessionUpdate"] == "session_info_update";
        self.received().into_iter().rfind(|message| !titled(message)).unwrap()
    }

    /// The updates of a session, in order.
    pub fn updates(&self, session: &str) -> Vec<Value> {
        let received = self.received();
        let of = |message: &&Value| message["params"]["sessionId"] == session && message["method"] == "session/update";
        received.iter().filter(of).map(|message| message["params"]["update"].clone()).collect()
    }

    /// The updates of one kind.
    pub fn updates_of_kind(&self, session: &str, kind: &str) -> Vec<Value> {
        self.updates(session).into_iter().filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// The agent's text in a session.
    pub fn text(&self, session: &str) -> String {
        let chunks = self.updates_of_kind(session, "agent_message_chunk");
        chunks.iter().filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
    }

    /// Waits until the received messages satisfy a condition.
    pub async fn wait_until(&self, what: &str, matches: impl Fn(&[Value]) -> bool) {
        let waited = tokio::time::timeout(WAIT, async {
            loop {
                let arrived = self.connection.arrived.notified();
                if matches(&self.connection.state.lock().unwrap().received) {
                    return;
                }
                arrived.await;
            }
        });
        if waited.await.is_err() {
            panic!("{what} did not happen within {WAIT:?}; received: {:#?}", self.received());
        }
    }

    /// Waits for a matching update of a session.
    pub async fn wait_for_update(&self, session: &str, what: &str, matches: impl Fn(&Value) -> bool) {
        self.wait_until(what, |received| {
            received
                .iter()
                .any(|message| message["params"]["sessionId"] == session && matches(&message["params"]["update"]))
        })
        .await;
    }

    /// Waits until the agent's text ends with this, however it is split.
    pub async fn wait_for_text(&self, session: &str, text: &str) {
        let matches = |received: &[Value]| {
            let of = |message: &&Value| {
                message["params"]["sessionId"] == session
                    && message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
            };
            let chunks = received.iter().filter(of).filter_map(|m| m["params"]["update"]["content"]["text"].as_str());
            chunks.collect::<String>().ends_with(text)
        };
        self.wait_until(text, matches).await;
    }

    /// A new session in the lab's project.
    pub async fn session(&self, lab: &Lab) -> String {
        let made = self.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// A new session with the test server as `s`.
    pub async fn session_with_server(&self, lab: &Lab) -> String {
        let program = testkit::mcp_server(lab.project.path());
        let servers = json!([{"name": "s", "command": "python3", "args": [program, "polite"], "env": []}]);
        let made = self.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": servers})).await.unwrap();
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// Runs a prompt to its end.
    pub async fn prompt(&self, session: &str, text: &str) -> Result<Value, Value> {
        self.request("session/prompt", prompt(session, text)).await
    }

    /// Sends a raw line and returns the agent's response.
    pub async fn response_to(&self, line: impl AsRef<[u8]>) -> Value {
        let before = self.received().len();
        self.raw(line).await;
        self.wait_until("an answer", |received| received.len() > before).await;
        self.received()[before].clone()
    }
}

impl ClientConnection {
    fn received(&self) -> Vec<Value> {
        self.state.lock().unwrap().received.clone()
    }

    fn set_capabilities(&self, capabilities: &Value) {
        self.state.lock().unwrap().unstable = !capabilities["subagents"].is_null();
    }

    async fn send(&self, line: &[u8]) {
        let mut writer = self.writer.lock().await;
        if let Some(writer) = writer.as_mut() {
            let _ = writer.write_all(&[line, b"\n"].concat()).await;
        }
    }

    async fn handle(&self, message: Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let answer = {
            let mut state = self.state.lock().unwrap();
            state.received.push(message.clone());
            match (message["method"].as_str(), &message["id"]) {
                (Some(method), Value::Null) => {
                    let unstable = state.unstable;
                    state.check(schema::notification(method, &message["params"], unstable));
                    None
                }
                (Some(method), id) => {
                    state.check(schema::request(method, &message["params"]));
                    let (id, params) = (id.clone(), message["params"].clone());
                    Some((id, (state.reply)(method, &params)))
                }
                (None, id) => {
                    if let Some((method, waiting)) = state.pending.remove(&id.to_string()) {
                        let result = match message.get("error") {
                            Some(error) => Err(error.clone()),
                            None => Ok(message["result"].clone()),
                        };
                        if let Ok(result) = &result {
                            state.check(schema::response(&method, result));
                        }
                        let _ = waiting.send(result);
                    }
                    if let Some(error) = message.get("error") {
                        state.check(schema::check("Error", error));
                    }
                    None
                }
            }
        };
        self.arrived.notify_waiters();
        match answer {
            None | Some((_, Reply::Never)) => {}
            Some((_, Reply::Raw(line))) => self.send(line.as_bytes()).await,
            Some((id, Reply::Result(result))) => {
                self.send(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().as_bytes()).await;
            }
            Some((id, Reply::Error(error))) => {
                self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().as_bytes()).await;
            }
        }
    }
}

pub fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// A prompt that makes the scripted model play these steps.
pub fn script(steps: Value) -> String {
    format!("SCRIPT: {steps}")
}

/// Answers a permission request with an option.
pub fn selected(option: &str) -> Reply {
    Reply::Result(json!({"outcome": {"outcome": "selected", "optionId": option}}))
}

/// A command that runs until the test writes the file `go`.
pub const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done";
