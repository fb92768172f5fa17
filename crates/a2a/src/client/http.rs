//! Requests to peers: which client sends them, who gets credentials, and how much of an answer is read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::{Client, Response};
use url::Url;
use web::{ClientKind, PrivateAddress};

use super::{ChosenBy, ClientError, ClientOptions};

/// The longest wait for a connection, within the time of the request.
const CONNECT: Duration = Duration::from_secs(10);
/// The kinds of clients that there are: with or without TLS, local or not.
const MAX_KINDS: usize = 4;

/// The longest ETag that is kept.
const MAX_ETAG: usize = 1024;

/// Who may be called, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    /// Whether every address is checked before it is connected to.
    pub guarded: bool,
    /// Whether the credentials are sent.
    pub credentials: bool,
}

/// A request.
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Vec<u8>,
}

/// A response, read to its end.
pub(super) struct Fetched {
    pub status: u16,
    /// What identifies this version of a document.
    pub etag: Option<HeaderValue>,
    pub body: Vec<u8>,
}

/// The HTTP clients. They follow no redirects.
#[derive(Debug)]
pub(super) struct Http {
    options: Arc<ClientOptions>,
    /// For hosts that the user named.
    plain: Mutex<Vec<(ClientKind, Client)>>,
    /// For all others. Not needed by most; loading the certificates takes a while.
    guarded: Mutex<Option<Client>>,
}

impl Http {
    pub fn new(options: Arc<ClientOptions>) -> Self {
        Self { options, plain: Mutex::default(), guarded: Mutex::default() }
    }

    /// How a URL may be called that somebody chose.
    pub fn access(&self, url: &Url, chosen_by: ChosenBy) -> Result<Access, ClientError> {
        let host = || url.host_str().unwrap_or_default().to_owned();
        match chosen_by {
            ChosenBy::User => Ok(Access { guarded: false, credentials: true }),
            ChosenBy::Model if !self.options.allowed_hosts.contains(url) => {
                Err(ClientError::HostNotAllowed { host: host() })
            }
            ChosenBy::Model => Ok(Access { guarded: true, credentials: true }),
        }
    }

    /// How an interface may be called that a card names. A card may not send credentials to another host, or without
    /// encryption where it had some, and it may not lead into a private network.
    pub fn interface_access(&self, card: &Url, of_card: Access, interface: &Url) -> Access {
        let same_host = card.host_str() == interface.host_str() || (web::is_local(card) && web::is_local(interface));
        let is_downgrade = card.scheme() == "https" && interface.scheme() != "https";
        if same_host && !is_downgrade {
            return of_card;
        }
        Access { guarded: true, credentials: !is_downgrade && self.options.allowed_hosts.contains(interface) }
    }

    /// Sends a request and returns the beginning of the response.
    pub async fn send(&self, request: Request, access: Access, timeout: Duration) -> Result<Response, ClientError> {
        let url = request.url.clone();
        let client = self.client(&url, access)?;
        let mut sending = client.request(request.method, request.url).body(request.body);
        for (name, value) in request.headers {
            sending = sending.header(name, value);
        }
        let credentials = self.options.credentials.as_ref().filter(|_| access.credentials);
        if let Some(credentials) = credentials {
            let value = HeaderValue::try_from(credentials.header());
            let mut value = value.map_err(|_| ClientError::Credentials)?;
            value.set_sensitive(true);
            sending = sending.header(header::AUTHORIZATION, value);
        }
        let late = || ClientError::Timeout { url: url.to_string(), timeout };
        let response = tokio::time::timeout(timeout, sending.send()).await.map_err(|_| late())?;
        let response = response.map_err(|error| failed(&url, &error))?;
        let status = response.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            let location = location.unwrap_or("another place").to_owned();
            return Err(ClientError::Redirect { url: url.into(), location });
        }
        if status.as_u16() == 401 {
            let sent = credentials.is_some();
            return Err(ClientError::Unauthorized { url: url.into(), status: status.as_u16(), sent });
        }
        Ok(response)
    }

    /// Sends a request and returns the response.
    pub async fn fetch(
        &self,
        request: Request,
        access: Access,
        timeout: Duration,
        limit: usize,
    ) -> Result<Fetched, ClientError> {
        let url = request.url.clone();
        let work = async {
            let response = self.send(request, access, timeout).await?;
            let status = response.status().as_u16();
            let etag = response.headers().get(header::ETAG).filter(|etag| etag.len() <= MAX_ETAG).cloned();
            Ok(Fetched { status, etag, body: body(&url, response, limit).await? })
        };
        let late = |_| ClientError::Timeout { url: url.to_string(), timeout };
        tokio::time::timeout(timeout, work).await.map_err(late)?
    }

    fn client(&self, url: &Url, access: Access) -> Result<Client, ClientError> {
        if access.guarded {
            self.options.guard.check(url).map_err(|PrivateAddress { host }| ClientError::PrivateHost { host })?;
            return self.guarded();
        }
        let kind = ClientKind::of(url);
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = plain.iter().find(|(other, _)| *other == kind) {
            return Ok(client.clone());
        }
        let builder = kind.client(CONNECT).map_err(|error| no_client(&error))?;
        let client = builder.user_agent(&self.options.user_agent).build().map_err(|error| no_client(&error))?;
        if plain.len() >= MAX_KINDS {
            plain.remove(0);
        }
        plain.push((kind, client.clone()));
        Ok(client)
    }

    fn guarded(&self) -> Result<Client, ClientError> {
        let mut guarded = self.guarded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*guarded {
            return Ok(client.clone());
        }
        let builder = self.options.guard.client().connect_timeout(CONNECT).user_agent(&self.options.user_agent);
        let client = builder.build().map_err(|error| no_client(&error))?;
        *guarded = Some(client.clone());
        Ok(client)
    }
}

/// The body of a response, up to a limit.
pub(super) async fn body(url: &Url, response: Response, limit: usize) -> Result<Vec<u8>, ClientError> {
    let too_large = || ClientError::TooLarge { url: url.to_string(), what: format!("{limit} bytes") };
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| failed(url, &error))?;
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Why a request failed.
pub(super) fn failed(url: &Url, error: &reqwest::Error) -> ClientError {
    match PrivateAddress::cause_of(error) {
        Some(private) => ClientError::PrivateHost { host: private.host.clone() },
        None => ClientError::Unreachable { url: url.to_string(), why: web::root_cause(error).to_string() },
    }
}

fn no_client(error: &(dyn std::error::Error + 'static)) -> ClientError {
    ClientError::NoClient { why: web::root_cause(error).to_string() }
}
