//! Remote servers: streamable HTTP, and the older HTTP with SSE.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;
use web::SseDecoder;

use crate::error::{AuthChallenge, Error};
use crate::http_client::{self, connection_error};
use crate::lock;
use crate::oauth::Auth;
use crate::peer::{MESSAGE_MAX, Peer};

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const EVENT_STREAM: &str = "text/event-stream";
/// The pauses between attempts to listen: the first, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long ending the session may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The HTTP transport. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpTransport {
    inner: Arc<HttpState>,
}

struct HttpState {
    client: Client,
    url: Url,
    headers: HeaderMap,
    auth: Option<Arc<Auth>>,
    /// The session that the server opened for us.
    session: Mutex<Option<HeaderValue>>,
    /// The negotiated protocol version.
    version: Mutex<Option<HeaderValue>>,
    /// Where messages go on the older transport.
    endpoint: Mutex<Option<Url>>,
}

impl HttpTransport {
    pub(crate) fn new(url: Url, headers: HeaderMap, auth: Option<Arc<Auth>>) -> Result<Self, Error> {
        let client = http_client::client(&url)?;
        let (session, version, endpoint) = Default::default();
        Ok(Self { inner: Arc::new(HttpState { client, url, headers, auth, session, version, endpoint }) })
    }

    /// Sets the negotiated version, which goes with every further request.
    pub(crate) fn set_version(&self, version: &str) {
        *lock(&self.inner.version) = HeaderValue::from_str(version).ok();
    }

    /// Sends a message, and handles what the server sends in response, to the end.
    pub(crate) async fn send(&self, message: &[u8], peer: &Peer) -> Result<(), Error> {
        let endpoint = lock(&self.inner.endpoint).clone();
        let is_older = endpoint.is_some();
        let url = endpoint.unwrap_or_else(|| self.inner.url.clone());
        let response = self.request(Method::POST, &url, Some(message)).await?;
        if response.status() == StatusCode::NOT_FOUND && lock(&self.inner.session).is_some() {
            peer.close(Error::SessionLost);
            return Err(Error::SessionLost);
        }
        if !response.status().is_success() {
            return Err(http_client::status_error(response).await);
        }
        if is_older {
            // The response comes on the open stream.
            return Ok(());
        }
        if let Some(session) = response.headers().get(SESSION_HEADER) {
            *lock(&self.inner.session) = Some(session.clone());
        }
        if response.status() == StatusCode::ACCEPTED || response.status() == StatusCode::NO_CONTENT {
            return Ok(());
        }
        if is_event_stream(&response) {
            return self.read_stream(response, peer, |_| {}).await;
        }
        let body = http_client::body(response, MESSAGE_MAX).await?;
        if body.trim_ascii().is_empty() {
            return Ok(());
        }
        let not_json_rpc = |()| {
            Error::InvalidResponse("the response is not a JSON-RPC message; is this the URL of an MCP server?".into())
        };
        peer.receive(&body).map_err(not_json_rpc)?;
        Ok(())
    }

    /// Whether responses come with the requests instead of on a stream of their own.
    pub(crate) fn responds_inline(&self) -> bool {
        lock(&self.inner.endpoint).is_none()
    }

    /// Listens for messages that the server sends on its own, as long as the connection lives. Servers need not offer
    /// that.
    pub(crate) async fn listen(self, peer: Arc<Peer>) {
        let mut delay = RETRY_DELAYS.0;
        loop {
            let Ok(response) = self.request(Method::GET, &self.inner.url, None).await else { return };
            if !(response.status().is_success() && is_event_stream(&response)) {
                return;
            }
            let mut received = false;
            let _ = self.read_stream(response, &peer, |_| received = true).await;
            delay = if received { RETRY_DELAYS.0 } else { (delay * 2).min(RETRY_DELAYS.1) };
            tokio::time::sleep(delay).await;
        }
    }

    /// Opens the stream of the older transport; returns once the server has named the endpoint for messages.
    pub(crate) async fn open_stream(
        &self,
        peer: &Arc<Peer>,
        end: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<(), Error> {
        let response = self.request(Method::GET, &self.inner.url, None).await?;
        if !response.status().is_success() {
            return Err(http_client::status_error(response).await);
        }
        if !is_event_stream(&response) {
            return Err(Error::InvalidResponse("this is not the URL of an MCP server".to_owned()));
        }
        let (sender, endpoint) = oneshot::channel();
        let (http, peer, end) = (self.clone(), peer.clone(), end.clone());
        tasks.spawn(async move {
            let mut sender = Some(sender);
            let stream = http.read_stream(response, &peer, |endpoint| {
                if let (Some(endpoint), Some(sender)) = (endpoint, sender.take()) {
                    let _ = sender.send(endpoint.to_owned());
                }
            });
            let error = match end.run_until_cancelled(stream).await {
                Some(Err(error)) => error,
                _ => Error::SessionLost,
            };
            peer.close(error);
        });
        let endpoint = endpoint.await.map_err(|_| Error::InvalidResponse("the stream names no endpoint".to_owned()))?;
        let url = self.inner.url.join(&endpoint).ok().filter(|url| url.origin() == self.inner.url.origin());
        let elsewhere = || Error::InvalidResponse(format!("its endpoint {endpoint:?} is on another server"));
        *lock(&self.inner.endpoint) = Some(url.ok_or_else(elsewhere)?);
        Ok(())
    }

    /// Ends the session at the server.
    pub(crate) async fn close(&self) {
        let session = lock(&self.inner.session).take();
        if let Some(session) = session {
            let request = self.inner.client.delete(self.inner.url.clone()).headers(self.inner.headers.clone());
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, request.header(SESSION_HEADER, session).send()).await;
        }
    }

    /// Sends one request. A token that the server no longer accepts is refreshed once.
    async fn request(&self, method: Method, url: &Url, message: Option<&[u8]>) -> Result<Response, Error> {
        let has_own = self.inner.headers.contains_key(AUTHORIZATION);
        let auth = self.inner.auth.as_ref().filter(|_| !has_own);
        let token = match auth {
            Some(auth) => auth.token().await,
            None => None,
        };
        let response = self.build(&method, url, message, token.as_deref()).send().await.map_err(connection_error)?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let Some(auth) = auth else { return Err(http_client::status_error(response).await) };
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|header| header.to_str().ok());
        let challenge = challenge.map(AuthChallenge::parse).unwrap_or_default();
        if let Some(token) = token
            && let Some(fresh) = auth.refresh(&token).await
        {
            let response = self.build(&method, url, message, Some(&fresh)).send().await.map_err(connection_error)?;
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
        }
        Err(Error::Unauthorized(challenge))
    }

    fn build(&self, method: &Method, url: &Url, message: Option<&[u8]>, token: Option<&str>) -> RequestBuilder {
        let accept = if message.is_some() { "application/json, text/event-stream" } else { EVENT_STREAM };
        let mut request = self.inner.client.request(method.clone(), url.clone()).header(ACCEPT, accept);
        for (name, value) in [(SESSION_HEADER, &self.inner.session), (VERSION_HEADER, &self.inner.version)] {
            if let Some(value) = lock(value).clone() {
                request = request.header(name, value);
            }
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(message) = message {
            request = request.header(CONTENT_TYPE, "application/json").body(message.to_vec());
        }
        request.headers(self.inner.headers.clone())
    }

    /// Handles the messages of a stream, to its end. `on_event` is called for each event, with the endpoint if it names
    /// one.
    async fn read_stream(
        &self,
        mut response: Response,
        peer: &Peer,
        mut on_event: impl FnMut(Option<&str>) + Send,
    ) -> Result<(), Error> {
        let mut decoder = SseDecoder::new(MESSAGE_MAX);
        let mut events = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(connection_error)? {
            let mut sink = |event| -> Result<(), Error> {
                events.push(event);
                Ok(())
            };
            decoder.push(&chunk, &mut sink)?;
            for event in events.drain(..) {
                let is_endpoint = event.name == "endpoint";
                on_event(is_endpoint.then_some(event.data.as_str()));
                if is_endpoint {
                    continue;
                }
                if let Ok(Some(reply)) = peer.receive(event.data.as_bytes()) {
                    let url = lock(&self.inner.endpoint).clone().unwrap_or_else(|| self.inner.url.clone());
                    // If our reply gets lost, the server asks again.
                    let _ = self.request(Method::POST, &url, Some(&reply)).await;
                }
            }
        }
        Ok(())
    }
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with(EVENT_STREAM))
}
