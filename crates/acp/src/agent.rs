//! The agent that an editor starts: one per connected client. This file dispatches the client's requests; the modules
//! below implement them.
//!
//! An [`OpenSession`] ties a session of the host to the client: a [`View`](crate::view::View) renders its events, and
//! asks go to the user.

mod asks;
mod blocks;
mod catalog;
mod handshake;
mod mcp_servers;
mod open_session;
mod sessions;
mod turn;
mod updates;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use api::{AgentRuntime, Environment, HostError, SessionId};
use follow::Patience;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use mcp_servers::McpOwners;
use open_session::OpenSession;

use crate::capabilities::Capabilities;
use crate::editor::EditorEnvironment;
use crate::rpc::{Error, Handler, Peer, Request, code};
use crate::{AgentOptions, lock};

/// The most sessions that one client may have open.
const MAX_OPEN_SESSIONS: usize = 1_000;
/// How long the connection waits for MCP servers to end after a client disconnects.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The agent of one client.
pub struct Agent {
    options: AgentOptions,
    /// The host's handle for the client, from the first `initialize` that names it.
    named_host: OnceLock<Arc<dyn AgentRuntime>>,
    peer: Peer,
    /// `None` until the client calls `initialize`.
    capabilities: Mutex<Option<Capabilities>>,
    logged_out: AtomicBool,
    /// The open sessions.
    pub sessions: Mutex<HashMap<SessionId, Arc<OpenSession>>>,
    /// The open session that each session belongs to: itself, or the root of a subagent.
    pub routes: Mutex<HashMap<SessionId, SessionId>>,
    /// The running prompts of each session: a number, and the token that cancels it.
    pub running_prompts: Mutex<HashMap<SessionId, Vec<(u64, CancellationToken)>>>,
    /// The number of this client among those of the process.
    client_number: u64,
}

impl Agent {
    /// An agent for the client at the other end of `peer`.
    pub fn new(options: AgentOptions, peer: Peer) -> Self {
        Self {
            client_number: options.mcp_owners.register_client(),
            options,
            named_host: OnceLock::new(),
            peer,
            capabilities: Mutex::default(),
            logged_out: AtomicBool::new(false),
            sessions: Mutex::default(),
            routes: Mutex::default(),
            running_prompts: Mutex::default(),
        }
    }

    /// The host that runs the sessions.
    pub fn host(&self) -> &dyn AgentRuntime {
        self.named_host.get().unwrap_or(&self.options.host).as_ref()
    }

    /// The host, for work that outlives a call.
    pub fn shared_host(&self) -> Arc<dyn AgentRuntime> {
        self.named_host.get().unwrap_or(&self.options.host).clone()
    }

    /// How long a server that cannot be reached is tried again: one that recognises what it was sent before.
    pub fn patience(&self) -> Patience {
        if self.is_local() { Patience::NONE } else { Patience::of(self.host()) }
    }

    /// Sends a request to the host, and again for a while if a server cannot be reached. Only for requests that are
    /// idempotent, or carry an id that makes them so.
    pub async fn retry<T, F>(&self, request: impl Fn() -> F) -> Result<T, HostError>
    where
        F: Future<Output = Result<T, HostError>>,
    {
        self.patience().retry(request).await
    }

    /// The client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the host is the engine of this process.
    pub fn is_local(&self) -> bool {
        self.options.local.is_some()
    }

    /// Releases everything bound to the client, which has disconnected. Its MCP servers end with the turns that use
    /// them, even if that takes longer than this call.
    pub async fn disconnect(self: &Arc<Self>) {
        let open: Vec<Arc<OpenSession>> = lock(&self.sessions).drain().map(|(_, open)| open).collect();
        let mut ending = Vec::new();
        for open in open {
            self.unbind(&open);
            let agent = self.clone();
            ending.push(tokio::spawn(async move {
                let mcp_owners = &agent.options.mcp_owners;
                mcp_owners.end_servers(agent.client_number, agent.host(), &open.scope, &open.id).await;
            }));
        }
        let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, futures::future::join_all(ending)).await;
    }

    fn unbind(&self, open: &OpenSession) {
        open.close();
        lock(&self.routes).retain(|_, root| *root != open.id);
        if let Some(local) = &self.options.local {
            local.bind(&open.id, None);
        }
    }

    /// The editor's files and terminals, for a session of the local engine.
    pub fn environment(&self, open: &OpenSession) -> Option<Arc<dyn Environment>> {
        let local = self.options.local.as_ref()?;
        Some(Arc::new(EditorEnvironment {
            peer: self.peer.clone(),
            capabilities: open.capabilities,
            session: open.id.clone(),
            roots: open.roots.clone(),
            disk: local.disk(),
            changes: open.changes.clone(),
            recent_reads: open.recent_reads.clone(),
            shown_terminals: open.shown_terminals.clone(),
            writes: Default::default(),
        }))
    }

    /// Forgets a session that was closed or deleted.
    pub fn forget(&self, open: &Arc<OpenSession>) {
        if lock(&self.sessions).remove(&open.id).is_some() {
            self.unbind(open);
        }
    }

    fn capabilities(&self) -> Result<Capabilities, Error> {
        (*lock(&self.capabilities)).ok_or_else(|| Error::invalid_request("Call initialize first"))
    }

    fn check_signed_in(&self) -> Result<(), Error> {
        if self.logged_out.load(Ordering::Acquire) {
            return Err(Error::new(code::AUTH_REQUIRED, "Signed out; call authenticate first"));
        }
        Ok(())
    }

    fn open_session(&self, params: &Value) -> Result<Arc<OpenSession>, Error> {
        let id = session_id(params)?;
        lock(&self.sessions).get(&id).cloned().ok_or_else(|| not_open(id.as_str()))
    }

    /// Registers a prompt before any of it runs, so that a cancel right behind it finds it.
    fn register_prompt(self: &Arc<Self>, params: &Value, cancel: CancellationToken) -> Option<RunningPrompt> {
        let session = session_id(params).ok()?;
        let mut turns = lock(&self.running_prompts);
        let turns = turns.entry(session.clone()).or_default();
        let number = turns.last().map_or(0, |(number, _)| number + 1);
        turns.push((number, cancel));
        Some(RunningPrompt { agent: self.clone(), session, number })
    }

    fn cancel(self: &Arc<Self>, params: &Value) {
        let Ok(id) = session_id(params) else { return };
        let turns = lock(&self.running_prompts).get(&id).cloned().unwrap_or_default();
        for (_, token) in &turns {
            token.cancel();
        }
        // Subagents have no prompt of this client, nor does a turn that started before it connected.
        let root = lock(&self.routes).get(&id).cloned();
        let is_open = root.is_some_and(|root| lock(&self.sessions).contains_key(&root));
        if is_open && turns.is_empty() {
            let agent = self.clone();
            tokio::spawn(async move {
                if let Err(error) = agent.retry(|| agent.host().abort(&id)).await {
                    tracing::warn!(%error, "failed to abort a session");
                }
            });
        }
    }

    async fn handle(self: &Arc<Self>, request: Request) {
        let (method, params) = (canonical(&request.method).to_owned(), request.params.clone());
        if let Err(error) = self.check_allowed(&method) {
            return request.reply(Err(error));
        }
        match method.as_str() {
            "session/new" => self.new_session(request, &params).await,
            "session/load" => self.load(request, &params, true).await,
            "session/resume" => self.load(request, &params, false).await,
            "session/fork" => self.fork(request, &params).await,
            "session/list" => {
                let cancel = request.cancel.clone();
                let listed = cancel.run_until_cancelled(self.list(&params)).await;
                request.reply(listed.unwrap_or_else(|| Err(Error::cancelled())));
            }
            _ => {
                let result = self.handle_simple(&method, &params).await;
                request.reply(result);
            }
        }
    }

    async fn handle_simple(self: &Arc<Self>, method: &str, params: &Value) -> Result<Value, Error> {
        match method {
            "authenticate" => self.authenticate(params),
            "logout" => {
                self.logged_out.store(true, Ordering::Release);
                Ok(json!({}))
            }
            "auth/status" => self.auth_status().await,
            "session/close" => self.close(params).await,
            "session/delete" => self.delete(params).await,
            "session/archive" => self.archive(params, true).await,
            "session/unarchive" => self.archive(params, false).await,
            "session/set_title" => self.set_title(params).await,
            "session/status" => self.status(params).await,
            "session/set_mode" => self.set_mode(params).await,
            "session/set_model" => self.set_model(params).await,
            "session/set_config_option" => self.set_option(params).await,
            "_session/steering" => {
                let open = self.open_session(params)?;
                self.steer(&open, params).await
            }
            other => Err(Error::method_not_found(other)),
        }
    }

    /// Checks whether a method may be called now.
    fn check_allowed(&self, method: &str) -> Result<(), Error> {
        self.capabilities()?;
        match method {
            "authenticate" | "logout" | "auth/status" => Ok(()),
            _ => self.check_signed_in(),
        }
    }
}

impl Handler for Agent {
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()> {
        let agent = self.clone();
        if request.method == "initialize" {
            // Handled before the next message is read: clients need not wait for the response.
            let result = self.initialize(&request.params);
            request.reply(result);
            return Box::pin(std::future::ready(()));
        }
        if canonical(&request.method) != "session/prompt" {
            return Box::pin(async move { agent.handle(request).await });
        }
        let cancel = request.cancel.clone();
        let running = agent.register_prompt(&request.params, cancel.clone());
        Box::pin(async move {
            let result = async {
                agent.check_allowed("session/prompt")?;
                let open = agent.open_session(&request.params)?;
                agent.prompt(&open, &request.params, cancel).await
            };
            let result = result.await;
            // A later cancel must not hit this prompt.
            drop(running);
            request.reply(result);
        })
    }

    fn shutdown_error(&self) -> Error {
        Error::internal("Trefoil is stopping. A prompt that it has accepted goes on when its session is opened again")
    }

    fn notification(self: &Arc<Self>, method: &str, params: Value) {
        if canonical(method) == "session/cancel" && lock(&self.capabilities).is_some() {
            self.cancel(&params);
        }
    }
}

/// Registration of a running prompt, removed on drop.
struct RunningPrompt {
    agent: Arc<Agent>,
    session: SessionId,
    number: u64,
}

impl Drop for RunningPrompt {
    fn drop(&mut self) {
        let mut turns = lock(&self.agent.running_prompts);
        if let Some(running) = turns.get_mut(&self.session) {
            running.retain(|(number, _)| *number != self.number);
            if running.is_empty() {
                turns.remove(&self.session);
            }
        }
    }
}

/// Maps the method names of older clients to the current ones.
fn canonical(method: &str) -> &str {
    match method {
        "newSession" => "session/new",
        "loadSession" => "session/load",
        "prompt" => "session/prompt",
        "cancel" => "session/cancel",
        "setSessionMode" => "session/set_mode",
        "unstable_setSessionModel" | "setSessionModel" => "session/set_model",
        "unstable_listSessions" | "listSessions" => "session/list",
        "unstable_forkSession" | "forkSession" => "session/fork",
        "unstable_resumeSession" | "resumeSession" => "session/resume",
        "unstable_closeSession" | "closeSession" => "session/close",
        "setSessionConfigOption" | "unstable_setSessionConfigOption" => "session/set_config_option",
        other => other,
    }
}

fn session_id(params: &Value) -> Result<SessionId, Error> {
    let Some(text) = params["sessionId"].as_str() else {
        return Err(Error::invalid_params("sessionId is missing: expected a string"));
    };
    SessionId::parse(text).map_err(|_| not_found(text))
}

fn not_found(id: &str) -> Error {
    Error::new(code::NOT_FOUND, format!("Session not found: {id}")).with(json!({ "sessionId": id }))
}

fn not_open(id: &str) -> Error {
    let message = format!("Session is not open: {id}. Open it with session/load or session/resume");
    Error::new(code::NOT_FOUND, message).with(json!({ "sessionId": id }))
}
