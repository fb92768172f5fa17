//! One request and its answer.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use api::{HostError, Json, Scope};
use bytes::{Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{error::Elapsed, sleep, timeout};
use url::Url;

use crate::Client;
use crate::error::{Failure, describe, failed_late, network, refused, stranger};

/// The largest answer: a long session with all that its tools said.
const MAX_ANSWER: usize = 256 << 20;
/// How much is read of an answer that only says why not.
const MAX_REFUSAL: usize = 64 << 10;
/// How long a server that broke off has to come back before a prompt is sent to it again.
const AGAIN_PAUSE: Duration = Duration::from_millis(500);

/// What a header cannot carry as it is, and the sign that says so.
const DIRECTORY: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// A request that can be sent, and sent again.
pub(crate) struct Call<'a> {
    client: &'a Client,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

/// A whole answer that is no refusal.
pub(crate) struct Answer {
    pub headers: HeaderMap,
    body: Bytes,
    /// `GET http://host/path`.
    asked: String,
}

impl Client {
    /// A request to an operation, by the segments of its path.
    pub(crate) fn call(&self, method: Method, path: &[&str]) -> Call<'_> {
        let mut url = self.inner.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Call { client: self, method, url, headers: HeaderMap::new(), body: None }
    }
}

impl Call<'_> {
    /// Where it happens.
    pub fn scope(mut self, scope: &Scope) -> Self {
        let own = Some(scope.directory.as_str()).filter(|directory| !directory.is_empty());
        let encoded = own
            .or(self.client.inner.directory.as_deref())
            .map(|directory| utf8_percent_encode(directory, DIRECTORY).to_string());
        if let Some(value) = encoded.and_then(|text| HeaderValue::from_str(&text).ok()) {
            self.headers.insert("x-opencode-directory", value);
        }
        self.maybe("workspace", scope.workspace.as_deref())
    }

    /// A parameter.
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    /// A parameter, if there is one.
    pub fn maybe(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// A header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// A JSON body.
    pub fn body(mut self, body: &Json) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = Some(body.to_string().into());
        self
    }

    /// Sends it, and reads what comes back.
    pub async fn ask<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        self.answer().await?.decode()
    }

    /// Sends it; that it was done is all there is to know.
    pub async fn tell(&self) -> Result<(), HostError> {
        self.answer().await?;
        Ok(())
    }

    /// The same, for what starts a turn and can be sent twice.
    pub async fn tell_again(&self) -> Result<(), HostError> {
        self.again(|| self.answer()).await?;
        Ok(())
    }

    /// Sends what runs a turn, and waits for its end, however long that takes.
    pub async fn run<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        self.transfer(true).await?.decode()
    }

    /// The same, for what can be sent twice.
    pub async fn run_again<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        self.again(|| self.transfer(true)).await?.decode()
    }

    /// The answer, within the time of a call.
    pub async fn answer(&self) -> Result<Answer, Failure> {
        let limit = self.client.inner.timeouts.call;
        timeout(limit, self.transfer(false)).await.unwrap_or_else(|_| Err(self.late(limit)))
    }

    /// Once more after a broken connection, if the server takes the same message only once. OpenCode would answer twice.
    async fn again<F: Future<Output = Result<Answer, Failure>>>(
        &self,
        send: impl Fn() -> F,
    ) -> Result<Answer, Failure> {
        match send().await {
            Err(Failure::Broken(error)) if self.client.is_trefoil() => {
                tracing::debug!(%error, "sent again");
                sleep(AGAIN_PAUSE).await;
                send().await
            }
            other => other,
        }
    }

    async fn transfer(&self, turn: bool) -> Result<Answer, Failure> {
        let response = within(self.silence(turn), self.send()).await.map_err(|_| self.silent())??;
        let html = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        if html {
            return Err(Failure::Refused(HostError::Failed(format!(
                "{} is answered with a web page: this server is none of OpenCode, or of a version without that",
                self.asked()
            ))));
        }
        let headers = response.headers().clone();
        let body = self.read(response, self.silence(turn), MAX_ANSWER).await?;
        Ok(Answer { headers, body, asked: self.asked() })
    }

    /// Sends it; gives an answer of which the head is there, and is no refusal.
    pub async fn send(&self) -> Result<Response, Failure> {
        let inner = &self.client.inner;
        let response = self.exchange().await.map_err(|error| network(&inner.shown, error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        // The status says enough if the body does not come.
        let body = timeout(inner.timeouts.call, self.read(response, None, MAX_REFUSAL)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        Err(Failure::Refused(refused(status, &body, &self.asked(), &inner.shown)))
    }

    /// Sends it; gives the head of whatever is answered.
    async fn exchange(&self) -> Result<Response, reqwest::Error> {
        let inner = &self.client.inner;
        let mut request = inner.http.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        if let Some(password) = &inner.password {
            request = request.basic_auth(&inner.username, Some(password));
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let response = request.send().await?;
        self.client.learn(response.headers());
        Ok(response)
    }

    /// Whether the answer is that of a server of OpenCode; the error says what was found instead.
    pub async fn identify(&self) -> Result<(), HostError> {
        let inner = &self.client.inner;
        let limit = inner.timeouts.call;
        let work = async {
            let response = self.exchange().await.map_err(|error| stranger(&inner.shown, error))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = self.read(response, None, MAX_REFUSAL).await.unwrap_or_default();
            let is_health = serde_json::from_slice::<Json>(&body).is_ok_and(|health| health["healthy"].is_boolean());
            match status {
                status if status.is_success() && is_health => Ok(()),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Err(refused(status, &body, &self.asked(), &inner.shown))
                }
                status if is_health => Err(refused(status, &body, &self.asked(), &inner.shown)),
                status => Err(HostError::Failed(format!(
                    "{} is not a server of Trefoil or OpenCode: {} was answered with {}",
                    inner.shown,
                    self.asked(),
                    describe(status, &headers, &body)
                ))),
            }
        };
        timeout(limit, work).await.unwrap_or_else(|_| Err(self.late(limit).into()))
    }

    async fn read(&self, mut response: Response, silence: Option<Duration>, most: usize) -> Result<Bytes, Failure> {
        let mut body = BytesMut::new();
        loop {
            let next = within(silence, response.chunk()).await.map_err(|_| self.silent())?;
            let Some(bytes) = next.map_err(|error| network(&self.client.inner.shown, error))? else {
                return Ok(body.freeze());
            };
            if body.len() + bytes.len() > most {
                return Err(Failure::Refused(HostError::Failed(format!(
                    "The answer to {} has more than {most} bytes; ask for less at a time",
                    self.asked()
                ))));
            }
            body.extend_from_slice(&bytes);
        }
    }

    /// How long a server may say nothing, if that means anything.
    fn silence(&self, turn: bool) -> Option<Duration> {
        (turn && self.client.is_trefoil()).then_some(self.client.inner.timeouts.turn_silence)
    }

    /// `GET http://host/path`.
    pub fn asked(&self) -> String {
        format!("{} {}{}", self.method, self.client.inner.shown, self.url.path())
    }

    pub fn late(&self, limit: Duration) -> Failure {
        Failure::Broken(HostError::Failed(format!("{} was not answered within {limit:?}", self.asked())))
    }

    fn silent(&self) -> Failure {
        let limit = self.client.inner.timeouts.turn_silence;
        Failure::Broken(HostError::Failed(format!("{} went silent for {limit:?}", self.client.inner.shown)))
    }
}

impl Answer {
    /// The answer as a value. One that began before its turn failed ends with what a refusal says.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, HostError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let text = || HostError::Failed(format!("The answer to {} is not understood: {error}", self.asked));
            failed_late(&self.body, &self.asked).unwrap_or_else(text)
        })
    }
}

async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    match limit {
        Some(limit) => timeout(limit, future).await,
        None => Ok(future.await),
    }
}
