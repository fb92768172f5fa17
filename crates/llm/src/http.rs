//! HTTP requests to model servers: a POST with its event stream, and plain GETs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures::stream::{self, Stream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use reqwest::{Client, Response};
use tokio::time::timeout;
use url::Url;
use web::{ClientKind, SseDecoder, SseEvent};

use crate::classify::{http_error, redact};
use crate::error::MAX_BODY;
use crate::openai::Decoder;
use crate::sse::{MAX_EVENT, not_a_stream};
use crate::{LlmError, LlmEvent, Timeouts};

/// The maximum number of cached clients (with or without TLS and proxy, by connect timeout).
const MAX_CLIENTS: usize = 8;
/// After this many idle periods with keep-alives but no event, the stream is closed.
const KEEPALIVE_PERIODS: u32 = 10;
/// How long to wait for the end of the connection after the end of the answer.
const DRAIN: Duration = Duration::from_millis(20);
/// Shorter values are not credentials, and removing them would only garble an error.
const MIN_SECRET: usize = 6;

/// The HTTP clients, built on first use.
#[derive(Debug)]
pub struct Clients {
    user_agent: String,
    built: Mutex<Vec<(ClientKey, Client)>>,
}

/// What distinguishes clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientKey {
    kind: ClientKind,
    connect: Duration,
}

impl Clients {
    pub fn new(user_agent: &str) -> Self {
        Self { user_agent: user_agent.to_owned(), built: Mutex::default() }
    }

    fn get(&self, key: ClientKey) -> Result<Client, LlmError> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = built.iter().find(|(other, _)| *other == key) {
            return Ok(client.clone());
        }
        let client = build(key).map_err(|error| {
            LlmError::invalid(format!(
                "The HTTP client cannot be built: {error}; are the system's root certificates installed?"
            ))
        })?;
        if built.len() >= MAX_CLIENTS {
            built.remove(0);
        }
        built.push((key, client.clone()));
        Ok(client)
    }
}

fn build(key: ClientKey) -> Result<Client, Box<dyn std::error::Error>> {
    Ok(key.kind.client(key.connect)?.build()?)
}

/// A validated request.
#[derive(Debug)]
pub struct HttpRequest {
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
    timeouts: Timeouts,
    secrets: Vec<String>,
    /// Whose data the answer contains.
    vendor: String,
}

impl HttpRequest {
    /// A request to `base_url` + `path`.
    pub fn new(
        base_url: &str,
        path: &str,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
        timeouts: Timeouts,
    ) -> Result<Self, LlmError> {
        let url = address(base_url, path)?;
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let mut secrets: Vec<String> = url.password().map(str::to_owned).into_iter().collect();
        for (name, value) in headers {
            let illegal = || LlmError::invalid(format!("The header {name:?} has characters that HTTP does not allow"));
            let key: HeaderName = name.trim().parse().map_err(|_| illegal())?;
            let mut header = HeaderValue::from_str(value.trim()).map_err(|_| illegal())?;
            if is_secret(key.as_str()) {
                header.set_sensitive(true);
                let value = value.trim();
                secrets.push(value.strip_prefix("Bearer ").unwrap_or(value).to_owned());
            }
            map.insert(key, header);
        }
        secrets.retain(|secret| secret.len() >= MIN_SECRET);
        Ok(Self { url, headers: map, body, timeouts, secrets, vendor: String::new() })
    }

    /// The same request to the server of a vendor, under whose name the data in its answer is kept.
    pub fn of_vendor(self, vendor: &str) -> Self {
        Self { vendor: vendor.to_owned(), ..self }
    }

    /// The URL as errors show it.
    fn shown(&self) -> String {
        let mut url = self.url.clone();
        // Both fail only for URLs without a host, which `address` rejects.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.to_string()
    }
}

fn is_secret(name: &str) -> bool {
    ["auth", "key", "token", "secret", "cookie"].iter().any(|word| name.contains(word))
}

fn address(base_url: &str, path: &str) -> Result<Url, LlmError> {
    let wrong = |why: &str| {
        // A key may precede the host or be part of the query.
        let shown = base_url.split('?').next().and_then(|url| url.rsplit('@').next()).unwrap_or_default();
        LlmError::invalid(format!("The provider's baseURL {shown:?} cannot be used: {why}"))
    };
    let mut url = Url::parse(base_url.trim()).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("only http and https are supported"));
    }
    let base = url.path().trim_end_matches('/').to_owned();
    if !base.ends_with(path) {
        url.set_path(&format!("{base}/{path}"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Sends a request and decodes its response. Dropping the stream closes the connection.
pub fn stream(
    clients: Arc<Clients>,
    request: HttpRequest,
) -> impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static {
    let (shown, secrets) = (request.shown(), request.secrets.clone());
    let phase = Phase::Send(clients, Box::new(request));
    stream::unfold((phase, VecDeque::new(), shown, secrets), async |(mut phase, mut events, shown, secrets)| {
        loop {
            if let Some(event) = events.pop_front() {
                return Some((Ok(event), (phase, events, shown, secrets)));
            }
            phase = match phase.advance(&mut events).await {
                Ok(Phase::End) if events.is_empty() => return None,
                Ok(next) => next,
                Err(mut error) => {
                    redact(&mut error, &secrets);
                    // Events decoded before the error are valid, and come first.
                    let error = error.at(&shown);
                    if let Some(event) = events.pop_front() {
                        return Some((Ok(event), (Phase::Failed(Box::new(error)), events, shown, secrets)));
                    }
                    return Some((Err(error), (Phase::End, events, shown, secrets)));
                }
            };
        }
    })
}

/// Fetches a text of at most `limit` bytes within `wait`.
pub async fn fetch(
    clients: &Clients,
    mut request: HttpRequest,
    wait: Duration,
    limit: usize,
) -> Result<String, LlmError> {
    request.headers.remove(CONTENT_TYPE);
    request.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let (shown, secrets) = (request.shown(), request.secrets.clone());
    let work = async {
        let (client, request) = prepare(clients, request)?;
        let response = client.get(request.url).headers(request.headers).send().await;
        let response = response.map_err(|error| network("The server cannot be reached", error))?;
        if !response.status().is_success() {
            return Err(refused(response, wait).await);
        }
        read_text(response, limit, wait).await
    };
    let late = |_| Err(LlmError::retryable(format!("The server did not answer within {wait:?}")));
    timeout(wait, work).await.unwrap_or_else(late).map_err(|mut error| {
        redact(&mut error, &secrets);
        error.at(&shown)
    })
}

/// The client for a request's server, and the request with our `user-agent`.
fn prepare(clients: &Clients, mut request: HttpRequest) -> Result<(Client, HttpRequest), LlmError> {
    let client = clients.get(ClientKey { kind: ClientKind::of(&request.url), connect: request.timeouts.connect })?;
    if !request.headers.contains_key(USER_AGENT)
        && let Ok(agent) = HeaderValue::from_str(&clients.user_agent)
    {
        request.headers.insert(USER_AGENT, agent);
    }
    Ok((client, request))
}

enum Phase {
    Send(Arc<Clients>, Box<HttpRequest>),
    Body(Box<Body>),
    /// The answer is complete; read the last bytes so that the connection can be reused.
    Drain(Box<Response>),
    Failed(Box<LlmError>),
    End,
}

struct Body {
    response: Response,
    reader: SseDecoder,
    decoder: Decoder,
    idle: Duration,
    seen_event: bool,
    last_event: Instant,
}

impl Phase {
    async fn advance(self, events: &mut VecDeque<LlmEvent>) -> Result<Self, LlmError> {
        match self {
            Self::Send(clients, request) => send(&clients, *request, events).await,
            Self::Body(body) => body.advance(events).await,
            Self::Drain(mut response) => {
                drop(timeout(DRAIN, response.chunk()).await);
                Ok(Self::End)
            }
            Self::Failed(error) => Err(*error),
            Self::End => Ok(Self::End),
        }
    }
}

async fn send(clients: &Clients, request: HttpRequest, events: &mut VecDeque<LlmEvent>) -> Result<Phase, LlmError> {
    let (client, HttpRequest { url, headers, body, timeouts, vendor, .. }) = prepare(clients, request)?;
    let sent = timeout(timeouts.header, client.post(url).headers(headers).body(body).send()).await;
    let response = sent
        .map_err(|_| LlmError::retryable(format!("The model's server did not answer within {:?}", timeouts.header)))?
        .map_err(|error| network("The model's server cannot be reached", error))?;
    let status = response.status();
    if !status.is_success() {
        return Err(refused(response, timeouts.idle).await);
    }
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.starts_with("application/json") {
        // Not a stream: an error with status 200, or a server that does not stream.
        let text = read_text(response, MAX_EVENT, timeouts.idle).await?;
        let mut decoder = Decoder::new(&vendor);
        let decoded = decoder.push(&text)?;
        if decoded.is_empty() {
            return Err(not_a_stream(&text));
        }
        events.extend(decoded);
        events.extend(decoder.finish()?);
        return Ok(Phase::End);
    }
    if content_type.starts_with("text/html") {
        return Err(not_a_stream("<html"));
    }
    Ok(Phase::Body(Box::new(Body {
        response,
        reader: SseDecoder::new(MAX_EVENT),
        decoder: Decoder::new(&vendor),
        idle: timeouts.idle,
        seen_event: false,
        last_event: Instant::now(),
    })))
}

impl Body {
    async fn advance(mut self: Box<Self>, events: &mut VecDeque<LlmEvent>) -> Result<Phase, LlmError> {
        match next_bytes(&mut self.response, self.idle).await? {
            Some(bytes) => self.read(Some(&bytes), events)?,
            None => {
                self.read(None, events)?;
                if !self.seen_event {
                    return Err(not_a_stream(&self.reader.stray()));
                }
                events.extend(self.decoder.finish()?);
                return Ok(Phase::End);
            }
        }
        if self.decoder.is_done() {
            events.extend(self.decoder.finish()?);
            return Ok(Phase::Drain(Box::new(self.response)));
        }
        if self.last_event.elapsed() > self.idle.saturating_mul(KEEPALIVE_PERIODS) {
            return Err(LlmError::retryable(
                "The model's server sends keep-alives, but no answer; the stream was closed",
            ));
        }
        Ok(Phase::Body(self))
    }

    /// Decodes the next bytes, or the end of the stream.
    fn read(&mut self, bytes: Option<&Bytes>, events: &mut VecDeque<LlmEvent>) -> Result<(), LlmError> {
        let Self { reader, decoder, seen_event, last_event, .. } = self;
        let mut sink = |event: SseEvent| -> Result<(), LlmError> {
            *seen_event = true;
            let decoded = decoder.push(&event.data)?;
            // An empty chunk counts as a keep-alive.
            if !decoded.is_empty() {
                *last_event = Instant::now();
            }
            events.extend(decoded);
            Ok(())
        };
        match bytes {
            Some(bytes) => reader.push(bytes, &mut sink),
            None => reader.finish(&mut sink),
        }
    }
}

/// The next bytes, or an idle timeout.
async fn next_bytes(response: &mut Response, idle: Duration) -> Result<Option<Bytes>, LlmError> {
    timeout(idle, response.chunk())
        .await
        .map_err(|_| {
            LlmError::retryable(format!("The model's server sent nothing for {idle:?}; the stream was closed"))
        })?
        .map_err(|error| network("The connection to the model's server broke", error))
}

/// The beginning of a response, up to `limit` bytes.
async fn read_text(mut response: Response, limit: usize, idle: Duration) -> Result<String, LlmError> {
    let mut text = Vec::new();
    while text.len() < limit
        && let Some(bytes) = next_bytes(&mut response, idle).await?
    {
        text.extend_from_slice(&bytes[..bytes.len().min(limit - text.len())]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn refused(response: Response, idle: Duration) -> LlmError {
    let status = response.status();
    let value = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: Vec<_> =
        response.headers().iter().map(|(name, header)| (name.as_str().to_owned(), value(header))).collect();
    // If the body does not arrive, the status has to do.
    let body = read_text(response, MAX_BODY, idle).await.unwrap_or_default();
    http_error(status.as_u16(), status.canonical_reason().unwrap_or_default(), headers, &body, SystemTime::now())
}

/// A network error with its innermost cause and without the URL, which may contain a key.
fn network(what: &str, error: reqwest::Error) -> LlmError {
    LlmError::retryable(format!("{what}: {}", web::root_cause(&error.without_url())))
}

#[cfg(test)]
mod tests;
