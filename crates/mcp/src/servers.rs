//! The servers of a directory or of a session: which there are, how it is with each, and what they offer together.

mod connect;
mod link;

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

use crate::client::Limits;
use crate::error::{Challenge, Error};
use crate::lock;
use crate::oauth::{Auth, Flow, Listener};
use crate::protocol::{CallResult, Prompt, PromptText, Resource, ResourceContents, ResourceTemplate, Tool};
use connect::{auth_of, is_enabled};
use link::{Connection, Link, State};

/// The most servers of one directory or session.
const SERVERS_MAX: usize = 64;
/// How long a server may hold up a prompt while it starts; it joins later then.
const START_WAIT: Duration = Duration::from_secs(10);
/// How long a server that said that its tools are others may hold up a prompt.
const RELIST_WAIT: Duration = Duration::from_secs(2);

/// What servers need to be run.
pub struct Setup {
    /// Runs programs.
    pub exec: Exec,
    /// Where they run; servers may ask for it.
    pub directory: PathBuf,
    /// Where tokens are kept.
    pub data: PathBuf,
    /// Our version, as servers see it.
    pub version: String,
    /// How long a call may take, if the server's own configuration does not say.
    pub timeout: Option<Duration>,
    /// Ends them all.
    pub closing: CancellationToken,
    /// Knows until when they are there.
    pub tasks: TaskTracker,
    /// Told when the tools of a server are others.
    pub changed: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Servers by name. They are started at their first use, and end when this is dropped.
pub struct Servers {
    setup: Arc<Setup>,
    entries: Mutex<IndexMap<String, Entry>>,
    flows: Mutex<HashMap<String, Flow>>,
}

struct Entry {
    config: McpConfig,
    /// `None` before its first use, and when it was disconnected.
    link: Option<Link>,
    off: bool,
}

/// Where a human signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The address; empty if that is not needed.
    pub url: String,
    /// What comes back with the code.
    pub state: String,
}

/// What a server wants models to know.
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
    /// The servers of a configuration. Nothing is started yet.
    pub fn new(setup: Setup, configs: impl IntoIterator<Item = (String, McpConfig)>) -> Self {
        let entry = |(name, config)| (name, Entry { config, link: None, off: false });
        let entries = configs.into_iter().take(SERVERS_MAX).map(entry).collect();
        Self { setup: Arc::new(setup), entries: Mutex::new(entries), flows: Mutex::default() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    /// Starts what is configured and was not started yet, and waits until all are ready; a server that takes long is not
    /// waited for, and one that is not used yet when it is ready joins then.
    pub async fn ready(&self) {
        let waits: Vec<_> = {
            let mut entries = lock(&self.entries);
            for (name, entry) in entries.iter_mut().filter(|(_, entry)| entry.link.is_none()) {
                if is_enabled(&entry.config) && !entry.off {
                    entry.link = Some(Link::start(&self.setup, name, &entry.config));
                }
            }
            let links = entries.values().filter_map(|entry| entry.link.as_ref());
            links.map(|link| (link.state.clone(), link.since + START_WAIT)).collect()
        };
        let settled = waits.into_iter().map(|(mut state, until)| async move {
            let settled =
                async { state.wait_for(|state| !matches!(state, State::Starting)).await.ok().map(|s| s.clone()) };
            if let Ok(Some(State::Up(connection))) = timeout_at(until, settled).await {
                let _ = timeout(RELIST_WAIT, connection.current()).await;
            }
        });
        futures::future::join_all(settled).await;
    }

    /// How it is with each server.
    pub fn status(&self) -> IndexMap<String, McpStatus> {
        lock(&self.entries).iter().map(|(name, entry)| (name.clone(), entry.status())).collect()
    }

    /// How it is with one.
    pub fn status_of(&self, name: &str) -> Result<McpStatus, Error> {
        lock(&self.entries).get(name).map(Entry::status).ok_or_else(|| Error::Unknown(name.to_owned()))
    }

    /// Waits until each server that was started answers or has failed; gives those that failed, and why. Servers that end
    /// meanwhile are left out, and nothing keeps them from it.
    pub fn failures(&self) -> impl Future<Output = Vec<(String, McpStatus)>> + Send + 'static {
        let started = |(name, entry): (&String, &Entry)| Some((name.clone(), entry.link.as_ref()?.state.clone()));
        let states: Vec<_> = lock(&self.entries).iter().filter_map(started).collect();
        let settled = states.into_iter().map(|(name, mut state)| async move {
            let settled = state.wait_for(|state| !matches!(state, State::Starting)).await.ok()?.clone();
            match settled {
                State::Down(status, _) => Some((name, status)),
                State::Starting | State::Up(_) => None,
            }
        });
        async { futures::future::join_all(settled).await.into_iter().flatten().collect() }
    }

    /// Adds a server, or replaces the one of that name, and connects to it.
    pub async fn add(&self, name: &str, config: McpConfig) -> Result<(), Error> {
        let enabled = is_enabled(&config);
        {
            let mut entries = lock(&self.entries);
            if entries.len() >= SERVERS_MAX && !entries.contains_key(name) {
                return Err(Error::Config(format!("There are at most {SERVERS_MAX} MCP servers")));
            }
            entries.insert(name.to_owned(), Entry { config, link: None, off: false });
        }
        if enabled { self.connect(name).await.map(drop) } else { Ok(()) }
    }

    /// Connects to a server, again if need be; it counts as switched on then.
    pub async fn connect(&self, name: &str) -> Result<McpStatus, Error> {
        // The old one is gone first, so that there are never two of a program.
        self.close(name).await?;
        let mut state = {
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
            entry.off = false;
            entry.link.insert(Link::start(&self.setup, name, &entry.config)).state.clone()
        };
        let _ = state.wait_for(|state| !matches!(state, State::Starting)).await;
        self.status_of(name)
    }

    /// Disconnects from a server; returns when it is gone.
    pub async fn disconnect(&self, name: &str) -> Result<(), Error> {
        self.close(name).await?;
        (self.setup.changed)(name);
        Ok(())
    }

    async fn close(&self, name: &str) -> Result<(), Error> {
        let link = {
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
            // Nobody who wants it ready starts it meanwhile.
            entry.off = true;
            entry.link.take()
        };
        if let Some(link) = link {
            link.close().await;
        }
        Ok(())
    }

    /// The tools of all servers that answer.
    pub fn tools(&self) -> Vec<Tool> {
        self.up().iter().flat_map(|connection| lock(&connection.tools).to_vec()).collect()
    }

    /// The prompts of all servers that answer.
    pub fn prompts(&self) -> Vec<Prompt> {
        self.up().iter().flat_map(|connection| lock(&connection.prompts).to_vec()).collect()
    }

    /// What servers want models to know, by name.
    pub fn instructions(&self) -> Vec<Instructions> {
        let told = self.up().into_iter().filter_map(|connection| {
            let text = connection.client.instructions.clone()?;
            let tools = lock(&connection.tools).iter().map(|tool| tool.name.clone()).collect();
            Some(Instructions { server: connection.name.clone(), text, tools })
        });
        let mut told: Vec<_> = told.collect();
        told.sort_by(|a, b| a.server.cmp(&b.server));
        told
    }

    /// The names of the servers that have something to read.
    pub fn with_resources(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.up().iter().filter(|c| c.client.has("resources")).map(|c| c.name.clone()).collect();
        names.sort();
        names
    }

    /// Calls a tool. `progress` is told what the server says meanwhile.
    pub async fn call(
        &self,
        tool: &Tool,
        arguments: Json,
        cancel: &CancellationToken,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<CallResult, Error> {
        let connection = self.connection(&tool.server)?;
        let limits = Limits { timeout: connection.limits.1, cancel, progress };
        let params = json!({ "name": tool.tool, "arguments": arguments });
        connection.client.request("tools/call", params, &limits).await
    }

    /// The text of a prompt, with its arguments filled in.
    pub async fn prompt(&self, server: &str, name: &str, arguments: IndexMap<String, String>) -> Result<String, Error> {
        let connection = self.connection(server)?;
        let params = json!({ "name": name, "arguments": arguments });
        let text: PromptText = connection.client.ask("prompts/get", params, connection.limits.1).await?;
        Ok(text.text())
    }

    /// What one server, or all of them, have to read. One that does not answer is left out.
    pub async fn resources(&self, server: Option<&str>) -> Vec<Resource> {
        let lists = self.lists(server, "resources/list", "resources", |server, resource: Resource| Resource {
            name: if resource.name.is_empty() { resource.uri.clone() } else { resource.name },
            server: server.to_owned(),
            ..resource
        });
        lists.await
    }

    /// The patterns of what can be read.
    pub async fn resource_templates(&self, server: Option<&str>) -> Vec<ResourceTemplate> {
        let (method, key) = ("resources/templates/list", "resourceTemplates");
        let named = |server: &str, template| ResourceTemplate { server: server.to_owned(), ..template };
        self.lists(server, method, key, named).await
    }

    /// Reads something.
    pub async fn read(&self, server: &str, uri: &str) -> Result<Vec<ResourceContents>, Error> {
        #[derive(Deserialize)]
        struct Read {
            contents: Vec<ResourceContents>,
        }
        let connection = self.connection(server)?;
        let read: Read = connection.client.ask("resources/read", json!({ "uri": uri }), connection.limits.1).await?;
        Ok(read.contents)
    }

    /// Whether a server can be signed in at; the error says why not.
    pub fn has_oauth(&self, name: &str) -> Result<(), Error> {
        self.auth(name).map(drop)
    }

    /// Begins to sign in at a server.
    pub async fn begin_auth(&self, name: &str) -> Result<Authorization, Error> {
        let auth = self.auth(name)?;
        if self.status_of(name)? != McpStatus::Connected {
            self.connect(name).await?;
        }
        let state = lock(&self.entries).get(name).and_then(Entry::state);
        let challenge = match state {
            Some(State::Up(_)) => return Ok(Authorization { url: String::new(), state: String::new() }),
            Some(State::Down(McpStatus::Failed { error }, _)) => return Err(Error::OAuth(error)),
            Some(State::Down(_, challenge)) => challenge,
            _ => Challenge::default(),
        };
        let flow = auth.begin(&challenge).await?;
        let authorization = Authorization { url: flow.url.to_string(), state: flow.state.clone() };
        lock(&self.flows).insert(name.to_owned(), flow);
        Ok(authorization)
    }

    /// Finishes to sign in with the code that the browser brought, and connects.
    pub async fn finish_auth(&self, name: &str, code: &str) -> Result<McpStatus, Error> {
        let auth = self.auth(name)?;
        let flow = lock(&self.flows).remove(name);
        let flow = flow.ok_or_else(|| Error::OAuth(format!("nobody has begun to sign in at {name:?}")))?;
        auth.finish(&flow, code).await?;
        self.connect(name).await
    }

    /// Signs in: begins (unless that was done), shows the address to `open`, waits for the browser, and connects.
    pub async fn authenticate(&self, name: &str, open: impl AsyncFnOnce(&str)) -> Result<McpStatus, Error> {
        self.auth(name)?;
        let begun = lock(&self.flows).contains_key(name);
        if !begun && self.begin_auth(name).await?.url.is_empty() {
            return self.status_of(name);
        }
        let flow = lock(&self.flows).get(name).cloned();
        let flow = flow.ok_or_else(|| Error::OAuth("signing in was called off".to_owned()))?;
        let listener = Listener::open(&flow).await?;
        let (code, ()) = futures::future::join(listener.code(), open(flow.url.as_str())).await;
        match code {
            Ok(code) => self.finish_auth(name, &code).await,
            Err(error) => {
                lock(&self.flows).remove(name);
                Err(error)
            }
        }
    }

    /// Forgets how to sign in at a server.
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

    fn up(&self) -> Vec<Arc<Connection>> {
        let up = |entry: &Entry| match entry.state() {
            Some(State::Up(connection)) => Some(connection),
            _ => None,
        };
        lock(&self.entries).values().filter_map(up).collect()
    }

    fn connection(&self, name: &str) -> Result<Arc<Connection>, Error> {
        let state = lock(&self.entries).get(name).map(Entry::state);
        match state.ok_or_else(|| Error::Unknown(name.to_owned()))? {
            Some(State::Up(connection)) => Ok(connection),
            Some(State::Down(McpStatus::Failed { error }, _)) => Err(Error::Closed(error)),
            _ => Err(Error::NotConnected(name.to_owned())),
        }
    }

    async fn lists<T: serde::de::DeserializeOwned>(
        &self,
        server: Option<&str>,
        method: &str,
        key: &str,
        named: impl Fn(&str, T) -> T,
    ) -> Vec<T> {
        let wanted = |c: &Arc<Connection>| c.client.has("resources") && server.is_none_or(|name| c.name == name);
        let connections: Vec<_> = self.up().into_iter().filter(wanted).collect();
        let lists = connections.iter().map(|connection| async {
            let list = connection.client.list::<T>(method, key, connection.limits.1).await;
            let list = list.unwrap_or_else(|error| {
                tracing::warn!(server = connection.name, %error, "an MCP server does not say what it has to read");
                Vec::new()
            });
            list.into_iter().map(|entry| named(&connection.name, entry)).collect::<Vec<_>>()
        });
        futures::future::join_all(lists).await.into_iter().flatten().collect()
    }
}

impl Entry {
    fn state(&self) -> Option<State> {
        Some(self.link.as_ref()?.state.borrow().clone())
    }

    fn status(&self) -> McpStatus {
        match self.state() {
            Some(State::Up(_)) => McpStatus::Connected,
            Some(State::Down(status, _)) => status,
            Some(State::Starting) => McpStatus::Failed { error: "The server is still starting".to_owned() },
            None => McpStatus::Disabled,
        }
    }
}
