//! `trefoil serve`: the OpenCode server.

use std::sync::Arc;
use std::time::Duration;

use a2a::service::{Agent, Service};
use a2a::{Endpoint, MOUNT_PATH};
use api::{Host as _, JsonMap, Scope};
use engine::{Engine, TidyOptions, TidyReport, WatchdogScope};
use server::{Listen, Options, Password, Server, StartError};
use transport::mount::Mount;

use crate::args::Serve;
use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::wiring::a2a::{A2aOptions, Prepared};
use crate::wiring::{self, Interrupt, Invocation, LocalEngine};

/// How often expired data is removed; the first time at the start.
const TIDY_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Serves until a signal comes. Running turns are parked, and continue at the next start.
pub async fn command(args: &Serve, invocation: &Invocation) -> anyhow::Result<()> {
    let stop = Interrupt::listen()?;
    let script = args.script.clone().or_else(|| invocation.script_file());
    let local = wiring::open(invocation, script.as_deref(), true)?;
    wiring::prove_writable(&local.store).await?;
    let loaded = local.engine.loaded(&Scope::new(invocation.directory.to_string_lossy()));
    let password = password(args, invocation);
    let a2a = args.a2a.then(|| prepare_a2a(invocation, &loaded.config.a2a)).transpose()?;
    if password.is_some() || a2a.is_some() {
        wiring::protect_memory();
    }
    let options = Options {
        engine: local.engine.clone(),
        directory: invocation.directory.clone(),
        listen: listen(args, &loaded.config.server),
        password,
        cors: args.cors.iter().cloned().chain(strings(&loaded.config.server, "cors")).collect(),
        hosts: args.allow_host.clone(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    };
    let server = Server::bind(options).await.map_err(explain)?;
    let a2a = match a2a {
        Some(prepared) => Some(open_a2a(prepared, invocation, &local, server.url(), &stop).await?),
        None => None,
    };
    // OpenCode's clients wait for this line and take the address from it.
    terminal::print(&format!("opencode server listening on {}\n", server.url()))?;
    start_upkeep(&local.engine);
    invocation.start_watchdog(&local.engine, WatchdogScope::All);
    let (service, endpoint) = a2a.unzip();
    let parked = async {
        stop.token.cancelled().await;
        if let Some(service) = service {
            service.shutdown().await;
        }
        local.engine.shutdown().await;
    };
    let mount = endpoint.map(|endpoint| endpoint as Arc<dyn Mount>);
    // At the same time, so that waiting clients learn at once that their turn is parked.
    tokio::join!(server.run(stop.token.clone(), mount), parked);
    Ok(())
}

/// Cleans up after a crash, resumes interrupted turns, and removes expired data from time to time.
pub fn start_upkeep(engine: &Engine) {
    let engine = engine.clone();
    tokio::spawn(async move {
        // Before the recovery: while the caller's turn runs, leftovers look like worktrees that are being created.
        match engine.clean_worktrees(false).await {
            Ok(cleaned) if cleaned == Default::default() => {}
            Ok(cleaned) => tracing::info!(?cleaned, "removed worktrees that a crash left behind"),
            Err(error) => tracing::error!(%error, "cannot remove worktrees that a crash left behind"),
        }
        match engine.recover(None).await {
            Ok(0) => {}
            Ok(turns) => tracing::info!(turns, "resumed interrupted turns"),
            Err(error) => tracing::error!(%error, "cannot resume interrupted turns"),
        }
        loop {
            match engine.tidy(TidyOptions::default()).await {
                Ok(tidied) if tidied == TidyReport::default() => {}
                Ok(tidied) => tracing::info!(?tidied, "removed expired data"),
                Err(error) => tracing::error!(%error, "cannot remove expired data"),
            }
            tokio::time::sleep(TIDY_INTERVAL).await;
        }
    });
}

/// Checks the settings of the A2A service, before the server listens.
fn prepare_a2a(invocation: &Invocation, config: &JsonMap) -> anyhow::Result<Prepared> {
    let settings = wiring::a2a::settings(invocation, config)?;
    if settings.upstream_url.is_some() {
        let message = "serve --a2a works on the engine of this server, and OPENCODE_BASE_URL names another one";
        return Err(Failure::new(Exit::Usage, message)
            .hint("unset OPENCODE_BASE_URL, or use `trefoil a2a` in front of that server")
            .into());
    }
    Ok(wiring::a2a::prepare(settings, invocation, false)?)
}

/// Opens the A2A service of this server. Tasks that were cancelled before a crash stop here, before the engine resumes
/// interrupted turns.
async fn open_a2a(
    prepared: Prepared,
    invocation: &Invocation,
    local: &LocalEngine,
    url: &str,
    stop: &Interrupt,
) -> anyhow::Result<(Service, Arc<Endpoint>)> {
    // Clients of a unix socket choose any host name.
    let base = if url.starts_with("unix:") { "http://localhost" } else { url };
    let options = A2aOptions {
        host: Arc::new(local.engine.clone()),
        store: Some(local.store.clone()),
        agent: Agent::Host,
        url: format!("{base}{MOUNT_PATH}"),
        closing: stop.token.clone(),
    };
    wiring::a2a::open(prepared, invocation, options).await
}

fn listen(args: &Serve, config: &JsonMap) -> Listen {
    if let Some(path) = &args.socket {
        return Listen::Unix(path.clone());
    }
    let configured = config.get("hostname").and_then(|name| name.as_str()).map(str::to_owned);
    let host = args.hostname.clone().or(configured).unwrap_or_else(|| "127.0.0.1".to_string());
    let configured = config.get("port").and_then(|port| port.as_u64()).and_then(|port| u16::try_from(port).ok());
    Listen::Tcp { host, port: args.port.or(configured) }
}

fn strings(config: &JsonMap, key: &str) -> Vec<String> {
    let list = config.get(key).and_then(|list| list.as_array()).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The password from the command line, or else from the environment.
fn password(args: &Serve, invocation: &Invocation) -> Option<Password> {
    let password = args.password.clone().or_else(|| invocation.server_secret("PASSWORD"))?;
    Some(Password {
        username: invocation.server_secret("USERNAME").unwrap_or_else(|| "opencode".to_string()),
        password,
    })
}

fn explain(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Open(_) => "set OPENCODE_SERVER_PASSWORD or --password, or listen on 127.0.0.1",
        StartError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            "another program listens there; choose another --port, or 0 for any free one"
        }
        StartError::Listen { .. } => "check --hostname, --port and --socket",
    };
    Failure::new(Exit::Failed, error.to_string()).hint(hint)
}
