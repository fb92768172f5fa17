//! The MCP servers of a directory or a session: their configuration, their status, and what they offer.

mod connect;
mod handle;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Json, McpConfig, McpStatus};
use exec::Exec;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::RequestLimits;
use crate::error::{AuthChallenge, Error};
use crate::lock;
use crate::oauth::{Auth, AuthFlow, CallbackListener};
use crate::protocol::{CallResult, Prompt, PromptText, Resource, ResourceContents, ResourceTemplate, Tool};
use connect::{auth_of, is_enabled};
use handle::{Connection, ServerHandle, ServerState};

/// The most servers of one directory or session.
const SERVERS_MAX: usize = 64;
/// How long a starting server may delay a prompt; after that it joins later.
const START_WAIT: Duration = Duration::from_secs(10);
/// How long a server that announced changed tools may delay a prompt.
const RELIST_WAIT: Duration = Duration::from_secs(2);

/// What servers need to run.
pub struct Setup {
    /// Runs local servers.
    pub exec: Exec,
    /// Where they run; servers may ask for it.
    pub directory: PathBuf,
    /// Where credentials are stored.
    pub data: PathBuf,
    /// The version reported to servers.
    pub version: String,
    /// How long a call may take, unless the server's configuration says.
    pub timeout: Option<Duration>,
    /// Ends all servers.
    pub closing: CancellationToken,
    /// Tracks the tasks of all servers.
    pub tasks: TaskTracker,
    /// Called when the tools of a server change.
    pub changed: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Servers by name. They start at their first use, and end when this is dropped.
pub struct Servers {
    setup: Arc<Setup>,
    entries: Mutex<IndexMap<String, ServerEntry>>,
    flows: Mutex<HashMap<String, AuthFlow>>,
}

struct ServerEntry {
    config: McpConfig,
    /// `None` before its first use, and while it is disconnected.
    handle: Option<ServerHandle>,
    is_disabled: bool,
}

/// Where the user signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The URL; empty if the server is connected already.
    pub url: String,
    /// The state that comes back with the code.
    pub state: String,
}

/// A server's instructions for models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instructions {
    /// The server.
    pub server: String,
    /// The text.
    pub text: String,
    /// The names of its tools.
    pub tools: Vec<String>,
}

impl Servers {
    /// The configured servers. Nothing is started yet.
    pub fn new(setup: Setup, configs: impl IntoIterator<Item = (String, McpConfig)>) -> Self {
        let entry = |(name, config)| (name, ServerEntry { config, handle: None, is_disabled: false });
        let entries = configs.into_iter().take(SERVERS_MAX).map(entry).collect();
        Self { setup: Arc::new(setup), entries: Mutex::new(entries), flows: Mutex::default() }
    }

    /// Whether there are no servers.
    pub fn is_empty(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    /// Starts all configured servers, and waits until they are ready. A server that takes too long is not waited for;
    /// it joins once it is ready.
    pub async fn ready(&self) {
        let waits: Vec<_> = {
            let mut entries = lock(&self.entries);
            for (name, entry) in entries.iter_mut().filter(|(_, entry)| entry.handle.is_none()) {
                if is_enabled(&entry.config) && !entry.is_disabled {
                    entry.handle = Some(ServerHandle::start(&self.setup, name, &entry.config));
                }
            }
            let handles = entries.values().filter_map(|entry| entry.handle.as_ref());
            handles.map(|handle| (handle.state.clone(), handle.since + START_WAIT)).collect()
        };
        let settled = waits.into_iter().map(|(mut state, until)| async move {
            let settled =
                async { state.wait_for(|state| !matches!(state, ServerState::Starting)).await.ok().map(|s| s.clone()) };
            if let Ok(Some(ServerState::Connected(connection))) = timeout_at(until, settled).await {
                let _ = timeout(RELIST_WAIT, connection.wait_until_listed()).await;
            }
        });
        futures::future::join_all(settled).await;
    }

    /// The status of each server.
    pub fn status(&self) -> IndexMap<String, McpStatus> {
        lock(&self.entries).iter().map(|(name, entry)| (name.clone(), entry.status())).collect()
    }

    /// The status of one server.
    pub fn status_of(&self, name: &str) -> Result<McpStatus, Error> {
        lock(&self.entries).get(name).map(ServerEntry::status).ok_or_else(|| Error::Unknown(name.to_owned()))
    }

    /// Waits until each started server is connected or has failed; returns the failures. Servers that end meanwhile are
    /// left out, and this does not keep them alive.
    pub fn failures(&self) -> impl Future<Output = Vec<(String, McpStatus)>> + Send + 'static {
        let started =
            |(name, entry): (&String, &ServerEntry)| Some((name.clone(), entry.handle.as_ref()?.state.clone()));
        let states: Vec<_> = lock(&self.entries).iter().filter_map(started).collect();
        let settled = states.into_iter().map(|(name, mut state)| async move {
            let settled = state.wait_for(|state| !matches!(state, ServerState::Starting)).await.ok()?.clone();
            match settled {
                ServerState::Disconnected(status, _) => Some((name, status)),
                ServerState::Starting | ServerState::Connected(_) => None,
            }
        });
        async { futures::future::join_all(settled).await.into_iter().flatten().collect() }
    }

    /// Adds or replaces a server, and connects to it.
    pub async fn add(&self, name: &str, config: McpConfig) -> Result<(), Error> {
        let enabled = is_enabled(&config);
        {
            let mut entries = lock(&self.entries);
            if entries.len() >= SERVERS_MAX && !entries.contains_key(name) {
                return Err(Error::Config(format!("There are at most {SERVERS_MAX} MCP servers")));
            }
            entries.insert(name.to_owned(), ServerEntry { config, handle: None, is_disabled: false });
        }
        if enabled { self.connect(name).await.map(drop) } else { Ok(()) }
    }

    /// Connects or reconnects to a server, which also enables it.
    pub async fn connect(&self, name: &str) -> Result<McpStatus, Error> {
        // End the old one first, so that a program never runs twice.
        self.close(name).await?;
        let mut state = {
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
            entry.is_disabled = false;
            entry.handle.insert(ServerHandle::start(&self.setup, name, &entry.config)).state.clone()
        };
        let _ = state.wait_for(|state| !matches!(state, ServerState::Starting)).await;
        self.status_of(name)
    }

    /// Disconnects from a server; returns when it is gone.
    pub async fn disconnect(&self, name: &str) -> Result<(), Error> {
        self.close(name).await?;
        (self.setup.changed)(name);
        Ok(())
    }

    async fn close(&self, name: &str) -> Result<(), Error> {
        let handle = {
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
            // Keeps `ready` from starting it meanwhile.
            entry.is_disabled = true;
            entry.handle.take()
        };
        if let Some(handle) = handle {
            handle.close().await;
        }
        Ok(())
    }

    /// The tools of all connected servers.
    pub fn tools(&self) -> Vec<Tool> {
        self.connected().iter().flat_map(|connection| lock(&connection.tools).to_vec()).collect()
    }

    /// The prompts of all connected servers.
    pub fn prompts(&self) -> Vec<Prompt> {
        self.connected().iter().flat_map(|connection| lock(&connection.prompts).to_vec()).collect()
    }

    /// The instructions of all connected servers, by name.
    pub fn instructions(&self) -> Vec<Instructions> {
        let instructions = self.connected().into_iter().filter_map(|connection| {
            let text = connection.client.instructions.clone()?;
            let tools = lock(&connection.tools).iter().map(|tool| tool.name.clone()).collect();
            Some(Instructions { server: connection.name.clone(), text, tools })
        });
        let mut instructions: Vec<_> = instructions.collect();
        instructions.sort_by(|a, b| a.server.cmp(&b.server));
        instructions
    }

    /// The names of the connected servers that have resources.
    pub fn with_resources(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.connected().iter().filter(|c| c.client.has("resources")).map(|c| c.name.clone()).collect();
        names.sort();
        names
    }

    /// Calls a tool. `progress` receives the server's progress messages.
    pub async fn call(
        &self,
        tool: &Tool,
        arguments: Json,
        cancel: &CancellationToken,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<CallResult, Error> {
        let connection = self.connection(&tool.server)?;
        let limits = RequestLimits { timeout: connection.limits.1, cancel, progress };
        let params = json!({ "name": tool.tool, "arguments": arguments });
        connection.client.request("tools/call", params, &limits).await
    }

    /// The text of a prompt, with its arguments filled in.
    pub async fn prompt(&self, server: &str, name: &str, arguments: IndexMap<String, String>) -> Result<String, Error> {
        let connection = self.connection(server)?;
        let params = json!({ "name": name, "arguments": arguments });
        let text: PromptText = connection.client.simple_request("prompts/get", params, connection.limits.1).await?;
        Ok(text.text())
    }

    /// The resources of one server, or of all. A server that fails is left out.
    pub async fn resources(&self, server: Option<&str>) -> Vec<Resource> {
        let lists = self.list_all(server, "resources/list", "resources", |server, resource: Resource| Resource {
            name: if resource.name.is_empty() { resource.uri.clone() } else { resource.name },
            server: server.to_owned(),
            ..resource
        });
        lists.await
    }

    /// The resource templates of one server, or of all.
    pub async fn resource_templates(&self, server: Option<&str>) -> Vec<ResourceTemplate> {
        let (method, key) = ("resources/templates/list", "resourceTemplates");
        let named = |server: &str, template| ResourceTemplate { server: server.to_owned(), ..template };
        self.list_all(server, method, key, named).await
    }

    /// Reads a resource.
    pub async fn read(&self, server: &str, uri: &str) -> Result<Vec<ResourceContents>, Error> {
        #[derive(Deserialize)]
        struct ReadResult {
            contents: Vec<ResourceContents>,
        }
        let connection = self.connection(server)?;
        let read: ReadResult =
            connection.client.simple_request("resources/read", json!({ "uri": uri }), connection.limits.1).await?;
        Ok(read.contents)
    }

    /// Checks that a server uses OAuth; the error says why not.
    pub fn has_oauth(&self, name: &str) -> Result<(), Error> {
        self.auth(name).map(drop)
    }

    /// Starts a sign-in.
    pub async fn begin_auth(&self, name: &str) -> Result<Authorization, Error> {
        let auth = self.auth(name)?;
        if self.status_of(name)? != McpStatus::Connected {
            self.connect(name).await?;
        }
        let state = lock(&self.entries).get(name).and_then(ServerEntry::state);
        let challenge = match state {
            Some(ServerState::Connected(_)) => return Ok(Authorization { url: String::new(), state: String::new() }),
            Some(ServerState::Disconnected(McpStatus::Failed { error }, _)) => return Err(Error::OAuth(error)),
            Some(ServerState::Disconnected(_, challenge)) => challenge,
            _ => AuthChallenge::default(),
        };
        let flow = auth.begin(&challenge).await?;
        let authorization = Authorization { url: flow.url.to_string(), state: flow.state.clone() };
        lock(&self.flows).insert(name.to_owned(), flow);
        Ok(authorization)
    }

    /// Completes a sign-in with the code that the browser delivered, and connects.
    pub async fn finish_auth(&self, name: &str, code: &str) -> Result<McpStatus, Error> {
        let auth = self.auth(name)?;
        let flow = lock(&self.flows).remove(name);
        let flow = flow.ok_or_else(|| Error::OAuth(format!("no sign-in to {name:?} is in progress")))?;
        auth.finish(&flow, code).await?;
        self.connect(name).await
    }

    /// Signs in: starts (unless done), passes the URL to `open`, waits for the browser, and connects.
    pub async fn authenticate(&self, name: &str, open: impl AsyncFnOnce(&str)) -> Result<McpStatus, Error> {
        self.auth(name)?;
        let begun = lock(&self.flows).contains_key(name);
        if !begun && self.begin_auth(name).await?.url.is_empty() {
            return self.status_of(name);
        }
        let flow = lock(&self.flows).get(name).cloned();
        let flow = flow.ok_or_else(|| Error::OAuth("the sign-in was cancelled".to_owned()))?;
        let listener = CallbackListener::open(&flow).await?;
        let (code, ()) = futures::future::join(listener.wait_for_code(), open(flow.url.as_str())).await;
        match code {
            Ok(code) => self.finish_auth(name, &code).await,
            Err(error) => {
                lock(&self.flows).remove(name);
                Err(error)
            }
        }
    }

    /// Forgets the credentials for a server.
    pub fn forget_auth(&self, name: &str) -> Result<(), Error> {
        let config = lock(&self.entries).get(name).map(|entry| entry.config.clone());
        let config = config.ok_or_else(|| Error::Unknown(name.to_owned()))?;
        lock(&self.flows).remove(name);
        auth_of(&self.setup, name, &config)?.map_or(Ok(()), |auth| auth.forget())
    }

    fn auth(&self, name: &str) -> Result<Arc<Auth>, Error> {
        let config = lock(&self.entries).get(name).map(|entry| entry.config.clone());
        let config = config.ok_or_else(|| Error::Unknown(name.to_owned()))?;
        auth_of(&self.setup, name, &config)?.ok_or_else(|| Error::NoOAuth(name.to_owned()))
    }

    fn connected(&self) -> Vec<Arc<Connection>> {
        let connected = |entry: &ServerEntry| match entry.state() {
            Some(ServerState::Connected(connection)) => Some(connection),
            _ => None,
        };
        lock(&self.entries).values().filter_map(connected).collect()
    }

    fn connection(&self, name: &str) -> Result<Arc<Connection>, Error> {
        let state = lock(&self.entries).get(name).map(ServerEntry::state);
        match state.ok_or_else(|| Error::Unknown(name.to_owned()))? {
            Some(ServerState::Connected(connection)) => Ok(connection),
            Some(ServerState::Disconnected(McpStatus::Failed { error }, _)) => Err(Error::Closed(error)),
            _ => Err(Error::NotConnected(name.to_owned())),
        }
    }

    async fn list_all<T: serde::de::DeserializeOwned>(
        &self,
        server: Option<&str>,
        method: &str,
        key: &str,
        named: impl Fn(&str, T) -> T,
    ) -> Vec<T> {
        let wanted = |c: &Arc<Connection>| c.client.has("resources") && server.is_none_or(|name| c.name == name);
        let connections: Vec<_> = self.connected().into_iter().filter(wanted).collect();
        let lists = connections.iter().map(|connection| async {
            let list = connection.client.list::<T>(method, key, connection.limits.1).await;
            let list = list.unwrap_or_else(|error| {
                tracing::warn!(server = connection.name, %error, "an MCP server failed to list its resources");
                Vec::new()
            });
            list.into_iter().map(|entry| named(&connection.name, entry)).collect::<Vec<_>>()
        });
        futures::future::join_all(lists).await.into_iter().flatten().collect()
    }
}

impl ServerEntry {
    fn state(&self) -> Option<ServerState> {
        Some(self.handle.as_ref()?.state.borrow().clone())
    }

    fn status(&self) -> McpStatus {
        match self.state() {
            Some(ServerState::Connected(_)) => McpStatus::Connected,
            Some(ServerState::Disconnected(status, _)) => status,
            Some(ServerState::Starting) => McpStatus::Failed { error: "The server is still starting".to_owned() },
            None => McpStatus::Disabled,
        }
    }
}
