//! HTTP clients and event streams, for every crate that calls a server. It knows neither its callers nor what they send.

mod address;
mod guard;
mod sse;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect};
use url::{Host, Url};

pub use address::is_public;
pub use guard::{AddressFilter, AddressGuard, PrivateAddress};
pub use sse::{EventTooLarge, SseDecoder, SseEvent};

/// What a client needs to reach a URL. URLs with the same kind can share a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientKind {
    tls: bool,
    local: bool,
}

impl ClientKind {
    /// The kind of client that a URL needs.
    pub fn of(url: &Url) -> Self {
        Self { tls: url.scheme() == "https", local: is_local(url) }
    }

    /// A builder for such a client. It follows no redirects: headers are meant for the configured server only.
    pub fn client(self, connect: Duration) -> Result<ClientBuilder, rustls::Error> {
        let provider = rustls::crypto::ring::default_provider();
        let mut builder = Client::builder().redirect(redirect::Policy::none()).connect_timeout(connect);
        if self.tls {
            // reqwest verifies with the platform's roots, and finds the provider only here. One that is already installed is fine.
            drop(provider.install_default());
        } else {
            // The roots take milliseconds to load; skip that for a server without TLS.
            let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            builder = builder.tls_backend_preconfigured(config);
        }
        // A server on this machine is never reached through a proxy.
        Ok(if self.local { builder.no_proxy() } else { builder })
    }
}

/// Whether a URL is on this machine.
pub fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The innermost cause of an error, which is the meaningful one: the outer ones only say that a request failed.
pub fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_addresses_are_local() {
        for here in ["http://localhost:4096", "http://a.localhost", "http://127.3.2.1:1/x", "http://[::1]/x"] {
            assert!(is_local(&url(here)), "{here}");
        }
        for elsewhere in ["https://localhost.example.org", "http://10.0.0.1", "http://[fe80::1]", "unix:/run/x"] {
            assert!(!is_local(&url(elsewhere)), "{elsewhere}");
        }
    }

    #[test]
    fn urls_of_one_kind_share_a_client() {
        let kind = |text| ClientKind::of(&url(text));
        assert_eq!(kind("http://127.0.0.1:1"), kind("http://localhost:2/path"));
        assert_ne!(kind("http://127.0.0.1:1"), kind("https://127.0.0.1:1"));
        assert_ne!(kind("http://127.0.0.1:1"), kind("http://10.0.0.1"));
        assert!(kind("http://127.0.0.1:1").client(Duration::from_secs(1)).unwrap().build().is_ok());
    }

    #[test]
    fn the_root_cause_is_the_innermost_error() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let text = refused.to_string();
        assert_eq!(root_cause(&refused).to_string(), text);
        let outer = std::io::Error::other(Outer(refused));
        assert_eq!((outer.to_string().as_str(), root_cause(&outer).to_string()), ("outer", text));
    }

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
}
