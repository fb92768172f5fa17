//! Fetches a page, checking every address before connecting to it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::StreamExt;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use url::{Host, Url};

/// The maximum size of a page.
pub(super) const MAX_BYTES: usize = 5 * 1024 * 1024;
/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

/// Whether an address may be connected to.
pub(super) type AddressFilter = fn(IpAddr) -> bool;

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0:?} is not an address that can be fetched: {1}. Give a full http:// or https:// address.")]
    Address(String, String),
    #[error(
        "{0} is a private address (this machine or its network), which is not fetched. The user can allow that by starting \
         trefoil with TREFOIL_ALLOW_PRIVATE_FETCH=1 in its environment."
    )]
    Private(String),
    #[error("{0} redirected more than {MAX_REDIRECTS} times.")]
    Redirects(String),
    #[error("{0} answered with status {1}.")]
    Status(String, reqwest::StatusCode),
    #[error("{0} is larger than {limit} MB.", limit = MAX_BYTES / 1024 / 1024)]
    TooLarge(String),
    #[error("{0} could not be fetched: {1}.")]
    Failed(String, String),
}

/// A fetched page.
#[derive(Debug)]
pub(super) struct Page {
    /// The media type in lower case, without parameters.
    pub mime: String,
    pub charset: Option<String>,
    pub body: Vec<u8>,
}

/// Parses the URL that the model gave.
pub(super) fn parse(address: &str) -> Result<Url, FetchError> {
    let url = Url::parse(address).map_err(|error| FetchError::Address(address.into(), error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FetchError::Address(address.into(), format!("the scheme {} is not known", url.scheme())));
    }
    Ok(url)
}

/// Fetches a page.
pub(super) async fn get(
    mut url: Url,
    accept: &str,
    user_agent: &str,
    allowed: AddressFilter,
) -> Result<Page, FetchError> {
    let asked = url.to_string();
    let client = client(user_agent, allowed)
        .map_err(|error| FetchError::Failed(asked.clone(), ::web::root_cause(&error).to_string()))?;
    for _ in 0..=MAX_REDIRECTS {
        check_literal(&url, allowed)?;
        let request = client.get(url.clone()).header(ACCEPT, accept);
        let answer = request.send().await.map_err(|error| refused(&url, &error))?;
        let status = answer.status();
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        match location {
            Some(location) if status.is_redirection() => {
                let next = url.join(location).map_err(|e| FetchError::Address(location.into(), e.to_string()))?;
                url = parse(next.as_str())?;
            }
            _ if !status.is_success() => return Err(FetchError::Status(url.into(), status)),
            _ => return page(url, answer).await,
        }
    }
    Err(FetchError::Redirects(asked))
}

async fn page(url: Url, answer: reqwest::Response) -> Result<Page, FetchError> {
    if answer.content_length().is_some_and(|length| length > MAX_BYTES as u64) {
        return Err(FetchError::TooLarge(url.into()));
    }
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("text/plain");
    let (mime, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let charset = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    let mime = mime.trim().to_ascii_lowercase();
    let mut body = Vec::new();
    let mut chunks = answer.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk =
            chunk.map_err(|error| FetchError::Failed(url.to_string(), ::web::root_cause(&error).to_string()))?;
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(FetchError::TooLarge(url.into()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Page { mime, charset, body })
}

/// Redirects are followed by hand, so that each is checked; no proxy, because it would resolve names for us, unchecked.
fn client(user_agent: &str, allowed: AddressFilter) -> reqwest::Result<reqwest::Client> {
    // Fails if one is already installed, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(user_agent)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .dns_resolver(Arc::new(CheckedResolver { allowed }))
        .build()
}

/// A host that is an IP address is never resolved, so it is checked here.
fn check_literal(url: &Url, allowed: AddressFilter) -> Result<(), FetchError> {
    let address: IpAddr = match url.host() {
        Some(Host::Ipv4(address)) => address.into(),
        Some(Host::Ipv6(address)) => address.into(),
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err(FetchError::Address(url.to_string(), "it has no host".into())),
    };
    if allowed(address) { Ok(()) } else { Err(FetchError::Private(url.host_str().unwrap_or_default().into())) }
}

/// Resolves a name once and returns only checked addresses, so a second answer of the name server is never used.
struct CheckedResolver {
    allowed: AddressFilter,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} is a private address")]
struct PrivateAddressError(String);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.allowed;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address is enough: a name that has both is meant to deceive.
            if found.iter().any(|address| !allowed(address.ip())) {
                return Err(PrivateAddressError(name.as_str().into()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn refused(url: &Url, error: &reqwest::Error) -> FetchError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(PrivateAddressError(name)) = error.downcast_ref() {
            return FetchError::Private(name.clone());
        }
        cause = error.source();
    }
    FetchError::Failed(url.to_string(), ::web::root_cause(error).to_string())
}
