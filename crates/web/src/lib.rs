//! HTTP clients: what everybody who calls a server needs of one. Who calls whom, and what is said, is not known here.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect};
use url::{Host, Url};

/// What a client needs to reach an address. Addresses that are equal in this can share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    tls: bool,
    local: bool,
}

impl Reach {
    /// What that address needs.
    pub fn of(url: &Url) -> Self {
        Self { tls: url.scheme() == "https", local: is_local(url) }
    }

    /// The beginnings of such a client. It follows no redirects: headers are meant for the server that they were given for.
    pub fn client(self, connect: Duration) -> Result<ClientBuilder, rustls::Error> {
        let provider = rustls::crypto::ring::default_provider();
        let mut builder = Client::builder().redirect(redirect::Policy::none()).connect_timeout(connect);
        if self.tls {
            // reqwest verifies with the platform's roots, and finds the provider only here. Whoever was first is as good.
            drop(provider.install_default());
        } else {
            // The roots take milliseconds to load; a server without TLS does not pay for them.
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

/// Whether an address is on this machine.
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
    fn what_is_on_this_machine() {
        for here in ["http://localhost:4096", "http://a.localhost", "http://127.3.2.1:1/x", "http://[::1]/x"] {
            assert!(is_local(&url(here)), "{here}");
        }
        for elsewhere in ["https://localhost.example.org", "http://10.0.0.1", "http://[fe80::1]", "unix:/run/x"] {
            assert!(!is_local(&url(elsewhere)), "{elsewhere}");
        }
    }

    #[test]
    fn addresses_of_one_kind_share_a_client() {
        let reach = |text| Reach::of(&url(text));
        assert_eq!(reach("http://127.0.0.1:1"), reach("http://localhost:2/path"));
        assert_ne!(reach("http://127.0.0.1:1"), reach("https://127.0.0.1:1"));
        assert_ne!(reach("http://127.0.0.1:1"), reach("http://10.0.0.1"));
        assert!(reach("http://127.0.0.1:1").client(Duration::from_secs(1)).unwrap().build().is_ok());
    }
}
