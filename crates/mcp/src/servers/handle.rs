//! One server: started, connected, followed, ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{McpConfig, McpStatus};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Setup;
use super::connect::{auth_of, connect, timeout_of};
use crate::client::Client;
use crate::error::{Challenge, Error};
use crate::lock;
use crate::protocol::{self, Prompt, Tool, ToolEntry};

/// The pause between two looks at the tools of a server that changes them all the time.
const RELIST_PAUSE: Duration = Duration::from_secs(1);
/// How long a call may take without a sign of life, if nothing is configured.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A remote connection that lived so long is made again when the server forgets it.
const RECONNECT: Duration = Duration::from_secs(5);
/// How long a server that is disconnected may take to end.
const END_WAIT: Duration = Duration::from_secs(10);

/// A server that was started.
pub(crate) struct Link {
    pub state: watch::Receiver<State>,
    pub since: Instant,
    end: DropGuard,
}

/// How it is with a server that was started.
#[derive(Clone)]
pub(crate) enum State {
    Starting,
    Up(Arc<Connection>),
    /// Why, and how the server wants to be signed in at.
    Down(McpStatus, Challenge),
}

/// A server that answers.
pub(crate) struct Connection {
    pub client: Client,
    pub name: String,
    /// How long a start or a list may take, and how long a call.
    pub limits: (Duration, Duration),
    pub tools: Mutex<Arc<[Tool]>>,
    pub prompts: Mutex<Arc<[Prompt]>>,
    /// Up to which change the lists are read.
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
        connection.relist().await?;
        Ok(connection)
    }

    /// Reads the lists of tools and prompts. Prompts are not worth failing for.
    async fn relist(&self) -> Result<(), Error> {
        let limit = self.limits.0;
        if self.client.has("tools") {
            let entries: Vec<ToolEntry> = self.client.list("tools/list", "tools", limit).await?;
            *lock(&self.tools) = protocol::tools(&self.name, entries).into();
        }
        if self.client.has("prompts") {
            let prompts = self.client.list::<Prompt>("prompts/list", "prompts", limit).await;
            let prompts = prompts.unwrap_or_else(|error| {
                tracing::warn!(server = self.name, %error, "an MCP server does not tell its prompts");
                Vec::new()
            });
            let named = prompts.into_iter().map(|prompt| Prompt { server: self.name.clone(), ..prompt });
            *lock(&self.prompts) = named.collect();
        }
        Ok(())
    }

    /// Reads the lists again whenever the server says that they are others.
    async fn follow(&self, changed: &(dyn Fn(&str) + Send + Sync)) -> Error {
        let mut changes = self.client.peer().changes.subscribe();
        loop {
            let seen = *self.listed.borrow();
            let Ok(now) = changes.wait_for(|change| *change != seen).await.map(|now| *now) else {
                return Error::Forgotten;
            };
            if let Err(error) = self.relist().await {
                tracing::warn!(server = self.name, %error, "an MCP server does not tell its tools");
            }
            self.listed.send_replace(now);
            changed(&self.name);
            tokio::time::sleep(RELIST_PAUSE).await;
        }
    }

    /// Waits until the lists are as new as what the server has said about them.
    pub(crate) async fn current(&self) {
        let wanted = *self.client.peer().changes.borrow();
        let _ = self.listed.subscribe().wait_for(|listed| *listed >= wanted).await;
    }
}

impl Link {
    /// Starts a server; its task lives until this is dropped.
    pub(crate) fn start(setup: &Arc<Setup>, name: &str, config: &McpConfig) -> Self {
        let (told, state) = watch::channel(State::Starting);
        let end = setup.closing.child_token();
        let (setup, name, config, ends) = (setup.clone(), name.to_owned(), config.clone(), end.clone());
        let tasks = setup.tasks.clone();
        tasks.spawn(async move { attend(&setup, &name, &config, &told, &ends).await });
        Self { state, since: Instant::now(), end: end.drop_guard() }
    }

    /// Ends the server, and waits until it is gone.
    pub(crate) async fn close(self) {
        let Self { mut state, end, .. } = self;
        drop(end);
        // Its task drops the other end when all is done.
        let gone = async { while state.changed().await.is_ok() {} };
        let _ = timeout(END_WAIT, gone).await;
    }
}

/// A server's whole life.
async fn attend(setup: &Setup, name: &str, config: &McpConfig, state: &watch::Sender<State>, end: &CancellationToken) {
    loop {
        let Some(opened) = end.run_until_cancelled(Connection::open(setup, name, config)).await else { return };
        let connection = match opened {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                tracing::warn!(server = name, %error, "an MCP server cannot be used");
                let judged = end.run_until_cancelled(judge(setup, name, config, error)).await;
                if let Some((status, challenge)) = judged {
                    state.send_replace(State::Down(status, challenge));
                }
                return;
            }
        };
        state.send_replace(State::Up(connection.clone()));
        (setup.changed)(name);
        let since = Instant::now();
        let why = tokio::select! {
            why = connection.client.peer().closed() => Some(why),
            why = connection.follow(&*setup.changed) => Some(why),
            () = end.cancelled() => None,
        };
        let again = why == Some(Error::Forgotten) && since.elapsed() > RECONNECT;
        let status = match &why {
            Some(error) => McpStatus::Failed { error: error.to_string() },
            None => McpStatus::Disabled,
        };
        state.send_replace(if again { State::Starting } else { State::Down(status, Challenge::default()) });
        connection.client.close().await;
        if let Some(error) = &why {
            tracing::warn!(server = name, %error, again, "an MCP server is gone");
            (setup.changed)(name);
        }
        if !again {
            return;
        }
    }
}

/// What a failure to connect means. Whether a human can sign in is found out here.
async fn judge(setup: &Setup, name: &str, config: &McpConfig, error: Error) -> (McpStatus, Challenge) {
    let Error::Unauthorized(challenge) = error else {
        return (McpStatus::Failed { error: error.to_string() }, Challenge::default());
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
