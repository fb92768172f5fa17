//! Clients that speak ACP with this server, by WebSocket or by HTTP, each with an agent of its own.

mod mailbox;
mod websocket;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use acp::rpc::{Received, Sink, Source};
use acp::{Brought, Login, Options};
use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::State;
use crate::error::Error;
use crate::transport::secret;

pub use mailbox::{Head, Mail, Refused};
pub use websocket::converse;

/// Clients that are connected at once.
const MAX_CLIENTS: usize = 64;
/// Connections that ended by themselves, of which it is remembered why.
const MAX_ENDED: usize = 64;
/// How long an agent may take to say hello.
const HELLO: Duration = Duration::from_secs(10);

/// All of them.
pub struct Agents {
    seats: Arc<Semaphore>,
    brought: Brought,
    /// Those who come by HTTP, by the name of their connection.
    connections: Mutex<HashMap<String, Arc<Connection>>>,
    /// Those that ended by themselves, oldest first, and why.
    ended: Mutex<VecDeque<(String, &'static str)>>,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            seats: Arc::new(Semaphore::new(MAX_CLIENTS)),
            brought: Brought::default(),
            connections: Mutex::default(),
            ended: Mutex::default(),
        }
    }
}

impl Agents {
    /// Room for a client, as long as it is held.
    pub fn seat(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.seats.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_CLIENTS} ACP clients are connected already; close one first");
            Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        })
    }

    /// A connection that was made by [`connect`].
    pub fn find(&self, name: &str) -> Option<Arc<Connection>> {
        self.lock().get(name).cloned()
    }

    /// Why a connection ended by itself.
    pub fn why(&self, name: &str) -> Option<&'static str> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().find(|(ended, _)| ended == name).map(|(_, why)| *why)
    }

    fn remember(&self, name: &str, why: &'static str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push_back((name.to_owned(), why));
        if ended.len() > MAX_ENDED {
            ended.pop_front();
        }
    }

    /// Ends a connection; false if there is none.
    pub fn end(&self, name: &str) -> bool {
        let connection = self.lock().remove(name);
        connection.is_some_and(|connection| {
            connection.mail.close();
            connection.stop.cancel();
            true
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that comes by HTTP.
pub struct Connection {
    said: mpsc::Sender<Bytes>,
    /// What its agent says.
    pub mail: Arc<Mail>,
    stop: CancellationToken,
}

impl Connection {
    /// Hands a message on to the agent; false if that is gone.
    pub async fn send(&self, line: Bytes) -> bool {
        self.said.send(line).await.is_ok()
    }
}

/// What an agent is made of.
pub fn options(state: &State) -> Options {
    Options {
        host: Arc::new(state.engine.clone()),
        // The work is done here, on the files of this machine: the client may be on another one.
        local: None,
        version: state.version.clone(),
        login: Login { program: "trefoil".into(), command: vec!["acp".into()], args: vec!["--login".into()] },
        brought: state.agents.brought.clone(),
    }
}

/// Begins a connection with a client's `initialize`; gives its name and the answer.
pub async fn connect(state: &Arc<State>, hello: Bytes) -> Result<(String, Vec<u8>), Error> {
    let seat = state.agents.seat()?;
    let name = secret::new()?;
    let (said, inbox) = mpsc::channel(1);
    let (sender, answer) = oneshot::channel();
    let mail = Mail::new(sender, state.backlog.join());
    let stop = state.closing.child_token();
    let connection = Arc::new(Connection { said, mail: mail.clone(), stop: stop.clone() });
    state.agents.lock().insert(name.clone(), connection.clone());
    tokio::spawn({
        let (state, name) = (state.clone(), name.clone());
        async move {
            let _held = seat;
            let mut serving =
                std::pin::pin!(acp::serve(options(&state), Inbox(inbox), Outbox(mail.clone()), stop.clone()));
            let gone = tokio::select! {
                () = &mut serving => false,
                () = mail.abandoned() => true,
            };
            if gone {
                stop.cancel();
                serving.await;
            }
            if let Some(why) = mail.why() {
                state.agents.remember(&name, why);
            }
            state.agents.end(&name);
            mail.close();
        }
    });
    let answered = async {
        connection.send(hello).await;
        answer.await.ok()
    };
    match tokio::time::timeout(HELLO, answered).await {
        Ok(Some(answer)) => Ok((name, answer)),
        _ => {
            state.agents.end(&name);
            Err(Error::internal("an ACP agent did not begin"))
        }
    }
}

struct Inbox(mpsc::Receiver<Bytes>);

impl Source for Inbox {
    async fn next(&mut self) -> Received {
        self.0.recv().await.map_or(Received::End, |line| Received::Line(line.to_vec()))
    }
}

struct Outbox(Arc<Mail>);

impl Sink for Outbox {
    async fn send(&mut self, messages: Vec<Vec<u8>>) -> io::Result<()> {
        for message in messages {
            self.0.say(message).await?;
        }
        Ok(())
    }
}
