//! HTTP towards servers: clients, bounded bodies, and which addresses may be called.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response, redirect};
use url::{Host, Url};

use crate::error::Error;
use crate::message::beginning;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The most redirects of one request.
const REDIRECTS: usize = 5;
/// What an error quotes of an answer.
const QUOTED: usize = 500;

/// A client for that address. Redirects are followed only on the same server: configured headers are meant for it alone.
pub(crate) fn client(url: &Url) -> Result<Client, Error> {
    let provider = rustls::crypto::ring::default_provider();
    let same = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first().map(Url::origin);
        if attempt.previous().len() <= REDIRECTS && first.is_some_and(|first| first == attempt.url().origin()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let mut builder = Client::builder().redirect(same).connect_timeout(CONNECT);
    if url.scheme() == "https" {
        // reqwest verifies with the platform's roots, and finds the provider only here. Whoever was first is as good.
        drop(provider.install_default());
    } else {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Closed(error.to_string()))?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(config);
    }
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| Error::Closed(format!("The HTTP client cannot be built: {error}")))
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
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
        assert!(is_loopback(&address("http://127.0.0.1:1/x").unwrap()));
        assert!(is_loopback(&address("http://[::1]/x").unwrap()));
        assert!(!is_loopback(&address("https://localhost.example.org/").unwrap()));
        for wrong in ["", "ftp://x", "mailto:a@b", "x"] {
            assert!(matches!(address(wrong), Err(Error::Config(_))), "{wrong}");
        }
    }
}
