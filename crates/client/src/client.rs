//! The client: the server's address, the connection options, and what is known about the server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{Caller, HostError, WatchScope};
use reqwest::Method;
use reqwest::header::{HeaderMap, SERVER};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use web::ClientKind;

use crate::Events;
use crate::directories::Directories;
use crate::error::RequestError;
use crate::limit::{Limit, Limits};

/// The name of OpenCode's only user.
const USERNAME: &str = "opencode";
/// The `user-agent` header. The name of the caller's program follows it, if there is one.
pub(crate) const USER_AGENT: &str = concat!("trefoil/", env!("CARGO_PKG_VERSION"));
/// The prefix of Trefoil's `server` header.
const TREFOIL: &str = "trefoil/";

/// TCP keepalive probes start after this long without traffic …
const KEEPALIVE: Duration = Duration::from_secs(30);
/// … repeat after this long …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// … and the connection is dropped after this many unanswered probes.
const KEEPALIVE_RETRIES: u32 = 4;

/// OpenCode never answers a request sent right after it began to listen, so such a request is abandoned early.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a server that is not ready is polled.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Credentials, default directory, timeouts and limits of a client.
#[derive(Clone, Default)]
pub struct Options {
    /// The user; `opencode` by default.
    pub username: Option<String>,
    /// The password, if the server requires one.
    pub password: Option<String>,
    /// The directory of calls whose scope has none. Without it, the server uses its own.
    pub directory: Option<String>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// How much may be open at a time.
    pub limits: Limits,
}

/// Timeouts of a client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For establishing a connection.
    pub connect: Duration,
    /// For the whole response to a call that runs no turn.
    pub call: Duration,
    /// For the whole response to a call that runs a turn; `None`, the default, for as long as it takes. The turn itself
    /// does not end with it.
    pub turn: Option<Duration>,
    /// For the next sign of life while a turn runs. Only Trefoil sends these; a turn of OpenCode may be silent for as
    /// long as it takes.
    pub turn_silence: Duration,
    /// For the next bytes of an event stream: three heartbeats.
    pub stream_silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(30),
            turn: None,
            turn_silence: Duration::from_secs(120),
            stream_silence: Duration::from_secs(30),
        }
    }
}

/// A server's own health report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Health {
    /// Whether the server works.
    pub healthy: bool,
    /// The version of OpenCode that it is, or is compatible with.
    pub version: String,
}

/// A caller's handle on one server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    /// Who uses this handle.
    pub(crate) caller: Arc<Caller>,
}

pub(crate) struct Inner {
    pub http: reqwest::Client,
    /// Without user and password, so that it can be shown.
    pub base: Url,
    /// How errors refer to the server.
    pub display_name: String,
    pub username: String,
    pub password: Option<String>,
    pub directory: Option<String>,
    pub timeouts: Timeouts,
    pub directories: Directories,
    pub requests: Limit,
    pub streams: Limit,
    trefoil: AtomicBool,
}

impl Client {
    /// Creates a client for the server at `base`: `http://host:port`, `https://host/path` or `unix:/path/of/socket`.
    /// Sends nothing yet.
    pub fn new(base: &str, options: Options) -> Result<Self, HostError> {
        let Options { username, password, directory, timeouts, limits } = options;
        let Address { mut url, socket, display_name } = address(base)?;
        let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let password = password.or_else(|| url.password().map(decoded));
        let username = username.or_else(|| Some(decoded(url.username())).filter(|name| !name.is_empty()));
        // Both fail only for addresses without a host, which `address` refuses.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let display_name = display_name.unwrap_or_else(|| url.as_str().trim_end_matches('/').to_owned());
        let http = http(&url, socket, &timeouts).map_err(|error| {
            HostError::Failed(format!(
                "The HTTP client cannot be built: {error}; are the system's root certificates installed?"
            ))
        })?;
        let username = username.unwrap_or_else(|| USERNAME.to_owned());
        let inner = Inner {
            http,
            base: url,
            display_name,
            username,
            password,
            directory,
            timeouts,
            directories: Directories::default(),
            requests: Limit::new("requests", limits.requests),
            streams: Limit::new("event streams", limits.streams),
            trefoil: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner), caller: Arc::default() })
    }

    /// A handle for someone else. It shares everything with this one but the caller.
    #[must_use]
    pub fn with_caller(&self, caller: Caller) -> Self {
        Self { inner: self.inner.clone(), caller: Arc::new(caller) }
    }

    /// Whether the last response came from Trefoil. False before the first one.
    pub fn is_trefoil(&self) -> bool {
        self.inner.trefoil.load(Ordering::Relaxed)
    }

    /// Finds out whether the server is Trefoil, if no response has said so yet.
    pub(crate) async fn detect(&self) -> Result<(), HostError> {
        // An unhealthy server also identifies itself.
        match self.is_trefoil() {
            true => Ok(()),
            false => self.health().await.map(drop).or_else(|error| if self.is_trefoil() { Ok(()) } else { Err(error) }),
        }
    }

    /// Detects from the headers of a response whether the server is Trefoil.
    pub(crate) fn detect_server(&self, headers: &HeaderMap) {
        let name = headers.get(SERVER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.inner.trefoil.store(name.starts_with(TREFOIL), Ordering::Relaxed);
    }

    /// Reads the server's health report.
    pub async fn health(&self) -> Result<Health, HostError> {
        self.request(Method::GET, &["global", "health"]).fetch().await
    }

    /// Checks that the address belongs to a Trefoil or OpenCode server that accepts our credentials. The error says
    /// what was found instead.
    pub async fn identify(&self) -> Result<(), HostError> {
        self.request(Method::GET, &["global", "health"]).identify().await
    }

    /// Waits until a server that was just started responds.
    pub async fn wait_until_ready(&self, within: Duration) -> Result<Health, HostError> {
        let request = self.request(Method::GET, &["global", "health"]);
        let end = Instant::now() + within;
        loop {
            let error = match timeout(FIRST_RESPONSE_TIMEOUT, request.response()).await {
                Ok(Err(RequestError::Connection(error))) => error,
                Ok(response) => return response?.decode(),
                Err(_) => {
                    HostError::Late(format!("{} takes connections, but does not answer", self.inner.display_name))
                }
            };
            if Instant::now() >= end {
                return Err(error);
            }
            sleep(READY_POLL_INTERVAL).await;
        }
    }

    /// Follows the events of a scope: one connection for any number of listeners.
    pub async fn events(&self, scope: WatchScope) -> Result<Events, HostError> {
        Ok(Events::follow(crate::events::watch::watch(self.clone(), scope, None).await?))
    }
}

struct Address {
    url: Url,
    /// The socket of a `unix:` address.
    socket: Option<PathBuf>,
    /// How errors refer to it, if not by its URL.
    display_name: Option<String>,
}

fn address(base: &str) -> Result<Address, HostError> {
    let base = base.trim();
    // The part before the host may contain a password.
    let display_name = base.rsplit('@').next().unwrap_or_default();
    let invalid = |why: &str| {
        HostError::Invalid(format!(
            "The server's address {display_name:?} cannot be used: {why}; one looks like http://127.0.0.1:4096"
        ))
    };
    let (text, socket) = match base.strip_prefix("unix:") {
        Some(path) => ("http://localhost", Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))),
        None => (base, None),
    };
    if socket.as_ref().is_some_and(|path| !path.is_absolute()) {
        return Err(invalid("the path of a socket must be absolute"));
    }
    let mut url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("only http, https and unix are supported"));
    }
    url.set_query(None);
    url.set_fragment(None);
    let display_name = socket.as_ref().map(|path| format!("unix:{}", path.display()));
    Ok(Address { url, socket, display_name })
}

fn http(
    url: &Url,
    socket: Option<PathBuf>,
    timeouts: &Timeouts,
) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let builder = ClientKind::of(url).client(timeouts.connect)?;
    let mut builder = builder
        .user_agent(USER_AGENT)
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

    fn display_name(base: &str) -> Result<String, String> {
        Client::new(base, Options::default())
            .map(|client| client.inner.display_name.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_shown_without_their_password() {
        assert_eq!(display_name("http://127.0.0.1:4096/").unwrap(), "http://127.0.0.1:4096");
        assert_eq!(display_name("http://me:hunter2@127.0.0.1:4096/base").unwrap(), "http://127.0.0.1:4096/base");
        assert_eq!(display_name("unix:/run/trefoil.sock").unwrap(), "unix:/run/trefoil.sock");
        let client = Client::new("http://me:p%40ss@127.0.0.1:1", Options::default()).unwrap();
        assert_eq!((client.inner.username.as_str(), client.inner.password.as_deref()), ("me", Some("p@ss")));
        let options = Options { password: Some("other".to_owned()), ..Options::default() };
        let client = Client::new("http://127.0.0.1:1", options).unwrap();
        assert_eq!((client.inner.username.as_str(), client.inner.password.as_deref()), ("opencode", Some("other")));
    }

    #[test]
    fn wrong_addresses_are_refused_with_an_example() {
        for base in ["127.0.0.1:4096", "localhost:4096", "ftp://me:hunter2@host", "unix:relative.sock", ""] {
            let error = display_name(base).unwrap_err();
            assert!(error.contains("looks like http://127.0.0.1:4096") && !error.contains("hunter2"), "{error}");
        }
    }
}
