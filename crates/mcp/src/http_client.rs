//! HTTP clients, bounded bodies, and which URLs may be called.

use std::time::Duration;

use ::web::ClientKind;
use reqwest::{Client, Response, redirect};
use url::Url;

use crate::error::Error;
use crate::truncated;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The most redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// How much of a response an error quotes, in bytes.
const MAX_QUOTED: usize = 500;

/// A client for a URL. It follows redirects only on the same server, because configured headers are meant for that
/// server alone.
pub(crate) fn client(url: &Url) -> Result<Client, Error> {
    let same_server = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first().map(Url::origin);
        if attempt.previous().len() <= MAX_REDIRECTS && first.is_some_and(|first| first == attempt.url().origin()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let builder = ClientKind::of(url).client(CONNECT_TIMEOUT).map_err(|error| Error::Closed(error.to_string()))?;
    builder
        .redirect(same_server)
        .build()
        .map_err(|error| Error::Closed(format!("The HTTP client cannot be built: {error}")))
}

/// Parses the URL of a server.
pub(crate) fn parse_url(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|error| Error::Config(format!("{text:?} is not a URL: {error}")))?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        return Ok(url);
    }
    Err(Error::Config(format!("{text:?} is not an http or https URL")))
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn body(mut response: Response, max: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(connection_error)? {
        if body.len() + chunk.len() > max {
            return Err(Error::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The error of an unsuccessful response.
pub(crate) async fn status_error(response: Response) -> Error {
    let status = response.status().as_u16();
    let body = body(response, 64 << 10).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let text = if text.trim_start().starts_with('<') { "a web page".to_owned() } else { truncated(&text, MAX_QUOTED) };
    Error::Http { status, text }
}

/// The error of a failed connection. It leaves out the URL, which may contain secrets.
pub(crate) fn connection_error(error: reqwest::Error) -> Error {
    Error::Closed(format!("The server cannot be reached: {}", web::root_cause(&error.without_url())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        assert!(parse_url("http://127.0.0.1:1/x").is_ok());
        for wrong in ["", "ftp://x", "mailto:a@b", "x"] {
            assert!(matches!(parse_url(wrong), Err(Error::Config(_))), "{wrong}");
        }
    }
}
