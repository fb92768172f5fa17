//! One connection to a server: the handshake, and requests with a limit.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::Json;
use serde::de::DeserializeOwned;
use serde_json::{json, value::RawValue};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::rpc::{Peer, beginning};
use crate::transport::Transport;

/// The version that we speak; a server may answer with an older one.
const VERSION: &str = "2025-06-18";
/// The most pages of one list, and the most entries.
const PAGES_MAX: usize = 100;
const ENTRIES_MAX: usize = 10_000;
/// The longest that a call may take, however much progress it makes.
const CALL_MAX: Duration = Duration::from_secs(3600);
/// How long taking a request back may take.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// The longest instructions of a server.
const INSTRUCTIONS_MAX: usize = 16 << 10;

/// What a connection's tasks need. Dropping it ends the server, if it is a program.
pub(crate) struct Wires {
    pub(crate) peer: Arc<Peer>,
    pub(crate) end: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Wires {
    pub(crate) fn new(root: String) -> Self {
        Self { peer: Arc::new(Peer::new(root)), end: CancellationToken::new(), tasks: TaskTracker::new() }
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// A connection.
pub(crate) struct Client {
    wires: Wires,
    transport: Transport,
    capabilities: Json,
    /// What the server wants its models to know.
    pub(crate) instructions: Option<String>,
}

/// What limits a request.
pub(crate) struct Limits<'a> {
    /// How long the server may be silent.
    pub timeout: Duration,
    /// Ends it early.
    pub cancel: &'a CancellationToken,
    /// Told what the server says meanwhile.
    pub progress: &'a (dyn Fn(String) + Send + Sync),
}

impl Client {
    /// Shakes hands.
    pub(crate) async fn open(
        wires: Wires,
        transport: Transport,
        version: &str,
        limit: Duration,
    ) -> Result<Self, Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Hello {
            #[serde(default)]
            protocol_version: String,
            #[serde(default)]
            capabilities: Json,
            #[serde(default)]
            instructions: Option<String>,
        }
        let mut client = Self { wires, transport, capabilities: Json::Null, instructions: None };
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": { "roots": {} },
            "clientInfo": { "name": "trefoil", "version": version },
        });
        let hello: Hello = client.ask("initialize", params, limit).await?;
        client.capabilities = hello.capabilities;
        let instructions = hello.instructions.map(|text| beginning(&text, INSTRUCTIONS_MAX));
        client.instructions = instructions.filter(|text| !text.is_empty());
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        match &client.transport {
            Transport::Stdio(stdio) => stdio.send(initialized.into_bytes()).await?,
            Transport::Http(http) => {
                http.agree(&hello.protocol_version);
                let sent = timeout(limit, http.send(initialized.as_bytes(), &client.wires.peer)).await;
                sent.map_err(|_| Error::Timeout(limit))??;
                if http.answers_at_once() && client.announces() {
                    let (listen, end) = (http.clone().listen(client.wires.peer.clone()), client.wires.end.clone());
                    client.wires.tasks.spawn(async move { end.run_until_cancelled(listen).await });
                }
            }
        }
        Ok(client)
    }

    /// Whether the server has that.
    pub(crate) fn has(&self, what: &str) -> bool {
        self.capabilities.get(what).is_some_and(Json::is_object)
    }

    /// Whether it tells when its tools or prompts are others.
    fn announces(&self) -> bool {
        let tells = |what: &str| self.capabilities.pointer(what) == Some(&Json::Bool(true));
        tells("/tools/listChanged") || tells("/prompts/listChanged")
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.wires.peer
    }

    /// Ends the connection, and waits until the server is gone, if it is a program.
    pub(crate) async fn close(&self) {
        if let Transport::Http(http) = &self.transport {
            http.close().await;
        }
        self.wires.end.cancel();
        self.wires.tasks.close();
        self.wires.tasks.wait().await;
    }

    /// A request that nobody cancels.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Json,
        limit: Duration,
    ) -> Result<T, Error> {
        let limits = Limits { timeout: limit, cancel: &CancellationToken::new(), progress: &|_| {} };
        self.request(method, params, &limits).await
    }

    /// All pages of a list.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        method: &str,
        key: &str,
        limit: Duration,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page: std::collections::HashMap<String, Box<RawValue>> = self.ask(method, params, limit).await?;
            let entries = page.remove(key).ok_or_else(|| Error::Answer(format!("{method} gives no {key}")))?;
            let entries: Vec<Box<RawValue>> = decode(&entries)?;
            // One entry that makes no sense does not spoil the rest.
            all.extend(entries.iter().filter_map(|entry| serde_json::from_str(entry.get()).ok()));
            let next = page.remove("nextCursor").and_then(|next| serde_json::from_str(next.get()).ok());
            if next.is_none() || next == cursor || all.len() >= ENTRIES_MAX {
                break;
            }
            cursor = next;
        }
        all.truncate(ENTRIES_MAX);
        Ok(all)
    }

    /// A request and its answer.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        mut params: Json,
        limits: &Limits<'_>,
    ) -> Result<T, Error> {
        let mut waiting = self.wires.peer.expect()?;
        let id = waiting.id;
        if method == "tools/call" {
            params["_meta"] = json!({ "progressToken": id });
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        let mut send = pin!(self.send(message.into_bytes()));
        let mut sending = true;
        let start = Instant::now();
        let mut deadline = start + limits.timeout;
        loop {
            tokio::select! {
                biased;
                answer = &mut waiting.answer => {
                    return decode(&answer.map_err(|_| Error::Forgotten)??);
                }
                sent = &mut send, if sending => {
                    sent?;
                    sending = false;
                    // An answer would have come by now, and is taken first.
                    if matches!(&self.transport, Transport::Http(http) if http.answers_at_once()) {
                        deadline = deadline.min(Instant::now());
                    }
                }
                Some(text) = waiting.progress.recv() => {
                    deadline = (Instant::now() + limits.timeout).min(start + CALL_MAX);
                    if !text.is_empty() {
                        (limits.progress)(text);
                    }
                }
                () = sleep_until(deadline) => {
                    if sending || !matches!(&self.transport, Transport::Http(_)) {
                        self.take_back(method, id, "timed out");
                        return Err(Error::Timeout(limits.timeout));
                    }
                    return Err(Error::Answer("it ended before there was a result".to_owned()));
                }
                () = limits.cancel.cancelled() => {
                    self.take_back(method, id, "aborted");
                    return Err(Error::Cancelled);
                }
            }
        }
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), Error> {
        match &self.transport {
            Transport::Stdio(stdio) => stdio.send(message).await,
            Transport::Http(http) => http.send(&message, &self.wires.peer).await,
        }
    }

    /// Tells the server that nobody waits for an answer any more.
    fn take_back(&self, method: &str, id: u64, reason: &str) {
        if method == "initialize" {
            return;
        }
        let params = json!({ "requestId": id, "reason": reason });
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        let message = message.to_string().into_bytes();
        match &self.transport {
            Transport::Stdio(stdio) => stdio.try_send(message),
            Transport::Http(http) => {
                let (http, peer) = (http.clone(), self.wires.peer.clone());
                self.wires.tasks.spawn(async move {
                    let _ = timeout(CANCEL_WAIT, http.send(&message, &peer)).await;
                });
            }
        }
    }
}

fn decode<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Error> {
    serde_json::from_str(raw.get()).map_err(|error| Error::Answer(error.to_string()))
}
