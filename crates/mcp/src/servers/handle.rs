//! The life of one server: start, connect, watch for changes, reconnect, end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{McpConfig, McpStatus};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Setup;
use super::connect::{auth_of, connect, timeout_of};
use crate::client::Client;
use crate::error::{AuthChallenge, Error};
use crate::lock;
use crate::protocol::{self, Prompt, Tool, ToolEntry};

/// The pause between two listings of a server that keeps changing its tools.
const RELIST_DELAY: Duration = Duration::from_secs(1);
/// How long a call may take without progress, unless configured.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that lived this long is reestablished when the server drops it.
const RECONNECT_AFTER: Duration = Duration::from_secs(5);
/// How long a disconnected server may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Handle of a started server. Dropping it ends the server.
pub(crate) struct ServerHandle {
    pub state: watch::Receiver<ServerState>,
    pub since: Instant,
    end: DropGuard,
}

/// The state of a started server.
#[derive(Clone)]
pub(crate) enum ServerState {
    Starting,
    Connected(Arc<Connection>),
    /// The status, and how the server wants clients to sign in.
    Disconnected(McpStatus, AuthChallenge),
}

/// A connected server.
pub(crate) struct Connection {
    pub client: Client,
    pub name: String,
    /// How long starting or listing may take, and how long a call.
    pub limits: (Duration, Duration),
    pub tools: Mutex<Arc<[Tool]>>,
    pub prompts: Mutex<Arc<[Prompt]>>,
    /// The number of the last change that the lists include.
    listed: watch::Sender<u64>,
}

impl Connection {
    async fn open(setup: &Setup, name: &str, config: &McpConfig) -> Result<Self, Error> {
        let (start, own) = timeout_of(config);
        let client = connect(setup, name, config, start).await?;
        let connection = Self {
            client,
            name: name.to_owned(),
            limits: (start, own.or(setup.timeout).unwrap_or(CALL_TIMEOUT)),
            tools: Mutex::new(Arc::from([])),
            prompts: Mutex::new(Arc::from([])),
            listed: watch::Sender::new(0),
        };
        connection.list().await?;
        Ok(connection)
    }

    /// Lists the tools and prompts. A server whose prompts cannot be listed is used without them.
    async fn list(&self) -> Result<(), Error> {
        let limit = self.limits.0;
        if self.client.has("tools") {
            let entries: Vec<ToolEntry> = self.client.list("tools/list", "tools", limit).await?;
            *lock(&self.tools) = protocol::tools(&self.name, entries).into();
        }
        if self.client.has("prompts") {
            let prompts = self.client.list::<Prompt>("prompts/list", "prompts", limit).await;
            let prompts = prompts.unwrap_or_else(|error| {
                tracing::warn!(server = self.name, %error, "an MCP server failed to list its prompts");
                Vec::new()
            });
            let named = prompts.into_iter().map(|prompt| Prompt { server: self.name.clone(), ..prompt });
            *lock(&self.prompts) = named.collect();
        }
        Ok(())
    }

    /// Lists them again whenever the server announces a change.
    async fn watch_changes(&self, changed: &(dyn Fn(&str) + Send + Sync)) -> Error {
        let mut changes = self.client.peer().changes.subscribe();
        loop {
            let seen = *self.listed.borrow();
            let Ok(now) = changes.wait_for(|change| *change != seen).await.map(|now| *now) else {
                return Error::SessionLost;
            };
            if let Err(error) = self.list().await {
                tracing::warn!(server = self.name, %error, "an MCP server failed to list its tools");
            }
            self.listed.send_replace(now);
            changed(&self.name);
            tokio::time::sleep(RELIST_DELAY).await;
        }
    }

    /// Waits until the lists include all announced changes.
    pub(crate) async fn wait_until_listed(&self) {
        let wanted = *self.client.peer().changes.borrow();
        let _ = self.listed.subscribe().wait_for(|listed| *listed >= wanted).await;
    }
}

impl ServerHandle {
    /// Starts a server; its task lives until the handle is dropped.
    pub(crate) fn start(setup: &Arc<Setup>, name: &str, config: &McpConfig) -> Self {
        let (sender, state) = watch::channel(ServerState::Starting);
        let end = setup.closing.child_token();
        let (setup, name, config, cancel) = (setup.clone(), name.to_owned(), config.clone(), end.clone());
        let tasks = setup.tasks.clone();
        tasks.spawn(async move { run_server(&setup, &name, &config, &sender, &cancel).await });
        Self { state, since: Instant::now(), end: end.drop_guard() }
    }

    /// Ends the server, and waits until it is gone.
    pub(crate) async fn close(self) {
        let Self { mut state, end, .. } = self;
        drop(end);
        // Its task drops the sender when it is done.
        let gone = async { while state.changed().await.is_ok() {} };
        let _ = timeout(END_TIMEOUT, gone).await;
    }
}

/// Runs a server for its whole life.
async fn run_server(
    setup: &Setup,
    name: &str,
    config: &McpConfig,
    state: &watch::Sender<ServerState>,
    end: &CancellationToken,
) {
    loop {
        let Some(opened) = end.run_until_cancelled(Connection::open(setup, name, config)).await else { return };
        let connection = match opened {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                tracing::warn!(server = name, %error, "an MCP server cannot be used");
                let failure = end.run_until_cancelled(failure_status(setup, name, config, error)).await;
                if let Some((status, challenge)) = failure {
                    state.send_replace(ServerState::Disconnected(status, challenge));
                }
                return;
            }
        };
        state.send_replace(ServerState::Connected(connection.clone()));
        (setup.changed)(name);
        let since = Instant::now();
        let why = tokio::select! {
            why = connection.client.peer().closed() => Some(why),
            why = connection.watch_changes(&*setup.changed) => Some(why),
            () = end.cancelled() => None,
        };
        let reconnect = why == Some(Error::SessionLost) && since.elapsed() > RECONNECT_AFTER;
        let status = match &why {
            Some(error) => McpStatus::Failed { error: error.to_string() },
            None => McpStatus::Disabled,
        };
        state.send_replace(if reconnect {
            ServerState::Starting
        } else {
            ServerState::Disconnected(status, AuthChallenge::default())
        });
        connection.client.close().await;
        if let Some(error) = &why {
            tracing::warn!(server = name, %error, reconnect, "an MCP server is gone");
            (setup.changed)(name);
        }
        if !reconnect {
            return;
        }
    }
}

/// The status for a failure to connect. Finds out whether the user can sign in.
async fn failure_status(setup: &Setup, name: &str, config: &McpConfig, error: Error) -> (McpStatus, AuthChallenge) {
    let Error::Unauthorized(challenge) = error else {
        return (McpStatus::Failed { error: error.to_string() }, AuthChallenge::default());
    };
    let status = match auth_of(setup, name, config) {
        Ok(Some(auth)) => match auth.begin(&challenge).await {
            Err(Error::Registration(error)) => McpStatus::NeedsClientRegistration { error },
            _ => McpStatus::NeedsAuth,
        },
        _ => McpStatus::NeedsAuth,
    };
    (status, challenge)
}
