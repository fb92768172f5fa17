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

/// The key of a card is a few hundred bytes.
const MAX_KEY_BYTES: u64 = 64 << 10;

/// What a service needs besides its settings.
pub struct A2aOptions {
    /// Who does the work.
    pub host: Arc<dyn AgentRuntime>,
    /// Trefoil's own database, where tasks are unless the settings name another place.
    pub store: Store,
    /// Who answers: the runtime, or the script that conformance kits drive.
    pub agent: Agent,
    /// Whether callers need no credentials.
    pub open: bool,
    /// The base URL of the service as clients of this machine reach it.
    pub url: String,
    /// Whether the service is at the root of its address.
    pub at_root: bool,
    /// Cancelled when the program stops.
    pub closing: CancellationToken,
}

/// Reads the settings of the service.
pub fn settings(invocation: &Invocation, config: &api::JsonMap) -> Result<Settings, Failure> {
    Settings::read(|name| invocation.env.get(name).cloned(), config).map_err(|error| {
        Failure::new(Exit::Usage, error.to_string()).hint("docs/a2a.md lists the settings of the A2A service")
    })
}

/// Opens the service and its endpoint.
pub async fn open(
    settings: Settings,
    invocation: &Invocation,
    options: A2aOptions,
) -> anyhow::Result<(Service, Arc<Endpoint>)> {
    refuse_unenforced_boundary(&settings)?;
    let credentials = credentials(&settings, options.open)?;
    let records = records(&settings, invocation, &options.store).await?;
    let workspace_root = workspace_root(&settings, invocation)?;
    let service = Service::open(ServiceOptions {
        host: options.host,
        records,
        settings: (&settings).into(),
        workspace_root: workspace_root.clone(),
        agent: options.agent,
    })
    .await
    .map_err(|error| Failure::new(Exit::Failed, format!("cannot open the tasks: {error}")))?;
    let public_url = settings.public_url.clone().unwrap_or(options.url);
    let schemes = credentials.schemes();
    let card = a2a::card::CardInput::new(&settings, &public_url, &schemes, &workspace_root, env!("CARGO_PKG_VERSION"));
    let signing_key = settings.card_signing_key.as_deref().map(|path| read_key(&invocation.directory.join(path)));
    let endpoint = Endpoint::new(EndpointOptions {
        extensions: Extensions::new(service.clone()),
        service: service.clone(),
        credentials,
        card,
        signing_key: signing_key.transpose()?,
        hosts: host_of(&public_url).into_iter().collect(),
        closing: options.closing,
        settings,
    })
    .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    Ok((service, Arc::new(endpoint)))
}

/// A declaration about a sandbox that nothing enforces would mislead whoever reads it.
fn refuse_unenforced_boundary(settings: &Settings) -> Result<(), Failure> {
    if settings.upstream_url.is_some() || !settings.boundary.is_declared() {
        return Ok(());
    }
    let message = "Trefoil's own engine does not enforce the sandbox, network, approval and write settings that are declared";
    Err(Failure::new(Exit::Usage, message).hint(
        "remove A2A_SANDBOX_*, A2A_NETWORK_*, A2A_APPROVAL_* and A2A_WRITE_ACCESS_*; permission rules limit the agent",
    ))
}

fn credentials(settings: &Settings, open: bool) -> Result<Credentials, Failure> {
    match Credentials::new(settings.bearer_token.as_deref(), settings.static_credentials.as_deref()) {
        Ok(_) if open => Err(Failure::new(Exit::Usage, "--no-auth contradicts the credentials that are configured")
            .hint("remove --no-auth, or A2A_BEARER_TOKEN and A2A_STATIC_AUTH_CREDENTIALS")),
        Ok(credentials) => Ok(credentials),
        Err(CredentialsError::Missing) if open && is_loopback(&settings.host) => Ok(Credentials::none()),
        Err(CredentialsError::Missing) if open => {
            let message = format!("--no-auth is for this machine alone, and {} can be reached from others", settings.host);
            Err(Failure::new(Exit::Usage, message).hint("set A2A_BEARER_TOKEN, or listen on 127.0.0.1"))
        }
        Err(CredentialsError::Missing) => Err(Failure::new(Exit::Usage, "there are no credentials for the A2A service")
            .hint("set A2A_BEARER_TOKEN to a secret of your choice; on this machine alone --no-auth goes without")),
        Err(error @ CredentialsError::Registry(_)) => Err(Failure::new(Exit::Usage, error.to_string())),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

async fn records(settings: &Settings, invocation: &Invocation, store: &Store) -> anyhow::Result<Records> {
    let (opened, place) = match &settings.backend {
        Backend::Default => {
            let path = invocation.database_path();
            (Records::open(store.clone(), &path).await, path.display().to_string())
        }
        Backend::File(path) => {
            let path = invocation.directory.join(path);
            let store = Store::open(&path).map_err(|error| {
                Failure::new(Exit::Failed, format!("cannot open A2A_TASK_STORE_DATABASE_URL: {error}"))
                    .hint("a database of another program is left alone; name a file that does not exist yet")
            })?;
            (Records::open(store, &path).await, path.display().to_string())
        }
        Backend::Memory => {
            let parent = std::env::temp_dir();
            (Records::open_temporary(&parent).await, "memory".to_owned())
        }
    };
    let records = opened.map_err(|error| {
        let failure = Failure::new(Exit::Failed, error.to_string());
        match error {
            OpenError::InUse { .. } => {
                failure.hint("one A2A service per database; stop the other, or set A2A_TASK_STORE_DATABASE_URL")
            }
            _ => failure,
        }
    })?;
    tracing::info!(place, "tasks, sessions, interrupts and push configurations are kept here");
    Ok(records)
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
