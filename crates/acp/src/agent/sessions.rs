//! Sessions: made, opened, listed, changed, closed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    ForkSessionResponse, ListSessionsResponse, LoadSessionResponse, NewSessionResponse, SessionInfo, SessionStatus,
    SessionStatusResponse, SessionUpdate, SetSessionTitleResponse,
};
use api::{
    Action, CreateSession, HostError, ListMessages, ListSessions, McpConfig, Rule, Scope, Session, SessionId,
    UpdateSession,
};
use base64::Engine as _;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::blocks::check_directory;
use super::catalog::{Choices, Chosen};
use super::open_session::{Open, REREAD};
use super::{Agent, MAX_OPEN, mcp_servers, not_found, session_id};
use crate::lock;
use crate::rpc::{Error, Request};
use crate::view::{plan, time};

/// Sessions of a page.
const PAGE: usize = 50;
/// The most further directories of a session.
const MAX_ROOTS: usize = 100;
/// How often a turn that seems to run elsewhere is looked at after its session was opened.
const RECOVER_TRIES: usize = 50;
/// The pause between.
const RECOVER_PAUSE: Duration = Duration::from_millis(200);
/// Where a session remembers its further directories.
const ROOTS: &str = "additionalDirectories";

/// Where a page of sessions ends: the time of its last one, and which ones of that time it had.
#[derive(Serialize, Deserialize)]
struct Page {
    at: i64,
    had: Vec<SessionId>,
}

impl Page {
    fn parse(text: &str) -> Option<Self> {
        let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice(&json).ok()
    }

    fn text(&self) -> String {
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }
}

impl Agent {
    pub(super) async fn new_session(self: &Arc<Self>, request: Request, params: &Value) {
        let made = async {
            let scope = check_directory(params.get("cwd"), self.is_local())?;
            let servers = mcp_servers::parse(params.get("mcpServers"))?;
            let roots = roots(params)?;
            let input = CreateSession {
                metadata: remember(&roots),
                permission: (!roots.is_empty()).then(|| rules(&roots, Action::Allow)),
                ..CreateSession::default()
            };
            let events = self.watch(&scope.directory, None).await?;
            let session = self.host().create_session(&scope, input).await?;
            let open = self.open(&session, roots).await?;
            if let Err(error) = self.bring(&open, servers).await {
                // Nobody knows of it yet.
                self.forget(&open);
                self.host().delete_session(&scope, &open.id).await?;
                return Err(error);
            }
            Ok((open, events))
        };
        match made.await {
            Ok((open, events)) => {
                let choices = open.choices();
                let chosen = open.chosen();
                let answer = NewSessionResponse::new(open.id.to_string())
                    .modes(choices.modes(&chosen))
                    .config_options(choices.options(open.abilities, &chosen));
                request.reply(Ok(with_models(json!(answer), &open)));
                open.tell_commands().await;
                // Only now does the client know the session: an MCP server may have failed already.
                self.follow(&open, events).await;
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    /// Opens a session that is there: with all that happened in it, or without.
    pub(super) async fn load(self: &Arc<Self>, request: Request, params: &Value, replay: bool) {
        let cancel = request.cancel.clone();
        let loaded = async {
            let id = session_id(params)?;
            check_directory(params.get("cwd"), false)?;
            let servers = mcp_servers::parse(params.get("mcpServers"))?;
            let session = self.find(params, &id).await?;
            let given = roots(params)?;
            let session = self.with_roots(session, &given).await?;
            let roots = if given.is_empty() { remembered(&session) } else { given };
            let events = self.watch(&session.directory, None).await?;
            let open = self.open(&session, roots).await?;
            self.catch_up(&open, replay).await?;
            self.follow(&open, events).await;
            self.bring(&open, servers).await?;
            Ok(open)
        };
        let loaded = cancel.run_until_cancelled(loaded).await.unwrap_or_else(|| Err(Error::cancelled()));
        match loaded {
            Ok(open) => {
                let choices = open.choices();
                let chosen = open.chosen();
                let answer = LoadSessionResponse::new()
                    .modes(choices.modes(&chosen))
                    .config_options(choices.options(open.abilities, &chosen));
                request.reply(Ok(with_models(json!(answer), &open)));
                open.tell_commands().await;
                self.go_on(&open).await;
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    pub(super) async fn fork(self: &Arc<Self>, request: Request, params: &Value) {
        let forked = async {
            let id = session_id(params)?;
            check_directory(params.get("cwd"), false)?;
            let servers = mcp_servers::parse(params.get("mcpServers"))?;
            let origin = self.find(params, &id).await?;
            let scope = Scope::new(origin.directory.clone());
            let events = self.watch(&scope.directory, None).await?;
            let session = self.host().fork_session(&scope, &id, None).await?;
            let given = roots(params)?;
            let roots = if given.is_empty() { remembered(&origin) } else { given };
            let session = self.with_roots(session, &roots).await?;
            let open = self.open(&session, roots).await?;
            self.catch_up(&open, true).await?;
            self.follow(&open, events).await;
            self.bring(&open, servers).await?;
            Ok(open)
        };
        match forked.await {
            Ok(open) => {
                let choices = open.choices();
                let chosen = open.chosen();
                let answer = ForkSessionResponse::new(open.id.to_string())
                    .modes(choices.modes(&chosen))
                    .config_options(choices.options(open.abilities, &chosen));
                request.reply(Ok(with_models(json!(answer), &open)));
                open.tell_commands().await;
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    /// The session uses these MCP servers from now on; none leaves it with those that it has.
    async fn bring(self: &Arc<Self>, open: &Arc<Open>, servers: IndexMap<String, McpConfig>) -> Result<(), Error> {
        if servers.is_empty() {
            return Ok(());
        }
        match self.host().session_servers(&open.scope, &open.id, servers.clone()).await {
            Ok(()) => {
                self.options.brought.by(self.number, &open.id, servers);
                // What they have to offer is told when they have said so.
                self.refresh_soon(open);
                Ok(())
            }
            Err(HostError::Unsupported(what)) => {
                let message = format!("mcpServers: {what} is not supported by this server; leave them out");
                Err(Error::invalid_params(message))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A server that was started anew does not know the MCP servers that the session brought.
    pub async fn restore_servers(&self, open: &Open) {
        let brought = self.options.brought.of(self.number, &open.id).filter(|_| !self.is_local());
        let Some(servers) = brought else { return };
        let restored = self.reach(|| self.host().restore_servers(&open.scope, &open.id, servers.clone())).await;
        restored.unwrap_or_else(|error| tracing::warn!(%error, "the MCP servers of a session were not started again"));
    }

    async fn find(&self, params: &Value, id: &SessionId) -> Result<Session, Error> {
        let scope = Scope::new(params["cwd"].as_str().unwrap_or("/"));
        match self.host().session(&scope, id).await {
            Err(HostError::NotFound { .. }) => Err(not_found(id.as_str())),
            found => Ok(found?),
        }
    }

    /// Gives a session further directories, if the client names some.
    async fn with_roots(&self, session: Session, roots: &[PathBuf]) -> Result<Session, Error> {
        if roots.is_empty() || remembered(&session) == roots {
            return Ok(session);
        }
        let scope = Scope::new(session.directory.clone());
        let mut metadata = session.metadata.clone().unwrap_or_default();
        metadata.extend(remember(roots).unwrap_or_default());
        // Rules can only be added, and the last one decides.
        let mut permission = rules(&remembered(&session), Action::Ask);
        permission.extend(rules(roots, Action::Allow));
        let change =
            UpdateSession { metadata: Some(metadata), permission: Some(permission), ..UpdateSession::default() };
        Ok(self.host().update_session(&scope, &session.id, change).await?)
    }

    /// From now on the session is the client's. One that was open already begins anew.
    async fn open(self: &Arc<Self>, session: &Session, roots: Vec<PathBuf>) -> Result<Arc<Open>, Error> {
        let scope = Scope::new(session.directory.clone());
        let choices = Choices::load(self.host(), &scope, &session.id).await?;
        let all = [PathBuf::from(&session.directory)].into_iter().chain(roots).collect();
        let open = Arc::new(Open::new(session, self.abilities()?, all, self.peer.clone(), choices));
        let before = {
            let mut sessions = lock(&self.sessions);
            if sessions.len() >= MAX_OPEN && !sessions.contains_key(&open.id) {
                return Err(Error::invalid_request(format!("{MAX_OPEN} sessions are open; close some of them")));
            }
            sessions.insert(open.id.clone(), open.clone())
        };
        if let Some(before) = before {
            before.close();
        }
        lock(&self.routes).insert(open.id.clone(), open.id.clone());
        if let (Some(local), Some(environment)) = (&self.options.local, self.environment(&open)) {
            local.bind(&open.id, Some(environment));
        }
        Ok(open)
    }

    /// Shows what happened in a session before it was opened, or notes that it was shown.
    async fn catch_up(self: &Arc<Self>, open: &Arc<Open>, replay: bool) -> Result<(), Error> {
        // What is not shown need not be read; only whether the newest messages are settled counts.
        let query = ListMessages { limit: (!replay).then_some(REREAD), before: None };
        let messages = self.host().messages(&open.scope, &open.id, query).await?.messages;
        let family = self.find_family(&open.id, &open.scope).await?;
        for child in &family {
            open.show(|view| view.known(child)).await;
        }
        if replay && open.abilities.subagents {
            for child in &family {
                let page = self.host().messages(&open.scope, &child.id, ListMessages::default()).await?;
                for message in page.messages {
                    open.show(|view| view.stored(message, true)).await;
                }
                open.show(|view| view.rests(&child.id)).await;
            }
        }
        open.replay(messages, replay).await;
        if replay {
            let todos = self.host().todo(&open.scope, &open.id).await.unwrap_or_default();
            if !todos.is_empty() {
                open.update(SessionUpdate::Plan(plan(&todos))).await;
            }
        }
        Ok(())
    }

    /// A turn that a crash cut off goes on, and what waits for an answer is asked again.
    async fn go_on(self: &Arc<Self>, open: &Arc<Open>) {
        if !self.recover(open).await {
            let (agent, open) = (self.clone(), open.clone());
            tokio::spawn(async move {
                let tries = async {
                    for _ in 0..RECOVER_TRIES {
                        tokio::time::sleep(RECOVER_PAUSE).await;
                        if agent.recover(&open).await {
                            break;
                        }
                    }
                };
                open.closed.run_until_cancelled(tries).await;
            });
        }
        self.open_asks(open).await;
    }

    /// Brings a turn that was cut off on its way; false if one waits that still seems to run elsewhere. What a process that
    /// was killed leaves behind takes a moment to go, and holds its turns as long.
    async fn recover(&self, open: &Open) -> bool {
        match self.host().recover(Some(&open.id)).await {
            Ok(0) => self.host().waiting(&open.scope, &open.id).await.is_ok_and(|waiting| waiting.is_empty()),
            Ok(_) | Err(HostError::Unsupported(_)) => true,
            Err(error) => {
                tracing::warn!(%error, session = %open.id, "a turn that was cut off cannot go on");
                true
            }
        }
    }

    pub(super) async fn list(&self, params: &Value) -> Result<Value, Error> {
        let cwd = params.get("cwd").filter(|cwd| !cwd.is_null());
        let scope = cwd.map_or_else(|| Ok(Scope::new("/")), |cwd| check_directory(Some(cwd), false))?;
        let page = match params.get("cursor").filter(|cursor| !cursor.is_null()) {
            None => None,
            Some(cursor) => {
                let page = cursor.as_str().and_then(Page::parse);
                Some(page.ok_or_else(|| Error::invalid_params("cursor is none of those that session/list gave"))?)
            }
        };
        let archived = params["archived"].as_str().unwrap_or("exclude");
        let had = page.as_ref().map_or(0, |page| page.had.len());
        let query = ListSessions {
            directory_only: cwd.is_some(),
            everywhere: cwd.is_none(),
            roots: true,
            before: page.as_ref().map(|page| page.at.saturating_add(1)),
            unarchived: archived == "exclude",
            limit: Some(PAGE + had + 1),
            ..ListSessions::default()
        };
        let mut sessions = self.host().sessions(&scope, query).await?;
        if let Some(page) = &page {
            sessions.retain(|session| session.time.updated < page.at || !page.had.contains(&session.id));
        }
        let more = sessions.len() > PAGE;
        sessions.truncate(PAGE);
        let next = sessions.last().filter(|_| more).map(|last| {
            let at = last.time.updated;
            let same = sessions.iter().filter(|session| session.time.updated == at).map(|session| session.id.clone());
            let earlier = page.iter().filter(|page| page.at == at).flat_map(|page| page.had.iter().cloned());
            Page { at, had: same.chain(earlier).collect() }.text()
        });
        if archived == "only" {
            sessions.retain(|session| session.time.archived.is_some());
        }
        let info = |session: &Session| {
            SessionInfo::new(session.id.to_string(), &session.directory)
                .title(session.title.clone())
                .updated_at(time::iso(session.time.updated))
                .additional_directories(remembered(session))
                .archived(session.time.archived.is_some().then_some(true))
        };
        Ok(json!(ListSessionsResponse::new(sessions.iter().map(info).collect()).next_cursor(next)))
    }

    pub(super) async fn close(self: &Arc<Self>, params: &Value) -> Result<Value, Error> {
        let Ok(open) = self.open_session(params) else { return Ok(json!({})) };
        self.stop(&open).await;
        if let Err(error) = self.host().session_servers(&open.scope, &open.id, IndexMap::new()).await {
            tracing::warn!(%error, "the MCP servers of a session were not ended");
        }
        self.options.brought.by(self.number, &open.id, IndexMap::new());
        self.forget(&open);
        Ok(json!({}))
    }

    /// Ends what runs in a session.
    async fn stop(self: &Arc<Self>, open: &Arc<Open>) {
        for (_, token) in lock(&self.turns).get(&open.id).cloned().unwrap_or_default() {
            token.cancel();
        }
        if let Err(error) = self.host().abort(&open.scope, &open.id).await {
            tracing::warn!(%error, "a session was not stopped");
        }
    }

    pub(super) async fn delete(self: &Arc<Self>, params: &Value) -> Result<Value, Error> {
        let id = match session_id(params) {
            Ok(id) => id,
            // What cannot exist is gone.
            Err(_) if params["sessionId"].is_string() => return Ok(json!({})),
            Err(error) => return Err(error),
        };
        let open = lock(&self.sessions).get(&id).cloned();
        let scope = open.as_ref().map_or_else(|| Scope::new("/"), |open| open.scope.clone());
        if let Some(open) = &open {
            self.stop(open).await;
        }
        match self.host().delete_session(&scope, &id).await {
            Ok(()) | Err(HostError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(open) = &open {
            self.forget(open);
        }
        Ok(json!({}))
    }

    pub(super) async fn archive(&self, params: &Value, archived: bool) -> Result<Value, Error> {
        let session = self.find(params, &session_id(params)?).await?;
        let change = UpdateSession { archived: Some(archived.then(api::now)), ..UpdateSession::default() };
        self.host().update_session(&Scope::new(session.directory), &session.id, change).await?;
        Ok(json!({}))
    }

    pub(super) async fn set_title(&self, params: &Value) -> Result<Value, Error> {
        let session = self.find(params, &session_id(params)?).await?;
        let title = params["title"].as_str().map(str::trim).filter(|title| !title.is_empty());
        let title = title.ok_or_else(|| Error::invalid_params("title is missing: a text"))?.to_owned();
        let change = UpdateSession { title: Some(title), ..UpdateSession::default() };
        let session = self.host().update_session(&Scope::new(session.directory), &session.id, change).await?;
        Ok(json!(SetSessionTitleResponse::new(session.title)))
    }

    pub(super) async fn status(&self, params: &Value) -> Result<Value, Error> {
        let id = session_id(params)?;
        self.find(params, &id).await?;
        let open = lock(&self.sessions).contains_key(&id);
        Ok(json!(SessionStatusResponse::new(if open { SessionStatus::Open } else { SessionStatus::Saved })))
    }

    pub(super) async fn set_mode(&self, params: &Value) -> Result<Value, Error> {
        let open = self.open_session(params)?;
        let mode = params["modeId"].as_str().ok_or_else(|| Error::invalid_params("modeId is missing: a text"))?;
        self.decide(&open, |choices, chosen| choices.set_mode(chosen, mode)).await?;
        Ok(json!({}))
    }

    pub(super) async fn set_model(&self, params: &Value) -> Result<Value, Error> {
        let open = self.open_session(params)?;
        let model = params["modelId"].as_str().ok_or_else(|| Error::invalid_params("modelId is missing: a text"))?;
        self.decide(&open, |choices, chosen| choices.set_model(chosen, model)).await?;
        Ok(json!({}))
    }

    /// Chooses, durably: whoever opens the session next finds it so, even if nothing was said in it meanwhile.
    async fn decide(
        &self,
        open: &Open,
        change: impl FnOnce(&Choices, &mut Chosen) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = open.chosen();
        let mut chosen = before.clone();
        change(&open.choices(), &mut chosen)?;
        if let Some(change) = chosen.since(&before) {
            self.reach(|| self.host().update_session(&open.scope, &open.id, change.clone())).await?;
        }
        let Ok(()) = open
            .choose(|_, now| {
                *now = chosen;
                Ok::<(), std::convert::Infallible>(())
            })
            .await;
        Ok(())
    }

    pub(super) async fn set_option(&self, params: &Value) -> Result<Value, Error> {
        let open = self.open_session(params)?;
        let option = params["configId"].as_str().ok_or_else(|| Error::invalid_params("configId is missing: a text"))?;
        self.decide(&open, |choices, chosen| choices.set(open.abilities, chosen, option, &params["value"])).await?;
        Ok(json!({ "configOptions": open.choices().options(open.abilities, &open.chosen()) }))
    }
}

/// The answer with what older clients look for.
fn with_models(mut answer: Value, open: &Open) -> Value {
    answer["models"] = open.choices().models_state(&open.chosen());
    answer
}

/// The further directories of a session.
fn roots(params: &Value) -> Result<Vec<PathBuf>, Error> {
    let list = match params.get(ROOTS) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_ROOTS => list,
        Some(_) => return Err(Error::invalid_params(format!("{ROOTS} must be a list of at most {MAX_ROOTS} paths"))),
    };
    let path = |path: &Value| path.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
    let paths: Option<Vec<PathBuf>> = list.iter().map(path).collect();
    paths.ok_or_else(|| Error::invalid_params(format!("{ROOTS} must be absolute paths")))
}

/// What lets a session work in its further directories.
fn rules(roots: &[PathBuf], action: Action) -> Vec<Rule> {
    let rule = |root: &PathBuf| {
        let root = root.to_string_lossy();
        Rule::new("external_directory", format!("{}/*", root.trim_end_matches('/')), action)
    };
    roots.iter().map(rule).collect()
}

fn remember(roots: &[PathBuf]) -> Option<api::JsonMap> {
    (!roots.is_empty()).then(|| api::JsonMap::from_iter([(ROOTS.to_owned(), json!(roots))]))
}

fn remembered(session: &Session) -> Vec<PathBuf> {
    let stored = session.metadata.as_ref().and_then(|metadata| metadata.get(ROOTS)).cloned();
    stored.and_then(|roots| serde_json::from_value(roots).ok()).unwrap_or_default()
}
