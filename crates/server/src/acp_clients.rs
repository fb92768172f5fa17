//! Clients that speak ACP to this server, over a WebSocket or HTTP. Each gets an agent of its own.

mod mailbox;
mod websocket;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use acp::rpc::{Received, Sink, Source};
use acp::{AgentOptions, Login, McpOwners};
use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use transport::secret;

use crate::State;
use crate::error::Error;

pub use mailbox::{AcpMailbox, MessageHead, StreamError};
pub use websocket::serve_websocket;

/// The most clients at a time.
const MAX_CLIENTS: usize = 64;
/// How many ended connections are remembered with their reason.
const MAX_ENDED: usize = 64;
/// How long an agent may take to answer `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connected clients.
pub struct AcpClients {
    permits: Arc<Semaphore>,
    mcp_owners: McpOwners,
    /// Clients over HTTP, by connection id.
    connections: Mutex<HashMap<String, Arc<Connection>>>,
    /// Connections that the server ended, oldest first, with the reason.
    ended: Mutex<VecDeque<(String, &'static str)>>,
}

impl Default for AcpClients {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_CLIENTS)),
            mcp_owners: McpOwners::default(),
            connections: Mutex::default(),
            ended: Mutex::default(),
        }
    }
}

impl AcpClients {
    /// A permit for one more client.
    pub fn client_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.permits.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_CLIENTS} ACP clients are connected already; close one first");
            Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        })
    }

    /// A connection that [`connect`] has made.
    pub fn find(&self, id: &str) -> Option<Arc<Connection>> {
        self.lock().get(id).cloned()
    }

    /// Why the server ended a connection.
    pub fn end_reason(&self, id: &str) -> Option<&'static str> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().find(|(ended, _)| ended == id).map(|(_, why)| *why)
    }

    fn remember_end(&self, id: &str, why: &'static str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push_back((id.to_owned(), why));
        if ended.len() > MAX_ENDED {
            ended.pop_front();
        }
    }

    /// Ends a connection; false if there is none.
    pub fn end(&self, id: &str) -> bool {
        let connection = self.lock().remove(id);
        connection.is_some_and(|connection| {
            connection.mailbox.close();
            connection.stop.cancel();
            true
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client over HTTP.
pub struct Connection {
    to_agent: mpsc::Sender<Bytes>,
    /// The agent's messages to the client.
    pub mailbox: Arc<AcpMailbox>,
    stop: CancellationToken,
}

impl Connection {
    /// Passes a message on to the agent; false if the agent is gone.
    pub async fn send(&self, line: Bytes) -> bool {
        self.to_agent.send(line).await.is_ok()
    }
}

/// The options of a client's agent.
pub fn options(state: &State) -> AgentOptions {
    AgentOptions {
        host: state.host.clone(),
        // The agent works on the files of this machine; the client may be on another one.
        local: None,
        version: state.version.clone(),
        login: Login { program: "trefoil".into(), command: vec!["acp".into()], args: vec!["--login".into()] },
        mcp_owners: state.acp_clients.mcp_owners.clone(),
    }
}

/// Starts a connection with the client's `initialize`; returns its id and the response.
pub async fn connect(state: &Arc<State>, initialize: Bytes) -> Result<(String, Vec<u8>), Error> {
    let permit = state.acp_clients.client_permit()?;
    let id = secret::generate().map_err(Error::internal)?;
    let (to_agent, inbox) = mpsc::channel(1);
    let (sender, response) = oneshot::channel();
    let mailbox = AcpMailbox::new(sender, state.backlog.add_client());
    let stop = state.closing.child_token();
    let connection = Arc::new(Connection { to_agent, mailbox: mailbox.clone(), stop: stop.clone() });
    state.acp_clients.lock().insert(id.clone(), connection.clone());
    tokio::spawn({
        let (state, id) = (state.clone(), id.clone());
        async move {
            let _permit = permit;
            let mut serving =
                std::pin::pin!(acp::serve(options(&state), Inbox(inbox), Outbox(mailbox.clone()), stop.clone()));
            let is_abandoned = tokio::select! {
                () = &mut serving => false,
                () = mailbox.wait_until_abandoned() => true,
            };
            if is_abandoned {
                stop.cancel();
                serving.await;
            }
            if let Some(why) = mailbox.end_reason() {
                state.acp_clients.remember_end(&id, why);
            }
            state.acp_clients.end(&id);
            mailbox.close();
        }
    });
    let first_response = async {
        connection.send(initialize).await;
        response.await.ok()
    };
    match tokio::time::timeout(INITIALIZE_TIMEOUT, first_response).await {
        Ok(Some(response)) => Ok((id, response)),
        _ => {
            state.acp_clients.end(&id);
            Err(Error::internal("an ACP agent did not start"))
        }
    }
}

struct Inbox(mpsc::Receiver<Bytes>);

impl Source for Inbox {
    async fn next(&mut self) -> Received {
        self.0.recv().await.map_or(Received::End, |line| Received::Line(line.to_vec()))
    }
}

struct Outbox(Arc<AcpMailbox>);

impl Sink for Outbox {
    async fn send(&mut self, messages: Vec<Vec<u8>>) -> io::Result<()> {
        for message in messages {
            self.0.send(message).await?;
        }
        Ok(())
    }
}
