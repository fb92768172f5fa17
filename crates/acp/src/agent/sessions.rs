//! Session methods: create, open, list, change, close.

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
use super::catalog::{Selection, SessionCatalog};
use super::open_session::OpenSession;
use super::{Agent, MAX_OPEN_SESSIONS, mcp_servers, not_found, session_id};
use crate::lock;
use crate::rpc::{Error, Request};
use crate::view::{plan, time};

/// Sessions per page.
const PAGE_SIZE: usize = 50;
/// The most additional directories of a session.
const MAX_ROOTS: usize = 100;
/// How often to look again at a turn that seems to run elsewhere when its session is opened.
const RECOVER_TRIES: usize = 50;
/// The pause between attempts.
const RECOVER_PAUSE: Duration = Duration::from_millis(200);
/// The metadata key of a session's additional directories, and the parameter's name.
const ROOTS_KEY: &str = "additionalDirectories";

/// Where a page of sessions ends: the time of its last one, and the sessions with that time that it contained.
#[derive(Serialize, Deserialize)]
struct PageCursor {
    at: i64,
    had: Vec<SessionId>,
}

impl PageCursor {
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
            let roots = parse_roots(params)?;
            let input = CreateSession {
                metadata: roots_metadata(&roots),
                permission: (!roots.is_empty()).then(|| directory_rules(&roots, Action::Allow)),
                ..CreateSession::default()
            };
            let events = self.watch(&scope.directory).await?;
            let session = self.host().create_session(&scope, input).await?;
            let open = self.open(&session, roots).await?;
            if let Err(error) = self.set_mcp_servers(&open, servers).await {
                // The client does not know it yet.
                self.forget(&open);
                self.host().delete_session(&open.id).await?;
                return Err(error);
            }
            Ok((open, events))
        };
        match made.await {
            Ok((open, events)) => {
                let catalog = open.catalog();
                let selection = open.selection();
                let answer = NewSessionResponse::new(open.id.to_string())
                    .modes(catalog.modes(&selection))
                    .config_options(catalog.options(open.capabilities, &selection));
                request.reply(Ok(with_models(json!(answer), &open)));
                open.send_commands().await;
                // Only now does the client know the session: an MCP server may have failed already.
                self.follow(&open, events).await;
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    /// Opens an existing session, and replays its history if `replay`.
    pub(super) async fn load(self: &Arc<Self>, request: Request, params: &Value, replay: bool) {
        let cancel = request.cancel.clone();
        let loaded = async {
            let id = session_id(params)?;
            check_directory(params.get("cwd"), false)?;
            let servers = mcp_servers::parse(params.get("mcpServers"))?;
            let session = self.find_session(&id).await?;
            let given = parse_roots(params)?;
            let session = self.with_roots(session, &given).await?;
            let roots = if given.is_empty() { stored_roots(&session) } else { given };
            let events = self.watch(&session.directory).await?;
            let open = self.open(&session, roots).await?;
            self.show_history(&open, replay).await?;
            self.follow(&open, events).await;
            self.set_mcp_servers(&open, servers).await?;
            Ok(open)
        };
        let loaded = cancel.run_until_cancelled(loaded).await.unwrap_or_else(|| Err(Error::cancelled()));
        match loaded {
            Ok(open) => {
                let catalog = open.catalog();
                let selection = open.selection();
                let answer = LoadSessionResponse::new()
                    .modes(catalog.modes(&selection))
                    .config_options(catalog.options(open.capabilities, &selection));
                request.reply(Ok(with_models(json!(answer), &open)));
                open.send_commands().await;
                self.resume_work(&open).await;
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    pub(super) async fn fork(self: &Arc<Self>, request: Request, params: &Value) {
        let forked = async {
            let id = session_id(params)?;
            check_directory(params.get("cwd"), false)?;
            let servers = mcp_servers::parse(params.get("mcpServers"))?;
            let origin = self.find_session(&id).await?;
            let events = self.watch(&origin.directory).await?;
            let session = self.host().fork_session(&id, None).await?;
            let given = parse_roots(params)?;
            let roots = if given.is_empty() { stored_roots(&origin) } else { given };
            let session = self.with_roots(session, &roots).await?;
            let open = self.open(&session, roots).await?;
            self.show_history(&open, true).await?;
            self.follow(&open, events).await;
            self.set_mcp_servers(&open, servers).await?;
            Ok(open)
        };
        match forked.await {
            Ok(open) => {
                let catalog = open.catalog();
                let selection = open.selection();
                let answer = ForkSessionResponse::new(open.id.to_string())
                    .modes(catalog.modes(&selection))
                    .config_options(catalog.options(open.capabilities, &selection));
                request.reply(Ok(with_models(json!(answer), &open)));
                open.send_commands().await;
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    /// Sets the session's MCP servers; an empty map keeps those it has.
    async fn set_mcp_servers(
        self: &Arc<Self>,
        open: &Arc<OpenSession>,
        servers: IndexMap<String, McpConfig>,
    ) -> Result<(), Error> {
        if servers.is_empty() {
            return Ok(());
        }
        match self.host().session_servers(&open.id, servers.clone()).await {
            Ok(()) => {
                self.options.mcp_owners.set(self.client_number, &open.id, servers);
                // Their tools and prompts are announced once they have started.
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

    /// Supplies the client's MCP servers again to a server that was restarted.
    pub async fn restore_mcp_servers(&self, open: &OpenSession) {
        let supplied = self.options.mcp_owners.servers_of(self.client_number, &open.id).filter(|_| !self.is_local());
        let Some(servers) = supplied else { return };
        let restored = self.retry(|| self.host().restore_servers(&open.id, servers.clone())).await;
        restored.unwrap_or_else(|error| tracing::warn!(%error, "failed to restore the MCP servers of a session"));
    }

    async fn find_session(&self, id: &SessionId) -> Result<Session, Error> {
        match self.host().session(id).await {
            Err(HostError::NotFound { .. }) => Err(not_found(id.as_str())),
            found => Ok(found?),
        }
    }

    /// Sets the additional directories of a session, if the client names some.
    async fn with_roots(&self, session: Session, roots: &[PathBuf]) -> Result<Session, Error> {
        if roots.is_empty() || stored_roots(&session) == roots {
            return Ok(session);
        }
        let mut metadata = session.metadata.clone().unwrap_or_default();
        metadata.extend(roots_metadata(roots).unwrap_or_default());
        // Rules can only be appended, and the last match wins.
        let mut permission = directory_rules(&stored_roots(&session), Action::Ask);
        permission.extend(directory_rules(roots, Action::Allow));
        let change =
            UpdateSession { metadata: Some(metadata), permission: Some(permission), ..UpdateSession::default() };
        Ok(self.host().update_session(&session.id, change).await?)
    }

    /// Opens a session for the client; one that is already open starts anew.
    async fn open(self: &Arc<Self>, session: &Session, roots: Vec<PathBuf>) -> Result<Arc<OpenSession>, Error> {
        let scope = Scope::new(session.directory.clone());
        let catalog = SessionCatalog::load(self.host(), &scope, &session.id).await?;
        let all = [PathBuf::from(&session.directory)].into_iter().chain(roots).collect();
        let open = Arc::new(OpenSession::new(session, self.capabilities()?, all, self.peer.clone(), catalog));
        let before = {
            let mut sessions = lock(&self.sessions);
            if sessions.len() >= MAX_OPEN_SESSIONS && !sessions.contains_key(&open.id) {
                return Err(Error::invalid_request(format!(
                    "{MAX_OPEN_SESSIONS} sessions are open; close some of them"
                )));
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

    /// Shows the history of a session, or marks it as shown.
    async fn show_history(self: &Arc<Self>, open: &Arc<OpenSession>, replay: bool) -> Result<(), Error> {
        // Without a replay, only whether the newest messages are complete matters.
        let query = ListMessages { limit: (!replay).then_some(follow::MAX_MESSAGES), before: None };
        let messages = self.host().messages(&open.id, query).await?.messages;
        let subagents = self.find_subagents(&open.id).await?;
        for child in &subagents {
            open.show(|view| view.add_subagent(child)).await;
        }
        if replay && open.capabilities.subagents {
            for child in &subagents {
                let page = self.host().messages(&child.id, ListMessages::default()).await?;
                for message in page.messages {
                    open.show(|view| view.show_stored(message, true)).await;
                }
                open.show(|view| view.subagent_idle(&child.id)).await;
            }
        }
        open.replay(messages, replay).await;
        if replay {
            let todos = self.host().todo(&open.id).await.unwrap_or_default();
            if !todos.is_empty() {
                open.send_update(SessionUpdate::Plan(plan(&todos))).await;
            }
        }
        Ok(())
    }

    /// Resumes a turn that a crash interrupted, and asks again what waits for an answer.
    async fn resume_work(self: &Arc<Self>, open: &Arc<OpenSession>) {
        if !self.try_recover(open).await {
            let (agent, open) = (self.clone(), open.clone());
            tokio::spawn(async move {
                let tries = async {
                    for _ in 0..RECOVER_TRIES {
                        tokio::time::sleep(RECOVER_PAUSE).await;
                        if agent.try_recover(&open).await {
                            break;
                        }
                    }
                };
                open.closed.run_until_cancelled(tries).await;
            });
        }
        self.ask_pending(open).await;
    }

    /// Resumes an interrupted turn; false if one waits that still seems to run elsewhere. The leftovers of a killed
    /// process take a moment to disappear and hold its turns until then.
    async fn try_recover(&self, open: &OpenSession) -> bool {
        match self.host().recover(Some(&open.id)).await {
            Ok(0) => self.host().waiting(&open.id).await.is_ok_and(|waiting| waiting.is_empty()),
            Ok(_) | Err(HostError::Unsupported(_)) => true,
            Err(error) => {
                tracing::warn!(%error, session = %open.id, "failed to resume an interrupted turn");
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
                let page = cursor.as_str().and_then(PageCursor::parse);
                Some(page.ok_or_else(|| Error::invalid_params("cursor did not come from session/list"))?)
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
            limit: Some(PAGE_SIZE + had + 1),
            ..ListSessions::default()
        };
        let mut sessions = self.host().sessions(&scope, query).await?;
        if let Some(page) = &page {
            sessions.retain(|session| session.time.updated < page.at || !page.had.contains(&session.id));
        }
        let more = sessions.len() > PAGE_SIZE;
        sessions.truncate(PAGE_SIZE);
        let next = sessions.last().filter(|_| more).map(|last| {
            let at = last.time.updated;
            let same = sessions.iter().filter(|session| session.time.updated == at).map(|session| session.id.clone());
            let earlier = page.iter().filter(|page| page.at == at).flat_map(|page| page.had.iter().cloned());
            PageCursor { at, had: same.chain(earlier).collect() }.text()
        });
        if archived == "only" {
            sessions.retain(|session| session.time.archived.is_some());
        }
        let info = |session: &Session| {
            SessionInfo::new(session.id.to_string(), &session.directory)
                .title(session.title.clone())
                .updated_at(time::iso(session.time.updated))
                .additional_directories(stored_roots(session))
                .archived(session.time.archived.is_some().then_some(true))
        };
        Ok(json!(ListSessionsResponse::new(sessions.iter().map(info).collect()).next_cursor(next)))
    }

    pub(super) async fn close(self: &Arc<Self>, params: &Value) -> Result<Value, Error> {
        let Ok(open) = self.open_session(params) else { return Ok(json!({})) };
        self.abort(&open).await;
        if let Err(error) = self.host().session_servers(&open.id, IndexMap::new()).await {
            tracing::warn!(%error, "failed to end the MCP servers of a session");
        }
        self.options.mcp_owners.set(self.client_number, &open.id, IndexMap::new());
        self.forget(&open);
        Ok(json!({}))
    }

    /// Aborts the turns of a session.
    async fn abort(self: &Arc<Self>, open: &Arc<OpenSession>) {
        for (_, token) in lock(&self.running_prompts).get(&open.id).cloned().unwrap_or_default() {
            token.cancel();
        }
        if let Err(error) = self.host().abort(&open.id).await {
            tracing::warn!(%error, "failed to abort a session");
        }
    }

    pub(super) async fn delete(self: &Arc<Self>, params: &Value) -> Result<Value, Error> {
        let id = match session_id(params) {
            Ok(id) => id,
            // An invalid id cannot exist, so it counts as deleted.
            Err(_) if params["sessionId"].is_string() => return Ok(json!({})),
            Err(error) => return Err(error),
        };
        let open = lock(&self.sessions).get(&id).cloned();
        if let Some(open) = &open {
            self.abort(open).await;
        }
        match self.host().delete_session(&id).await {
            Ok(()) | Err(HostError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(open) = &open {
            self.forget(open);
        }
        Ok(json!({}))
    }

    pub(super) async fn archive(&self, params: &Value, archived: bool) -> Result<Value, Error> {
        let session = self.find_session(&session_id(params)?).await?;
        let change = UpdateSession { archived: Some(archived.then(api::now)), ..UpdateSession::default() };
        self.host().update_session(&session.id, change).await?;
        Ok(json!({}))
    }

    pub(super) async fn set_title(&self, params: &Value) -> Result<Value, Error> {
        let session = self.find_session(&session_id(params)?).await?;
        let title = params["title"].as_str().map(str::trim).filter(|title| !title.is_empty());
        let title = title.ok_or_else(|| Error::invalid_params("title is missing: expected a string"))?.to_owned();
        let change = UpdateSession { title: Some(title), ..UpdateSession::default() };
        let session = self.host().update_session(&session.id, change).await?;
        Ok(json!(SetSessionTitleResponse::new(session.title)))
    }

    pub(super) async fn status(&self, params: &Value) -> Result<Value, Error> {
        let id = session_id(params)?;
        self.find_session(&id).await?;
        let open = lock(&self.sessions).contains_key(&id);
        Ok(json!(SessionStatusResponse::new(if open { SessionStatus::Open } else { SessionStatus::Saved })))
    }

    pub(super) async fn set_mode(&self, params: &Value) -> Result<Value, Error> {
        let open = self.open_session(params)?;
        let mode =
            params["modeId"].as_str().ok_or_else(|| Error::invalid_params("modeId is missing: expected a string"))?;
        self.select(&open, |catalog, selection| catalog.set_mode(selection, mode)).await?;
        Ok(json!({}))
    }

    pub(super) async fn set_model(&self, params: &Value) -> Result<Value, Error> {
        let open = self.open_session(params)?;
        let model =
            params["modelId"].as_str().ok_or_else(|| Error::invalid_params("modelId is missing: expected a string"))?;
        self.select(&open, |catalog, selection| catalog.set_model(selection, model)).await?;
        Ok(json!({}))
    }

    /// Changes the selection durably: the next client that opens the session finds it, even without a prompt in
    /// between.
    async fn select(
        &self,
        open: &OpenSession,
        change: impl FnOnce(&SessionCatalog, &mut Selection) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = open.selection();
        let mut selection = before.clone();
        change(&open.catalog(), &mut selection)?;
        if let Some(change) = selection.update_since(&before) {
            self.retry(|| self.host().update_session(&open.id, change.clone())).await?;
        }
        let Ok(()) = open
            .select(|_, now| {
                *now = selection;
                Ok::<(), std::convert::Infallible>(())
            })
            .await;
        Ok(())
    }

    pub(super) async fn set_option(&self, params: &Value) -> Result<Value, Error> {
        let open = self.open_session(params)?;
        let option = params["configId"]
            .as_str()
            .ok_or_else(|| Error::invalid_params("configId is missing: expected a string"))?;
        self.select(&open, |catalog, selection| {
            catalog.set_option(open.capabilities, selection, option, &params["value"])
        })
        .await?;
        Ok(json!({ "configOptions": open.catalog().options(open.capabilities, &open.selection()) }))
    }
}

/// Adds what older clients look for.
fn with_models(mut answer: Value, open: &OpenSession) -> Value {
    answer["models"] = open.catalog().models_state(&open.selection());
    answer
}

/// Parses the additional directories.
fn parse_roots(params: &Value) -> Result<Vec<PathBuf>, Error> {
    let list = match params.get(ROOTS_KEY) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_ROOTS => list,
        Some(_) => {
            return Err(Error::invalid_params(format!("{ROOTS_KEY} must be a list of at most {MAX_ROOTS} paths")));
        }
    };
    let path = |path: &Value| path.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
    let paths: Option<Vec<PathBuf>> = list.iter().map(path).collect();
    paths.ok_or_else(|| Error::invalid_params(format!("{ROOTS_KEY} must be absolute paths")))
}

/// Rules for a session's additional directories.
fn directory_rules(roots: &[PathBuf], action: Action) -> Vec<Rule> {
    let rule = |root: &PathBuf| {
        let root = root.to_string_lossy();
        Rule::new("external_directory", format!("{}/*", root.trim_end_matches('/')), action)
    };
    roots.iter().map(rule).collect()
}

fn roots_metadata(roots: &[PathBuf]) -> Option<api::JsonMap> {
    (!roots.is_empty()).then(|| api::JsonMap::from_iter([(ROOTS_KEY.to_owned(), json!(roots))]))
}

fn stored_roots(session: &Session) -> Vec<PathBuf> {
    let stored = session.metadata.as_ref().and_then(|metadata| metadata.get(ROOTS_KEY)).cloned();
    stored.and_then(|roots| serde_json::from_value(roots).ok()).unwrap_or_default()
}
