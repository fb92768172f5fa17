//! The methods of an agent.

mod asks;
mod blocks;
mod catalog;
mod follow;
mod handshake;
mod mcp_servers;
mod open_session;
mod retry;
mod sessions;
mod turn;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Environment, Host, SessionId};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use mcp_servers::Brought;
use open_session::Open;

use crate::capabilities::Abilities;
use crate::editor::Editor;
use crate::rpc::{Error, Handler, Peer, Request, code};
use crate::{Options, lock};

/// The most sessions that one client has open.
const MAX_OPEN: usize = 1_000;
/// How long what a client leaves behind may take to end before its connection does.
const LEAVE: Duration = Duration::from_secs(2);

/// One client's agent.
pub struct Agent {
    options: Options,
    peer: Peer,
    /// What the client can do; nothing before it said hello.
    client: Mutex<Option<Abilities>>,
    logged_out: AtomicBool,
    /// The sessions that are open.
    pub sessions: Mutex<HashMap<SessionId, Arc<Open>>>,
    /// To which open session a session belongs: itself, or a subagent's root.
    pub routes: Mutex<HashMap<SessionId, SessionId>>,
    /// The prompts that run, by session.
    pub turns: Mutex<HashMap<SessionId, Vec<(u64, CancellationToken)>>>,
    /// Which of the process's clients this one's is.
    number: u64,
}

impl Agent {
    /// An agent for whoever is at the other side.
    pub fn new(options: Options, peer: Peer) -> Self {
        Self {
            number: options.brought.client(),
            options,
            peer,
            client: Mutex::default(),
            logged_out: AtomicBool::new(false),
            sessions: Mutex::default(),
            routes: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Where the work is done.
    pub fn host(&self) -> &dyn Host {
        self.options.host.as_ref()
    }

    /// The client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the work is done in this process.
    pub fn is_local(&self) -> bool {
        self.options.local.is_some()
    }

    /// The client hung up: nothing is bound to it any more. MCP servers that it brought end with the turns that use them,
    /// even if that takes longer than this.
    pub async fn leave(self: &Arc<Self>) {
        let open: Vec<Arc<Open>> = lock(&self.sessions).drain().map(|(_, open)| open).collect();
        let mut ending = Vec::new();
        for open in open {
            self.unbind(&open);
            let agent = self.clone();
            ending.push(tokio::spawn(async move {
                let brought = &agent.options.brought;
                brought.end(agent.number, agent.host(), &open.scope, &open.id).await;
            }));
        }
        let _ = tokio::time::timeout(LEAVE, futures::future::join_all(ending)).await;
    }

    fn unbind(&self, open: &Open) {
        open.close();
        lock(&self.routes).retain(|_, root| *root != open.id);
        if let Some(local) = &self.options.local {
            local.bind(&open.id, None);
        }
    }

    /// The editor's files and terminals, for a session whose turns run in this process.
    pub fn environment(&self, open: &Open) -> Option<Arc<dyn Environment>> {
        let local = self.options.local.as_ref()?;
        Some(Arc::new(Editor {
            peer: self.peer.clone(),
            abilities: open.abilities,
            session: open.id.clone(),
            roots: open.roots.clone(),
            disk: local.disk(),
            changes: open.changes.clone(),
            reads: open.reads.clone(),
            terminals: open.terminals.clone(),
            writes: Default::default(),
        }))
    }

    /// A session is not open any more, or is gone.
    pub fn forget(&self, open: &Arc<Open>) {
        if lock(&self.sessions).remove(&open.id).is_some() {
            self.unbind(open);
        }
    }

    fn abilities(&self) -> Result<Abilities, Error> {
        (*lock(&self.client)).ok_or_else(|| Error::invalid_request("Call initialize first"))
    }

    fn signed_in(&self) -> Result<(), Error> {
        if self.logged_out.load(Ordering::Acquire) {
            return Err(Error::new(code::AUTH_REQUIRED, "Signed out; call authenticate first"));
        }
        Ok(())
    }

    fn open_session(&self, params: &Value) -> Result<Arc<Open>, Error> {
        let id = session_id(params)?;
        lock(&self.sessions).get(&id).cloned().ok_or_else(|| not_open(id.as_str()))
    }

    /// Notes a prompt before anything of it runs, so that a cancel that follows it finds it.
    fn begin(self: &Arc<Self>, params: &Value, cancel: CancellationToken) -> Option<Running> {
        let session = session_id(params).ok()?;
        let mut turns = lock(&self.turns);
        let turns = turns.entry(session.clone()).or_default();
        let number = turns.last().map_or(0, |(number, _)| number + 1);
        turns.push((number, cancel));
        Some(Running { agent: self.clone(), session, number })
    }

    fn cancel(self: &Arc<Self>, params: &Value) {
        let Ok(id) = session_id(params) else { return };
        let turns = lock(&self.turns).get(&id).cloned().unwrap_or_default();
        for (_, token) in &turns {
            token.cancel();
        }
        // A subagent has no prompt of ours, and a turn that was there before us neither.
        let root = lock(&self.routes).get(&id).cloned();
        let open = root.and_then(|root| lock(&self.sessions).get(&root).cloned());
        if let Some(open) = open.filter(|_| turns.is_empty()) {
            let agent = self.clone();
            tokio::spawn(async move {
                if let Err(error) = agent.reach(|| agent.host().abort(&open.scope, &id)).await {
                    tracing::warn!(%error, "a session was not stopped");
                }
            });
        }
    }

    async fn answer(self: &Arc<Self>, request: Request) {
        let (method, params) = (canonical(&request.method).to_owned(), request.params.clone());
        if let Err(error) = self.may(&method) {
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
                let result = self.simple(&method, &params).await;
                request.reply(result);
            }
        }
    }

    async fn simple(self: &Arc<Self>, method: &str, params: &Value) -> Result<Value, Error> {
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

    /// Whether a method may be called now.
    fn may(&self, method: &str) -> Result<(), Error> {
        self.abilities()?;
        match method {
            "authenticate" | "logout" | "auth/status" => Ok(()),
            _ => self.signed_in(),
        }
    }
}

impl Handler for Agent {
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()> {
        let agent = self.clone();
        if request.method == "initialize" {
            // Before the next message is read: clients need not wait for the answer to be known.
            let result = self.initialize(&request.params);
            request.reply(result);
            return Box::pin(std::future::ready(()));
        }
        if canonical(&request.method) != "session/prompt" {
            return Box::pin(async move { agent.answer(request).await });
        }
        let cancel = request.cancel.clone();
        let running = agent.begin(&request.params, cancel.clone());
        Box::pin(async move {
            let result = async {
                agent.may("session/prompt")?;
                let open = agent.open_session(&request.params)?;
                agent.prompt(&open, &request.params, cancel).await
            };
            let result = result.await;
            // The next cancel is not for this prompt.
            drop(running);
            request.reply(result);
        })
    }

    fn stopping(&self) -> Error {
        Error::internal("Trefoil is stopping. A prompt that it has accepted goes on when its session is opened again")
    }

    fn notification(self: &Arc<Self>, method: &str, params: Value) {
        if canonical(method) == "session/cancel" && lock(&self.client).is_some() {
            self.cancel(&params);
        }
    }
}

/// A prompt that runs; gone when dropped.
struct Running {
    agent: Arc<Agent>,
    session: SessionId,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut turns = lock(&self.agent.turns);
        if let Some(running) = turns.get_mut(&self.session) {
            running.retain(|(number, _)| *number != self.number);
            if running.is_empty() {
                turns.remove(&self.session);
            }
        }
    }
}

/// The current name of a method that older clients call by another one.
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
        return Err(Error::invalid_params("sessionId is missing: a text"));
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
