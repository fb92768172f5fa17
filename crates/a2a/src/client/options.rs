//! How the client calls peers: timeouts, credentials, which transports it speaks, which hosts it trusts.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use url::Url;
use web::AddressGuard;

use crate::model::Line;
use crate::wire::Transport;

/// The options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The program and its version, as peers see it.
    pub user_agent: String,
    /// How long a request may take; of a stream, its beginning.
    pub timeout: Duration,
    /// How long fetching a card may take.
    pub card_timeout: Duration,
    /// The credentials that peers get.
    pub credentials: Option<ClientCredentials>,
    /// The transports that are used, the preferred one first.
    pub transports: Vec<Transport>,
    /// Whether the order of [`transports`](Self::transports) decides, and not the order in the peer's card.
    pub use_client_preference: bool,
    /// The only line that is spoken; by default the newest one that the peer speaks.
    pub line: Option<Line>,
    /// The hosts that a model may choose. They get the credentials.
    pub allowed_hosts: HostList,
    /// Which addresses may be connected to where the user did not name the host.
    pub guard: AddressGuard,
    /// How `send` waits for a task that is still running when its stream has ended.
    pub polling: Polling,
    /// How long a card is used before it is fetched again.
    pub card_ttl: Duration,
    /// The most cards that are kept.
    pub max_cards: usize,
    /// The bounds of a stream.
    pub stream: StreamLimits,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("trefoil/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: Duration::from_secs(30),
            card_timeout: Duration::from_secs(5),
            credentials: None,
            transports: vec![Transport::JsonRpc, Transport::Rest],
            use_client_preference: false,
            line: None,
            allowed_hosts: HostList::default(),
            guard: AddressGuard::new(web::is_public),
            polling: Polling::default(),
            card_ttl: Duration::from_secs(900),
            max_cards: 256,
            stream: StreamLimits::default(),
        }
    }
}

/// How a task is read again and again until it ends or needs its client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polling {
    /// Whether `send` does so.
    pub enabled: bool,
    /// The wait before the first read.
    pub initial_interval: Duration,
    /// The longest wait between two reads.
    pub max_interval: Duration,
    /// How much longer each wait is than the last one; at least 1.
    pub multiplier: f64,
    /// How long to go on.
    pub timeout: Duration,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            enabled: false,
            initial_interval: Duration::from_millis(500),
            max_interval: Duration::from_secs(2),
            multiplier: 2.0,
            timeout: Duration::from_secs(10),
        }
    }
}

/// The shortest wait, whatever is configured: an agent must not be asked in a loop without end.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

impl Polling {
    /// The first wait.
    pub(crate) fn first(&self) -> Duration {
        self.initial_interval.max(MIN_INTERVAL)
    }

    /// The wait after one of this length.
    pub(crate) fn after(&self, interval: Duration) -> Duration {
        let longer = Duration::try_from_secs_f64(interval.as_secs_f64() * self.multiplier.max(1.0));
        longer.unwrap_or(self.max_interval).min(self.max_interval).max(MIN_INTERVAL)
    }
}

/// The bounds of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// The most bytes of an event.
    pub event: usize,
    /// The most bytes.
    pub bytes: usize,
    /// How long it may take.
    pub duration: Duration,
    /// How long it may be silent; a comment that keeps the connection alive counts.
    pub idle: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { event: 4 << 20, bytes: 64 << 20, duration: Duration::from_secs(3600), idle: Duration::from_secs(120) }
    }
}

/// What a peer is told about who calls. Its `Debug` output has no secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientCredentials {
    /// A bearer token.
    Bearer(String),
    /// A user name and a password, in base64.
    Basic(String),
}

impl ClientCredentials {
    /// Basic credentials from `user:password`, or from its base64.
    pub fn basic(text: &str) -> Option<Self> {
        if text.contains(':') {
            return Some(Self::Basic(STANDARD.encode(text)));
        }
        let decoded = STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        decoded.contains(&b':').then(|| Self::Basic(STANDARD.encode(decoded)))
    }

    /// The value of the `Authorization` header.
    pub(crate) fn header(&self) -> String {
        match self {
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::Basic(encoded) => format!("Basic {encoded}"),
        }
    }
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer",
            Self::Basic(_) => "Basic",
        })
    }
}

/// Hosts by name. `*.example.org` means all subdomains of `example.org`, but not that domain itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList(Vec<String>);

impl HostList {
    /// The hosts with these names.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter().map(|name| normal(name.as_ref()));
        Self(names.filter(|name| !name.is_empty()).collect())
    }

    /// Whether it has no hosts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the host of a URL is one of them.
    pub fn contains(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().map(normal) else { return false };
        self.0.iter().any(|entry| match entry.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => *entry == host,
        })
    }
}

/// A host name in lower case, without the dot of the root and the brackets of an IPv6 address.
fn normal(name: &str) -> String {
    let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).map_or(name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match_exactly_or_as_subdomains() {
        let list = HostList::new(["Agents.example.org.", "*.example.com", " ", "::1", "10.0.0.7"]);
        let has = |url: &str| list.contains(&Url::parse(url).unwrap());
        for url in [
            "https://agents.example.org/a",
            "http://a.example.com",
            "http://a.b.example.com.",
            "http://[::1]:8000",
            "http://10.0.0.7",
        ] {
            assert!(has(url), "{url}");
        }
        for url in
            ["https://example.org", "https://example.com", "https://badexample.com", "http://10.0.0.77", "http://[::2]"]
        {
            assert!(!has(url), "{url}");
        }
        assert!(HostList::new([""]).is_empty());
    }

    #[test]
    fn basic_credentials_are_plain_or_encoded() {
        let plain = ClientCredentials::basic("user:pass").unwrap();
        assert_eq!(plain.header(), "Basic dXNlcjpwYXNz");
        assert_eq!(ClientCredentials::basic("dXNlcjpwYXNz"), Some(plain.clone()));
        assert_eq!(ClientCredentials::basic("dXNlcg=="), None, "no colon in it");
        assert_eq!(ClientCredentials::basic("user"), None);
        assert!(!format!("{plain:?}{:?}", ClientCredentials::Bearer("secret".into())).contains("secret"));
    }

    #[test]
    fn waits_grow_up_to_a_bound() {
        let polling = Polling::default();
        let waits: Vec<_> = std::iter::successors(Some(polling.first()), |last| Some(polling.after(*last)))
            .take(4)
            .map(|wait| wait.as_millis())
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 2000]);
        let shrinking = Polling { multiplier: 0.1, ..polling };
        assert_eq!(shrinking.after(polling.initial_interval), polling.initial_interval);
        let zero = Polling { initial_interval: Duration::ZERO, max_interval: Duration::ZERO, ..polling };
        assert_eq!((zero.first(), zero.after(Duration::ZERO)), (MIN_INTERVAL, MIN_INTERVAL));
    }
}
