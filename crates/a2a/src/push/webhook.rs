//! Webhooks: which ones are taken, and one request to one. URLs come from clients, so that a request goes to public
//! addresses only, unless the service allows others, and follows no redirects.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::Client;
use reqwest::dns::Resolve;
use url::Url;
use web::{AddressGuard, PrivateAddress, is_public, root_cause};

use crate::call::PushConfig;
use crate::model::Line;
use crate::records::PushRow;
use crate::{Error, PushAuthentication};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a request may take in all.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How much of a response is read, so that its connection can be used again.
const MAX_RESPONSE: usize = 64 << 10;
/// The longest URL.
const MAX_URL_BYTES: usize = 2048;
/// The longest token or credentials.
const MAX_SECRET_BYTES: usize = 4096;
/// How many connections stay open to a host.
const IDLE_CONNECTIONS: usize = 2;

/// The header with the token of a configuration.
const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
/// The header with the version of the protocol.
const VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The webhook has it.
    Taken,
    /// It does not want it, or may not have it. Sending it again would change nothing.
    Refused(String),
    /// It may take it later.
    Failed(String),
}

/// Reaches webhooks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Webhooks {
    guard: AddressGuard,
    client: Arc<OnceLock<Client>>,
}

impl Webhooks {
    pub(crate) fn new(allow_private: bool) -> Self {
        let guard = if allow_private { AddressGuard::new(|_| true) } else { AddressGuard::new(is_public) };
        Self { guard, client: Arc::default() }
    }

    /// Resolves names with another resolver than the system's.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests choose the answers of the name server"))]
    pub(crate) fn with_names(self, names: Arc<dyn Resolve>) -> Self {
        Self { guard: self.guard.with_names(names), ..self }
    }

    /// Checks a configuration before it is stored.
    pub(crate) async fn check(&self, config: &PushConfig) -> Result<(), Error> {
        let url = parse(&config.url).map_err(|problem| Error::invalid("url", format!("url {problem}")))?;
        if let Some(Err(PrivateAddress { host })) = self.guard.resolves(&url).await {
            let message = format!("url: {host} is not a public address; name a webhook that can be reached publicly");
            return Err(Error::invalid("url", message));
        }
        if config.token.as_deref().is_some_and(|token| secret(token).is_none()) {
            return Err(Error::invalid("token", "token cannot be sent in a header; use printable ASCII characters"));
        }
        if let Some(authentication) = &config.authentication {
            check_authentication(authentication)?;
        }
        Ok(())
    }

    /// Sends a notification.
    pub(super) async fn post(&self, push: &PushRow, body: Vec<u8>) -> Outcome {
        let url = match parse(&push.config.url) {
            Ok(url) => url,
            Err(problem) => return Outcome::Refused(format!("its URL {problem}")),
        };
        // A host that is an address is not resolved, where names are checked.
        if let Err(error) = self.guard.check(&url) {
            return Outcome::Refused(error.to_string());
        }
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return Outcome::Failed(format!("there is no HTTP client: {error}")),
        };
        match client.post(url).headers(headers(push)).body(body).send().await {
            Ok(response) => {
                let status = response.status();
                drain(response).await;
                match status.as_u16() {
                    200..=299 => Outcome::Taken,
                    408 | 425 | 429 | 500..=599 => Outcome::Failed(format!("it answered {status}")),
                    _ => Outcome::Refused(format!("it answered {status}")),
                }
            }
            Err(error) => match PrivateAddress::cause_of(&error) {
                Some(error) => Outcome::Refused(error.to_string()),
                // Without the URL, which may contain secrets.
                None => Outcome::Failed(root_cause(&error.without_url()).to_string()),
            },
        }
    }

    /// The client, made when it is needed first: reading the roots of TLS takes a while.
    fn client(&self) -> reqwest::Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = self
            .guard
            .client()
            .connect_timeout(CONNECT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .user_agent(concat!("trefoil/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

/// Reads a response to its end, unless it is long.
async fn drain(mut response: reqwest::Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > MAX_RESPONSE {
            return;
        }
    }
}

fn parse(url: &str) -> Result<Url, String> {
    if url.len() > MAX_URL_BYTES {
        return Err(format!("is longer than {MAX_URL_BYTES} bytes"));
    }
    let url = Url::parse(url).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("does not begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains credentials; send them as authentication".to_owned());
    }
    Ok(url)
}

/// A text as the value of a header that is not logged.
fn secret(text: &str) -> Option<HeaderValue> {
    if text.len() > MAX_SECRET_BYTES {
        return None;
    }
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The value of `Authorization`; `None` if there are no credentials.
fn authorization(authentication: &PushAuthentication) -> Option<String> {
    let credentials = authentication.credentials.as_deref().filter(|credentials| !credentials.is_empty())?;
    let scheme = authentication.schemes.first().map_or("Bearer", String::as_str);
    // The registered spelling, which some receivers compare by case.
    let scheme =
        ["Bearer", "Basic", "Digest"].into_iter().find(|known| known.eq_ignore_ascii_case(scheme)).unwrap_or(scheme);
    Some(format!("{scheme} {credentials}"))
}

fn check_authentication(authentication: &PushAuthentication) -> Result<(), Error> {
    let is_token = |scheme: &String| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+".contains(&byte))
    };
    if !authentication.schemes.iter().all(is_token) {
        let message = "authentication names a scheme that is no word, such as Bearer or Basic";
        return Err(Error::invalid("authentication", message));
    }
    match authorization(authentication) {
        Some(value) if secret(&value).is_none() => {
            let message =
                "the credentials of authentication cannot be sent in a header; use printable ASCII characters";
            Err(Error::invalid("authentication", message))
        }
        _ => Ok(()),
    }
}

fn headers(push: &PushRow) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let content_type = match push.line {
        Line::V03 => "application/json",
        Line::V10 => "application/a2a+json",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if push.line == Line::V10 {
        headers.insert(VERSION, HeaderValue::from_static(Line::V10.version()));
    }
    let config = &push.config;
    if let Some(token) = config.token.as_deref().and_then(secret) {
        headers.insert(TOKEN, token);
    }
    let authorization = config.authentication.as_ref().and_then(authorization);
    if let Some(value) = authorization.as_deref().and_then(secret) {
        headers.insert(AUTHORIZATION, value);
    }
    headers
}
