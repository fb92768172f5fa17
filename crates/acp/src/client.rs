//! The client side of ACP: runs another program's agent, gives it files and terminals within a folder, and tracks its
//! subagents. Messages are parsed leniently, as plain JSON values, because agents of all versions connect here.

mod choices;
mod events;
mod files;
mod form;
mod handler;
mod process;
mod subagents;
mod terminals;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::RunnerContext;
use exec::{Exec, ExecError};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use choices::{Choice, Choices};
pub use events::{Event, Events, Permission, PermissionChoice};
pub use files::Root;
pub use form::{Field, FieldInput, FieldKind, Form};
pub use process::AgentProcess;
pub use subagents::Subagent;

use crate::rpc::{self, Error, Peer, Sink, Source, Timeout, code};
use events::BackpressureSource;
use handler::ClientHandler;
use terminals::Terminals;

/// How long closing waits for the connection; the connection's own limit is shorter.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why talking to an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The program did not start.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// The agent returned an error, did not respond, or disconnected.
    #[error("{method}: {}{}", error.message, details(error))]
    Refused {
        /// The method.
        method: &'static str,
        /// The error.
        error: Error,
    },
    /// The response lacks a required field.
    #[error("the agent's answer to {method} has no {field}")]
    Incomplete {
        /// The method.
        method: &'static str,
        /// The missing field.
        field: &'static str,
    },
    /// There is no such model or mode.
    #[error("the agent has no {what} {wanted:?}")]
    Unknown {
        /// "model" or "mode".
        what: &'static str,
        /// The given name.
        wanted: String,
        /// The ids that exist.
        known: Vec<String>,
    },
    /// The agent lacks a capability.
    #[error("the agent cannot {0}")]
    Unable(&'static str),
}

impl ClientError {
    /// Whether the user must sign in first.
    pub fn wants_login(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.code == code::AUTH_REQUIRED)
    }
}

/// The data of an error; some agents put all details there.
fn details(error: &Error) -> String {
    match error.data.as_ref() {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => format!(": {text}"),
        Some(data) => format!(": {data}"),
    }
}

/// What a client needs to run.
pub struct ClientOptions {
    /// The folder in which the agent gets files and terminals.
    pub root: Root,
    /// Runs its terminals.
    pub exec: Exec,
    /// The version reported to the agent.
    pub version: String,
    /// How long the agent may take to respond, except to a prompt.
    pub timeout: Duration,
    /// Serves files and decides about files and commands. Without one, files come from the disk, and
    /// [`Event::Permission`] asks.
    pub context: Option<Arc<dyn RunnerContext>>,
}

/// A session that is open at the agent.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Its models, modes and options.
    pub choices: Choices,
}

/// A connection to an agent. While any of its futures is awaited, the [`Events`] must be read: a full event queue stops
/// reading from the agent.
pub struct Client {
    peer: Peer,
    version: String,
    timeout: Timeout,
    stop: CancellationToken,
    connection: JoinHandle<()>,
    terminals: Arc<Terminals>,
    handler: Arc<ClientHandler>,
    /// Dropping the client closes the connection.
    _close_on_drop: DropGuard,
}

impl Client {
    /// Connects to an agent over `source` and `sink`.
    pub fn connect(source: impl Source + 'static, sink: impl Sink + 'static, options: ClientOptions) -> (Self, Events) {
        let peer = Peer::default();
        let stop = CancellationToken::new();
        let terminals = Arc::new(Terminals::new(options.exec, options.root.clone(), stop.clone()));
        let (sender, events) = events::channel();
        let handler = Arc::new(ClientHandler::new(sender.clone(), options.root, terminals.clone(), options.context));
        let source = BackpressureSource::new(source, sender);
        let (reader_peer, end, requests) = (peer.clone(), stop.clone(), handler.clone());
        let connection = tokio::spawn(async move { rpc::run(source, sink, reader_peer, requests, end).await });
        let (timeout, guard) = (Timeout::After(options.timeout), stop.clone().drop_guard());
        (
            Self {
                peer,
                version: options.version,
                timeout,
                stop,
                connection,
                terminals,
                handler,
                _close_on_drop: guard,
            },
            events,
        )
    }

    async fn request(&self, method: &'static str, params: Value, timeout: Timeout) -> Result<Value, ClientError> {
        self.peer.request(method, &params, timeout).await.map_err(|error| ClientError::Refused { method, error })
    }

    /// Sends `initialize` and returns the agent's response.
    pub async fn initialize(&self) -> Result<Value, ClientError> {
        let mut params = json!({
            "protocolVersion": 1,
            "clientInfo": {"name": "trefoil", "title": "Trefoil", "version": self.version},
            "clientCapabilities": {
                "fs": {"readTextFile": true, "writeTextFile": true},
                "terminal": true,
                "subagents": {},
                "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
                // OpenCode's extension that reports subagents.
                "_meta": {"opencode/child-session-updates": true},
            },
        });
        if self.handler.has_user() {
            params["clientCapabilities"]["elicitation"] = json!({"form": {}});
        }
        self.request("initialize", params, self.timeout).await
    }

    /// Opens a new session in a folder.
    pub async fn new_session(&self, directory: &Path) -> Result<Session, ClientError> {
        const METHOD: &str = "session/new";
        let answer = self.request(METHOD, json!({"cwd": directory, "mcpServers": []}), self.timeout).await?;
        let incomplete = ClientError::Incomplete { method: METHOD, field: "sessionId" };
        let id = answer["sessionId"].as_str().ok_or(incomplete)?.to_owned();
        Ok(Session { id, choices: Choices::of(&answer) })
    }

    /// Opens an existing session. The agent replays the conversation as events if it can.
    pub async fn open_session(&self, id: &str, directory: &Path, agent: &Value) -> Result<Session, ClientError> {
        let capabilities = &agent["agentCapabilities"];
        let method = if capabilities["loadSession"] == true {
            "session/load"
        } else if capabilities["sessionCapabilities"]["resume"].is_object() {
            "session/resume"
        } else {
            return Err(ClientError::Unable("open sessions again"));
        };
        self.reopen(method, id, directory).await
    }

    /// Opens an existing session to continue it, without a replay if the agent supports that.
    pub async fn resume_session(&self, id: &str, directory: &Path, agent: &Value) -> Result<Session, ClientError> {
        match agent["agentCapabilities"]["sessionCapabilities"]["resume"].is_object() {
            true => self.reopen("session/resume", id, directory).await,
            false => self.open_session(id, directory, agent).await,
        }
    }

    async fn reopen(&self, method: &'static str, id: &str, directory: &Path) -> Result<Session, ClientError> {
        let params = json!({"sessionId": id, "cwd": directory, "mcpServers": []});
        let answer = self.request(method, params, self.timeout).await?;
        Ok(Session { id: id.to_owned(), choices: Choices::of(&answer) })
    }

    /// Selects a model by id or name.
    pub async fn set_model(&self, session: &mut Session, wanted: &str) -> Result<(), ClientError> {
        let (choice, option) = (session.choices.model(wanted)?, session.choices.model_option());
        self.select(session, &choice, option, ("session/set_model", "modelId")).await
    }

    /// Selects a mode by id or name.
    pub async fn set_mode(&self, session: &mut Session, wanted: &str) -> Result<(), ClientError> {
        let (choice, option) = (session.choices.mode(wanted)?, session.choices.mode_option());
        self.select(session, &choice, option, ("session/set_mode", "modeId")).await
    }

    /// Selects through a config option, or through the method of older agents.
    async fn select(
        &self,
        session: &mut Session,
        choice: &Choice,
        option: Option<String>,
        (older, key): (&'static str, &str),
    ) -> Result<(), ClientError> {
        let Some(option) = option else {
            return self.request(older, json!({"sessionId": session.id, key: choice.id}), self.timeout).await.map(drop);
        };
        let params = json!({"sessionId": session.id, "configId": option, "value": choice.id});
        let answer = self.request("session/set_config_option", params, self.timeout).await?;
        session.choices.update(&answer);
        Ok(())
    }

    /// Sends a text prompt and returns the response at the end of the turn. There is no timeout: the caller reads the
    /// events meanwhile and decides how much silence is too much.
    pub async fn prompt(&self, session: &str, text: &str) -> Result<Value, ClientError> {
        self.prompt_blocks(session, &[json!({"type": "text", "text": text})]).await
    }

    /// Like [`prompt`](Self::prompt), with any content blocks.
    pub async fn prompt_blocks(&self, session: &str, blocks: &[Value]) -> Result<Value, ClientError> {
        let params = json!({ "sessionId": session, "prompt": blocks });
        self.request("session/prompt", params, Timeout::Never).await
    }

    /// Sends a message into the running turn, if the agent [can](Self::can_steer) take one.
    pub async fn steer(&self, session: &str, blocks: &[Value]) -> Result<Value, ClientError> {
        self.request("_session/steering", json!({ "sessionId": session, "prompt": blocks }), self.timeout).await
    }

    /// Whether an agent accepts messages while a turn runs, according to its `initialize` response.
    pub fn can_steer(agent: &Value) -> bool {
        [&agent["agentCapabilities"]["_meta"], &agent["_meta"]].iter().any(|meta| meta["steering"]["supported"] == true)
    }

    /// Whether the client is working for the agent: a command runs, or a file waits for a permission.
    pub fn is_busy(&self) -> bool {
        self.handler.is_busy() || self.terminals.is_running()
    }

    /// Sets the context that decides about a subagent's files and commands; `None` falls back to the session's.
    pub fn set_child_context(&self, session: &str, context: Option<Arc<dyn RunnerContext>>) {
        self.handler.set_child_context(session, context);
    }

    /// What a command of the agent printed, even shortly after its release.
    pub fn terminal_text(&self, id: &str) -> Option<String> {
        self.terminals.text(id)
    }

    /// Asks the agent to end the turn; its prompt still gets a response.
    pub async fn cancel(&self, session: &str) {
        self.peer.notify("session/cancel", &json!({ "sessionId": session })).await;
    }

    /// Disconnects, and ends the agent's terminals.
    pub async fn close(self) {
        self.stop.cancel();
        self.terminals.close().await;
        // The connection ends by itself; it has limits of its own.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.connection).await;
    }
}
