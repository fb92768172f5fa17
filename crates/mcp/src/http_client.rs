//! HTTP towards servers: clients, bounded bodies, and which addresses may be called.

use std::time::Duration;

use ::web::Reach;
use reqwest::{Client, Response, redirect};
use url::Url;

use crate::error::Error;
use crate::rpc::beginning;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The most redirects of one request.
const REDIRECTS: usize = 5;
/// What an error quotes of an answer.
const QUOTED: usize = 500;

/// A client for that address. Redirects are followed only on the same server: configured headers are meant for it alone.
pub(crate) fn client(url: &Url) -> Result<Client, Error> {
    let same = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first().map(Url::origin);
        if attempt.previous().len() <= REDIRECTS && first.is_some_and(|first| first == attempt.url().origin()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let builder = Reach::of(url).client(CONNECT).map_err(|error| Error::Closed(error.to_string()))?;
    builder.redirect(same).build().map_err(|error| Error::Closed(format!("The HTTP client cannot be built: {error}")))
}

/// The address of a server.
pub(crate) fn address(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|error| Error::Config(format!("{text:?} is not an address: {error}")))?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        return Ok(url);
    }
    Err(Error::Config(format!("{text:?} is not an http or https address")))
}

/// The body of an answer, if it is not larger than that.
pub(crate) async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        if body.len() + chunk.len() > most {
            return Err(Error::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// An answer that is an error.
pub(crate) async fn refused(response: Response) -> Error {
    let status = response.status().as_u16();
    let body = body(response, 64 << 10).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let text = if text.trim_start().starts_with('<') { "a web page".to_owned() } else { beginning(&text, QUOTED) };
    Error::Http { status, text }
}

/// A connection that failed. What the library says may name the address with its secrets, so that is left out.
pub(crate) fn lost(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    Error::Closed(format!("The server cannot be reached: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert!(address("http://127.0.0.1:1/x").is_ok());
        for wrong in ["", "ftp://x", "mailto:a@b", "x"] {
            assert!(matches!(address(wrong), Err(Error::Config(_))), "{wrong}");
        }
    }
}
