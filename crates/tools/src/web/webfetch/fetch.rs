//! Fetches a page, checking every address before connecting to it.

use ::web::{AddressGuard, PrivateAddress};
use futures::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use url::Url;

/// The maximum size of a page.
pub(super) const MAX_BYTES: usize = 5 * 1024 * 1024;
/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

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

/// Fetches a page. Redirects are followed by hand, so that each is checked.
pub(super) async fn get(
    mut url: Url,
    accept: &str,
    user_agent: &str,
    guard: &AddressGuard,
) -> Result<Page, FetchError> {
    let asked = url.to_string();
    let client = guard
        .client()
        .user_agent(user_agent)
        .build()
        .map_err(|error| FetchError::Failed(asked.clone(), ::web::root_cause(&error).to_string()))?;
    for _ in 0..=MAX_REDIRECTS {
        guard.check(&url).map_err(|error| FetchError::Private(error.host))?;
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

fn refused(url: &Url, error: &reqwest::Error) -> FetchError {
    match PrivateAddress::cause_of(error) {
        Some(private) => FetchError::Private(private.host.clone()),
        None => FetchError::Failed(url.to_string(), ::web::root_cause(error).to_string()),
    }
}
