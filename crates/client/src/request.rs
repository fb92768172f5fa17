//! One request and its response.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use api::{Caller, HostError, Json, Scope};
use bytes::{Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{error::Elapsed, sleep, timeout};
use url::Url;

use crate::Client;
use crate::client;
use crate::error::{RequestError, connection_error, describe, error_in_body, foreign_server_error, response_error};

/// The largest response: a long session with all its tool outputs.
const MAX_RESPONSE: usize = 256 << 20;
/// How much of an error response is read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long to wait after a broken connection before a prompt is sent again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// How much of the name of a caller's program is sent.
const MAX_CLIENT_NAME: usize = 100;

/// The header with a W3C trace context.
const TRACEPARENT: &str = "traceparent";

/// Characters that a header cannot carry unescaped, and the escape character itself.
const ENCODED_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A request that can be sent repeatedly.
pub(crate) struct ApiRequest<'a> {
    client: &'a Client,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

/// A complete, successful response.
pub(crate) struct ApiResponse {
    pub headers: HeaderMap,
    body: Bytes,
    /// `GET http://host/path`.
    request_line: String,
}

impl Client {
    /// Creates a request for an operation, given the segments of its path.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> ApiRequest<'_> {
        let mut url = self.inner.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let request = ApiRequest { client: self, method, url, headers: HeaderMap::new(), body: None };
        request.trace(self.caller.traceparent.as_deref())
    }
}

impl ApiRequest<'_> {
    /// Sets directory and workspace.
    pub fn scope(mut self, scope: &Scope) -> Self {
        let own = Some(scope.directory.as_str()).filter(|directory| !directory.is_empty());
        let encoded = own
            .or(self.client.inner.directory.as_deref())
            .map(|directory| utf8_percent_encode(directory, ENCODED_IN_HEADER).to_string());
        if let Some(value) = encoded.and_then(|text| HeaderValue::from_str(&text).ok()) {
            self.headers.insert("x-opencode-directory", value);
        }
        self.query_opt("workspace", scope.workspace.as_deref())
    }

    /// Adds a query parameter.
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    /// Adds a query parameter, if there is a value.
    pub fn query_opt(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Sets a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets the trace that the request belongs to, if there is one.
    pub fn trace(self, traceparent: Option<&str>) -> Self {
        match traceparent {
            Some(traceparent) => self.header(TRACEPARENT, traceparent),
            None => self,
        }
    }

    /// Sets a JSON body.
    pub fn body(mut self, body: &Json) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = Some(body.to_string().into());
        self
    }

    /// Sends the request and decodes the response.
    pub async fn fetch<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        self.response().await?.decode()
    }

    /// Sends the request and ignores the content of the response.
    pub async fn execute(&self) -> Result<(), HostError> {
        self.response().await?;
        Ok(())
    }

    /// Sends a request that is answered with whether it was done.
    pub async fn perform(&self) -> Result<(), HostError> {
        if self.fetch::<bool>().await? {
            return Ok(());
        }
        Err(HostError::Conflict(format!("{} was not done, and the server does not say why", self.line())))
    }

    /// Like [`execute`](Self::execute), for a request that starts a turn and may be sent twice.
    pub async fn execute_with_retry(&self) -> Result<(), HostError> {
        self.with_retry(|| self.response()).await?;
        Ok(())
    }

    /// Sends a request that runs a turn, and waits for its end, however long that takes unless there is a timeout.
    pub async fn run_turn<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        self.within_turn(self.transfer(true)).await?.decode()
    }

    /// Like [`run_turn`](Self::run_turn), for a request that may be sent twice.
    pub async fn run_turn_with_retry<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        self.within_turn(self.with_retry(|| self.transfer(true))).await?.decode()
    }

    /// Sends the request and reads the response within the call timeout.
    pub async fn response(&self) -> Result<ApiResponse, RequestError> {
        let limit = self.client.inner.timeouts.call;
        timeout(limit, self.transfer(false)).await.unwrap_or_else(|_| Err(self.timed_out(limit)))
    }

    /// Waits for the response to a request that runs a turn.
    async fn within_turn(
        &self,
        response: impl Future<Output = Result<ApiResponse, RequestError>>,
    ) -> Result<ApiResponse, RequestError> {
        let limit = self.client.inner.timeouts.turn;
        within(limit, response).await.unwrap_or_else(|_| Err(self.timed_out(limit.unwrap_or_default())))
    }

    /// Sends once more after a broken connection, if the server accepts the same message only once. OpenCode would
    /// answer twice.
    async fn with_retry<F: Future<Output = Result<ApiResponse, RequestError>>>(
        &self,
        send: impl Fn() -> F,
    ) -> Result<ApiResponse, RequestError> {
        match send().await {
            Err(RequestError::Connection(error)) if self.client.is_trefoil() => {
                tracing::debug!(%error, "sent again");
                sleep(RETRY_DELAY).await;
                send().await
            }
            other => other,
        }
    }

    async fn transfer(&self, turn: bool) -> Result<ApiResponse, RequestError> {
        let inner = &self.client.inner;
        let _permit = inner.requests.enter(&inner.display_name).map_err(RequestError::Refused)?;
        let response = within(self.silence_timeout(turn), self.send()).await.map_err(|_| self.went_silent())??;
        let html = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        if html {
            return Err(RequestError::Refused(HostError::Payload(format!(
                "{} returned a web page: this is not an OpenCode server, or its version lacks this operation",
                self.line()
            ))));
        }
        let headers = response.headers().clone();
        let body = self.read(response, self.silence_timeout(turn), MAX_RESPONSE).await?;
        Ok(ApiResponse { headers, body, request_line: self.line() })
    }

    /// Sends the request and returns a successful response once its headers have arrived.
    pub async fn send(&self) -> Result<Response, RequestError> {
        let inner = &self.client.inner;
        let response = self.exchange().await.map_err(|error| connection_error(&inner.display_name, error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        // If the body does not arrive, the status says enough.
        let body = timeout(inner.timeouts.call, self.read(response, None, MAX_ERROR_BODY)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        Err(RequestError::Refused(response_error(status, &body, &self.line(), &inner.display_name)))
    }

    /// Sends the request and returns any response once its headers have arrived.
    async fn exchange(&self) -> Result<Response, reqwest::Error> {
        let inner = &self.client.inner;
        let mut request = inner.http.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        if let Some(agent) = user_agent(&self.client.caller) {
            request = request.header(USER_AGENT, agent);
        }
        if let Some(password) = &inner.password {
            request = request.basic_auth(&inner.username, Some(password));
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let response = request.send().await?;
        self.client.detect_server(response.headers());
        Ok(response)
    }

    /// Checks that the response comes from an OpenCode server. The error says what was found instead.
    pub async fn identify(&self) -> Result<(), HostError> {
        let inner = &self.client.inner;
        let limit = inner.timeouts.call;
        let work = async {
            let response = self.exchange().await.map_err(|error| foreign_server_error(&inner.display_name, error))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = self.read(response, None, MAX_ERROR_BODY).await.unwrap_or_default();
            let is_health = serde_json::from_slice::<Json>(&body).is_ok_and(|health| health["healthy"].is_boolean());
            match status {
                status if status.is_success() && is_health => Ok(()),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Err(response_error(status, &body, &self.line(), &inner.display_name))
                }
                status if is_health => Err(response_error(status, &body, &self.line(), &inner.display_name)),
                status => Err(HostError::Failed(format!(
                    "{} is not a server of Trefoil or OpenCode: {} was answered with {}",
                    inner.display_name,
                    self.line(),
                    describe(status, &headers, &body)
                ))),
            }
        };
        timeout(limit, work).await.unwrap_or_else(|_| Err(self.timed_out(limit).into()))
    }

    async fn read(
        &self,
        mut response: Response,
        silence: Option<Duration>,
        max_bytes: usize,
    ) -> Result<Bytes, RequestError> {
        let mut body = BytesMut::new();
        loop {
            let next = within(silence, response.chunk()).await.map_err(|_| self.went_silent())?;
            let Some(bytes) = next.map_err(|error| connection_error(&self.client.inner.display_name, error))? else {
                return Ok(body.freeze());
            };
            if body.len() + bytes.len() > max_bytes {
                return Err(RequestError::Refused(HostError::Payload(format!(
                    "The answer to {} has more than {max_bytes} bytes; ask for less at a time",
                    self.line()
                ))));
            }
            body.extend_from_slice(&bytes);
        }
    }

    /// How long the server may be silent, if its silence means anything.
    fn silence_timeout(&self, turn: bool) -> Option<Duration> {
        (turn && self.client.is_trefoil()).then_some(self.client.inner.timeouts.turn_silence)
    }

    /// `GET http://host/path`.
    pub fn line(&self) -> String {
        format!("{} {}{}", self.method, self.client.inner.display_name, self.url.path())
    }

    pub fn timed_out(&self, limit: Duration) -> RequestError {
        RequestError::Connection(HostError::Late(format!("{} was not answered within {limit:?}", self.line())))
    }

    fn went_silent(&self) -> RequestError {
        let limit = self.client.inner.timeouts.turn_silence;
        RequestError::Connection(HostError::Late(format!(
            "{} went silent for {limit:?}",
            self.client.inner.display_name
        )))
    }
}

impl ApiResponse {
    /// Decodes the response. If a turn failed after its response had begun, the body ends with the error.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let text = || HostError::Payload(format!("The answer to {} is not understood: {error}", self.request_line));
            error_in_body(&self.body, &self.request_line).unwrap_or_else(text)
        })
    }
}

/// The `user-agent` of a caller whose program has a name: ours, then that name. `None` without a name, or with one that
/// a header cannot carry.
fn user_agent(caller: &Caller) -> Option<HeaderValue> {
    let name: String = caller.client.as_ref()?.chars().take(MAX_CLIENT_NAME).collect();
    HeaderValue::from_str(&format!("{} ({name})", client::USER_AGENT)).ok()
}

async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    match limit {
        Some(limit) => timeout(limit, future).await,
        None => Ok(future.await),
    }
}
