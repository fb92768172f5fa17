//! HTTP clients, for every crate that calls a server. It knows neither its callers nor what they send.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect};
use url::{Host, Url};

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
}
