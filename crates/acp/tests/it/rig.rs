//! An agent on an engine in this process, and a client that drives it over a pipe. Every line that the agent sends is
//! checked against the schema.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use api::{Environment, Host, SessionId};
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
use trefoil_acp::{Brought, Local, Login, Options};

use super::schema;

/// What a client does with a request of the agent.
pub enum Answer {
    Result(Value),
    Error(Value),
    /// It never answers.
    Never,
    /// It sends this line.
    Raw(String),
}

type Answers = Box<dyn FnMut(&str, &Value) -> Answer + Send>;

/// A project with an engine.
pub struct Lab {
    pub project: TempProject,
    pub engine: Engine,
}

struct Own(Engine);

impl Local for Own {
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

    /// With this configuration.
    pub fn with(config: Value) -> Self {
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        let engine = open(&project);
        Self { project, engine }
    }

    pub fn cwd(&self) -> String {
        self.project.directory()
    }

    /// A prompt whose turn says this and then stays, until it is stopped.
    pub fn staying(&self, text: &str) -> String {
        script(json!([{"text": text, "hold": self.project.path().join("never")}]))
    }

    /// A client that announces this.
    pub async fn client(&self, capabilities: Value) -> Client {
        let client = self.stranger();
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        client.ask("initialize", params.clone()).await.unwrap();
        client.shared.announced(&params["clientCapabilities"]);
        client
    }

    /// One of several clients of a process.
    pub async fn client_of(&self, clients: &Brought) -> Client {
        let (ours, agent, stop) = start(Arc::new(self.engine.clone()), None, clients.clone());
        let client = Client::new(ours, agent, stop);
        client.ask("initialize", json!({ "protocolVersion": 1 })).await.unwrap();
        client
    }

    /// The pipe of an agent, for a client that is not ours.
    pub fn pipe(&self) -> DuplexStream {
        start(Arc::new(self.engine.clone()), Some(Arc::new(Own(self.engine.clone()))), Brought::default()).0
    }

    /// A client that has not said hello.
    pub fn stranger(&self) -> Client {
        let host: Arc<dyn Host> = Arc::new(self.engine.clone());
        serve(host, Some(Arc::new(Own(self.engine.clone()))))
    }
}

pub fn open(project: &TempProject) -> Engine {
    open_with(project, [("demo".to_owned(), Arc::new(llm::Script::demo()))])
}

/// With these models.
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
    Engine::open(engine::Options { store, llm, exec, inputs, scripts, question_tool, careful, runners, version })
        .unwrap()
}

/// An agent in front of a host, and its client.
pub fn serve(host: Arc<dyn Host>, local: Option<Arc<dyn Local>>) -> Client {
    let (ours, agent, stop) = start(host, local, Brought::default());
    Client::new(ours, agent, stop)
}

/// An agent, and the other end of its pipe.
fn start(
    host: Arc<dyn Host>,
    local: Option<Arc<dyn Local>>,
    brought: Brought,
) -> (DuplexStream, JoinHandle<()>, CancellationToken) {
    let login = Login { program: "trefoil".into(), command: vec!["acp".into()], args: vec!["--login".into()] };
    let options = Options { host, local, version: "1.2.3".into(), login, brought };
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(theirs);
    let stop = CancellationToken::new();
    let agent = tokio::spawn(trefoil_acp::serve(options, ByteSource::new(read), ByteSink::new(write), stop.clone()));
    (ours, agent, stop)
}

/// A client of an agent.
pub struct Client {
    pub shared: Arc<Shared>,
    pub agent: JoinHandle<()>,
    pub stop: CancellationToken,
    reader: JoinHandle<()>,
}

/// A request; waiting for it gives its answer, and fails the test if none comes.
pub struct Asked {
    method: String,
    answer: oneshot::Receiver<Result<Value, Value>>,
    shared: Arc<Shared>,
}

impl IntoFuture for Asked {
    type Output = Result<Value, Value>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match tokio::time::timeout(WAIT, self.answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => panic!("{}: the connection was closed; said: {:#?}", self.method, self.shared.said()),
                Err(_) => panic!("{} was not answered within {WAIT:?}; said: {:#?}", self.method, self.shared.said()),
            }
        })
    }
}

pub struct Shared {
    writer: tokio::sync::Mutex<Option<WriteHalf<DuplexStream>>>,
    state: Mutex<State>,
    news: Notify,
    /// Taken while the client does not read.
    reading: tokio::sync::Mutex<()>,
}

struct State {
    next: u64,
    asked: HashMap<String, (String, oneshot::Sender<Result<Value, Value>>)>,
    /// Everything that the agent sent, in its order.
    said: Vec<Value>,
    answers: Answers,
    unstable: bool,
    /// What the agent said that the schema does not know.
    broken: Vec<String>,
}

impl State {
    fn check(&mut self, checked: Result<(), String>) {
        self.broken.extend(checked.err());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.shared.state.lock().unwrap().broken, Vec::<String>::new());
        }
        self.reader.abort();
        self.stop.cancel();
    }
}

impl Client {
    fn new(stream: DuplexStream, agent: JoinHandle<()>, stop: CancellationToken) -> Self {
        let (read, write) = tokio::io::split(stream);
        let state = State {
            next: 0,
            asked: HashMap::new(),
            said: Vec::new(),
            answers: Box::new(|method, _| panic!("the client was asked for {method}")),
            unstable: false,
            broken: Vec::new(),
        };
        let shared = Arc::new(Shared {
            writer: tokio::sync::Mutex::new(Some(write)),
            state: Mutex::new(state),
            news: Notify::new(),
            reading: tokio::sync::Mutex::new(()),
        });
        let reader = tokio::spawn({
            let shared = shared.clone();
            async move {
                let mut lines = BufReader::new(read).lines();
                loop {
                    drop(shared.reading.lock().await);
                    let Ok(Some(line)) = lines.next_line().await else { break };
                    assert!(line.len() < 1 << 20, "a message of {} bytes", line.len());
                    shared.take(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))).await;
                }
            }
        });
        Self { shared, agent, stop, reader }
    }

    /// How the agent's requests are answered from now on.
    pub fn answers(&self, answers: impl FnMut(&str, &Value) -> Answer + Send + 'static) {
        self.shared.state.lock().unwrap().answers = Box::new(answers);
    }

    /// Asks and waits.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.start(method, params).await.await
    }

    /// Asks; the answer comes later.
    pub async fn start(&self, method: &str, params: Value) -> Asked {
        let id = {
            let mut state = self.shared.state.lock().unwrap();
            state.next += 1;
            json!(state.next)
        };
        self.start_as(id, method, params).await
    }

    /// Asks under an id of one's own.
    pub async fn start_as(&self, id: Value, method: &str, params: Value) -> Asked {
        let (sender, answer) = oneshot::channel();
        self.shared.state.lock().unwrap().asked.insert(id.to_string(), (method.to_owned(), sender));
        self.raw(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        Asked { method: method.to_owned(), answer, shared: self.shared.clone() }
    }

    /// Tells.
    pub async fn tell(&self, method: &str, params: Value) {
        self.raw(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    /// Sends a line.
    pub async fn raw(&self, line: impl AsRef<[u8]>) {
        self.shared.send(line.as_ref()).await;
    }

    /// Hangs up.
    pub async fn hang_up(&self) {
        if let Some(mut writer) = self.shared.writer.lock().await.take() {
            let _ = writer.shutdown().await;
        }
    }

    /// Does not read until the guard is dropped.
    pub async fn stall(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.reading.lock().await
    }

    /// Everything that the agent said.
    pub fn said(&self) -> Vec<Value> {
        self.shared.said()
    }

    /// Waits until the agent has come to its end.
    pub async fn ended(&mut self) {
        soon("the agent's end", &mut self.agent).await.unwrap();
    }

    /// The last of it but titles, which are made beside a turn.
    pub fn last_said(&self) -> Value {
        let titled = |message: &Value| message["params"]["update"]["sessionUpdate"] == "session_info_update";
        self.said().into_iter().rfind(|message| !titled(message)).unwrap()
    }

    /// The updates of a session, in their order.
    pub fn updates(&self, session: &str) -> Vec<Value> {
        let said = self.said();
        let of = |message: &&Value| message["params"]["sessionId"] == session && message["method"] == "session/update";
        said.iter().filter(of).map(|message| message["params"]["update"].clone()).collect()
    }

    /// The updates of one kind.
    pub fn kind(&self, session: &str, kind: &str) -> Vec<Value> {
        self.updates(session).into_iter().filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// What the agent said to the human.
    pub fn text(&self, session: &str) -> String {
        let chunks = self.kind(session, "agent_message_chunk");
        chunks.iter().filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
    }

    /// Waits until the agent said something that fits.
    pub async fn until(&self, what: &str, fits: impl Fn(&[Value]) -> bool) {
        let waited = tokio::time::timeout(WAIT, async {
            loop {
                let news = self.shared.news.notified();
                if fits(&self.shared.state.lock().unwrap().said) {
                    return;
                }
                news.await;
            }
        });
        if waited.await.is_err() {
            panic!("{what} did not happen within {WAIT:?}; said: {:#?}", self.said());
        }
    }

    /// Waits for an update of a session that fits.
    pub async fn until_update(&self, session: &str, what: &str, fits: impl Fn(&Value) -> bool) {
        self.until(what, |said| {
            said.iter().any(|message| message["params"]["sessionId"] == session && fits(&message["params"]["update"]))
        })
        .await;
    }

    /// Waits until the agent has said this, whatever the pieces are.
    pub async fn until_text(&self, session: &str, text: &str) {
        let fits = |said: &[Value]| {
            let of = |message: &&Value| {
                message["params"]["sessionId"] == session
                    && message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
            };
            let chunks = said.iter().filter(of).filter_map(|m| m["params"]["update"]["content"]["text"].as_str());
            chunks.collect::<String>().ends_with(text)
        };
        self.until(text, fits).await;
    }

    /// A new session in the lab's project.
    pub async fn session(&self, lab: &Lab) -> String {
        let made = self.ask("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// A new session that brings the test server along, as `s`.
    pub async fn session_with_server(&self, lab: &Lab) -> String {
        let program = testkit::mcp_server(lab.project.path());
        let servers = json!([{"name": "s", "command": "python3", "args": [program, "polite"], "env": []}]);
        let made = self.ask("session/new", json!({"cwd": lab.cwd(), "mcpServers": servers})).await.unwrap();
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// A prompt, to its end.
    pub async fn prompt(&self, session: &str, text: &str) -> Result<Value, Value> {
        self.ask("session/prompt", prompt(session, text)).await
    }

    /// The answer of the agent to a line of our own.
    pub async fn answer_to(&self, line: impl AsRef<[u8]>) -> Value {
        let before = self.said().len();
        self.raw(line).await;
        self.until("an answer", |said| said.len() > before).await;
        self.said()[before].clone()
    }
}

impl Shared {
    fn said(&self) -> Vec<Value> {
        self.state.lock().unwrap().said.clone()
    }

    fn announced(&self, capabilities: &Value) {
        self.state.lock().unwrap().unstable = !capabilities["subagents"].is_null();
    }

    async fn send(&self, line: &[u8]) {
        let mut writer = self.writer.lock().await;
        if let Some(writer) = writer.as_mut() {
            let _ = writer.write_all(&[line, b"\n"].concat()).await;
        }
    }

    async fn take(&self, message: Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let answer = {
            let mut state = self.state.lock().unwrap();
            state.said.push(message.clone());
            match (message["method"].as_str(), &message["id"]) {
                (Some(method), Value::Null) => {
                    let unstable = state.unstable;
                    state.check(schema::notification(method, &message["params"], unstable));
                    None
                }
                (Some(method), id) => {
                    state.check(schema::request(method, &message["params"]));
                    let (id, params) = (id.clone(), message["params"].clone());
                    Some((id, (state.answers)(method, &params)))
                }
                (None, id) => {
                    if let Some((method, waiting)) = state.asked.remove(&id.to_string()) {
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
        self.news.notify_waiters();
        match answer {
            None | Some((_, Answer::Never)) => {}
            Some((_, Answer::Raw(line))) => self.send(line.as_bytes()).await,
            Some((id, Answer::Result(result))) => {
                self.send(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().as_bytes()).await;
            }
            Some((id, Answer::Error(error))) => {
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

/// A permission that is answered.
pub fn selected(option: &str) -> Answer {
    Answer::Result(json!({"outcome": {"outcome": "selected", "optionId": option}}))
}

/// A command that runs until the test writes the file `go`.
pub const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done";
