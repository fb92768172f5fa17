//! The client: where the server is, how it is reached, and what is known of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{HostError, WatchScope};
use reqwest::Method;
use reqwest::header::{HeaderMap, SERVER};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use web::Reach;

use crate::Events;
use crate::error::Failure;

/// OpenCode's name of the one user there is.
const USERNAME: &str = "opencode";
/// What the `server` header of Trefoil begins with.
const TREFOIL: &str = "trefoil/";

/// After this long without a word the system asks whether the other end still lives …
const KEEPALIVE: Duration = Duration::from_secs(30);
/// … again after this long …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// … and gives the connection up after this many questions.
const KEEPALIVE_RETRIES: u32 = 4;

/// OpenCode never answers a request that comes right after it began to listen, so that one is given up early.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// The pause between two looks at a server that is not ready.
const READY_PAUSE: Duration = Duration::from_millis(50);

/// Who asks, and how patiently.
#[derive(Clone, Default)]
pub struct Options {
    /// The user; `opencode` without it.
    pub username: Option<String>,
    /// The password, if the server wants one.
    pub password: Option<String>,
    /// The directory of calls whose scope has none; the server's own without it.
    pub directory: Option<String>,
    /// How long to wait.
    pub timeouts: Timeouts,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the whole answer to a call that runs no turn.
    pub call: Duration,
    /// For the next sign of life while a turn runs. Only Trefoil gives such signs; a turn of OpenCode may be silent for
    /// as long as it takes.
    pub turn_silence: Duration,
    /// For the next bytes of an event stream; three heartbeats.
    pub stream_silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(30),
            turn_silence: Duration::from_secs(120),
            stream_silence: Duration::from_secs(30),
        }
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Health {
    /// Whether it works.
    pub healthy: bool,
    /// The version of OpenCode that it is, or is compatible with.
    pub version: String,
}

/// A server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub http: reqwest::Client,
    /// Without user and password, so that it can be shown.
    pub base: Url,
    /// What errors call the server.
    pub shown: String,
    pub username: String,
    pub password: Option<String>,
    pub directory: Option<String>,
    pub timeouts: Timeouts,
    trefoil: AtomicBool,
}

impl Client {
    /// A client for the server at `base`: `http://host:port`, `https://host/path` or `unix:/path/of/socket`. Nothing is
    /// sent yet.
    pub fn new(base: &str, options: Options) -> Result<Self, HostError> {
        let Options { username, password, directory, timeouts } = options;
        let Address { mut url, socket, shown } = address(base)?;
        let given = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let password = password.or_else(|| url.password().map(given));
        let username = username.or_else(|| Some(given(url.username())).filter(|name| !name.is_empty()));
        // Both fail only for addresses without a host, which `address` refuses.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let shown = shown.unwrap_or_else(|| url.as_str().trim_end_matches('/').to_owned());
        let http = http(&url, socket, &timeouts).map_err(|error| {
            HostError::Failed(format!(
                "The HTTP client cannot be built: {error}; are the system's root certificates installed?"
            ))
        })?;
        let username = username.unwrap_or_else(|| USERNAME.to_owned());
        let trefoil = AtomicBool::new(false);
        Ok(Self { inner: Arc::new(Inner { http, base: url, shown, username, password, directory, timeouts, trefoil }) })
    }

    /// Whether the last answer came from Trefoil. False before the first one.
    pub fn is_trefoil(&self) -> bool {
        self.inner.trefoil.load(Ordering::Relaxed)
    }

    /// Learns from the head of an answer who the server is.
    pub(crate) fn learn(&self, headers: &HeaderMap) {
        let name = headers.get(SERVER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.inner.trefoil.store(name.starts_with(TREFOIL), Ordering::Relaxed);
    }

    /// How the server is.
    pub async fn health(&self) -> Result<Health, HostError> {
        self.call(Method::GET, &["global", "health"]).ask().await
    }

    /// Makes sure that the address is that of a server of Trefoil or OpenCode that lets us in. The error says what was
    /// found there instead.
    pub async fn identify(&self) -> Result<(), HostError> {
        self.call(Method::GET, &["global", "health"]).identify().await
    }

    /// Waits until a server that was just started answers.
    pub async fn ready(&self, within: Duration) -> Result<Health, HostError> {
        let call = self.call(Method::GET, &["global", "health"]);
        let end = Instant::now() + within;
        loop {
            let error = match timeout(FIRST_ANSWER, call.answer()).await {
                Ok(Err(Failure::Broken(error))) => error,
                Ok(answered) => return answered?.decode(),
                Err(_) => HostError::Failed(format!("{} takes connections, but does not answer", self.inner.shown)),
            };
            if Instant::now() >= end {
                return Err(error);
            }
            sleep(READY_PAUSE).await;
        }
    }

    /// Follows the events of a scope: one connection, any number of listeners.
    pub async fn events(&self, scope: WatchScope) -> Result<Events, HostError> {
        Ok(Events::follow(crate::events::watch::watch(self.clone(), scope, None).await?))
    }
}

struct Address {
    url: Url,
    /// The socket of a `unix:` address.
    socket: Option<PathBuf>,
    /// What errors call it, if not by its URL.
    shown: Option<String>,
}

fn address(base: &str) -> Result<Address, HostError> {
    let base = base.trim();
    // A password may stand before the host.
    let shown = base.rsplit('@').next().unwrap_or_default();
    let wrong = |why: &str| {
        HostError::Invalid(format!(
            "The server's address {shown:?} cannot be used: {why}; one looks like http://127.0.0.1:4096"
        ))
    };
    let (text, socket) = match base.strip_prefix("unix:") {
        Some(path) => ("http://localhost", Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))),
        None => (base, None),
    };
    if socket.as_ref().is_some_and(|path| !path.is_absolute()) {
        return Err(wrong("the path of a socket is absolute"));
    }
    let mut url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("only http, https and unix are spoken"));
    }
    url.set_query(None);
    url.set_fragment(None);
    let shown = socket.as_ref().map(|path| format!("unix:{}", path.display()));
    Ok(Address { url, socket, shown })
}

fn http(
    url: &Url,
    socket: Option<PathBuf>,
    timeouts: &Timeouts,
) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let builder = Reach::of(url).client(timeouts.connect)?;
    let mut builder = builder
        .user_agent(concat!("trefoil/", env!("CARGO_PKG_VERSION")))
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE_INTERVAL)
        .tcp_keepalive_retries(KEEPALIVE_RETRIES);
    if let Some(path) = socket {
        builder = builder.unix_socket(path);
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(base: &str) -> Result<String, String> {
        Client::new(base, Options::default())
            .map(|client| client.inner.shown.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_shown_without_their_password() {
        assert_eq!(shown("http://127.0.0.1:4096/").unwrap(), "http://127.0.0.1:4096");
        assert_eq!(shown("http://me:hunter2@127.0.0.1:4096/base").unwrap(), "http://127.0.0.1:4096/base");
        assert_eq!(shown("unix:/run/trefoil.sock").unwrap(), "unix:/run/trefoil.sock");
        let client = Client::new("http://me:p%40ss@127.0.0.1:1", Options::default()).unwrap();
        assert_eq!((client.inner.username.as_str(), client.inner.password.as_deref()), ("me", Some("p@ss")));
        let options = Options { password: Some("other".to_owned()), ..Options::default() };
        let client = Client::new("http://127.0.0.1:1", options).unwrap();
        assert_eq!((client.inner.username.as_str(), client.inner.password.as_deref()), ("opencode", Some("other")));
    }

    #[test]
    fn wrong_addresses_are_refused_with_an_example() {
        for base in ["127.0.0.1:4096", "localhost:4096", "ftp://me:hunter2@host", "unix:relative.sock", ""] {
            let error = shown(base).unwrap_err();
            assert!(error.contains("looks like http://127.0.0.1:4096") && !error.contains("hunter2"), "{error}");
        }
    }
}
