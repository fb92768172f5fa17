//! The A2A service, on the engine of this process or in front of an OpenCode server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use a2a::records::{OpenError, Records};
use a2a::service::{Agent, Service, ServiceOptions};
use a2a::{Backend, Credentials, CredentialsError, Endpoint, EndpointOptions, Extensions, Settings};
use api::AgentRuntime;
use store::Store;
use tokio_util::sync::CancellationToken;

use super::Invocation;
use crate::exit::{Exit, Failure};
use crate::terminal;

/// The key of a card is a few hundred bytes.
const MAX_KEY_BYTES: u64 = 64 << 10;

/// A service that is not open yet: its settings passed every check that needs neither a database nor a port.
pub struct Prepared {
    /// The settings.
    pub settings: Settings,
    credentials: Credentials,
    workspace_root: PathBuf,
    signing_key: Option<String>,
}

/// What a service needs besides its settings.
pub struct A2aOptions {
    /// Who does the work.
    pub host: Arc<dyn AgentRuntime>,
    /// Trefoil's own database, where tasks are unless the settings name another place. Opened if it is needed and missing.
    pub store: Option<Store>,
    /// Who answers: the runtime, or the script that conformance kits drive.
    pub agent: Agent,
    /// The base URL of the service as clients of this machine reach it.
    pub url: String,
    /// Cancelled when the program stops.
    pub closing: CancellationToken,
}

/// Reads the settings of the service, and logs at their level.
pub fn settings(invocation: &Invocation, config: &api::JsonMap) -> anyhow::Result<Settings> {
    let refused = |error: String| {
        Failure::new(Exit::Usage, error).hint("docs/a2a.md lists the settings of the A2A service and their values")
    };
    let read = Settings::read(|name| invocation.env.get(name).cloned(), config);
    let settings = read.map_err(|error| refused(error.to_string()))?;
    if let (Some(log), Some(level)) = (&invocation.log_level, &settings.log_level) {
        log.configure(level).map_err(|error| refused(format!("A2A_LOG_LEVEL: {error}")))?;
    }
    Ok(settings)
}

/// Checks settings. `no_auth` if callers need no credentials.
pub fn prepare(settings: Settings, invocation: &Invocation, no_auth: bool) -> Result<Prepared, Failure> {
    refuse_unenforced_boundary(&settings)?;
    let credentials = credentials(&settings, no_auth)?;
    let workspace_root = workspace_root(&settings, invocation)?;
    let signing_key = settings.card_signing_key.as_deref().map(|path| read_key(&invocation.directory.join(path)));
    Ok(Prepared { credentials, workspace_root, signing_key: signing_key.transpose()?, settings })
}

/// Opens the service and its endpoint.
pub async fn open(
    prepared: Prepared,
    invocation: &Invocation,
    options: A2aOptions,
) -> anyhow::Result<(Service, Arc<Endpoint>)> {
    let Prepared { settings, credentials, workspace_root, signing_key } = prepared;
    let records = records(&settings, invocation, options.store).await?;
    let service = Service::open(ServiceOptions {
        host: options.host,
        records,
        settings: (&settings).into(),
        workspace_root: workspace_root.clone(),
        agent: options.agent,
    })
    .await
    .map_err(|error| Failure::new(Exit::Failed, format!("cannot open the tasks: {error}")))?;
    let public_url = settings.public_url.clone().unwrap_or_else(|| reachable(&options.url));
    let schemes = credentials.schemes();
    let version = settings.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let card = a2a::card::CardInput::new(&settings, &public_url, &schemes, &workspace_root, &version);
    let endpoint = Endpoint::new(EndpointOptions {
        extensions: Extensions::new(service.clone()),
        service: service.clone(),
        credentials,
        card,
        signing_key,
        hosts: [&public_url, &options.url].into_iter().filter_map(|url| host_of(url)).collect(),
        closing: options.closing,
        settings,
    })
    .map_err(|error| {
        Failure::new(Exit::Usage, error.to_string()).hint("name a file with an ECDSA P-256 key, PKCS#8 in PEM form")
    })?;
    Ok((service, Arc::new(endpoint)))
}

/// The OpenCode server that the settings name, as the one who does the work. Sends nothing yet.
pub fn upstream(settings: &Settings) -> Result<Arc<dyn AgentRuntime>, Failure> {
    let url = settings.upstream_url.as_deref().unwrap_or_default();
    let options = client::Options {
        username: settings.upstream_username.clone(),
        password: settings.upstream_password.clone(),
        directory: settings.workspace_root.clone(),
        timeouts: client::Timeouts {
            call: settings.upstream_timeout,
            turn: settings.upstream_stream_timeout,
            ..client::Timeouts::default()
        },
        // Streams of tasks are limited by the service: all of them share one event stream of the server.
        limits: client::Limits { requests: settings.upstream_max_requests, streams: 0 },
    };
    let host = client::Client::new(url, options).map_err(|error| {
        Failure::new(Exit::Usage, format!("OPENCODE_BASE_URL: {error}"))
            .hint("name the address of an `opencode serve`, for example http://127.0.0.1:4096")
    })?;
    Ok(Arc::new(host))
}

/// A base URL for cards: an address that means every address is none that a client can call.
fn reachable(url: &str) -> String {
    let shown = url.replacen("//0.0.0.0:", "//127.0.0.1:", 1).replacen("//[::]:", "//[::1]:", 1);
    if shown != url {
        terminal::say(&format!(
            "note: the cards name {shown}, which only this machine reaches; A2A_PUBLIC_URL sets another address\n"
        ));
    }
    shown
}

/// A declaration about a sandbox that nothing enforces would mislead whoever reads it.
fn refuse_unenforced_boundary(settings: &Settings) -> Result<(), Failure> {
    if settings.upstream_url.is_some() || !settings.boundary.is_declared() {
        return Ok(());
    }
    let message =
        "Trefoil's own engine does not enforce the sandbox, network, approval and write settings that are declared";
    Err(Failure::new(Exit::Usage, message).hint(
        "remove A2A_SANDBOX_*, A2A_NETWORK_*, A2A_APPROVAL_* and A2A_WRITE_ACCESS_*; permission rules limit the agent",
    ))
}

fn credentials(settings: &Settings, no_auth: bool) -> Result<Credentials, Failure> {
    match Credentials::new(settings.bearer_token.as_deref(), settings.static_credentials.as_deref()) {
        Ok(_) if no_auth => Err(Failure::new(Exit::Usage, "--no-auth contradicts the credentials that are configured")
            .hint("remove --no-auth, or A2A_BEARER_TOKEN and A2A_STATIC_AUTH_CREDENTIALS")),
        Ok(credentials) => Ok(credentials),
        Err(CredentialsError::Missing) if no_auth && is_loopback(&settings.host) => Ok(Credentials::none()),
        Err(CredentialsError::Missing) if no_auth => {
            let message =
                format!("--no-auth is for this machine alone, and {} can be reached from others", settings.host);
            Err(Failure::new(Exit::Usage, message).hint("set A2A_BEARER_TOKEN, or listen on 127.0.0.1"))
        }
        Err(CredentialsError::Missing) => {
            Err(Failure::new(Exit::Usage, "there are no credentials for the A2A service")
                .hint("set A2A_BEARER_TOKEN to a secret of your choice; on this machine alone --no-auth goes without"))
        }
        Err(error @ CredentialsError::Registry(_)) => {
            Err(Failure::new(Exit::Usage, error.to_string()).hint("docs/a2a.md shows a registry of credentials"))
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

async fn records(settings: &Settings, invocation: &Invocation, store: Option<Store>) -> anyhow::Result<Records> {
    let (opened, backend, url) = match &settings.backend {
        Backend::Default => {
            let path = invocation.database_path();
            let store = store.map_or_else(|| super::open_store(invocation, Store::open_with), Ok)?;
            (Records::open(store, &path).await, "sqlite", sqlite_url(&path))
        }
        Backend::File(path) => {
            let path = invocation.directory.join(path);
            let store = Store::open_with(&path, super::store_options(invocation)?).map_err(|error| {
                Failure::new(Exit::Failed, format!("cannot open A2A_TASK_STORE_DATABASE_URL: {error}"))
                    .hint("a database of another program is left as it is; name a file that does not exist yet")
            })?;
            (Records::open(store, &path).await, "sqlite", sqlite_url(&path))
        }
        Backend::Memory => (Records::open_temporary(&std::env::temp_dir()).await, "memory", String::new()),
    };
    let records = opened.map_err(|error| {
        let failure = Failure::new(Exit::Failed, error.to_string());
        match error {
            OpenError::InUse { .. } => {
                failure.hint("one A2A service per database: stop the other one, or set A2A_TASK_STORE_DATABASE_URL")
            }
            _ => failure,
        }
    })?;
    let scope = "tasks, session owners, interrupts, push configurations";
    tracing::info!(target: "a2a", backend, url, scope, durable = backend != "memory", "state of the A2A service");
    Ok(records)
}

/// How the log shows a database. It has no credentials to leave out.
fn sqlite_url(path: &Path) -> String {
    format!("sqlite:///{}", path.display())
}

fn workspace_root(settings: &Settings, invocation: &Invocation) -> Result<PathBuf, Failure> {
    let path = match &settings.workspace_root {
        Some(path) => invocation.directory.join(path),
        None => invocation.directory.clone(),
    };
    // On another machine's server the folder need not exist here.
    if settings.upstream_url.is_some() {
        return Ok(path.canonicalize().unwrap_or(path));
    }
    path.canonicalize().map_err(|error| {
        Failure::new(Exit::Usage, format!("OPENCODE_WORKSPACE_ROOT {}: {error}", path.display()))
            .hint("name an existing folder")
    })
}

fn read_key(path: &Path) -> Result<String, Failure> {
    let refused = |why: String| {
        Failure::new(Exit::Usage, format!("A2A_CARD_SIGNING_KEY {}: {why}", path.display()))
            .hint("name a file with a PKCS#8 private key in PEM form")
    };
    let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if size > MAX_KEY_BYTES {
        return Err(refused("too large for a key".to_owned()));
    }
    std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))
}

/// The host name of a URL.
fn host_of(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { authority }
    });
    Some(host.to_owned())
}
