//! One connection to a server: the handshake, and requests with limits.

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
use crate::peer::Peer;
use crate::transport::Transport;
use crate::truncated;

/// The protocol version that we offer; a server may choose an older one.
const VERSION: &str = "2025-06-18";
/// The most pages and entries of one list.
const PAGES_MAX: usize = 100;
const ENTRIES_MAX: usize = 10_000;
/// The longest that a call may take, however much progress it reports.
const CALL_MAX: Duration = Duration::from_secs(3600);
/// How long sending a cancellation may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest instructions of a server.
const INSTRUCTIONS_MAX: usize = 16 << 10;

/// What the tasks of a connection share. Dropping it ends a local server.
pub(crate) struct ConnectionContext {
    pub(crate) peer: Arc<Peer>,
    pub(crate) end: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl ConnectionContext {
    pub(crate) fn new(root: String) -> Self {
        Self { peer: Arc::new(Peer::new(root)), end: CancellationToken::new(), tasks: TaskTracker::new() }
    }
}

impl Drop for ConnectionContext {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// A connection to a server.
pub(crate) struct Client {
    context: ConnectionContext,
    transport: Transport,
    capabilities: Json,
    /// The server's instructions for models.
    pub(crate) instructions: Option<String>,
}

/// The limits of a request.
pub(crate) struct RequestLimits<'a> {
    /// How long the server may be silent.
    pub timeout: Duration,
    /// Cancels the request.
    pub cancel: &'a CancellationToken,
    /// Receives the server's progress messages.
    pub progress: &'a (dyn Fn(String) + Send + Sync),
}

impl Client {
    /// Performs the handshake.
    pub(crate) async fn open(
        context: ConnectionContext,
        transport: Transport,
        version: &str,
        limit: Duration,
    ) -> Result<Self, Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeResult {
            #[serde(default)]
            protocol_version: String,
            #[serde(default)]
            capabilities: Json,
            #[serde(default)]
            instructions: Option<String>,
        }
        let mut client = Self { context, transport, capabilities: Json::Null, instructions: None };
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": { "roots": {} },
            "clientInfo": { "name": "trefoil", "version": version },
        });
        let result: InitializeResult = client.simple_request("initialize", params, limit).await?;
        client.capabilities = result.capabilities;
        let instructions = result.instructions.map(|text| truncated(&text, INSTRUCTIONS_MAX));
        client.instructions = instructions.filter(|text| !text.is_empty());
        let initialized = rpc::notification::<()>("notifications/initialized", None);
        match &client.transport {
            Transport::Stdio(stdio) => stdio.send(initialized).await?,
            Transport::Http(http) => {
                http.set_version(&result.protocol_version);
                let sent = timeout(limit, http.send(&initialized, &client.context.peer)).await;
                sent.map_err(|_| Error::Timeout(limit))??;
                if http.responds_inline() && client.announces_changes() {
                    let (listen, end) = (http.clone().listen(client.context.peer.clone()), client.context.end.clone());
                    client.context.tasks.spawn(async move { end.run_until_cancelled(listen).await });
                }
            }
        }
        Ok(client)
    }

    /// Whether the server has a capability.
    pub(crate) fn has(&self, what: &str) -> bool {
        self.capabilities.get(what).is_some_and(Json::is_object)
    }

    /// Whether it announces changes of its tools or prompts.
    fn announces_changes(&self) -> bool {
        let announces = |what: &str| self.capabilities.pointer(what) == Some(&Json::Bool(true));
        announces("/tools/listChanged") || announces("/prompts/listChanged")
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.context.peer
    }

    /// Ends the connection, and waits until a local server is gone.
    pub(crate) async fn close(&self) {
        if let Transport::Http(http) = &self.transport {
            http.close().await;
        }
        self.context.end.cancel();
        self.context.tasks.close();
        self.context.tasks.wait().await;
    }

    /// Sends a request that is not cancelled.
    pub(crate) async fn simple_request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Json,
        limit: Duration,
    ) -> Result<T, Error> {
        let limits = RequestLimits { timeout: limit, cancel: &CancellationToken::new(), progress: &|_| {} };
        self.request(method, params, &limits).await
    }

    /// Reads all pages of a list.
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
            let mut page: std::collections::HashMap<String, Box<RawValue>> =
                self.simple_request(method, params, limit).await?;
            let entries =
                page.remove(key).ok_or_else(|| Error::InvalidResponse(format!("{method} returns no {key}")))?;
            let entries: Vec<Box<RawValue>> = decode(&entries)?;
            // An invalid entry does not spoil the rest.
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

    /// Sends a request and waits for the response.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        mut params: Json,
        limits: &RequestLimits<'_>,
    ) -> Result<T, Error> {
        let mut request = self.context.peer.register()?;
        let id = request.id;
        if method == "tools/call" {
            params["_meta"] = json!({ "progressToken": id });
        }
        let mut send = pin!(self.send(rpc::request(id, method, &params)));
        let mut sending = true;
        let start = Instant::now();
        let mut deadline = start + limits.timeout;
        loop {
            tokio::select! {
                biased;
                response = &mut request.response => {
                    return decode(&response.map_err(|_| Error::SessionLost)??);
                }
                sent = &mut send, if sending => {
                    sent?;
                    sending = false;
                    // A response would have arrived by now; the `select` takes it first.
                    if matches!(&self.transport, Transport::Http(http) if http.responds_inline()) {
                        deadline = deadline.min(Instant::now());
                    }
                }
                Some(text) = request.progress.recv() => {
                    deadline = (Instant::now() + limits.timeout).min(start + CALL_MAX);
                    if !text.is_empty() {
                        (limits.progress)(text);
                    }
                }
                () = sleep_until(deadline) => {
                    if sending || !matches!(&self.transport, Transport::Http(_)) {
                        self.cancel_request(method, id, "timed out");
                        return Err(Error::Timeout(limits.timeout));
                    }
                    return Err(Error::InvalidResponse("it ended before there was a result".to_owned()));
                }
                () = limits.cancel.cancelled() => {
                    self.cancel_request(method, id, "aborted");
                    return Err(Error::Cancelled);
                }
            }
        }
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), Error> {
        match &self.transport {
            Transport::Stdio(stdio) => stdio.send(message).await,
            Transport::Http(http) => http.send(&message, &self.context.peer).await,
        }
    }

    /// Cancels a request at the server.
    fn cancel_request(&self, method: &str, id: u64, reason: &str) {
        if method == "initialize" {
            return;
        }
        let params = json!({ "requestId": id, "reason": reason });
        let message = rpc::notification("notifications/cancelled", Some(&params));
        match &self.transport {
            Transport::Stdio(stdio) => stdio.try_send(message),
            Transport::Http(http) => {
                let (http, peer) = (http.clone(), self.context.peer.clone());
                self.context.tasks.spawn(async move {
                    let _ = timeout(CANCEL_TIMEOUT, http.send(&message, &peer)).await;
                });
            }
        }
    }
}

fn decode<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Error> {
    serde_json::from_str(raw.get()).map_err(|error| Error::InvalidResponse(error.to_string()))
}
