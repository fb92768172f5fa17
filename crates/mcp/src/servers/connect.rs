//! From a server's configuration to a connection.

use std::sync::Arc;
use std::time::Duration;

use api::{McpConfig, McpOAuth};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use url::Url;

use super::Setup;
use crate::client::{Client, Wires};
use crate::error::Error;
use crate::http_client;
use crate::oauth::{Auth, Store};
use crate::transport::Transport;
use crate::transport::http::Http;
use crate::transport::stdio::{Program, Stdio};

/// How long a start or a list may take, if nothing is configured.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a server is switched on.
pub(crate) fn is_enabled(config: &McpConfig) -> bool {
    let (McpConfig::Local { enabled, .. } | McpConfig::Remote { enabled, .. }) = config;
    *enabled != Some(false)
}

/// How long a start or a list may take, and what the configuration says about a call.
pub(crate) fn timeout_of(config: &McpConfig) -> (Duration, Option<Duration>) {
    let (McpConfig::Local { timeout, .. } | McpConfig::Remote { timeout, .. }) = config;
    let own = timeout.filter(|ms| *ms > 0).map(Duration::from_millis);
    (own.unwrap_or(START_TIMEOUT), own)
}

/// How a server is signed in at; `None` if it is not.
pub(crate) fn auth_of(setup: &Setup, name: &str, config: &McpConfig) -> Result<Option<Arc<Auth>>, Error> {
    let McpConfig::Remote { url, oauth, .. } = config else { return Ok(None) };
    let oauth = match oauth {
        Some(McpOAuth::Off(false)) => return Ok(None),
        Some(McpOAuth::Config(oauth)) => oauth.clone(),
        Some(McpOAuth::Off(true)) | None => Default::default(),
    };
    Ok(Some(Arc::new(Auth::new(name, http_client::address(url)?, oauth, Store::new(&setup.data)))))
}

/// Connects to a server.
pub(crate) async fn connect(setup: &Setup, name: &str, config: &McpConfig, limit: Duration) -> Result<Client, Error> {
    let root = Url::from_directory_path(&setup.directory).map(String::from).unwrap_or_default();
    let root = root.trim_end_matches('/').to_owned();
    match config {
        McpConfig::Local { command, cwd, environment, .. } => {
            let wires = Wires::new(root);
            let cwd = setup.directory.join(cwd.as_deref().unwrap_or_default());
            let environment = environment.clone().unwrap_or_default();
            let program = Program { command, cwd: &cwd, environment: &environment };
            let stdio = Stdio::start(&setup.exec, program, &wires.peer, &wires.end, &wires.tasks).await?;
            Client::open(wires, Transport::Stdio(stdio), &setup.version, limit).await
        }
        McpConfig::Remote { url, headers, .. } => {
            let url = http_client::address(url)?;
            let headers = header_map(headers.iter().flatten())?;
            let http = Http::new(url, headers, auth_of(setup, name, config)?)?;
            let transport = Transport::Http(http.clone());
            let first = match Client::open(Wires::new(root.clone()), transport, &setup.version, limit).await {
                Err(error) if may_be_older(&error) => error,
                other => return other,
            };
            // What it said to a message is what counts, if it does not have the older transport either.
            let wires = Wires::new(root);
            let opened = timeout(limit, http.open_stream(&wires.peer, &wires.end, &wires.tasks)).await;
            match opened {
                Ok(Ok(())) => Client::open(wires, Transport::Http(http), &setup.version, limit).await,
                Ok(Err(error @ Error::Unauthorized(_))) => Err(error),
                _ => Err(first),
            }
        }
    }
}

/// Whether a server refused in the way of those that only know the older transport.
fn may_be_older(error: &Error) -> bool {
    matches!(error, Error::Http { status: 400 | 404 | 405 | 406 | 415, .. } | Error::Answer(_))
}

fn header_map<'a>(headers: impl Iterator<Item = (&'a String, &'a String)>) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let illegal = || Error::Config(format!("The header {name:?} has characters that HTTP does not allow"));
        let key: HeaderName = name.trim().parse().map_err(|_| illegal())?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| illegal())?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}
