//! Connects to addresses only after they were checked: for URLs that a model or a stranger chose.
//!
//! A name is resolved once, and the connection goes to the addresses that were checked: a second answer of the name server
//! is never used. There is no proxy, because it would resolve names by itself, unchecked.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder, redirect};
use url::{Host, Url};

/// Whether an address may be connected to.
pub type AddressFilter = fn(IpAddr) -> bool;

/// The host is, or resolves to, an address that may not be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateAddress {
    /// The host, as the URL names it.
    pub host: String,
}

impl PrivateAddress {
    /// This error, if it is why a request failed.
    pub fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }
}

impl std::fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is a private address", self.host)
    }
}

impl Error for PrivateAddress {}

/// Decides which addresses clients connect to. Cheap to clone.
#[derive(Clone)]
pub struct AddressGuard {
    allowed: AddressFilter,
    names: Arc<dyn Resolve>,
}

impl std::fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressGuard").finish_non_exhaustive()
    }
}

impl AddressGuard {
    /// A guard that allows what a filter allows, for example [`is_public`](crate::is_public).
    pub fn new(allowed: AddressFilter) -> Self {
        Self { allowed, names: Arc::new(SystemNames) }
    }

    /// Resolves names with another resolver than the system's.
    #[must_use]
    pub fn with_names(self, names: Arc<dyn Resolve>) -> Self {
        Self { names, ..self }
    }

    /// Checks a URL whose host is an IP address. Such a host is never resolved, so call this before each request; names
    /// are checked when the client connects.
    pub fn check(&self, url: &Url) -> Result<(), PrivateAddress> {
        let address: Option<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) | None => None,
        };
        match address {
            Some(address) if !(self.allowed)(address) => {
                Err(PrivateAddress { host: url.host_str().unwrap_or_default().to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Resolves the host of a URL and checks its addresses, to refuse a URL before anything is sent to it. `None` if the
    /// name does not resolve.
    pub async fn resolves(&self, url: &Url) -> Option<Result<(), PrivateAddress>> {
        if let Err(error) = self.check(url) {
            return Some(Err(error));
        }
        let Some(Host::Domain(name)) = url.host() else { return Some(Ok(())) };
        match self.resolver().resolve(name.parse().ok()?).await {
            Ok(_) => Some(Ok(())),
            Err(error) => PrivateAddress::cause_of(error.as_ref()).map(|error| Err(error.clone())),
        }
    }

    /// A builder of clients that connect to allowed addresses only. They follow no redirects, whose targets would have to
    /// be checked first.
    pub fn client(&self) -> ClientBuilder {
        // reqwest finds the provider only here. One that is already installed is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        Client::builder().redirect(redirect::Policy::none()).no_proxy().dns_resolver(Arc::new(self.resolver()))
    }

    fn resolver(&self) -> CheckedNames {
        CheckedNames { allowed: self.allowed, names: self.names.clone() }
    }
}

/// The resolver of the system.
struct SystemNames;

impl Resolve for SystemNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Returns only names whose addresses are all allowed.
struct CheckedNames {
    allowed: AddressFilter,
    names: Arc<dyn Resolve>,
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (allowed, host) = (self.allowed, name.as_str().to_owned());
        let found = self.names.resolve(name);
        Box::pin(async move {
            let found: Vec<SocketAddr> = found.await?.collect();
            // One private address is enough: a name that has both is meant to deceive.
            if found.iter().any(|address| !allowed(address.ip())) {
                return Err(PrivateAddress { host }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_public;

    fn guard() -> AddressGuard {
        AddressGuard::new(is_public)
    }

    #[test]
    fn literal_addresses_are_checked() {
        let url = |text: &str| Url::parse(text).unwrap();
        for private in ["http://127.0.0.1/", "http://[::1]/", "http://2130706433/", "http://169.254.169.254/latest"] {
            assert!(guard().check(&url(private)).is_err(), "{private}");
        }
        assert_eq!(guard().check(&url("http://8.8.8.8/")), Ok(()));
        assert_eq!(guard().check(&url("http://localhost/")), Ok(()), "a name is checked when it is resolved");
    }

    #[tokio::test]
    async fn names_are_checked_where_they_are_resolved() {
        let client = guard().client().build().unwrap();
        let error = client.get("http://localhost:1/").send().await.unwrap_err();
        let found = PrivateAddress::cause_of(&error).expect("the cause");
        assert_eq!(found, &PrivateAddress { host: "localhost".into() });
        let url = Url::parse("http://localhost:1/").unwrap();
        assert_eq!(guard().resolves(&url).await, Some(Err(PrivateAddress { host: "localhost".into() })));
        assert_eq!(AddressGuard::new(|_| true).resolves(&url).await, Some(Ok(())));
    }

    /// A name server whose answer is public and private at once.
    struct Mixed;

    impl Resolve for Mixed {
        fn resolve(&self, _: Name) -> Resolving {
            let found = ["8.8.8.8:0", "127.0.0.1:0"].map(|address| address.parse().unwrap());
            Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
        }
    }

    #[tokio::test]
    async fn one_private_address_of_a_name_is_enough() {
        let client = guard().with_names(Arc::new(Mixed)).client().build().unwrap();
        let error = client.get("http://example.org/").send().await.unwrap_err();
        assert_eq!(PrivateAddress::cause_of(&error).map(|error| error.host.as_str()), Some("example.org"));
    }
}
