//! A server with an address: streamable HTTP, and HTTP with SSE as servers had it before.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::sse::Reader;
use crate::error::{Challenge, Error};
use crate::http_client::{self, lost};
use crate::lock;
use crate::oauth::Auth;
use crate::rpc::{MESSAGE_MAX, Peer};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const STREAM: &str = "text/event-stream";
/// The pauses between two tries to listen: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// A server with an address. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Http {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    url: Url,
    headers: HeaderMap,
    auth: Option<Arc<Auth>>,
    /// The session that the server opened for us.
    session: Mutex<Option<HeaderValue>>,
    /// The version that was agreed on.
    version: Mutex<Option<HeaderValue>>,
    /// Where messages go on the older transport.
    endpoint: Mutex<Option<Url>>,
}

impl Http {
    pub(crate) fn new(url: Url, headers: HeaderMap, auth: Option<Arc<Auth>>) -> Result<Self, Error> {
        let client = http_client::client(&url)?;
        let (session, version, endpoint) = Default::default();
        Ok(Self { inner: Arc::new(Inner { client, url, headers, auth, session, version, endpoint }) })
    }

    /// The version that was agreed on goes with every further request.
    pub(crate) fn agree(&self, version: &str) {
        *lock(&self.inner.version) = HeaderValue::from_str(version).ok();
    }

    /// Sends a message, and takes what the server sends as its answer, to the end.
    pub(crate) async fn send(&self, message: &[u8], peer: &Peer) -> Result<(), Error> {
        let endpoint = lock(&self.inner.endpoint).clone();
        let older = endpoint.is_some();
        let url = endpoint.unwrap_or_else(|| self.inner.url.clone());
        let response = self.request(Method::POST, &url, Some(message)).await?;
        if response.status() == StatusCode::NOT_FOUND && lock(&self.inner.session).is_some() {
            peer.close(Error::Forgotten);
            return Err(Error::Forgotten);
        }
        if !response.status().is_success() {
            return Err(http_client::refused(response).await);
        }
        if older {
            // Its answer comes on the stream that is open already.
            return Ok(());
        }
        if let Some(session) = response.headers().get(SESSION) {
            *lock(&self.inner.session) = Some(session.clone());
        }
        if response.status() == StatusCode::ACCEPTED || response.status() == StatusCode::NO_CONTENT {
            return Ok(());
        }
        if is_stream(&response) {
            return self.follow(response, peer, |_| {}).await;
        }
        let body = http_client::body(response, MESSAGE_MAX).await?;
        if body.trim_ascii().is_empty() {
            return Ok(());
        }
        let not_one =
            |()| Error::Answer("the answer is no JSON-RPC message; is this the address of an MCP server?".into());
        peer.receive(&body).map_err(not_one)?;
        Ok(())
    }

    /// Whether its answers come with the requests, and not on a stream of their own.
    pub(crate) fn answers_at_once(&self) -> bool {
        lock(&self.inner.endpoint).is_none()
    }

    /// Listens to what the server says unasked, for as long as the connection lives; a server need not offer that.
    pub(crate) async fn listen(self, peer: Arc<Peer>) {
        let mut pause = PAUSE.0;
        loop {
            let Ok(response) = self.request(Method::GET, &self.inner.url, None).await else { return };
            if !(response.status().is_success() && is_stream(&response)) {
                return;
            }
            let mut heard = false;
            let _ = self.follow(response, &peer, |_| heard = true).await;
            pause = if heard { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Opens the stream of the older transport; returns once the server has said where messages go.
    pub(crate) async fn open_stream(
        &self,
        peer: &Arc<Peer>,
        end: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<(), Error> {
        let response = self.request(Method::GET, &self.inner.url, None).await?;
        if !response.status().is_success() {
            return Err(http_client::refused(response).await);
        }
        if !is_stream(&response) {
            return Err(Error::Answer("this is not the address of an MCP server".to_owned()));
        }
        let (told, endpoint) = oneshot::channel();
        let (http, peer, end) = (self.clone(), peer.clone(), end.clone());
        tasks.spawn(async move {
            let mut told = Some(told);
            let follow = http.follow(response, &peer, |endpoint| {
                if let (Some(endpoint), Some(told)) = (endpoint, told.take()) {
                    let _ = told.send(endpoint.to_owned());
                }
            });
            let error = match end.run_until_cancelled(follow).await {
                Some(Err(error)) => error,
                _ => Error::Forgotten,
            };
            peer.close(error);
        });
        let endpoint = endpoint.await.map_err(|_| Error::Answer("the stream names no endpoint".to_owned()))?;
        let url = self.inner.url.join(&endpoint).ok().filter(|url| url.origin() == self.inner.url.origin());
        let elsewhere = || Error::Answer(format!("its endpoint {endpoint:?} is on another server"));
        *lock(&self.inner.endpoint) = Some(url.ok_or_else(elsewhere)?);
        Ok(())
    }

    /// Tells the server that we are gone.
    pub(crate) async fn close(&self) {
        let session = lock(&self.inner.session).take();
        if let Some(session) = session {
            let request = self.inner.client.delete(self.inner.url.clone()).headers(self.inner.headers.clone());
            let _ = tokio::time::timeout(GOODBYE, request.header(SESSION, session).send()).await;
        }
    }

    /// One request. A token that the server does not take any more is renewed once.
    async fn request(&self, method: Method, url: &Url, message: Option<&[u8]>) -> Result<Response, Error> {
        let own = self.inner.headers.contains_key(AUTHORIZATION);
        let auth = self.inner.auth.as_ref().filter(|_| !own);
        let token = match auth {
            Some(auth) => auth.token().await,
            None => None,
        };
        let response = self.build(&method, url, message, token.as_deref()).send().await.map_err(lost)?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let Some(auth) = auth else { return Err(http_client::refused(response).await) };
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|header| header.to_str().ok());
        let challenge = challenge.map(Challenge::parse).unwrap_or_default();
        if let Some(token) = token
            && let Some(fresh) = auth.renew(&token).await
        {
            let response = self.build(&method, url, message, Some(&fresh)).send().await.map_err(lost)?;
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
        }
        Err(Error::Unauthorized(challenge))
    }

    fn build(&self, method: &Method, url: &Url, message: Option<&[u8]>, token: Option<&str>) -> RequestBuilder {
        let accept = if message.is_some() { "application/json, text/event-stream" } else { STREAM };
        let mut request = self.inner.client.request(method.clone(), url.clone()).header(ACCEPT, accept);
        for (name, value) in [(SESSION, &self.inner.session), (VERSION, &self.inner.version)] {
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

    /// Takes the messages of a stream, to its end. `on_event` is told of each event, with the endpoint that it names.
    async fn follow(
        &self,
        mut response: Response,
        peer: &Peer,
        mut on_event: impl FnMut(Option<&str>) + Send,
    ) -> Result<(), Error> {
        let mut reader = Reader::default();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            for event in reader.push(&chunk)? {
                let is_endpoint = event.name == "endpoint";
                on_event(is_endpoint.then_some(event.data.as_str()));
                if is_endpoint {
                    continue;
                }
                if let Ok(Some(reply)) = peer.receive(event.data.as_bytes()) {
                    let url = lock(&self.inner.endpoint).clone().unwrap_or_else(|| self.inner.url.clone());
                    // A server that does not take our answer asks again.
                    let _ = self.request(Method::POST, &url, Some(&reply)).await;
                }
            }
        }
        Ok(())
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with(STREAM))
}
