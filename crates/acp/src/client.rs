//! The other side of the protocol: runs an agent of others, gives it files and terminals within a folder, and follows its
//! subagents. What the agent says is taken leniently, as values: agents of all versions are met here.

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

use api::Desk;
use exec::{Exec, ExecError};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use choices::{Choice, Choices};
pub use events::{Answer, Event, Events, Permission};
pub use files::Root;
pub use form::{Field, Form, Kind, Read};
pub use process::Program;
pub use subagents::Subagent;

use crate::rpc::{self, Error, Peer, Sink, Source, Waits, code};
use events::Paced;
use handler::Server;
use terminals::Terminals;

/// How long the rest may take to be written when we hang up; the connection itself waits less.
const HANG_UP: Duration = Duration::from_secs(5);

/// What went wrong between us and an agent.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// It refused, did not answer, or hung up.
    #[error("{method}: {}{}", error.message, details(error))]
    Refused {
        /// What was asked.
        method: &'static str,
        /// What it said.
        error: Error,
    },
    /// Its answer lacks what is needed.
    #[error("the agent's answer to {method} has no {field}")]
    Incomplete {
        /// What was asked.
        method: &'static str,
        /// What is missing.
        field: &'static str,
    },
    /// It has no such thing.
    #[error("the agent has no {what} {wanted:?}")]
    Unknown {
        /// A model or a mode.
        what: &'static str,
        /// The name that was given.
        wanted: String,
        /// What it has.
        known: Vec<String>,
    },
    /// It cannot do that.
    #[error("the agent cannot {0}")]
    Unable(&'static str),
}

impl ClientError {
    /// Whether the human must sign in first.
    pub fn wants_login(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.code == code::AUTH_REQUIRED)
    }
}

/// What an error says beyond its message; some agents say everything there.
fn details(error: &Error) -> String {
    match error.data.as_ref() {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => format!(": {text}"),
        Some(data) => format!(": {data}"),
    }
}

/// What a client is made of.
pub struct Options {
    /// The folder that the agent gets files and terminals in.
    pub root: Root,
    /// What runs its terminals.
    pub exec: Exec,
    /// The version that the agent is told.
    pub version: String,
    /// How long it may take for an answer, other than to a prompt.
    pub patience: Duration,
    /// Who decides about files and commands, and has the files; without one they are given, from the disk.
    pub desk: Option<Arc<dyn Desk>>,
}

/// A session that is open at the agent.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// What can be chosen in it.
    pub choices: Choices,
}

/// A connection to an agent. While any of its futures is awaited, the [`Events`] must be read: an agent whose events are
/// not read is not heard any further.
pub struct Client {
    peer: Peer,
    version: String,
    waits: Waits,
    stop: CancellationToken,
    running: JoinHandle<()>,
    terminals: Arc<Terminals>,
    server: Arc<Server>,
    /// Whoever forgets to hang up has hung up, too.
    _leave: DropGuard,
}

impl Client {
    /// Speaks with an agent over these.
    pub fn connect(source: impl Source + 'static, sink: impl Sink + 'static, options: Options) -> (Self, Events) {
        let peer = Peer::default();
        let stop = CancellationToken::new();
        let terminals = Arc::new(Terminals::new(options.exec, options.root.clone(), stop.clone()));
        let (sender, events) = events::channel();
        let server = Arc::new(Server::new(sender.clone(), options.root, terminals.clone(), options.desk));
        let source = Paced::new(source, sender);
        let (other, end, handler) = (peer.clone(), stop.clone(), server.clone());
        let running = tokio::spawn(async move { rpc::run(source, sink, other, handler, end).await });
        let (waits, leave) = (Waits::For(options.patience), stop.clone().drop_guard());
        (Self { peer, version: options.version, waits, stop, running, terminals, server, _leave: leave }, events)
    }

    async fn ask(&self, method: &'static str, params: Value, waits: Waits) -> Result<Value, ClientError> {
        self.peer.ask(method, &params, waits).await.map_err(|error| ClientError::Refused { method, error })
    }

    /// Tells who we are and what we can do; gives the agent's answer.
    pub async fn initialize(&self) -> Result<Value, ClientError> {
        let mut params = json!({
            "protocolVersion": 1,
            "clientInfo": {"name": "trefoil", "title": "Trefoil", "version": self.version},
            "clientCapabilities": {
                "fs": {"readTextFile": true, "writeTextFile": true},
                "terminal": true,
                "subagents": {},
                "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
                // OpenCode's own way to tell of subagents.
                "_meta": {"opencode/child-session-updates": true},
            },
        });
        if self.server.fills_in_forms() {
            params["clientCapabilities"]["elicitation"] = json!({"form": {}});
        }
        self.ask("initialize", params, self.waits).await
    }

    /// Opens a new session in a folder.
    pub async fn new_session(&self, directory: &Path) -> Result<Session, ClientError> {
        const METHOD: &str = "session/new";
        let answer = self.ask(METHOD, json!({"cwd": directory, "mcpServers": []}), self.waits).await?;
        let incomplete = ClientError::Incomplete { method: METHOD, field: "sessionId" };
        let id = answer["sessionId"].as_str().ok_or(incomplete)?.to_owned();
        Ok(Session { id, choices: Choices::of(&answer) })
    }

    /// Opens a session that was there before. An agent that can shows the conversation first, as events.
    pub async fn open_session(&self, id: &str, directory: &Path, agent: &Value) -> Result<Session, ClientError> {
        let abilities = &agent["agentCapabilities"];
        let method = if abilities["loadSession"] == true {
            "session/load"
        } else if abilities["sessionCapabilities"]["resume"].is_object() {
            "session/resume"
        } else {
            return Err(ClientError::Unable("open sessions again"));
        };
        self.reopen(method, id, directory).await
    }

    /// Opens a session that was there before, to go on with it: without the conversation, if the agent can do that.
    pub async fn resume_session(&self, id: &str, directory: &Path, agent: &Value) -> Result<Session, ClientError> {
        match agent["agentCapabilities"]["sessionCapabilities"]["resume"].is_object() {
            true => self.reopen("session/resume", id, directory).await,
            false => self.open_session(id, directory, agent).await,
        }
    }

    async fn reopen(&self, method: &'static str, id: &str, directory: &Path) -> Result<Session, ClientError> {
        let params = json!({"sessionId": id, "cwd": directory, "mcpServers": []});
        let answer = self.ask(method, params, self.waits).await?;
        Ok(Session { id: id.to_owned(), choices: Choices::of(&answer) })
    }

    /// Chooses a model by its id or its name.
    pub async fn set_model(&self, session: &mut Session, wanted: &str) -> Result<(), ClientError> {
        let (choice, option) = (session.choices.model(wanted)?, session.choices.model_option());
        self.choose(session, &choice, option, ("session/set_model", "modelId")).await
    }

    /// Chooses a mode by its id or its name.
    pub async fn set_mode(&self, session: &mut Session, wanted: &str) -> Result<(), ClientError> {
        let (choice, option) = (session.choices.mode(wanted)?, session.choices.mode_option());
        self.choose(session, &choice, option, ("session/set_mode", "modeId")).await
    }

    /// Chooses by an option of today, or by the method of older agents.
    async fn choose(
        &self,
        session: &mut Session,
        choice: &Choice,
        option: Option<String>,
        (older, key): (&'static str, &str),
    ) -> Result<(), ClientError> {
        let Some(option) = option else {
            return self.ask(older, json!({"sessionId": session.id, key: choice.id}), self.waits).await.map(drop);
        };
        let params = json!({"sessionId": session.id, "configId": option, "value": choice.id});
        let answer = self.ask("session/set_config_option", params, self.waits).await?;
        session.choices.update(&answer);
        Ok(())
    }

    /// Sends a text; gives the agent's answer when the turn has ended. It takes as long as it takes: who waits reads the
    /// events meanwhile, and decides how much silence is too much.
    pub async fn prompt(&self, session: &str, text: &str) -> Result<Value, ClientError> {
        self.prompt_blocks(session, &[json!({"type": "text", "text": text})]).await
    }

    /// The same with any blocks.
    pub async fn prompt_blocks(&self, session: &str, blocks: &[Value]) -> Result<Value, ClientError> {
        let params = json!({ "sessionId": session, "prompt": blocks });
        self.ask("session/prompt", params, Waits::Forever).await
    }

    /// Puts a message into the turn that runs; only for agents that [can](Self::can_steer).
    pub async fn steer(&self, session: &str, blocks: &[Value]) -> Result<Value, ClientError> {
        self.ask("_session/steering", json!({ "sessionId": session, "prompt": blocks }), self.waits).await
    }

    /// Whether an agent takes messages while a turn runs, as its handshake says.
    pub fn can_steer(agent: &Value) -> bool {
        [&agent["agentCapabilities"]["_meta"], &agent["_meta"]].iter().any(|meta| meta["steering"]["supported"] == true)
    }

    /// Whether something is done for the agent at the moment: a command runs, or a file waits for a permission.
    pub fn is_served(&self) -> bool {
        self.server.is_busy() || self.terminals.is_running()
    }

    /// Who decides about the files and commands of a subagent; without a desk that of the session does.
    pub fn seat(&self, session: &str, desk: Option<Arc<dyn Desk>>) {
        self.server.seat(session, desk);
    }

    /// What a command of the agent printed, also when it was released not long ago.
    pub fn terminal_text(&self, id: &str) -> Option<String> {
        self.terminals.text(id)
    }

    /// Asks the agent to end the turn; its prompt is still answered.
    pub async fn cancel(&self, session: &str) {
        self.peer.tell("session/cancel", &json!({ "sessionId": session })).await;
    }

    /// Hangs up, and ends the agent's terminals.
    pub async fn close(self) {
        self.stop.cancel();
        self.terminals.close().await;
        // What is left of the connection ends by itself; it has bounds of its own.
        let _ = tokio::time::timeout(HANG_UP, self.running).await;
    }
}
