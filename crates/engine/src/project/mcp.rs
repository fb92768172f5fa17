//! MCP servers in sessions: their tools beside the built-in ones, their prompts as commands, and their resources.
//!
//! The servers of a directory belong to its [`Instance`], so all its sessions share them. A client can add more to a
//! single session.

mod resource;
mod search;
mod session_servers;
mod tool;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::mcp::{Error, Servers, Setup};
use api::{
    Command, CommandSource, EventBody, FilePart, HostError, Json, McpConfig, McpResource, McpStatus, Scope, Session,
    SessionId,
};
use exec::Spec;
use indexmap::IndexMap;
use store::{Batch, Location};
use tokio_util::sync::CancellationToken;
use tools::{Registry, Tool};

use crate::access::Right;
use crate::ask::rules::Rules;
use crate::project::instance::Instance;
use crate::turn::{Turn, template};
use crate::{Engine, Inner};

pub(crate) use session_servers::SessionServers;

/// The configuration key of the timeout of a call.
const TIMEOUT: &str = "mcp_timeout";
/// How many ancestor sessions are searched for servers.
const DEPTH_MAX: usize = 32;
/// The timeout of the program that opens a browser.
const BROWSER_WAIT: Duration = Duration::from_secs(10);

/// Whether two configurations define the same servers.
pub(crate) fn has_same_servers(one: &config::LoadedConfig, other: &config::LoadedConfig) -> bool {
    let timeout = |loaded: &config::LoadedConfig| loaded.config.experimental.get(TIMEOUT).cloned();
    one.config.mcp == other.config.mcp && one.config.env == other.config.env && timeout(one) == timeout(other)
}

/// The servers of a directory, not started yet.
pub(crate) fn servers(inner: &Inner, loaded: &config::LoadedConfig, directory: &Path, place: &Location) -> Servers {
    let config = |(name, config): (&String, &Json)| match serde_json::from_value(config.clone()) {
        Ok(config) => Some((name.clone(), config)),
        Err(error) => {
            tracing::warn!(server = name, %error, "ignoring the invalid configuration of an MCP server");
            None
        }
    };
    Servers::new(setup(inner, loaded, directory, place), loaded.config.mcp.iter().filter_map(config))
}

fn setup(inner: &Inner, loaded: &config::LoadedConfig, directory: &Path, place: &Location) -> Setup {
    let (store, place, tasks) = (inner.store.clone(), place.clone(), inner.tasks.tracker().clone());
    let changed = move |server: &str| {
        let mut batch = Batch::new(&place);
        batch.event(EventBody::McpToolsChanged { server: server.to_owned() });
        let store = store.clone();
        tasks.spawn(async move {
            if let Err(error) = store.commit(batch).await {
                tracing::warn!(%error, "cannot publish the changed tools of an MCP server");
            }
        });
    };
    Setup {
        exec: inner.exec.hiding(&loaded.config.env.hide),
        directory: directory.to_owned(),
        data: inner.settings.inputs.dirs.data.clone(),
        version: inner.settings.version.clone(),
        timeout: loaded.config.experimental.get(TIMEOUT).and_then(Json::as_u64).map(Duration::from_millis),
        closing: inner.tasks.closing().clone(),
        tasks: inner.tasks.tracker().clone(),
        changed: Arc::new(changed),
    }
}

impl Engine {
    /// Checks that a server supports signing in.
    pub fn mcp_oauth(&self, scope: &Scope, name: &str) -> Result<(), HostError> {
        self.inner.instance(Path::new(&scope.directory)).servers.has_oauth(name).map_err(host_error)
    }

    /// Completes a sign-in with the code that [`api::CatalogHost::mcp_auth_start`] led the user to.
    pub async fn mcp_auth_callback(&self, scope: &Scope, name: &str, code: &str) -> Result<McpStatus, HostError> {
        self.require(Right::Configure)?;
        let instance = self.inner.instance(Path::new(&scope.directory));
        signed_in(instance.servers.finish_auth(name, code).await)
    }
}

impl Inner {
    /// Replaces the servers of a session and starts the new ones. With `keep`, does nothing if it already has some.
    pub(crate) fn set_session_servers(
        &self,
        session: &Session,
        servers: IndexMap<String, McpConfig>,
        keep: bool,
    ) -> Result<(), HostError> {
        let of_sessions = self.projects.session_servers();
        if !keep {
            of_sessions.remove(&session.id);
        }
        if servers.is_empty() || keep && of_sessions.get(&session.id).is_some() {
            return Ok(());
        }
        let directory: &Path = session.directory.as_ref();
        let loaded = &self.instance(directory).loaded;
        let servers = Arc::new(Servers::new(setup(self, loaded, directory, &self.place(session)), servers));
        // Another caller may have been faster.
        if !of_sessions.insert(&session.id, &servers, keep)? {
            return Ok(());
        }
        let (store, place, id) = (self.store.clone(), self.place(session), session.id.clone());
        self.tasks.spawn(async move {
            servers.ready().await;
            let failures = servers.failures();
            drop(servers);
            for (name, status) in failures.await {
                let Some(message) = failure(&name, &status) else { continue };
                let mut batch = Batch::new(&place);
                batch.event(EventBody::SessionNotice { session_id: id.clone(), message });
                if let Err(error) = store.commit(batch).await {
                    tracing::warn!(%error, "cannot publish the failure of an MCP server");
                }
            }
        });
        Ok(())
    }

    /// All servers a session can use: its directory's, then its ancestors', then its own.
    pub(crate) fn servers_of(&self, instance: &Instance, session: &SessionId) -> Vec<Arc<Servers>> {
        let mut all = Vec::new();
        let of_sessions = self.projects.session_servers();
        if !of_sessions.is_empty() {
            let mut next = Some(session.clone());
            for _ in 0..DEPTH_MAX {
                let Some(id) = next else { break };
                all.extend(of_sessions.get(&id));
                next = self.store.session(&id).ok().flatten().and_then(|session| session.parent_id);
            }
        }
        all.push(instance.servers.clone());
        all.retain(|servers| !servers.is_empty());
        all.reverse();
        all
    }

    /// The commands of a directory, plus the prompts of its servers.
    pub(crate) async fn commands(&self, instance: &Instance, session: Option<&SessionId>) -> Vec<Command> {
        let servers = match session {
            Some(session) => self.servers_of(instance, session),
            None => vec![instance.servers.clone()],
        };
        wait_ready(&servers).await;
        let mut commands = instance.commands.clone();
        for prompt in servers.iter().flat_map(|servers| servers.prompts()) {
            let name = ::mcp::prompt_name(&prompt.server, &prompt.name);
            commands.retain(|other| other.name != name || other.source != Some(CommandSource::Mcp));
            if commands.iter().any(|other| other.name == name) {
                continue;
            }
            commands.push(Command {
                name,
                description: prompt.description,
                agent: None,
                model: None,
                source: Some(CommandSource::Mcp),
                // The server has the template, and returns it with its arguments filled in.
                template: String::new(),
                subtask: None,
                hints: (1..=prompt.arguments.len()).map(|n| format!("${n}")).collect(),
            });
        }
        commands
    }

    /// The text of a server's prompt. The last argument takes all remaining words.
    pub(crate) async fn server_prompt(
        &self,
        instance: &Instance,
        session: &SessionId,
        command: &str,
        line: &str,
    ) -> Result<String, HostError> {
        let words = template::words(line);
        // The server added last wins, as for tools.
        for servers in self.servers_of(instance, session).iter().rev() {
            let is_command = |prompt: &::mcp::Prompt| ::mcp::prompt_name(&prompt.server, &prompt.name) == command;
            let Some(prompt) = servers.prompts().into_iter().rfind(is_command) else { continue };
            let last = prompt.arguments.len().saturating_sub(1);
            let value = |at: usize| match words.get(at..) {
                Some([]) | None => None,
                Some(rest) if at == last => Some(rest.join(" ")),
                Some(rest) => rest.first().cloned(),
            };
            let given = prompt.arguments.iter().enumerate().filter_map(|(at, a)| Some((a.name.clone(), value(at)?)));
            let text = servers.prompt(&prompt.server, &prompt.name, given.collect()).await;
            return text.map_err(|error| HostError::Invalid(format!("{command}: {error}")));
        }
        Err(HostError::not_found("command", command))
    }

    /// Signs in to a server with a browser on this machine.
    pub(crate) async fn sign_in(&self, instance: &Instance, name: &str) -> Result<McpStatus, HostError> {
        let open = async |url: &str| {
            if self.open_browser(instance, url).await {
                return;
            }
            let mut batch = Batch::new(&instance.place);
            batch.event(EventBody::McpBrowserOpenFailed { mcp_name: name.to_owned(), url: url.to_owned() });
            if let Err(error) = self.store.commit(batch).await {
                tracing::warn!(%error, "cannot publish that the browser did not open");
            }
        };
        signed_in(instance.servers.authenticate(name, open).await)
    }

    async fn open_browser(&self, instance: &Instance, url: &str) -> bool {
        let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let spec = Spec { timeout: Some(BROWSER_WAIT), ..Spec::new(program, [url], &instance.directory) };
        let ran = instance.exec.run(spec, CancellationToken::new(), &mut |_: &str| {}).await;
        matches!(ran.map(|outcome| outcome.end), Ok(exec::End::Exited(0)))
    }
}

impl Turn {
    /// The tools the model gets now, after a bounded wait for servers that are starting.
    pub(crate) async fn tools(&self, model: &str) -> Cow<'_, Registry> {
        let builtin = self.instance.tools_for(model);
        let servers = self.inner.servers_of(&self.instance, &self.session_id);
        if servers.is_empty() {
            return Cow::Borrowed(builtin);
        }
        wait_ready(&servers).await;
        let mut registry = Registry::default();
        for servers in &servers {
            servers.tools().into_iter().for_each(|tool| registry.insert(tool::tool(servers, tool)));
        }
        if servers.iter().any(|servers| !servers.with_resources().is_empty()) {
            resource::tools(&servers).into_iter().for_each(|tool| registry.insert(tool));
        }
        if let Some(search) = search::websearch(&servers, self.instance.search_tool()) {
            registry.insert(search);
        }
        // Last, so that no server can replace a built-in tool.
        builtin.iter().cloned().for_each(|tool| registry.insert(tool));
        Cow::Owned(registry)
    }

    /// A tool by name.
    pub(crate) async fn tool(&self, model: &str, name: &str) -> Option<Arc<dyn Tool>> {
        match self.instance.tools_for(model).get(name) {
            Some(builtin) => Some(builtin.clone()),
            None => self.tools(model).await.get(name).cloned(),
        }
    }

    /// The instructions of servers whose tools may be used.
    pub(crate) fn server_instructions(&self, rules: &Rules) -> Option<String> {
        let servers = self.inner.servers_of(&self.instance, &self.session_id);
        let instructions = servers.iter().flat_map(|servers| servers.instructions());
        // A server without tools has only resources.
        let resources = !rules.refuses("read_mcp_resource");
        let usable = |tools: &[String]| tools.is_empty() && resources || tools.iter().any(|tool| !rules.refuses(tool));
        let texts: Vec<String> = instructions
            .filter(|one| usable(&one.tools))
            .map(|told| format!("<server name=\"{}\">\n{}\n</server>", ::mcp::sanitized(&told.server), told.text))
            .collect();
        (!texts.is_empty()).then(|| format!("<mcp_instructions>\n{}\n</mcp_instructions>", texts.join("\n")))
    }
}

/// The notice that a server of a session cannot be used.
fn failure(name: &str, status: &McpStatus) -> Option<String> {
    match status {
        McpStatus::Connected | McpStatus::Disabled => None,
        McpStatus::Failed { error } => Some(format!("The MCP server {name:?} failed: {error}")),
        McpStatus::NeedsAuth => Some(format!(
            "The MCP server {name:?} wants a login. Add it to the configuration and run `trefoil mcp auth {name}`, or pass a \
             header with a token"
        )),
        McpStatus::NeedsClientRegistration { error } => {
            Some(format!("The MCP server {name:?} wants a registered client: {error}"))
        }
    }
}

/// Starts servers and waits for them, within limits.
async fn wait_ready(servers: &[Arc<Servers>]) {
    futures::future::join_all(servers.iter().map(|servers| servers.ready())).await;
}

/// The resources of a directory's servers.
pub(crate) async fn resources(instance: &Instance) -> IndexMap<String, McpResource> {
    instance.servers.ready().await;
    let resources = instance.servers.resources(None).await.into_iter().map(|resource| {
        let (key, client) = (::mcp::resource_key(&resource.server, &resource.uri), resource.server);
        let ::mcp::Resource { name, uri, description, mime_type, .. } = resource;
        (key, McpResource { name, uri, description, mime_type, client })
    });
    resources.collect()
}

/// The server and URI of a resource that a prompt mentions.
pub(crate) fn resource_of(file: &FilePart) -> Option<(String, String)> {
    let source = file.source.as_ref().filter(|source| source["type"] == "resource")?;
    Some((source["clientName"].as_str()?.to_owned(), source["uri"].as_str()?.to_owned()))
}

/// Reads a resource for a prompt. Returns the texts for the model; an image becomes the file itself.
pub(crate) async fn read_for_prompt(
    servers: &[Arc<Servers>],
    server: &str,
    uri: &str,
    file: &mut FilePart,
) -> Vec<String> {
    wait_ready(servers).await;
    let name = file.filename.clone().unwrap_or_else(|| uri.to_owned());
    let mut texts = vec![format!("Reading MCP resource: {name} ({uri})")];
    // Anything but an image is already in the texts and must not be sent as a file again.
    file.mime = "text/plain".to_owned();
    let read = match servers.iter().rev().find(|servers| servers.status_of(server).is_ok()) {
        Some(servers) => servers.read(server, uri).await,
        None => Err(Error::Unknown(server.to_owned())),
    };
    match read {
        Ok(contents) => {
            for content in tool::pieces(contents) {
                match content {
                    tool::ContentPiece::Text(text) => texts.push(text),
                    tool::ContentPiece::File(attachment) => {
                        file.mime = attachment.mime;
                        file.url = attachment.url;
                    }
                }
            }
        }
        Err(error) => texts.push(format!("Failed to read MCP resource {name}: {error}")),
    }
    texts
}

/// The result of signing in is the server's new status. Only requests that could never work are errors.
pub(crate) fn signed_in(result: Result<McpStatus, Error>) -> Result<McpStatus, HostError> {
    match result {
        Err(error @ (Error::Unknown(_) | Error::NoOAuth(_) | Error::Config(_))) => Err(host_error(error)),
        Err(error) => Ok(McpStatus::Failed { error: error.to_string() }),
        Ok(status) => Ok(status),
    }
}

/// Converts a server error into a host error.
pub(crate) fn host_error(error: Error) -> HostError {
    match error {
        Error::Unknown(name) => HostError::not_found("MCP server", name),
        error => HostError::Invalid(error.to_string()),
    }
}
