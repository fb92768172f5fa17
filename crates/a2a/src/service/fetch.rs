//! Files of messages that are on the web. Whoever sends a message chose their addresses, so each is checked before it is
//! connected to: those that the name server answers, and those that redirects lead to.

use std::time::Duration;

use futures::StreamExt as _;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use tokio::time::timeout;
use url::Url;
use web::{AddressGuard, PrivateAddress, root_cause};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;
/// How long one file may take.
const MAX_TIME: Duration = Duration::from_secs(20);
/// How long connecting may take.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);
/// How much of an address is shown in an error.
const MAX_SHOWN: usize = 200;

/// Why a file could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0} is no address that can be fetched; name one that begins with http: or https:")]
    Address(String),
    #[error("{0} is, or leads to, a private address, which is not fetched; send the content of the file instead")]
    Private(String),
    #[error("{0} redirects more than {MAX_REDIRECTS} times; name the address that it leads to")]
    Redirects(String),
    #[error("{0} answered with status {1}")]
    Status(String, u16),
    #[error("{0} is larger than {1} bytes; send a smaller file")]
    TooLarge(String, usize),
    #[error("{0} did not arrive within {1} s; send the content of the file instead")]
    Late(String, u64),
    #[error("{0} could not be fetched: {1}")]
    Failed(String, String),
}

/// A fetched file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    /// Its media type, in lower case and without parameters, if the server names one.
    pub(super) media_type: Option<String>,
    pub(super) body: Vec<u8>,
}

/// Fetches a file of at most so many bytes.
pub(super) async fn fetch(guard: &AddressGuard, address: &str, max_bytes: usize) -> Result<Fetched, FetchError> {
    fetch_within(guard, address, max_bytes, MAX_TIME).await
}

async fn fetch_within(
    guard: &AddressGuard,
    address: &str,
    max_bytes: usize,
    time: Duration,
) -> Result<Fetched, FetchError> {
    let url = parse(address)?;
    let fetched = timeout(time, get(guard, url, max_bytes)).await;
    fetched.unwrap_or_else(|_| Err(FetchError::Late(shown(address), time.as_secs())))
}

/// Follows redirects by hand, so that each address is checked.
async fn get(guard: &AddressGuard, asked: Url, max_bytes: usize) -> Result<Fetched, FetchError> {
    let client = guard.client().connect_timeout(MAX_CONNECT_TIME).user_agent("Trefoil").build();
    let client = client.map_err(|error| failed(&asked, &error))?;
    let mut url = asked.clone();
    for _ in 0..=MAX_REDIRECTS {
        guard.check(&url).map_err(|_| FetchError::Private(shown(asked.as_str())))?;
        let response = client.get(url.clone()).send().await.map_err(|error| failed(&asked, &error))?;
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        match location {
            Some(location) if response.status().is_redirection() => {
                let next = url.join(location).map_err(|_| FetchError::Address(shown(location)))?;
                url = parse(next.as_str())?;
            }
            _ if !response.status().is_success() => {
                return Err(FetchError::Status(shown(asked.as_str()), response.status().as_u16()));
            }
            _ => return read(&asked, response, max_bytes).await,
        }
    }
    Err(FetchError::Redirects(shown(asked.as_str())))
}

async fn read(asked: &Url, response: Response, max_bytes: usize) -> Result<Fetched, FetchError> {
    let too_large = || FetchError::TooLarge(shown(asked.as_str()), max_bytes);
    if response.content_length().is_some_and(|length| length > max_bytes as u64) {
        return Err(too_large());
    }
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|value| value.split(';').next()).map(|it| it.trim().to_ascii_lowercase());
    let media_type = media_type.filter(|media_type| !media_type.is_empty());
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| failed(asked, &error))?;
        if body.len() + chunk.len() > max_bytes {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Fetched { media_type, body })
}

fn parse(address: &str) -> Result<Url, FetchError> {
    let url = Url::parse(address).map_err(|_| FetchError::Address(shown(address)))?;
    let is_web = matches!(url.scheme(), "http" | "https");
    if is_web && url.has_host() { Ok(url) } else { Err(FetchError::Address(shown(address))) }
}

fn failed(asked: &Url, error: &reqwest::Error) -> FetchError {
    let asked = shown(asked.as_str());
    match PrivateAddress::cause_of(error) {
        Some(_) => FetchError::Private(asked),
        None => FetchError::Failed(asked, root_cause(error).to_string()),
    }
}

/// An address in an error: short, and without a password.
fn shown(address: &str) -> String {
    let mut text = address.to_owned();
    if let Ok(mut url) = Url::parse(address)
        && (url.password().is_some() || !url.username().is_empty())
    {
        // Both fail only for addresses that have no host.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        text = url.into();
    }
    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests;
