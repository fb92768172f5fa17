//! Connects to a server according to its configuration.

use std::sync::Arc;
use std::time::Duration;

use api::{McpConfig, McpOAuth};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use url::Url;

use super::Setup;
use crate::client::{Client, ConnectionContext};
use crate::error::Error;
use crate::http_client;
use crate::oauth::{Auth, CredentialStore};
use crate::transport::Transport;
use crate::transport::http::HttpTransport;
use crate::transport::stdio::{ProgramSpec, StdioTransport};

/// How long starting or listing may take, unless configured.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a server is enabled.
pub(crate) fn is_enabled(config: &McpConfig) -> bool {
    let (McpConfig::Local { enabled, .. } | McpConfig::Remote { enabled, .. }) = config;
    *enabled != Some(false)
}

/// How long starting or listing may take, and the configured timeout of a call.
pub(crate) fn timeout_of(config: &McpConfig) -> (Duration, Option<Duration>) {
    let (McpConfig::Local { timeout, .. } | McpConfig::Remote { timeout, .. }) = config;
    let configured = timeout.filter(|ms| *ms > 0).map(Duration::from_millis);
    (configured.unwrap_or(START_TIMEOUT), configured)
}

/// The OAuth client of a server; `None` if it does not use OAuth.
pub(crate) fn auth_of(setup: &Setup, name: &str, config: &McpConfig) -> Result<Option<Arc<Auth>>, Error> {
    let McpConfig::Remote { url, oauth, .. } = config else { return Ok(None) };
    let oauth = match oauth {
        Some(McpOAuth::Off(false)) => return Ok(None),
        Some(McpOAuth::Config(oauth)) => oauth.clone(),
        Some(McpOAuth::Off(true)) | None => Default::default(),
    };
    Ok(Some(Arc::new(Auth::new(name, http_client::parse_url(url)?, oauth, CredentialStore::new(&setup.data)))))
}

/// Connects to a server.
pub(crate) async fn connect(setup: &Setup, name: &str, config: &McpConfig, limit: Duration) -> Result<Client, Error> {
    let root = Url::from_directory_path(&setup.directory).map(String::from).unwrap_or_default();
    let root = root.trim_end_matches('/').to_owned();
    match config {
        McpConfig::Local { command, cwd, environment, .. } => {
            let context = ConnectionContext::new(root);
            let cwd = setup.directory.join(cwd.as_deref().unwrap_or_default());
            let environment = environment.clone().unwrap_or_default();
            let program = ProgramSpec { command, cwd: &cwd, environment: &environment };
            let stdio =
                StdioTransport::start(&setup.exec, program, &context.peer, &context.end, &context.tasks).await?;
            Client::open(context, Transport::Stdio(stdio), &setup.version, limit).await
        }
        McpConfig::Remote { url, headers, .. } => {
            let url = http_client::parse_url(url)?;
            let headers = header_map(headers.iter().flatten())?;
            let http = HttpTransport::new(url, headers, auth_of(setup, name, config)?)?;
            let transport = Transport::Http(http.clone());
            let first = match Client::open(ConnectionContext::new(root.clone()), transport, &setup.version, limit).await
            {
                Err(error) if may_need_older_transport(&error) => error,
                other => return other,
            };
            // If it does not have the older transport either, report the first error.
            let context = ConnectionContext::new(root);
            let opened = timeout(limit, http.open_stream(&context.peer, &context.end, &context.tasks)).await;
            match opened {
                Ok(Ok(())) => Client::open(context, Transport::Http(http), &setup.version, limit).await,
                Ok(Err(error @ Error::Unauthorized(_))) => Err(error),
                _ => Err(first),
            }
        }
    }
}

/// Whether an error may come from a server that knows only the older transport.
fn may_need_older_transport(error: &Error) -> bool {
    matches!(error, Error::Http { status: 400 | 404 | 405 | 406 | 415, .. } | Error::InvalidResponse(_))
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
